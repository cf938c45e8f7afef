"""The size of a scene in metres: from markers, a known length, or the GPS positions of the photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from scipy.stats import t as student

from data.errors import UserError
from data.io.images import read_image, rgb_of
from data.parsed_scene import ParsedScene, PosedImage, WorldFrame, transformed
from data.prepare.gps import Located
from data.prepare.tracks import normalised
from data.scenes.undistort import fitted

# The tags of the common printed boards, tried in this order; the dictionary with the most detections is used.
DICTIONARIES = (
    "DICT_4X4_50", "DICT_5X5_100", "DICT_6X6_250", "DICT_7X7_250", "DICT_ARUCO_ORIGINAL", "DICT_APRILTAG_16h5",
    "DICT_APRILTAG_25h9", "DICT_APRILTAG_36h11",
)  # fmt: skip
PROBED = 6  # photographs in which every dictionary is tried
LEAST_VIEWS = 3  # that must see a marker
WORST_REPROJECTION = 3.0  # pixels; a marker with a larger error is a wrong detection, or moved
# In multiples of the median error over the views of a marker; views with larger errors are discarded.
OUTLIER = 4.0
OTHER_SIZE = 0.05  # relative difference from the median side of the markers; a marker beyond it has another size
Sighting = tuple[int, np.ndarray]  # index of the image, and corners [4, 2] of a marker in it
FIRST_CENTER = 0.5  # coordinate of the first pixel's centre in the corners that OpenCV returns


@dataclass(frozen=True)
class Known:
    """What is known about the scene's size."""

    marker: float | None = None  # side of each ArUco or AprilTag marker, metres
    length: tuple[str, ...] = ()  # the words of --scale


def measured(
    parsed: ParsedScene,
    known: Known,
    sources: Mapping[str, Path],
    sizes: Mapping[str, tuple[int, int]],
    located: Located | None = None,
) -> ParsedScene:
    """The scene in metres where its size is known; unchanged otherwise.

    A length given by the user takes precedence over markers, and markers over the GPS positions `located`. `sources`:
    the photograph of each image, by the name of the image; `sizes`: (width, height) of the photographs. Raises
    UserError for a length or for markers that cannot be used.
    """
    if known.marker is not None:
        parsed = _by_markers(parsed, known.marker)
    elif located is not None:
        parsed = scaled(parsed, located.factor, located.error, f"GPS positions of {len(located.views)} photographs")
    return _by_length(parsed, known.length, sources, sizes) if known.length else parsed


def scaled(parsed: ParsedScene, factor: float, error: float | None, source: str) -> ParsedScene:
    """The scene enlarged by `factor` about the origin of its world, now in metres; `error` is relative."""
    frame = replace(parsed.frame or WorldFrame(""), scale_source=source, scale_error=error)
    return transformed(parsed, np.diag([factor, factor, factor, 1.0]), frame)


def _by_markers(parsed: ParsedScene, side: float) -> ParsedScene:
    """The scene in metres, from markers with sides of `side` metres; raises UserError if too few are seen."""
    seen = find_markers(parsed.images)
    sides = []
    for quads in seen.values():
        for views in _prints(parsed.images, quads):
            ring, error = _located([(parsed.images[view], quad) for view, quad in views])
            if error <= WORST_REPROJECTION:
                sides.append(np.linalg.norm(ring - np.roll(ring, 1, axis=0), axis=1))
    if not sides:
        counts = sorted((len({view for view, _ in quads}) for quads in seen.values()), reverse=True)[:5]
        raise UserError(
            f"--marker {side:g}: no ArUco or AprilTag marker was located from {LEAST_VIEWS} photographs within "
            f"{WORST_REPROJECTION:g} px (found: {len(seen)} markers, in {counts} photographs); take sharp "
            "photographs from nearer, so that the markers are larger, or omit --marker"
        )
    lengths = np.mean(sides, axis=1)
    lengths = lengths[np.abs(lengths / np.median(lengths) - 1.0) <= OTHER_SIZE]
    source = f"{len(lengths)} markers of {side:g} m"
    return scaled(parsed, *_fitted_scale(sides[0] if len(sides) == 1 else lengths, side), source)


def _fitted_scale(lengths: np.ndarray, metres: np.ndarray | float) -> tuple[float, float | None]:
    """Metres per unit from the lengths [N] of distances in the scene and in metres; its error from leaving one out.

    Least squares for equal errors of all distances. The relative error is half of the 95 % interval of Student's t, so
    that the true scale is within twice this error; None for one distance.
    """
    count, metres = len(lengths), np.broadcast_to(metres, len(lengths))
    squares, products = metres**2, metres * lengths
    factor = squares.sum() / products.sum()
    if count == 1:
        return float(factor), None
    without = (squares.sum() - squares) / (products.sum() - products)
    deviation = np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2))
    return float(factor), float(0.5 * student.ppf(0.975, count - 1) * deviation / factor)


