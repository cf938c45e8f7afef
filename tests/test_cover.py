"""What supports a mesh: photographs that see its parts, and points; and what the verdict says of it."""

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from rigs import sphere_of_cameras, textured_scene
from synthetic_scene import look_at

from data.prepare.inspection.checks import findings, missing_sides
from models.results.cover import BANDS, cover, cover_picture
from models.results.report.reconstruction import page, trust

TABLE = -0.3


def still():
    """A ball above a table, and 300 points of each."""
    table = trimesh.creation.box((1.4, 1.4, 0.002)).subdivide_to_size(0.1).apply_translation((0, 0, TABLE))
    ball = trimesh.creation.icosphere(3, 0.3).apply_translation((0, 0, 0.05))
    on_table = np.column_stack([np.random.default_rng(0).uniform(-0.7, 0.7, (300, 2)), np.full(300, TABLE)])
    return trimesh.util.concatenate([table, ball]), on_table, ball.sample(300, seed=0)


@pytest.fixture(scope="module")
def scene():
    return textured_scene(sphere_of_cameras(9, middle=np.zeros(3)), masks=False)


def figures(mesh, scene, points, missing=0.0):
    found = cover(mesh, scene.pinholes, points)
    return {**vars(found.metrics), "points_missing": missing, "points_scored": len(points)}


def test_points_on_the_table_alone_do_not_make_the_object_reliable(scene):
    mesh, on_table, on_ball = still()
    found = figures(mesh, scene, on_table)
    ball_share = np.pi * 0.36 / mesh.area
    assert found["points_off_plane"] == 0 and found["cover_off_plane"] == 0.0
    assert found["area_off_plane"] == pytest.approx(ball_share, abs=0.02)
    said = trust(found)[0]
    assert "the object itself is not tested" in said and "reliable" not in said
    assert f"near 0% of the mesh off it ({found['area_off_plane']:.0%} of the area) is a point" in said
    assert page("jug", {}, found, []).count("the object itself is not tested") == 1

    found = figures(mesh, scene, np.concatenate([on_table, on_ball[:100]]))
    assert 95 <= found["points_off_plane"] <= 100 and found["cover_off_plane"] > 0.2
    said = trust(found)[0]
    assert f"the mesh is reliable near them, on {found['cover_points']:.0%} of its area" in said
    assert f"({found['points_off_plane']} of 400 points lie off the dominant plane)" in said


def test_a_flat_object_is_tested_by_its_plane_and_a_round_one_has_none(scene):
    mesh, on_table, on_ball = still()
    table = min(mesh.split(), key=lambda piece: piece.extents[2])
    assert "the mesh is reliable near them" in trust(figures(table, scene, on_table))[0]
    found = figures(mesh, scene, on_ball)
    assert found["points_off_plane"] == 300 and found["area_off_plane"] == 1.0
    assert "plane" not in trust(found)[0] and f"on {found['cover_points']:.0%} of its area" in trust(found)[0]


def test_the_sides_without_photographs_are_named_for_the_photographer():
    sides = {
        "the left": [1, 0, 0],
        "the right": [-1, 0, 0],
        "behind": [0, -1, 0],
        "above": [0, 0, 1],
        "front": [0, 1, 0],
    }
    places = {name: look_at(2.5 * np.array(at, float) + [0.0, 0.01, 0.1]) for name, at in sides.items()}
    front = [places.pop("front")] * 3  # the most photographs
    for missing in ("the left", "the right", "behind", "above"):
        kept = [*front, *(place for name, place in places.items() if name != missing)]
        assert missing_sides(textured_scene(np.array(kept), masks=False)).split(" (")[0] == missing
    assert missing_sides(textured_scene(np.array([*front, *places.values()]), masks=False)) == ""
    front = textured_scene(np.array(front), masks=False)
    said = missing_sides(front)
    assert said == f"the left, the right, behind, above (the front is that of {front.photographs[0]})"
    assert any(said in line and "take photographs there" in line for line in trust({"sides_missing": said}))
    (finding,) = (finding for finding in findings(front) if finding.check == "coverage")
    assert said in finding.figure
    inside = front.c2w.copy()
    inside[:, :3, 3] *= 0.1
    assert missing_sides(replace(front, c2w=inside)) == ""


def test_the_photographs_that_see_each_part_are_counted_and_drawn(scene):
    ball = trimesh.creation.icosphere(4, 0.5)
    found = cover(ball, scene.pinholes, None)
    lit = np.zeros(len(found.samples), int)
    for camera in scene.pinholes:  # a convex body hides only what faces away
        lit += np.sum(found.samples * (camera.center - found.samples), axis=1) > 0
    assert np.mean(found.views == lit) > 0.9 and found.metrics.photographs == 9
    assert found.metrics.cover_points is None and found.metrics.views_median == np.median(found.views)
    assert any("photographs with cameras see" in line for line in trust(vars(found.metrics)))
    assert "](cover.png)" in page("ball", {}, vars(found.metrics), [])
    picture = cover_picture(ball, found, scene)
    band = np.searchsorted([least for least, _, _ in BANDS], found.views, side="right") - 1
    shown = [np.array(color) for at, (_, _, color) in enumerate(BANDS) if (band == at).mean() > 0.2]
    shown_mesh = picture[:-56].reshape(-1, 3)
    shades = shown_mesh / np.maximum(shown_mesh.max(axis=1, keepdims=True), 1)
    assert (picture[-28:] != picture[-1, -1]).any() == bool(missing_sides(scene))
    assert shown and all((np.abs(shades - color / color.max()).max(axis=1) < 0.03).sum() > 500 for color in shown)


def test_thin_walls_are_tested_by_points_on_both_sides(scene):
    outer, inner = trimesh.creation.icosphere(4, 0.5), trimesh.creation.icosphere(4, 0.45)
    inner.invert()
    wall = trimesh.util.concatenate([outer, inner])
    on_outer, on_inner = (mesh.sample(2000, seed=0) for mesh in (outer, inner))
    between = trimesh.creation.icosphere(4, 0.475).sample(2000, seed=0) * np.linspace(0.99, 1.01, 2000)[:, None]
    for points, tested in ((on_inner, 0.0), (np.concatenate([on_inner, on_outer]), 1.0), (between, 0.0)):
        found = figures(wall, scene, points)
        assert found["thin_area"] > 0.95 and found["thin_tested"] == pytest.approx(tested, abs=0.1)
        said = [line for line in trust(found) if "thin walls become thicker, do not measure" in line]
        assert len(said) == (tested == 0.0)
        reliable = [line for line in trust(found | {"points_missing": 0.0}) if "the mesh is reliable near them" in line]
        assert reliable[0].endswith(", except thin walls") == (tested == 0.0)
    assert figures(outer, scene, on_outer)["thin_area"] == 0.0
