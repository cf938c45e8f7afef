"""The overview image of a scene: cameras, points and sphere from three sides, images with the sphere's outline."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from data.cameras import evenly_spaced, mean_up, pixels_to_rays
from data.io.images import eight_bits
from data.parsed_scene import SparsePoints
from data.prepare.inspection.canvas import INK, MUTED, Canvas, colour_of
from data.scenes.frustum import enclosing_ball
from data.scenes.region import SENTENCE
from data.scenes.scene import Scene

WIDTH = 1600  # pixels of the whole image
PAD = 24
HEADER = 106
MOST_THUMBNAILS = 12
FEWEST_COLUMNS, COLUMNS = 3, 6
CAPTION = 26  # below a thumbnail
PANEL_TITLE = 30
OUTLINE_POINTS = 721
MOST_DRAWN_POINTS = 6000
ROOM = 1.15  # half width of a panel over the radius of its content
FRUSTUM = 0.07  # depth of a drawn camera, in panel half widths
TALLEST = 1.5  # height over width of a thumbnail's cell: portrait images up to 2:3 fill the width


def overview(scene: Scene) -> np.ndarray:
    """The overview, uint8 RGB [H, WIDTH, 3], of a scene in its working frame."""
    chosen = evenly_spaced(scene.n_views, MOST_THUMBNAILS)
    panel = (WIDTH - 4 * PAD) // 3
    columns = min(COLUMNS, max(FEWEST_COLUMNS, len(chosen)))
    cell_width = (WIDTH - (columns + 1) * PAD) // columns
    cell_height = _cell_height(scene, chosen, cell_width)
    rows = -(-len(chosen) // columns)
    images_top = HEADER + PANEL_TITLE + panel + PAD
    height = images_top + rows * (cell_height + CAPTION + PAD // 2) + PAD // 2
    canvas = Canvas(WIDTH, height)
    _draw_header(canvas, scene)
    for index, (title, axes) in enumerate(side_views(scene.c2w)):
        _draw_panel(canvas, scene, chosen, axes, title, PAD + index * (panel + PAD), HEADER, panel)
    for index, view in enumerate(chosen):
        row, column = divmod(index, columns)
        left = PAD + column * (cell_width + PAD)
        top = images_top + row * (cell_height + CAPTION + PAD // 2)
        _draw_image(canvas, scene, int(view), left, top, cell_width, cell_height)
    return canvas.image()


def sphere_outline(c2w: np.ndarray) -> np.ndarray:
    """The unit sphere's outline: points [OUTLINE_POINTS, 3] in camera coordinates, closed; empty from inside.

    The circle of tangent points of the rays from the camera. With o the centre of the sphere in camera coordinates and
    d = |o|, its centre is (1 - 1/d^2) o, its radius sqrt(1 - 1/d^2) and its normal o.
    """
    middle = -c2w[:3, 3] @ c2w[:3, :3]
    squared = middle @ middle
    if squared <= 1:
        return np.zeros((0, 3))
    share = 1 - 1 / squared
    normal = middle / np.sqrt(squared)
    side = np.cross(normal, np.eye(3)[np.argmin(np.abs(normal))])
    side /= np.linalg.norm(side)
    turn = np.linspace(0, 2 * np.pi, OUTLINE_POINTS)[:, None]
    return share * middle + np.sqrt(share) * (np.cos(turn) * side + np.sin(turn) * np.cross(normal, side))


def outline_pixels(intrinsics: np.ndarray, c2w: np.ndarray) -> list[np.ndarray]:
    """The outline in pixels: curves [K, 2]; a single closed one unless part of the sphere is behind the camera."""
    points = sphere_outline(c2w)
    if not len(points):
        return []
    in_front = points[:, 2] > 1e-3 * np.linalg.norm(points, axis=1)  # points near the camera plane project to infinity
    if not in_front.any():
        return []
    if not in_front.all():  # start behind the camera, so that no visible curve is split where the circle closes
        start = int(np.argmin(in_front[:-1]))
        points, in_front = (np.roll(value[:-1], -start, axis=0) for value in (points, in_front))
    pixels = points @ intrinsics.T
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = pixels[:, :2] / pixels[:, 2:]
    ends = np.flatnonzero(np.diff(in_front.astype(int))) + 1
    pieces = [(part, ok[0]) for part, ok in zip(np.split(pixels, ends), np.split(in_front, ends), strict=True)]
    return [part for part, ok in pieces if ok and len(part) > 1]


def side_views(c2w: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Title and axes [2, 3] (right, down, in the working frame) of the three panels.

    Up is the mean up of the cameras; the front is the side with most cameras.
    """
    up = mean_up(c2w)
    away = c2w[:, :3, 3].mean(axis=0)
    across = np.cross(up, np.eye(3)[np.argmin(np.abs(up))])
    front = _unit(away - (away @ up) * up, across / np.linalg.norm(across), least=0.05)
    right = np.cross(up, front)
    return [
        ("from the front", np.stack([right, -up])),
        ("from the side", np.stack([-front, -up])),
        ("from above", np.stack([right, front])),
    ]


