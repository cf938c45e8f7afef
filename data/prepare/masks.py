"""Masks for images that have none: from a backdrop of one colour, by GrabCut, by rembg, or from files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError
from data.inspection.overview import outline_pixels
from data.io.images import list_images, mask_of, read_image, rgb_of, size_within
from data.prepare.exif import read_exif, upright
from data.prepare.frames import scaled_down

METHODS = ("colorkey", "grabcut", "box", "rembg")
WITH_CAMERAS = ("grabcut", "box")  # those that come last, for they need the cameras
ON_OBJECT = 255

# Colour key. Distances are Euclidean in OpenCV's 8-bit Lab.
BORDER = 0.03  # of the shorter side: the frame of the image that shows backdrop
LEAST_TOLERANCE = 12.0  # JPEG noise and soft shadows on paper
SPREADS = 6.0  # median absolute deviations of the border's colours that still are backdrop
MOST_TOLERANCE = 40.0  # a border that needs more is no backdrop of one colour
LEAST_BACKDROP = 0.8  # share of all border pixels that have the backdrop's colour

# Longer side at which GrabCut runs: seconds instead of minutes, and it is the outline that is wanted, not the hairs.
GRABCUT_SIDE = 480
GRABCUT_ROUNDS = 5
FAR = 10000.0  # pixels: OpenCV's polygons overflow beyond 2^15, and an outline near the camera's plane goes further

# What rembg downloads on first use; looked for, as nothing is downloaded here.
REMBG_MODEL = "u2net"


def mask_files(folder: Path, sources: Sequence[str]) -> list[Path]:
    """The mask of each image by its name: stem.png, or image.jpg.png; raises UserError for missing ones."""
    if not folder.is_dir():
        raise UserError(f"--masks {folder}: no such folder, and none of {', '.join(METHODS)}")
    by_stem = {path.stem: path for path in list_images(folder)}
    found = [by_stem.get(source) or by_stem.get(Path(source).stem) for source in sources]
    missing = [source for source, path in zip(sources, found, strict=True) if path is None]
    if missing:
        raise UserError(
            f"--masks {folder}: {len(missing)} of {len(sources)} photographs have no mask, {missing[0]} first; "
            f"name it {Path(missing[0]).stem}.png"
        )
    return found


def read_mask(path: Path, size: tuple[int, int], orientation_of: Path) -> np.ndarray:
    """A mask file as uint8 [H, W] for the upright, perhaps scaled image of `size` (width, height).

    `orientation_of` is the image as it was given: a mask of the stored size is turned with it. Raises UserError
    where the proportions do not fit.
    """
    mask = mask_of(read_image(path))
    orientation = read_exif(orientation_of)[0]
    stored = scaled_down(mask).shape[::-1]
    if stored != size and orientation >= 5 and stored == size[::-1]:
        mask = upright(mask, orientation)
    if scaled_down(mask).shape[::-1] != size:
        raise UserError(
            f"{path}: is {mask.shape[1]}x{mask.shape[0]} pixels and does not fit the photograph {orientation_of.name}; "
            "masks have the size of their photographs"
        )
    return scaled_down(mask)


def finder(method: str, paths: Sequence[Path]) -> Callable[[np.ndarray], np.ndarray]:
    """What makes a mask uint8 [H, W] of an RGB image of those in `paths`: by "colorkey" or "rembg"."""
    if method == "colorkey":
        colour, tolerance = backdrop(rgb_of(read_image(path)) for path in paths)
        return lambda image: color_key(image, colour, tolerance)
    return _by_rembg()


def backdrop(images: Iterable[np.ndarray]) -> tuple[np.ndarray, float]:
    """The backdrop's colour (Lab, [3]) and how far from it still counts, from the borders of RGB uint8 images.

    Raises UserError where the borders show no single colour.
    """
    border = np.concatenate([_border(_lab(image)) for image in images])
    colour = np.median(border, axis=0)
    distance = np.linalg.norm(border - colour, axis=1)
    tolerance = float(np.clip(SPREADS * np.median(distance), LEAST_TOLERANCE, MOST_TOLERANCE))
    share = np.mean(distance <= tolerance)
    if share < LEAST_BACKDROP:
        raise UserError(
            f"--masks colorkey: only {share:.0%} of the images' borders have one colour, so that there is no plain "
            "backdrop; use --masks grabcut, or a folder of masks"
        )
    return colour, tolerance


def color_key(image: np.ndarray, colour: np.ndarray, tolerance: float) -> np.ndarray:
    """255 where the RGB image [H, W, 3] differs from the backdrop, uint8 [H, W]: specks removed, holes kept."""
    distance = np.linalg.norm(_lab(image) - colour, axis=2)
    kernel = np.ones((3, 3), np.uint8)
    mask = np.where(distance > tolerance, ON_OBJECT, 0).astype(np.uint8)
    return cv2.morphologyEx(cv2.morphologyEx(mask, cv2.MORPH_OPEN, kernel), cv2.MORPH_CLOSE, kernel)


def grab_cut(image: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray) -> np.ndarray:
    """255 on what differs in colour from the surroundings of the unit sphere's image; uint8 [H, W].

    Rother et al., SIGGRAPH 2004, by OpenCV: outside the sphere's outline is background, inside is to be found out.
    """
    return _cut(image, outline_pixels(intrinsics, c2w))


def grab_cut_box(image: np.ndarray, box: np.ndarray | None) -> np.ndarray:
    """255 on what differs in colour from the surroundings of a box [4] in pixels; uint8 [H, W], 0 for no box."""
    if box is None:
        return np.zeros(image.shape[:2], np.uint8)
    left, top, right, bottom = box - 0.5  # from corners of pixels to their centres
    return _cut(image, [np.array([[left, top], [right, top], [right, bottom], [left, bottom]])])


def _cut(image: np.ndarray, outlines: Sequence[np.ndarray]) -> np.ndarray:
    """GrabCut, to which what lies in the outlines, each [K, 2] in pixels, is open and the rest is background."""
    height, width = image.shape[:2]
    size, ratio = size_within((width, height), GRABCUT_SIDE)
    small = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    labels = np.full(small.shape[:2], cv2.GC_BGD, np.uint8)
    for outline in outlines:
        cv2.fillPoly(labels, [np.rint(np.clip(outline * ratio, -FAR, FAR)).astype(np.int32)], cv2.GC_PR_FGD)
    if not (labels == cv2.GC_BGD).any() or not (labels == cv2.GC_PR_FGD).any():
        return np.where(cv2.resize(labels, (width, height)) == cv2.GC_BGD, 0, ON_OBJECT).astype(np.uint8)
    cv2.setRNGSeed(0)  # its colour clusters start at random
    cv2.grabCut(small, labels, None, np.zeros((1, 65)), np.zeros((1, 65)), GRABCUT_ROUNDS, cv2.GC_INIT_WITH_MASK)
    found = np.where((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD), ON_OBJECT, 0).astype(np.uint8)
    soft = cv2.resize(found, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(soft > ON_OBJECT // 2, ON_OBJECT, 0).astype(np.uint8)


def require_rembg() -> None:
    """Raises UserError where the package rembg or the file of its model is missing; nothing is downloaded."""
    if importlib.util.find_spec("rembg") is None:
        raise UserError("--masks rembg: the package rembg is missing; run `pip install rembg[cpu]`, or use grabcut")
    home = Path(os.environ.get("U2NET_HOME", Path.home() / ".u2net"))
    if not (home / f"{REMBG_MODEL}.onnx").is_file():
        raise UserError(
            f"--masks rembg: its model {REMBG_MODEL}.onnx is not in {home}; download it there as rembg's page says "
            f"(`rembg d {REMBG_MODEL}`), or use grabcut"
        )


def _by_rembg() -> Callable[[np.ndarray], np.ndarray]:
    """rembg's network, after `require_rembg`."""
    import rembg

    session = rembg.new_session(REMBG_MODEL)
    return lambda image: np.ascontiguousarray(rembg.remove(image, session=session, only_mask=True))


def _lab(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_RGB2LAB).astype(np.float32)


def _border(image: np.ndarray) -> np.ndarray:
    """The pixels [N, C] of the frame of BORDER's width."""
    width = max(1, round(BORDER * min(image.shape[:2])))
    inner = image[width:-width, :width], image[width:-width, -width:]
    parts = (image[:width], image[-width:], *inner)
    return np.concatenate([part.reshape(-1, image.shape[2]) for part in parts])
