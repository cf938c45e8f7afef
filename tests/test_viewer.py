"""The viewer: what it refuses, where it listens, what its sphere and boxes say, and what it does in a browser."""

import json
import signal
import socket
import subprocess

import numpy as np
import pytest
import trimesh
from browsing import (
    CANVAS,
    address_in,
    demo_scene,
    displayed,
    needs_viser,
    on_screen,
    opened,
    wait_until,
    without_fonts,
)
from runs import ROOT, command, run

from data.errors import UserError
from data.io.images import read_image
from models.viewer import server
from models.viewer.scene_display import hit
from models.viewer.tools import Boxes, ConfKeys, CropBox

DESKTOP = (800, 600)  # no graphics card draws it here


def test_a_busy_port_is_the_next_one_and_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, told = taken.getsockname()[1], []
        assert server.free_port("127.0.0.1", port, told.append) > port
        assert told[0].startswith(f"port {port} is in use; the viewer uses ")
    for host, words in (("203.0.113.7", "203.0.113.7: this machine cannot listen there"), ("", ": is empty")):
        with pytest.raises(UserError, match=f"--host ?{words}"):  # sockets would open all addresses at ""
            server.free_port(host, 9000, told.append)


@pytest.fixture
def stage():
    with displayed(demo_scene(), 9300) as shown:
        yield shown


@needs_viser
@pytest.mark.browser
def test_sphere_cameras_and_boxes_in_a_browser(stage, tmp_path):
    shown, told = stage
    boxes, scene = Boxes(shown, tmp_path, 1, told.append), shown.scene
    CropBox(shown, ConfKeys(ROOT / "confs/debug.conf", tmp_path), told.append)
    boxes.view.value = 2
    with opened(address_in(told), DESKTOP) as (page, errors):
        page.wait_for_function(CANVAS)
        page.wait_for_timeout(4000)
        page.screenshot(path=str(tmp_path / "canvas.png"))
        assert read_image(tmp_path / "canvas.png").astype(float).std() > 5
        (client,) = shown.server.get_clients().values()

        shown.cameras.show(False)  # they may stand before the sphere
        page.wait_for_timeout(1500)
        drag(page, *(on_screen(client.camera, np.array([x, 0.0, 0.0]), DESKTOP) for x in (0.3, 0.6)))
        assert wait_until(page, lambda: shown.region.position[0] > 0.1)
        assert wait_until(page, lambda: any(text.startswith('--roi "') for text in told))

        page.get_by_role("button", name="save region and box as a conf").click()  # beside the sphere
        assert wait_until(page, lambda: (tmp_path / "region.conf").is_file())
        shown.cameras.show(True)
        shown.region.visible = False  # it stands before some of them
        page.wait_for_timeout(1500)
        middles, eye = shown.cameras.bases.mean(axis=1), np.asarray(client.camera.position)
        places = [on_screen(client.camera, middle, DESKTOP) for middle in middles]
        view = min(
            (view for view, (x, y) in enumerate(places)  # beside the controls
             if hit(shown.cameras.bases, eye, middles[view] - eye) == view and 50 < x < 480 and 200 < y < 550),
            key=lambda view: np.linalg.norm(middles[view] - eye),
        )  # fmt: skip
        page.mouse.click(*places[view])
        assert wait_until(page, lambda: np.allclose(client.camera.position, scene.c2w[view, :3, 3], atol=1e-2))

        page.get_by_text("boxes for masks").click()
        for _ in range(2):  # twice is once
            page.get_by_role("button", name="draw a box").click()
        page.get_by_text("now drag a rectangle").wait_for()
        page.wait_for_timeout(2000)
        drag(page, *(corners := ((200, 220), (400, 420))))  # below the notice that there is no graphics card
        page.get_by_text("boxes in").wait_for()
        assert without_fonts(errors) == []
    ((name, box),) = json.loads((tmp_path / "boxes.json").read_text())["boxes"].items()
    assert name == scene.image_names[2] and sum("in " + str(tmp_path) in text for text in told) == 1
    scale = scene.size(2)[1] / DESKTOP[1]  # the photograph is as high as the window
    expected = scene.intrinsics[2, :2, 2] + 0.5 + scale * (np.array(corners) - np.array(DESKTOP) / 2)
    assert np.allclose(box, expected.ravel(), atol=scale * 4)


def drag(page, begin, end):
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


@pytest.mark.cli
@needs_viser
@pytest.mark.browser
def test_a_model_is_shown_until_ctrl_c_and_a_closed_tab_ends_nothing(tmp_path):
    assert run(tmp_path) == 0
    words = command(tmp_path, "--mode", "view", "--port", "9400")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def choose(page, before, after):
        page.locator(f"input[role='combobox'][value='{before}']").click()
        page.get_by_role("option", name=after).click()

    try:
        address = address_in(process.stdout)
        with opened(address, DESKTOP) as (page, errors):  # a tab that is closed, and another one
            page.wait_for_function(CANVAS)
            page.get_by_text("step 6", exact=False).first.wait_for()
            page.get_by_text("export", exact=True).click()
            page.get_by_role("button", name="write the mesh").click()
            page.get_by_text("written:").wait_for()
            assert len(trimesh.load(tmp_path / "meshes/00000006.glb", force="mesh").faces) > 100
            choose(page, "mesh", "normals")
            page.wait_for_timeout(1500)
            assert without_fonts(errors) == []
        with opened(address, DESKTOP) as (page, errors):
            choose(page, "normals", "colours")
            for before, step in ((6, 3), (3, 6)):  # the list of checkpoints goes there and back
                choose(page, f"step {before}", f"step {step}")
                page.locator("p", has_text=f"step {step}").wait_for()  # below the controls
            assert without_fonts(errors) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 0 and "the viewer is closed" in process.stdout.read()
    finally:
        process.kill()
