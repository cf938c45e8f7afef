"""What the viewer shows: colours as in the photographs, its field of view, and its cameras."""

import json
import math

import numpy as np
import pytest
import trimesh
from browsing import CANVAS, demo_scene, displayed, needs_viser, on_screen, opened, wait_until

from models.surface.mesh import Surface
from models.viewer import cameras
from models.viewer.camera_tools import CameraTools
from models.viewer.live_render import LiveRenderer
from models.viewer.tone import before_tone_mapping, unlit_glb

COLOURS = np.array([(200, 60, 30), (128, 128, 128), (245, 240, 230), (20, 25, 15), (40, 90, 20)], np.uint8)
SIZE = (800, 600)


MATRICES = (
    np.array([[0.59719, 0.35458, 0.04823], [0.07600, 0.90834, 0.01566], [0.02840, 0.13383, 0.83777]]),
    np.array([[1.60475, -0.53108, -0.07367], [-0.10208, 1.10813, -0.00605], [-0.00327, -0.07276, 1.07602]]),
)


def as_three_draws(colours):
    """sRGB in [0, 255] of linear colours: three.js's ACESFilmicToneMapping, written from its shader."""
    a = colours.astype(float) / 0.6 @ MATRICES[0].T
    a = (a * (a + 0.0245786) - 0.000090537) / (a * (0.983729 * a + 0.4329510) + 0.238081)
    c = np.clip(a @ MATRICES[1].T, 0, 1)
    return 255.0 * np.where(c <= 0.0031308, 12.92 * c, 1.055 * c ** (1 / 2.4) - 0.055)


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
    with displayed(demo_scene(), 9850) as (shown, _):
        yield shown


@needs_viser
@pytest.mark.browser
def test_a_mesh_has_its_colours_and_the_slider_sets_the_view(stage, tmp_path):
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
        page.wait_for_function(CANVAS)
        page.wait_for_timeout(4000)
        (client,) = stage.server.get_clients().values()
        client.camera.position, client.camera.look_at = (3.0, 0.0, 0.2), (0.0, 0.0, 0.0)
        page.wait_for_timeout(2000)
        shot = client.get_render(SIZE[1], SIZE[0], transport_format="png")
        for box, colour in zip(boxes, COLOURS, strict=True):
            across, down = map(round, on_screen(client.camera, box.centroid + (0.15, 0.0, 0.0), SIZE))
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


def seen_height(shot, colour):
    """The largest number of pixels of a colour in one column."""
    return int((np.abs(shot[..., :3].astype(int) - colour).max(axis=2) <= 3).sum(axis=0).max())


def test_a_click_finds_the_photograph_in_front():
    scene, generator = demo_scene(), np.random.default_rng(0)
    corners = cameras.bases(scene, 0.2)
    for view in range(scene.n_views):
        u, v = generator.uniform(0.05, 0.95, 2)
        place = corners[view, 0] + u * (corners[view, 1] - corners[view, 0]) + v * (corners[view, 3] - corners[view, 0])
        forward = scene.c2w[view, :3, 2]
        assert cameras.hit(corners, place - 0.1 * forward, forward) == view  # from where the camera stands
        assert cameras.hit(corners, place + 1e-3 * forward, -forward) == view  # from behind the photograph
        assert cameras.hit(corners, scene.c2w[view, :3, 3], -forward) != view
    assert cameras.hit(corners, np.zeros(3), np.array([0.0, 0.0, 1e-12])) in (None, *range(scene.n_views))
    apexes = cameras.edges(corners, scene.c2w[:, :3, 3])
    assert apexes.shape == (8 * scene.n_views, 2, 3) and np.isfinite(apexes).all()


def test_each_photograph_has_its_place_in_the_texture():
    picture, places = cameras.texture(demo_scene())
    height, width = picture.shape[:2]
    for image, corners in zip(demo_scene().images, places, strict=True):
        (left, top), (right, bottom) = (corners[[0, 2]] * (width, -height) + (0, height)).astype(int)
        seen = picture[top : bottom + 1, left : right + 1]
        assert np.abs(seen.mean((0, 1)) - image.mean((0, 1))).max() < 2
        middles = [shown[shown.shape[0] // 2, shown.shape[1] // 2].astype(float) for shown in (seen, image)]
        assert np.abs(middles[0] - middles[1]).max() < 60
