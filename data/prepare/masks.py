"""Masks for images without any: by colour key, GrabCut or rembg, or from files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError, listed
from data.io.images import alpha_of, mask_of, read_image, rgb_of
from data.io.metadata import read_exif, upright
from data.io.named_files import required_mask_files
from data.parsed_scene import MASK_HALF
from data.pixels import size_of, size_within
from data.prepare import box_masks
from data.prepare.frames import scaled_down
from data.prepare.steps import Bar
from data.scenes.frustum import outline_pixels
from data.scenes.scene import Scene
from data.scenes.scene_checks import check_scene

METHODS = ("colorkey", "grabcut", "box", "rembg")
WITH_CAMERAS = ("grabcut", "box")  # methods that need the cameras and run last
ON_OBJECT = 255

# Colour key. Distances are Euclidean in OpenCV's 8-bit Lab.
BORDER = 0.03  # of the shorter side: width of the border that is assumed to show the backdrop
LEAST_TOLERANCE = 12.0  # allows for JPEG noise and soft shadows on paper
SPREADS = 6.0  # tolerance in median absolute deviations of the border's colours
MOST_TOLERANCE = 40.0  # a border that needs more has no uniform colour
LEAST_BACKDROP = 0.8  # fraction of the border pixels that must have the backdrop's colour

# Longer side, pixels, at which GrabCut runs: it takes seconds instead of minutes, and fine detail is not needed.
GRABCUT_SIDE = 480
GRABCUT_ROUNDS = 5
FAR = 10000.0  # pixels; OpenCV's polygons overflow beyond 2^15, and an outline near the camera plane may exceed that

# The model that rembg downloads at the first use; this program does not download it.
REMBG_MODEL = "u2net"
Cut = Callable[[Scene], Scene]
LEAST_COVER, MOST_COVER = 0.005, 0.9  # plausible fractions of an image that a mask covers
# Overlap (intersection over union) of the masks of a drawn and of a transferred box, median of the drawn photographs.
# With 35 points at the foot of a smooth jug it is 0.23, with a thousand points all over DTU scan 65 0.89 to 1.
LEAST_OVERLAP = 0.5


def require_masks(folder: Path, sources: Sequence[str]) -> list[Path]:
    """The mask file of each image; raises UserError if one is missing."""
    if not folder.is_dir():
        raise UserError(f"--masks {folder}: no such folder, and none of {', '.join(METHODS)}")
    return required_mask_files(folder, sources, "--masks ", "name its mask {stem}.png")


def read_mask(path: Path, size: tuple[int, int], orientation_of: Path) -> np.ndarray:
    """A mask file as uint8 [H, W] for the upright, possibly reduced image of `size` (width, height).

    `orientation_of` is the source image: a mask of its stored size is rotated with it. Of the source image itself the
    alpha channel is the mask. Raises UserError if the
    aspect ratio does not fit.
    """
    pixels = read_image(path)
    alpha = alpha_of(pixels) if path == orientation_of else None
    mask = mask_of(pixels) if alpha is None else alpha
    orientation = read_exif(orientation_of)[0]
    stored = size_of(scaled_down(mask))
    if stored != size and orientation >= 5 and stored == size[::-1]:
        mask = upright(mask, orientation)
    if size_of(scaled_down(mask)) != size:
        raise UserError(
            f"{path}: is {mask.shape[1]}x{mask.shape[0]} pixels and does not fit the photograph {orientation_of.name}; "
            "masks have the size of their photographs"
        )
    return scaled_down(mask)


def finder(method: str, paths: Sequence[Path]) -> Callable[[np.ndarray], np.ndarray]:
    """The function from an RGB image of `paths` to its mask uint8 [H, W], by "colorkey" or "rembg"."""
    if method == "colorkey":
        colour, tolerance = backdrop(rgb_of(read_image(path)) for path in paths)
        return lambda image: color_key(image, colour, tolerance)
    import rembg

    session = rembg.new_session(REMBG_MODEL)
    return lambda image: np.ascontiguousarray(rembg.remove(image, session=session, only_mask=True))


def backdrop(images: Iterable[np.ndarray]) -> tuple[np.ndarray, float]:
    """The backdrop's colour (Lab, [3]) and the tolerance around it, from the borders of RGB uint8 images.

    Raises UserError if the borders have no uniform colour.
    """
    border = np.concatenate([_border(_lab(image)) for image in images])
    colour = np.median(border, axis=0)
    distance = np.linalg.norm(border - colour, axis=1)
    tolerance = float(np.clip(SPREADS * np.median(distance), LEAST_TOLERANCE, MOST_TOLERANCE))
    share = np.mean(distance <= tolerance)
    if share < LEAST_BACKDROP:
        raise UserError(
            f"--masks colorkey: only {share:.0%} of the images' borders have the same colour, so there is no plain "
            "backdrop; use --masks grabcut, or a folder of masks"
        )
    return colour, tolerance


def color_key(image: np.ndarray, colour: np.ndarray, tolerance: float) -> np.ndarray:
    """uint8 [H, W], 255 where the RGB image [H, W, 3] differs from the backdrop; specks are removed, holes are kept."""
    distance = np.linalg.norm(_lab(image) - colour, axis=2)
    kernel = np.ones((3, 3), np.uint8)
    mask = np.where(distance > tolerance, ON_OBJECT, 0).astype(np.uint8)
    return cv2.morphologyEx(cv2.morphologyEx(mask, cv2.MORPH_OPEN, kernel), cv2.MORPH_CLOSE, kernel)


def grab_cut_box(image: np.ndarray, box: np.ndarray | None) -> np.ndarray:
    """uint8 [H, W], 255 on the foreground inside a box [4] in pixels; all 0 without a box."""
    if box is None:
        return np.zeros(image.shape[:2], np.uint8)
    left, top, right, bottom = box - 0.5  # from corners of pixels to their centres
    return grab_cut(image, [np.array([[left, top], [right, top], [right, bottom], [left, bottom]])])


def grab_cut(image: np.ndarray, outlines: Sequence[np.ndarray]) -> np.ndarray:
    """uint8 [H, W], 255 on the foreground inside outlines, each [K, 2] in pixels.

    GrabCut (Rother et al., SIGGRAPH 2004) of OpenCV: the outside of the outlines is background, the inside unknown.
    """
    height, width = image.shape[:2]
    size, ratio = size_within((width, height), GRABCUT_SIDE)
    small = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
    labels = np.full(small.shape[:2], cv2.GC_BGD, np.uint8)
    for outline in outlines:
        cv2.fillPoly(labels, [np.rint(np.clip(outline * ratio, -FAR, FAR)).astype(np.int32)], (cv2.GC_PR_FGD,))
    if not (labels == cv2.GC_BGD).any() or not (labels == cv2.GC_PR_FGD).any():
        return np.where(cv2.resize(labels, (width, height)) == cv2.GC_BGD, 0, ON_OBJECT).astype(np.uint8)
    cv2.setRNGSeed(0)  # its colour clusters are initialised randomly
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(small, labels, (0, 0, 0, 0), *models, GRABCUT_ROUNDS, cv2.GC_INIT_WITH_MASK)
    mask = np.where((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD), ON_OBJECT, 0).astype(np.uint8)
    soft = cv2.resize(mask, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.where(soft > ON_OBJECT // 2, ON_OBJECT, 0).astype(np.uint8)


def require_rembg() -> None:
    """Raises UserError if the package rembg or its model file is missing."""
    if importlib.util.find_spec("rembg") is None:
        raise UserError('--masks rembg: the package rembg is missing; run `pip install "rembg[cpu]"`, or use grabcut')
    home = Path(os.environ.get("U2NET_HOME", Path.home() / ".u2net"))
    if not (home / f"{REMBG_MODEL}.onnx").is_file():
        raise UserError(
            f"--masks rembg: its model {REMBG_MODEL}.onnx is not in {home}; download it "
            f"(`rembg d {REMBG_MODEL}`), or use grabcut"
        )


def _lab(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_RGB2LAB).astype(np.float32)


def _border(image: np.ndarray) -> np.ndarray:
    """The pixels [N, C] of the border of width BORDER."""
    width = max(1, round(BORDER * min(image.shape[:2])))
    inner = image[width:-width, :width], image[width:-width, -width:]
    parts = (image[:width], image[-width:], *inner)
    return np.concatenate([part.reshape(-1, image.shape[2]) for part in parts])


def cut_of(method: str, boxes: Mapping[str, np.ndarray], has_region: bool) -> Cut | None:
    """The function that adds masks to a scene with cameras; None if `method` needs no cameras, or is empty."""
    if method == "box":
        return lambda scene: cut_by_boxes(scene, boxes, has_region)
    return cut_by_sphere if method == "grabcut" else None


def within(scene: Scene) -> Scene:
    """The scene without the points that are outside a mask, such as those of surroundings that moved."""
    if scene.points is None or scene.masks is None:
        return scene
    wider = {view: cv2.dilate(mask, np.ones((3, 3), np.uint8)) for view, mask in enumerate(scene.masks)}
    is_shown, is_on_mask = box_masks.seen_by(scene, scene.points.xyz, wider)
    return replace(scene, points=scene.points.at((is_on_mask | ~is_shown).all(axis=0)))


def cut_by_sphere(scene: Scene) -> Scene:
    """The scene with masks by GrabCut, initialised by the unit sphere; raises UserError if it fails."""
    outlines = [outline_pixels(*camera) for camera in zip(scene.intrinsics, scene.c2w, strict=True)]
    masks = _each(scene, lambda view: grab_cut(scene.images[view], outlines[view]))
    share = np.median([np.mean(mask > MASK_HALF) for mask in masks])
    if not LEAST_COVER <= share <= MOST_COVER:
        full = "the region of interest fills the photographs, so the background is unknown"
        empty = "the object in the region of interest has the same colours as its surroundings"
        raise UserError(
            f"--masks grabcut: {full if share > MOST_COVER else empty}; leave --masks out, use --masks box, or choose "
            "another --roi"
        )
    return check_scene(replace(scene, masks=masks))


def cut_by_boxes(scene: Scene, boxes: Mapping[str, np.ndarray], has_region: bool) -> Scene:
    """The scene with masks by GrabCut from the boxes of `find_boxes`; the region is set unless `has_region`.

    Raises UserError for boxes that miss the object, for points that do not bound it, and if the object has the colours
    of its surroundings.
    """
    drawn = box_masks.by_view(scene, boxes)
    held = box_masks.object_points(scene, drawn)
    own = {view: grab_cut_box(scene.images[view], box * np.tile(scene.size(view), 2)) for view, box in drawn.items()}
    points = box_masks.on_masks(scene, held, own)
    _require_transfer(scene, points, own)
    carried = box_masks.carried(scene, points, drawn)

    def cut(view: int) -> np.ndarray:
        return own[view] if view in own else grab_cut_box(scene.images[view], carried[view])

    masks = _each(scene, cut)
    if np.median([np.mean(mask > MASK_HALF) for mask in masks]) < LEAST_COVER:
        raise UserError(
            "--masks box: the object in the boxes has the same colours as its surroundings; give a folder of masks, "
            "or leave --masks out"
        )
    doubts = box_masks.doubts(scene, drawn)
    note = f"boxes drawn on photographs: {len(drawn)}, transferred to the others by {len(points)} points"
    if not has_region:
        scene = box_masks.around(scene, points)
        note = f"{note}, which also define the region of interest"
    return check_scene(replace(scene, masks=masks, notes=(*scene.notes, note, *doubts)), cameras_outside=False)


def _require_transfer(scene: Scene, points: np.ndarray, own: Mapping[int, np.ndarray]) -> None:
    """Raises UserError unless boxes transferred by the points [K, 3] reproduce the masks `own` of the drawn boxes."""
    if len(own) == scene.n_views or not any(mask.any() for mask in own.values()):
        return  # nothing is transferred, or the object has the colours of its surroundings: another message
    carried = box_masks.carried(scene, points, {})
    overlaps = [_overlap(mask, grab_cut_box(scene.images[view], carried[view])) for view, mask in own.items()]
    if np.median(overlaps) >= LEAST_OVERLAP:
        return
    names = listed([scene.image_names[view] for view in own])
    raise UserError(
        f"--masks box: the boxes transferred by {len(points)} SfM points reproduce the masks of the drawn boxes "
        f"({names}) to only {np.median(overlaps):.0%}, because too few points are on the object or too many are beside "
        "it; draw boxes on more photographs, use --masks grabcut or a folder of masks, or leave --masks out and "
        "give --roi"
    )


def _overlap(mask: np.ndarray, other: np.ndarray) -> float:
    """The intersection over union of two masks uint8 [H, W]."""
    first, second = mask > MASK_HALF, other > MASK_HALF
    return int((first & second).sum()) / max(1, int((first | second).sum()))


def _each(scene: Scene, cut: Callable[[int], np.ndarray]) -> tuple[np.ndarray, ...]:
    """The masks of all views, with a progress bar."""
    masks = []
    with Bar("masks", scene.n_views) as bar:
        for view in range(scene.n_views):
            masks.append(cut(view))
            bar.update()
    return tuple(masks)
