"""The format of instant-ngp: transforms.json with intrinsics, as its scripts/colmap2nerf.py writes it.

    folder/transforms.json   {"fl_x", "fl_y", "cx", "cy", "w", "h", "k1", "k2", "p1", "p2", "aabb_scale", "frames"}


    folder/images/0001.jpg   the path in file_path, with or without suffix

Lens keys apply to all images or to a single frame. `camera_angle_x`, `camera_angle_y` (radians) are used if `fl_x`,
`fl_y` are missing. `is_fisheye` with k1 k2 k3 k4 is OpenCV's fisheye model, otherwise k1 k2 p1 p2 (k3) are OpenCV's.
Half pixels and axes as in `transforms.py`. Behaviour of https://github.com/NVlabs/instant-ngp at abe236e,
src/nerf_loader.cu, without two bugs: there p1 overwrites k3, and focal lengths are not scaled for images smaller than
w x h.

As in instant-ngp, frames whose image is missing are left out, with a note; more than half missing is an error.
`aabb_scale`, `scale`, `offset` and `aabb` place the scene in instant-ngp's unit cube; they do not describe the object
and are not used. The world frame is that of the file's matrices (colmap2nerf.py rotates it z up, centres it on the
cameras' focus, and scales the mean camera distance to 4 units). Images of transforms_test.json in the same folder, else
of transforms_val.json, are held out.
"""

from __future__ import annotations

from pathlib import Path

from data.parsed_scene import CameraFiles, ParsedScene, PosedImage
from data.scenes.readers import transforms

MOST_ABSENT = 0.5  # of the photographs, as in instant-ngp; if more are missing, the folder is probably the wrong one


def matches(folder: Path) -> str:
    """The camera file, where nerfstudio did not write it, else ""; raises SceneError for one that cannot be read."""
    path = folder / transforms.TRANSFORMS_FILE
    return transforms.TRANSFORMS_FILE if path.is_file() and not transforms.is_of_nerfstudio(path) else ""


def read_ngp(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / transforms.TRANSFORMS_FILE
    posed_images, notes = _read_file(source, is_held_out=False)
    held_out = transforms.held_out_file(folder)
    if held_out:
        others, more = _read_file(held_out, is_held_out=True)
        posed_images, notes = posed_images + others, notes + more
    transforms.require_distinct(source, posed_images)
    return ParsedScene(name=folder.resolve().name, source=source, images=tuple(posed_images), notes=tuple(notes))


def _read_file(path: Path, is_held_out: bool) -> tuple[list[PosedImage], list[str]]:
    """The existing images of a camera file, and notes on the missing ones."""
    frames = transforms.read_frames(path)[1]
    images = [transforms.find_file(frame, "file_path", frame.name) for frame in frames]
    notes = transforms.require_most(path, [frame.name for frame in frames], images, MOST_ABSENT)
    posed_images = [
        transforms.posed_image(frame, image, transforms.is_fisheye(frame), is_held_out)
        for frame, image in zip(frames, images, strict=True)
        if image is not None
    ]
    return posed_images, [*notes, *transforms.moved_notes(path, frames)]
