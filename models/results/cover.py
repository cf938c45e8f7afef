"""What supports a mesh: the photographs that see each part, and the evaluated SfM points, in the working frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import trimesh
from scipy.spatial import cKDTree

from data.cameras import evenly_spaced
from data.io.bars import progress
from data.pixels import to_uint8
from data.prepare.inspection.checks import missing_sides
from data.prepare.inspection.overview import INK, SMALL_TEXT, Canvas, Colour
from data.prepare.world import fitted_plane, largest_plane
from data.rays import PinholeCamera
from data.scenes.scene import Scene
from models.mesh.clean import vertex_normals
from models.mesh.visibility import Visibility
from models.results.render import paint_mesh
from models.results.surface_metrics import sample_faces

COVER_SAMPLES, COVER_RAYS = 20_000, 2_000_000  # area-uniform points of the mesh; rays from these to all cameras
SUPPORT_RADIUS = 0.05  # radii within which a point supports the surface
THICK = 0.03  # radii from the dominant plane, such as a table, within which a point or the surface belongs to it
THIN, NEIGHBOURS = 0.1, 8  # radii: thickness of a thin wall; points around it that are looked at
DOMINANT = 0.5  # fraction of the points on a plane that dominates
ENOUGH = 3  # photographs that determine a part of the surface: two may be matched wrongly
# Number of photographs from which on a part has a colour.
BANDS: tuple[tuple[int, str, Colour], ...] = ((0, "0", (96, 96, 96)), (1, "1-2", (214, 72, 60)))
BANDS += ((3, "3-5", (240, 178, 62)), (6, "6-9", (132, 190, 88)), (10, "10 or more", (52, 122, 190)))
SHOWN, HEIGHT, LEGEND = 3, 360, 28  # views of the picture, and pixels
DARKEST = 0.35  # brightness of surfaces seen at a grazing angle


@dataclass(frozen=True)
class CoverMetrics:
    """The support of a mesh; None without evaluated points. Without a dominant plane, everything is off it."""

    photographs: int  # those with cameras, without held-out ones
    views_median: float  # number of photographs that see the median part of the area
    cover_views: float  # fraction of the area that at least ENOUGH photographs see
    points_off_plane: int | None  # evaluated points off their dominant plane
    area_off_plane: float | None  # fraction of the mesh's area off this plane
    cover_points: float | None  # fraction of the area within SUPPORT_RADIUS of an evaluated point
    cover_off_plane: float | None  # the same of the area off the plane; 0 without such an area
    thin_area: float | None = None  # fraction of the area that is a wall thinner than THIN
    thin_tested: float | None = None  # fraction of it with an evaluated point near each side; 0 without such an area


@dataclass(frozen=True)
class Cover:
    """The support of a mesh at points of it."""

    metrics: CoverMetrics
    samples: np.ndarray  # [S, 3]
    views: np.ndarray  # int [S], number of photographs that see each


def cover(mesh: trimesh.Trimesh, cameras: Sequence[PinholeCamera], points: np.ndarray | None) -> Cover:
    """The support of a mesh by photographs and points [P, 3], P > 0."""
    samples, faces = sample_faces(mesh, min(COVER_SAMPLES, COVER_RAYS // len(cameras)), np.random.default_rng(0))
    visibility, normals = Visibility(mesh, keeps=True), np.asarray(mesh.face_normals)[faces]
    views = np.zeros(len(samples), int)
    for camera in progress(cameras, "cover"):
        visible = np.flatnonzero(camera.shows(*camera.project(samples)))
        views[visible] += visibility.sees(samples[visible], normals[visible], camera.center)
    seen = (len(cameras), float(np.median(views)), float(np.mean(views >= ENOUGH)))
    if points is None:
        return Cover(CoverMetrics(*seen, None, None, None, None), samples, views)
    near = cKDTree(points).query(samples)[0] <= SUPPORT_RADIUS
    points_off, area_off = _off_plane(points, samples)
    of_the_rest = float(near[area_off].mean()) if area_off.any() else 0.0
    thin = _thin_walls(samples, normals, visibility.thickness(samples, normals), points)
    figures = CoverMetrics(*seen, int(points_off.sum()), float(area_off.mean()), float(near.mean()), of_the_rest, *thin)
    return Cover(figures, samples, views)


def _thin_walls(
    samples: np.ndarray, normals: np.ndarray, thickness: np.ndarray, points: np.ndarray
) -> tuple[float, float]:
    """The fraction of samples [S, 3] on walls thinner than THIN, and of these with points [P, 3] near both sides.

    A point in the middle half of a wall is near neither side: the wall is thicker than what it shows.
    """
    thin = np.flatnonzero(thickness < THIN)
    if not len(thin):
        return 0.0, 0.0
    middles = samples[thin] - 0.5 * thickness[thin, None] * normals[thin]
    distances, nearest = cKDTree(points).query(middles, k=range(1, 1 + min(NEIGHBOURS, len(points))))
    height = np.sum((points[nearest] - middles[:, None]) * normals[thin][:, None], axis=2)
    is_near = distances <= SUPPORT_RADIUS + 0.5 * thickness[thin, None]
    middle = 0.25 * thickness[thin, None]
    both = (is_near & (height > middle)).any(axis=1) & (is_near & (height < -middle)).any(axis=1)
    return len(thin) / len(samples), float(both.mean())


def _off_plane(points: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which points [P, 3] and samples [S, 3] of the mesh are off the dominant plane of the points; all without one."""
    on = largest_plane(points, THICK)
    if on.sum() < max(3, DOMINANT * len(points)):
        return np.ones(len(points), bool), np.ones(len(samples), bool)
    middle, normal = fitted_plane(points[on])
    return np.abs((points - middle) @ normal) > THICK, np.abs((samples - middle) @ normal) > THICK


