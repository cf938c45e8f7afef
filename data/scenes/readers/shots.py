"""Photographs that a camera file names, with masks beside them, for COLMAP and the programs that are like it.

A name that is no file, such as one with a path of another system or letters in another case, stands for the only
file with its last part. Masks are in masks/, one for each photograph.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data.cameras import affine
from data.errors import SceneError, listed, one_line
from data.io.images import left_out, list_images, natural_key, photographs_folder
from data.io.named_files import leads_out, masks_folder, named_file, required_mask_files
from data.io.untrusted import positive, read_json, rigid_pose, side, text
from data.parsed_scene import Lens, ParsedScene, PosedImage, SparsePoints
from data.scenes.readers.transforms import require_distinct, require_most

SPLAT_CAMERAS = "cameras.json"


@dataclass(frozen=True, eq=False)
class Shot:
    """A photograph that a camera file names."""

    name: str
    lens: Lens
    c2w: np.ndarray  # [4, 4]


def numbers(where: str, key: str, value: object, count: int) -> np.ndarray:
    """`value`, a text of numbers, or numbers or texts in nested lists, as [count] float64; else raises SceneError."""
    try:
        array = np.array(value.split() if isinstance(value, str) else value, dtype=np.float64).ravel()
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if len(array) != count or not np.isfinite(array).all():
        wanted = "a finite number" if count == 1 else f"{count} finite numbers"
        raise SceneError(f"{where}: {key} is {reprlib.repr(value)} and must be {wanted}; export it again")
    return array


def scalar(where: str, values: Mapping[str, Any], key: str, default: object = None) -> float:
    """The finite number `key`; else raises SceneError."""
    return float(numbers(where, key, values.get(key, default), 1)[0])


def field(where: str, value: object, *keys: str) -> Any:
    """The value at `keys` in nested objects; raises SceneError if there is none."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise SceneError(f"{where}: has no {key} where it must have one; export the cameras again")
        value = value[key]
    return value


def records(where: str, content: object, key: str) -> list[dict[str, Any]]:
    """The list of objects `key`, [] if it is missing; raises SceneError for anything else."""
    entries = content.get(key) or [] if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SceneError(f"{where}: {key} is not a list of objects; export the cameras again")
    return entries


def sparse(where: str, xyz: object, n_views: Sequence[int], rgb: object = None) -> SparsePoints:
    """Points of structure from motion, grey without `rgb`; `n_views`: 0 where unknown."""
    count = len(n_views)
    colours = np.full(3 * count, 128) if rgb is None else numbers(where, "the colours of its points", rgb, 3 * count)
    return SparsePoints(
        numbers(where, "the places of its points", xyz, 3 * count).reshape(-1, 3),
        np.array(n_views, dtype=np.int64),
        np.full(count, np.nan),
        np.clip(colours, 0, 255).astype(np.uint8).reshape(-1, 3),
    )


def shot(where: str, name: str, lens: Lens, rotation: np.ndarray, centre: np.ndarray) -> Shot:
    """A shot from the rotation [3, 3] from camera to world and the centre [3]; raises SceneError for other matrices."""
    return Shot(name, lens, rigid_pose(where, "the rotation", affine(rotation, centre)))


def camera(where: str, pinhole: object, size: object, distortion: Sequence[object], fish: bool = False) -> Lens:
    """The lens of an image of `size` with focal lengths and centre, two each, and `distortion` in OpenCV's order."""
    fx, fy, x, y = numbers(where, "its focal lengths and principal point", pinhole, 4)
    width, height = (side(where, "its size", value) for value in numbers(where, "its size", size, 2))
    positive(where, "its focal length", min(fx, fy))
    coefficients = tuple(numbers(where, "its distortion", distortion, len(distortion)).tolist())
    intrinsics = np.array([[fx, 0.0, x], [0.0, fy, y], [0.0, 0.0, 1.0]])
    return Lens(intrinsics, coefficients if any(coefficients) else (), fish, (width, height))


