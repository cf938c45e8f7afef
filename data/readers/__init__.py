"""From a folder on disk to a `ParsedScene`: one module per on-disk format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data.config import AUTO_FORMAT, DatasetConfig
from data.parsed_scene import ParsedScene
from data.readers.blender import read_blender
from data.readers.colmap import read_colmap
from data.readers.detect import recognise
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.neus import read_neus
from data.readers.ngp import read_ngp

READERS: dict[str, Callable[[Path, DatasetConfig], ParsedScene]] = {
    "neus": read_neus,
    "blender": read_blender,
    "ngp": read_ngp,
    "nerfstudio": read_nerfstudio,
    "colmap": read_colmap,
    "llff": read_llff,
}


def parse_scene(conf: DatasetConfig) -> ParsedScene:
    """Read the cameras of the scene folder `conf.data_dir`; no image is decoded. Raises SceneError."""
    folder = Path(conf.data_dir)
    return READERS[recognise(folder) if conf.type == AUTO_FORMAT else conf.type](folder, conf)
