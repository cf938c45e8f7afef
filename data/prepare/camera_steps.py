"""The steps of structure from motion: from whole images or, if the masks contradict the result, from the object alone.

An object on a turntable, or one that was turned over between photographs, moves relative to what surrounds it. Cameras
that fit the surroundings then contradict the masks of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.config import DatasetConfig
from data.errors import UserError
from data.inspection.image_checks import GOOD_AGREEMENT
from data.io.files import remove
from data.io.images import mask_of, read_image
from data.prepare.database import count_rows, has_features, is_sound
from data.prepare.frames import Frame, groups
from data.prepare.reconstruct import (
    DATABASE,
    MASKS,
    MODELS,
    OF_OBJECT,
    PAIR_LIST,
    DiskError,
    find_features,
    map_images,
    match_features,
    read_model,
)
from data.prepare.steps import Step, Steps, WorkError
from data.readers.colmap import read_colmap
from data.roi.frustum import Cameras
from data.roi.visual_hull import masked_views, visual_hull
from data.scenes.undistort import Undistorter
from data.writers.neus import CAMERA_FILE

Say = Callable[[str], None]

ENOUGH_VIEWS = 8  # masks of fewer views may bound no volume although they do not contradict one another


def camera_errors(steps: Steps, frames: Sequence[Frame], is_sequence: bool, say: Say) -> dict[str, float]:
    """Estimate the cameras and log the result; returns the reprojection error of each image of the work folder.

    Raises UserError if there are no cameras, WorkError if COLMAP fails.
    """
    try:
        model = _run_all(steps, frames, is_sequence, say)
    except DiskError:
        raise
    except UserError:
        found = ("features", "matches", "cameras")
        if not steps.reused.intersection(found):
            raise
        say("no cameras were found with the results of an earlier run; features, matches and cameras are redone")
        for name in found:
            steps.forget(name)
        model = _run_all(steps, frames, is_sequence, say)
    say(
        f"cameras of {len(model['names'])} of {len(frames)} photographs, {model['points']} points, mean reprojection "
        f"error {model['error']:.2f} px"
    )
    for note in model["notes"]:
        say(note)
    return model.get("errors", {})


def _run_all(steps: Steps, frames: Sequence[Frame], is_sequence: bool, say: Say) -> dict[str, Any]:
    """The three steps of structure from motion; returns the result of `find_cameras`."""
    database = steps.folder / DATABASE
    steps.run(
        Step(
            "features",
            lambda: find_features(steps.folder, groups(frames)),
            (str(Path(DATABASE).parent),),
            ("matches", "cameras"),
            is_sound=lambda: is_sound(database),
            is_whole=lambda: has_features(database, [frame.name for frame in frames]),
        )
    )
    steps.run(
        Step(
            "matches",
            lambda: match_features(steps.folder, frames, is_sequence),
            (PAIR_LIST,),
            ("cameras",),
            is_sound=lambda: is_sound(database),
            is_whole=lambda: count_rows(database, "two_view_geometries", 0) >= steps.result("matches"),
        )
    )
    return steps.run(
        Step("cameras", lambda: find_cameras(steps.folder, frames, is_sequence, say), (MODELS,), read=read_model)
    )


def find_cameras(work: Path, frames: Sequence[Frame], is_sequence: bool, say: Say) -> dict[str, Any]:
    """The result of `map_images` for whole images or, if the masks contradict that, for what is inside the masks.

    Raises UserError if there are no cameras, WorkError if COLMAP fails.
    """
    if not (work / MASKS).is_dir():
        return map_images(work, frames)
    whole, failure, agreement = None, None, 0.0
    try:
        whole = map_images(work, frames)
        agreement = mask_agreement(work)
    except WorkError:
        raise
    except UserError as error:
        failure = error
    if agreement >= GOOD_AGREEMENT:
        return whole
    overlap = f"the masks contradict the cameras: they overlap their visual hull by {agreement:.0%} only"
    say(f"{failure or overlap}; the cameras are estimated again, from what is inside the masks")
    folder = (work / OF_OBJECT.database).parent
    remove(folder)
    folder.mkdir()
    try:
        if whole:
            (work / MODELS).rename(folder / MODELS)
        remove(work / MODELS)
        again = _of_object(work, frames, is_sequence)
        if again and (not whole or mask_agreement(work) > agreement):
            return again
        if not whole:
            raise failure
        say("the cameras of the object alone are no better; those of whole photographs are kept")
        remove(work / MODELS)
        (folder / MODELS).rename(work / MODELS)
        return whole
    finally:
        remove(folder)


def _of_object(work: Path, frames: Sequence[Frame], is_sequence: bool) -> dict[str, Any] | None:
    """The result of `map_images` for features inside the masks; None if there are no cameras."""
    try:
        find_features(work, groups(frames), OF_OBJECT)
        match_features(work, frames, is_sequence, OF_OBJECT)
        return map_images(work, frames, OF_OBJECT)
    except WorkError:
        raise
    except UserError:
        return None


def mask_agreement(work: Path) -> float:
    """The median intersection over union of masks and the silhouettes of their visual hull; 1 for few views."""
    posed_images = read_colmap(work, DatasetConfig(str(work), CAMERA_FILE, CAMERA_FILE)).images
    if len(posed_images) < ENOUGH_VIEWS:
        return 1.0
    masks, intrinsics = [], []
    for posed in posed_images:
        mask = mask_of(read_image(posed.mask_path))
        lens = Undistorter(posed.lens, mask.shape[::-1])
        masks.append(lens(mask))
        intrinsics.append(lens.intrinsics)
    sizes = np.array([mask.shape[::-1] for mask in masks])
    cameras = Cameras(np.stack(intrinsics), np.stack([posed.c2w for posed in posed_images]), sizes)
    hull = visual_hull(masked_views(cameras, masks))
    return 0.0 if hull is None else float(np.median(hull.agreement))
