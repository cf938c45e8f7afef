"""Details of photographs on a mesh: what waves of a plane are found, and what stays as it is."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import trimesh
from dense_extraction import BOX, marching_cubes, sample_grid, sphere
from scipy.ndimage import map_coordinates

from data.rays import PinholeCamera
from models.mesh import details, grey_photographs, remesh
from models.mesh.details import detailed
from models.mesh.grey_photographs import GreyPhotographs
from models.mesh.visibility import Visibility

SIDE, SIZE, FOCAL = 0.5, 150, 300.0
TEXTURE = cv2.GaussianBlur(np.random.default_rng(0).normal(size=(600, 600)), (0, 0), 1.2)
TEXTURE = np.clip(128 + 60 * TEXTURE / TEXTURE.std(), 0, 255)


def height(points, size):
    """Waves of 30 pixels."""
    return size * np.cos(60 * points[..., 0]) * np.cos(60 * points[..., 1])


def photographs(size, blurred=()):
    """Cameras on a circle above the plane z = 0 with waves of a height, and one above its middle."""
    cameras, images = [], []
    for angle in [*np.linspace(0, 2 * np.pi, 8, endpoint=False), None]:
        eye = np.array([0, 0, 1.4]) if angle is None else np.array([0.7 * np.cos(angle), 0.7 * np.sin(angle), 1.2])
        forward = -eye / np.linalg.norm(eye)
        right = np.cross(forward, [0.1, 1.0, 0.02])
        right /= np.linalg.norm(right)
        c2w = np.eye(4)
        c2w[:3] = np.column_stack([right, np.cross(forward, right), forward, eye])
        intrinsics = np.array([[FOCAL, 0, SIZE / 2], [0, FOCAL, SIZE / 2], [0, 0, 1.0]])
        x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
        rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(intrinsics).T @ c2w[:3, :3].T
        places = np.zeros_like(rays)
        for _ in range(8):
            places = eye + rays * ((height(places, size) - eye[2]) / rays[..., 2])[..., None]
        image = map_coordinates(TEXTURE, 300 + 400 * places[..., 1::-1].transpose(2, 0, 1), order=1, mode="wrap")
        images.append(cv2.GaussianBlur(image, (0, 0), 2.0) if len(images) in blurred else image)
        cameras.append(PinholeCamera(intrinsics, c2w, SIZE, SIZE))
    return GreyPhotographs(cameras, [np.rint(image).astype(np.uint8) for image in images])


def around(size=100, focal=100.0):
    """Cameras on a circle, of which several see each vertex of a ball that is not near a pole."""
    cameras = []
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
        forward = -np.array([np.cos(angle), np.sin(angle), 0.0])
        c2w = np.eye(4)
        c2w[:3] = np.column_stack([np.cross([0, 0, -1.0], forward), [0, 0, -1.0], forward, -3 * forward])
        intrinsics = np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1.0]])
        cameras.append(PinholeCamera(intrinsics, c2w, size, size))
    return cameras


def plane(spacing=0.02):
    ticks = np.arange(-SIDE / 2, SIDE / 2 + 1e-9, spacing)
    x, y = np.meshgrid(ticks, ticks)
    at = np.arange(x.size).reshape(x.shape)
    a, b, c, d = (one.ravel() for one in (at[:-1, :-1], at[:-1, 1:], at[1:, :-1], at[1:, 1:]))
    vertices = np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)])
    return trimesh.Trimesh(vertices, np.concatenate([np.stack([a, b, d], 1), np.stack([a, d, c], 1)]), process=False)


def of_the_middle(mesh):
    """Where patches are not near the border, on which the plane ends."""
    return np.abs(mesh.vertices[:, :2]).max(axis=1) < 0.35 * SIDE


@pytest.mark.parametrize(("spacing", "blurred"), [(0.02, ()), (0.02, (0, 3)), (0.004, ())])
def test_waves_that_photographs_show_are_found_without_folds(spacing, blurred):
    """A mesh that is finer than the photographs keeps its triangles."""
    size, mesh = 0.006, plane(spacing)
    found = detailed(mesh, photographs(size, blurred), list)
    assert (spacing < 0.01) == np.array_equal(found.mesh.faces, mesh.faces)
    middle = of_the_middle(found.mesh)
    points = np.asarray(found.mesh.vertices)[middle]
    left = points[:, 2] - height(points, size)
    assert found.is_changed and found.after > found.before + 0.03
    assert np.sqrt((left**2).mean()) < 0.37 * np.sqrt((height(points, size) ** 2).mean())
    upwards, middles = found.mesh.face_normals[:, 2], found.mesh.triangles_center
    assert upwards.min() > 0.4  # no triangle is turned over, also where the plane ends
    assert upwards[np.abs(middles[:, :2]).max(axis=1) < 0.35 * SIDE].min() > 0.8


def test_a_surface_that_photographs_agree_on_stays_as_it_is():
    mesh = plane()
    found = detailed(mesh, photographs(0.0), list)
    assert found.mesh is mesh and not found.is_changed and found.before > 0.9


@pytest.mark.parametrize("count", [3, 6])
def test_noise_of_few_photographs_moves_nothing(count):
    """A photograph that was not compared decides, too, where all of them could be."""
    given, random = photographs(0.0), np.random.default_rng(0)
    images = [np.clip(image + random.normal(scale=20, size=image.shape), 0, 255) for image in given.images[:count]]
    seen = GreyPhotographs(given.cameras[:count], [np.rint(image).astype(np.uint8) for image in images])
    mesh = plane()
    assert detailed(mesh, seen, list).mesh is mesh


def test_photographs_without_texture_move_nothing():
    mesh, seen = plane(), photographs(0.006)
    plain = GreyPhotographs(seen.cameras, [np.full_like(image, 90) for image in seen.images])
    assert detailed(mesh, plain, list).mesh is mesh


def test_photographs_are_reduced_to_what_the_vertices_show(monkeypatch):
    mesh, cameras = plane(), photographs(0.0).cameras
    assert grey_photographs.reduction(mesh, cameras, 1) == 1
    monkeypatch.setattr(grey_photographs, "MOST_VERTICES", 500)
    assert grey_photographs.reduction(mesh, cameras, 1) == 3 and grey_photographs.reduction(mesh, cameras, 3) == 8


def test_patches_and_crossings_are_the_same_in_parts(monkeypatch):
    mesh = trimesh.util.concatenate([plane(), plane()])  # two rough sheets
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    vertices[:, 2] += np.random.default_rng(0).normal(scale=0.01, size=len(vertices))
    beside = remesh.adjacency(faces, len(vertices))
    patches, crossed = details._patches(beside), remesh.crossed(vertices, faces)
    for module, name in ((details, "AT_ONCE"), (remesh, "TRACED_AT_ONCE")):
        monkeypatch.setattr(module, name, 100)
    assert np.array_equal(details._patches(beside), patches)
    assert 0 < crossed.sum() < len(crossed) and np.array_equal(remesh.crossed(vertices, faces), crossed)


def test_a_triangle_without_area_leaves_every_vertex_at_a_place():
    mesh, size = plane(0.004), 0.006
    flat = np.array([[3, 3, 4], [5, 6, 5]])  # two corners at one place
    mesh = trimesh.Trimesh(mesh.vertices, np.concatenate([mesh.faces, flat]), process=False)
    state = details._State(np.asarray(mesh.vertices), np.full((len(mesh.vertices), 3), size), flat, *[None] * 4)
    assert np.isfinite(details._carried(state, mesh)).all()


def test_a_finer_mesh_gets_the_change_of_the_even_one_as_it_is():
    """Less of it at single vertices, such as those of slivers, would be spikes."""
    even, mesh = plane(), plane(0.004)
    up = np.array([0, 0, 5.0])  # steep
    state = details._State(np.asarray(even.vertices), even.vertices[:, :1] * up, np.asarray(even.faces), *[None] * 4)
    assert details._carried(state, mesh) == pytest.approx(mesh.vertices[:, :1] * up, abs=1e-9)


def test_the_best_offset_is_that_of_a_parabola():
    at = np.arange(-3, 4)
    scores = np.stack([0.99 - 0.05 * (at - 1.3) ** 2, 0.9 - 0.05 * (at - 4.0) ** 2, np.full(7, 0.9)])
    offsets, confidence = details.best_offsets(scores.astype(np.float32))
    assert offsets[0] == pytest.approx(1.3, abs=1e-4) and confidence[0] > 0.9
    assert confidence[1] == 0.0 and confidence[2] < 1e-3


@pytest.mark.parametrize(("gain", "stays"), [(0.1, 1), (0.003, 0)])
def test_of_a_level_stays_what_agrees_better_elsewhere(gain, stays):
    mesh = plane(0.01)
    base, start = np.asarray(mesh.vertices), np.full((len(mesh.vertices), 3), 1.0)
    change = start + np.array([0, 0, 0.02])
    state = SimpleNamespace(base=base, start=start, change=change, vertices=base + change, witnesses=None)
    state.beside = remesh.adjacency(np.asarray(mesh.faces), len(base))
    state.in_place = lambda vertices, _: 0.5 + gain * (vertices[:, 2] > 1.0)
    assert details._kept(state) == pytest.approx(start + stays * (change - start))


def test_a_photograph_is_compared_where_it_sees_all_of_a_patch():
    """A plane, of which a smaller one above it hides a part."""
    roof = plane(0.02)
    roof.vertices *= 0.5
    roof.vertices[:, 2] += 0.08
    both, seen = trimesh.util.concatenate([plane(0.02), roof]), photographs(0.0)
    visibility = Visibility(both)
    views, _ = details._chosen(both, seen, visibility)
    points, patches = both.vertices, details._patches(remesh.adjacency(np.asarray(both.faces), len(both.vertices)))
    is_shown = np.stack([visibility.sees(points, both.vertex_normals, one.center) for one in seen.cameras], axis=1)
    chosen = (views[:, :, None] == np.arange(len(seen.cameras))).any(axis=1)
    whole = (is_shown[patches] | (patches < 0)[:, :, None]).all(axis=1)
    assert chosen.any() and (is_shown & ~whole).any() and not (chosen & ~whole).any()


def test_a_change_without_evidence_continues_what_is_around_it():
    mesh = plane(0.01)
    beside, at = remesh.adjacency(np.asarray(mesh.faces), len(mesh.vertices)), mesh.vertices[:, 0]
    slope, evidence = at[:, None] * np.array([0, 0, 1.0]), np.ones(len(at))
    pit = np.linalg.norm(mesh.vertices, axis=1) < 0.03
    evidence[pit] = 0
    change = np.where(pit[:, None], slope - 0.02, slope)
    assert pit.sum() > 5 and 0 < np.abs(change - slope).max() == pytest.approx(0.02)
    assert np.abs(details.supported(change, evidence, beside) - slope)[of_the_middle(mesh)].max() < 0.004


def test_a_change_that_makes_the_surface_cross_itself_is_taken_back():
    """Two sheets, of which the lower one gets a bump through the upper one."""
    lower, upper = plane(), plane()
    upper.vertices[:, 2] += 0.01
    both = trimesh.util.concatenate([lower, upper])
    vertices, faces, change = np.asarray(both.vertices), np.asarray(both.faces), np.zeros((len(both.vertices), 3))
    middle = np.argmin(np.linalg.norm(vertices, axis=1))
    change[middle, 2], change[3, 2] = 0.03, 0.005
    assert remesh.crossed(vertices + change, faces).any() and not remesh.crossed(vertices, faces).any()
    kept = details.without_crossings(vertices, change, faces)
    assert not remesh.crossed(vertices + kept, faces).any() and kept[3, 2] == 0.005


@pytest.mark.parametrize("resolution", [40, 110])
def test_photographs_of_noise_leave_a_closed_mesh_without_folds_or_slivers(resolution, monkeypatch):
    """The most that wrong photographs can do, because nothing else decides against it.

    A mesh that is finer than the photographs keeps its slivers.
    """
    monkeypatch.setattr(details, "WORTH", -9.0)
    random, cameras = np.random.default_rng(0), around(150, 270.0)
    images = [cv2.GaussianBlur(random.normal(size=(150, 150)), (0, 0), 1.5) for _ in cameras]
    images = [np.clip(128 + 40 * image / image.std(), 0, 255).astype(np.uint8) for image in images]
    mesh = marching_cubes(sample_grid(sphere, *BOX, resolution, 10**5), 0.0, *BOX)
    found = detailed(mesh, GreyPhotographs(cameras, images), list).mesh
    vertices, faces = np.asarray(found.vertices), np.asarray(found.faces)
    assert np.abs(remesh.onto(mesh, vertices) - vertices).max() > 0.01
    assert found.is_watertight and found.volume == pytest.approx(mesh.volume, rel=0.05)
    assert not remesh.crossed(vertices, faces).any()
    slivers = [(np.degrees(one.face_angles.min(axis=1)) < 20).mean() for one in (mesh, found)]
    assert np.array_equal(faces, mesh.faces) or slivers[1] < 0.001 < 0.1 < slivers[0]
    assert (found.face_adjacency_angles > np.radians(60)).mean() < 3e-4  # no spikes


def test_an_even_mesh_has_no_slivers_and_lies_on_the_surface():
    mesh = marching_cubes(sample_grid(sphere, *BOX, 60, 10**5), 0.0, *BOX)
    even = remesh.remeshed(mesh, 0.08)
    smallest = [np.degrees(one.face_angles.min()) for one in (mesh, even)]
    assert smallest[1] > 15.0 > 3.0 * smallest[0]
    assert even.is_watertight and even.volume == pytest.approx(mesh.volume, rel=0.01)
    assert np.abs(remesh.onto(mesh, np.asarray(even.vertices)) - even.vertices).max() < 1e-9
    assert even.edges_unique_length.mean() == pytest.approx(0.08, rel=0.1)
    faces, ends = remesh.divided(np.asarray(even.faces), np.ones(len(even.vertices), bool))
    fine = trimesh.Trimesh(np.concatenate([even.vertices, even.vertices[ends].mean(axis=1)]), faces, process=False)
    assert fine.is_watertight and fine.area == pytest.approx(even.area) and len(faces) == 4 * len(even.faces)
    assert not remesh.crossed(np.asarray(fine.vertices), faces).any()  # though edges lie in planes of triangles


def test_edges_are_halved_where_that_is_wanted_without_gaps_and_slivers():
    mesh = marching_cubes(sample_grid(sphere, *BOX, 60, 10**5), 0.0, *BOX)
    even = remesh.remeshed(mesh, 0.08)
    vertices, is_fine = np.asarray(even.vertices), even.vertices[:, 0] > 0
    faces, ends = remesh.divided(np.asarray(even.faces), is_fine)
    found = trimesh.Trimesh(np.concatenate([vertices, vertices[ends].mean(axis=1)]), faces, process=False)
    assert found.is_watertight and found.is_winding_consistent and found.area == pytest.approx(even.area)
    assert np.degrees(found.face_angles.min()) > 0.4 * np.degrees(even.face_angles.min())
    edges, length = found.edges_unique, found.edges_unique_length
    of_fine, of_coarse = (
        np.median(length[side[edges].all(axis=1)])
        for side in (found.vertices[:, 0] > 0.1, found.vertices[:, 0] < -0.15)
    )
    assert of_fine < 0.6 * of_coarse
    untouched, none = remesh.divided(np.asarray(even.faces), np.zeros(len(vertices), bool))
    assert np.array_equal(untouched, even.faces) and len(none) == 0


def test_edges_stay_long_where_photographs_show_no_texture():
    seen = photographs(0.0)
    plain = [np.where(np.arange(SIZE) < SIZE / 2, 90, image).astype(np.uint8) for image in seen.images[-1:]]
    mesh = plane(0.01)
    none = np.zeros_like(mesh.vertices)
    views = np.full((len(mesh.vertices), 8), -1, np.int32)
    views[:, 0] = 0
    views[mesh.vertices[:, 1] > 0.1, 0] = -1  # what no photograph shows
    pair = GreyPhotographs(seen.cameras[-1:], plain)
    state = details._State(np.asarray(mesh.vertices), none, np.asarray(mesh.faces), views, none[:, 0], pair, none)
    column = pair.cameras[0].project(np.asarray(mesh.vertices))[0][:, 0]
    has_texture = details._has_texture(state, pair)
    assert has_texture[(column > SIZE / 2 + 8) & (mesh.vertices[:, 1] <= 0.1)].all()
    assert not has_texture[(column < SIZE / 2 - 8) | (mesh.vertices[:, 1] > 0.1)].any()
