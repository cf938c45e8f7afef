"""The reference data of the DTU evaluation, in the folder layout of the SampleSet and Points archives.

    folder/ObsMask/ObsMask24_10.mat   ObsMask [X, Y, Z], BB [2, 3], Res: the space observed by the scanner, on a grid
    folder/ObsMask/Plane24.mat        P [4]: the object is above it, P . (x, y, z, 1) > 0
    folder/Points/stl/stl024_total.ply  the scanned points

All in millimetres, in the world frame of the cameras. Jensen et al., Large scale multi-view stereopsis evaluation,
CVPR 2014.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.io

from data.errors import DAMAGE, SceneError, reason
from data.scenes.readers.points import read_points

MOST_CELLS = 1 << 30  # of the observation mask; the published ones have about ten million
MOST_BYTES = 1 << 30  # of its file
_DAMAGE = (*DAMAGE, OSError, scipy.io.matlab.MatReadError)


@dataclass(frozen=True, eq=False)
class DtuReference:
    """The scan of one object, millimetres."""

    scan: int
    points: np.ndarray  # [N, 3] scanned
    observed: np.ndarray  # [X, Y, Z] bool
    low: np.ndarray  # [3], the centre of the first cell of `observed`
    high: np.ndarray  # [3], the other corner of its box
    cell: float  # width of a cell
    plane: np.ndarray  # [4]


def reference_files(folder: Path, scan: int) -> tuple[Path, Path, Path]:
    """Paths of observation mask, plane and points of a scan; raises SceneError for a missing file."""
    names = (f"ObsMask/ObsMask{scan}_10.mat", f"ObsMask/Plane{scan}.mat", f"Points/stl/stl{scan:03d}_total.ply")
    mask, plane, points = (folder / name for name in names)
    for path in (mask, plane, points):
        if not os.path.isfile(path):  # Path.is_file raises on a long name
            raise SceneError(
                f"{path}: no such file; --dtu names the folder with ObsMask/ and Points/stl/ of the DTU evaluation"
            )
    return mask, plane, points


def read_dtu(folder: Path, scan: int) -> DtuReference:
    """The reference of a scan; raises SceneError for missing or damaged files and other shapes."""
    mask_file, plane_file, points_file = reference_files(folder, scan)
    observed, box, cell = _matrices(mask_file, {"ObsMask": None, "BB": (2, 3), "Res": ()})
    (plane,) = _matrices(plane_file, {"P": (4,)})
    if observed.ndim != 3:
        raise SceneError(f"{mask_file}: ObsMask must have three axes and has {observed.ndim}; download it again")
    if not float(cell) > 0:
        raise SceneError(f"{mask_file}: Res is {float(cell):g} and must be above 0; download it again")
    cloud = read_points(points_file)
    if cloud is None:
        raise SceneError(f"{points_file}: contains no points; download it again")
    low, high = box.astype(np.float32).astype(np.float64)  # rounded as in the published evaluation
    return DtuReference(scan, cloud.xyz, observed.astype(bool), low, high, float(cell), plane.astype(np.float64))


def _matrices(path: Path, wanted: dict[str, tuple[int, ...] | None]) -> list[np.ndarray]:
    """The named arrays of a .mat file; raises SceneError unless they are finite and have the shapes (None: any)."""
    try:
        sizes = [np.prod(shape, dtype=float) for _, shape, _ in scipy.io.whosmat(str(path))]
        if path.stat().st_size > MOST_BYTES or max(sizes, default=0) > MOST_CELLS:
            raise SceneError(f"{path}: is too large for a file of the DTU evaluation; download it again")
        found = scipy.io.loadmat(str(path), variable_names=list(wanted))
    except _DAMAGE as error:
        raise SceneError(f"{path}: cannot be read as a .mat file ({reason(error)}); download it again") from error
    arrays = []
    for name, shape in wanted.items():
        value = found.get(name)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not np.isfinite(value).all():
            raise SceneError(f"{path}: has no array {name} of finite numbers; download it again")
        if shape is not None and value.size != int(np.prod(shape)):
            raise SceneError(
                f"{path}: {name} has {value.size} numbers and must have {int(np.prod(shape))}; download it again"
            )
        arrays.append(value if shape is None else value.reshape(shape))
    return arrays
