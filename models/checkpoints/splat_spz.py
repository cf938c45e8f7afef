"""Writes Gaussians as .spz, the compressed format of Niantic, with the optional library gsply. N splats.

The format (https://github.com/nianticlabs/spz, README, "File Format"): x right, y up, z towards the viewer; positions
in 24-bit fixed point, other values in bytes. Standard deviations below exp(-10) are stored as exp(-10), harmonics of
degree 1 and above beyond 1 as 1. Version 3, one gzip stream, is read by more viewers than the later ones.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from pathlib import Path

import numpy as np

from models.checkpoints.splat_ply import Splats, in_world

SUFFIX = ".spz"
PACKAGE = "gsply"
ADVICE = "run `pip install -r requirements-splats.txt`"
VERSION = 3
FROM_Y_DOWN = np.diag([1.0, -1.0, -1.0, 1.0])  # a turn about x: from the axes of .splat, y down, to y up
INTEGER_BITS = 23  # of a coordinate in fixed point, without its sign
LEAST_FRACTION, MOST_FRACTION = 1, 24  # bits after the point that gsply writes and reads


class SpzError(Exception):
    """Says in one sentence why there is no .spz."""


def encode_spz(splats: Splats, scene_to_file: np.ndarray, is_flat: bool) -> bytes:
    """The file's content for splats in the working frame; scene_to_file [4, 4] is a similarity.

    Raises SpzError if gsply is missing, or if the coordinates exceed the range of the format.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise SpzError(f"{SUFFIX} needs {PACKAGE}: {ADVICE}")
    import gsply

    moved = in_world(splats, scene_to_file, is_flat)
    fraction = fraction_bits(float(np.abs(moved["means"]).max()))
    if fraction < LEAST_FRACTION:
        raise SpzError(f"coordinates exceed the range of {SUFFIX}: shift the cameras of the scene to the origin")
    numbers = {name: np.ascontiguousarray(array, np.float32) for name, array in moved.items()}
    data = gsply.GSData.from_arrays(
        means=numbers["means"],
        scales=numbers["sizes"],
        quats=numbers["quats"],
        opacities=numbers["opacities"].reshape(-1),
        sh0=numbers["dc"],
        shN=numbers["rest"] if numbers["rest"].size else None,
        format="ply",
    )
    with tempfile.TemporaryDirectory() as folder:  # the library writes only to files
        path = Path(folder) / f"splats{SUFFIX}"
        gsply.write_spz(path, data, version=VERSION, fractional_bits=fraction)
        return path.read_bytes()


def fraction_bits(largest: float) -> int:
    """The number of bits after the point with which coordinates of magnitude up to `largest` fit."""
    return min(INTEGER_BITS - math.frexp(largest)[1], MOST_FRACTION)
