"""The format of NeRF's synthetic scenes: transforms_train.json, transforms_val.json and transforms_test.json.

    folder/transforms_train.json   {"camera_angle_x", "frames": [{"file_path": "./train/r_0", "transform_matrix"}]}
    folder/train/r_0.png           RGBA; the file names it without its suffix

`camera_angle_x` is the horizontal field of view in radians; there is one focal length and no distortion. The images of
transforms_train.json are for training; those of transforms_test.json (else transforms_val.json, which is never trained
on) are held out. Camera axes are Blender's (y up, looking along -z); the world is Blender's, z up.

Half pixels: Blender's optical axis goes through the centre of the image, pixel ((w - 1) / 2, (h - 1) / 2) here. The
published NeRF (https://github.com/bmild/nerf at 14c5556, run_nerf_helpers.py, get_rays) uses w / 2 with pixels counted
from 0, which is half a pixel off; feature matches on the lego scene confirm the centre. The other lens keys of
`data.scenes.readers.transforms` are supported too.
"""

from __future__ import annotations

from pathlib import Path

from data.parsed_scene import CameraFiles, ParsedScene, PosedImage
from data.scenes.readers import transforms

TRAINING_FILE = "transforms_train.json"


def matches(folder: Path) -> str:
    """The camera file; "" where it is missing, or transforms.json says more."""
    is_there = (folder / TRAINING_FILE).is_file() and not (folder / transforms.TRANSFORMS_FILE).is_file()
    return TRAINING_FILE if is_there else ""


def read_blender(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / TRAINING_FILE
    held_out = transforms.held_out_file(folder)
    posed_images = _read_file(source, is_held_out=False)
    posed_images += _read_file(held_out, is_held_out=True) if held_out else []
    transforms.require_distinct(source, posed_images)
    return ParsedScene(name=folder.resolve().name, source=source, images=tuple(posed_images))


def _read_file(path: Path, is_held_out: bool) -> list[PosedImage]:
    frames = transforms.read_frames(path)[1]
    return [
        transforms.posed_image(frame, transforms.required_file(frame, "file_path", frame.name), is_held_out=is_held_out)
        for frame in frames
    ]
