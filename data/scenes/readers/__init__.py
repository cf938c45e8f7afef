"""From a folder on disk to a `ParsedScene`: one module per on-disk format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from data.parsed_scene import CameraFiles, ParsedScene
from data.scenes.readers import (
    blender,
    bundler,
    colmap,
    llff,
    meshroom,
    metashape,
    nerfstudio,
    neus,
    ngp,
    openmvg,
    opensfm,
    realitycapture,
)


class Reader(NamedTuple):
    """The name of a scene format with its two functions."""

    matches: Callable[[Path], str]  # the file or folder that identifies the format; "" if the folder has another one
    read: Callable[[Path, CameraFiles], ParsedScene]


READERS = {
    "neus": Reader(neus.matches, neus.read_neus),
    "blender": Reader(blender.matches, blender.read_blender),
    "ngp": Reader(ngp.matches, ngp.read_ngp),
    "nerfstudio": Reader(nerfstudio.matches, nerfstudio.read_nerfstudio),
    "colmap": Reader(colmap.matches, colmap.read_colmap),
    "llff": Reader(llff.matches, llff.read_llff),
    "metashape": Reader(metashape.matches, metashape.read_metashape),
    "realitycapture": Reader(realitycapture.matches, realitycapture.read_realitycapture),
    "openmvg": Reader(openmvg.matches, openmvg.read_openmvg),
    "meshroom": Reader(meshroom.matches, meshroom.read_meshroom),
    "opensfm": Reader(opensfm.matches, opensfm.read_opensfm),
    "bundler": Reader(bundler.matches, bundler.read_bundler),
}
FORMATS = tuple(READERS)  # the values of dataset.type, beside `auto`
