"""The flags of cuda_check.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from benchmarks.shapes import ROOT
from data.errors import UserError
from models.config.strict import nearest
from models.machine.cuda.facts import dotted

DESCRIPTION = """
Compiles all operations of a training step of each conf with the real nvcc, for capabilities 8.0 and 9.0 or the given
ones, and runs steps with a simulated GPU: at the beginning, in the middle of the training and in two parts. It checks
that the numbers of Jittor's variables and operations do not grow, that the host waits for the GPU exactly once per
step, and that each operation contains code for all capabilities. With one conf of each model type it then renders an
image and extracts meshes; with all confs it computes the doctor's example of each operation. Then it runs the step at
the released size, with native operations and in plain Jittor, and prints host time, kernels and Jittor's pool. Kernels
are not executed, so results are meaningless. Missing headers of cuBLAS and cuRAND are downloaded with pip. The exit
status is 0 if all checks pass or there is no nvcc, 2 for an invalid flag or a folder that cannot be written to, else 1;
missed targets are only reported.
"""
CAPABILITIES = (80, 90)  # target capabilities; the last is that of the simulated GPU
STEPS = 30


def confs() -> list[str]:
    """The names of all confs."""
    return sorted(path.stem for path in (ROOT / "confs").glob("*.conf"))


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UserError with one sentence instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message."""
        raise UserError(message)


def conf(text: str) -> str:
    """An argparse type: the name of a conf; raises ArgumentTypeError."""
    if text not in confs():
        raise argparse.ArgumentTypeError(f"{text!r} is no conf of confs/{nearest(text, confs())}")
    return text


def count(text: str) -> int:
    """An argparse type: a number of steps."""
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number in 1..999999")
    return int(text)


def capability(text: str) -> int:
    """An argparse type: a capability as an integer, 75 for 7.5."""
    if not re.fullmatch("[1-9][0-9]?[.][0-9]", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: write it as 9.0 is written")
    return int(text.replace(".", ""))


def codes(given: argparse.Namespace, known: Sequence[int]) -> list[int]:
    """The capabilities to compile for, ascending; raises UserError if the compiler does not know one."""
    wanted = sorted(set(given.capability or (CAPABILITIES[-1:] if given.one else CAPABILITIES)))
    if unknown := [code for code in wanted if known and code not in known]:
        raise UserError(f"--capability {dotted(unknown[0])}: nvcc compiles for {told(known)}: choose among these")
    return wanted


def told(codes: Sequence[int]) -> str:
    """Capabilities as text, such as "8.0 and 9.0"."""
    if not codes:
        return "no GPU"
    *first, last = map(dotted, codes)
    return f"{', '.join(first)} and {last}" if first else last
