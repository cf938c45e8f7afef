"""Whether a scene's photographs bear out its cameras.

    python tests/photo_consistency.py FOLDER [PAIRS]

SIFT features are matched between neighbouring photographs and wrong matches thrown out without using the cameras (a
fundamental matrix by RANSAC). What is left should lie on the epipolar lines that the cameras predict: printed is the
median distance in pixels, as read and with the cameras changed the way a wrong convention would, and the shift of the
principal point that fits the matches best, which is (0, 0) where the half pixels are right.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data.capture import Capture, Photograph
from data.images import read_image, to_float, to_uint8
from data.readers.blender import read_blender
from data.readers.detect import recognise
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.ngp import read_ngp

READERS = {"blender": read_blender, "ngp": read_ngp, "nerfstudio": read_nerfstudio, "llff": read_llff}
MOST_FEATURES = 3000
RATIO = 0.75  # Lowe's ratio test
RANSAC_PIXELS = 2.0
LEAST_MATCHES = 20
NEIGHBOURS = 7  # of each photograph: the nearest agree whatever the principal point, those farther off do not
DEFAULT_PAIRS = 250
RESAMPLES = 12  # of the pairs, for the standard error of the best shift


@dataclasses.dataclass(frozen=True, eq=False)
class Match:
    """Two photographs and the pixels [M, 2] in each of what they both show."""

    first: Photograph
    second: Photograph
    pixels_1: np.ndarray
    pixels_2: np.ndarray


Change = Callable[[Photograph], Photograph]


def shifted(dx: float, dy: float) -> Change:
    """Every principal point moved by pixels."""

    def change(shot: Photograph) -> Photograph:
        intrinsics = shot.lens.intrinsics.copy()
        intrinsics[:2, 2] += dx, dy
        return dataclasses.replace(shot, lens=dataclasses.replace(shot.lens, intrinsics=intrinsics))

    return change


def turned(*signs: float) -> Change:
    """The camera's axes with these signs."""
    return lambda shot: dataclasses.replace(shot, c2w=shot.c2w @ np.diag([*signs, 1.0]))


def straight(shot: Photograph) -> Photograph:
    """Without distortion."""
    return dataclasses.replace(shot, lens=dataclasses.replace(shot.lens, distortion=(), is_fisheye=False))


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


def normalised(shot: Photograph, pixels: np.ndarray) -> np.ndarray:
    """Homogeneous camera coordinates [M, 3] of pixels [M, 2], distortion taken off."""
    distortion = np.array(shot.lens.distortion or (0.0,) * 4)
    undistort = cv2.fisheye.undistortPoints if shot.lens.is_fisheye else cv2.undistortPoints
    straightened = undistort(np.float64(pixels).reshape(-1, 1, 2), shot.lens.intrinsics, distortion).reshape(-1, 2)
    return np.concatenate([straightened, np.ones((len(straightened), 1))], axis=1)


def epipolar_distances(match: Match) -> np.ndarray:
    """Signed distance [M] in pixels to the epipolar lines: the mean of both pictures' (H&Z, section 11.4.3)."""
    second_from_first = np.linalg.inv(match.second.c2w) @ match.first.c2w
    x, y, z = second_from_first[:3, 3]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ second_from_first[:3, :3]
    rays_1, rays_2 = normalised(match.first, match.pixels_1), normalised(match.second, match.pixels_2)
    lines_2, lines_1 = rays_1 @ essential.T, rays_2 @ essential
    product = np.sum(lines_2 * rays_2, axis=1)
    focal_1, focal_2 = (np.sqrt(np.linalg.det(shot.lens.intrinsics)) for shot in (match.first, match.second))
    lengths_1, lengths_2 = (np.linalg.norm(lines[:, :2], axis=1) for lines in (lines_1, lines_2))
    return 0.5 * (focal_1 * product / lengths_1 + focal_2 * product / lengths_2)


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


