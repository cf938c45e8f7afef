"""Reads JSON from untrusted files, with limits on size and depth and checks of the types.

Every message starts with `where`, which names the file and the entry.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import SceneError

# Ten thousand frames with their own intrinsics have 15 MB. The parsed values take about thirty times as much memory.
MAX_FILE_BYTES = 1 << 25
MAX_POINTS_BYTES = 1 << 27  # files that have the points of structure from motion, too
LARGEST_SIZE = 1 << 16  # pixels per side, the limit of JPEG


def read_json(path: Path, most_bytes: int = MAX_FILE_BYTES) -> object:
    """The JSON value in the file; raises SceneError for anything else.

    NaN and Infinity, which Python writes, are accepted here: `number` rejects them with the name of the key.
    """
    try:
        return json.loads(read_content(path, most_bytes).decode("utf-8-sig"))
    except RecursionError as error:
        raise SceneError(f"{path}: is nested too deeply; write it again") from error
    except (ValueError, MemoryError) as error:
        raise SceneError(f"{path}: cannot be read as JSON ({_reason(error)}); write it again") from error


def read_object(path: Path, most_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """The JSON object in the file, as `read_json`; raises SceneError for anything else."""
    content = read_json(path, most_bytes)
    if not isinstance(content, dict):
        raise SceneError(f"{path}: contains {kind(content)} and must contain an object, {{...}}; write it again")
    return content


def read_content(path: Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of the file; raises SceneError if it cannot be read, or is larger than `most_bytes`."""
    try:
        if path.stat().st_size > most_bytes:
            raise SceneError(f"{path}: is larger than {most_bytes >> 20} MiB, too large to be read; write it again")
        content = path.read_bytes()
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error
    if not content:
        raise SceneError(f"{path}: is empty; write it again")
    return content


def _reason(error: ValueError | MemoryError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in line {error.lineno}, column {error.colno}"
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "it contains a number that is too long"


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


def objects(where: str, key: str, content: Mapping[str, object]) -> list[dict[str, object]]:
    """The non-empty list of objects `key` in `content`; raises SceneError for anything else."""
    value = content.get(key)
    if not isinstance(value, list) or not value:
        found = "is missing" if key not in content else "is empty" if value == [] else f"is {kind(value)}"
        raise SceneError(f"{where}: {key} {found} and must be a list with an entry for each photograph")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise SceneError(f"{where}: {key}[{index}] is {kind(entry)} and must be an object; write it again")
    return value
