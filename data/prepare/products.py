"""The files of the scene folder: written in the work folder, moved to their places, recorded, and verified later.

The record of what `--mode prepare` wrote is what it may replace and remove.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import INVALID, UserError, listed
from data.io.files import LINK_WORDS, make_folder, missing_folders, read_regular, remove, remove_empty, write_result
from data.io.headers import ImageError
from data.io.images import IMAGE_SUFFIXES, read_image, write_image
from data.io.lock import FileLock
from data.parsed_scene import MASK_HALF, ParsedScene, WorldFrame
from data.pixels import size_of, size_within
from data.prepare.adjust import triangulated
from data.prepare.frames import Frame
from data.prepare.inspection.overview import overview
from data.prepare.masks import LEAST_COVER, METHODS, MOST_COVER, Cut
from data.prepare.sfm.stages import DATABASE, LOG
from data.prepare.steps import is_as_noted
from data.scenes.config import DatasetConfig
from data.scenes.preprocess import preprocess
from data.scenes.readers.colmap import read_colmap
from data.scenes.readers.neus import CAMERA_FILE, FRAME_FILE, POINTS_FILE, REFERENCE_FILE, write_neus_scene
from data.scenes.scene import Scene
from data.scenes.scene_checks import check_scene

FRESH = "scene"  # subfolder of the work folder in which they are written first
MASK_SHEET = "masks.png"
OVERVIEW = "overview.png"
# The files and folders of the scene folder, in the order of writing. A folder with the camera file counts as a scene:
# the file is written last and removed first.
PRODUCTS = ("image", "mask", Path(POINTS_FILE).parts[0], MASK_SHEET, OVERVIEW, REFERENCE_FILE, FRAME_FILE, CAMERA_FILE)
THUMBNAIL = 200  # pixels of the longer side
MOST = 60  # images on a sheet, evenly chosen
OUTLINE = (255, 64, 0)
DIM = 0.3  # brightness of the background
RECORD = "made.json"  # in the work folder
OLDER_RECORD = "scene.json"  # written by versions without the record
MOST_BYTES = 1 << 26  # of the record, enough for a million names

_NAME = re.compile(
    r"(image|mask)/[0-9]{3,}\.png|sparse/points\.ply|masks\.png|overview\.png|cameras_sphere\.npz|(frame|reference)\.json"
)
_FOLDERS = ("image", "mask", "sparse")
LOCK_NAME = ".prepare.lock"


def write_scene(
    work: Path,
    target: Path,
    frames: Sequence[Frame],
    roi: str,
    cameras_outside: bool,
    cut: Cut | None,
    world: Callable[[ParsedScene], ParsedScene],
    check: Callable[[Scene], str] | None = None,
) -> list[str]:
    """Undistort the images and write the scene folder; returns notes for the log.

    `world` turns the world frame upright and scales it. `cut` adds masks that need cameras; with `cameras_outside` the
    region is shrunk until no camera is inside. `check` gives a note on the scene. Raises UserError if the region, these
    masks or the check fail, or writing fails.
    """
    conf = DatasetConfig(str(work), CAMERA_FILE, CAMERA_FILE, cameras_outside, roi=roi)
    parsed = world(replace(read_colmap(work, conf), name=target.resolve().name, source=target, notes=()))
    with np.errstate(all="ignore"):  # overflow is detected by the checks of the result
        scene = check_scene(preprocess(parsed, parsed.images, conf, find_points=triangulated), cameras_outside)
    called = {frame.name: frame.source for frame in frames}
    scene = replace(scene, image_names=tuple(called[name] for name in scene.image_names))
    if cut is not None:
        scene = cut(scene)
    checks = [] if check is None else [check(scene)]
    fresh = work / FRESH
    remove(fresh)
    write_neus_scene(fresh, scene)
    if scene.masks is not None:
        write_image(fresh / MASK_SHEET, contact_sheet(scene.images, scene.masks))
    write_image(fresh / OVERVIEW, overview(scene))
    return [*scene.notes, *checks, *_frame_notes(scene.frame), *_mask_notes(scene), *_put(work, target)]


def _frame_notes(frame: WorldFrame | None) -> list[str]:
    """Notes on the up direction and the unit."""
    if frame is None:
        return []
    error = "" if frame.scale_error is None else f", ± {frame.scale_error:.2%}"
    scale = (
        f"metres, from {frame.scale_source}{error}" if frame.is_metric else "not known; --marker or --scale gives it"
    )
    grid = frame.reference
    notes = [f"up: z, from {frame.up_source}", f"unit: {scale}"]
    if grid is not None:
        off = f"{grid.accuracy[0]:.2g} m, heights {grid.accuracy[1]:.2g} m (RMS of {grid.photographs} positions)"
        notes.append(f"map grid: UTM zone {grid.zone}, {off}, see {REFERENCE_FILE}; --frame utm writes meshes in it")
    return notes


def _mask_notes(scene: Scene) -> list[str]:
    """A note on the fraction that the masks cover, and on masks that are nearly empty or full."""
    if scene.masks is None:
        return []
    shares = np.array([np.mean(mask > MASK_HALF) for mask in scene.masks])
    odd = np.flatnonzero((shares < LEAST_COVER) | (shares > MOST_COVER))
    named = f"; look at {listed([f'{view:03d}' for view in odd])}, which are nearly empty or full" if len(odd) else ""
    return [f"masks cover {shares.min():.0%} to {shares.max():.0%} of the photographs, see {MASK_SHEET}{named}"]


def _put(work: Path, target: Path) -> list[str]:
    """Move the products from the work folder to `target`; products of earlier runs are removed.

    Returns notes for the log. Raises UserError, with nothing changed, if a foreign file is in their place.
    """
    fresh, made = work / FRESH, made_here(work, target)
    new = [path.relative_to(fresh).as_posix() for path in sorted(fresh.rglob("*")) if path.is_file()]
    require_free(target, new, made)
    record(work, {*new, *made})
    for name in sorted(made, key=_place, reverse=True):
        remove(target / name)
    for name in sorted(new, key=_place):
        make_folder(target, Path(name).parent)
        (fresh / name).replace(target / name)
    remove_empty(target / name for name in PRODUCTS)
    remove(fresh)
    record(work, new)
    images = [path for kind in ("image", "mask") for path in sorted((target / kind).glob("*"))]
    names = [path.relative_to(target).as_posix() for path in images if path.suffix.lower() in IMAGE_SUFFIXES]
    foreign = [name for name in names if name not in new]
    return [f"{listed(foreign)}: not made by --mode prepare, unchanged, and read with the scene"] if foreign else []


def _place(name: str) -> int:
    return PRODUCTS.index(Path(name).parts[0])


def differences(target: Path, written: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """(damaged, changed): the names of missing or truncated products, and of products with other content.

    written: size and checksum of each product when it was written, from `steps.noted`.
    """
    other = [name for name, size_and_sum in written.items() if not is_as_noted(target / name, size_and_sum)]
    damaged = [name for name in other if not _is_usable(target / name, written[name])]
    return damaged, [name for name in other if name not in damaged]


def _is_usable(path: Path, size_and_sum: Any) -> bool:
    """Whether the file is an image that can be decoded, or another file of at least its original size."""
    try:
        if path.suffix.lower() in IMAGE_SUFFIXES:
            return read_image(path).size > 0
        return path.is_file() and path.stat().st_size >= size_and_sum[0]
    except (ImageError, OSError, ValueError, TypeError, LookupError):
        return False


def contact_sheet(images: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> np.ndarray:
    """Thumbnails of RGB images [H, W, 3] with their masks [H, W], uint8, as one image uint8 [h, w, 3]."""
    chosen = evenly_spaced(len(images), MOST)
    tiles = [_tile(images[index], masks[index]) for index in chosen]
    columns = int(np.ceil(np.sqrt(len(tiles))))
    sheet = np.zeros((-(-len(tiles) // columns) * THUMBNAIL, columns * THUMBNAIL, 3), np.uint8)
    for number, tile in enumerate(tiles):
        y, x = THUMBNAIL * (number // columns), THUMBNAIL * (number % columns)
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    return sheet


def _tile(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    size = size_within(size_of(image), THUMBNAIL)[0]
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    inside = cv2.resize(mask, size, interpolation=cv2.INTER_AREA) > 127
    tile = np.where(inside[..., None], small, (small * DIM).astype(np.uint8))
    outlines, _ = cv2.findContours(inside.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.ascontiguousarray(tile), outlines, -1, OUTLINE, 1)


def made_here(work: Path, target: Path) -> frozenset[str]:
    """The recorded names below `target`, whether the files still exist or not.

    If the record is damaged, all files with names of this mode, except masks, which may be drawn by hand.
    """
    if not any(os.path.lexists(work / name) for name in (RECORD, OLDER_RECORD)):
        return frozenset()
    try:
        names = json.loads(read_regular(work / RECORD, MOST_BYTES))["names"]
        return frozenset(name for name in names if _NAME.fullmatch(name))
    except (OSError, *INVALID):
        return frozenset(name for name in _candidates(target) if not name.startswith("mask/"))


def record(work: Path, names: Iterable[str]) -> None:
    """Write the record; raises UserError if writing fails."""
    write_result(work / RECORD, json.dumps({"names": sorted(names)}, indent=1).encode())


def require_made(work: Path, target: Path, has_masks: bool) -> None:
    """Raises UserError if a file that a run would write exists and is not recorded; `has_masks`: masks too."""
    made = made_here(work, target)
    require_free(target, [name for name in _candidates(target) if has_masks or not name.startswith("mask/")], made)


def require_free(target: Path, names: Iterable[str], made: Iterable[str]) -> None:
    """Raises UserError if one of `names` exists and is not in `made`, or if a folder is a link."""
    links = [target / folder for folder in _FOLDERS if (target / folder).is_symlink()]
    if links:
        raise UserError(f"{links[0]}: {LINK_WORDS}")
    foreign = sorted(name for name in set(names).difference(made) if os.path.lexists(target / name))
    if foreign:
        raise UserError(
            f"{target}: {listed(foreign)}: exists and was not made by --mode prepare, which replaces only its own "
            "files; move it elsewhere, or choose another --case"
        )


def _candidates(target: Path) -> list[str]:
    """The existing files below `target` with names of this mode."""
    paths = [*target.glob("*"), *(path for folder in _FOLDERS for path in (target / folder).glob("*"))]
    return [name for name in (path.relative_to(target).as_posix() for path in paths) if _NAME.fullmatch(name)]


def require_apart(images: Path, mask_source: str, target: Path, work: str) -> None:
    """Raises UserError if an input is in a folder that will be written."""
    given = {"--images": images}
    if mask_source not in ("", *METHODS):
        given["--masks"] = Path(mask_source)
    for flag, path in given.items():
        for name in (work, *PRODUCTS):
            product = (target / name).resolve()
            if product == path.resolve() or product in path.resolve().parents:
                raise UserError(f"{flag} {path}: is in {product}, which would be overwritten; move it elsewhere")


def require_no_links(work: Path) -> None:
    """Raises UserError if a file of an earlier run that will be appended to is a link, or not a file."""
    for name in (LOCK_NAME, LOG, str(Path(DATABASE).parent)):
        path = work / name
        if path.is_symlink():
            raise UserError(f"{path}: is a link, and this program does not write through links; remove it")
        if name in (LOCK_NAME, LOG) and path.exists() and not path.is_file():
            raise UserError(f"{path}: is not a file; remove it")


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Create and lock `folder` while the body runs; raises UserError if another process holds the lock.

    Afterwards the lock file is removed, and the created folders too if they are empty. Raises OSError if the folder
    cannot be created or written.
    """
    made = missing_folders(folder)
    rest = f"is running in {folder.parent}: wait for it, stop it, or choose another --case"
    try:
        lock = FileLock(folder / LOCK_NAME, "another --mode prepare", rest)
        try:
            yield
        finally:
            lock.remove()
    finally:
        remove_empty(made)
