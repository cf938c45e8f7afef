"""The viewer: what it refuses, where it listens, what its sphere and boxes say, and what it does in a browser."""

import importlib.util
import json
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from browsing import PHONE, displayed, opened, wait_until
from runs import ROOT, command, run

import exp_runner
from data.errors import UserError
from data.io.images import read_image
from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.viewer import server
from models.viewer.boxes import LINE, Boxes
from models.viewer.cameras import fov_of, hit
from models.viewer.scene_display import pose_of

needs_viser = pytest.mark.skipif(
    importlib.util.find_spec("viser") is None, reason="viser, which is optional, is missing"
)
CANVAS = "[...document.querySelectorAll('canvas')].some((canvas) => canvas.clientWidth > 300)"  # it is drawn upon
DESKTOP = (800, 600)  # no graphics card draws it here
SECONDS = 240  # a busy machine may take that long to start Jittor


@pytest.fixture(scope="module")
def scene():
    return load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--mode", "view", "--port", "80"], "'80' is not a whole number in 1024..65535"),
        (["--mode", "evaluate", "--view"], "--view: is a flag of --mode train and inspect"),
    ],
)
def test_a_wrong_flag_gets_its_sentence(words, told, capsys):
    assert exp_runner.main(words) == 2
    assert told in capsys.readouterr().err


def test_a_busy_port_is_the_next_one_and_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, told = taken.getsockname()[1], []
        assert server.free_port("127.0.0.1", port, told.append) > port
        assert told[0].startswith(f"port {port} is in use; the viewer uses ")
    with pytest.raises(UserError, match="--host 203.0.113.7: this machine cannot listen there"):
        server.free_port("203.0.113.7", 9000, told.append)
    with pytest.raises(UserError, match="--host: is empty"):  # sockets would open all addresses
        server.free_port("", 9000, told.append)


@pytest.fixture
def stage(scene):
    with displayed(scene, 9300) as shown:
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
def test_a_click_at_a_photograph_goes_to_its_camera(stage):
    shown, _ = stage
    with opened(f"http://127.0.0.1:{shown.server.get_port()}", DESKTOP) as (page, _errors):
        page.wait_for_function(CANVAS)
        page.wait_for_timeout(4000)
        shown.region.visible = False  # it stands before some of them
        page.wait_for_timeout(1500)
        (client,) = shown.server.get_clients().values()
        middles, eye = shown.cameras.bases.mean(axis=1), np.asarray(client.camera.position)
        left_of_the_controls = [
            (view, place)
            for view, place in enumerate(on_screen(client.camera, middle, DESKTOP) for middle in middles)
            if hit(shown.cameras.bases, eye, middles[view] - eye) == view
            and 50 < place[0] < 0.6 * DESKTOP[0]
            and 200 < place[1] < DESKTOP[1] - 50
        ]
        view, place = min(left_of_the_controls, key=lambda found: np.linalg.norm(middles[found[0]] - eye))
        page.mouse.click(*place)
        assert wait_until(page, lambda: np.allclose(client.camera.position, shown.scene.c2w[view, :3, 3], atol=1e-2))


@needs_viser
@pytest.mark.browser
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_dragged_sphere_prints_its_flag(stage, tmp_path, size):
    shown, told = stage
    with opened(f"http://127.0.0.1:{shown.server.get_port()}", size) as (page, errors):
        page.wait_for_function(CANVAS)
        page.wait_for_timeout(4000)
        picture = tmp_path / "canvas.png"
        page.screenshot(path=str(picture))
        assert read_image(picture).astype(float).std() > 5
        shown.cameras.show(False)  # they may stand before the sphere
        page.wait_for_timeout(1500)
        (client,) = shown.server.get_clients().values()
        x, y = on_screen(client.camera, np.array([0.3, 0.0, 0.0]), size)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(*on_screen(client.camera, np.array([0.6, 0.0, 0.0]), size), steps=8)
        page.mouse.up()
        assert wait_until(page, lambda: shown.region.position[0] > 0.1)
        assert wait_until(page, lambda: any(text.startswith('--roi "') for text in told))
        assert without_fonts(errors) == []


