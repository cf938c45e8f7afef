"""Writes and reads Gaussians as the .ply of Gaussian viewers, in the world frame. Does not import Jittor.

The published properties in the published order (https://github.com/graphdeco-inria/gaussian-splatting,
scene/gaussian_model.py, save_ply): x y z nx ny nz f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3, float32 and
little-endian; f_rest channel by channel. N splats. Files are untrusted: the length of the header is limited, and the
size of the file must match it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from data.io.files import is_file
from models.checkpoints.ours import MOMENTS, Checkpoint, CheckpointError
from models.machine.available import available_bytes
from models.methods.gaussians.conf import SURFELS, SplatsConfig
from models.ops.harmonics import MOST_DEGREE, count_of, turning

SUFFIX = ".ply"
NETWORK = "splats"
LONGEST_HEADER = 1 << 14  # bytes; that of the published code has 1,500
READING_COPIES = 4  # copies of the numbers in memory while a file is read
FLAT = -20.0  # log of a surfel's third scale relative to the larger of the others: invisibly thin
LARGEST = 1e9  # of any number; its square does not overflow float32
_TYPES = {"char": 1, "uchar": 1, "int8": 1, "uint8": 1, "short": 2, "ushort": 2, "int16": 2, "uint16": 2}
_TYPES |= {"int": 4, "uint": 4, "int32": 4, "uint32": 4, "float": 4, "float32": 4, "double": 8, "float64": 8}
_FIXED: tuple[str, ...] = ("x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity")
_FIXED += ("scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3")
_VERTEX = re.compile(r"element vertex (\d{1,18})")
_PROPERTY = re.compile(r"property (\w+) (\w+)")

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
    tensors = {NETWORK: {name: array.astype(np.float32) for name, array in splats.items()}}
    moments = {
        moment: {f"{NETWORK}.{name}": np.zeros_like(array) for name, array in tensors[NETWORK].items()}
        for moment in MOMENTS
    }
    return Checkpoint(step, tensors, moments, 0, {"source": "ply"}, {}, {"flat": np.array([conf.form == SURFELS])})


def _read(path: Path, conf: SplatsConfig) -> Splats:
    """The splats of a file, float64, world frame."""
    try:
        if not is_file(path):
            raise CheckpointError(f"There is no file {path}: give the path of an existing .ply of Gaussians.")
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(LONGEST_HEADER)
        count, properties, start = _header(path, head)
        row = sum(_TYPES[kind] for _, kind in properties)
        if size - start != count * row:
            raise CheckpointError(
                f"{path}: is damaged: its header claims {count} Gaussians of {row} bytes, and {size - start} bytes "
                "follow; write it again"
            )
        if READING_COPIES * count * max(row, 8 * conf.numbers) > available_bytes():
            raise CheckpointError(f"{path}: its {count} Gaussians do not fit into memory; end other programs")
        rows = np.fromfile(path, _dtype(properties), count, offset=start)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}); check it") from error
    return _splats(path, rows, [name for name, _ in properties], conf)


def _header(path: Path, head: bytes) -> tuple[int, list[tuple[str, str]], int]:
    """The number of Gaussians, name and type of each property, and the offset of the numbers."""
    end = head.find(b"end_header\n")
    if not head.startswith(b"ply") or end < 0:
        raise CheckpointError(
            f"{path} is not a .ply of Gaussians: its header is invalid; export it from a Gaussian viewer"
        )
    lines = [line.strip() for line in head[:end].decode("ascii", "replace").splitlines()][1:]
    lines = [line for line in lines if line and not line.startswith(("comment", "obj_info"))]
    if not lines or lines[0] != "format binary_little_endian 1.0":
        raise CheckpointError(f"{path}: is not of the format binary_little_endian 1.0; export it as binary PLY")
    vertex = _VERTEX.fullmatch(lines[1]) if len(lines) > 1 else None
    found = [_PROPERTY.fullmatch(line) for line in lines[2:]]
    if vertex is None or any(match is None or match[1] not in _TYPES for match in found):
        raise CheckpointError(
            f"{path}: must have one element, vertex, without list properties; export it from a Gaussian viewer"
        )
    properties = [(match[2], match[1]) for match in found if match is not None]
    if len({name for name, _ in properties}) < len(properties):
        raise CheckpointError(f"{path}: is damaged: it names a property twice; write it again")
    if int(vertex[1]) == 0:
        raise CheckpointError(f"{path}: contains no Gaussians; export it again")
    return int(vertex[1]), properties, end + len(b"end_header\n")


def _dtype(properties: list[tuple[str, str]]) -> np.dtype:
    """The dtype of a row."""
    kinds = {"char": "i1", "uchar": "u1", "short": "<i2", "ushort": "<u2", "int": "<i4", "uint": "<u4"}
    kinds |= {"int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4"}
    kinds |= {"float": "<f4", "float32": "<f4", "double": "<f8", "float64": "<f8"}
    return np.dtype([(name, kinds[kind]) for name, kind in properties])


def _splats(path: Path, rows: np.ndarray, names: list[str], conf: SplatsConfig) -> Splats:
    """The splats of a table; properties beyond the published ones are ignored."""
    if missing := [name for name in _FIXED if name not in names]:
        raise CheckpointError(f"{path}: has no property {missing[0]}; export it from a Gaussian viewer")
    channels = len([name for name in names if re.fullmatch(r"f_rest_\d+", name)])
    known = {3 * (count_of(degree) - 1): degree for degree in range(MOST_DEGREE + 1)}
    if channels not in known or any(f"f_rest_{k}" not in names for k in range(channels)):
        raise CheckpointError(f"{path}: is damaged: it has {channels} properties f_rest_* and must have 0, 9, 24 or 45")
    if known[channels] > conf.degree:
        raise CheckpointError(
            f"{path}: has colours of degree {known[channels]}, the conf has model.gaussians.degree = {conf.degree}; "
            f"set it to {known[channels]}"
        )

    def table(*wanted: str) -> np.ndarray:
        found = np.stack([rows[name].astype(np.float64) for name in wanted], axis=1)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(found) <= LARGEST)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise CheckpointError(
                f"{path}: {wanted[column]} of Gaussian {row} is {rows[wanted[column]][row]}, which is out of range; "
                "write it again"
            )
        return found

    rest = np.zeros((len(rows), conf.rest, 3))
    if channels:
        named = table(*(f"f_rest_{k}" for k in range(channels)))
        rest[:, : channels // 3] = named.reshape(len(rows), 3, -1).transpose(0, 2, 1)
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
        world["sizes"][:, 2] = FLAT + world["sizes"][:, :2].max(axis=1)
    return world


def _moved(splats: Splats, matrix: np.ndarray) -> Splats:
    """The splats transformed by a similarity [4, 4]."""
    scale = float(np.cbrt(np.linalg.det(matrix[:3, :3])))
    turn = matrix[:3, :3] / scale
    coefficients = splats["rest"].shape[1]
    degree = max(degree for degree in range(MOST_DEGREE + 1) if count_of(degree) - 1 <= coefficients)
    rest = np.array(splats["rest"], np.float64)
    used = count_of(degree) - 1
    if used:
        turned = turning(degree, turn)[1:, 1:]
        rest[:, :used] = np.einsum("jk,nkc->njc", turned, rest[:, :used])
    return {
        "means": np.asarray(splats["means"], np.float64) @ matrix[:3, :3].T + matrix[:3, 3],
        "quats": _times(_quaternion(turn), np.asarray(splats["quats"], np.float64)),
        "sizes": np.asarray(splats["sizes"], np.float64) + np.log(scale),
        "opacities": np.asarray(splats["opacities"], np.float64),
        "dc": np.asarray(splats["dc"], np.float64),
        "rest": rest,
    }


def _quaternion(turn: np.ndarray) -> np.ndarray:
    """(w, x, y, z) of a rotation [3, 3]."""
    x, y, z, w = Rotation.from_matrix(turn).as_quat()
    return np.array([w, x, y, z])


def _times(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Products of one quaternion with others [N, 4]."""
    w, x, y, z = first
    matrix = np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])
    return others @ matrix.T
