"""How native CPU operations are compiled and called: the text of csrc/*.h and one line that calls into it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from models.backend import device_info, jt
from models.structs import Var

CSRC = Path(__file__).parent / "csrc"
_LOCAL_LINE = re.compile(r'#pragma once|#include "(.*)"')


def is_available() -> bool:
    """Whether native operations run here: on the CPU; elsewhere their references in plain Jittor do."""
    return device_info().name == "cpu"


def call(
    header: str,
    source: str,
    outputs: Sequence[tuple[tuple[int, ...], str]],
    inputs: Sequence[Var],
    data: Mapping[str, float],
) -> list[Var]:
    """Run `source`, which may use everything in csrc/<header>, at the next synchronisation.

    Args:
        source: C++ with `in0_p ...`, `out0_p ...` for the data of inputs and outputs, `in0->shape[i]` for sizes and
            `data["name"]` for numbers. It is compiled once for each different text.
        outputs: shape and dtype of each output.
    """
    shapes, dtypes = zip(*outputs, strict=True)
    return list(
        jt.code(list(shapes), list(dtypes), list(inputs), cpu_header=_text(header), cpu_src=source, data=dict(data))
    )


@cache
def _text(header: str) -> str:
    """A header with the local ones it includes, each once. Jittor recompiles when this text changes, not a file."""
    seen: set[str] = set()

    def expanded(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        lines = (CSRC / name).read_text(encoding="utf-8").splitlines()
        matches = [(_LOCAL_LINE.fullmatch(line), line) for line in lines]
        return "\n".join((expanded(match[1]) if match[1] else "") if match else line for match, line in matches) + "\n"

    return expanded(header)