def _unit(vector: np.ndarray, otherwise: np.ndarray, least: float = 1e-6) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > least else otherwise


def _draw_header(canvas: Canvas, scene: Scene) -> None:
    """Name, counts, and the source of the region of interest."""
    distances = np.linalg.norm(scene.c2w[:, :3, 3], axis=1)
    sizes = {scene.size(view) for view in range(scene.n_views)}
    size = "x".join(map(str, sizes.pop())) if len(sizes) == 1 else f"{len(sizes)} sizes"
    facts = [
        f"{scene.n_views} views, {size}",
        "masks" if scene.masks is not None else "no masks",
        f"cameras {distances.min():.2f} to {distances.max():.2f} radii from the centre",
    ]
    if scene.points is not None:
        facts.append(f"{len(scene.points.xyz)} points")
    canvas.text(scene.name, (PAD, 38), 0.95, INK, thickness=2, width=WIDTH - 2 * PAD)
    region = next((note for note in scene.notes if note.startswith(SENTENCE)), "")
    canvas.text("; ".join(facts), (PAD, 66), 0.5, MUTED, width=WIDTH - 2 * PAD)
    canvas.text(region, (PAD, 88), 0.5, MUTED, width=WIDTH - 2 * PAD)


def _draw_panel(
    canvas: Canvas, scene: Scene, chosen: np.ndarray, axes: np.ndarray, title: str, left: int, top: int, size: int
) -> None:
    """Cameras, points and sphere in an orthographic view; all panels have the same scale."""
    canvas.text(title, (left, top + 18), 0.55, INK)
    top += PANEL_TITLE
    canvas.frame(left, top, size, size)
    centre, half = _framed(scene.c2w)
    middle = np.array([left, top]) + size / 2
    offset = middle - (axes @ centre) * (size / 2 / half)

    def place(points: np.ndarray) -> np.ndarray:
        """[N, 3] in the working frame to [N, 2] on the canvas."""
        return offset + (points @ axes.T) * (size / 2 / half)

    sphere = place(np.zeros((1, 3)))[0]
    canvas.disc(sphere, size / 2 / half, fill=(232, 238, 246), edge=(92, 128, 176))
    if scene.points is not None:
        _draw_points(canvas, scene.c2w, scene.points, place, axes)
    cone = FRUSTUM * half
    for view in np.argsort(scene.c2w[:, :3, 3] @ np.cross(axes[0], axes[1]))[::-1]:
        is_shown = bool(np.isin(view, chosen))
        apex, corners = place(scene.c2w[view, :3, 3][None])[0], place(_frustum(scene, int(view), cone))
        colour = colour_of(int(view), scene.n_views)
        canvas.pyramid(apex, corners, colour, is_strong=is_shown)
    for view in chosen:
        apex = place(scene.c2w[view, :3, 3][None])[0]
        canvas.label(str(view), apex, sphere, colour_of(int(view), scene.n_views))


