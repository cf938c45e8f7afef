"""The detail of full-size photographs for a mesh: vertices move along their normals to where photographs agree best.

From coarse to fine: the mesh gets even triangles with edges of EDGE pixels; each vertex compares the photographs that
show it best at some offsets (`ops.agreement`); the best offsets, weighted by how distinct they are, become a change
that bends little; then edges are halved, for photographs of twice the size. Each vertex keeps its place on the given
surface and its change apart. Before edges are halved, and at the end, photographs that were not compared decide how
much of the change stays. V vertices, F faces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import cv2
import igl
import numpy as np
import trimesh
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.linalg import LinearOperator, cg

from models.machine import memory
from models.machine.backend import jt
from models.mesh import remesh
from models.mesh.clean import face_areas, normals_of, vertex_normals
from models.mesh.grey_photographs import EDGE, GreyPhotographs, edge_of, pixel_size
from models.mesh.visibility import Visibility, dots, lengths
from models.ops.agreement import NOISE, Agreement, agreement
from models.structs import Var

COMPARED, WITNESSES = 6, 2  # photographs of a vertex that place it, and that decide whether that is better
GRAZING = 0.3  # cosine
BLURRED, SHARP = 0.2, 1.5  # limits of the weight of a photograph by its sharpness, relative to the median
OFFSETS = 7
# Of each round, its level, and the step between offsets in pixels of the photographs of the level.
ROUNDS = ((0, 1.0), (0, 0.6), (1, 0.7), (1, 0.5), (1, 0.4))
BENDING, CONTINUED = 0.7, 5.0  # weight of the square of the change's Laplacian, and where evidence is missing
LAST = ROUNDS[-1][0]
TEXTURE, WINDOW = 4.0, 9  # least variance relative to that of noise, and the side of its square, pixels
BESIDE = 8  # edges around texture
PATCH = 24  # most vertices of a patch, which consists of neighbours and theirs
AT_ONCE = 2**16  # vertices of which photographs and patches are found at a time
LEAST_SCORE, SURE_SCORE = 0.5, 1.0  # of a best offset without confidence, and with all
DISTINCT = 0.05  # second difference of the scores at a distinct best offset
FAITH = 1e-3  # confidence, everywhere, in no change
ITERATIONS, CLOSE = 60, 1e-3  # of conjugate gradients
TURNED, TAKEN_BACK, LESS = 0.3, 6, 0.3  # cosine of a triangle that turns too much; how often, to what part
AROUND = 30  # rounds of averaging of what the witnesses say
# Gain of the correlation of the witnesses up to which nothing of a change stays, and from which on all does; a mesh
# with a mean gain below the first stays as it is.
WORTH, SURE_GAIN = 0.004, 0.01

Bar = Callable[[Iterable], Iterable]


@dataclass(frozen=True)
class Detailed:
    """A mesh with the detail of photographs, or the given one."""

    mesh: trimesh.Trimesh
    is_changed: bool
    before: float  # mean correlation of the witnesses across the even mesh on the given surface
    after: float  # across that with the changes that stay


@dataclass
class _State:
    """The mesh of a level."""

    base: np.ndarray  # [V, 3], on the given surface
    change: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3]
    views: np.ndarray  # int32 [V, COMPARED + WITNESSES], the best first, -1 for none
    pixel: np.ndarray  # [V], the size there of a pixel of the first one, units of the frame
    photographs: GreyPhotographs  # of the size of the level
    start: np.ndarray  # [V, 3], the change before that of the level

    @property
    def vertices(self) -> np.ndarray:
        """Their places, [V, 3]."""
        return self.base + self.change

    @cached_property
    def beside(self) -> csr_matrix:
        """Which vertices share an edge."""
        return remesh.adjacency(self.faces, len(self.base))

    @cached_property
    def patches(self) -> Var:
        """Those of `_patches`."""
        return jt.array(_patches(self.beside))

    @cached_property
    def inputs(self) -> list[Var]:
        """Those of the photographs."""
        return [jt.array(value) for value in self.photographs.inputs()]

    def scores(
        self, vertices: np.ndarray, normals: np.ndarray, steps: np.ndarray, views: np.ndarray, offsets: int
    ) -> np.ndarray:
        """Scores [V, offsets] of `agreement`."""
        numbers = [jt.array(value.astype(np.float32)) for value in (vertices, normals, steps[:, None])]
        given = [*numbers, self.patches, jt.array(np.ascontiguousarray(views)), *self.inputs]
        return agreement(*given, Agreement(offsets, views.shape[1], PATCH)).numpy()

    def in_place(self, vertices: np.ndarray, views: np.ndarray) -> np.ndarray:
        """Scores [V] of vertices [V, 3] that do not move."""
        return self.scores(vertices, vertices, self.pixel, views, 1)[:, 0]

    @cached_property
    def witnesses(self) -> np.ndarray:
        """The views [V, 1 + WITNESSES] of which the correlation decides: the best one, and those not compared."""
        return self.views[:, [0, *range(COMPARED, COMPARED + WITNESSES)]]


def detailed(mesh: trimesh.Trimesh, photographs: GreyPhotographs, progress: Bar) -> Detailed:
    """The mesh as sharp as the photographs; the mesh itself where they do not agree better on another."""
    before, after, kept = _judged(mesh, _moved(mesh, photographs, progress))
    del photographs  # of full size
    if kept is None:
        return Detailed(mesh, False, before, after)
    memory.release_all()  # all that was compared
    vertices, change, faces = kept
    change = without_crossings(vertices, change, faces)
    return Detailed(trimesh.Trimesh(vertices + change, faces, process=False), True, before, after)


def _moved(mesh: trimesh.Trimesh, photographs: GreyPhotographs, progress: Bar) -> _State:
    """The even mesh with the changes that stay."""
    even = remesh.remeshed(mesh, EDGE * pixel_size(mesh, photographs.cameras) * 2**LAST)
    base, faces, before = np.asarray(even.vertices), np.asarray(even.faces), 0
    views, pixel = _chosen(even, photographs, Visibility(mesh))
    none = np.zeros_like(base)
    state = _State(base, none, faces, views, pixel * 2**LAST, photographs.reduced(2**LAST), none)
    for level, step in progress(ROUNDS):
        if level > before:
            state.change = _kept(state)
            state, before = _halved(state, mesh, photographs.reduced(2 ** (LAST - level))), level
        memory.release_all()  # also the ray caster, which is in a reference cycle
        _move(state, step * state.pixel)
    state.change = _kept(state)
    trust = _trust(state.in_place(state.vertices, state.views[:, :COMPARED]))
    state.change = supported(state.change, trust, state.beside)
    return state


def _chosen(
    mesh: trimesh.Trimesh, photographs: GreyPhotographs, visibility: Visibility
) -> tuple[np.ndarray, np.ndarray]:
    """The `views` of `_State`, and the size of a pixel [V].

    The most pixels, in sharp photographs, across each vertex come first. They see all of its patch: behind an edge, a
    hidden part of it would show something else. Of three to COMPARED, the last one is a witness.
    """
    points, normals = np.asarray(mesh.vertices), vertex_normals(mesh)
    ring = _ring(remesh.adjacency(np.asarray(mesh.faces), len(points)))
    sharp = np.array([cv2.Laplacian(image, cv2.CV_32F).var() for image in photographs.images])
    sharp = np.clip(sharp / max(float(np.median(sharp)), 1e-6), BLURRED, SHARP)
    focal = np.array([camera.intrinsics[0, 0] for camera in photographs.cameras])
    centers = np.array([camera.center for camera in photographs.cameras])
    scores = np.zeros((len(points), max(len(focal), COMPARED + WITNESSES)), np.float32)
    for view, camera in enumerate(photographs.cameras):
        towards = camera.center - points
        away = lengths(towards)
        cosine = dots(towards, normals) / np.maximum(away, 1e-12)
        rows = np.flatnonzero(camera.shows(*camera.project(points)) & (cosine > GRAZING))
        hidden = np.ones(len(points), np.float32)
        hidden[rows[visibility.sees(points[rows], normals[rows], camera.center)]] = 0.0
        rows = np.flatnonzero(ring @ (ring @ hidden) == 0.0)
        scores[rows, view] = cosine[rows] / away[rows] * focal[view] * sharp[view]
    parts = np.array_split(scores, -(-len(points) // AT_ONCE))
    order = np.concatenate([np.argsort(-part, axis=1)[:, : COMPARED + WITNESSES].astype(np.int32) for part in parts])
    views = np.where(np.take_along_axis(scores, order, axis=1) > 0, order, -1)
    count = (views >= 0).sum(axis=1)
    few = np.flatnonzero((count > 2) & (count <= COMPARED))
    views[few, COMPARED], views[few, count[few] - 1] = views[few, count[few] - 1], -1
    best = np.maximum(views[:, 0], 0)
    return views, lengths(centers[best] - points) / focal[best]


def _halved(state: _State, mesh: trimesh.Trimesh, photographs: GreyPhotographs) -> _State:
    """The state with edges halved where the photographs show texture, and as far around as changes continue.

    The new vertices are placed on `mesh`, with the mean change of their ends.
    """
    is_fine, ring = _has_texture(state, photographs), _ring(state.beside)
    for _ in range(BESIDE):
        is_fine = ring @ is_fine > 0
    faces, ends = remesh.divided(state.faces, is_fine)
    base = np.concatenate([state.base, remesh.onto(mesh, state.base[ends].mean(axis=1))])
    change, pixel = (np.concatenate([value, value[ends].mean(axis=1)]) for value in (state.change, state.pixel))
    views = np.concatenate([state.views, state.views[ends[:, 0]]])
    return _State(base, change, faces, views, 0.5 * pixel, photographs, change)


def _has_texture(state: _State, photographs: GreyPhotographs) -> np.ndarray:
    """Whether the photograph that shows a vertex best shows more than noise around it, bool [V]."""
    has_texture = np.zeros(len(state.base), bool)
    for view, (camera, image) in enumerate(zip(photographs.cameras, photographs.images, strict=True)):
        rows, grey = np.flatnonzero(state.views[:, 0] == view), image.astype(np.float32)
        variance = cv2.blur(grey**2, (WINDOW, WINDOW)) - cv2.blur(grey, (WINDOW, WINDOW)) ** 2
        column, row = np.rint(camera.project(state.vertices[rows])[0]).astype(int).T
        column, row = np.clip(column, 0, camera.width - 1), np.clip(row, 0, camera.height - 1)
        has_texture[rows] = variance[row, column] > TEXTURE * NOISE
    return has_texture


def _move(state: _State, steps: np.ndarray) -> None:
    """Change the state: vertices move along their normals, comparing offsets that are `steps` [V] apart."""
    vertices = state.vertices
    normals = vertex_normals(trimesh.Trimesh(vertices, state.faces, process=False))
    scores = state.scores(vertices, normals, steps, state.views[:, :COMPARED], OFFSETS)
    offsets, confidence = best_offsets(scores)
    bending = np.full(len(offsets), BENDING)
    move = smoothed(offsets * steps, confidence, dots(state.change, normals), state.beside, bending)
    move = np.clip(move, -OFFSETS // 2 * steps, OFFSETS // 2 * steps)
    state.change = state.change + without_turns(vertices, move[:, None] * normals, state.faces)


def _patches(beside: csr_matrix) -> np.ndarray:
    """Each vertex and its neighbours within two edges, int32 [V, PATCH], then -1."""
    count, ring = beside.shape[0], _ring(beside)
    found = np.full((count, PATCH), -1, np.int32)
    found[:, 0] = np.arange(count)
    for start in range(0, count, AT_ONCE):
        near = ring[start : start + AT_ONCE] @ ring
        rows = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
        others = near.indices != start + rows
        rows, columns = rows[others], near.indices[others]
        place = 1 + np.arange(len(rows)) - (near.indptr[rows] - rows)  # each row before had its own vertex, too
        fits = place < PATCH
        found[start + rows[fits], place[fits]] = columns[fits]
    return found


def _ring(beside: csr_matrix) -> csr_matrix:
    """Each vertex and its neighbours: ones, [V, V]."""
    return beside + identity(beside.shape[0], np.float32, "csr")


def best_offsets(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best offset [V] of scores [V, O], in steps from the middle one, and the confidence in it, in [0, 1].

    It is the vertex of the parabola through the best score and those beside it. The confidence is 0 at either end.
    """
    rows, last = np.arange(len(scores)), scores.shape[1] - 1
    best = scores.argmax(axis=1)
    inner = np.clip(best, 1, last - 1)
    low, middle, high = (scores[rows, inner + shift].astype(np.float64) for shift in (-1, 0, 1))
    bend = 2.0 * middle - low - high
    shift = 0.5 * (high - low) / np.maximum(bend, 1e-6)
    confidence = np.clip(bend / DISTINCT, 0.0, 1.0) * _trust(middle) * (best == inner)
    return inner - last // 2 + np.clip(shift, -0.5, 0.5), confidence


