"""Writes and reads Gaussians as the .ply of Gaussian viewers, in the world frame. Does not import Jittor.

The published properties in the published order (https://github.com/graphdeco-inria/gaussian-splatting,
scene/gaussian_model.py, save_ply): x y z nx ny nz f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3, float32 and
little-endian; f_rest channel by channel. N splats. Files are untrusted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from data.errors import DamagedError, read_by_library
from data.io.files import is_file, read_regular
from data.io.untrusted import load_geometry
from models.machine.available import available_bytes
from models.methods.gaussians.conf import SURFELS, SplatsConfig
from models.ops.gaussians.harmonics import MOST_DEGREE, count_of, turning
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError

PLY_SUFFIX = ".ply"
SPLATS_NETWORK = "splats"
PLY_COPIES = 8  # memory while a file is read, in sizes of the file: two copies, and the numbers as float64
FLAT_LOG_SCALE = -20.0  # log of a surfel's third scale relative to the larger of the others: invisibly thin
LARGEST_VALUE = 1e9  # of any number; its square does not overflow float32
_FIXED: tuple[str, ...] = ("x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity")
_FIXED += ("scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3")

Splats = dict[str, np.ndarray]  # as `models.methods.gaussians.splats` names them


def encode(splats: Splats, scene_to_world: np.ndarray, is_flat: bool) -> bytes:
    """The file's content for splats in the working frame."""
    world = in_world(splats, scene_to_world, is_flat)
    count, coefficients = len(world["means"]), world["rest"].shape[1]
    columns = [world["means"], np.zeros((count, 3)), world["dc"]]
    columns += [world["rest"].transpose(0, 2, 1).reshape(count, -1), world["opacities"], world["sizes"], world["quats"]]
    names = ["x", "y", "z", "nx", "ny", "nz", *(f"f_dc_{k}" for k in range(3))]
    names += [*(f"f_rest_{k}" for k in range(3 * coefficients)), *_FIXED[6:]]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [*(f"property float {name}" for name in names), "end_header"]
    return ("\n".join(lines) + "\n").encode() + np.concatenate(columns, axis=1).astype("<f4").tobytes()


def to_checkpoint(path: Path, conf: SplatsConfig, scene_to_world: np.ndarray, step: int) -> Checkpoint:
    """The splats of a file as a checkpoint for rendering; training cannot continue from it, as it has no moments.

    Raises CheckpointError for other files, and for spherical harmonics beyond the degree of the conf.
    """
    splats = _moved(_read(path, conf), np.linalg.inv(scene_to_world))
    if not all(np.isfinite(array).all() for array in splats.values()):
        raise CheckpointError(
            f"{path}: its numbers exceed the range of the scene; export it in the world frame of the scene's cameras"
        )
    tensors = {SPLATS_NETWORK: {name: array.astype(np.float32) for name, array in splats.items()}}
    moments = {
        moment: {f"{SPLATS_NETWORK}.{name}": np.zeros_like(array) for name, array in tensors[SPLATS_NETWORK].items()}
        for moment in MOMENTS
    }
    return Checkpoint(step, tensors, moments, 0, {"source": "ply"}, {}, {"flat": np.array([conf.form == SURFELS])})


def _read(path: Path, conf: SplatsConfig) -> Splats:
    """The splats of a file, float64, world frame."""
    try:
        if not is_file(path):
            raise CheckpointError(f"There is no file {path}: give the path of an existing .ply of Gaussians.")
        if PLY_COPIES * path.stat().st_size > available_bytes():
            raise CheckpointError(f"{path}: its Gaussians do not fit into memory; end other programs")
        content = read_regular(path)
        with read_by_library():
            rows = load_geometry(content, "ply").metadata.get("_ply_raw", {}).get("vertex", {}).get("data", ())
            names = rows.dtype.names if isinstance(rows, np.ndarray) else tuple(rows)  # of a text: a dictionary
            if not names or len(rows[names[0]]) == 0:
                raise CheckpointError(f"{path}: contains no Gaussians; export it again")
            return _splats(path, {name: np.reshape(rows[name], len(rows[names[0]])) for name in names}, conf)
    except DamagedError as error:
        raise CheckpointError(f"{path} cannot be read as a .ply of Gaussians ({error}); write it again") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}); check it") from error


