"""The tools of the viewer: what they save is what the other modes read; colours as in the photographs."""

import json
import math
import re
import shlex
from dataclasses import replace

import cv2
import numpy as np
import pytest
import trimesh
from browsing import CANVAS, address_in, demo_scene, displayed, needs_viser, on_screen, opened, wait_until
from runs import ROOT

from data.prepare.load import load_scene
from data.prepare.metric import lengths_of
from data.scenes.frustum import bounds
from models.commands.arguments import parse_arguments
from models.conf import load_config
from models.mesh.mesh import Surface
from models.results.camera_paths import from_file
from models.results.experiment import Experiment
from models.viewer.camera_tools import CameraTools
from models.viewer.live_render import LiveRenderer
from models.viewer.scene_display import TEXTS
from models.viewer.tools import CONF_FILE, ConfKeys, CropBox, ExportPanel, Ruler, nearest_to_ray

pytestmark = needs_viser
CONF = ROOT / "confs/debug.conf"
OF_DEMO = (f"dataset.data_dir={ROOT}/data/demo",)
SIZE = (800, 600)
COLOURS = np.array([(200, 60, 30), (128, 128, 128), (245, 240, 230), (20, 25, 15), (40, 90, 20)], np.uint8)


@pytest.fixture
def scene():
    return demo_scene()


@pytest.fixture
def stage(scene):
    with displayed(scene, 9800) as shown:
        yield shown


def in_world(scene, point):
    return scene.scene_to_world[:3, :3] @ point + scene.scene_to_world[:3, 3]


def scale_of(scene):
    return np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3]))


def test_region_and_crop_box_are_saved_as_keys_that_a_conf_reads(stage, tmp_path, scene):
    shown, told = stage
    crop = CropBox(shown, ConfKeys(CONF, tmp_path), told.append)
    crop.save()
    conf = load_config(tmp_path / CONF_FILE)
    assert (conf.dataset.roi, conf.dataset.bbox) == ("", "")  # nothing was moved
    shown.region.position, shown.radius.value = (0.25, 0.0, -0.125), 0.5
    crop.shown.value = True
    scale = scale_of(scene)
    for corner, place in zip(crop.corners, ((0.5, -0.5, 0.25), (-0.5, 0.5, -0.25)), strict=True):
        corner.position = tuple((np.array(place) - scene.scene_to_world[:3, 3]) / scale)
    crop.save()
    assert f"--conf {tmp_path / CONF_FILE}" in told[-1]
    conf = load_config(tmp_path / CONF_FILE, "", OF_DEMO)
    numbers = np.array(conf.dataset.roi.split(), float)
    assert np.allclose(numbers, [*in_world(scene, [0.25, 0.0, -0.125]), 0.5 * scale], atol=1e-4)
    cropped = load_scene(conf.dataset)
    corners = [in_world(cropped, end) for end in (cropped.bbox_min, cropped.bbox_max)]
    assert np.allclose(corners, [(-0.5, -0.5, -0.25), (0.5, 0.5, 0.25)], atol=1e-4)
    again = CropBox(shown, ConfKeys(tmp_path / CONF_FILE, tmp_path, conf.dataset.roi, conf.dataset.bbox), told.append)
    assert np.allclose(again.box, crop.box, atol=1e-4)
    again.save()  # into the conf that it was started with, which must not include itself
    assert load_config(tmp_path / CONF_FILE, "", OF_DEMO) == conf


def test_tools_of_a_scene_far_from_its_origin(tmp_path, scene):
    """What a browser holds in single precision is near the origin, and what is saved has the digits."""
    matrix = scene.scene_to_world.copy()
    matrix[:3, 3] += [512400.3, 4650000.7, 315.7]
    far, radius = replace(scene, scene_to_world=matrix), scale_of(scene)
    with displayed(far, 9840) as (shown, told):
        crop = CropBox(shown, ConfKeys(CONF, tmp_path), told.append)
        assert np.abs([corner.position for corner in crop.corners]).max() < 4
        whole = bounds(np.stack([scene.bbox_min, scene.bbox_max]), scene.scene_to_world)
        assert np.allclose(crop.box - matrix[:3, 3], whole - scene.scene_to_world[:3, 3], atol=1e-3)
        crop.shown.value, shown.region.position = True, (0.25, 0.0, -0.125)
        crop.save()
        conf = load_config(tmp_path / CONF_FILE).dataset
        assert np.allclose(np.reshape(conf.bbox.split(), (2, 3)).astype(float), crop.box, atol=1e-3 * radius)
        assert np.allclose(np.array(conf.roi.split(), float)[:3], in_world(far, [0.25, 0, -0.125]), atol=1e-3 * radius)
        ends = np.array(Ruler(shown, told.append).flag().split()[1:7], float).reshape(2, 3)
        assert np.abs(ends - matrix[:3, 3]).max() < 2 * radius and np.abs(ends[1] - ends[0]).max() > 0.1 * radius


