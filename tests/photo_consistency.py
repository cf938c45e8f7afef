"""Measure whether photographs and cameras of a scene are consistent.

    python tests/photo_consistency.py FOLDER [PAIRS]

What neighbouring photographs both show should lie on the epipolar lines that their cameras predict
(`data.inspection.epipolar`, here at full size and with the lens's distortion): printed is the median distance in
pixels, as read and with the cameras changed the way a wrong convention would, and the shift of the principal point that
fits the matches best, which is (0, 0) where the half pixels are right.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data.inspection.epipolar import (
    Camera,
    Features,
    Match,
    epipolar_distances,
    find_features,
    match_features,
    neighbour_pairs,
)
from data.io.images import read_image, to_float, to_uint8
from data.parsed_scene import ParsedScene
from data.readers.blender import read_blender
from data.readers.detect import recognise
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.ngp import read_ngp

READERS = {"blender": read_blender, "ngp": read_ngp, "nerfstudio": read_nerfstudio, "llff": read_llff}
MOST_FEATURES = 3000
NEIGHBOURS = 7  # of each photograph: the nearest agree whatever the principal point, those farther off do not
DEFAULT_PAIRS = 250
RESAMPLES = 12  # of the pairs, for the standard error of the best shift

Change = Callable[[Camera], Camera]


def shifted(dx: float, dy: float) -> Change:
    """Every principal point moved by pixels."""

    def change(posed: Camera) -> Camera:
        intrinsics = posed.lens.intrinsics.copy()
        intrinsics[:2, 2] += dx, dy
        return dataclasses.replace(posed, lens=dataclasses.replace(posed.lens, intrinsics=intrinsics))

    return change


def turned(*signs: float) -> Change:
    """The camera's axes with these signs."""
    return lambda posed: dataclasses.replace(posed, c2w=posed.c2w @ np.diag([*signs, 1.0]))


def straight(posed: Camera) -> Camera:
    """Without distortion."""
    return dataclasses.replace(posed, lens=dataclasses.replace(posed.lens, distortion=(), is_fisheye=False))


CHANGES: dict[str, Change] = {
    "as read": shifted(0, 0),
    "principal point + 0.5": shifted(0.5, 0.5),
    "principal point - 0.5": shifted(-0.5, -0.5),
    "principal point + 0.5 in x": shifted(0.5, 0),
    "principal point + 0.5 in y": shifted(0, 0.5),
    "OpenGL's axes": turned(1, -1, -1),
    "x flipped": turned(-1, 1, 1),
    "y flipped": turned(1, -1, 1),
    "without distortion": straight,
}


def all_distances(matches: list[Match], change: Change) -> np.ndarray:
    """`epipolar_distances` of all matches, with every camera changed."""
    return np.concatenate(
        [epipolar_distances(dataclasses.replace(m, first=change(m.first), second=change(m.second))) for m in matches]
    )


def best_shift(matches: list[Match]) -> np.ndarray:
    """The shift (dx, dy) of all principal points that the matches fit best, in pixels; robust."""
    return least_squares(
        lambda shift: all_distances(matches, shifted(*shift)), [0.0, 0.0], loss="cauchy", f_scale=0.3
    ).x


def shift_error(matches: list[Match]) -> np.ndarray:
    """Standard error [2] of `best_shift`, by drawing the pairs again (bootstrap)."""
    rng = np.random.default_rng(0)
    draws = [[matches[i] for i in rng.integers(len(matches), size=len(matches))] for _ in range(RESAMPLES)]
    return np.std([best_shift(draw) for draw in draws], axis=0)


def match_all(parsed: ParsedScene, most_pairs: int) -> list[Match]:
    """Matches between `most_pairs` pairs of a photograph and its NEIGHBOURS, nearest in place and direction."""
    cameras = [Camera(posed.lens, posed.c2w) for posed in parsed.images]
    pairs = neighbour_pairs(np.stack([camera.c2w for camera in cameras]), NEIGHBOURS)
    chosen = [pairs[i] for i in np.unique(np.linspace(0, len(pairs) - 1, most_pairs).astype(int))]
    features = [_features(posed.path) for posed in parsed.images]
    found = [match_features(cameras[i], features[i], cameras[j], features[j]) for i, j in chosen]
    return [match for match in found if match is not None]


def _features(path: Path) -> Features:
    """The features of a photograph at its full size, over black where it is transparent."""
    picture = to_float(read_image(path))
    rgb = picture[..., :3] * picture[..., 3:] if picture.shape[2] == 4 else picture
    return find_features(to_uint8(rgb.mean(axis=2)), most=MOST_FEATURES)


def main(arguments: list[str]) -> None:
    """Print the table for one scene folder."""
    folder = Path(arguments[0])
    parsed = READERS[recognise(folder)](folder, None)
    matches = match_all(parsed, int(arguments[1]) if len(arguments) > 1 else DEFAULT_PAIRS)
    print(f"{folder.name}: {sum(len(m.pixels_1) for m in matches)} matches in {len(matches)} pairs")
    for name, change in CHANGES.items():
        distances = np.abs(all_distances(matches, change))
        print(f"  {name:28s} median {np.median(distances):8.3f} px   90 % {np.quantile(distances, 0.9):8.3f} px")
    (dx, dy), (error_x, error_y) = best_shift(matches), shift_error(matches)
    print(f"  best shift of the principal point: {dx:+.3f} +- {error_x:.3f}, {dy:+.3f} +- {error_y:.3f} px")


if __name__ == "__main__":
    main(sys.argv[1:])
