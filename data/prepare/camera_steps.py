"""The steps of structure from motion: from whole images or, if the masks do not fit the result, from the object alone.

An object on a turntable, or one that was turned over between photographs, moves relative to what surrounds it. Cameras
that fit the surroundings then do not fit the masks of the object. Where subfolders say which photographs show it in the
same position, the surroundings are matched among these, and the object among all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError, listed
from data.io.files import remove
from data.io.images import mask_of, read_image, write_image
from data.parsed_scene import MASK_HALF
from data.pixels import size_of
from data.prepare.frames import Frame, groups, position_of
from data.prepare.inspection.checks import GOOD_AGREEMENT
from data.prepare.masks import ON_OBJECT
from data.prepare.sfm import colmap_tasks
from data.prepare.sfm.mapping import HOLDING
from data.prepare.sfm.matches import (
    ENOUGH_MATCHES,
    count_rows,
    has_features,
    is_sound,
    read_links,
    share_of_still_pairs,
)
from data.prepare.sfm.overlay import OVERLAY, write_overlay
from data.prepare.sfm.reconstruct import map_images
from data.prepare.sfm.stages import (
    DATABASE,
    IMAGES,
    MASKS,
    MODELS,
    OF_OBJECT,
    PAIR_LIST,
    WHOLE,
    DiskError,
    Source,
    apart,
    find_features,
    match_features,
)
from data.prepare.steps import Say, Step, Steps, WorkError
from data.scenes.config import DatasetConfig
from data.scenes.frustum import Cameras
from data.scenes.readers.colmap import read_colmap
from data.scenes.readers.neus import CAMERA_FILE
from data.scenes.undistort import undistorters
from data.scenes.visual_hull import masked_views, visual_hull

SOME_STILL = 0.2  # fraction of the pairs that do not move, from which on something equal in all images is searched
FIT = "fit"  # entry "masks" of a result that does not depend on the masks
ENOUGH_VIEWS = 8  # masks of fewer views may bound no volume although they do not contradict one another
LEAST_GAIN = 0.1  # of the agreement, for cameras of the object that do not fit the masks well either


class NotJoinedError(UserError):
    """Photographs of several positions of the object have too little of it in common."""


def estimate_cameras(steps: Steps, frames: Sequence[Frame], is_sequence: bool, masks: str, say: Say) -> dict[str, Any]:
    """Estimate the cameras and log the result; returns that of `find_cameras`.

    `masks` identifies those in the work folder, "" if there are none. Raises UserError if there are no cameras,
    WorkError if COLMAP fails.
    """
    try:
        model = _run_all(steps, frames, is_sequence, masks, say)
    except DiskError:
        raise
    except UserError:
        names = ("features", "matches", "cameras")
        if not steps.reused.intersection(names):
            raise
        say("no cameras were found with the results of an earlier run; features, matches and cameras are redone")
        for name in names:
            steps.forget(name)
        model = _run_all(steps, frames, is_sequence, masks, say)
    say(
        f"cameras of {len(model['names'])} of {len(frames)} photographs, {model['points']} points, mean reprojection "
        f"error {model['error']:.2f} px"
    )
    for note in model["notes"]:
        say(note)
    return model


def _run_all(steps: Steps, frames: Sequence[Frame], is_sequence: bool, masks: str, say: Say) -> dict[str, Any]:
    """The three steps of structure from motion; returns the result of `find_cameras`."""
    fill = partial(find_features, steps.folder, groups(frames)), partial(_match, steps.folder, frames, is_sequence)
    fill_database(steps, frames, *fill)
    find = partial(find_cameras, steps.folder, frames, is_sequence, masks, say)
    return steps.run(Step("cameras", find, (MODELS,), read=lambda stored: _for_masks(stored, masks)))


def fill_database(steps: Steps, frames: Sequence[Frame], extract: Callable[[], None], match: Callable[[], int]) -> None:
    """The steps of features and matches; `match` returns the number of pairs."""
    database, names = steps.folder / DATABASE, [frame.name for frame in frames]
    folder, later, is_there = str(Path(DATABASE).parent), ("matches", "cameras"), partial(is_sound, database)
    steps.run(
        Step("features", extract, (folder,), later, is_sound=is_there, is_whole=partial(has_features, database, names))
    )

    def is_whole() -> bool:
        return count_rows(database, "two_view_geometries", 0) >= steps.result("matches")

    steps.run(Step("matches", match, (PAIR_LIST,), later[1:], is_sound=is_there, is_whole=is_whole))


def _match(work: Path, frames: Sequence[Frame], is_sequence: bool) -> int:
    """The number of pairs, matched without what does not move although the camera does.

    Of photographs of two positions of the object, only what is inside their masks.
    """
    remove(work / OVERLAY)
    count = match_features(work, frames, is_sequence)
    position = {frame.name: position_of(frame.source) for frame in frames}
    if len(set(position.values())) > 1:
        apart(work, WHOLE, colmap_tasks.keep_inside, str(work / DATABASE), str(work / MASKS), position)
        return count_rows(work / DATABASE, "two_view_geometries", 0)
    sides = {frame.name: max(frame.width, frame.height) for frame in frames}
    images, sizes = [work / IMAGES / frame.name for frame in frames], [(frame.width, frame.height) for frame in frames]
    is_still = share_of_still_pairs(work / DATABASE, sides) >= SOME_STILL
    if not is_still or not write_overlay(work, images, sizes):
        return count
    remove((work / DATABASE).parent)
    find_features(work, groups(frames), _whole(work))
    return match_features(work, frames, is_sequence)


def _whole(work: Path) -> Source:
    """The features of whole images, without an overlay."""
    return replace(WHOLE, masks=OVERLAY) if (work / OVERLAY).is_dir() else WHOLE


def _for_masks(stored: dict[str, Any], masks: str) -> dict[str, Any]:
    """The stored result; raises ValueError if other masks could lead to another one."""
    if stored.get("masks", FIT) not in (FIT, masks):
        raise ValueError
    return stored


def find_cameras(work: Path, frames: Sequence[Frame], is_sequence: bool, masks: str, say: Say) -> dict[str, Any]:
    """The result of `map_images` for whole images or, if the masks do not fit that, for what is inside the masks.

    It has an entry "masks": FIT if the masks fit the cameras of whole images, else the given `masks`. Raises UserError
    if there are no cameras, WorkError if COLMAP fails.
    """
    folder = (work / OF_OBJECT.database).parent
    remove(folder)
    if not masks:
        return {**map_images(work, frames, _whole(work)), "masks": masks}
    whole, before = None, 0.0
    try:
        whole = _mapped(work, frames, _whole(work))
        agreement = mask_agreement(work)
        if agreement is None or agreement >= GOOD_AGREEMENT:
            return {**whole, "masks": FIT}
        before = agreement
        fit = f"overlap their visual hull by {before:.0%} only" if before else "bound no common volume"
        reason = f"the masks do not fit the cameras: they {fit}"
    except WorkError:
        raise
    except UserError as error:
        reason = str(error).split(";")[0]
    say(f"{reason}; the cameras are estimated again, from what is inside the masks")
    folder.mkdir()
    try:
        if whole:
            (work / MODELS).rename(folder / MODELS)
            model = _better_of_object(work, frames, is_sequence, whole, before, say)
        else:
            remove(work / MODELS)
            model = _of_object(work, frames, is_sequence)
        return {**model, "masks": masks}
    except (WorkError, NotJoinedError):
        raise
    except UserError as error:
        raise UserError(f"{reason}; inside the masks: {error}") from None
    finally:
        remove(folder)


def _mapped(work: Path, frames: Sequence[Frame], source: Source) -> dict[str, Any]:
    """The result of `map_images`; raises NotJoinedError if it has no camera of a position of the object."""
    positions = {position_of(frame.source) for frame in frames}
    try:
        model = map_images(work, frames, source)
        if positions.issubset(map(position_of, model["names"])):
            return model
    except UserError as error:
        if isinstance(error, WorkError) or len(positions) < 2:
            raise
    links = read_links(work / source.database, {frame.name: frame.source for frame in frames})
    across = {pair: count for pair, count in links.items() if len(set(map(position_of, pair))) > 1}
    best = max(across, key=across.__getitem__, default=())
    most = f", {listed(best)} {across[best]}" if best and across[best] else ""
    enough = sum(count >= ENOUGH_MATCHES for count in across.values())
    raise NotJoinedError(
        f"the positions {listed(sorted(positions))} cannot be joined: {enough} pairs of photographs of two have "
        f"{ENOUGH_MATCHES} matches or more inside the masks{most}; {HOLDING} points of one position must be "
        "in a photograph of another: in each take photographs from the side, low above the ground, and check the masks"
    )


def _better_of_object(
    work: Path, frames: Sequence[Frame], is_sequence: bool, whole: dict[str, Any], before: float, say: Say
) -> dict[str, Any]:
    """The result inside the masks if it fits them, or fits them much better than `before` with as many photographs.

    Otherwise `whole`, whose models are moved back from the folder of OF_OBJECT.
    """
    try:
        again = _of_object(work, frames, is_sequence)
        agreement, is_complete = mask_agreement(work) or 0.0, len(again["names"]) >= len(whole["names"])
        if agreement >= GOOD_AGREEMENT or (is_complete and agreement >= before + LEAST_GAIN):
            return again
        why = f"{len(again['names'])} photographs"
    except DiskError:
        raise
    except UserError as error:
        why = str(error).split(";")[0]
    say(f"the cameras of the object alone are no better ({why}); those of whole photographs are kept")
    remove(work / MODELS)
    ((work / OF_OBJECT.database).parent / MODELS).rename(work / MODELS)
    return whole


def _of_object(work: Path, frames: Sequence[Frame], is_sequence: bool) -> dict[str, Any]:
    """The result of `map_images` for features inside the masks; raises UserError if there are no cameras."""
    (work / OF_OBJECT.masks).mkdir()
    for frame in frames:
        mask = mask_of(read_image(work / MASKS / f"{frame.name}.png"))
        hard = np.where(mask > MASK_HALF, ON_OBJECT, 0).astype(np.uint8)  # COLMAP takes all but 0 for the object
        write_image(work / OF_OBJECT.masks / f"{frame.name}.png", hard)
    find_features(work, groups(frames), OF_OBJECT)
    match_features(work, frames, is_sequence, OF_OBJECT)
    model = _mapped(work, frames, OF_OBJECT)
    note = "the cameras are those of the object: only features inside the masks were used"
    return {**model, "notes": [*model["notes"], note]}


def mask_agreement(work: Path) -> float | None:
    """The median intersection over union of masks and the silhouettes of their visual hull, 0 without a hull.

    None if too few masks bound the object.
    """
    posed_images = read_colmap(work, DatasetConfig(str(work), CAMERA_FILE, CAMERA_FILE)).images
    masks = [mask_of(read_image(posed.mask_path)) for posed in posed_images if posed.mask_path]
    lenses = undistorters(posed_images, [size_of(mask) for mask in masks])
    intrinsics, c2w = np.stack([lens.intrinsics for lens in lenses]), np.stack([posed.c2w for posed in posed_images])
    cameras = Cameras(intrinsics, c2w, np.array([lens.size for lens in lenses]))
    usable = masked_views(cameras, [lens(mask) for lens, mask in zip(lenses, masks, strict=True)])
    if len(usable.views) < ENOUGH_VIEWS:
        return None
    hull = visual_hull(usable)
    return 0.0 if hull is None else float(np.median(hull.agreement))