def match_all(capture: Capture, most_pairs: int) -> list[Match]:
    """Matches between `most_pairs` pairs of a photograph and its NEIGHBOURS, nearest in place and direction."""
    shots = capture.photographs
    centres = np.stack([shot.c2w[:3, 3] for shot in shots])
    forward = np.stack([shot.c2w[:3, 2] for shot in shots])
    distance = np.linalg.norm(centres[:, None] - centres, axis=-1)
    # A baseline of nothing says nothing: the nearest neighbour that is some way off, and looks the same way.
    cost = distance / np.median(distance) + 2 * (1 - forward @ forward.T) + 10 * (distance < 0.1 * np.median(distance))
    np.fill_diagonal(cost, np.inf)
    pairs = {tuple(sorted((i, int(j)))) for i in range(len(shots)) for j in np.argsort(cost[i])[:NEIGHBOURS]}
    chosen = sorted(pairs)
    chosen = [chosen[i] for i in np.unique(np.linspace(0, len(pairs) - 1, most_pairs).astype(int))]
    features = [_features(shot.image) for shot in shots]
    found = [_match(shots[i], shots[j], features[i], features[j]) for i, j in chosen]
    return [match for match in found if match is not None]


def _features(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels [F, 2] and descriptors [F, 128] of SIFT; the precise upscaling keeps it from being a quarter pixel off."""
    picture = to_float(read_image(path))
    rgb = picture[..., :3] * picture[..., 3:] if picture.shape[2] == 4 else picture
    grey = to_uint8(rgb.mean(axis=2))
    detector = cv2.SIFT_create(MOST_FEATURES, enable_precise_upscale=True)
    points, descriptors = detector.detectAndCompute(grey, None)
    return np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2), descriptors


def _match(first: Photograph, second: Photograph, features_1: tuple, features_2: tuple) -> Match | None:
    """What two photographs both show; None where that is too little to tell right from wrong."""
    if min(len(features_1[0]), len(features_2[0])) < LEAST_MATCHES:
        return None
    candidates = cv2.BFMatcher().knnMatch(features_1[1], features_2[1], k=2)
    good = [best for best, other in candidates if best.distance < RATIO * other.distance]
    if len(good) < LEAST_MATCHES:
        return None
    pixels_1 = features_1[0][[match.queryIdx for match in good]]
    pixels_2 = features_2[0][[match.trainIdx for match in good]]
    # In pixels of a lens without distortion, so that one fundamental matrix fits the whole picture.
    flat = [normalised(*both) @ both[0].lens.intrinsics.T for both in ((first, pixels_1), (second, pixels_2))]
    inlier = cv2.findFundamentalMat(flat[0][:, :2], flat[1][:, :2], cv2.USAC_MAGSAC, RANSAC_PIXELS, 0.999, 5000)[1]
    if inlier is None or inlier.sum() < LEAST_MATCHES:
        return None
    kept = inlier.ravel().astype(bool)
    return Match(first, second, pixels_1[kept], pixels_2[kept])


def main(arguments: list[str]) -> None:
    """Print the table for one scene folder."""
    folder = Path(arguments[0])
    capture = READERS[recognise(folder)](folder, None)
    matches = match_all(capture, int(arguments[1]) if len(arguments) > 1 else DEFAULT_PAIRS)
    print(f"{folder.name}: {sum(len(m.pixels_1) for m in matches)} matches in {len(matches)} pairs")
    for name, change in CHANGES.items():
        distances = np.abs(all_distances(matches, change))
        print(f"  {name:28s} median {np.median(distances):8.3f} px   90 % {np.quantile(distances, 0.9):8.3f} px")
    (dx, dy), (error_x, error_y) = best_shift(matches), shift_error(matches)
    print(f"  best shift of the principal point: {dx:+.3f} +- {error_x:.3f}, {dy:+.3f} +- {error_y:.3f} px")


if __name__ == "__main__":
    main(sys.argv[1:])
