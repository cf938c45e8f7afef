"""A drawing surface on OpenCV with antialiasing: everything is drawn at twice the size and reduced."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

Colour = tuple[int, ...]  # red, green and blue

PAPER: Colour = (255, 255, 255)
PANEL: Colour = (249, 250, 251)
FAINT: Colour = (216, 220, 226)
INK: Colour = (28, 32, 40)
MUTED: Colour = (98, 106, 118)

FINE = 2  # drawn pixels per pixel of the image
SHIFT = 4  # fractional bits of OpenCV's fixed-point coordinates
LARGEST_COORDINATE = 1e6  # drawn pixels; fits into 32 bits with SHIFT fractional bits
FONT = cv2.FONT_HERSHEY_SIMPLEX


def colour_of(index: int, count: int) -> Colour:
    """The colour of view `index` of `count`: from blue through violet and red to orange, of equal lightness."""
    share = index / max(count - 1, 1)
    stops = np.array([[38, 110, 190], [116, 86, 186], [196, 60, 120], [222, 96, 36]], dtype=float)
    position = share * (len(stops) - 1)
    low = min(int(position), len(stops) - 2)
    return tuple(int(value) for value in np.rint(stops[low] + (position - low) * (stops[low + 1] - stops[low])))


class Canvas:
    """A white image of width x height pixels; positions are (x, y) in its pixels."""

    def __init__(self, width: int, height: int) -> None:
        self._fine = np.full((height * FINE, width * FINE, 3), PAPER, dtype=np.uint8)

    def image(self) -> np.ndarray:
        """The drawing, uint8 RGB [height, width, 3]."""
        height, width = self._fine.shape[:2]
        return cv2.resize(self._fine, (width // FINE, height // FINE), interpolation=cv2.INTER_AREA)

    def fine(self, size: np.ndarray) -> tuple[int, int]:
        """The size at which an image of `size` (width, height) has to be passed to `draw_image`."""
        return int(size[0]) * FINE, int(size[1]) * FINE

    def text(
        self, text: str, at: tuple[int, int], scale: float, colour: Colour, thickness: int = 1, width: int = 10**6
    ) -> None:
        """One line of text with its baseline starting `at`, truncated with dots if wider than `width`.

        OpenCV's font has only ASCII: other characters become question marks.
        """
        text = text.encode("ascii", "replace").decode()
        if text_width(text, scale, thickness) > width:
            while text and text_width(text + "...", scale, thickness) > width:
                text = text[:-1]
            text += "..."
        origin = (round(at[0] * FINE), round(at[1] * FINE))
        cv2.putText(self._fine, text, origin, FONT, scale * FINE, colour, thickness * FINE, cv2.LINE_AA)

    def frame(self, left: int, top: int, width: int, height: int) -> None:
        """A panel with a thin border."""
        corner, end = (left * FINE, top * FINE), ((left + width) * FINE - 1, (top + height) * FINE - 1)
        cv2.rectangle(self._fine, corner, end, PANEL, cv2.FILLED)
        cv2.rectangle(self._fine, corner, end, FAINT, FINE)

    def disc(self, middle: np.ndarray, radius: float, fill: Colour, edge: Colour) -> None:
        """A filled circle with an edge."""
        turn = np.linspace(0, 2 * np.pi, 181)[:, None]
        curve = middle + radius * np.hstack([np.cos(turn), np.sin(turn)])
        cv2.fillPoly(self._fine, [_fixed(curve)], fill, cv2.LINE_AA, SHIFT)
        self._line(curve, edge, 1.5)

    def dots(self, places: np.ndarray, colours: np.ndarray) -> None:
        """Small dots at `places` [N, 2] in `colours` uint8 [N, 3]."""
        for place, colour in zip(_fixed(places), colours.tolist(), strict=True):
            cv2.circle(self._fine, place.tolist(), 1 << SHIFT, colour, cv2.FILLED, cv2.LINE_AA, SHIFT)

    def pyramid(self, apex: np.ndarray, corners: np.ndarray, colour: Colour, is_strong: bool) -> None:
        """A camera frustum: apex [2] and corners [4, 2] of its image; pale unless `is_strong`."""
        shade = colour if is_strong else _paler(colour, 0.5)
        for corner in corners:
            self._line(np.stack([apex, corner]), shade, 1.0)
        self._line(np.vstack([corners, corners[:1]]), shade, 1.5 if is_strong else 1.0)

    def label(self, text: str, at: np.ndarray, away_from: np.ndarray, colour: Colour) -> None:
        """A small number beside `at`, on the far side of `away_from`."""
        away = at - away_from
        away = away / max(float(np.linalg.norm(away)), 1e-6)
        width = text_width(text, 0.4, 1)
        corner = at + 11 * away + np.array([-width / 2, 4.5])
        origin = tuple(int(round(value * FINE)) for value in corner)
        cv2.putText(self._fine, text, origin, FONT, 0.4 * FINE, PANEL, 4 * FINE, cv2.LINE_AA)
        cv2.putText(self._fine, text, origin, FONT, 0.4 * FINE, colour, FINE, cv2.LINE_AA)

    def badge(self, text: str, at: tuple[int, int], colour: Colour) -> int:
        """A number on a coloured background with its top left corner `at`; returns its width."""
        width = text_width(text, 0.42, 1) + 10
        corner, end = (at[0] * FINE, at[1] * FINE), ((at[0] + width) * FINE, (at[1] + 19) * FINE)
        cv2.rectangle(self._fine, corner, end, colour, cv2.FILLED)
        self.text(text, (at[0] + 5, at[1] + 14), 0.42, PAPER)
        return width

    def draw_image(
        self, image: np.ndarray, corner: np.ndarray, size: np.ndarray, curves: Sequence[np.ndarray], colour: Colour
    ) -> None:
        """`image` (uint8 RGB of `fine(size)`) at `corner`, with `curves` ([K, 2] each) drawn in and clipped to it."""
        width, height = self.fine(size)
        left, top = (int(value) * FINE for value in corner)
        shown = np.ascontiguousarray(image)
        for curve in curves:
            inside = _fixed(curve - corner)
            for shade, thickness in ((PAPER, 3.4), (colour, 1.8)):
                cv2.polylines(shown, [inside], False, shade, round(thickness * FINE), cv2.LINE_AA, SHIFT)
        self._fine[top : top + height, left : left + width] = shown

    def _line(self, points: np.ndarray, colour: Colour, thickness: float) -> None:
        """An open line through `points` [K, 2]."""
        cv2.polylines(self._fine, [_fixed(points)], False, colour, round(thickness * FINE), cv2.LINE_AA, SHIFT)


def text_width(text: str, scale: float, thickness: int) -> int:
    """The width of `text` in pixels."""
    return round(cv2.getTextSize(text, FONT, scale * FINE, thickness * FINE)[0][0] / FINE)


def _paler(colour: Colour, share: float) -> Colour:
    return tuple(round(value + share * (255 - value)) for value in colour)


def _fixed(places: np.ndarray) -> np.ndarray:
    """Positions [K, 2] as OpenCV's fixed-point integers, clipped to its range.

    (0, 0) is the corner of the image here, and the centre of the first pixel in OpenCV.
    """
    drawn = np.clip(places * FINE - 0.5, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    return np.rint(drawn * (1 << SHIFT)).astype(np.int32)
