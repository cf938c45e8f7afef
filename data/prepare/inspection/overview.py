"""The overview image of a scene: cameras, points and sphere from three sides, images with the sphere's outline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data.cameras import evenly_spaced, mean_up, pixels_to_rays
from data.errors import one_line
from data.pixels import eight_bits
from data.scenes.frustum import enclosing_ball, outline_pixels
from data.scenes.region import SENTENCE
from data.scenes.scene import Scene

Colour = tuple[int, ...]  # red, green and blue
PAPER: Colour = (255, 255, 255)
PANEL: Colour = (249, 250, 251)
FAINT: Colour = (216, 220, 226)
INK: Colour = (28, 32, 40)
MUTED: Colour = (98, 106, 118)
FINE = 2  # drawn pixels per pixel of the image: antialiasing
LARGEST_COORDINATE = 1e6  # pixels; Pillow takes 32 bits
LARGE_TEXT, MEDIUM_TEXT, SMALL_TEXT = 28, 15, 12  # pixels, sizes of text
OVERVIEW_WIDTH = 1600  # pixels of the whole image
PANEL_GAP = 24
HEADER = 106
MOST_THUMBNAILS = 12
FEWEST_COLUMNS, MOST_COLUMNS = 3, 6
CAPTION = 26  # below a thumbnail
PANEL_TITLE = 30
MOST_DRAWN_POINTS = 6000
ROOM = 1.15  # half width of a panel over the radius of its content
FRUSTUM_DEPTH = 0.07  # depth of a drawn camera, in panel half widths
TALLEST = 1.5  # height over width of a thumbnail's cell: portrait images up to 2:3 fill the width


class Canvas:
    """A white image of width x height pixels; positions are (x, y) in its pixels."""

    def __init__(self, width: int, height: int) -> None:
        self._fine = Image.new("RGB", (width * FINE, height * FINE), PAPER)
        self._draw = ImageDraw.Draw(self._fine)

    def image(self) -> np.ndarray:
        """The drawing, uint8 RGB [height, width, 3]."""
        return np.asarray(self._fine.reduce(FINE))

    def text(self, text: str, at: Any, size: int, colour: Colour, width: int = 10**6, halo: int = 0) -> None:
        """One line of text with its baseline starting `at`, truncated with dots if wider than `width`."""
        line = start = one_line(text)
        while start and text_width(line, size) > width:
            start = start[:-1]
            line = f"{start}..."
        self._draw.text(_fixed(at), line, colour, _font(size), "ls", stroke_width=halo * FINE, stroke_fill=PANEL)

    def frame(self, left: int, top: int, width: int, height: int) -> None:
        """A panel with a thin border."""
        self._draw.rectangle([*_fixed((left, top)), *_fixed((left + width, top + height))], PANEL, FAINT, FINE)

    def disc(self, middle: np.ndarray, radius: float, fill: Colour, edge: Colour | None = None) -> None:
        """A filled circle, perhaps with an edge."""
        self._draw.ellipse(
            [*_fixed(middle - radius), *_fixed(middle + radius)], fill, edge, 2 * FINE * (edge is not None)
        )

    def line(self, places: Any, colour: Colour, width: int) -> None:
        """A polyline through `places` [N, 2]; the width is in drawn pixels."""
        self._draw.line(_fixed(places), colour, width)

    def badge(self, text: str, at: tuple[int, int], colour: Colour) -> int:
        """A number on a coloured background with its top left corner `at`; returns its width."""
        width = text_width(text, SMALL_TEXT) + 10
        self._draw.rectangle([*_fixed(at), *_fixed((at[0] + width, at[1] + 19))], colour)
        self.text(text, (at[0] + 5, at[1] + 14), SMALL_TEXT, PAPER)
        return width

    def paste(
        self, image: np.ndarray, corner: np.ndarray, size: np.ndarray, curves: Sequence[np.ndarray], colour: Colour
    ) -> None:
        """`image` (uint8 RGB), `size` pixels large, at `corner`, with `curves` ([K, 2] each) drawn in and clipped."""
        pasted = Image.fromarray(image).resize(tuple(size * FINE), Image.Resampling.BILINEAR)
        for curve in curves:
            for shade, width in ((PAPER, 4.5), (colour, 2.5)):
                ImageDraw.Draw(pasted).line(_fixed(curve - corner), shade, round(width * FINE), "curve")
        self._fine.paste(pasted, tuple(corner * FINE))


def _fixed(places: Any) -> Any:
    """Positions (x, y) as drawn pixels, one after the other."""
    drawn = np.clip(np.asarray(places, float) * FINE, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    return np.rint(drawn).astype(int).ravel().tolist()


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size * FINE)


def text_width(text: str, size: int) -> int:
    """The width of `text` in pixels."""
    return round(_font(size).getlength(text) / FINE)


def colour_of(index: int, count: int) -> Colour:
    """The colour of view `index` of `count`: from blue through violet and red to orange, of equal lightness."""
    share = index / max(count - 1, 1)
    stops = np.array([[38, 110, 190], [116, 86, 186], [196, 60, 120], [222, 96, 36]], dtype=float)
    return tuple(round(float(np.interp(3 * share, range(4), channel))) for channel in stops.T)


def overview(scene: Scene) -> np.ndarray:
    """The overview, uint8 RGB [H, OVERVIEW_WIDTH, 3], of a scene in its working frame."""
    chosen = evenly_spaced(scene.n_views, MOST_THUMBNAILS)
    panel = (OVERVIEW_WIDTH - 4 * PANEL_GAP) // 3
    columns = min(MOST_COLUMNS, max(FEWEST_COLUMNS, len(chosen)))
    cell_width = (OVERVIEW_WIDTH - (columns + 1) * PANEL_GAP) // columns
    tallest = max(scene.size(view)[1] / scene.size(view)[0] for view in chosen)
    cell_height = round(cell_width * min(TALLEST, tallest))
    rows = -(-len(chosen) // columns)
    images_top = HEADER + PANEL_TITLE + panel + PANEL_GAP
    height = images_top + rows * (cell_height + CAPTION + PANEL_GAP // 2) + PANEL_GAP // 2
    canvas = Canvas(OVERVIEW_WIDTH, height)
    _draw_header(canvas, scene)
    for index, (title, axes) in enumerate(side_views(scene.c2w)):
        _draw_panel(canvas, scene, chosen, axes, title, PANEL_GAP + index * (panel + PANEL_GAP), HEADER, panel)
    for index, view in enumerate(chosen):
        row, column = divmod(index, columns)
        left = PANEL_GAP + column * (cell_width + PANEL_GAP)
        top = images_top + row * (cell_height + CAPTION + PANEL_GAP // 2)
        _draw_image(canvas, scene, int(view), left, top, cell_width, cell_height)
    return canvas.image()


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
    canvas.text(scene.name, (PANEL_GAP, 38), LARGE_TEXT, INK, width=OVERVIEW_WIDTH - 2 * PANEL_GAP)
    region = next((note for note in scene.notes if note.startswith(SENTENCE)), "")
    canvas.text("; ".join(facts), (PANEL_GAP, 66), MEDIUM_TEXT, MUTED, width=OVERVIEW_WIDTH - 2 * PANEL_GAP)
    canvas.text(region, (PANEL_GAP, 88), MEDIUM_TEXT, MUTED, width=OVERVIEW_WIDTH - 2 * PANEL_GAP)


def _draw_panel(
    canvas: Canvas, scene: Scene, chosen: np.ndarray, axes: np.ndarray, title: str, left: int, top: int, size: int
) -> None:
    """Cameras, points and sphere in an orthographic view; all panels have the same scale."""
    canvas.text(title, (left, top + 18), MEDIUM_TEXT, INK)
    top += PANEL_TITLE
    canvas.frame(left, top, size, size)
    # Centre and half width of the panels, which contain the sphere and all cameras from every direction.
    centre, radius = enclosing_ball(np.vstack([scene.c2w[:, :3, 3], np.eye(3), -np.eye(3)]))
    half, towards = ROOM * radius, np.cross(axes[0], axes[1])
    middle = np.array([left, top]) + size / 2
    offset = middle - (axes @ centre) * (size / 2 / half)

    def place(points: np.ndarray) -> np.ndarray:
        """[N, 3] in the working frame to [N, 2] on the canvas."""
        return offset + (points @ axes.T) * (size / 2 / half)

    sphere = place(np.zeros((1, 3)))[0]
    canvas.disc(sphere, size / 2 / half, fill=(232, 238, 246), edge=(92, 128, 176))
    if scene.points is not None:
        xyz = scene.points.xyz  # those outside the panel are left out, and the nearest drawn last
        is_drawn = np.isfinite(xyz).all(axis=1) & (np.abs((xyz - centre) @ axes.T) < half).all(axis=1)
        rows = np.flatnonzero(is_drawn)
        rows = rows[:: max(1, len(rows) // MOST_DRAWN_POINTS)]
        rows = rows[np.argsort(xyz[rows] @ towards)[::-1]]
        for point, rgb in zip(place(xyz[rows]), scene.points.rgb[rows].tolist(), strict=True):
            canvas.disc(point, 0.5, tuple(rgb))
    cone = FRUSTUM_DEPTH * half
    for view in np.argsort(scene.c2w[:, :3, 3] @ towards)[::-1]:
        is_chosen = bool(np.isin(view, chosen))
        apex, corners = place(scene.c2w[view, :3, 3][None])[0], place(_frustum(scene, int(view), cone))
        colour = colour_of(int(view), scene.n_views)
        shade = colour if is_chosen else tuple((value + 255) // 2 for value in colour)
        for corner in corners:
            canvas.line([apex, corner], shade, FINE + 1)
        canvas.line([*corners, corners[0]], shade, FINE + 1 + is_chosen)
    for view in chosen:
        apex, name = place(scene.c2w[view, :3, 3][None])[0], str(view)
        away = (apex - sphere) / max(float(np.linalg.norm(apex - sphere)), 1e-6)
        at = apex + 11 * away + (-0.5 * text_width(name, SMALL_TEXT), 4.5)
        canvas.text(name, at, SMALL_TEXT, colour_of(int(view), scene.n_views), halo=1)


def _frustum(scene: Scene, view: int, depth: float) -> np.ndarray:
    """Corners [4, 3] of the image plane at `depth` in front of the camera, in the working frame."""
    right, bottom = np.array(scene.size(view)) - 0.5
    corners = np.array([[-0.5, -0.5, 1], [right, -0.5, 1], [right, bottom, 1], [-0.5, bottom, 1]])
    rays = corners @ np.linalg.inv(scene.intrinsics[view]).T
    rays *= min(1.0, 1 / np.abs(rays[:, :2]).max())  # the frustum of a very wide lens would fill the panel
    return scene.c2w[view, :3, 3] + depth * rays @ scene.c2w[view, :3, :3].T


def _draw_image(canvas: Canvas, scene: Scene, view: int, left: int, top: int, width: int, height: int) -> None:
    """An image with the sphere's outline, its number and name."""
    size = np.array(scene.size(view))
    scale = min(np.array([width, height]) / size)
    reduced = np.maximum(1, np.rint(size * scale)).astype(int)
    corner = np.array([left, top]) + (np.array([width, height]) - reduced) // 2
    image = eight_bits(scene.images[view])
    colour = colour_of(view, scene.n_views)
    pixels = outline_pixels(scene.intrinsics[view], scene.c2w[view])
    curves = [corner + (curve + 0.5) * scale for curve in pixels]
    canvas.paste(image, corner, reduced, curves, colour)
    inside = [np.all((curve > -0.5) & (curve < size - 0.5), axis=1).any() for curve in pixels]
    caption = scene.photographs[view] + ("" if any(inside) else _where(scene, view))
    badge = canvas.badge(str(view), (left, top + height + 6), colour)
    canvas.text(caption, (left + badge + 8, top + height + 21), SMALL_TEXT, MUTED, width=width - badge - 8)


def _where(scene: Scene, view: int) -> str:
    """A note on an image without a visible outline: all pixels are inside the sphere, or none is."""
    middle = (np.array([scene.size(view)]) - 1) / 2
    origin, direction = (value[0] for value in pixels_to_rays(middle, scene.intrinsics[view], scene.c2w[view]))
    along = -origin @ direction
    hits = along > 0 and np.linalg.norm(origin + along * direction) < 1
    return " (all inside the sphere)" if hits else " (sphere not in the image)"