def cover_picture(mesh: trimesh.Trimesh, support: Cover, scene: Scene) -> np.ndarray:
    """The mesh from three cameras, coloured by the number of photographs, above a legend: uint8 [h, w, 3]."""
    vertices, normals = np.asarray(mesh.vertices), vertex_normals(mesh)
    nearest = cKDTree(support.samples).query(vertices)[1]
    band = np.searchsorted([least for least, _, _ in BANDS], support.views[nearest], side="right") - 1
    colors = np.array([color for _, _, color in BANDS])[band]
    pictures = []
    for view in evenly_spaced(scene.n_views, SHOWN):
        towards = scene.c2w[view, :3, 3] - vertices
        towards /= np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), np.finfo(float).tiny)
        light = DARKEST + (1.0 - DARKEST) * np.abs(np.sum(normals * towards, axis=1))
        width, height = scene.size(view)
        scale = HEIGHT / height
        intrinsics = np.diag([scale, scale, 1.0]) @ scene.intrinsics[view]
        shaded = np.rint(colors * light[:, None]).astype(np.uint8)
        size = HEIGHT, max(1, round(scale * width))
        pictures.append(to_uint8(paint_mesh(mesh, shaded, intrinsics, scene.c2w[view], *size)))
    row = np.concatenate(pictures, axis=1)
    return np.concatenate([row, _legend(row.shape[1], missing_sides(scene))])


def _legend(width: int, missing: str) -> np.ndarray:
    """The colours and their numbers of photographs, and the sides without any, uint8 [2 * LEGEND, width, 3]."""
    canvas, left = Canvas(width, 2 * LEGEND), 8
    if missing:
        canvas.text(f"no photograph from: {missing}", (left, LEGEND + 18), SMALL_TEXT, INK)
    canvas.text("photographs that see it:", (left, 18), SMALL_TEXT, INK)
    left += 176
    for _, words, color in BANDS:
        left += canvas.badge(words, (left, 4), color) + 6
    return canvas.image()
