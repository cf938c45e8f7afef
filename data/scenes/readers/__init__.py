"""From a folder on disk to a `ParsedScene`: the on-disk formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from data.errors import SceneError
from data.io.files import similar_names
from data.io.images import IMAGE_SUFFIXES
from data.parsed_scene import CameraFiles, ParsedScene
from data.scenes.readers import colmap, metashape, neus, realitycapture, sfm_programs, transforms

VIDEO_SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm")
# Camera files that are not read, by name or suffix: the program, and what converts them.
UNREAD_FORMATS = {
    "sfm_data.bin": ("OpenMVG", "openMVG_main_ConvertSfM_DataFormat writes sfm_data.json"),
    "sfm.abc": ("Meshroom", "its node ConvertSfMFormat writes a .sfm file"),
    ".nvm": ("VisualSFM", "it also writes bundle.rd.out and list.txt"),
    ".r3d": ("Record3D", "unpack it, then ns-process-data record3d"),
    "metadata": ("Record3D", "ns-process-data record3d"),
    "sensors.txt": ("Kapture", "kapture_export_colmap.py"),
    "mesh_info.json": ("Polycam", "ns-process-data polycam"),
    "frame_00000.json": ("3D Scanner App (ARKit)", "its export for COLMAP or nerfstudio"),
}
MOST_SHOWN = 8  # file names in a message
MOST_SEARCHED = 64  # subfolders that are searched for a scene


class Reader(NamedTuple):
    """The name of a scene format with its two functions."""

    matches: Callable[[Path], str]  # the file or folder that identifies the format; "" if the folder has another one
    read: Callable[[Path, CameraFiles], ParsedScene]


def _matches_file(name: str, folder: Path) -> str:
    return name if (folder / name).is_file() else ""


READERS = {
    "neus": Reader(neus.matches, neus.read_neus),
    "blender": Reader(transforms.matches_blender, transforms.read_blender),
    "ngp": Reader(partial(transforms.matches, False), transforms.read_ngp),
    "nerfstudio": Reader(partial(transforms.matches, True), transforms.read_nerfstudio),
    "colmap": Reader(colmap.matches, colmap.read_colmap),
    "llff": Reader(partial(_matches_file, colmap.LLFF_FILE), colmap.read_llff),
    "metashape": Reader(partial(_matches_file, metashape.METASHAPE_FILE), metashape.read_metashape),
    "realitycapture": Reader(realitycapture.matches, realitycapture.read_realitycapture),
    "openmvg": Reader(partial(_matches_file, sfm_programs.OPENMVG_FILE), sfm_programs.read_openmvg),
    "meshroom": Reader(sfm_programs.matches_meshroom, sfm_programs.read_meshroom),
    "opensfm": Reader(partial(_matches_file, sfm_programs.OPENSFM_FILE), sfm_programs.read_opensfm),
    "bundler": Reader(sfm_programs.matches_bundler, sfm_programs.read_bundler),
}
FORMATS = tuple(READERS)  # the values of dataset.type, beside `auto`
# (preferred, other) where a folder has both formats: LLFF's table drops COLMAP's distortion, and a NeuS scene made from
# the other format has a chosen region of interest. XMP files of RealityCapture stay beside the photographs that another
# program has processed since.
SIDECARS = "realitycapture"
PREFERRED_FORMATS = (
    ("neus", "colmap"),
    ("neus", "llff"),
    ("colmap", "llff"),
    *((name, SIDECARS) for name in FORMATS if name != SIDECARS),
)


def recognise(folder: Path) -> str:
    """The format of `folder`, one of FORMATS.

    Raises SceneError if the folder does not exist, or matches no format or several.
    """
    if folder.is_file():
        raise SceneError(f"{folder}: is a file; dataset.data_dir names the folder that holds the scene")
    if not folder.is_dir():
        raise SceneError(f"{folder}: no such folder{similar_names(folder)}; dataset.data_dir names the scene folder")
    try:
        marks = _marks(folder)
        for better, worse in PREFERRED_FORMATS:
            if better in marks and worse in marks:
                del marks[worse]
        if len(marks) > 1:
            words = " and ".join(f"{mark} ({name})" for name, mark in marks.items())
            raise SceneError(f"{folder}: holds {words}; set dataset.type to one of {', '.join(marks)}")
        return next(iter(marks)) if marks else _without_cameras(folder)
    except OSError as error:
        raise SceneError(f"{folder}: cannot be listed ({error.strerror}); check its permissions") from error


def _marks(folder: Path) -> dict[str, str]:
    """The formats that `folder` matches, each with the file or folder that identifies it."""
    marks = {name: mark for name, reader in READERS.items() if (mark := reader.matches(folder))}
    if not marks and (mark := neus.matches_in_part(folder)):
        return {"neus": mark}  # the reader reports what is missing
    return marks


def _without_cameras(folder: Path) -> str:
    """Raises SceneError, which says what the folder contains and what to do; never returns."""
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    inner = [entry for entry in entries if entry.is_dir()][:MOST_SEARCHED]
    scenes = [entry for entry in inner if _looks_like_a_scene(entry)]
    if scenes:
        raise SceneError(
            f"{folder}: is not a scene, but its subfolder {scenes[0].name}/ may be one; set dataset.data_dir to that"
        )
    other = next(
        (entry for entry in entries if entry.name.lower() in UNREAD_FORMATS or entry.suffix.lower() in UNREAD_FORMATS),
        None,
    )
    if other is not None:
        program, converter = UNREAD_FORMATS.get(other.name.lower()) or UNREAD_FORMATS[other.suffix.lower()]
        raise SceneError(
            f"{folder}: has the cameras of {program} ({other.name}), which are not read; convert them ({converter}), "
            "or estimate cameras with --mode prepare"
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
