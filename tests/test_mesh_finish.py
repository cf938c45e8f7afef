"""What is done to a mesh after it was marched: Newton's steps, pieces, views, fewer triangles, colours."""

import manifold3d
import numpy as np
import pytest
import trimesh
from dense_extraction import BOX, marching_cubes, sample_grid, sphere
from rigs import around

from data.rays import PinholeCamera
from models.mesh import clean, color, finish, pieces
from models.mesh.finish import onto_level
from models.mesh.visibility import Visibility

RED, BLUE = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
SIZE = 200


def slopes(points, center=(0.1, 0.05, -0.02), radius=0.7):
    """A sphere's signed distance times 2 and bent, and its slope."""
    away = points - np.float32(center)
    length = np.linalg.norm(away, axis=1, keepdims=True)
    distance = length - np.float32(radius)
    return 2.0 * distance + 3.0 * distance**2, (2.0 + 6.0 * distance) * away / length


def marched(resolution=40, function=sphere):
    return marching_cubes(sample_grid(function, *BOX, resolution, 10**5), 0.0, *BOX)


INTRINSICS = np.array([[250.0, 0.0, SIZE / 2], [0.0, 250.0, SIZE / 2], [0.0, 0.0, 1.0]])
SIDES = [*np.eye(3), *-np.eye(3), [1, 1, 1], [-1, 1, -1], [1, -1, 1], [-1, -1, 1]]
AROUND = [PinholeCamera(INTRINSICS, pose, SIZE, SIZE) for pose in around(SIDES, 3.0, np.zeros(3))]
ABOVE, BELOW = AROUND[2], AROUND[5]  # on the z axis


def photograph(rgb):
    return np.broadcast_to(np.rint(rgb * 255).astype(np.uint8), (SIZE, SIZE, 3))


# onto the level set


def test_vertices_come_to_lie_on_the_level_set_with_its_normals():
    mesh = marched(24)
    found = onto_level(mesh.vertices, slopes, 0.0, 0.05, 1000, iter)
    radii = np.linalg.norm(found.vertices - [0.1, 0.05, -0.02], axis=1)
    assert np.abs(radii - 0.7).max() < 1e-5 < np.abs(np.linalg.norm(mesh.vertices, axis=1) - 0.7).max()
    assert found.after < 1e-2 * found.before
    outwards = (found.vertices - [0.1, 0.05, -0.02]) / radii[:, None]
    assert np.allclose(found.normals, outwards, atol=1e-4)


def test_no_vertex_goes_farther_than_the_reach_or_away_from_the_surface():
    start = np.random.default_rng(0).normal(size=(500, 3))
    found = onto_level(start, slopes, 0.0, 0.01, 64, iter)
    assert np.linalg.norm(found.vertices - start, axis=1).max() < 0.01 + 1e-6

    beside = 1.02 * np.asarray(marched(16).vertices)
    moved = onto_level(beside, lambda points: (slopes(points)[0], -slopes(points)[1]), 0.0, 0.05, 64, iter)
    assert np.array_equal(moved.vertices, beside)


# pieces


def joined(*parts):
    both = trimesh.util.concatenate(parts)
    return trimesh.Trimesh(both.vertices, both.faces, process=False)


def spheres(*radii):
    parts = [trimesh.creation.icosphere(2, radius).apply_translation([4.0 * i, 0, 0]) for i, radius in enumerate(radii)]
    return joined(*parts)


def test_pieces_below_a_hundredth_of_the_largest_area_go_and_are_counted():
    assert pieces.without_dust(spheres(0.5, 1.0, 0.9), 1.0).mesh.area == pytest.approx(spheres(1.0).area)
    found = pieces.without_dust(spheres(1.0, 0.11, 0.09, 0.05))
    assert (found.removed, found.kept) == (2, 2)
    assert found.mesh.area == pytest.approx(spheres(1.0, 0.11).area) and clean.is_watertight(found.mesh)


def test_a_surface_with_a_turned_triangle_is_not_watertight():
    mesh = trimesh.creation.icosphere(2)
    turned = np.concatenate([mesh.faces[:1, ::-1], mesh.faces[1:]])
    assert not clean.is_watertight(trimesh.Trimesh(mesh.vertices, turned, process=False))


def test_decimation_leaves_the_shape_and_the_number_asked_for():
    mesh = marched(60)
    found = clean.decimated(mesh, 2000)
    assert 1900 <= len(found.faces) <= 2000 and found.volume == pytest.approx(mesh.volume, rel=0.01)


