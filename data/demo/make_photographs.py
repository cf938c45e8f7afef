"""Renders images of the bundled scene's jug like casual photographs: without cameras and masks, on a cloth.

    python -m data.demo.make_photographs FOLDER [--count 36] [--width 400] [--markers]

The jug is on a patterned cloth, which provides features for structure from motion, in front of a plain wall. The
camera goes around it once at each of two heights. Frames and units are those of make_demo.py. With --markers, four
ArUco markers lie on the cloth around the jug; with one unit taken for 0.1 m, their sides are 0.03 m.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np

from data.demo.make_demo import SUBPIXELS, look_at_center, shade, sphere_trace
from data.io.bars import progress
from data.io.images import write_image

DEFAULT_COUNT, DEFAULT_WIDTH = 36, 400  # neighbouring images overlap by two thirds; pixels
LEAST_COUNT, LEAST_WIDTH = 12, 160  # with less, structure from motion fails
ASPECT = 0.75
FOCAL_WIDTHS = 1.1  # in image widths, like a phone
HEIGHTS = (0.45, 0.8)  # vertical over horizontal part of the camera's direction
TABLE, TABLE_RADIUS = -0.715, 1.5  # the jug's foot stands on it
WALL = 0.55  # grey
PATTERN_CELLS = (10, 30, 90)  # across the cloth: patches for large and small distances
PATTERN_PIXELS, PATTERN_CONTRAST, PATTERN_SEED = 512, 1.3, 1
MARKER_SIDE, MARKER_MARGIN, MARKER_PIXELS = 0.3, 0.06, 60  # units; white around a marker; pixels per side
MARKER_PLACES = ((0.75, 0.0), (0.0, 0.75), (-0.75, 0.0), (0.0, -0.75))  # of the centres, on the cloth


def cloth() -> np.ndarray:
    """The cloth's pattern [PATTERN_PIXELS, PATTERN_PIXELS, 3] in [0, 1]: smooth noise of several sizes."""
    draw, size = np.random.default_rng(PATTERN_SEED), (PATTERN_PIXELS, PATTERN_PIXELS)
    layers = [cv2.resize(draw.random((n, n, 3)), size, interpolation=cv2.INTER_CUBIC) for n in PATTERN_CELLS]
    return np.clip(0.5 + PATTERN_CONTRAST * (np.mean(layers, axis=0) - 0.5), 0.0, 1.0)


def on_table(origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Where the rays of `background` meet the table: x and y [H, W, 2]; without meaning for rays upwards."""
    down = np.minimum(directions[..., 2], -1e-9)
    return origin[:2] + ((TABLE - origin[2]) / down)[..., None] * directions[..., :2]


def background(origin: np.ndarray, directions: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Colours [H, W, 3] of cloth and wall along unit directions [H, W, 3] from a point [3] above the table."""
    places = on_table(origin, directions)
    on_cloth = (directions[..., 2] < 0.0) & (np.linalg.norm(places, axis=-1) < TABLE_RADIUS)
    column, row = np.moveaxis((places / (2.0 * TABLE_RADIUS) + 0.5) * (PATTERN_PIXELS - 1), -1, 0).astype(np.float32)
    seen = cv2.remap(pattern, column, row, cv2.INTER_LINEAR)
    return np.where(on_cloth[..., None], seen, WALL)


def with_markers(colors: np.ndarray, origin: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The colours [H, W, 3] of `background` with the ArUco markers 0 to 3 on the cloth."""
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_4X4_50)
    places = on_table(origin, directions)
    below, margin, colors = directions[..., 2] < 0.0, MARKER_MARGIN / MARKER_SIDE, colors.copy()
    for number, center in enumerate(MARKER_PLACES):
        offset = (places - center) / MARKER_SIDE + 0.5  # 0 to 1 across the marker; its image has y down
        printed = cv2.aruco.generateImageMarker(dictionary, number, MARKER_PIXELS).astype(np.float64) / 255.0
        paper = ((offset > -margin) & (offset < 1.0 + margin)).all(axis=-1) & below
        column, row = np.moveaxis(np.floor(offset[paper] * MARKER_PIXELS).astype(int), -1, 0)
        inside = (np.minimum(column, row) >= 0) & (np.maximum(column, row) < MARKER_PIXELS)
        ink = np.ones(len(column))
        ink[inside] = printed[MARKER_PIXELS - 1 - row[inside], column[inside]]
        colors[paper] = ink[:, None]
    return colors


def render_image(pose: np.ndarray, width: int, pattern: np.ndarray, has_markers: bool = False) -> np.ndarray:
    """The image uint8 [H, W, 3] (RGB) from a pose [4, 4], camera to working frame.

    With markers, the mean of 3 x 3 rays per pixel: the detector needs smooth edges.
    """
    if has_markers:
        fine = _rendered(pose, SUBPIXELS * width, pattern, True)
        return cv2.resize(fine, (width, round(width * ASPECT)), interpolation=cv2.INTER_AREA)
    return _rendered(pose, width, pattern, False)


def _rendered(pose: np.ndarray, width: int, pattern: np.ndarray, has_markers: bool) -> np.ndarray:
    """As `render_image`, with one ray per pixel."""
    height = round(width * ASPECT)
    rows, columns = np.mgrid[:height, :width]
    x, y = (columns - 0.5 * (width - 1)) / (FOCAL_WIDTHS * width), (rows - 0.5 * (height - 1)) / (FOCAL_WIDTHS * width)
    directions = np.stack([x, y, np.ones_like(x)], axis=-1) @ pose[:3, :3].T
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    colors = background(pose[:3, 3], directions, pattern)
    colors = (with_markers(colors, pose[:3, 3], directions) if has_markers else colors).reshape(-1, 3)
    rays = directions.reshape(-1, 3)
    hit, points = sphere_trace(np.broadcast_to(pose[:3, 3], rays.shape), rays)
    colors[hit] = shade(points)
    return np.rint(255.0 * colors).astype(np.uint8).reshape(height, width, 3)


def poses(count: int) -> list[np.ndarray]:
    """`count` poses [4, 4] around the jug, half of them higher and between the others."""
    rings = np.array_split(np.arange(count), len(HEIGHTS))
    turns = [
        (2.0 * np.pi * (i + 0.5 * ring) / len(part), ring) for ring, part in enumerate(rings) for i in range(len(part))
    ]
    return [look_at_center(np.array([np.cos(angle), np.sin(angle), HEIGHTS[ring]])) for angle, ring in turns]


def main() -> None:
    """Writes the images."""
    parser = argparse.ArgumentParser(description="Photographs of the bundled jug, without cameras and masks.")
    parser.add_argument("folder", type=Path, help="folder to write into; it is made")
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT, help=f"photographs (default: {DEFAULT_COUNT})")
    parser.add_argument("--width", type=int, default=DEFAULT_WIDTH, help=f"pixels (default: {DEFAULT_WIDTH})")
    parser.add_argument("--markers", action="store_true", help="put ArUco markers on the cloth")
    given = parser.parse_args()
    if given.count < LEAST_COUNT or given.width < LEAST_WIDTH:
        parser.error(f"at least --count {LEAST_COUNT} and --width {LEAST_WIDTH}: with less, no cameras are found")
    pattern = cloth()
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        for index, pose in enumerate(progress(poses(given.count), "photographs")):
            image = render_image(pose, given.width, pattern, given.markers)
            write_image(given.folder / f"{index:03d}.png", image)
    except OSError as error:
        parser.error(f"{given.folder}: cannot be written ({error.strerror}); choose a folder with write permission")


if __name__ == "__main__":
    main()
