"""Textures: the charts of a mesh, the colours of texels, and textures of other programs' meshes."""

import numpy as np
import rendered_photographs as rendered
import trimesh
from rigs import around
from runs import ROOT, run

from models.mesh import clean, color, texture
from models.mesh.texture import _barycentric, unwrap
from models.mesh.visibility import Visibility

SIDES = [*np.eye(3), *-np.eye(3), [1, 1, 1], [-1, 1, -1], [1, -1, 1], [-1, -1, 1]]
SIZE = 256


def staircase():
    """A strip [0.3, 1] wide that turns three times around z while it rises: seen along z, it covers itself."""
    angles, radii = np.linspace(0.0, 6.0 * np.pi, 181), np.linspace(0.3, 1.0, 8)
    angle, radius = np.meshgrid(angles, radii, indexing="ij")
    vertices = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.1 * angle], axis=-1).reshape(-1, 3)
    corner = (8 * np.arange(180)[:, None] + np.arange(7)).ravel()
    faces = np.concatenate(
        [np.stack([corner, corner + 8, corner + 1], 1), np.stack([corner + 1, corner + 8, corner + 9], 1)]
    )
    return trimesh.Trimesh(vertices, faces, process=False)


def texels_inside(corners):
    """Texel centres (x, y) in the interior of a triangle [3, 2] in texels, of either orientation."""
    low, high = np.ceil(corners.min(axis=0) - 0.5).astype(int), np.floor(corners.max(axis=0) - 0.5).astype(int)
    x, y = (part.ravel() for part in np.meshgrid(np.arange(low[0], high[0] + 1), np.arange(low[1], high[1] + 1)))
    edges = [corners[k - 2] - corners[k] for k in range(3)]
    pairs = zip(edges, corners, strict=True)
    sides = [edge[0] * (y + 0.5 - corner[1]) - edge[1] * (x + 0.5 - corner[0]) for edge, corner in pairs]
    inside = np.all(np.array(sides) > 1e-9, axis=0) | np.all(np.array(sides) < -1e-9, axis=0)
    return x[inside], y[inside]


def test_charts_do_not_cover_one_another_even_where_the_mesh_does():
    size = 1024
    for mesh in (staircase(), clean.decimated(trimesh.creation.torus(0.6, 0.25), 800)):
        layout, count = unwrap(mesh, size), np.zeros((size, size), int)
        for corners in layout.uv[layout.faces] * size:
            x, y = texels_inside(corners)
            count[y, x] += 1
        assert count.max() == 1 and (count > 0).mean() > 0.3
        assert np.allclose(mesh.vertices[mesh.faces], mesh.vertices[layout.source[layout.faces]])
        assert layout.uv.min() >= 0.0 and layout.uv.max() <= 1.0


def test_a_degenerate_triangle_takes_no_texel_of_another_one():
    mesh = trimesh.creation.box()
    vertices = np.concatenate([mesh.vertices, [[0.5, 0.5, 0.0]]])
    sliver = [[*np.flatnonzero((mesh.vertices[:, :2] == 0.5).all(axis=1)), len(mesh.vertices)]]
    layout = unwrap(trimesh.Trimesh(vertices, np.concatenate([mesh.faces, sliver]), process=False), SIZE)
    assert np.ptp(layout.uv[layout.faces[-1]], axis=0).max() < 0.5
    edge = np.diff(layout.uv[layout.faces[-1]], axis=0)
    assert abs(edge[0, 0] * edge[1, 1] - edge[0, 1] * edge[1, 0]) < 1e-9


def test_a_place_in_a_triangle_is_the_mean_of_its_corners():
    rng = np.random.default_rng(0)
    corners, shares = rng.normal(size=(40, 3, 2)), rng.dirichlet(np.ones(3), 40)
    places = np.einsum("pc,pcd->pd", shares, corners)
    np.testing.assert_allclose(_barycentric(places, corners), shares, atol=1e-9)
    outside = _barycentric(places + 9.0, corners)
    assert outside.min() >= 0.0 and np.allclose(outside.sum(axis=1), 1.0)
    assert np.isfinite(_barycentric(places, np.zeros_like(corners))).all()


