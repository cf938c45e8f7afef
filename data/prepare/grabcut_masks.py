"""Masks by GrabCut for a scene with cameras, from the region of interest or from boxes on a few images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from data.errors import UserError, listed
from data.parsed_scene import MASK_HALF
from data.prepare import box_masks, masks
from data.prepare.progress import Bar
from data.scenes.scene import Scene, check_scene

Cut = Callable[[Scene], Scene]
LEAST_COVER, MOST_COVER = 0.005, 0.9  # plausible fractions of an image that a mask covers
# Overlap (intersection over union) of the masks of a drawn and of a transferred box, median of the drawn photographs.
# With 35 points at the foot of a smooth jug it is 0.23, with a thousand points all over DTU scan 65 0.89 to 1.
LEAST_OVERLAP = 0.5


def cut_of(method: str, boxes: Mapping[str, np.ndarray], has_region: bool) -> Cut | None:
    """The function that adds masks to a scene with cameras; None if `method` needs no cameras, or is empty."""
    if method == "box":
        return lambda scene: cut_by_boxes(scene, boxes, has_region)
    return cut_by_sphere if method == "grabcut" else None


def cut_by_sphere(scene: Scene) -> Scene:
    """The scene with masks by GrabCut, initialised by the unit sphere; raises UserError if it fails."""
    found = _each(scene, lambda view: masks.grab_cut(scene.images[view], scene.intrinsics[view], scene.c2w[view]))
    share = np.median([np.mean(mask > MASK_HALF) for mask in found])
    if not LEAST_COVER <= share <= MOST_COVER:
        full = "the region of interest fills the photographs, so the background is unknown"
        empty = "the object in the region of interest has the same colours as its surroundings"
        raise UserError(
            f"--masks grabcut: {full if share > MOST_COVER else empty}; leave --masks out, use --masks box, or choose "
            "another --roi"
        )
    return check_scene(replace(scene, masks=found))


def cut_by_boxes(scene: Scene, boxes: Mapping[str, np.ndarray], has_region: bool) -> Scene:
    """The scene with masks by GrabCut from the boxes of `find_boxes`; the region is set unless `has_region`.

    Raises UserError for boxes that miss the object, for points that do not bound it, and if the object has the colours
    of its surroundings.
    """
    drawn = box_masks.by_view(scene, boxes)
    held = box_masks.object_points(scene, drawn)
    own = {
        view: masks.grab_cut_box(scene.images[view], box * np.tile(scene.size(view), 2)) for view, box in drawn.items()
    }
    points = box_masks.on_masks(scene, held, own)
    _require_transfer(scene, points, own)
    carried = box_masks.carried(scene, points, drawn)

    def cut(view: int) -> np.ndarray:
        return own[view] if view in own else masks.grab_cut_box(scene.images[view], carried[view])

    found = _each(scene, cut)
    if np.median([np.mean(mask > MASK_HALF) for mask in found]) < LEAST_COVER:
        raise UserError(
            "--masks box: the object in the boxes has the same colours as its surroundings; give a folder of masks, "
            "or leave --masks out"
        )
    doubts = box_masks.doubts(scene, drawn)
    note = f"boxes drawn on photographs: {len(drawn)}, transferred to the others by {len(points)} points"
    if not has_region:
        scene = box_masks.around(scene, points)
        note = f"{note}, which also define the region of interest"
    return check_scene(replace(scene, masks=found, notes=(*scene.notes, note, *doubts)), cameras_outside=False)


def _require_transfer(scene: Scene, points: np.ndarray, own: Mapping[int, np.ndarray]) -> None:
    """Raises UserError unless boxes transferred by the points [K, 3] reproduce the masks `own` of the drawn boxes."""
    if len(own) == scene.n_views or not any(mask.any() for mask in own.values()):
        return  # nothing is transferred, or the object has the colours of its surroundings: another message
    carried = box_masks.carried(scene, points, {})
    overlaps = [_overlap(mask, masks.grab_cut_box(scene.images[view], carried[view])) for view, mask in own.items()]
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
    return np.count_nonzero(first & second) / max(1, np.count_nonzero(first | second))


def _each(scene: Scene, cut: Callable[[int], np.ndarray]) -> tuple[np.ndarray, ...]:
    """The masks of all views, with a progress bar."""
    found = []
    with Bar("masks", scene.n_views) as bar:
        for view in range(scene.n_views):
            found.append(cut(view))
            bar.update()
    return tuple(found)