def _prints(images: Sequence[PosedImage], quads: Sequence[Sighting]) -> list[list[Sighting]]:
    """The sightings of each print of a marker: of one number there may be several, in the same photographs.

    Two sightings propose its corners; the proposal with which the most views agree is taken, and the next one is among
    the others.
    """
    prints, left = [], list(quads)
    while len(left) >= LEAST_VIEWS:
        rays = [_straight(images[view], quad) for view, quad in left]
        best: list[int] = []
        for other in range(1, len(left)):
            corners = [
                triangulated([(images[left[index][0]], left[index][1][corner]) for index in (0, other)])[0]
                for corner in range(4)
            ]
            seen = np.einsum("vij,cj->vci", [matrix for matrix, _ in rays], np.column_stack([corners, np.ones(4)]))
            with np.errstate(all="ignore"):  # two sightings of one photograph locate nothing
                offsets = seen[..., :2] / seen[..., 2:] - [pixels for _, pixels in rays]
                away = np.linalg.norm(offsets, axis=-1).max(axis=1)
            order = [index for index in np.argsort(away) if away[index] <= OUTLIER * WORST_REPROJECTION]
            agreeing = {left[index][0]: int(index) for index in reversed(order)}  # the best one of each view
            best = max(best, list(agreeing.values()), key=len)
        if len(best) >= LEAST_VIEWS:
            prints.append([left[index] for index in sorted(best)])
        left = [quad for index, quad in enumerate(left) if index not in best and index > 0]
    return prints


def _located(views: list[tuple[PosedImage, np.ndarray]]) -> tuple[np.ndarray, float]:
    """The corners [4, 3] of a marker and their largest reprojection error in pixels, after discarding outlier views.

    views: images with the corners [4, 2] in them. The error is infinite for fewer than LEAST_VIEWS.
    """
    while len(views) >= LEAST_VIEWS:
        corners = [triangulated([(image, quad[corner]) for image, quad in views]) for corner in range(4)]
        errors = np.max([corner_errors for _, corner_errors in corners], axis=0)
        worst = int(np.argmax(errors))
        if errors[worst] <= OUTLIER * np.median(errors):
            return np.array([point for point, _ in corners]), float(errors[worst])
        views = views[:worst] + views[worst + 1 :]
    return np.full((4, 3), np.nan), np.inf


def find_markers(images: Sequence[PosedImage]) -> dict[int, list[Sighting]]:
    """The sightings of each marker, by its number; pixels are those of the stored images."""
    greys = [cv2.cvtColor(np.ascontiguousarray(rgb_of(read_image(image.path))), cv2.COLOR_RGB2GRAY) for image in images]
    probes = greys[:: max(1, len(greys) // PROBED)]
    name = max(DICTIONARIES, key=lambda one: sum(len(_detected(grey, one)) for grey in probes))
    sightings: dict[int, list[Sighting]] = {}
    for view, grey in enumerate(greys):
        for number, quad in _detected(grey, name):
            sightings.setdefault(number, []).append((view, quad))
    return sightings


def _detected(grey: np.ndarray, name: str) -> list[tuple[int, np.ndarray]]:
    """Number and corners [4, 2] of the markers of a dictionary in a grey image."""
    options = cv2.aruco.DetectorParameters()
    # Lines fitted to the sides. The refinement by gradients (SUBPIX) makes small markers 0.7 % too small.
    options.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_APRILTAG
    dictionary = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, name))
    quads, numbers, _ = cv2.aruco.ArucoDetector(dictionary, options).detectMarkers(grey)
    seen = [] if numbers is None else [int(number) for number in numbers.reshape(-1)]
    return [(one, quad[0] - FIRST_CENTER) for one, quad in zip(seen, quads, strict=True)]