def _framed(c2w: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre [3] and half width of the panels, which contain the sphere and all cameras from every direction."""
    centre, radius = enclosing_ball(np.vstack([c2w[:, :3, 3], np.eye(3), -np.eye(3)]))
    return centre, ROOM * radius


def _draw_points(canvas: Canvas, c2w: np.ndarray, points: SparsePoints, place: Callable, axes: np.ndarray) -> None:
    """SfM points in their colours, the nearest last; points outside the panel are left out."""
    centre, half = _framed(c2w)
    xyz = points.xyz
    keep = np.flatnonzero(np.isfinite(xyz).all(axis=1) & (np.abs((xyz - centre) @ axes.T) < half).all(axis=1))
    keep = keep[:: max(1, len(keep) // MOST_DRAWN_POINTS)]
    keep = keep[np.argsort(xyz[keep] @ np.cross(axes[0], axes[1]))[::-1]]
    canvas.dots(place(xyz[keep]), points.rgb[keep])


def _frustum(scene: Scene, view: int, depth: float) -> np.ndarray:
    """Corners [4, 3] of the image plane at `depth` in front of the camera, in the working frame."""
    width, height = scene.size(view)
    corners = np.array(
        [[-0.5, -0.5, 1], [width - 0.5, -0.5, 1], [width - 0.5, height - 0.5, 1], [-0.5, height - 0.5, 1]]
    )
    rays = corners @ np.linalg.inv(scene.intrinsics[view]).T
    rays *= min(1.0, 1 / np.abs(rays[:, :2]).max())  # the frustum of a very wide lens would fill the panel
    return scene.c2w[view, :3, 3] + depth * rays @ scene.c2w[view, :3, :3].T


def _cell_height(scene: Scene, chosen: np.ndarray, cell_width: int) -> int:
    """The height that the tallest image needs, at most TALLEST times the width."""
    ratios = [scene.size(view)[1] / scene.size(view)[0] for view in chosen]
    return round(cell_width * min(TALLEST, max(ratios)))


def _draw_image(canvas: Canvas, scene: Scene, view: int, left: int, top: int, width: int, height: int) -> None:
    """An image with the sphere's outline, its number and name."""
    size = np.array(scene.size(view))
    scale = min(np.array([width, height]) / size)
    shown = np.maximum(1, np.rint(size * scale)).astype(int)
    corner = np.array([left, top]) + (np.array([width, height]) - shown) // 2
    resampling = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
    image = eight_bits(cv2.resize(scene.images[view], canvas.fine(shown), interpolation=resampling))
    colour = colour_of(view, scene.n_views)
    pixels = outline_pixels(scene.intrinsics[view], scene.c2w[view])
    curves = [corner + (curve + 0.5) * scale for curve in pixels]
    canvas.draw_image(image, corner, shown, curves, colour)
    inside = [np.all((curve > -0.5) & (curve < size - 0.5), axis=1).any() for curve in pixels]
    caption = scene.photographs[view] + ("" if any(inside) else _where(scene, view))
    badge = canvas.badge(str(view), (left, top + height + 6), colour)
    canvas.text(caption, (left + badge + 8, top + height + 21), 0.42, MUTED, width=width - badge - 8)


def _where(scene: Scene, view: int) -> str:
    """A note on an image without a visible outline: all pixels are inside the sphere, or none is."""
    middle = (np.array([scene.size(view)]) - 1) / 2
    origin, direction = (value[0] for value in pixels_to_rays(middle, scene.intrinsics[view], scene.c2w[view]))
    along = -origin @ direction
    hits = along > 0 and np.linalg.norm(origin + along * direction) < 1
    return " (all inside the sphere)" if hits else " (sphere not in the image)"