def test_beside_a_mesh_all_else_is_shown_on_request(scene):
    for is_alone in (False, True):
        with displayed(scene, 9800, is_alone) as (shown, _):
            found = [shown.region.visible, shown.cameras.photographs.visible, LiveRenderer(shown)._status.content]
            assert found == [not is_alone, not is_alone, "computing ..."]


def test_the_status_says_what_is_computed(stage):
    live = LiveRenderer(stage[0])
    live.tell("step 6")
    assert live._status.content == "step 6 · computing ..."
    live.busy(False)
    assert live._status.content == "step 6"


def test_the_export_panel_asks_for_a_mesh_and_shows_what_was_written(stage, tmp_path):
    panel, asked = ExportPanel(stage[0], crop := CropBox(stage[0], ConfKeys(CONF, tmp_path), print)), []
    experiment = Experiment(load_config(CONF, "", OF_DEMO), tmp_path, stage[0].scene, None)
    panel.serve(experiment, 7, asked.append)
    panel.is_wanted = True
    panel.serve(experiment, 7, asked.append)
    panel.serve(experiment, 7, asked.append)
    assert len(asked) == 1 and asked[0].output == tmp_path / "meshes/00000007.glb"
    assert asked[0].bbox is None and asked[0].clean == "pieces", "a scene with masks"
    assert "00000007.glb" in panel.message.content
    panel.format.value, panel.is_textured.value, panel.is_cropped.value, panel.triangles.value = ".obj", True, True, 500
    panel.is_wanted = True
    panel.serve(experiment, 7, asked.append)
    assert (asked[1].decimate, asked[1].color) == (500, "texture") and "00000007.mtl" in panel.message.content
    assert np.allclose(asked[1].bbox, crop.box.reshape(-1))
    panel.format.value = ".stl"
    panel.is_wanted = True
    panel.serve(experiment, 7, asked.append)
    assert len(asked) == 2 and ".stl cannot hold" in panel.message.content


def test_the_words_of_the_page_on_the_viewer_are_those_that_it_shows():
    page = (ROOT / "docs/looking.md").read_text().partition("## The viewer")[2].partition("\n## ")[0]
    named = re.findall(r"\*\*([^*]+)\*\*", page)
    assert len(named) > 12 and set(named) <= {english for english, _ in json.loads(TEXTS.read_text()).values()}


@pytest.mark.parametrize("is_cycle", [False, True])
def test_a_saved_path_is_rendered_from_its_cameras(stage, tmp_path, scene, is_cycle):
    shown, told = stage
    tools = CameraTools(shown, tmp_path, told.append)
    tools.save()
    assert tools.message.content == "a path needs at least two cameras" and not list(tmp_path.iterdir())
    tools.is_cycle.value, tools.seconds.value = is_cycle, 0.5
    for view, fov in ((0, 40.0), (3, 50.0), (5, 60.0)):
        tools.add(scene.c2w[view], fov)
    tools.remove()
    tools.save()
    path = from_file(tmp_path / "camera_path.json", scene)
    assert len(path.shots) == 12 and (path.width, path.height) == scene.size(0)
    ends = (0, 0) if is_cycle else (0, 3)
    for shot, view in zip((path.shots[0], path.shots[-1]), ends, strict=True):
        assert np.allclose(shot.c2w, scene.c2w[view], atol=1e-6)
    assert np.isclose(path.shots[0].intrinsics[1, 1], 0.5 * path.height / math.tan(math.radians(20)))
    tools.save()  # keeps the first file
    assert (tmp_path / "camera_path_2.json").read_text() == (tmp_path / "camera_path.json").read_text()