def with_holes():
    """A sphere without a cap, and with two holes that meet at a vertex."""
    mesh = marched(40)
    middles = mesh.triangles_center
    stays = middles[:, 2] < 0.5
    corner = mesh.vertices[np.argmin(mesh.vertices[:, 2])]
    around = np.flatnonzero((np.linalg.norm(mesh.triangles - corner, axis=2) < 1e-9).any(axis=1))
    order = np.argsort(np.arctan2(*(middles[around] - corner)[:, :2].T))
    stays[around[order[[0, len(order) // 2]]]] = False
    return mesh, trimesh.Trimesh(mesh.vertices, mesh.faces[stays], process=False)


def test_closed_holes_make_a_solid_and_their_area_is_told(tmp_path):
    whole, mesh = with_holes()
    found = finish.closed(mesh)
    assert found.holes == 3 and not clean.is_watertight(mesh)
    cap = np.pi * (0.7**2 - 0.5**2)  # a disc at height 0.5
    assert found.area * found.mesh.area == pytest.approx(cap, rel=0.2), "its border is jagged"
    found.mesh.export(tmp_path / "finish.stl")
    read = trimesh.load_mesh(tmp_path / "finish.stl")
    height = 0.2
    assert read.is_watertight and read.is_winding_consistent
    assert abs(read.volume) == pytest.approx(whole.volume - np.pi * height**2 * (0.7 - height / 3), rel=0.02)
    manifold = manifold3d.Manifold(manifold3d.Mesh(read.vertices.astype(np.float32), read.faces.astype(np.uint32)))
    assert manifold.status() == manifold3d.Error.NoError and manifold.volume() == pytest.approx(read.volume, rel=1e-3)


def test_simplification_keeps_within_the_error_with_few_triangles():
    mesh, error = marched(60), 0.002
    found, reached = finish.simplified(mesh, error)
    assert reached <= error and len(found.faces) < len(mesh.faces) / 2
    away = np.abs(np.linalg.norm(found.triangles_center - mesh.vertices.mean(axis=0), axis=1) - 0.7)
    assert away.max() < error + 0.003  # of the marched sphere itself
    assert len(finish.simplified(mesh, 10 * error)[0].faces) < len(found.faces)


# views


def test_what_no_camera_sees_goes():
    shell, core = trimesh.creation.icosphere(3, 0.8), trimesh.creation.icosphere(2, 0.4)
    mesh = joined(shell, core)
    found = clean.as_seen(mesh, AROUND, Visibility(mesh))
    assert len(found.faces) == len(shell.faces)
    half = clean.as_seen(mesh, AROUND[:1], Visibility(mesh))
    assert 0 < len(half.faces) < len(shell.faces) * 0.6 and half.vertices[:, 0].max() > 0.79


def test_what_is_behind_a_camera_hides_nothing_from_it():
    room = trimesh.creation.icosphere(3, 0.8)
    room.invert()
    points, inwards = np.asarray(room.vertices), -np.asarray(room.vertices) / 0.8
    pillar = trimesh.creation.icosphere(2, 0.1).apply_translation([0.4, 0.0, 0.0])
    for center in (np.zeros(3), np.array([0.2, -0.5, 0.3])):
        assert Visibility(room).sees(points, inwards, center).all()
    hidden = ~Visibility(trimesh.util.concatenate([room, pillar])).sees(points, inwards, np.zeros(3))
    angle = np.degrees(np.arccos(points[:, 0] / 0.8))
    assert hidden[angle < 13].all() and not hidden[angle > 16].any()  # the pillar covers 14.5 degrees


def half_seen(mesh, side):
    """The faces that a far camera on this side sees."""
    return clean.with_faces(mesh, np.asarray(mesh.face_normals) @ side > 0)


def ball(x, radius):
    return trimesh.creation.icosphere(3, radius).apply_translation([x, 0.0, 0.0])


FRONT = np.array([-1.0, 0.0, 0.0])
CENTERS = np.array([camera.center for camera in AROUND])
WALL = half_seen(trimesh.creation.box((0.02, 1.0, 1.0)).subdivide().apply_translation([0.9, 0, 0]), FRONT)
CORNER = half_seen(trimesh.creation.box((0.4, 0.4, 0.4)).apply_translation([0.9, 0, 0]), FRONT + [0, 0.9, 0.0])


@pytest.mark.parametrize("behind", [WALL, CORNER, half_seen(ball(0.8, 0.15), FRONT)], ids=["wall", "corner", "bust"])
def test_what_is_seen_from_one_side_behind_the_object_goes(behind):
    object_ = clean.with_faces(ball(0.0, 0.4), ball(0.0, 0.4).triangles_center[:, 2] > -0.3)  # stood on its bottom
    found = pieces.without_bystanders(joined(object_, behind), CENTERS)
    assert (found.removed, found.kept) == (1, 1) and found.mesh.area == pytest.approx(object_.area)


def test_parts_and_other_objects_stay():
    rod = trimesh.creation.cylinder(0.01, 0.5).apply_translation([0.75, 0.0, 0.0])  # thin, and seen all round
    scale = half_seen(ball(0.0, 0.45), FRONT)  # a part of the object's own surface, near it
    inner = half_seen(ball(0.0, 0.1), FRONT)  # within its hull, as in a niche
    whole = joined(ball(0.0, 0.4), rod, ball(0.8, 0.15), scale, inner)
    assert pieces.without_bystanders(whole, CENTERS).mesh is whole
    front = [half_seen(ball(x, 0.3), FRONT) for x in (0.0, 1.0, 2.0)]  # of all things the front was seen
    room = trimesh.creation.box((2.0, 2.0, 2.0))
    room.invert()  # cameras within
    for mesh, centers in (
        (joined(*front), CENTERS),
        (joined(room, WALL.copy().apply_translation([1, 0, 0])), 0.1 * CENTERS),
    ):
        assert pieces.without_bystanders(mesh, centers).removed == 0


def test_what_most_points_lie_on_is_no_bystander_of_a_ball_in_the_air():
    ground = half_seen(trimesh.creation.box((1.8, 1.8, 0.02)).subdivide().subdivide(), np.array([0.0, 0.0, 1.0]))
    floating = trimesh.creation.icosphere(3, 0.1).apply_translation([0.0, 0.0, 0.5])
    above = CENTERS + [0.0, 0.0, 4.0]
    points = ground.sample(400, seed=0), floating.sample(20, seed=0)
    whole = joined(ground, floating)
    assert pieces.without_bystanders(whole, above, np.concatenate(points)).mesh is whole
    assert pieces.without_dust(whole, 0.05, np.concatenate(points)).removed == 0  # a small one with points
    found = pieces.without_dust(whole, 0.05, points[0])
    assert found.removed == 1 and found.points == 0.0 and found.area == pytest.approx(floating.area / whole.area)


def test_a_wall_with_many_points_goes_if_the_object_has_as_many():
    object_, wall = ball(0.0, 0.4), WALL.subdivide().subdivide().subdivide()
    points = np.concatenate([object_.sample(300, seed=0), wall.sample(250, seed=0)])
    found = pieces.without_bystanders(joined(object_, wall), CENTERS, points)
    assert found.removed == 1 and found.points == pytest.approx(250 / 550) and "45.5% of the SfM" in found.words


def test_what_dilated_masks_exclude_goes():
    mesh = trimesh.creation.icosphere(4, 0.8)
    empty, full = (np.full((SIZE, SIZE), value, np.uint8) for value in (0, 255))
    half = np.where(np.arange(SIZE) < SIZE // 2, full, empty)
    found = clean.inside_masks(mesh, [ABOVE, *AROUND], [half, *[full] * 10])
    kept, before = (ABOVE.project(each.vertices)[0][:, 0].max() for each in (found, mesh))
    grown = round(SIZE * 50 / 1600)
    assert SIZE / 2 - 1 + grown - 3 < kept <= SIZE / 2 + grown and before > SIZE / 2 + 20
    assert len(clean.inside_masks(mesh, AROUND, [empty] * 10).faces) == 0


# colours


def test_a_point_has_the_colour_of_its_photographs_or_of_the_network():
    mesh = trimesh.creation.icosphere(4, 0.8)
    photographs = color.Photographs([ABOVE, BELOW], [photograph(RED), photograph(BLUE)], None)
    asked = []

    def network(points, normals):
        asked.append(len(points))
        return np.full((len(points), 3), 0.25)

    found = color.paint(mesh.vertices, mesh.vertex_normals, photographs, Visibility(mesh), network, iter)
    height = mesh.vertices[:, 2]
    assert np.allclose(found.rgb[height > 0.4], RED) and np.allclose(found.rgb[height < -0.4], BLUE)
    assert np.allclose(found.rgb[np.abs(height) < 0.05], 0.25)
    assert sum(asked) == round((1 - found.seen) * len(height)) and 0.5 < found.seen < 0.9


def test_colours_that_stand_out_are_left_out_and_agreement_is_averaged():
    generator = np.random.default_rng(0)
    colors = np.clip(np.array([0.3, 0.5, 0.7]) + generator.normal(0, 0.02, (12, 300, 3)), 0, 1)
    colors[:4] = generator.uniform(0, 1, (4, 300, 3))
    found, weights = color.blend(colors.astype(np.float32), np.ones((12, 300), np.float32))
    assert weights[:4].mean() < 0.1 and weights[4:].mean() > 0.9
    assert np.abs(found - [0.3, 0.5, 0.7]).max() < 0.05
    assert np.abs(colors.mean(axis=0) - [0.3, 0.5, 0.7]).max() > 0.15


def test_background_in_a_mask_lends_no_colour():
    mesh = trimesh.creation.icosphere(3, 0.8)
    photographs = color.Photographs([ABOVE], [photograph(RED)], [np.zeros((SIZE, SIZE), np.uint8)])
    found = color.paint(mesh.vertices, mesh.vertex_normals, photographs, Visibility(mesh), None, iter)
    assert found.seen == 0.0 and np.allclose(found.rgb, 0.5)
