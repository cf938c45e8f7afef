"""Cameras of an earlier case for photographs of another object by the same rig, and their check.

The new photographs need no features: poses and lenses are those of the earlier ones of the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from data.cameras import PIXEL_CENTRE, affine, similarity
from data.errors import INVALID, SceneError, UserError, listed, listed_views
from data.io.files import write_result
from data.io.images import image_size
from data.io.untrusted import read_object
from data.parsed_scene import Lens, ParsedScene, PosedImage, WorldFrame, transformed
from data.prepare.frames import SAME_ASPECT, Frame
from data.prepare.inspection.checks import GOOD_AGREEMENT
from data.prepare.inspection.epipolar import FAIR_DISTANCE, median_distance, pair_distances, worst_views
from data.prepare.sfm.stages import MODELS
from data.scenes.config import DatasetConfig
from data.scenes.frustum import Cameras
from data.scenes.readers import READERS, recognise
from data.scenes.readers.colmap import read_colmap, read_model
from data.scenes.readers.neus import CAMERA_FILE, FRAME_FILE, read_neus
from data.scenes.readers.shots import SPLAT_CAMERAS, Shot, read_splat_cameras
from data.scenes.scene import Scene
from data.scenes.undistort import resized
from data.scenes.visual_hull import masked_views, visual_hull

COLMAP = "colmap"  # of READERS
SEVERAL = 3  # masks that can contradict each other
LEAST_OF_MEDIAN = 0.9  # of the agreement of masks with their hull, for the mask of each camera: a zoom by 5 % has less


@dataclass(frozen=True, eq=False)
class GivenCameras:
    """The cameras of an earlier case in its world frame."""

    folder: Path
    images: dict[str, PosedImage]  # by the `_key` of their photographs, in the order of the case
    frame: WorldFrame | None  # None: neither up nor the unit is known

    def numbers(self) -> list[object]:
        """All of them, as JSON values."""
        lenses = [[image.lens.intrinsics.tolist(), list(image.lens.distortion)] for image in self.images.values()]
        poses = [image.c2w.tolist() for image in self.images.values()]
        return [list(self.images), poses, lenses]


def _key(photograph: str) -> str:
    """By which a photograph belongs to one of an earlier case: its name without suffix, in lower case."""
    return Path(photograph).stem.lower()


def with_lenses(frames: Sequence[Frame], given: GivenCameras) -> list[Frame]:
    """The frames with the lens of the earlier case, if it has one; else that of the photograph of the same name.

    Raises UserError if it has several and no such photograph, or photographs of another shape.
    """
    images = list(given.images.values())
    first = images[0].lens
    has_one = all(
        image.lens.distortion == first.distortion and np.allclose(image.lens.intrinsics, first.intrinsics, rtol=1e-6)
        for image in images
    )
    without = [frame.source for frame in frames if _key(frame.source) not in given.images]
    if without and not has_one:
        raise UserError(
            f"--lens {given.folder}: has several lenses, and none for {listed(without)}; name each photograph as an "
            "earlier one of its lens"
        )
    found = []
    for frame in frames:
        image = images[0] if has_one else given.images[_key(frame.source)]
        model, _, _, *parameters = _camera_line(_fitted(image, frame, given), (frame.width, frame.height)).split()
        found.append(replace(frame, lens=" ".join([model, *parameters])))
    return found


def read_given(flag: str, name: str, beside: Path, work: str) -> GivenCameras:
    """The cameras of the scene folder `name`, or of the case of that name in the folder `beside`; of a COLMAP model or
    the cameras of 3DGS also without photographs.

    A scene that `--mode prepare` wrote has undistorted photographs; the lenses are then those of its work folder
    `work`. Raises UserError if there is no scene, or its files are damaged.
    """
    folder = Path(name) if Path(name).exists() else beside / name
    splats = folder / SPLAT_CAMERAS if folder.is_dir() else folder
    if splats.name == SPLAT_CAMERAS and splats.is_file():
        return _of_shots(flag, splats, read_splat_cameras(splats))
    if not folder.is_dir():
        raise UserError(f"{flag} {name}: is no folder, and no case in {beside}; name an earlier case or its folder")
    conf = DatasetConfig(str(folder), CAMERA_FILE, CAMERA_FILE)
    name_of_format = recognise(folder)
    if name_of_format == COLMAP:
        return _of_shots(flag, folder, read_model(folder)[1])
    parsed = READERS[name_of_format].read(folder, conf)
    photographs = {} if parsed.frame is None else parsed.frame.photographs
    called = {photographs.get(image.path.name, image.path.name): image for image in parsed.images}
    if parsed.frame is not None:
        model, change, _ = to_world(folder / work, folder)
        called = {image.path.name: image for image in transformed(model, change, WorldFrame("")).images}
    return _by_key(flag, folder, list(called.items()), parsed.frame)


def _of_shots(flag: str, place: Path, shots: Sequence[Shot]) -> GivenCameras:
    """The cameras of a file or folder without photographs."""
    return _by_key(flag, place, [(shot.name, PosedImage(Path(shot.name), shot.lens, shot.c2w)) for shot in shots], None)


def _by_key(flag: str, place: Path, called: Sequence[tuple[str, PosedImage]], frame: WorldFrame | None) -> GivenCameras:
    """The cameras with their names; raises UserError if two have one `_key`."""
    images = {_key(source): image for source, image in called}
    if not images:
        raise UserError(f"{flag} {place}: holds no cameras; name an earlier case or its folder")
    if len(images) < len(called):
        raise UserError(f"{flag} {place}: names of its photographs differ only in folders or suffixes; rename them")
    return GivenCameras(place, images, frame)


def to_world(work: Path, target: Path) -> tuple[ParsedScene, np.ndarray, np.ndarray]:
    """The model of the work folder of the scene `target`, and two matrices [4, 4]: to the world frame of the scene from
    that of the model, and from the unit sphere.

    The images are those with a camera in both, with the names of their photographs. Raises UserError if one is damaged.
    """
    conf = DatasetConfig(str(target), CAMERA_FILE, CAMERA_FILE)
    scene = read_neus(target, conf)
    photographs = {} if scene.frame is None else scene.frame.photographs
    there = {photographs.get(image.path.name): image.c2w for image in scene.images}
    try:
        rows = read_object(work / "photographs.json")["result"]
        sources = {str(row["name"]): str(row["source"]) for row in rows}
        model = read_colmap(work, conf)
        images = [
            replace(image, path=Path(sources[image.path.name]), size=image_size(image.path)) for image in model.images
        ]
        images = [image for image in images if image.path.name in there]
        if not images:
            raise ValueError
    except (SceneError, *INVALID, OSError) as error:
        raise UserError(
            f"{work}, or {FRAME_FILE} beside it: is damaged or missing, which has lenses and poses; prepare {target} "
            "again with --overwrite"
        ) from error
    centres = [image.c2w[:3, 3] for image in images], [there[image.path.name][:3, 3] for image in images]
    turn, scale, shift = similarity(*map(np.array, centres))
    change = affine(scale * turn, shift)
    return replace(model, images=tuple(images)), change, np.eye(4) if scene.scale_mat is None else scene.scale_mat


def place(work: Path, frames: Sequence[Frame], given: GivenCameras) -> dict[str, Any]:
    """Write a COLMAP model with the given camera of each frame to the work folder; returns it as `map_images` does.

    Photographs and cameras belong together by name, else by order. Raises UserError if a photograph has no camera, or
    one of another shape, or if all cameras are at one position.
    """
    stems = [_key(frame.source) for frame in frames]
    without = [frame.source for frame, stem in zip(frames, stems, strict=True) if stem not in given.images]
    note = f"cameras: those of {given.folder}, by the names of the photographs"
    if len(without) == len(frames) == len(given.images):
        stems = list(given.images)
        note = f"cameras: those of {given.folder}, in the order of the photographs, whose names are others"
    elif without:
        raise UserError(
            f"--cameras {given.folder}: has no camera for {len(without)} of {len(frames)} photographs: "
            f"{listed(without)}; name each as the earlier photograph of its camera ({listed(list(given.images))})"
        )
    if not np.ptp([given.images[stem].c2w[:3, 3] for stem in stems], axis=0).any():
        raise UserError(f"--cameras {given.folder}: all its cameras are at one position; name a case with a rig")
    cameras, images = ["# CAMERA_ID MODEL WIDTH HEIGHT PARAMS"], ["# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"]
    for number, (frame, stem) in enumerate(zip(frames, stems, strict=True), 1):
        image = given.images[stem]
        cameras.append(f"{number} {_camera_line(_fitted(image, frame, given), (frame.width, frame.height))}")
        w2c = np.linalg.inv(image.c2w)
        turn = np.roll(Rotation.from_matrix(w2c[:3, :3]).as_quat(), 1)
        images += [
            " ".join([str(number), *map(repr, [*turn.tolist(), *w2c[:3, 3].tolist()]), str(number), frame.name]),
            "",
        ]
    for name, rows in (("cameras", cameras), ("images", images)):
        write_result(work / MODELS / "0" / f"{name}.txt", ("\n".join(rows) + "\n").encode())
    names = [frame.source for frame in frames]
    return {"names": names, "notes": [note], "remarks": [note]}


def _fitted(image: PosedImage, frame: Frame, given: GivenCameras) -> Lens:
    """The lens for the size of the frame; raises UserError for another aspect ratio."""
    size = image.lens.size or image.size or image_size(image.path)
    if abs(size[0] * frame.height / (size[1] * frame.width) - 1) > SAME_ASPECT:
        raise UserError(
            f"{given.folder}: its camera of {frame.source} has {size[0]}x{size[1]} pixels, and the photo "
            f"{frame.width}x{frame.height}, another shape; do not crop or turn it, or estimate the cameras anew"
        )
    new = (frame.width, frame.height)
    return replace(image.lens, intrinsics=resized(image.lens.intrinsics, size, new), size=new)


def _camera_line(lens: Lens, size: tuple[int, int]) -> str:
    """Model, size and parameters of a lens in COLMAP's order."""
    model, rest = lens.colmap_model, lens.distortion
    if not model and lens.is_fisheye:
        model, rest = "OPENCV_FISHEYE", (*rest, *[0.0] * (4 - len(rest)))
    elif not model:
        model, rest = ("FULL_OPENCV", (*rest, *[0.0] * (8 - len(rest)))) if rest else ("PINHOLE", rest)
    matrix = lens.intrinsics
    centre = matrix[:2, 2] + PIXEL_CENTRE
    return " ".join(
        [model, *map(str, size), *map(repr, [float(matrix[0, 0]), float(matrix[1, 1]), *centre.tolist(), *rest])]
    )