def _splats(path: Path, rows: dict[str, np.ndarray], conf: SplatsConfig) -> Splats:
    """The splats of the properties [N] by name; those beyond the published ones are ignored."""
    names, count = tuple(rows), len(next(iter(rows.values())))
    if missing := [name for name in _FIXED if name not in names]:
        raise CheckpointError(f"{path}: has no property {missing[0]}; export it from a Gaussian viewer")
    channels = sum(name.startswith("f_rest_") for name in names)
    known = {3 * (count_of(degree) - 1): degree for degree in range(MOST_DEGREE + 1)}
    if channels not in known or any(f"f_rest_{k}" not in names for k in range(channels)):
        raise CheckpointError(f"{path}: is damaged: it has {channels} properties f_rest_* and must have 0, 9, 24 or 45")
    if known[channels] > conf.degree:
        raise CheckpointError(
            f"{path}: has colours of degree {known[channels]}, the conf has model.gaussians.degree = {conf.degree}; "
            f"set it to {known[channels]}"
        )

    def table(*wanted: str) -> np.ndarray:
        values = np.stack([rows[name].astype(np.float64) for name in wanted], axis=1)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(values) <= LARGEST_VALUE)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise CheckpointError(
                f"{path}: {wanted[column]} of Gaussian {row} is {rows[wanted[column]][row]}, which is out of range; "
                "write it again"
            )
        return values

    rest = np.zeros((count, conf.rest, 3))
    if channels:
        named = table(*(f"f_rest_{k}" for k in range(channels)))
        rest[:, : channels // 3] = named.reshape(count, 3, -1).transpose(0, 2, 1)
    return {
        "means": table("x", "y", "z"),
        "quats": table("rot_0", "rot_1", "rot_2", "rot_3"),
        "sizes": np.clip(table("scale_0", "scale_1", "scale_2"), -60.0, 60.0),
        "opacities": np.clip(table("opacity"), -60.0, 60.0),
        "dc": table("f_dc_0", "f_dc_1", "f_dc_2"),
        "rest": rest,
    }


def in_world(splats: Splats, scene_to_world: np.ndarray, is_flat: bool) -> Splats:
    """The splats in world coordinates; the third scale of surfels is invisibly thin."""
    world = _moved(splats, scene_to_world)
    if is_flat:
        world["sizes"] = world["sizes"].copy()
        world["sizes"][:, 2] = FLAT_LOG_SCALE + world["sizes"][:, :2].max(axis=1)
    return world


def _moved(splats: Splats, matrix: np.ndarray) -> Splats:
    """The splats transformed by a similarity [4, 4]."""
    scale = float(np.cbrt(np.linalg.det(matrix[:3, :3])))
    turn = matrix[:3, :3] / scale
    x, y, z, w = Rotation.from_matrix(turn).as_quat()
    product = np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])  # of this and a quaternion
    coefficients = splats["rest"].shape[1]
    degree = max(degree for degree in range(MOST_DEGREE + 1) if count_of(degree) - 1 <= coefficients)
    rest = np.array(splats["rest"], np.float64)
    used = count_of(degree) - 1
    if used:
        turned = turning(degree, turn)[1:, 1:]
        rest[:, :used] = np.einsum("jk,nkc->njc", turned, rest[:, :used])
    return {
        "means": np.asarray(splats["means"], np.float64) @ matrix[:3, :3].T + matrix[:3, 3],
        "quats": np.asarray(splats["quats"], np.float64) @ product.T,
        "sizes": np.asarray(splats["sizes"], np.float64) + np.log(scale),
        "opacities": np.asarray(splats["opacities"], np.float64),
        "dc": np.asarray(splats["dc"], np.float64),
        "rest": rest,
    }
