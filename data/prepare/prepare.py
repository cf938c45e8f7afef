"""From photographs or a video to a scene folder that can be trained on, step by step.

Everything in between lies in `<scene folder>/prepare`; a second call goes on where the first one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data.config import DatasetConfig
from data.develop import develop
from data.errors import UserError, listed
from data.images import read_image, rgb_of, write_image
from data.inspection.overview import overview
from data.prepare import masks
from data.prepare.frames import MAX_SIDE, Frame, copy_pictures, copy_video, describe, find_pictures, groups
from data.prepare.progress import Bar
from data.prepare.reconstruct import DATABASE, IMAGES, MODELS, PAIR_LIST, find_features, map_images, match_features
from data.prepare.sheet import contact_sheet
from data.prepare.steps import Steps, fingerprint, remove
from data.readers.colmap import read_colmap
from data.roi.region import parse_roi
from data.scene import MASK_HALF, Scene, check_scene
from data.writers.neus import CAMERA_FILE, POINTS_FILE, write_neus_scene

WORK = "prepare"
MASKS = "masks"
FINISHED = "scene"
MASK_SHEET = "masks.png"
OVERVIEW = "overview.png"
# What the scene folder gets. The camera file makes it a scene: it comes last and goes first.
PRODUCTS = ("image", "mask", str(Path(POINTS_FILE).parent), MASK_SHEET, OVERVIEW, CAMERA_FILE)
LEAST_COVER, MOST_COVER = 0.005, 0.9  # shares of a photograph outside which its mask deserves a look
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What is to be prepared."""

    images: Path  # a folder of photographs, or a video
    target: Path  # the scene folder
    frames: int  # to take from a video
    masks: str = ""  # one of `masks.METHODS`, a folder, or "" for none
    overwrite: bool = False  # replace a scene that is there
    roi: str = ""  # region of interest "x y z r" in the frame of the cameras, as `dataset.roi`


def prepare(request: Request, say: Say) -> bool:
    """Prepare the scene; False where it was finished before and nothing is done.

    `say` gets a line for each thing its user should hear. Raises UserError for whatever cannot be used or fails, before
    any long work where that can be known.
    """
    try:
        if request.roi:
            parse_roi(request.roi)  # a mistake is told now, and not after minutes
        sources = find_pictures(request.images)
        mask_paths = _check_masks(request, sources)
        _require_apart(request)
        steps = Steps(request.target / WORK, _inputs(request, sources, mask_paths), say)
        if _is_finished(request, steps):
            return False
        frames = _photographs(request, sources, steps, say)
        _masks_of_frames(request, frames, sources, mask_paths, steps)  # before the long work: a backdrop may be none
        _cameras(request, frames, steps, say)
        steps.forget(FINISHED)
        for note in steps.run(FINISHED, (), lambda: _write_scene(request, frames)):
            say(note)
    except OSError as error:
        named = error.filename or request.target
        raise UserError(f"{named}: {error.strerror or error}; check the folder and the space on the disk") from error
    return True


def _inputs(request: Request, sources: Sequence[Path], mask_paths: Sequence[Path]) -> dict[str, object]:
    """What each step depends on, in their order."""
    is_video = not request.images.is_dir()
    return {
        "photographs": [fingerprint(sources), request.frames if is_video else 0, MAX_SIDE],
        "features": [],
        "matches": [is_video],
        "cameras": [],
        "masks": [request.masks, fingerprint(mask_paths)],
        FINISHED: [request.roi],
    }


def _check_masks(request: Request, sources: Sequence[Path]) -> list[Path]:
    """The mask files, one for each photograph, or []; raises UserError for what cannot be done."""
    if request.masks == "rembg":
        masks.require_rembg()
    if request.masks in ("", *masks.METHODS):
        return []
    if not request.images.is_dir():
        raise UserError(f"--masks {request.masks}: frames of a video have no files of masks; use colorkey or grabcut")
    return masks.mask_files(Path(request.masks), [path.name for path in sources])


def _require_apart(request: Request) -> None:
    """Raises UserError where an input lies in a folder that is about to be written."""
    given = {"--images": request.images}
    if request.masks not in ("", *masks.METHODS):
        given["--masks"] = Path(request.masks)
    for flag, path in given.items():
        for name in (WORK, *PRODUCTS):
            product = (request.target / name).resolve()
            if product == path.resolve() or product in path.resolve().parents:
                raise UserError(f"{flag} {path}: lies in {product}, which is written here; move it elsewhere")


def _is_finished(request: Request, steps: Steps) -> bool:
    """Whether the scene folder holds what would be made; raises UserError where it holds something else."""
    there = [name for name in PRODUCTS if (request.target / name).exists()]
    if not there or request.overwrite:
        return False
    if steps.is_done(FINISHED) and CAMERA_FILE in there:
        return True
    if steps.is_begun(FINISHED):
        return False  # an interrupted run of the same left them
    if steps.was_run(FINISHED):
        raise UserError(
            f"{request.target}: holds the scene of other photographs or options; pass --overwrite to replace it, or "
            "choose another --case"
        )
    raise UserError(
        f"{request.target}: holds {', '.join(there)} already; pass --overwrite to replace that, or choose another "
        "--case"
    )


