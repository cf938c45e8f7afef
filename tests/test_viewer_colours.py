"""The viewer shows colours as in the photographs, and its field of view is that of its slider."""

import importlib.util
import json
import math

import cv2
import numpy as np
import pytest
import trimesh
from browsing import displayed, opened, wait_until
from runs import ROOT

from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.surface.mesh import Surface
from models.viewer.camera_tools import CameraTools
from models.viewer.live_render import LiveRenderer
from models.viewer.scene_display import pose_of
from models.viewer.tone import before_tone_mapping, unlit_glb

COLOURS = np.array([(200, 60, 30), (128, 128, 128), (245, 240, 230), (20, 25, 15), (40, 90, 20)], np.uint8)
SIZE = (800, 600)
needs_viser = pytest.mark.skipif(importlib.util.find_spec("viser") is None, reason="viser is optional, and missing")


def as_three_draws(colours):
    """sRGB in [0, 255] of linear colours: three.js's ACESFilmicToneMapping, written from its shader, one by one."""
    shown = []
    for r, g, b in colours.astype(float) / 0.6:
        v = [
            0.59719 * r + 0.35458 * g + 0.04823 * b,
            0.07600 * r + 0.90834 * g + 0.01566 * b,
            0.02840 * r + 0.13383 * g + 0.83777 * b,
        ]
        x, y, z = ((a * (a + 0.0245786) - 0.000090537) / (a * (0.983729 * a + 0.4329510) + 0.238081) for a in v)
        out = [
            1.60475 * x - 0.53108 * y - 0.07367 * z,
            -0.10208 * x + 1.10813 * y - 0.00605 * z,
            -0.00327 * x - 0.07276 * y + 1.07602 * z,
        ]
        shown.append([12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in np.clip(out, 0, 1)])
    return 255.0 * np.array(shown)


def test_the_tone_mapping_of_the_page_is_inverted():
    every = np.random.default_rng(0).integers(0, 256, (500, 3)).astype(np.uint8)
    greys = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    for colours in (every, greys):
        assert np.abs(as_three_draws(before_tone_mapping(colours)) - colours).max() < 1.5


def test_vertex_colours_are_written_as_floats_without_lighting():
    ball = trimesh.creation.icosphere(subdivisions=1)
    rgb = np.tile(COLOURS, (len(ball.vertices), 1))[: len(ball.vertices)]
    content = unlit_glb(ball, rgb)
    length = int.from_bytes(content[12:16], "little")
    tree = json.loads(content[20 : 20 + length])
    assert tree["extensionsUsed"] == ["KHR_materials_unlit"]
    assert "KHR_materials_unlit" in tree["materials"][tree["meshes"][0]["primitives"][0]["material"]]["extensions"]
    accessor = tree["accessors"][tree["meshes"][0]["primitives"][0]["attributes"]["COLOR_0"]]
    assert (accessor["componentType"], accessor["type"], accessor["count"]) == (5126, "VEC3", len(ball.vertices))


@pytest.fixture
def stage():
    scene = load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)
    with displayed(scene, 9850) as (shown, _):
        yield shown


@needs_viser
@pytest.mark.browser
def test_a_mesh_has_the_colours_of_its_photographs_and_the_slider_sets_the_view(stage, tmp_path):
    live = LiveRenderer(stage)
    tools = CameraTools(stage, tmp_path, str)
    boxes, rgb = [], []
    for index, colour in enumerate(COLOURS):
        box = trimesh.creation.box((0.3, 0.3, 0.3))
        boxes.append(box.apply_translation((0.0, 0.4 * (index - 2), 0.0)))
        rgb.append(np.tile(colour, (len(box.vertices), 1)))
    live.show_mesh(Surface(trimesh.util.concatenate(boxes), rgb=np.concatenate(rgb)))
    stage.cameras.show(False)
    stage.region.visible = False
    with opened(f"http://127.0.0.1:{stage.server.get_port()}", SIZE) as (page, _errors):
        page.wait_for_function("[...document.querySelectorAll('canvas')].some((canvas) => canvas.clientWidth > 300)")
        page.wait_for_timeout(4000)
        (client,) = stage.server.get_clients().values()
        client.camera.position, client.camera.look_at = (3.0, 0.0, 0.2), (0.0, 0.0, 0.0)
        page.wait_for_timeout(2000)
        shot = client.get_render(SIZE[1], SIZE[0], transport_format="png")
        cv2.imwrite(str(tmp_path / "shot.png"), cv2.cvtColor(shot[..., :3], cv2.COLOR_RGB2BGR))
        for box, colour in zip(boxes, COLOURS, strict=True):
            across, down = place_of(box.centroid + (0.15, 0.0, 0.0), client.camera)
            assert np.abs(shot[down, across, :3].astype(int) - colour).max() <= 2
        page.get_by_text("camera", exact=True).click()
        page.get_by_text("field of view", exact=False).first.wait_for()
        before, height = math.degrees(client.camera.fov), seen_height(shot, COLOURS[0])
        assert height > 20
        page.locator("[role='slider']").last.focus()  # the other one is the radius of the region
        for _ in range(20):
            page.keyboard.press("ArrowLeft")
        assert wait_until(page, lambda: abs(math.degrees(client.camera.fov) - (round(before) - 20)) <= 0.1)
        after = math.degrees(client.camera.fov)
        assert tools.fov.value == round(before) - 20
        page.wait_for_timeout(1500)
        shot = client.get_render(SIZE[1], SIZE[0], transport_format="png")
        larger = math.tan(math.radians(0.5 * before)) / math.tan(math.radians(0.5 * after))
        assert seen_height(shot, COLOURS[1]) == pytest.approx(larger * height, rel=0.1)


def place_of(point, camera):
    """The pixel (x, y) of a point of the working frame."""
    pose = pose_of(camera)
    seen = pose[:3, :3].T @ (point - pose[:3, 3])
    focal = 0.5 * SIZE[1] / math.tan(0.5 * camera.fov)
    return round(SIZE[0] / 2 + focal * seen[0] / seen[2]), round(SIZE[1] / 2 + focal * seen[1] / seen[2])


def seen_height(shot, colour):
    """The largest number of pixels of a colour in one column."""
    return int((np.abs(shot[..., :3].astype(int) - colour).max(axis=2) <= 3).sum(axis=0).max())
