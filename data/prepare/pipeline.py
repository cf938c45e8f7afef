"""The steps from images or a video to a scene folder that can be trained on.

Intermediate results are in `<scene folder>/prepare`; a second call continues where the first one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from data.io.files import remove
from data.io.images import read_image, rgb_of, write_image
from data.parsed_scene import ParsedScene
from data.prepare import masks, products
from data.prepare import more_photographs as more
from data.prepare.beside import Photographs, find_photographs, hides_nothing, masks_beside, masks_of
from data.prepare.box_masks import Box, find_boxes
from data.prepare.camera_steps import estimate_cameras, fill_database
from data.prepare.frames import (
    MAX_SIDE,
    Frame,
    copy_images,
    copy_video,
    describe,
    groups,
    is_tagged,
    remarks,
    require_no_mask_files,
)
from data.prepare.given_cameras import GivenCameras, checked, in_frame_of, place, read_given, with_lenses
from data.prepare.masks import Cut, cut_of
from data.prepare.metric import Known, lengths_of
from data.prepare.sfm import stages as sfm
from data.prepare.sfm.overlay import OVERLAY, overlay_note
from data.prepare.sources import notes_of, profile_note
from data.prepare.steps import Bar, Say, Step, Steps, WorkError, fingerprint, noted
from data.prepare.world import world_frame
from data.scenes.region import parse_roi
from data.scenes.scene import Scene

WORK = "prepare"
FINISHED = products.FRESH
FEATURES = (*(str(Path(source.database).parent) for source in (sfm.WHOLE, sfm.OF_OBJECT)), sfm.FURTHER)
# What was given for each step but the last, in words; the key of a step depends on the earlier ones, too.
INPUTS = {
    "photographs": "photographs, --frames or --panorama",
    "features": "--lens",
    "matches": "--masks",
    "cameras": "--cameras",
    "masks": "--masks or --box",
}
# All but the records of the steps.
OUTPUTS = (sfm.IMAGES, *FEATURES, sfm.PAIR_LIST, sfm.MODELS, sfm.MASKS, OVERLAY, products.FRESH, sfm.LOG)


@dataclass(frozen=True)
class Request:
    """The inputs and options of a preparation."""

    images: Path  # a folder of images, or a video
    target: Path  # the scene folder
    frames: int  # to take from a video
    masks: str = ""  # one of `masks.METHODS`, a folder, or "" for none
    overwrite: bool = False  # replace an existing scene
    boxes: tuple[Box, ...] = ()  # around the object, for masks by "box", in addition to those in files
    roi: str = ""  # region of interest "x y z r" in the frame of the cameras, as `dataset.roi`
    cameras_outside: bool = False  # of the region, as `dataset.camera_outside_sphere`
    known: Known = field(default_factory=Known)  # of the scene's size
    is_panorama: bool = False  # all images are equirectangular, also without a tag
    lens: str = ""  # the same, whose lens took them
    cameras: str = ""  # folder of an earlier case, or its name beside `target`, whose cameras took the images; "": none


def prepare(request: Request, say: Say) -> bool:
    """Prepare the scene; returns False if it was complete already.

    `say` is called with each line for the user. Raises UserError for inputs that cannot be used and for failures, as
    early as possible. Files of a failed preparation are removed, except those from which another call can continue.
    """
    try:
        if request.roi:
            parse_roi(request.roi)  # raises now, not after minutes of work
        if request.known.length:
            lengths_of(request.known.length)
        photos = find_photographs(request.images)
        before = list[Frame]()
        if not request.overwrite:
            more.finish(request.target / WORK, FINISHED, say)
            before = more.earlier_frames(Steps(request.target / WORK, {}, say))
            photos = more.in_earlier_order(photos, before, request.target / WORK)
        sources = photos.paths
        is_whole = request.is_panorama or any(map(is_tagged, sources))
        if not request.masks and request.images.is_dir() and not is_whole:
            folder, notes = masks_beside(request.images, photos)
            request, photos = replace(request, masks=folder), replace(photos, notes=(*photos.notes, *notes))
        if photos.positions:
            _require_joinable(request, photos, is_whole)
        given = None
        if name := request.cameras or request.lens:
            flag = "--cameras" if request.cameras else "--lens"
            if is_whole or (request.cameras and not request.images.is_dir()):
                raise UserError(f"{flag} {name}: needs a folder of photographs, no video and no panoramas")
            given = read_given(flag, name, request.target.parent, WORK)
            if request.target.resolve() in (given.folder.resolve(), *given.folder.resolve().parents):
                raise UserError(f"{flag} {name}: is the scene that this call writes; choose another --case")
        mask_paths = _check_masks(request, photos)
        if request.masks == "box" or mask_paths:
            require_no_mask_files(sources, request.is_panorama, request.masks)
        boxes = find_boxes(request.images, request.target, request.boxes, sources) if request.masks == "box" else {}
        products.require_apart(request.images, request.masks, request.target, WORK)
        products.require_no_links(request.target / WORK)
        with products.only_one(request.target / WORK):
            inputs = _inputs(request, photos, mask_paths, boxes, given)
            steps = Steps(request.target / WORK, inputs, say)
            steps.require_own(OUTPUTS)
            for note in notes_of(request.images, sources):
                say(note)
            following = Steps(steps.folder / more.NEXT, inputs, say)
            if _is_changed(request, steps, following, photos, before, is_whole):
                if not following.is_begun("photographs"):
                    more.start(following.folder, steps.folder)
                try:
                    _grow(request, photos, mask_paths, boxes, before, following, say)
                except UserError as error:
                    if not isinstance(error, WorkError) and not following.is_done("cameras"):
                        remove(following.folder)
                    raise
                return True
            remove(following.folder)  # of photographs that are no longer given
            if _is_finished(request, steps, say):
                return False
            products.require_made(steps.folder, request.target, bool(request.masks))
            cut = masks.within if photos.positions else cut_of(request.masks, boxes, bool(request.roi))
            try:
                _prepare(request, photos, mask_paths, cut, given, steps, say)
            except WorkError:
                raise
            except UserError:
                if not steps.is_done("cameras"):
                    steps.withdraw(OUTPUTS)
                raise
    except OSError as error:
        named = error.filename or request.target
        raise UserError(f"{named}: {error.strerror or error}; check the folder and the space on the disk") from error
    return True


def _prepare(
    request: Request,
    photos: Photographs,
    mask_paths: Sequence[Path],
    cut: Cut | None,
    given: GivenCameras | None,
    steps: Steps,
    say: Say,
) -> None:
    """Run all steps that are not complete. Notes on the photographs are logged, and recorded in the scene."""
    sources = photos.paths
    frames = _copy_frames(request, photos, steps, say)
    if given is not None and request.lens:
        frames, given = with_lenses(frames, given), None
    notes = [*photos.notes, *remarks(frames)]
    for note in notes:
        say(note)
    if request.masks in ("", *masks.WITH_CAMERAS):
        known_masks = ""
        remove(steps.folder / sfm.MASKS)
    else:  # in masks/ of the work folder, where the reader finds them; before the long work, since it may fail
        known_masks = steps.key("masks")
        _add_masks(request, steps, frames, sources, mask_paths)
    try:
        if given is None:
            model = estimate_cameras(steps, frames, not request.images.is_dir(), known_masks, say)
        else:
            model = steps.run(Step("cameras", partial(place, steps.folder, frames, given), (sfm.MODELS,)))
            say(model["notes"][0])
    except WorkError:
        raise
    except UserError as error:
        if list(mask_paths) != list(sources) or not hides_nothing(sources):
            raise
        raise UserError(
            f"{str(error).split(';')[0]}; the photographs are cut out, and their surroundings are needed for cameras: "
            f"give the originals to --images, and these with --masks {request.images}"
        ) from error
    for note in overlay_note(steps.folder):
        say(note)

    world, check = None, None
    if given is not None:
        check = partial(checked, given=given)
        if given.frame is not None and request.known == Known():
            said = [*notes, *model["notes"]]
            world = partial(in_frame_of, frame=given.frame, case=given.folder.name, notes=said)
    notes += overlay_note(steps.folder)
    named = dict(zip(photos.sources, sources, strict=True))
    world = world or partial(
        world_frame, known=request.known, frames=frames, sources=named, model=model, roi=request.roi, notes=notes
    )
    _write(request, steps, frames, cut, world, say, check, request.roi)


def _write(
    request: Request,
    steps: Steps,
    frames: Sequence[Frame],
    cut: Cut | None,
    world: Callable[[ParsedScene], ParsedScene],
    say: Say,
    check: Callable[[Scene], str] | None = None,
    roi: str = "",
) -> None:
    """Run the last step, which writes the scene folder by `products.write_scene`; its notes are logged."""
    outside = request.cameras_outside or request.masks == "grabcut"  # which needs the sphere's outline

    def work() -> dict[str, object]:
        notes = products.write_scene(steps.folder, request.target, frames, roi, outside, cut, world, check)
        files = noted(request.target, products.made_here(steps.folder, request.target))
        return {"notes": notes, "files": files, "options": _options(request)}

    for note in steps.run(Step(FINISHED, work, is_repeated=True))["notes"]:
        say(note)


def _is_changed(
    request: Request,
    steps: Steps,
    following: Steps,
    photos: Photographs,
    before: Sequence[Frame],
    is_whole: bool,
) -> bool:
    """Whether photographs were added to those of a complete scene, or removed, which can be extended."""
    result = steps.result(FINISHED)
    if request.overwrite or not isinstance(result, dict) or result.get("options", [""]) != _options(request):
        return False
    if following.is_done("cameras"):
        return True
    if is_whole or photos.positions or request.cameras or request.lens or not request.images.is_dir() or not before:
        return False
    is_other = not steps.is_begun("photographs") and not (steps.folder / OVERLAY).exists()
    has_masks = (request.target / "mask").is_dir()
    return is_other and more.can_grow(before, photos.sources) and has_masks == bool(request.masks)


def _grow(
    request: Request,
    photos: Photographs,
    mask_paths: Sequence[Path],
    boxes: Mapping[str, np.ndarray],
    before: Sequence[Frame],
    following: Steps,
    say: Say,
) -> None:
    """Register the new photographs in the scene, whose frame and region stay, and write it again."""
    work = request.target / WORK
    removed = [frame.source for frame in before if frame.source not in photos.sources]
    added = len(photos.paths) - len(before) + len(removed)
    say(f"{request.target}: photographs added to the scene: {added}, removed from it: {len(removed)}")
    copy = partial(more.copy_all, photos, before, work, following.folder)
    frames = following.run(Step("photographs", copy, (sfm.IMAGES,), read=lambda rows: [Frame(**row) for row in rows]))
    extract = partial(more.find_all_features, work, following.folder, frames)
    fill_database(following, frames, extract, partial(sfm.match_features, following.folder, frames, False))
    register = partial(more.register, work, following.folder, request.target, frames)
    model = following.run(Step("cameras", register, (sfm.MODELS,)))
    say(f"cameras of {len(model['names'])} of {len(frames)} photographs, {model['points']} points")
    for note in model["notes"]:
        say(note)
    if request.masks not in ("", *masks.WITH_CAMERAS):
        _add_masks(request, following, frames, photos.paths, mask_paths)
    called = {frame.name: frame.source for frame in frames}
    world = partial(more.as_before, model=model, following=following.folder, target=request.target, called=called)
    _write(request, following, frames, cut_of(request.masks, boxes, True), world, say)
    more.adopt(following.folder, work, FINISHED)


def _inputs(
    request: Request,
    photos: Photographs,
    mask_paths: Sequence[Path],
    boxes: Mapping[str, np.ndarray],
    given: GivenCameras | None,
) -> dict[str, object]:
    """The inputs of each step, in the order of the steps."""
    drawn = [[name, box.tolist()] for name, box in boxes.items()]
    method = request.masks if request.masks in ("", *masks.METHODS) else "files"  # independent of their folder
    is_video = not request.images.is_dir()
    return {
        "photographs": [
            [[source, *row[1:]] for source, row in zip(photos.sources, fingerprint(photos.paths), strict=True)],
            *(request.frames if is_video else 0, MAX_SIDE),
            *(["panorama"] if request.is_panorama else []),
            *sorted({name for path in photos.paths if not is_video and (name := profile_note(path))}),
        ],
        "features": given.numbers() if given is not None and request.lens else [],
        "matches": [is_video, *([method, fingerprint(mask_paths)] if photos.positions else [])],
        "cameras": given.numbers() if given is not None and request.cameras else [],
        "masks": [method, fingerprint(mask_paths), *([drawn] if drawn else [])],
        FINISHED: _options(request),
    }


def _options(request: Request) -> list[object]:
    """The inputs of the last step, as JSON values."""
    return [
        request.roi,
        *(["outside"] if request.cameras_outside else []),
        *(["size", request.known.marker, *request.known.length] if request.known != Known() else []),
    ]


def _require_joinable(request: Request, photos: Photographs, is_whole: bool) -> None:
    """Raises UserError unless photographs of several positions of the object have masks and can be used together."""
    named = f"--images {request.images}: photographs of {len(photos.positions)} positions ({listed(photos.positions)})"
    if is_whole or request.cameras:
        raise UserError(f"{named}: leave out --cameras and panoramas, or give one of these subfolders")
    if request.masks in ("", *masks.WITH_CAMERAS):
        lack = [name for name, path in zip(photos.names, photos.paths, strict=True) if path not in photos.masks]
        without = f" ({listed(lack)} have none)" if photos.masks else ""
        raise UserError(
            f"{named} are joined by the object alone, so each photograph needs a mask{without}: give a folder masks/ "
            "in each subfolder, --masks colorkey or rembg (with box, prepare each alone, and give copies of its image/ "
            "and mask/); or move the photographs together, if the object did not move"
        )


def _check_masks(request: Request, photos: Photographs) -> list[Path]:
    """The mask file of each image, or [] without mask files; raises UserError if the masks cannot be made."""
    if request.masks == "rembg":
        masks.require_rembg()
    if request.masks in ("", *masks.METHODS):
        return []
    if not request.images.is_dir():
        raise UserError(f"--masks {request.masks}: frames of a video have no files of masks; use colorkey or grabcut")
    if Path(request.masks).resolve() == request.images.resolve():
        return masks_of(request.images, photos)
    return masks.require_masks(Path(request.masks), photos.names)


def _is_finished(request: Request, steps: Steps, say: Say) -> bool:
    """Whether the scene folder has the complete result; raises UserError if it has another scene."""
    there = [name for name in products.PRODUCTS if (request.target / name).exists()]
    if not there or request.overwrite:
        return False
    if steps.is_done(FINISHED) and products.CAMERA_FILE in there:
        return _is_whole(request, steps, say)
    if steps.is_begun(FINISHED):
        return False  # they are from an interrupted run with the same inputs
    if steps.was_run(FINISHED):
        raise UserError(
            f"{request.target}: contains a scene of other photographs or options ({_other(request, steps)}); pass "
            "--overwrite to replace it, or choose another --case"
        )
    products.require_made(steps.folder, request.target, bool(request.masks))
    raise UserError(
        f"{request.target}: already contains {', '.join(there)}; pass --overwrite to replace them, or choose another "
        "--case"
    )


def _other(request: Request, steps: Steps) -> str:
    """Which inputs of the scene were others, in words."""
    options = (steps.result(FINISHED) or {}).get("options")
    last = "--masks" if options == _options(request) else "--roi, --marker, --scale or --conf"
    return next((words for name, words in INPUTS.items() if steps.was_run(name) and not steps.is_begun(name)), last)


def _is_whole(request: Request, steps: Steps, say: Say) -> bool:
    """Whether all written files exist; raises UserError if restoring them would undo changes by others."""
    result = steps.result(FINISHED)
    written = result.get("files") if isinstance(result, dict) else None
    damaged, changed = products.differences(request.target, written if isinstance(written, dict) else {})
    if damaged and changed:
        raise UserError(
            f"{request.target}: {listed(damaged)}: missing or damaged, and {listed(changed)}: changed since; restore "
            "the former, or pass --overwrite to write everything again"
        )
    if damaged:
        say(f"{listed(damaged)}: missing or damaged; the scene is written again")
    return not damaged


def _copy_frames(request: Request, photos: Photographs, steps: Steps, say: Say) -> list[Frame]:
    """Copy the images to the work folder and log their number, sizes and focal lengths."""
    folder, sources = steps.folder / sfm.IMAGES, photos.paths

    def work() -> list[dict[str, object]]:
        is_folder = request.images.is_dir()
        with Bar("photographs", len(sources) if is_folder else None, "photo" if is_folder else "frame") as bar:
            if is_folder:
                return copy_images(sources, folder, bar, request.is_panorama)
            return copy_video(sources[0], request.frames, folder, bar, request.is_panorama)

    later = ("features", "matches", "cameras", "masks")
    frames = steps.run(Step("photographs", work, (sfm.IMAGES,), later, lambda value: [Frame(**one) for one in value]))
    if photos.positions:
        frames = [replace(frame, source=source) for frame, source in zip(frames, photos.sources, strict=True)]
    say(describe(groups(frames)))
    return frames


def _add_masks(
    request: Request, steps: Steps, frames: Sequence[Frame], sources: Sequence[Path], mask_paths: Sequence[Path]
) -> None:
    """Run the step that makes the masks of the frames."""
    method, folder = request.masks, steps.folder / sfm.MASKS
    images = [steps.folder / sfm.IMAGES / frame.name for frame in frames]

    def work() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        find = masks.finder(method, images) if method in masks.METHODS else None
        with Bar("masks", len(frames)) as bar:
            for number, frame in enumerate(frames):
                if find is None:
                    mask = masks.read_mask(mask_paths[number], (frame.width, frame.height), sources[number])
                else:
                    mask = find(rgb_of(read_image(images[number])))
                write_image(folder / f"{frame.name}.png", mask)
                bar.update()

    steps.run(Step("masks", work, (sfm.MASKS,)))