def _trust(scores: np.ndarray) -> np.ndarray:
    """What an offset of these scores counts, in [0, 1]."""
    return np.clip((scores - LEAST_SCORE) / (SURE_SCORE - LEAST_SCORE), 0.0, 1.0)


def supported(change: np.ndarray, evidence: np.ndarray, beside: csr_matrix) -> np.ndarray:
    """A change [V, 3] where the evidence [V] for it, in [0, 1], is large; elsewhere the smooth continuation of it.

    A wrong change times its evidence would remain as pits and spikes, only lower.
    """
    still, bending = np.zeros(len(change)), CONTINUED * (1.0 - evidence)
    return np.stack([smoothed(change[:, axis], evidence, still, beside, bending) for axis in range(3)], axis=1)


def _around(values: np.ndarray, beside: csr_matrix) -> np.ndarray:
    """Values [V] after AROUND rounds of averaging with their neighbours."""
    shares = diags(1.0 / np.maximum(np.asarray(beside.sum(axis=1)).ravel(), 1.0)) @ beside
    for _ in range(AROUND):
        values = 0.5 * values + 0.5 * (shares @ values)
    return values


def smoothed(
    offsets: np.ndarray, confidence: np.ndarray, change: np.ndarray, beside: csr_matrix, bending: np.ndarray
) -> np.ndarray:
    """The moves x [V] with the least sum of confidence (x - offset)^2, FAITH x^2, bending (Laplacian of change + x)^2.

    `change` [V] is that of the moves before, so that their noise does not add up. `bending`: [V].
    """
    count = len(offsets)
    shares = diags(1.0 / np.maximum(np.asarray(beside.sum(axis=1)).ravel(), 1.0)).astype(np.float32) @ beside
    laplacian = (identity(count, np.float32, "csr") - shares).tocsr()
    weight, bending = (confidence + FAITH).astype(np.float32), bending.astype(np.float32)

    def bent(values: np.ndarray) -> np.ndarray:
        return laplacian.T @ (bending * (laplacian @ values.astype(np.float32)))

    product = LinearOperator((count,) * 2, lambda x: weight * x + bent(x), dtype=np.float32)
    diagonal = weight + laplacian.power(2).T @ bending
    near = LinearOperator((count,) * 2, lambda x: x / diagonal, dtype=np.float32)
    begin = (confidence * offsets).astype(np.float32)
    return cg(product, begin - bent(change), x0=begin, rtol=CLOSE, maxiter=ITERATIONS, M=near)[0].astype(np.float64)