def in_frame_of(parsed: ParsedScene, frame: WorldFrame, case: str, notes: Sequence[str]) -> ParsedScene:
    """The placed cameras with the world frame of the earlier case."""
    source = f"{frame.scale_source}, of {case}" if frame.is_metric else ""
    return replace(parsed, frame=WorldFrame(frame.up_source, source, frame.scale_error, notes=tuple(notes)))


def checked(scene: Scene, given: GivenCameras) -> str:
    """How well the new photographs fit the given cameras, as a note.

    Raises UserError if matches or masks contradict them, as with another lens.
    """
    pairs, tried = pair_distances(scene)
    pixels = median_distance(pairs, tried)
    wrong, figures = worst_views(pairs, FAIR_DISTANCE), list[str]()
    if pixels is not None:
        figures.append(f"matches are {pixels:.2f} pixels from their epipolar lines (images reduced to 640)")
    if scene.masks is not None:
        sizes = np.array([scene.size(view) for view in range(scene.n_views)])
        views = masked_views(Cameras(scene.intrinsics, scene.c2w, sizes), scene.masks)
        hull = visual_hull(views) if len(views.views) >= SEVERAL else None
        if hull is None or np.median(hull.agreement) < GOOD_AGREEMENT:
            wrong = np.arange(scene.n_views)
        else:
            wrong = np.union1d(wrong, hull.views[hull.agreement < LEAST_OF_MEDIAN * np.median(hull.agreement)])
        least = "bound no common volume" if hull is None else f"overlap their visual hull by {hull.agreement.min():.0%}"
        figures.append(f"masks {least}" if hull is None else f"masks {least} or more")
    if len(wrong) or (pixels is not None and pixels > FAIR_DISTANCE):
        named = listed_views(wrong, scene.photographs) if len(wrong) else "all"
        raise UserError(
            f"--cameras {given.folder}: does not fit the photographs {named}: {', '.join(figures)}; a lens was changed "
            "or a camera moved: leave --cameras out, or calibrate again"
        )
    return f"given cameras: {', '.join(figures) or 'not checked, as there are no matches and no masks'}"
