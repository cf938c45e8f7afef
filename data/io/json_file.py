"""JSON from untrusted files: bounded in size and depth, and of the types that a reader asks for.

Every message starts with `where`: the file, and what of it is meant.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data.errors import SceneError

# Ten thousand frames with intrinsics of their own take 15 MB. What is parsed takes some thirty times as much memory.
MAX_FILE_BYTES = 1 << 25
LARGEST_SIZE = 1 << 16  # pixels along one side; JPEG ends there, and PNG images long before


def read_object(path: Path) -> dict[str, object]:
    """The JSON object that the file holds; raises SceneError for anything else.

    NaN and Infinity, which Python writes, are read: `number` names the key that has them.
    """
    try:
        content = json.loads(read_content(path).decode("utf-8-sig"))
    except RecursionError as error:
        raise SceneError(f"{path}: is nested too deeply; write it again") from error
    except (ValueError, MemoryError) as error:
        raise SceneError(f"{path}: cannot be read as JSON ({_reason(error)}); write it again") from error
    if not isinstance(content, dict):
        raise SceneError(f"{path}: holds {kind(content)} and must hold an object, {{...}}; write it again")
    return content


def read_content(path: Path) -> bytes:
    """The bytes of such a file; raises SceneError for one that cannot be read, or is larger than MAX_FILE_BYTES."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SceneError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB, too large to be read; write it again")
        return path.read_bytes()
    except OSError as error:
        raise SceneError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error


def _reason(error: ValueError | MemoryError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in line {error.lineno}, column {error.colno}"
    return "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else "it holds an endless number"


def kind(value: object) -> str:
    """What a value of JSON is, in words, for a message."""
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
    """`value` as a number of pixels, 1 to LARGEST_SIZE; 1080.0 counts. Raises SceneError for anything else."""
    converted = positive(where, key, value)
    if converted != int(converted) or converted > LARGEST_SIZE:
        raise SceneError(
            f"{where}: {key} is {converted:g} and must be a whole number of pixels, at most {LARGEST_SIZE}; correct it"
        )
    return int(converted)


def text(where: str, key: str, value: object) -> str:
    """`value` if it is a text with something in it; raises SceneError for anything else."""
    if not isinstance(value, str) or not value.strip():
        raise SceneError(f"{where}: {key} is {reprlib.repr(value)} and must be a text; correct it")
    return value


def matrix(where: str, key: str, value: object) -> np.ndarray:
    """`value` as float64 [4, 4], from four rows of four finite numbers or the first three of them.

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
    """The list `key` of `content`, of objects, with at least one; raises SceneError for anything else."""
    value = content.get(key)
    if not isinstance(value, list) or not value:
        found = "is missing" if key not in content else "is empty" if value == [] else f"is {kind(value)}"
        raise SceneError(f"{where}: {key} {found} and must be a list with an entry for each photograph")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise SceneError(f"{where}: {key}[{index}] is {kind(entry)} and must be an object; write it again")
    return value
