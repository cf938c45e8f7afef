"""Measure whether photographs and cameras of a scene are consistent: `python tests/photo_consistency.py FOLDER`.

What neighbouring photographs both show should lie on the epipolar lines that their cameras predict
(`data.inspection.epipolar`, here at full size and with the lens's distortion): printed is the median distance in
pixels, as read and with the cameras changed the way a wrong convention would.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data.config import DatasetConfig
from data.inspection.epipolar import Camera, epipolar_distances, find_features, match_features, neighbour_pairs
from data.io.images import read_image, to_float, to_uint8
from data.parsed_scene import PosedImage
from data.scenes.load import parse_scene

MOST_FEATURES, MOST_PAIRS = 3000, 250
NEIGHBOURS = 7  # of each photograph: the nearest agree whatever the principal point, those farther off do not


def shifted(pixels: float) -> Callable[[Camera], Camera]:
    """Every principal point moved along the diagonal."""
    move = np.zeros((3, 3))
    move[:2, 2] = pixels
    return lambda posed: replace(posed, lens=replace(posed.lens, intrinsics=posed.lens.intrinsics + move))


def turned(*signs: float) -> Callable[[Camera], Camera]:
    """The camera's axes with these signs."""
    return lambda posed: replace(posed, c2w=posed.c2w @ np.diag([*signs, 1.0]))


CHANGES: dict[str, Callable[[Camera], Camera]] = {
    "as read": shifted(0),
    "principal point + 0.5": shifted(0.5),
    "principal point - 0.5": shifted(-0.5),
    "OpenGL's axes": turned(1, -1, -1),
    "x flipped": turned(-1, 1, 1),
    "y flipped": turned(1, -1, 1),
    "without distortion": lambda posed: replace(posed, lens=replace(posed.lens, distortion=(), is_fisheye=False)),
}


def grey(posed: PosedImage) -> np.ndarray:
    """A photograph at its full size, over black where it is transparent."""
    picture = to_float(read_image(posed.path))
    return to_uint8((picture[..., :3] * picture[..., 3:] if picture.shape[2] == 4 else picture).mean(axis=2))


def main(folder: Path) -> None:
    """Print the table for one scene folder."""
    parsed = parse_scene(DatasetConfig(str(folder), "cameras_sphere.npz", "cameras_sphere.npz"))
    cameras = [Camera(posed.lens, posed.c2w) for posed in parsed.images]
    features = [find_features(grey(posed), most=MOST_FEATURES) for posed in parsed.images]
    pairs = neighbour_pairs(np.stack([camera.c2w for camera in cameras]), NEIGHBOURS)
    chosen = [pairs[i] for i in np.unique(np.linspace(0, len(pairs) - 1, MOST_PAIRS).astype(int))]
    found = [match_features(cameras[i], features[i], cameras[j], features[j]) for i, j in chosen]
    matches = [match for match in found if match is not None]
    print(f"{folder.name}: {sum(len(m.pixels_1) for m in matches)} matches in {len(matches)} pairs")
    for name, change in CHANGES.items():
        changed = [replace(m, first=change(m.first), second=change(m.second)) for m in matches]
        median = np.median(np.abs(np.concatenate([epipolar_distances(match) for match in changed])))
        print(f"  {name:28s} median {median:8.3f} px")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
