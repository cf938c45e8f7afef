"""Detects the format of a scene folder from its files."""

from __future__ import annotations

import re
from pathlib import Path

from data.config import FORMATS
from data.errors import SceneError
from data.io.images import IMAGE_SUFFIXES
from data.io.json_file import read_content
from data.readers.colmap_files import model_folders, model_suffix

# (preferred, other) where a folder has both formats: LLFF's table drops COLMAP's distortion, and a NeuS scene made from
# the other format has a chosen region of interest.
PREFERRED = (("neus", "colmap"), ("neus", "llff"), ("colmap", "llff"))
# Keys that ns-process-data writes and instant-ngp does not know.
NERFSTUDIO_KEYS = re.compile(
    rb'"(camera_model|applied_transform|ply_file_path|train_filenames|distortion_params|mask_path|colmap_im_id)"\s*:'
)
VIDEO_SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm")
MOST_SHOWN = 8  # file names in a message
MOST_SEARCHED = 64  # subfolders that are searched for a scene


def recognise(folder: Path) -> str:
    """The format of `folder`, one of FORMATS.

    Raises SceneError if the folder does not exist, or matches no format or several.
    """
    if folder.is_file():
        raise SceneError(f"{folder}: is a file; dataset.data_dir names the folder that holds the scene")
    if not folder.is_dir():
        raise SceneError(f"{folder}: no such folder; dataset.data_dir names the scene folder")
    try:
        found = _marks(folder)
        for better, worse in PREFERRED:
            if better in found and worse in found:
                del found[worse]
        if len(found) > 1:
            marks = " and ".join(f"{mark} ({name})" for name, mark in found.items())
            raise SceneError(f"{folder}: holds {marks}; set dataset.type to one of {', '.join(found)}")
        return next(iter(found)) if found else _without_cameras(folder)
    except OSError as error:
        raise SceneError(f"{folder}: cannot be listed ({error.strerror}); check its permissions") from error


def _marks(folder: Path) -> dict[str, str]:
    """The formats that `folder` matches, each with the file or folder that identifies it."""
    found = {}
    cameras = sorted(entry.name for entry in folder.glob("*.npz"))
    if (folder / "image").is_dir() and cameras:
        found["neus"] = f"image/ with {cameras[0]}"
    if (folder / "transforms_train.json").is_file() and not (folder / "transforms.json").is_file():
        found["blender"] = "transforms_train.json"
    if (folder / "transforms.json").is_file():
        found[_kind_of_transforms(folder / "transforms.json")] = "transforms.json"
    models = [path.relative_to(folder) for path in model_folders(folder)]
    if models and not ("nerfstudio" in found and models[0].parts[:1] == ("colmap",)):  # transforms.json is made from it
        found["colmap"] = f"a COLMAP model in {models[0]}" if models[0].parts else f"cameras{model_suffix(folder)}"
    if (folder / "poses_bounds.npy").is_file():
        found["llff"] = "poses_bounds.npy"
    if not found and ((folder / "image").is_dir() or any(name.startswith("cameras") for name in cameras)):
        found["neus"] = "image/" if (folder / "image").is_dir() else cameras[0]  # incomplete; the reader reports what
    return found


def _kind_of_transforms(path: Path) -> str:
    """The format of a transforms.json by its keys: "nerfstudio" or "ngp"; the file is not parsed.

    Raises SceneError for a file that cannot be read.
    """
    return "nerfstudio" if NERFSTUDIO_KEYS.search(read_content(path)) else "ngp"


def _without_cameras(folder: Path) -> str:
    """Raises SceneError, which says what the folder contains and what to do; never returns."""
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    inner = [entry for entry in entries if entry.is_dir()][:MOST_SEARCHED]
    scenes = [entry for entry in inner if _looks_like_a_scene(entry)]
    if scenes:
        raise SceneError(
            f"{folder}: is not a scene, but its subfolder {scenes[0].name}/ may be one; set dataset.data_dir to that"
        )
    images = next((place for place in (folder, *inner) if _holds(place, IMAGE_SUFFIXES)), None)
    video = next((entry for entry in entries if entry.suffix.lower() in VIDEO_SUFFIXES), None)
    if images or video:
        raise SceneError(
            f"{folder}: contains {'photographs' if images else 'a video'} but no cameras; estimate them first with "
            f"--mode prepare --images {images or video}"
        )
    names = ", ".join(entry.name for entry in entries[:MOST_SHOWN]) or "nothing"
    raise SceneError(
        f"{folder}: is not a scene of a known format (it contains {names}); dataset.type may be {', '.join(FORMATS)}; "
        "see docs/formats.md"
    )


def _looks_like_a_scene(folder: Path) -> bool:
    try:
        return bool(_marks(folder))
    except (OSError, SceneError):
        return False


def _holds(folder: Path, suffixes: tuple[str, ...]) -> bool:
    try:
        return any(entry.suffix.lower() in suffixes for entry in folder.iterdir())
    except OSError:
        return False