def test_the_ruler_measures_on_the_surface_in_world_units(stage, scene):
    shown, told = stage
    tool, scale = Ruler(shown, told.append), scale_of(scene)
    shown.surface = trimesh.creation.icosphere(subdivisions=4, radius=0.5)
    tool.move_next(np.array([2.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0]))
    tool.move_next(np.array([0.0, 0.0, 3.0]), np.array([0.0, 0.0, -2.0]))
    tool.length.value = 0.25
    assert tool.distance == pytest.approx(0.5 * math.sqrt(2.0) * scale, rel=5e-3)
    typed = ["--mode", "prepare", "--images", str(ROOT / "data/demo/image"), "--case", "a", *shlex.split(tool.flag())]
    ((_, (ends, length)),) = lengths_of(
        parse_arguments(typed).values.scale
    )  # as the program reads the flag that is shown
    assert np.allclose(ends, [in_world(scene, np.eye(3)[k] / 2) for k in (0, 2)], atol=3e-3 * scale)
    assert length == 0.25 and tool.flag() in tool.message.content and f"{tool.distance:.5g}" in tool.message.content
    points = np.array([[0.0, 0.0, 5.0], [0.01, 0.0, 2.0], [1.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    assert nearest_to_ray(points, np.zeros(3), np.array([0.0, 0.0, 2.0])).tolist() == [0.01, 0.0, 2.0]


@pytest.mark.browser
def test_colours_and_tools_in_a_browser(stage, tmp_path, scene):
    shown, told = stage
    tools, tool, boxes, rgb = CameraTools(shown, tmp_path, told.append), Ruler(shown, told.append), [], []
    for index, colour in enumerate(COLOURS):
        boxes.append(trimesh.creation.box((0.3, 0.3, 0.3)).apply_translation((0.0, 0.4 * (index - 2), 0.0)))
        rgb.append(np.tile(colour, (len(boxes[0].vertices), 1)))
    shown.surface = trimesh.util.concatenate(boxes)
    LiveRenderer(shown).show_mesh(Surface(shown.surface, rgb=np.concatenate(rgb)))
    shown.cameras.show(False)
    shown.region.visible = False
    with opened(address_in(told), SIZE) as (page, _errors):
        page.wait_for_function(CANVAS)
        page.wait_for_timeout(4000)
        (client,) = shown.server.get_clients().values()
        client.camera.position, client.camera.look_at = (3.0, 0.0, 0.2), (0.0, 0.0, 0.0)
        page.wait_for_timeout(2000)
        shot = client.get_render(SIZE[1], SIZE[0], transport_format="png")
        faces = [on_screen(client.camera, box.centroid + (0.15, 0.0, 0.0), SIZE) for box in boxes]
        for (across, down), colour in zip(faces, COLOURS, strict=True):
            assert np.abs(shot[round(down), round(across), :3].astype(int) - colour).max() <= 2
        folders = {"camera": "screenshot", "camera path": "add this camera", "ruler": "pick two points"}
        for folder, button in folders.items():
            while not page.get_by_role("button", name=button).is_visible():  # a click may come before the page is ready
                page.get_by_text(folder, exact=True).click()
                page.wait_for_timeout(1000)
        page.get_by_role("button", name="add this camera").click()
        page.get_by_text("1 cameras in the path").wait_for()
        place = np.array(tools.keys[0]["camera_to_world"])[:3, 3]
        assert np.allclose(place, in_world(scene, np.array([3.0, 0.0, 0.2])), atol=1e-3)
        with page.expect_download() as download:
            page.get_by_role("button", name="screenshot").click()
        download.value.save_as(tmp_path / "shot.png")
        shot = cv2.imread(str(tmp_path / "shot.png"))
        assert shot.shape[0] == client.camera.image_height and shot.std() > 5 and (shot[0, 0] == 255).all()
        page.get_by_role("button", name="pick two points").click()
        page.get_by_text("click two points").wait_for()
        page.wait_for_timeout(2000)  # the browser listens for clicks
        for end, face in zip(tool.ends, faces[1:4:2], strict=True):
            before = np.array(end.position)
            page.mouse.click(*face)
            assert wait_until(page, lambda end=end, before=before: not np.allclose(end.position, before))
        assert tool.distance == pytest.approx(0.8 * scale_of(scene), rel=0.02)
        before = math.degrees(client.camera.fov)
        page.locator("[role='slider']").last.focus()  # the other one is the radius of the region
        for _ in range(20):
            page.keyboard.press("ArrowLeft")
        assert wait_until(page, lambda: abs(math.degrees(client.camera.fov) - (round(before) - 20)) <= 0.1)
    assert any(text.startswith("--scale ") for text in told) and tools.fov.value == round(before) - 20
