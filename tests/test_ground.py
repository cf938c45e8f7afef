"""The object alone: the ground that is found under generated objects, the mesh without it, and its evaluation."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from rigs import around

from benchmarks.gallery import render, scenes
from models.commands.arguments import parse_arguments
from models.commands.model_modes import evaluation_request, mesh_request
from models.mesh.clean import THICK, without_ground
from models.mesh.pieces import without_dust
from models.requests import MeshRequest
from models.results import meshes
from models.results.references import _off_ground
from models.results.surface_metrics import HeldOutPoints, point_to_mesh

RINGS = [[np.cos(a), np.sin(a), height] for a in np.linspace(0, 2 * np.pi, 12, endpoint=False) for height in (0.3, 0.8)]
ABOVE = around(RINGS, 3.0, np.zeros(3))[:, :3, 3]
ALL_SIDES = np.concatenate([ABOVE, -ABOVE])
GENERATED = [spec for spec in scenes.CATALOGUE if spec.ground is not None]


def box_on_ground(side, ground):
    """A box on a square ground, at a slant, and the box."""
    box = trimesh.creation.box((side, side, side)).apply_translation((0, 0, 0.5 * side))
    floor = trimesh.creation.box((ground, ground, 1e-4))
    turn = trimesh.transformations.rotation_matrix(0.4, (1, 0, 0))
    both = [part.subdivide_to_size(0.03).apply_transform(turn) for part in (floor, box)]
    return trimesh.util.concatenate(both), both[1], ABOVE @ turn[:3, :3].T


@pytest.mark.parametrize("spec", GENERATED, ids=lambda spec: spec.name)
def test_of_generated_photographs_the_object_is_left(spec):
    seen, ground = render.PhotoSet(replace(spec, cells=96)), spec.ground
    mesh = seen.visible()
    bumps = np.random.default_rng(0).normal(0.0, 0.002, mesh.vertices.shape)
    mesh = trimesh.Trimesh(mesh.vertices + bumps, mesh.faces, process=False)
    found = without_dust(without_ground(mesh, scenes.poses(spec)[:, :3, 3]), meshes.PART).mesh
    truth = seen.object.vertices[seen.object.vertices[:, 2] > ground]
    assert np.abs(found.bounds[1] - truth.max(axis=0)).max() < 0.02
    assert ground - 0.01 < found.bounds[0, 2] < ground + THICK
    assert np.abs(found.bounds[0, :2] - truth.min(axis=0)[:2]).max() < 0.03


def test_a_box_stands_on_the_ground_and_not_on_a_larger_side_of_its_own():
    mesh, box, cameras = box_on_ground(1.0, 1.2)
    found = without_ground(mesh, cameras)
    assert found.area == pytest.approx(0.83 * box.area, rel=0.03), "five of six sides"
    assert without_ground(box, ALL_SIDES) is None and without_ground(trimesh.creation.icosphere(4), ABOVE) is None
    floor = trimesh.creation.box((1.2, 1.2, 1e-4)).subdivide_to_size(0.03)
    assert without_ground(floor, ABOVE) is None, "nothing stands on it"


def test_the_mesh_step_removes_the_ground_and_says_where_there_is_none():
    told = []
    mesh, _, cameras = box_on_ground(0.8, 2.0)
    poses = np.tile(np.eye(4), (len(cameras), 1, 1))
    poses[:, :3, 3] = cameras
    experiment = SimpleNamespace(views=SimpleNamespace(c2w=poses, points=None))
    request, log = MeshRequest(16, is_object=True), SimpleNamespace(info=told.append)

    def cleaned(mesh):
        stages = meshes.Stages()
        stages.after("extracted", mesh)
        found = meshes.cleaned(experiment, request, mesh, stages, log)
        return found, "\n".join(stages.lines())

    found, words = cleaned(mesh)
    assert f"{1 - found.area / mesh.area:.0%} of the surface is the ground" in words and not told
    ball = trimesh.creation.icosphere(4)
    assert len(cleaned(ball)[0].faces) == len(ball.faces) and "no ground plane" in told.pop()


def test_points_on_the_ground_are_not_evaluated():
    mesh, box, cameras = box_on_ground(0.8, 2.0)
    on_box, on_ground = box.sample(200, seed=0), mesh.sample(2000, seed=0)
    points = HeldOutPoints("here", np.concatenate([on_box, on_ground]), np.arange(2200.0), 2200)
    scene = SimpleNamespace(c2w=np.stack([trimesh.transformations.translation_matrix(center) for center in cameras]))
    found, (note,) = _off_ground(points, scene)
    assert point_to_mesh(found.xyz, box).max() < 1e-6
    assert len(found.xyz) > 400 and np.array_equal(points.xyz[found.pixels.astype(int)], found.xyz)
    assert f"{2200 - len(found.xyz)} of 2200 points are on the ground" in note
    off = HeldOutPoints("here", on_box, np.ones(200), 200)
    scene.c2w[:, :3, 3] *= np.where(np.arange(len(cameras)) % 2, 1, -1)[:, None]
    assert _off_ground(off, scene) == (off, ()), "seen from both sides"


def test_the_flag_asks_for_both():
    values = parse_arguments(["--mode", "validate_mesh", "--object", "--resolution", "16"]).values
    assert mesh_request(values).is_object
    values = parse_arguments(["--mode", "evaluate", "--mesh", "a.ply", "--object", "--resolution", "16"]).values
    assert evaluation_request(values).is_object
