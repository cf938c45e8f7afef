"""The bundled scene: complete, small, reproducible, and its pictures, cameras and exact surface agree."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rigs import project

from data.cameras import decompose_projection, pixels_to_rays
from data.demo import make_demo
from data.io.images import read_image
from models.evaluation.mesh_distance import read_mesh, sample_surface

DEMO = Path(make_demo.__file__).parent
SETS = [(DEMO, make_demo.TRAIN_VIEWS), (DEMO / "test", len(make_demo.TEST_DIRECTIONS))]
BOTH = pytest.mark.parametrize(("folder", "views"), SETS, ids=["train", "test"])


def working_frame_camera(folder, view):
    """Intrinsics and pose in the unit-sphere frame, from the files alone."""
    with np.load(folder / "cameras_sphere.npz") as cameras:
        return decompose_projection((cameras[f"world_mat_{view}"] @ cameras[f"scale_mat_{view}"])[:3])


def truth():
    return read_mesh(DEMO / "ground_truth.ply")


def test_scene_is_as_large_as_promised_and_no_larger():
    assert make_demo.TRAIN_VIEWS >= 40 and len(make_demo.TEST_DIRECTIONS) == 4 and make_demo.IMAGE_SIZE >= 160
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.suffix != ".pyc") <= 3_000_000


@BOTH
def test_every_view_has_a_picture_a_crisp_mask_and_a_camera(folder, views):
    names = [f"{view:03d}.png" for view in range(views)]
    size = (make_demo.IMAGE_SIZE, make_demo.IMAGE_SIZE)
    for kind, channels in (("image", 3), ("mask", 1)):
        assert sorted(path.name for path in (folder / kind).iterdir()) == names
        assert all(read_image(folder / kind / name).shape == (*size, channels) for name in names)
    for name in names:
        mask, image = read_image(folder / "mask" / name)[..., 0], read_image(folder / "image" / name)
        assert set(np.unique(mask)) == {0, 255}
        assert 0.1 < (mask > 0).mean() < 0.4
        assert image[mask > 0].max(axis=-1).min() > 20 and image[mask == 0].mean() < 2.0
    with np.load(folder / "cameras_sphere.npz") as cameras:
        assert set(cameras.files) == {f"{kind}_mat_{view}" for kind in ("world", "scale") for view in range(views)}


@BOTH
def test_world_is_not_the_working_frame_and_cameras_stand_outside_the_unit_sphere(folder, views):
    with np.load(folder / "cameras_sphere.npz") as cameras:
        assert np.array_equal(cameras["scale_mat_0"], make_demo.SCENE_TO_WORLD)
    assert abs(np.linalg.det(make_demo.SCENE_TO_WORLD) - 1.0) > 1.0
    for view in range(views):
        intrinsics, pose = working_frame_camera(folder, view)
        assert np.linalg.norm(pose[:3, 3]) == pytest.approx(make_demo.CAMERA_DISTANCE)
        center, depth = project(np.zeros(3), intrinsics, pose)
        assert center == pytest.approx([99.5, 99.5], abs=1e-6) and depth > 0


def test_training_views_look_from_all_sides_and_test_views_from_between():
    train = make_demo.train_poses()[:, :3, 3] / make_demo.CAMERA_DISTANCE
    test = make_demo.test_poses()[:, :3, 3] / make_demo.CAMERA_DISTANCE
    everywhere = np.random.default_rng(0).normal(size=(2000, 3))
    everywhere /= np.linalg.norm(everywhere, axis=1, keepdims=True)
    assert np.degrees(np.arccos((everywhere @ train.T).max(axis=1))).max() < 25.0
    assert np.degrees(np.arccos((test @ train.T).max(axis=1))).min() > 3.0


def test_ground_truth_is_a_closed_outward_surface_of_one_piece_with_one_handle():
    mesh = truth()
    assert mesh.is_watertight and mesh.body_count == 1
    assert mesh.euler_number == 0
    assert mesh.volume > 0.2
    assert np.linalg.norm(mesh.vertices, axis=1).max() < make_demo.OBJECT_RADIUS


def test_ground_truth_lies_on_the_zero_of_the_formula_vertices_and_faces_alike():
    mesh = truth()
    assert np.abs(make_demo.jug_sdf(mesh.vertices)).max() < 1e-3
    off = np.abs(make_demo.jug_sdf(mesh.triangles_center))
    assert off.mean() < 3e-4 and off.max() < 5e-3


def test_formula_is_a_distance_bound_that_sphere_tracing_may_trust():
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (200_000, 3))
    step = 1e-3 * np.random.default_rng(1).normal(size=points.shape)
    slope = np.abs(make_demo.jug_sdf(points + step) - make_demo.jug_sdf(points)) / np.linalg.norm(step, axis=1)
    assert slope.max() < 1.0 / make_demo.STEP_FACTOR


@BOTH
def test_ground_truth_projects_into_the_masks_and_fills_them(folder, views):
    points = sample_surface(truth(), 200_000, np.random.default_rng(0))
    for view in range(0, views, 3):
        mask = read_image(folder / "mask" / f"{view:03d}.png")[..., 0] > 0
        pixels = np.rint(project(points, *working_frame_camera(folder, view))[0]).astype(int)
        drawn = np.zeros_like(mask)
        drawn[pixels[:, 1], pixels[:, 0]] = True
        grown = np.pad(mask, 1)
        near = np.any([grown[i : i + 200, j : j + 200] for i in range(3) for j in range(3)], axis=0)
        assert not (drawn & ~near).any()
        assert (drawn & mask).sum() > 0.99 * mask.sum()


@BOTH
def test_rendering_again_gives_the_bundled_pixels(folder, views):
    view = views - 2
    poses = make_demo.train_poses() if folder == DEMO else make_demo.test_poses()
    rng = np.random.default_rng(7)
    pixels = rng.integers(0, make_demo.IMAGE_SIZE, (3000, 2))
    rgb, covered = make_demo.render_pixels(pixels, poses[view])
    bundled = read_image(folder / "image" / f"{view:03d}.png")[pixels[:, 1], pixels[:, 0]]
    mask = read_image(folder / "mask" / f"{view:03d}.png")[pixels[:, 1], pixels[:, 0], 0]
    change = np.abs(np.rint(255 * rgb) - bundled)
    # Another processor may round a sine, and with it a grazing ray, the other way; nothing more.
    assert np.mean(change > 1) < 1e-3 and np.mean((covered > 0.5) != (mask > 0)) < 1e-3


def test_camera_file_and_renderer_mean_the_same_rays():
    pixels = np.array([[0.0, 0.0], [199.0, 20.0], [90.5, 120.0], [100.0, 99.0]])
    origins, directions = pixels_to_rays(pixels, *working_frame_camera(DEMO, 17))
    hit, points = make_demo.sphere_trace(origins, directions)
    assert list(hit) == [False, False, True, True]
    back = project(points, *working_frame_camera(DEMO, 17))[0]
    assert np.allclose(back, pixels[hit], atol=1e-6)
    assert np.abs(make_demo.jug_sdf(points)).max() < 2 * make_demo.HIT_DISTANCE


def test_making_the_surface_again_gives_the_bundled_one():
    mesh, bundled = make_demo.ground_truth(), truth()
    assert np.array_equal(mesh.faces, bundled.faces)
    assert np.abs(mesh.vertices - bundled.vertices).max() < 1e-6


def test_colour_varies_wherever_one_looks():
    mesh = truth()
    places = mesh.vertices[np.random.default_rng(3).integers(0, len(mesh.vertices), 300)]
    colors = make_demo.albedo(mesh.vertices)
    spread = [colors[np.linalg.norm(mesh.vertices - place, axis=1) < 0.12].std(axis=0).max() for place in places]
    assert min(spread) > 0.05


@pytest.mark.cli
def test_place_that_cannot_be_written_gives_one_sentence_and_status_2(tmp_path):
    (tmp_path / "file").write_text("keep")
    program = [sys.executable, str(DEMO / "make_demo.py"), "--out", str(tmp_path / "file")]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "cannot be written" in result.stderr and "Traceback" not in result.stderr
    assert (tmp_path / "file").read_text() == "keep"
