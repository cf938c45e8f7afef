"""Cut a mesh into charts, lay them out in a texture, and paint it. F faces, V vertices.

A chart is a connected part of the mesh that is projected along one of the six axes. Neighbouring faces agree on their
axis, parts that cover other parts of the same chart become charts of their own, and xatlas packs the charts. Its own
parametrisation takes minutes for 100,000 triangles of a reconstruction, and makes several times as many charts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import cv2
import numpy as np
import trimesh
from scipy.ndimage import distance_transform_edt
from scipy.sparse import csr_matrix

from data.errors import UserError
from models.mesh.color import Corners, Painted, Photographs, between
from models.mesh.mesh import Surface
from models.mesh.visibility import lengths

PADDING = 2  # texels between charts: interpolation needs one, the first mipmap level two
FEWEST_TEXELS = 0.5  # mean texels per triangle: a smaller texture shows mostly the borders of charts
PROJECTION_AXES = np.concatenate([np.eye(3), -np.eye(3)])
# Of each axis, the directions of u and v, [6, 2, 3]: u x v is the axis.
ACROSS = np.array([[np.roll(np.eye(3), k, axis=0)[1], np.roll(np.eye(3), k, axis=0)[2]] for k in (0, 2, 1)])
ACROSS = np.concatenate([ACROSS, ACROSS[:, ::-1]])
SMOOTHINGS, AGREEMENTS, NEIGHBOUR_WEIGHT = (
    4,
    15,
    0.6,
)  # of normals; of axes among neighbours, and its weight beside the cosine
LEAST_COSINE = 0.1  # between a face and its axis: a smaller one stretches the texture tenfold
SMALL_CHART, MERGES = 30, 3  # faces: smaller charts join a neighbour where they can; how often that is tried
LAYERS = 30  # parts of the mesh above one another that are parted
PROBE_SHARES = np.array([[1, 1, 1], [8, 1, 1], [1, 8, 1], [1, 1, 8]]) / [[3], [10], [10], [10]]  # barycentric
CHART_GAP = 1.1  # between charts on the grid, in extents of the mesh
LIFT = 1e-5  # of the extent: the start of rays above their face, because of float32
FILL = 0.7  # of a texture that charts cover at first


@dataclass(frozen=True)
class Layout:
    """A mesh cut into charts in texture space."""

    source: np.ndarray  # [V] index of the original vertex of each new one
    faces: np.ndarray  # [F, 3] indices of new vertices
    uv: np.ndarray  # [V, 2] in [0, 1]


def unwrap(mesh: trimesh.Trimesh, size: int) -> Layout:
    """Charts for a texture of `size` texels per side; raises UserError if it is too small."""
    if len(mesh.faces) * FEWEST_TEXELS > size * size:
        raise _too_small(size, f"{len(mesh.faces)} triangles")
    corners = np.asarray(mesh.vertices)[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    one, other = np.asarray(mesh.face_adjacency).reshape(-1, 2).T
    neighbours = csr_matrix((np.ones(len(one)), (one, other)), shape=(len(mesh.faces),) * 2)
    neighbours = neighbours + neighbours.T  # ones where faces share an edge
    axis = _axes(across, neighbours)
    layer = np.zeros(len(axis), np.int64)
    for _ in range(LAYERS):
        chart = _charts(axis + len(PROJECTION_AXES) * layer, neighbours)
        flat = _flat(corners, axis, chart)
        covered = _covered(flat)
        if not covered.any():
            break
        layer += covered
    return _packed(mesh, flat, chart, size)


def _axes(across: np.ndarray, neighbours: csr_matrix) -> np.ndarray:
    """The index in PROJECTION_AXES of each face, [F], from normals `across` [F, 3] as long as the areas."""
    own = (across / np.maximum(lengths(across), 1e-30)[:, None]) @ PROJECTION_AXES.T
    smooth = across
    for _ in range(SMOOTHINGS):
        smooth = smooth + neighbours @ smooth
    smooth = (smooth / np.maximum(lengths(smooth), 1e-30)[:, None]) @ PROJECTION_AXES.T
    share = NEIGHBOUR_WEIGHT / np.maximum(np.asarray(neighbours.sum(axis=1)), 1.0)
    axis = smooth.argmax(axis=1)
    for _ in range(AGREEMENTS):
        axis = (smooth + share * (neighbours @ np.eye(len(PROJECTION_AXES))[axis])).argmax(axis=1)
    steep = own[np.arange(len(axis)), axis] < LEAST_COSINE
    axis[steep] = own[steep].argmax(axis=1)
    for _ in range(MERGES):
        axis = _merged(axis, own, neighbours)
    return axis


def _merged(axis: np.ndarray, own: np.ndarray, neighbours: csr_matrix) -> np.ndarray:
    """The axes after small charts took that of the most neighbours that suits all of their faces, if there is any."""
    chart = _charts(axis, neighbours)
    is_small = np.bincount(chart)[chart] < SMALL_CHART
    votes = neighbours @ (np.eye(len(PROJECTION_AXES))[axis] * ~is_small[:, None])
    total, least = np.zeros((2, chart.max() + 1, len(PROJECTION_AXES)))
    np.add.at(total, chart, votes)
    np.minimum.at(least, chart, own - 1.0)
    total[least + 1.0 < LEAST_COSINE] = 0.0
    moves = is_small & (total.max(axis=1) > 0.0)[chart]
    return np.where(moves, total.argmax(axis=1)[chart], axis)


def _charts(label: np.ndarray, neighbours: csr_matrix) -> np.ndarray:
    """The chart of each face, [F]: connected faces of one label."""
    rows, columns = neighbours.nonzero()
    same = label[rows] == label[columns]
    return trimesh.graph.connected_component_labels(np.stack([rows[same], columns[same]], axis=1), len(label))


def _flat(corners: np.ndarray, axis: np.ndarray, chart: np.ndarray) -> np.ndarray:
    """Corners [F, 3, 3] as u, v and height along the axis of the face, with the charts side by side on a grid."""
    frame = np.concatenate([ACROSS, PROJECTION_AXES[:, None]], axis=1)  # [6, 3, 3]
    flat = np.einsum("fij,fkj->fki", frame[axis], corners)
    columns = int(np.ceil(np.sqrt(chart.max() + 1)))
    cell = np.stack([chart % columns, chart // columns, np.zeros_like(chart)], axis=1)
    return flat + CHART_GAP * np.ptp(flat.reshape(-1, 3), axis=0).max() * cell[:, None]


def _covered(flat: np.ndarray) -> np.ndarray:
    """Which faces, in the coordinates of `_flat`, have a part of their own chart above them: bool [F]."""
    middle = flat.reshape(-1, 3).mean(axis=0)
    soup = trimesh.Trimesh(flat.reshape(-1, 3) - middle, np.arange(3 * len(flat)).reshape(-1, 3), process=False)
    lift = LIFT * float(np.ptp(flat[..., 2]))
    starts = np.einsum("pk,fkc->pfc", PROBE_SHARES, soup.triangles) + [0.0, 0.0, lift]
    up = np.broadcast_to([0.0, 0.0, 1.0], starts[0].shape)
    return np.any([soup.ray.intersects_any(start, up) for start in starts], axis=0)


def _packed(mesh: trimesh.Trimesh, flat: np.ndarray, chart: np.ndarray, size: int) -> Layout:
    """The charts of `_flat` in the texture; raises UserError if it is too small."""
    import xatlas  # imported only here

    count = len(mesh.vertices)
    corner, first, faces = np.unique(chart[:, None] * count + mesh.faces, return_index=True, return_inverse=True)
    faces, source, places = faces.reshape(-1, 3), corner % count, flat.reshape(-1, 3)[first, :2]
    one, other = places[faces[:, 1]] - places[faces[:, 0]], places[faces[:, 2]] - places[faces[:, 0]]
    area = 0.5 * float(np.abs(one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]).sum())
    places = places * (size * (FILL / max(area, 1e-30)) ** 0.5)  # texels; xatlas omits faces that are tiny in its units
    atlas, packing = xatlas.Atlas(), xatlas.PackOptions()
    atlas.add_uv_mesh(places.astype(np.float32), faces.astype(np.uint32))
    packing.padding, packing.bilinear, packing.texels_per_unit = PADDING, True, 1.0
    atlas.generate(pack_options=packing)
    # Charts that do not fit are shrunk, and the padding with them, to less than a texel.
    if max(atlas.width, atlas.height) > PADDING * size:
        raise _too_small(size, f"{atlas.chart_count} charts")
    order, faces, uv = atlas[0]
    # xatlas divides by the width and height that it used; the larger one keeps the charts' aspect.
    uv = uv * (np.array([atlas.width, atlas.height]) / max(atlas.width, atlas.height, size))
    omitted = atlas.get_mesh_vertex_assignment(0)[1] > atlas.chart_count  # of degenerate faces only
    lost = omitted[faces]
    anchor = faces[np.arange(len(faces)), lost.argmin(axis=1)]
    uv[faces[lost]] = uv[np.broadcast_to(anchor[:, None], faces.shape)[lost]]
    return Layout(source[order], faces.astype(np.int64), uv.astype(np.float64))


def _too_small(size: int, what: str) -> UserError:
    """The error for a texture that is too small."""
    return UserError(f"--texture_size {size}: too small for the {what} of this mesh; raise it, or lower --decimate")


TEXTURED_FACES = 100_000  # default number of triangles: the texture has the detail
SUBTEXEL = 4  # fractional bits of vertex coordinates in drawing
TEXELS = 2**18  # texels at a time


def texture(
    mesh: trimesh.Trimesh,
    size: int,
    painted: Painted,
    photographs: Photographs,
    progress: Callable[[Iterable], Iterable],
) -> Surface:
    """The mesh with a texture of `size` texels per side; raises UserError if it is too small.

    `painted`: its vertices, with weights. Vertices on chart borders are duplicated for each chart. Texels outside
    charts get the colour of the nearest one, so that interpolation shows no seams.
    """
    layout, vertices = unwrap(mesh, size), np.asarray(mesh.vertices)
    painted = replace(painted, weights=_seen_around(painted.weights, mesh.faces))
    face = np.full((size, size), -1, np.int32)  # of each texel, including those that a face only touches
    places = np.stack([layout.uv[:, 0] * size - 0.5, (1.0 - layout.uv[:, 1]) * size - 0.5], axis=1)
    for index, corners in enumerate(np.rint(places * (1 << SUBTEXEL)).astype(np.int32)[layout.faces]):
        cv2.fillConvexPoly(face, corners, (index,), lineType=cv2.LINE_8, shift=SUBTEXEL)
    rows, columns = np.nonzero(face >= 0)
    picture = np.zeros((size, size, 3), np.uint8)
    for start in progress(range(0, len(rows), TEXELS)):
        row, column = rows[start : start + TEXELS], columns[start : start + TEXELS]
        corner = layout.faces[face[row, column]]
        place = np.stack([(column + 0.5) / size, 1.0 - (row + 0.5) / size], axis=1)
        within = Corners(layout.source[corner], _barycentric(place, layout.uv[corner]).astype(np.float32))
        colors = between(within.mean(vertices), within, painted, photographs)
        picture[row, column] = np.rint(np.clip(colors, 0.0, 1.0) * 255.0)
    nearest = distance_transform_edt(face < 0, return_distances=False, return_indices=True)
    flat = trimesh.Trimesh(vertices[layout.source], layout.faces, process=False)
    normals = np.asarray(mesh.vertex_normals, np.float32)[layout.source]
    return Surface(flat, normals, None, layout.uv.astype(np.float32), picture[tuple(nearest)])


def _seen_around(weights: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Weights [V, N] that are 0 also at the neighbours of vertices without a weight.

    Interpolated, they are continuous, and 0 in each triangle that a photograph sees only in part.
    """
    changed = weights.copy()
    for own, row in zip(weights, changed, strict=True):
        row[faces[(own[faces] == 0.0).any(axis=1)]] = 0.0
    return changed


def _barycentric(places: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Barycentric coordinates [P, 3] in triangles [P, 3, 2] of points [P, 2], clamped to the triangle."""
    edge_1, edge_2, away = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0], places - corners[:, 0]
    area = edge_1[:, 0] * edge_2[:, 1] - edge_1[:, 1] * edge_2[:, 0]
    area = np.where(np.abs(area) < 1e-20, 1.0, area)
    second = (away[:, 0] * edge_2[:, 1] - away[:, 1] * edge_2[:, 0]) / area
    third = (edge_1[:, 0] * away[:, 1] - edge_1[:, 1] * away[:, 0]) / area
    share = np.clip(np.stack([1.0 - second - third, second, third], axis=1), 0.0, 1.0)
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1e-12)