def _photographs(request: Request, sources: Sequence[Path], steps: Steps, say: Say) -> list[Frame]:
    """The photographs in the work folder."""
    folder = steps.folder / IMAGES

    def work() -> list[dict[str, object]]:
        is_folder = request.images.is_dir()
        with Bar("photographs", len(sources) if is_folder else None, "photo" if is_folder else "frame") as bar:
            if is_folder:
                return copy_pictures(sources, folder, bar)
            return copy_video(sources[0], request.frames, folder, bar)

    frames = [Frame(**frame) for frame in steps.run("photographs", (IMAGES,), work)]
    say(describe(groups(frames)))
    return frames


def _cameras(request: Request, frames: Sequence[Frame], steps: Steps, say: Say) -> None:
    """Find the cameras of the photographs and say how it went."""
    is_video = not request.images.is_dir()
    database = str(Path(DATABASE).parent)
    steps.run("features", (database,), lambda: find_features(steps.folder, groups(frames)), is_resumable=True)
    steps.run("matches", (PAIR_LIST,), lambda: match_features(steps.folder, frames, is_video), is_resumable=True)
    model = steps.run("cameras", (MODELS,), lambda: map_images(steps.folder, frames))
    say(
        f"cameras of {len(model['names'])} of {len(frames)} photographs, {model['points']} points, mean reprojection "
        f"error {model['error']:.2f} px"
    )
    for note in model["notes"]:
        say(note)


def _masks_of_frames(
    request: Request, frames: Sequence[Frame], sources: Sequence[Path], mask_paths: Sequence[Path], steps: Steps
) -> None:
    """Fill masks/ of the work folder, from which the reader takes them; GrabCut's come later, with the cameras."""
    if request.masks in ("", "grabcut"):
        remove(steps.folder / MASKS)
        return
    steps.run("masks", (MASKS,), lambda: _write_masks(request.masks, steps.folder, frames, sources, mask_paths))


def _write_masks(
    method: str, work: Path, frames: Sequence[Frame], sources: Sequence[Path], mask_paths: Sequence[Path]
) -> None:
    (work / MASKS).mkdir(parents=True, exist_ok=True)
    pictures = [work / IMAGES / frame.name for frame in frames]
    find = masks.finder(method, pictures) if method in masks.METHODS else None
    with Bar("masks", len(frames)) as bar:
        for number, frame in enumerate(frames):
            if find is None:
                mask = masks.read_mask(mask_paths[number], (frame.width, frame.height), sources[number])
            else:
                mask = find(rgb_of(read_image(pictures[number])))
            write_image(work / MASKS / f"{frame.name}.png", mask)
            bar.update()


def _write_scene(request: Request, frames: Sequence[Frame]) -> list[str]:
    """Develop the photographs and put the products in their place; returns what is to be said."""
    work = request.target / WORK
    conf = DatasetConfig(str(work), CAMERA_FILE, CAMERA_FILE, roi=request.roi)
    capture = replace(read_colmap(work, conf), name=request.target.resolve().name, notes=())
    with np.errstate(all="ignore"):  # numbers that overflow are found by their results, and named
        scene = check_scene(develop(capture, capture.photographs, conf))
    called = {frame.name: frame.source for frame in frames}
    scene = replace(scene, image_names=tuple(called[name] for name in scene.image_names))
    if request.masks == "grabcut":
        scene = _with_grabcut(scene)
    fresh = work / FINISHED
    remove(fresh)
    write_neus_scene(fresh, scene)
    if scene.masks is not None:
        write_image(fresh / MASK_SHEET, contact_sheet(scene.images, scene.masks))
    write_image(fresh / OVERVIEW, overview(scene))
    _put(fresh, request.target)
    return [*scene.notes, *_mask_notes(scene)]


def _with_grabcut(scene: Scene) -> Scene:
    """The scene with masks by GrabCut, which starts from the unit sphere in each view."""
    found = []
    with Bar("masks", scene.n_views) as bar:
        for picture, intrinsics, c2w in zip(scene.images, scene.intrinsics, scene.c2w, strict=True):
            found.append(masks.grab_cut(picture, intrinsics, c2w))
            bar.update()
    share = np.median([np.mean(mask > MASK_HALF) for mask in found])
    if not LEAST_COVER <= share <= MOST_COVER:
        full = "the region of interest fills the photographs, so that nothing tells what is background"
        empty = "what lies in the region of interest has the colours of what lies around it"
        raise UserError(
            f"--masks grabcut: {full if share > MOST_COVER else empty}; leave --masks out, or choose another --roi"
        )
    return check_scene(replace(scene, masks=tuple(found)))


def _mask_notes(scene: Scene) -> list[str]:
    """What is to be said of the masks: how much they cover, and where they cover nothing or nearly all."""
    if scene.masks is None:
        return []
    shares = np.array([np.mean(mask > MASK_HALF) for mask in scene.masks])
    odd = np.flatnonzero((shares < LEAST_COVER) | (shares > MOST_COVER))
    named = f"; look at {listed([f'{view:03d}' for view in odd])}, which are nearly empty or full" if len(odd) else ""
    return [f"masks cover {shares.min():.0%} to {shares.max():.0%} of the photographs, see {MASK_SHEET}{named}"]


def _put(fresh: Path, target: Path) -> None:
    """Move the products from `fresh` to their places in `target`; what is there is replaced."""
    for name in reversed(PRODUCTS):
        remove(target / name)
    for name in PRODUCTS:
        if (fresh / name).exists():
            (fresh / name).replace(target / name)
    remove(fresh)
