"""Types for argparse."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

MAX_INT = 2**31 - 1


def whole(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: an integer in least..most."""

    def convert(text: str) -> int:
        digits = text.removeprefix("-")
        if not is_index(digits) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number in {least}..{most}")
        return int(text)

    return convert


def finite(text: str) -> float:
    """An argparse type: a finite number."""
    try:
        value = number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def positive(text: str) -> float:
    """An argparse type: a finite number above 0."""
    value = finite(text)
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def number(text: str) -> float:
    """`float(text)` for ASCII text without underscores; raises ValueError otherwise."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def is_index(text: str) -> bool:
    """Whether the text is a decimal integer, short enough for an index."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT))
