"""Inputs of a colour network besides normal and feature: the point and the encoded view direction. Constants. P
points.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.network import network_source, positional_encoding, shapes32
from models.ops.sizes import encoding_width
from models.ops.source import Kernel
from models.structs import Var


@dataclass(frozen=True)
class ViewEncoding:
    """The sizes and constants that reference and native source share."""

    octaves: int


SOURCE = network_source("color_inputs.h", ViewEncoding)


def _reference(points: Var, views: Var, octaves: int) -> Var:
    """Points and directions [P, 3] -> [P, 3 + 3 (1 + 2 octaves)]."""
    return jt.concat([points, positional_encoding(views, octaves)], dim=1)


def _native(points: Var, views: Var, octaves: int) -> Var:
    shapes = shapes32((points.shape[0], 3 + encoding_width(3, octaves)))
    return SOURCE.call("color_inputs", ViewEncoding(octaves), shapes, [points, views])[0].stop_grad()


color_inputs = Kernel(_reference, cpu=_native, cuda=_native)