def read_splat_cameras(path: Path) -> list[Shot]:
    """The cameras of cameras.json, which 3DGS writes beside its results: without distortion, centred."""
    shots = []
    for entry in records(str(path), {SPLAT_CAMERAS: read_json(path)}, SPLAT_CAMERAS):
        name = text(str(path), "img_name", entry.get("img_name"))
        where = f"{path}: {one_line(name)}"
        width, height, *focals = (scalar(where, entry, key) for key in ("width", "height", "fx", "fy"))
        lens = camera(where, [*focals, (width - 1) / 2, (height - 1) / 2], (width, height), ())
        turn, place = (numbers(where, key, entry.get(key), n) for key, n in (("rotation", 9), ("position", 3)))
        shots.append(shot(where, name, lens, turn.reshape(3, 3), place))
    return shots


def scene_of_shots(
    folder: Path, source: Path, shots: Sequence[Shot], points: SparsePoints, without: Sequence[str]
) -> ParsedScene:
    """The scene of a camera file with `points`, perhaps none; `without`: names of photographs without pose."""
    if not shots:
        raise SceneError(f"{source}: no photograph has a pose; align the photographs and export the cameras again")
    images, notes = posed_images(photographs_folder(folder) or folder, masks_folder(folder), shots)
    if without:
        notes = [f"{source.name}: without a pose, and left out: {listed(without)}", *notes]
    return ParsedScene(folder.resolve().name, source, images, points if len(points.xyz) else None, notes=tuple(notes))


def posed_images(
    place: Path, mask_folder: Path | None, shots: Sequence[Shot]
) -> tuple[tuple[PosedImage, ...], list[str]]:
    """The photographs of `shots` below `place` in natural order, with masks, and notes on what is missing."""
    # The cameras of a rig are in subfolders, with the same file names in each.
    shots = sorted(shots, key=lambda shot: (natural_key(Path(shot.name)), shot.name))
    paths, notes = _image_paths(place, [shot.name for shot in shots])
    images = [PosedImage(path, shot.lens, shot.c2w) for shot, path in zip(shots, paths, strict=True) if path]
    require_distinct(place, images)  # names in two folders, whose photographs were put into one
    unused = sorted(set(list_images(place)) - set(paths), key=natural_key)
    if unused:
        named = listed([path.name for path in unused])
        notes.append(f"{len(unused)} photographs in {place} have no pose in the model and are left out: {named}")
    return with_masks(place, mask_folder, images), [*notes, *left_out(place)]


def _image_paths(image_folder: Path, names: list[str]) -> tuple[list[Path | None], list[str]]:
    """The image files, None for those that are missing, and notes.

    A name that is no file of the folder, such as one with a path or letters in another case, stands for the only file
    with its last part. Raises SceneError if more than MOST_MISSING are missing.
    """
    paths = [named_file(image_folder, name) for name in names]
    own = [path == image_folder / name for name, path in zip(names, paths, strict=True)]
    used = {path for path, is_own in zip(paths, own, strict=True) if is_own}
    paths = [path if is_own or path not in used else None for path, is_own in zip(paths, own, strict=True)]
    outside = [name for name, path in zip(names, paths, strict=True) if path is None and leads_out(name)]
    if outside:
        raise SceneError(f"{image_folder}: the model names the photograph {outside[0]!r}, which is outside; correct it")
    notes = require_most(image_folder, names, paths)
    others = [name for name, path in zip(names, paths, strict=True) if path and path != image_folder / name]
    if others:
        notes.append(
            f"{len(others)} names of the model have another folder or letter case than their files, {others[0]}"
        )
    return paths, notes


def with_masks(place: Path, mask_folder: Path | None, images: Sequence[PosedImage]) -> tuple[PosedImage, ...]:
    """The images, which are below `place`, with their masks; raises SceneError if one has none."""
    if mask_folder is None:
        return tuple(images)
    names = [image.path.relative_to(place).as_posix() for image in images]
    masks = required_mask_files(mask_folder, names, "", "name its mask {name}.png, or remove the folder")
    return tuple(replace(image, mask_path=mask) for image, mask in zip(images, masks, strict=True))