def triangulated(sights: Sequence[tuple[PosedImage, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The point [3] seen at a pixel [2] in each of N images, and its reprojection errors [N] in pixels.

    The direct linear transform (Hartley and Zisserman, Multiple View Geometry, 12.2) on undistorted pixels.
    """
    rows, matrices, pixels = [], [], []
    for image, pixel in sights:
        matrix, (straight,) = _straight(image, np.array([pixel]))
        rows += [straight[0] * matrix[2] - matrix[0], straight[1] * matrix[2] - matrix[1]]
        matrices.append(matrix)
        pixels.append(straight)
    design = np.array(rows)
    homogeneous = np.linalg.svd(design / np.linalg.norm(design, axis=1, keepdims=True))[2][-1]
    if homogeneous[3] == 0.0:
        return np.full(3, np.nan), np.full(len(sights), np.inf)
    point = homogeneous / homogeneous[3]
    projected = np.array(matrices) @ point
    return point[:3], np.linalg.norm(projected[:, :2] / projected[:, 2:] - np.array(pixels), axis=1)


def _straight(image: PosedImage, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The projection [3, 4] of an image without its distortion, and its pixels [K, 2] then."""
    intrinsics = fitted(image.lens, image.size) if image.size else image.lens.intrinsics
    rays = normalised(replace(image.lens, intrinsics=intrinsics), pixels)
    return intrinsics @ np.linalg.inv(image.c2w)[:3], rays @ intrinsics[:2].T


def _by_length(
    parsed: ParsedScene, words: Sequence[str], sources: Mapping[str, Path], sizes: Mapping[str, tuple[int, int]]
) -> ParsedScene:
    """The scene in metres, from lengths between two points; raises UserError for words that do not describe them."""
    lengths, metres = [], []
    for part, (points, length) in lengths_of(words):
        if points is None:
            seen = [_sights(parsed, part[:-1], end, sources, sizes) for end in range(2)]
            points = np.array([triangulated(sights)[0] for sights in seen])
        given = float(np.linalg.norm(points[1] - points[0]))
        if not (np.isfinite(given) and given > 0.0):
            raise UserError(f"--scale {' '.join(part)}: the two points coincide; name two points apart from each other")
        lengths.append(given)
        metres.append(length)
    source = f"a given length of {metres[0]:g} m" if len(metres) == 1 else f"{len(metres)} given lengths"
    return scaled(parsed, *_fitted_scale(np.array(lengths), np.array(metres)), source)


def lengths_of(words: Sequence[str]) -> list[tuple[Sequence[str], tuple[np.ndarray | None, float]]]:
    """The words and values of lengths of one kind that follow each other; raises UserError as `_length`."""
    count = next((n for n in (7, 11) if len(words) % n == 0 and (n == 7) == bool(_numbers(words[:1]))), 0)
    parts = [words[start : start + count] for start in range(0, len(words), count)] if count else [words]
    return [(part, _length(part)) for part in parts]


def parse_points(text: str) -> np.ndarray:
    """The points [2, 3] of `--measure "x y z, x y z"`; raises UserError for any other text."""
    numbers = [_numbers(part.split()) for part in text.split(",")]
    if [len(part) for part in numbers] == [3, 3] and np.isfinite(numbers).all():
        return np.array(numbers)
    raise UserError(f'--measure "{text}": must be two points of the world frame, `--measure "x y z, x y z"`')


def distance_text(points: np.ndarray, frame: WorldFrame | None) -> str:
    """The distance of two points [2, 3] of the world frame, with the error of the scale, in words."""
    length = float(np.linalg.norm(points[1] - points[0]))
    if frame is None or not frame.is_metric:
        return f"distance: {length:.6g} units; their size is not known, --marker or --scale gives it"
    error = "error not known" if frame.scale_error is None else f"± {1000 * length * frame.scale_error:.2g} mm"
    return f"distance: {1000 * length:.6g} mm, {error} by the scale ({frame.scale_source})"


def _numbers(words: Sequence[str]) -> list[float]:
    """The values of words; [] if one is no number."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return []


def _length(words: Sequence[str]) -> tuple[np.ndarray | None, float]:
    """Points [2, 3] and length in metres of "x y z x y z LENGTH"; None for the pixels of two photographs.

    Raises UserError for anything but that and "IMAGE x y x y IMAGE x y x y LENGTH".
    """
    wrong = UserError(
        f"--scale {' '.join(words)}: must be two points of the world frame and their distance in metres, `x y z x y z "
        "LENGTH`, or the two points in two photographs, `IMAGE x y x y IMAGE x y x y LENGTH`"
    )
    numbers = _numbers([word for at, word in enumerate(words) if len(words) != 11 or at not in (0, 5)])
    if len(words) not in (7, 11) or not numbers or not np.isfinite(numbers).all() or numbers[-1] <= 0.0:
        raise wrong
    return np.array(numbers[:6]).reshape(2, 3) if len(words) == 7 else None, numbers[-1]


def _sights(
    parsed: ParsedScene,
    words: Sequence[str],
    end: int,
    sources: Mapping[str, Path],
    sizes: Mapping[str, tuple[int, int]],
) -> list[tuple[PosedImage, np.ndarray]]:
    """The images of two photographs and the pixels of one end of the length in them."""
    sights = []
    for start in (0, 5):
        name = words[start]
        paths = {f"/{sources.get(one.path.name, one.path).as_posix()}": one for one in parsed.images}
        image = next((one for path, one in paths.items() if path.endswith(f"/{name}")), None)
        if image is None:
            raise UserError(f"--scale: {name}: no photograph of this name has a camera; name two that have one")
        pixel = np.array([float(word) for word in words[start + 1 + 2 * end : start + 3 + 2 * end]])
        whole = sizes.get(image.path.name)
        stored = image.size or image.lens.size
        if whole is not None and stored is not None:
            pixel = (pixel + 0.5) * np.array(stored) / np.array(whole) - 0.5
        sights.append((image, pixel))
    return sights
