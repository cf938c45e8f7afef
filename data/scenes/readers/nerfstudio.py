"""The format of nerfstudio: transforms.json as `ns-process-data` writes it.

    folder/transforms.json   {"camera_model": "OPENCV", "w", "h", "fl_x", "fl_y", "cx", "cy", "k1", "k2", "p1", "p2",
                              "applied_transform": [3, 4], "ply_file_path", "train_filenames": [...], "frames": [...]}
    folder/images/, masks/   the paths in file_path and mask_path
    folder/sparse_pc.ply     points in the world of the file's matrices

Lens keys apply to all images or to a single frame; half pixels and axes as in `transforms.py`. Behaviour of
https://github.com/nerfstudio-project/nerfstudio at 50e0e3c, data/dataparsers/nerfstudio_dataparser.py; keys in
docs/quickstart/data_conventions.md there.

The world frame is that of the file's matrices and of sparse_pc.ply, z up. `applied_transform` (and `applied_scale`) map
the original world, such as COLMAP's, to it; they are checked but not undone. `mask_path` is black where nerfstudio does
not train; here it is black off the object. Images of `val_filenames` and `test_filenames` that are not in
`train_filenames` are held out; images in no list are left out.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from data.errors import SceneError, one_line
from data.io.untrusted import matrix, positive, rigid_pose, text
from data.parsed_scene import CameraFiles, ParsedScene, PosedImage, SparsePoints
from data.scenes.readers import transforms
from data.scenes.readers.points import read_points

PINHOLE_MODELS = ("PERSPECTIVE", "OPENCV", "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL")
FISHEYE_MODEL = "OPENCV_FISHEYE"
SPLITS = ("train_filenames", "val_filenames", "test_filenames")


def matches(folder: Path) -> str:
    """The name of the camera file if nerfstudio wrote it, else ""; raises SceneError for one that cannot be read."""
    path = folder / transforms.TRANSFORMS_FILE
    return transforms.TRANSFORMS_FILE if path.is_file() and transforms.is_of_nerfstudio(path) else ""


def read_nerfstudio(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / transforms.TRANSFORMS_FILE
    content, frames = transforms.read_frames(source)
    _check_world(source, content)
    paths = [transforms.find_file(frame, "file_path", frame.name) for frame in frames]
    held_out = _split(source, content, frames, paths)
    found = zip(frames, paths, strict=True)
    posed_images = [
        _posed_image(frame, path, held_out[index])
        for index, (frame, path) in enumerate(found)
        if path and index in held_out
    ]
    used = sorted(held_out)
    missing = transforms.require_most(source, [frames[index].name for index in used], [paths[index] for index in used])
    transforms.require_distinct(source, posed_images)
    return ParsedScene(
        name=folder.resolve().name,
        source=source,
        images=tuple(posed_images),
        points=_points(folder, source, content),
        notes=(
            *missing,
            *_notes(content, len(frames) - len(used), [posed.mask_path is None for posed in posed_images]),
            *transforms.moved_notes(source, frames),
        ),
    )


def _posed_image(frame: transforms.Frame, image: Path, is_held_out: bool) -> PosedImage:
    model = frame.get("camera_model", FISHEYE_MODEL if transforms.is_fisheye(frame) else "PERSPECTIVE")
    if model not in (*PINHOLE_MODELS, FISHEYE_MODEL):
        supported = ", ".join((*PINHOLE_MODELS, FISHEYE_MODEL))
        raise SceneError(f"{frame.where}: camera_model {reprlib.repr(model)} is not supported; it may be {supported}")
    if transforms.is_fisheye(frame) and model != FISHEYE_MODEL:
        raise SceneError(f"{frame.where}: transforms.is_fisheye is true and camera_model {model}; remove the wrong one")
    mask = None
    if "mask_path" in frame.own:
        mask = transforms.required_file(frame, "mask_path", text(frame.where, "mask_path", frame.own["mask_path"]))
    return transforms.posed_image(frame, image, model == FISHEYE_MODEL, is_held_out, mask)


def _check_world(source: Path, content: Mapping[str, object]) -> None:
    """Raises SceneError for an invalid transform from the original world. A valid one is not applied."""
    if "applied_transform" in content:
        where, key = str(source), "applied_transform"
        rigid_pose(where, key, matrix(where, key, content[key]))
    if "applied_scale" in content:
        positive(str(source), "applied_scale", content["applied_scale"])


def _split(
    source: Path, content: Mapping[str, object], frames: Sequence[transforms.Frame], paths: Sequence[Path | None]
) -> dict[int, bool]:
    """The indices of the used frames, and whether each is held out."""
    if not any(key in content for key in SPLITS):
        return dict.fromkeys(range(len(frames)), False)
    index_of = {path or frames[index].name: index for index, path in enumerate(paths)}
    named: dict[str, set[int]] = {}
    for key in SPLITS:
        named[key] = {_index_in(source, key, name, index_of) for name in _file_names(source, key, content)}
    held_out = (named["val_filenames"] | named["test_filenames"]) - named["train_filenames"]
    if not named["train_filenames"]:
        raise SceneError(
            f"{source}: train_filenames is missing or empty; name the photographs to train on, or "
            "remove all three lists"
        )
    return {index: index in held_out for index in sorted(named["train_filenames"] | held_out)}


def _file_names(source: Path, key: str, content: Mapping[str, object]) -> list[str]:
    value = content.get(key, [])
    if not isinstance(value, list):
        raise SceneError(f"{source}: {key} must be a list of file names; correct it")
    return [text(str(source), f"an entry of {key}", name) for name in value]


def _index_in(source: Path, key: str, name: str, index_of: Mapping[Path | str, int]) -> int:
    as_frame = transforms.Frame(f"{source}: {key}", source.parent, name, {}, {})
    path = transforms.find_file(as_frame, key, name) or name
    if path not in index_of:
        raise SceneError(f"{source}: {key} names {one_line(name)}, which no frame has; correct it")
    return index_of[path]


def _points(folder: Path, source: Path, content: Mapping[str, object]) -> SparsePoints | None:
    """The points of `ply_file_path`; None if it is not given."""
    if "ply_file_path" not in content:
        return None
    name = text(str(source), "ply_file_path", content["ply_file_path"])
    path = transforms.find_file(transforms.Frame(str(source), folder, name, {}, {}), "ply_file_path", name)
    if path is None:
        raise SceneError(f"{source}: ply_file_path {one_line(name)} does not exist; add the file or remove the key")
    return read_points(path)


def _notes(content: Mapping[str, object], left_out: int, without_mask: Sequence[bool]) -> tuple[str, ...]:
    notes = []
    if left_out:
        notes.append(f"{left_out} photographs are in none of {', '.join(SPLITS)} and left out")
    if not all(without_mask):
        notes.append("mask_path is read as an object mask, white on the object and black off it")
    if any(without_mask) and not all(without_mask):
        count = f"{sum(without_mask)} of {len(without_mask)}"
        notes.append(f"{count} frames have no mask_path and count as unmasked, all object")
    if "applied_transform" in content:
        notes.append("meshes are in the world of its matrices, after applied_transform")
    return tuple(f"{transforms.TRANSFORMS_FILE}: {note}" for note in notes)
