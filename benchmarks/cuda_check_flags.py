"""What the flags of cuda_check.py may be."""

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
Compiles everything that a step of each conf compiles, for capabilities 8.0 and 9.0 or those that are asked for, by the
real nvcc against a GPU that is pretended; takes steps, at the beginning, in the middle of the training and in two
parts, and looks whether Jittor's variables and operations stay as many, whether the host waits for the GPU once a step
and no more, and whether each operation holds code for all capabilities. With one conf of each kind it then makes a
picture and meshes, and with all confs it computes the doctor's example of each operation. Then the
step at the released size, once with the operations' own forms and once in plain Jittor: host time, kernels, Jittor's
pool. Kernels do nothing, so no result means anything. The headers of cuBLAS and cuRAND are fetched by pip where they
are missing. Exit status 0 where all of that holds or there is no nvcc, 2 for a flag that makes no sense and for folders
that cannot be written to, else 1; targets that are missed are only told.
"""
CAPABILITIES = (80, 90)  # that are compiled for; the last is the simulated GPU's
STEPS = 30


def confs() -> list[str]:
    """The names of all."""
    return sorted(path.stem for path in (ROOT / "confs").glob("*.conf"))


class Parser(argparse.ArgumentParser):
    """Raises UserError, one sentence, where argparse prints a page."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError with the message of the parser."""
        raise UserError(message)


def conf(text: str) -> str:
    """The name of a conf; raises ArgumentTypeError, as the others do."""
    if text not in confs():
        raise argparse.ArgumentTypeError(f"{text!r} is no conf of confs/{nearest(text, confs())}")
    return text


def count(text: str) -> int:
    """How many steps are taken."""
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number in 1..999999")
    return int(text)


def capability(text: str) -> int:
    """A capability as an integer, 75 for 7.5."""
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