def test_a_texture_shows_the_photographs_and_asks_at_vertices_what_they_see(monkeypatch):
    cameras = rendered.Cameras(
        np.repeat(rendered.INTRINSICS[None], len(SIDES), 0),
        around(SIDES, 3.0, np.zeros(3)),
        np.full((len(SIDES), 2), rendered.SIZE, np.float64),
    )

    def smooth(points):
        return 0.5 + 0.4 * np.sin(3.0 * points[..., 0]) * np.cos(2.0 * points[..., 1])

    scene = rendered.scene_of(cameras, smooth)
    photographs = color.Photographs(scene.pinholes, scene.images, None)
    mesh, asked = trimesh.creation.icosphere(4, rendered.RADIUS), []
    sees = Visibility.sees
    monkeypatch.setattr(
        Visibility, "sees", lambda self, points, *others: asked.append(len(points)) or sees(self, points, *others)
    )
    painted = color.paint(mesh.vertices, mesh.vertex_normals, photographs, Visibility(mesh), None, iter, True)
    found = texture.texture(mesh, SIZE, painted, photographs, iter)
    assert sum(asked) <= len(SIDES) * len(mesh.vertices) < SIZE**2
    share = np.random.default_rng(0).dirichlet(np.ones(3), len(found.mesh.faces))
    uv = np.einsum("fk,fkc->fc", share, found.uv[found.mesh.faces])
    places = np.einsum("fk,fkc->fc", share, found.mesh.triangles)
    columns, rows = np.floor(uv[:, 0] * SIZE).astype(int), np.floor((1 - uv[:, 1]) * SIZE).astype(int)
    shown = found.picture[np.clip(rows, 0, SIZE - 1), np.clip(columns, 0, SIZE - 1), 0] / 255.0
    error = np.abs(shown - smooth(places))  # larger at the outline of the sphere in small photographs
    assert np.median(error) < 0.01 and np.quantile(error, 0.99) < 0.05


def test_a_photograph_has_no_weight_beside_what_it_does_not_see():
    """Else an object in front would be painted on what is partly behind it."""
    faces = np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2]])
    found = texture._seen_around(np.array([[0.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0, 1.0]]), faces)
    assert np.array_equal(found, [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])


def test_the_mesh_of_another_program_gets_a_texture_without_a_checkpoint(tmp_path, capsys):
    mesh, output = ROOT / "data/demo/ground_truth.ply", tmp_path / "jug.glb"
    flags = ("--mode", "validate_mesh", "--mesh", str(mesh), "--frame", "unit", "--colour", "texture")
    assert run(tmp_path, *flags, "--texture_size", "512", "--output", str(output)) == 0
    told = capsys.readouterr().out
    assert "of the surface from" in told and " s\n" in told and not (tmp_path / "checkpoints").exists()
    found = trimesh.load(output, force="mesh", process=False)
    assert len(found.faces) == len(trimesh.load(mesh, process=False).faces)
    picture = np.asarray(found.visual.material.baseColorTexture.convert("RGB"))
    assert picture.shape == (512, 512, 3) and picture.std() > 20


def test_a_mesh_in_another_frame_or_that_would_be_replaced_is_refused(tmp_path, capsys):
    mesh = tmp_path / "mesh.ply"
    far = trimesh.load(ROOT / "data/demo/ground_truth.ply")
    far.apply_translation([500.0, 0.0, 0.0]).export(mesh)
    before = mesh.read_bytes()
    flags = ("--mode", "validate_mesh", "--mesh", str(mesh), "--frame", "unit")
    for more, words in (
        (("--output", str(tmp_path / "a.ply")), "no photograph sees it"),
        (("--output", str(mesh)), "is the mesh of --mesh"),
        (("--clean", "views"), "leave out"),
        (("--object",), "leave out"),
    ):
        assert run(tmp_path, *flags, *more) == 2
        assert words in capsys.readouterr().err and mesh.read_bytes() == before
    assert not (tmp_path / "a.ply").exists()
