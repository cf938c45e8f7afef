"""The viewer: what it refuses, where it listens, what its sphere and boxes say, and what it does in a browser."""

import json
import re
import signal
import socket
import subprocess

import numpy as np
import pytest
from browsing import CANVAS, demo_scene, displayed, needs_viser, on_screen, opened, wait_until, without_fonts
from runs import command, run

import exp_runner
from data.errors import UserError
from data.io.images import read_image
from models.viewer import server
from models.viewer.boxes import LINE, Boxes
from models.viewer.cameras import fov_of, hit

DESKTOP = (800, 600)  # no graphics card draws it here


def test_a_wrong_flag_gets_its_sentence(capsys):
    assert exp_runner.main(["--mode", "view", "--port", "80"]) == 2
    assert "'80' is not a whole number in 1024..65535" in capsys.readouterr().err
    assert exp_runner.main(["--mode", "evaluate", "--view"]) == 2
    assert "--view: is a flag of --mode train and inspect" in capsys.readouterr().err


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
def test_a_box_is_written_as_prepare_reads_it(stage, tmp_path):
    shown, told = stage
    boxes = Boxes(shown, tmp_path, 2, told.append)
    fov, (width, height) = fov_of(shown.scene, 1), shown.scene.size(1)
    boxes.take(1, ((0.25, 0.25), (0.75, 1.0)), fov, width / height)
    found = json.loads((tmp_path / "boxes.json").read_text())["boxes"]
    left, top, right, bottom = found[shown.scene.image_names[1]]
    shift = shown.scene.intrinsics[1, :2, 2] + 0.5 - np.array([width, height]) / 2
    assert np.allclose([left, top], 2 * (np.array([width, height]) / 4 + shift), atol=0.2)
    assert np.isclose(right - left, width, atol=0.2) and bottom <= 2 * height
    assert "--mode prepare --masks box reads it" in told[-1]
    assert boxes.seen(1, fov, 1.5).shape == (720, 1080, 3)
    (tmp_path / "boxes.json").write_text("[")
    Boxes(shown, tmp_path, 1, told.append)
    assert "the first box that is drawn replaces it" in told[-1]


@needs_viser
@pytest.mark.browser
def test_sphere_cameras_and_boxes_in_a_browser(stage, tmp_path):
    shown, told = stage
    boxes, scene = Boxes(shown, tmp_path, 1, told.append), shown.scene
    boxes.view.value = 2
    with opened(f"http://127.0.0.1:{shown.server.get_port()}", DESKTOP) as (page, errors):
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

        def edge_is_drawn():
            page.screenshot(path=str(tmp_path / "drawn.png"))
            edge = read_image(tmp_path / "drawn.png")[250:350, 190:210, :3].astype(int)
            return (np.abs(edge - LINE).max(axis=2) < 60).any(axis=1).all()

        assert wait_until(page, edge_is_drawn)  # nothing of the scene stands before the box
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


def started(process):
    """The address that a viewer prints."""
    found = (re.search(r"viewer: http://localhost:(\d+)", line) for line in process.stdout)
    return f"http://127.0.0.1:{next(filter(None, found))[1]}"


@pytest.mark.cli
@needs_viser
@pytest.mark.browser
def test_a_model_is_shown_until_ctrl_c_and_a_closed_tab_ends_nothing(tmp_path):
    settings = ("train.end_iter=4", "train.warm_up_end=1", "train.save_freq=2", "train.val_freq=0")
    settings += ("train.val_mesh_freq=0",)
    assert run(tmp_path, settings=settings) == 0
    words = command(tmp_path, "--mode", "view", "--port", "9400", settings=settings)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def choose(page, before, after):
        page.locator(f"input[role='combobox'][value='{before}']").click()
        page.get_by_role("option", name=after).click()

    try:
        address = started(process)
        with opened(address, DESKTOP) as (page, errors):  # a tab that is closed, and another one
            page.wait_for_function(CANVAS)
            page.get_by_text("step 4", exact=False).first.wait_for(timeout=60_000)
            choose(page, "mesh", "normals")
            page.wait_for_timeout(1500)
            assert without_fonts(errors) == []
        with opened(address, DESKTOP) as (page, errors):
            choose(page, "normals", "rendering")
            for before, step in ((4, 2), (2, 4)):  # the list of checkpoints goes there and back
                choose(page, f"step {before}", f"step {step}")
                page.locator("p", has_text=f"step {step}").wait_for(timeout=60_000)  # below the controls
            assert without_fonts(errors) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and "the viewer is closed" in process.stdout.read()
    finally:
        process.kill()