def without_turns(vertices: np.ndarray, move: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Moves [V, 3] of vertices [V, 3], less at triangles that would turn by much: no spikes, no overlaps."""
    move, rows, before = move.copy(), np.arange(len(faces)), _unit_normals(vertices, faces)
    for _ in range(TAKEN_BACK):
        after = _unit_normals(vertices + move, faces[rows])
        rows = rows[dots(before[rows], after) < TURNED]
        corners = np.unique(faces[rows])
        if len(corners) == 0:
            break
        move[corners] *= LESS
        touched = np.zeros(len(vertices), bool)
        touched[corners] = True
        rows = np.flatnonzero(touched[faces].any(axis=1))
    return move


def _unit_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals, float32 [F, 3]."""
    parts = (normals for _, normals in normals_of(trimesh.Trimesh(vertices, faces, process=False)))
    return np.concatenate([(part / np.maximum(lengths(part), 1e-30)[:, None]).astype(np.float32) for part in parts])


def _judged(
    mesh: trimesh.Trimesh, state: _State
) -> tuple[float, float, tuple[np.ndarray, np.ndarray, np.ndarray] | None]:
    """The figures of `Detailed`, and vertices, changes and faces, or None if the mesh stays."""
    before, after = (state.in_place(vertices, state.witnesses) for vertices in (state.base, state.vertices))
    known = (before > -1) & (after > -1)
    if not known.any():
        return 0.0, 0.0, None
    areas = np.repeat(face_areas(trimesh.Trimesh(state.base, state.faces, process=False)), 3)
    shares = known * np.bincount(state.faces.ravel(), areas, len(known))
    without, with_all = (float(np.average(value, weights=shares)) for value in (before, after))
    if with_all - without < WORTH:
        return without, with_all, None
    edge = EDGE * pixel_size(mesh, state.photographs.cameras)
    if edge_of(mesh, len(mesh.vertices)) < edge:  # it is finer than the photographs
        return without, with_all, (np.asarray(mesh.vertices), _carried(state, mesh), np.asarray(mesh.faces))
    return without, with_all, (state.base, state.change, state.faces)


def _kept(state: _State) -> np.ndarray:
    """The change [V, 3] with as much of that of the level as the witnesses around each vertex agree better on it.

    Better than on the given surface; without witnesses, nothing of it stays.
    """
    level, beside = state.change - state.start, state.beside
    before, after = (state.in_place(vertices, state.witnesses) for vertices in (state.base, state.vertices))
    known = ((before > -1) & (after > -1)).astype(np.float64)
    gain, weight = (_around(value, beside) for value in (known * (after - before), known))
    stays = np.clip((gain / np.maximum(weight, 1e-6) - WORTH) / (SURE_GAIN - WORTH), 0.0, 1.0)
    return state.start + stays[:, None] * level


def without_crossings(vertices: np.ndarray, change: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Changes [V, 3] of vertices [V, 3], less where the surface would pass through itself."""
    beside, change, around = remesh.adjacency(faces, len(vertices)), change.copy(), None
    count = np.maximum(np.asarray(beside.sum(axis=1)), 1.0)
    for _ in range(TAKEN_BACK):
        found = remesh.crossed(vertices + change, faces, around)
        memory.release_all()  # of its ray caster
        if not found.any():
            break
        around = beside @ (beside @ found.astype(np.float32)) + found > 0
        change[around] = LESS * (beside @ change / count)[around]
    return change


def _carried(state: _State, mesh: trimesh.Trimesh) -> np.ndarray:
    """The change at the vertices of `mesh` [P, 3], from that of the vertices of the state."""
    points = np.asarray(mesh.vertices)
    even = trimesh.Trimesh(state.base, state.faces, process=False)
    _, rows, places = igl.point_mesh_squared_distance(points, state.base, np.ascontiguousarray(state.faces, np.int64))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = trimesh.triangles.points_to_barycentric(even.triangles[rows], places)
    shares[~np.isfinite(shares).all(axis=1)] = 1.0 / 3.0  # of a triangle without area
    return np.einsum("pk,pkc->pc", shares, state.change[state.faces[rows]])
