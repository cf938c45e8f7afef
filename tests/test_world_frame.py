"""Gravity and metres of a prepared scene: from cameras, floor, markers, a given length and GPS, to the mesh files."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import trimesh
from browsing import demo_scene
from scipy.spatial.transform import Rotation
from test_neus_writer import scene as any_scene

from data.demo.make_demo import look_at_center
from data.demo.make_photographs import ASPECT, FOCAL_WIDTHS, MARKER_PLACES, MARKER_SIDE, TABLE, with_markers
from data.errors import SceneError, UserError
from data.io.images import write_image
from data.parsed_scene import Lens, ParsedScene, PosedImage, SparsePoints, WorldFrame, transformed
from data.prepare.load import load_scene
from data.prepare.metric import Known, distance_text, find_markers, lengths_of, measured, parse_points
from data.prepare.world import floor_normal, upright
from data.scenes.config import DatasetConfig
from data.scenes.readers.neus import FRAME_FILE, write_neus_scene
from models.mesh.mesh import Surface, file_axes, given_surface, mesh_to_working
from models.requests import UNIT, WORLD, MeshRequest
from models.results import colored
from models.results.surface_metrics import read_ground_truth

WIDTH = 480
TURN = Rotation.from_euler("xyz", [0.5, 1.1, -0.4]).as_matrix()
SHRUNK = 0.37  # the model of structure from motion has an arbitrary unit
UNIT_METRES = 0.1


def parsed(folder, has_pictures=True, tilt=0.0):
    """Ten cameras around the origin over markers and a floor, in a turned frame of another unit."""
    change = np.eye(4)
    change[:3, :3], change[:3, 3] = SHRUNK * TURN, [3.0, -2.0, 1.0]
    height = round(WIDTH * ASPECT)
    intrinsics = np.array(
        [[FOCAL_WIDTHS * WIDTH, 0, (WIDTH - 1) / 2], [0, FOCAL_WIDTHS * WIDTH, (height - 1) / 2], [0, 0, 1]]
    )
    images = []
    for view, angle in enumerate(np.linspace(0.0, 2.0 * np.pi, 10, endpoint=False)):
        pose = look_at_center(np.array([np.cos(angle), np.sin(angle), 0.9]))
        path = folder / f"{view:04d}.png"
        if has_pictures:
            write_image(path, picture(pose, height))
        pose[:3, :3] = pose[:3, :3] @ Rotation.from_euler("z", tilt * (-1) ** view).as_matrix()
        images.append(PosedImage(path, Lens(intrinsics, size=(WIDTH, height)), pose))
    rng = np.random.default_rng(3)
    floor = np.column_stack([rng.uniform(-1, 1, (200, 2)), np.full(200, TABLE)])
    xyz = np.concatenate([floor, rng.uniform(-0.5, 0.5, (200, 3))])
    points = SparsePoints(xyz, np.full(400, 3), np.full(400, 0.5), np.zeros((400, 3), np.uint8))
    whole = ParsedScene("s", folder, tuple(images), points)
    return replace(transformed(whole, change, WorldFrame("")), frame=None)


def picture(pose, height, fine=3):
    rows, columns = np.mgrid[: fine * height, : fine * WIDTH]
    focal = fine * FOCAL_WIDTHS * WIDTH
    x, y = (columns - 0.5 * (fine * WIDTH - 1)) / focal, (rows - 0.5 * (fine * height - 1)) / focal
    directions = np.stack([x, y, np.ones_like(x)], axis=-1) @ pose[:3, :3].T
    colors = with_markers(np.full((*x.shape, 3), 0.55), pose[:3, 3], directions)
    return cv2.resize(np.rint(255 * colors).astype(np.uint8), (WIDTH, height), interpolation=cv2.INTER_AREA)


def size_of(scene):
    """Metres per unit of the formula, by the distance of two opposite cameras."""
    centers = np.array([image.c2w[:3, 3] for image in scene.images])
    straight = 2.0 * 3.0 / np.hypot(1.0, 0.9)
    return np.linalg.norm(centers[0] - centers[5]) / straight


@pytest.mark.parametrize("has_floor", [True, False])
def test_photographs_that_are_upside_down_do_not_turn_the_scene(tmp_path, has_floor):
    scene = parsed(tmp_path, has_pictures=False)
    flipped = [
        replace(image, c2w=image.c2w @ np.diag([-1.0, -1.0, 1.0, 1.0]) if view % 2 else image.c2w)
        for view, image in enumerate(scene.images)
    ]
    for images in (flipped, flipped[1:], [*flipped[:2], *flipped[3:]]):
        stood = upright(replace(scene, images=tuple(images), points=scene.points if has_floor else None))
        assert stood.images[0].c2w[2, 3] - stood.images[1].c2w[2, 3] == pytest.approx(0.0, abs=0.05)
        assert np.mean([image.c2w[2, 2] for image in stood.images]) < -0.3
        assert ("some upside down" in stood.frame.up_source) == (not has_floor)


def test_the_scene_stands_upright_by_its_floor_or_its_cameras(tmp_path):
    for tilt in (0.0, 0.2):
        scene = parsed(tmp_path, has_pictures=False, tilt=tilt)
        stood = upright(scene)
        assert np.ptp([image.c2w[2, 3] for image in stood.images]) < 1e-9, "cameras on a level ring"
        assert all(image.c2w[2, 1] < 0 for image in stood.images), "the y axes of the cameras point down"
        assert "floor" in stood.frame.up_source
        assert np.ptp(stood.points.xyz[:200, 2]) < 1e-9
    stood = upright(replace(parsed(tmp_path, has_pictures=False), points=None))
    assert "cameras" in stood.frame.up_source
    assert np.ptp([image.c2w[2, 3] for image in stood.images]) < 1e-9
    assert floor_normal(np.random.default_rng(0).normal(size=(500, 3)), np.array([0.0, 0.0, 1.0])) is None


def test_markers_give_metres(tmp_path, monkeypatch):
    scene = upright(parsed(tmp_path))
    known, seen = Known(marker=MARKER_SIDE * UNIT_METRES), find_markers(scene.images)
    found = measured(scene, known, {}, {})
    assert size_of(found) == pytest.approx(UNIT_METRES, rel=0.002)
    assert found.frame.is_metric and found.frame.scale_error < 0.01
    assert found.frame.scale_source.startswith(f"{len(MARKER_PLACES)} markers")
    for quads in seen.values():  # a wrong detection in one photograph is left out
        quads[0][1][:] += 8.0
    monkeypatch.setattr("data.prepare.metric.find_markers", lambda images: seen)
    assert size_of(measured(scene, known, {}, {})) == pytest.approx(UNIT_METRES, rel=0.002)
    both = {1: [sight for quads in list(seen.values())[:2] for sight in quads], 2: seen[max(seen)][:2]}
    monkeypatch.setattr("data.prepare.metric.find_markers", lambda images: both)  # one marker, printed twice
    found = measured(scene, known, {}, {})
    assert size_of(found) == pytest.approx(UNIT_METRES, rel=0.002)
    assert found.frame.scale_source.startswith("2 markers")
    monkeypatch.undo()
    for image in scene.images:
        write_image(image.path, np.full((40, 50, 3), 90, np.uint8))
    with pytest.raises(UserError, match="--marker 0.03: no ArUco or AprilTag marker"):
        measured(scene, Known(marker=0.03), {}, {})


def test_a_length_between_points_or_pixels_of_photographs_gives_metres(tmp_path):
    scene = parsed(tmp_path, has_pictures=False)
    one, two = (scene.images[view].c2w[:3, 3] for view in (0, 5))
    words = (*(f"{value:.9f}" for value in (*one, *two)), str(0.6 / np.hypot(1.0, 0.9)))
    assert size_of(measured(scene, Known(length=words), {}, {})) == pytest.approx(UNIT_METRES)
    ends, words = [np.append(scene.points.xyz[index], 1.0) for index in (0, 250)], []
    for view in (1, 4):
        image = scene.images[view]
        words.append(f"photo {view}.jpg")
        for end in ends:
            pixel = image.lens.intrinsics @ (np.linalg.inv(image.c2w) @ end)[:3]
            words += [str(2.0 * (value + 0.5) - 0.5) for value in pixel[:2] / pixel[2]]  # photographs of twice the size
    words.append(str(UNIT_METRES * np.linalg.norm(ends[0] - ends[1]) / SHRUNK))
    sources = {image.path.name: Path(f"photo {view}.jpg") for view, image in enumerate(scene.images)}
    sizes = {name: (2 * WIDTH, 2 * round(WIDTH * ASPECT)) for name in sources}
    found = measured(scene, Known(length=tuple(words)), sources, sizes)
    assert size_of(found) == pytest.approx(UNIT_METRES, rel=1e-6)
    for text in ("1 2 3", "a b c d e f 1", "0 0 0 1 0 0 -1", "0 0 0 1 0 0 nan"):
        with pytest.raises(UserError, match="must be two points of the world frame"):
            lengths_of(text.split())


def seen_markers(scene, seed):
    """The corners of six markers of 30 mm, whose prints are 0.2 % off, seen with errors of 0.3 pixels."""
    rng, to_world, seen = np.random.default_rng(seed), SHRUNK * TURN, {}
    for number in range(6):
        side = 0.03 * rng.normal(1.0, 0.002) / UNIT_METRES
        square = np.array([[0, 0, 0], [side, 0, 0], [side, side, 0], [0, side, 0]])
        corners = (square + [*rng.uniform(-0.6, 0.6, 2), TABLE]) @ to_world.T + [3.0, -2.0, 1.0]
        for view, image in enumerate(scene.images):
            rays = image.lens.intrinsics @ np.linalg.inv(image.c2w)[:3] @ np.column_stack([corners, np.ones(4)]).T
            seen.setdefault(number, []).append((view, (rays[:2] / rays[2]).T + rng.normal(0.0, 0.3, (4, 2))))
    return seen


def test_the_true_scale_is_within_twice_its_stated_error(tmp_path, monkeypatch):
    scene, known = parsed(tmp_path, has_pictures=False), Known(marker=0.03)
    errors = []
    for seed in range(10):
        monkeypatch.setattr("data.prepare.metric.find_markers", lambda images, seed=seed: seen_markers(scene, seed))
        found = measured(scene, known, {}, {})
        errors.append((abs(size_of(found) / UNIT_METRES - 1.0), found.frame.scale_error))
    true, stated = np.array(errors).T
    assert (true <= 2.0 * stated).sum() >= 9 and stated.max() < 0.005, errors
    assert np.median(stated) < 5.0 * np.median(true), "no wide error instead of a right one"


def test_several_lengths_give_the_error_of_the_scale(tmp_path):
    scene = parsed(tmp_path, has_pictures=False)
    within = 0
    for seed in range(10):
        rng, words = np.random.default_rng(seed), []
        for length in (0.2, 0.3, 0.5):  # metres, of bars whose ends are found with errors of 0.5 mm
            end = rng.normal(size=3)
            ends = np.array([np.zeros(3), length * end / np.linalg.norm(end)]) + rng.normal(0.0, 0.0005, (2, 3))
            words += [*(f"{value:.9f}" for value in SHRUNK / UNIT_METRES * ends.reshape(-1)), str(length)]
        found = measured(scene, Known(length=tuple(words)), {}, {})
        within += abs(size_of(found) / UNIT_METRES - 1.0) <= 2.0 * found.frame.scale_error
        assert found.frame.scale_source == "3 given lengths" and found.frame.scale_error < 0.02
    assert within >= 9
    single = measured(scene, Known(length=tuple(words[:7])), {}, {}).frame
    assert single.scale_error is None and single.scale_source == "a given length of 0.2 m"


def test_a_distance_is_stated_with_the_error_of_the_scale():
    points, source = parse_points("-1 0 0.5, -1 0.3 0.9"), "4 markers of 0.03 m"
    metric = WorldFrame("the floor", source, 0.002)
    assert distance_text(points, metric) == f"distance: 500 mm, ± 1 mm by the scale ({source})"
    assert "500 mm, error not known" in distance_text(points, replace(metric, scale_error=None))
    assert "0.5 units; their size is not known" in distance_text(points, None)
    for text in ("1 2 3", "1 2 3 4 5 6", "a 2 3, 4 5 6", "1 2 nan, 4 5 6"):
        with pytest.raises(UserError, match="must be two points of the world frame"):
            parse_points(text)


def test_the_frame_is_written_and_read_back(tmp_path):
    frame = WorldFrame("the floor", "4 markers of 0.03 m", 0.001, {"a.jpg": 0.5})
    scene = any_scene()
    write_neus_scene(tmp_path, replace(scene, frame=frame))
    conf = DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz")
    names = {f"{view:03d}.png": name for view, name in enumerate(scene.image_names)}
    assert load_scene(conf).frame == replace(frame, photographs=names)
    (tmp_path / FRAME_FILE).write_text('{"camera_errors": 3}')
    with pytest.raises(SceneError, match=f"{FRAME_FILE}: is damaged"):
        load_scene(conf)
    (tmp_path / FRAME_FILE).unlink()
    assert load_scene(conf).frame is None


METRIC, UPRIGHT = WorldFrame("the floor", "a given length of 1 m"), WorldFrame("the floor")
FILES = [  # the scene's frame, suffix, frame of the request, --up, size of the file's box of a box of 1 x 2 x 3 units
    (METRIC, ".glb", WORLD, None, (1, 3, 2)), (METRIC, ".stl", WORLD, None, (1000, 2000, 3000)),
    (METRIC, ".ply", WORLD, None, (1, 2, 3)), (METRIC, ".obj", WORLD, "z", (1, 2, 3)),
    (METRIC, ".stl", WORLD, "y", (1000, 3000, 2000)), (UPRIGHT, ".stl", WORLD, None, (1, 2, 3)),
    (METRIC, ".glb", UNIT, None, (1, 3, 2)), (METRIC, ".obj", UNIT, None, (1, 3, 2)),  # Blender turns it back
    (None, ".glb", WORLD, None, (3, 1, 2)), (None, ".obj", WORLD, None, (3, 1, 2)),  # the cameras below have x up
    (None, ".glb", WORLD, "y", (3, 1, 2)), (None, ".ply", WORLD, "z", (3, 2, 1)),
    (None, ".ply", WORLD, None, (1, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "suffix", "asked", "up", "extents"), FILES)
def test_files_are_upright_and_in_their_unit(tmp_path, frame, suffix, asked, up, extents):
    """A scene without a recorded frame stands by its cameras as OBJ and GLB; PLY and STL keep its coordinates."""
    x_up = np.array([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    scene = replace(any_scene(), frame=frame, scene_to_world=np.eye(4), c2w=np.stack([x_up] * 4))
    conf = SimpleNamespace(general=SimpleNamespace(base_exp_dir="exp"))
    experiment, log = SimpleNamespace(views=scene, conf=conf), SimpleNamespace(info=print)
    path = tmp_path / f"mesh{suffix}"
    surface = Surface(trimesh.creation.box((1.0, 2.0, 3.0)))
    colored.write(experiment, 1, log, MeshRequest(0, frame=asked, up=up), surface, path)
    read = trimesh.load_mesh(path)
    assert np.allclose(read.extents, extents, rtol=1e-6) and read.volume > 0, "faces point outwards"
    again = given_surface(scene, path, WORLD, None)  # the file says its axes
    assert np.allclose(again.mesh.bounds, surface.mesh.bounds, atol=1e-6) and again.mesh.volume > 0
    words = {".stl": b"units: millimetres", ".glb": b"metres"}.get(suffix, b"units: metres")
    assert (words in path.read_bytes()) == (frame is METRIC and asked == WORLD)


@pytest.mark.parametrize("suffix", [".obj", ".ply", ".stl", ".glb"])
@pytest.mark.parametrize("up", [None, "y", "z"])
@pytest.mark.parametrize("frame", [WORLD, UNIT])
def test_meshes_of_other_programs_have_the_axes_of_their_frame(suffix, up, frame, tmp_path):
    """As --mesh and --gt alike; y is up in GLB, and where --up says so."""
    scene = replace(any_scene(), frame=METRIC)
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    true = box.copy().apply_transform(np.eye(4) if frame == UNIT else np.linalg.inv(scene.scene_to_world))
    if up == "y" or (up is None and suffix == ".glb"):
        box.apply_transform([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
    box.export(tmp_path / f"a{suffix}")
    path = tmp_path / f"a{suffix}"
    found = given_surface(scene, path, frame, up).mesh
    truth = read_ground_truth(path, "", mesh_to_working(scene, path, frame, up)).mesh
    for mesh in (found, truth):
        assert np.allclose(mesh.bounds, true.bounds, atol=1e-5) and mesh.volume > 0


def test_the_log_names_the_up_axis_its_source_and_the_unit_as_far_as_known():
    tilted = Rotation.from_euler("x", 10, degrees=True).as_matrix() @ np.diag([1.0, -1.0, -1.0])
    upright = np.stack([np.eye(4)] * 3)
    upright[:, :3, :3] = tilted  # y up but for ten degrees
    cases = [(METRIC, ".glb", None, "y up (the floor), in metres"), (UPRIGHT, ".ply", None, "z up (the floor)")]
    cases += [(METRIC, ".stl", None, "z up (the floor), in millimetres"), (None, ".ply", None, "y up (the cameras)")]
    cases += [(None, ".stl", "z", "z up (the cameras)"), (None, ".glb", None, "y up (the cameras)")]
    for frame, suffix, up, words in cases:
        axes = file_axes(suffix, frame, up, upright)
        assert axes.words("world") == words and axes.words("unit") == "unit frame"
    assert np.allclose(axes.change, np.eye(4)), "an axis of the world frame is kept"
    scattered = upright @ np.diag([1.0, -1.0, -1.0, 1.0])
    scattered[0] = upright[0]
    for suffix in (".ply", ".obj", ".glb"):
        axes = file_axes(suffix, None, None, scattered)
        assert axes.words("world") == "world frame, up direction not known"
        assert np.allclose(axes.change, np.eye(4)) == (suffix == ".ply"), "z is taken for it in every format"


def test_a_mesh_of_the_bundled_scene_stands_in_every_format():
    scene = demo_scene()
    for suffix, top in ((".glb", [0, 1, 0]), (".obj", [0, 1, 0]), (".ply", [0, 0, 1]), (".stl", [0, 0, 1])):
        axes = file_axes(suffix, scene.frame, None, scene.scene_to_world @ scene.c2w)
        assert np.allclose(axes.change[:3, :3] @ [0, 0, 1], top) and axes.words("world").endswith("up (the cameras)")
