"""Photographs added to a prepared scene, or removed: the new ones are registered in its model, and the frame stays.

The earlier cameras are kept as they are. Everything is written to a folder of its own below the work folder, and moved
to its place when the scene is complete, so that an interrupted call is continued by the next one.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from data.errors import INVALID, UserError, listed
from data.io.clock import phase
from data.io.files import read_regular, remove
from data.parsed_scene import ParsedScene, WorldFrame, transformed
from data.prepare.beside import Photographs
from data.prepare.frames import VIEW_NAME, Frame, copy_images, groups
from data.prepare.given_cameras import to_world
from data.prepare.products import RECORD, only_one
from data.prepare.sfm import stages as sfm
from data.prepare.sfm.colmap_tasks import SEED, Report, known_images
from data.prepare.sfm.joining import add_image
from data.prepare.sfm.mapping import described_model
from data.prepare.sfm.matches import copy_database
from data.prepare.sources import MIN_IMAGES
from data.prepare.steps import Bar, Say, Steps
from data.scenes.readers.neus import CAMERA_FILE, FRAME_FILE, REFERENCE_FILE, read_frame

NEXT = "next"  # subfolder of the work folder in which the scene with all photographs is made
EARLIER = "earlier"  # in it: the frame files of the scene
LEAST_COMMON = 0.5  # of the earlier photographs must be among those given now
LEAST_REGISTERED = 3  # points per earlier image that a model needs


def earlier_frames(steps: Steps) -> list[Frame]:
    """The frames of a prepared scene by the results of its steps; [] without one, and of panoramas."""
    try:
        rows = steps.result("photographs") or []
        return [] if any(VIEW_NAME.fullmatch(row["name"]) for row in rows) else [Frame(**row) for row in rows]
    except INVALID:
        return []


def in_earlier_order(found: Photographs, frames: Sequence[Frame], work: Path) -> Photographs:
    """The photographs that are among the frames, also under other names, in their order, then the others."""
    own = {frame.source for frame in frames}
    lost = {frame.source: work / sfm.IMAGES / frame.name for frame in frames if frame.source not in found.names}
    others = [path for path, name in zip(found.paths, found.names, strict=True) if name not in own]
    renamed = {}
    if lost and others:
        with TemporaryDirectory() as folder, Bar("photographs", len(others)) as bar:
            copied = [Path(folder) / str(row["name"]) for row in copy_images(others, Path(folder), bar)]
            for path, copy in zip(others, copied, strict=True):
                source = next((source for source, image in lost.items() if _is_same(image, copy)), None)
                if source is not None:
                    renamed[path] = source
                    del lost[source]
    place = {frame.source: number for number, frame in enumerate(frames)}
    named = dict(zip(found.paths, replace(found, renamed=renamed).sources, strict=True))
    paths = sorted(found.paths, key=lambda path: place.get(named[path], len(place)))
    return replace(found, paths=paths, renamed=renamed)


def can_grow(frames: Sequence[Frame], sources: Sequence[str]) -> bool:
    """Whether enough of the earlier photographs are given again."""
    common = {frame.source for frame in frames}.intersection(sources)
    return len(common) >= max(MIN_IMAGES, LEAST_COMMON * len(frames))


def start(following: Path, work: Path) -> None:
    """An empty folder NEXT with the record of the files of the scene."""
    remove(following)
    following.mkdir()
    shutil.copy(work / RECORD, following / RECORD)


def copy_all(found: Photographs, frames: Sequence[Frame], work: Path, following: Path) -> list[dict[str, object]]:
    """Copy the photographs, with the numbers of the earlier frames and further ones; returns their frames.

    Raises UserError if the content of an earlier photograph changed.
    """
    number_of = {frame.source: int(Path(frame.name).stem) for frame in frames}
    further = itertools.count(1 + max(number_of.values()))
    numbers = [number_of[source] if source in number_of else next(further) for source in found.sources]
    with Bar("photographs", len(numbers)) as bar:
        rows = copy_images(found.paths, following / sfm.IMAGES, bar, numbers=numbers)
    copied = [{**row, "source": source} for row, source in zip(rows, found.sources, strict=True)]
    names = {frame.source: frame.name for frame in frames}
    changed = [
        str(row["source"])
        for row in copied
        if (name := names.get(str(row["source"])))
        and not _is_same(work / sfm.IMAGES / name, following / sfm.IMAGES / str(row["name"]))
    ]
    if changed:
        raise UserError(
            f"{listed(changed)}: changed since the scene was prepared; pass --overwrite to prepare it again"
        )
    return copied


def _is_same(one: Path, other: Path) -> bool:
    return one.is_file() and read_regular(one) == read_regular(other)


def find_all_features(work: Path, following: Path, frames: Sequence[Frame]) -> None:
    """The features of the earlier frames from their database, and those of the others."""
    if not (following / sfm.DATABASE).is_file():
        (following / sfm.DATABASE).parent.mkdir(exist_ok=True)
        copy_database(work / sfm.DATABASE, following / sfm.DATABASE)
    sfm.find_features(following, groups(frames))


def register(work: Path, following: Path, target: Path, frames: Sequence[Frame]) -> dict[str, Any]:
    """Register the new frames in the model of the work folder; the result of `map_images`, "change" and "region".

    These [4, 4] map the model, and the unit sphere, to the world frame of the scene, whose files are kept in EARLIER.
    Raises UserError if the model cannot be extended.
    """
    (following / EARLIER).mkdir(exist_ok=True)
    for name in (FRAME_FILE, REFERENCE_FILE):
        if (target / name).is_file():
            shutil.copy(target / name, following / EARLIER / name)
    model, change, scale_mat = to_world(work, target)
    before, called = str(model.source), {frame.name: frame.source for frame in frames}
    further = following / sfm.FURTHER / "matches.db"  # whose cameras become those of the model
    remove(further.parent)
    further.parent.mkdir()
    copy_database(following / sfm.DATABASE, further)
    paths = (str(path) for path in (further, following / sfm.IMAGES, following / sfm.MODELS))
    with phase("mapping"):
        found = sfm.apart(following, sfm.WHOLE, register_images, *paths, before, list(called), sfm.cores())
    remove(further.parent)
    if found["points"] < LEAST_REGISTERED * len(found["names"]):
        raise UserError(
            f"{target}: its cameras share {found['points']} points with the photographs, so others cannot be added; "
            "pass --overwrite to prepare all again"
        )
    names = [called[name] for name in found["names"]]
    without = [source for source in called.values() if source not in names]
    notes = [f"no camera was found for {len(without)} photographs: {listed(without)}"] if without else []
    return {**found, "names": names, "notes": notes, "change": change.tolist(), "region": scale_mat.tolist()}


def register_images(
    report: Report, database: str, images: str, output: str, earlier: str, names: Sequence[str], cores: int
) -> dict[str, Any]:
    """The model in the folder `earlier` without images that are not in `names`, and with the others of the database.

    For `run_apart`. Its cameras are constant: their points are triangulated anew, then COLMAP's mapper adds images.
    """
    import pycolmap

    pycolmap.set_random_seed(SEED)
    keys = known_images(database)
    model, kept = pycolmap.Reconstruction(earlier), pycolmap.Reconstruction()
    with pycolmap.Database.open(database) as opened:
        for camera in model.cameras.values():
            opened.update_camera(camera)
        pixels = {image.name: opened.read_keypoints(image.image_id)[:, :2] for image in opened.read_all_images()}
    for camera in model.cameras.values():
        kept.add_camera(camera)
    for rig in model.rigs.values():
        kept.add_rig(rig)
    for image in model.images.values():
        if image.has_pose and image.name in names and image.name in keys:
            add_image(kept, model, image, image.cam_from_world(), np.asarray(pixels[image.name], float))
    options = pycolmap.IncrementalPipelineOptions(num_threads=cores, random_seed=SEED, image_path=images)
    options.mapper.random_seed = options.triangulation.random_seed = SEED
    options.fix_existing_frames, options.constant_cameras = True, set(kept.cameras)
    options.image_names, options.multiple_models = list(names), False
    with TemporaryDirectory() as folder:
        given = Path(folder) / "given"
        given.mkdir()
        kept = pycolmap.triangulate_points(kept, database, images, folder, options=options)
        kept.write(str(given))
        found = pycolmap.incremental_mapping(database, images, folder, options=options, input_path=str(given))
    best = max(found.values(), key=lambda one: one.num_reg_images(), default=kept)
    place = Path(output) / "0"
    place.mkdir(parents=True)
    best.write(str(place))
    return described_model("0", best)


def as_before(
    parsed: ParsedScene, model: Mapping[str, Any], following: Path, target: Path, called: Mapping[str, str]
) -> ParsedScene:
    """The registered scene in frame and region of the earlier one. `called`: the photograph of each frame."""
    frame = read_frame(following / EARLIER / FRAME_FILE) or WorldFrame("")
    shown = {image.path.name for image in parsed.images}
    errors = {called[name]: error for name, error in model["errors"].items() if name in shown}
    without = tuple(source for name, source in called.items() if name not in shown)
    frame = replace(frame, photographs={}, camera_errors=errors, without_camera=without)
    placed = transformed(parsed, np.array(model["change"]), frame)
    return replace(placed, source=target / CAMERA_FILE, scale_mat=np.array(model["region"]))


def finish(work: Path, last: str, say: Say) -> None:
    """Adopt what an interrupted call left complete in NEXT: the step `last` has a result there."""
    if Steps(work / NEXT, {}, say).result(last) is not None:
        with only_one(work):
            adopt(work / NEXT, work, last)


def adopt(following: Path, work: Path, last: str) -> None:
    """Move what was made in NEXT to its place in the work folder; the stamp of the step `last` is moved last."""
    for path in sorted(following.iterdir(), key=lambda path: path.stem == last):
        remove(work / path.name)
        path.rename(work / path.name)
    following.rmdir()