@needs_viser
@pytest.mark.browser
def test_a_rectangle_that_is_drawn_is_a_box_of_that_photograph(stage, tmp_path):
    shown, told = stage
    boxes = Boxes(shown, tmp_path, 1, told.append)
    boxes.view.value = 2
    width, height = shown.scene.size(2)
    with opened(f"http://127.0.0.1:{shown.server.get_port()}", DESKTOP) as (page, errors):
        page.wait_for_function(CANVAS)
        page.get_by_text("boxes for masks").click()
        page.get_by_role("button", name="draw a box").click()
        page.get_by_role("button", name="draw a box").click()  # twice is once
        page.get_by_text("now drag a rectangle").wait_for()
        page.wait_for_timeout(2000)
        page.mouse.move(200, 220)  # below the notice that there is no graphics card
        page.mouse.down()
        page.mouse.move(400, 420, steps=6)
        page.mouse.up()
        page.get_by_text("boxes in").wait_for()

        def edge_is_drawn():
            page.screenshot(path=str(tmp_path / "drawn.png"))
            edge = read_image(tmp_path / "drawn.png")[250:350, 190:210, :3].astype(int)
            return (np.abs(edge - LINE).max(axis=2) < 60).any(axis=1).all()

        assert wait_until(page, edge_is_drawn)  # nothing of the scene stands before the box
        assert without_fonts(errors) == []
    found = json.loads((tmp_path / "boxes.json").read_text())["boxes"]
    assert list(found) == [shown.scene.image_names[2]] and sum("in " + str(tmp_path) in text for text in told) == 1
    centre = shown.scene.intrinsics[2, :2, 2] + 0.5
    scale = height / DESKTOP[1]  # the photograph is as high as the window
    expected = [centre + scale * (np.array(place) - np.array(DESKTOP) / 2) for place in ((200, 220), (400, 420))]
    assert np.allclose(found[shown.scene.image_names[2]], np.ravel(expected), atol=scale * 4)


def without_fonts(errors):
    """What the console said, but for the fonts that no network brings."""
    return [text for text in errors if "font" not in text.lower()]


def on_screen(camera, point, size):
    """Where a point of the working frame is in the window."""
    pose = pose_of(camera)
    seen = pose[:3, :3].T @ (point - pose[:3, 3])
    focal = 0.5 * size[1] / np.tan(0.5 * camera.fov)
    return size[0] / 2 + focal * seen[0] / seen[2], size[1] / 2 + focal * seen[1] / seen[2]


def started(process):
    """The address that a viewer prints."""
    until = time.monotonic() + SECONDS
    lines = []
    while time.monotonic() < until:
        line = process.stdout.readline()
        lines.append(line)
        if found := re.search(r"viewer: http://localhost:(\d+)", line):
            return f"http://127.0.0.1:{found[1]}"
        if not line and process.poll() is not None:
            break
    raise AssertionError("".join(lines))


@pytest.mark.cli
@needs_viser
@pytest.mark.browser
def test_a_model_is_shown_until_ctrl_c_and_a_closed_tab_ends_nothing(tmp_path):
    settings = (
        "train.end_iter=4",
        "train.warm_up_end=1",
        "train.save_freq=2",
        "train.val_freq=0",
        "train.val_mesh_freq=0",
    )
    assert run(tmp_path, settings=settings) == 0
    words = command(tmp_path, "--mode", "view", "--port", "9400", settings=settings)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = started(process)
        for before, after in (("mesh", "normals"), ("normals", "rendering")):  # a tab that is closed, and another one
            with opened(address, DESKTOP) as (page, errors):
                page.wait_for_function(CANVAS)
                page.get_by_text("step 4", exact=False).first.wait_for(timeout=60_000)
                page.locator(f"input[role='combobox'][value='{before}']").click()
                page.get_by_role("option", name=after).click()
                page.wait_for_timeout(1500)
                assert without_fonts(errors) == []
            if after == "rendering":
                continue
            with opened(address, DESKTOP) as (page, errors):  # the list of checkpoints goes there and back
                for before, step in ((4, 2), (2, 4)):
                    page.locator(f"input[role='combobox'][value='step {before}']").click()
                    page.get_by_role("option", name=f"step {step}").click()
                    page.locator("p", has_text=f"step {step}").wait_for(timeout=60_000)  # below the controls
                assert without_fonts(errors) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and "the viewer is closed" in process.stdout.read()
    finally:
        process.kill()
