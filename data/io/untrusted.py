"""Reads JSON, XML, npz and meshes from untrusted files, and checks their values."""

from __future__ import annotations

import io
import json
import math
import os
import re
import reprlib
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from data.cameras import LARGEST_NUMBER, affine
from data.errors import LONGEST_REASON, DamagedError, SceneError, one_line, read_by_library
from data.io.files import open_input, read_regular

# Ten thousand frames with their own intrinsics have 15 MB. The parsed values take about thirty times as much memory.
MAX_TEXT_BYTES = 1 << 25
MAX_POINTS_BYTES = 1 << 27  # files that have the points of structure from motion, too
LARGEST_SIZE = 1 << 16  # pixels per side, the limit of JPEG
# Relative deviation of R^T R from a multiple of the identity. Three decimals in a text file give up to 2e-3, an error
# of one or two pixels in an image 1000 pixels wide.
RIGID_TOLERANCE = 5e-3
# OpenGL's camera axes, used by Blender, instant-ngp and nerfstudio: y up, looking along -z.
OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
# A 4 x 4 matrix of float64 has 256 bytes with its header; the limit allows longer headers and wider types.
MAX_MEMBER_BYTES = 1 << 16
# A thousand views with inverses and bounds have 2 MB; the archive's directory is read completely.
MAX_NPZ_BYTES = 1 << 30
# The methods that numpy writes into npz archives. zipfile decompresses the other methods without a limit.
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_json(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> object:
    """The JSON value in the file; raises SceneError for anything else.

    NaN and Infinity, which Python writes, are accepted here: `number` rejects them with the name of the key.
    """
    try:
        return json.loads(read_content(path, most_bytes).decode("utf-8-sig"))
    except RecursionError as error:
        raise SceneError(f"{path}: is nested too deeply; write it again") from error
    except json.JSONDecodeError as error:
        where = f"{error.msg} in line {error.lineno}, column {error.colno}"
        raise SceneError(f"{path}: cannot be read as JSON ({where}); write it again") from error
    except (ValueError, MemoryError) as error:
        why = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "contains a number that is too long"
        raise SceneError(f"{path}: cannot be read as JSON (it {why}); write it again") from error


def read_object(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """The JSON object in the file, as `read_json`; raises SceneError for anything else."""
    content = read_json(path, most_bytes)
    if not isinstance(content, dict):
        raise SceneError(f"{path}: contains {kind(content)} and must contain an object, {{...}}; write it again")
    return content


def read_content(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of the file; raises SceneError if it cannot be read, or is larger than `most_bytes`."""
    try:
        content = read_regular(path, most_bytes + 1)
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error
    if len(content) > most_bytes:
        raise SceneError(f"{path}: is larger than {most_bytes >> 20} MiB, too large to be read; write it again")
    if not content:
        raise SceneError(f"{path}: is empty; write it again")
    return content


def kind(value: object) -> str:
    """The JSON type of a value, in words for a message."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def number(where: str, key: str, value: object) -> float:
    """`value` as a finite float; raises SceneError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            converted = float(value)
        except OverflowError:
            converted = math.inf
        if math.isfinite(converted):
            return converted
    raise SceneError(f"{where}: {key} is {reprlib.repr(value)} and must be a finite number; correct it")


def positive(where: str, key: str, value: object) -> float:
    """`value` as a finite float above 0; raises SceneError for anything else."""
    converted = number(where, key, value)
    if converted <= 0:
        raise SceneError(f"{where}: {key} is {converted:g} and must be above 0; correct it")
    return converted


def side(where: str, key: str, value: object) -> int:
    """`value` as a number of pixels, 1 to LARGEST_SIZE; 1080.0 is accepted. Raises SceneError for anything else."""
    converted = positive(where, key, value)
    if converted != int(converted) or converted > LARGEST_SIZE:
        raise SceneError(
            f"{where}: {key} is {converted:g} and must be a whole number of pixels, at most {LARGEST_SIZE}; correct it"
        )
    return int(converted)


def text(where: str, key: str, value: object) -> str:
    """`value` if it is a string that is not blank; raises SceneError for anything else."""
    if not isinstance(value, str) or not value.strip():
        raise SceneError(f"{where}: {key} is {reprlib.repr(value)} and must be a text; correct it")
    return value


def matrix(where: str, key: str, value: object) -> np.ndarray:
    """`value` as float64 [4, 4], from three or four rows of four finite numbers; the last row must be 0 0 0 1.

    Raises SceneError for anything else.
    """
    rows = value if isinstance(value, list) else []
    if len(rows) not in (3, 4) or not all(isinstance(row, list) and len(row) == 4 for row in rows):
        raise SceneError(f"{where}: {key} must have four rows of four numbers; write it again")
    numbers = [[number(where, f"an entry of {key}", entry) for entry in row] for row in rows]
    result = np.array([*numbers, [0.0, 0.0, 0.0, 1.0]][:4])
    if not np.allclose(result[3], [0, 0, 0, 1], rtol=0, atol=1e-6):
        raise SceneError(f"{where}: the last row of {key} must be 0 0 0 1 and is {result[3].tolist()}; correct it")
    return result


def rigid_pose(where: str, key: str, matrix: np.ndarray) -> np.ndarray:
    """The camera-to-world `matrix` [4, 4] with its axes replaced by the nearest rotation; the centre is kept.

    A uniform scale of the axes, as in Blender for children of scaled objects, is removed: it does not change the rays.
    Raises SceneError, naming `where` and `key`, for axes that are mirrored, not orthogonal or of different lengths.
    """
    axes = matrix[:3, :3]
    with np.errstate(all="ignore"):  # overflow gives NaN, which is rejected below
        squares = axes.T @ axes
        squared_scale = np.trace(squares) / 3
        deviation = np.abs(squares / squared_scale - np.eye(3)).max()
    if not (0 < squared_scale < np.inf and deviation <= RIGID_TOLERANCE):
        raise SceneError(
            f"{where}: {key} is not a rotation (its first three columns must be orthogonal and of equal length); "
            "correct it"
        )
    if not np.abs(matrix[:3, 3]).max() < LARGEST_NUMBER:
        raise SceneError(
            f"{where}: {key} puts the camera {np.abs(matrix[:3, 3]).max():.3g} from the origin, beyond "
            f"{LARGEST_NUMBER:g}; correct it"
        )
    left, _, right = np.linalg.svd(axes / np.sqrt(squared_scale))
    if np.linalg.det(left @ right) < 0:
        raise SceneError(f"{where}: {key} is mirrored (its axes are left-handed); correct it")
    return affine(left @ right, matrix[:3, 3])


def objects(where: str, key: str, content: Mapping[str, object]) -> list[dict[str, object]]:
    """The non-empty list of objects `key` in `content`; raises SceneError for anything else."""
    value = content.get(key)
    if not isinstance(value, list) or not value:
        given = "is missing" if key not in content else "is empty" if value == [] else f"is {kind(value)}"
        raise SceneError(f"{where}: {key} {given} and must be a list with an entry for each photograph")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise SceneError(f"{where}: {key}[{index}] is {kind(entry)} and must be an object; write it again")
    return value


def read_xml(source: Path, program: str, remedy: str) -> ElementTree.Element:
    """The root of a file of `program`; raises SceneError, ending with `remedy`, for other files.

    A document type is refused, in any encoding: its entities could expand to gigabytes.
    """

    class Builder(ElementTree.TreeBuilder):
        def doctype(self, *_: object) -> None:
            raise SceneError(f"{source}: declares a document type, which {program} does not; {remedy}")

    content = read_content(source)
    try:
        with read_by_library():
            return ElementTree.fromstring(content, ElementTree.XMLParser(target=Builder()))
    except DamagedError as error:
        raise SceneError(f"{source}: cannot be read as XML ({one_line(str(error))}); {remedy}") from error


def read_members(path: Path, wanted: re.Pattern | None, most: int = MAX_MEMBER_BYTES) -> dict[str, np.ndarray]:
    """The arrays of the npz file at `path` whose names match `wanted` (None: all), by name without .npy.

    Raises DamagedError for a file that is not npz, for a member that is damaged, contains objects or decompresses to
    more than `most` bytes, and OSError for a file that cannot be read.
    """
    with open_input(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_NPZ_BYTES:
            raise DamagedError(f"it is larger than {MAX_NPZ_BYTES >> 20} MiB")
        try:
            with read_by_library():
                archive = zipfile.ZipFile(file)
        except DamagedError as error:
            raise DamagedError("it is not an npz archive, or it is damaged") from error
        arrays = {}
        for entry in archive.infolist():
            key, name = entry.filename.removesuffix(".npy"), entry.filename[:LONGEST_REASON]
            if wanted and not wanted.fullmatch(key):
                continue
            if entry.file_size > most:
                raise DamagedError(f"{name} would decompress to {entry.file_size} bytes, far more than it needs")
            if entry.compress_type not in ZIP_METHODS:
                raise DamagedError(f"{name} has a compression method that numpy never uses")
            try:
                with read_by_library():
                    arrays[key] = _parsed_npy(archive.read(entry), most)
            except DamagedError as error:
                raise DamagedError(f"{name}: {error}") from error
        return arrays


def read_npy(path: Path, most: int) -> np.ndarray:
    """The array in the .npy file at `path`.

    Raises DamagedError for a file of more than `most` bytes, or one that is damaged or contains objects, and OSError
    for a file that cannot be read.
    """
    content = read_regular(path, most + 1)
    if len(content) > most:
        raise DamagedError(f"it is larger than {most >> 20} MiB")
    with read_by_library():
        return _parsed_npy(content, most)


def _parsed_npy(content: bytes, most: int) -> np.ndarray:
    """The array of a .npy file; raises DamagedError if its header claims more than `most` bytes."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > most:
        raise DamagedError(f"it claims {math.prod(shape)} values, far more than it needs")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


# trimesh accepts truncated text.

# A line of OBJ with too few coordinates or corners, or with the index 0; indices count from 1.
BAD_LINE = re.compile(rb"^[vf](?:[ \t]+\S+){0,2}(?<!\\)[ \t\r]*$|^f[^\n]*[ \t]0(?=[/\s])", re.MULTILINE)
GROUP = re.compile(rb"^(?:usemtl|mtllib|[ogs])[ \t][^\n]*$", re.MULTILINE)
NEXT_SOLID = re.compile(rb"^[ \t]*endsolid[^\n]*\n\s*solid", re.IGNORECASE | re.MULTILINE)


def load_geometry(content: bytes, file_type: str, **options: Any) -> Any:
    """Load a file's content with trimesh, without materials; `options` of `trimesh.load`.

    The file name is not passed, so that trimesh does not open referenced materials and textures. Raises DamagedError
    for a damaged or truncated file, and one with less than it announces.
    """
    import trimesh  # takes half a second, and most scenes do not need it

    log = trimesh.util.log
    was_disabled, log.disabled = log.disabled, True
    try:
        with read_by_library():
            stream = io.BytesIO(CHECKS.get(file_type, bytes)(content))
            warnings.filterwarnings("error", message="string or file could not be read to its end")
            return trimesh.load(stream, file_type=file_type, process=False, skip_materials=True, **options)
    finally:
        log.disabled = was_disabled


def _checked_ply(content: bytes) -> bytes:
    """Raises DamagedError for a text with fewer rows, or shorter ones, than announced; trimesh checks binary files."""
    header, _, body = content.partition(b"end_header")
    is_text = re.search(rb"^[ \t]*format[ \t]+ascii", header, re.MULTILINE) is not None
    rows = iter(body.splitlines()[1:] if is_text else ())
    for element in re.split(rb"^[ \t]*element[ \t]", header, flags=re.MULTILINE)[1:]:
        first, *others = (line.split() for line in element.decode("utf-8", "replace").splitlines())
        name, count = first[0], int(first[1])
        if count < 0:
            raise DamagedError(f"it announces {count} rows of {name}")
        are_lists = [words[1] == "list" for words in others if words and words[0] == "property"]
        for number in range(count if is_text else 0):
            row, at = next(rows, b"").split(), 0
            for is_list in are_lists:
                at += 1 + (int(row[at]) if is_list and at < len(row) else 0)
            if not 0 < at <= len(row):
                raise DamagedError(f"it is truncated: it has {number} of {count} rows of {name}")
    return content


def _checked_obj(content: bytes) -> bytes:
    """The content without groups and materials, each of which would be a mesh of its own."""
    if (line := BAD_LINE.search(content)) is not None:
        number = content.count(b"\n", 0, line.start()) + 1
        raise DamagedError(f"line {number} has too few numbers, or the index 0")
    return GROUP.sub(b"", content)


def _checked_stl(content: bytes) -> bytes:
    """The content, of a text with all solids in one: trimesh would leave out a truncated one after whole ones."""
    is_binary = len(content) >= 84 and len(content) == 84 + 50 * int.from_bytes(content[80:84], "little")
    return content if is_binary else NEXT_SOLID.sub(b"", content)


def _checked_glb(content: bytes) -> bytes:
    """Raises DamagedError for announced values without bytes in the file, for which trimesh would take zeros."""
    size = int.from_bytes(content[12:16], "little")
    if any("bufferView" not in accessor for accessor in json.loads(content[20 : 20 + size]).get("accessors", ())):
        raise DamagedError("it has values without data, or compressed ones")
    return content


CHECKS = {"ply": _checked_ply, "obj": _checked_obj, "stl": _checked_stl, "glb": _checked_glb}
