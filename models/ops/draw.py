"""Random pixels of photographs on the device: their rays, colours, masks and jitter.

The numbers of a ray depend only on the key of the batch and its index, by `philox`: its place in the order of views,
the column and the row in the window of its view, and its jitter. The places are stratified: ray r of R is in the part
r / R to (r + 1) / R of the pixels of all windows, in the order of views and beginning at `turn`. So all pixels have the
same probability, rays are sorted by view, and no view is always among the last rays, which may have no samples. The
rays are those of `data.cameras.rays_of`, computed in float64 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.cameras import SPAN_HALF_LENGTH, rays_of
from data.rays import PixelBatch, Rays
from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

# Counter-based random numbers, Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
# 3", SC 2011. The native form is csrc/both/philox.h.
ROUNDS = 10  # the usual number; 7 rounds already pass the published tests
MULTIPLIERS, STEPS_OF_KEY = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF  # 32 bits
BITS = 24  # used bits of 32: as many as float32 represents exactly


def _words(name: str, values: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Words as constants of the native source, where they are signed."""
    return tuple((f"{name}_{place}", int(np.uint32(value).view(np.int32))) for place, value in enumerate(values))


PHILOX = (  # constants of the native source
    ("ROUNDS", ROUNDS),
    ("BITS", BITS),
    *_words("MULTIPLIER", MULTIPLIERS),
    *_words("STEP_OF_KEY", STEPS_OF_KEY),
)


def philox(count: int, key: tuple[int, int]) -> np.ndarray:
    """Random words, uint32 [N, 4], of the counters (n, 0, 0, 0) under a key of two words."""
    keys = np.array(key, np.int64).astype(np.uint64) & np.uint64(WORD)
    a, b, c, d = np.arange(count, dtype=np.uint64), *np.zeros((3, count), np.uint64)
    for _ in range(ROUNDS):
        left, right = (values * np.uint64(by) for values, by in zip((a, c), MULTIPLIERS, strict=True))
        a, c = (right >> np.uint64(32)) ^ b ^ keys[0], (left >> np.uint64(32)) ^ d ^ keys[1]
        b, d = right & np.uint64(WORD), left & np.uint64(WORD)
        keys = (keys + np.array(STEPS_OF_KEY, np.uint64)) & np.uint64(WORD)
    return np.stack([a, b, c, d], axis=1).astype(np.uint32)


OFFSET, WIDTH, LEFT, TOP, COLUMNS, ROWS = range(6)  # of a row of `Photographs.windows`
TO_WORLD = 9  # numbers of a camera before its centre


@dataclass(frozen=True)
class Draw:
    """The layout of a batch."""

    rays: int  # R
    first_key: int  # key of the random numbers, two numbers of 31 bits
    second_key: int
    turn: np.float64  # where in the order of views the batch begins, in [0, 1)
    masked: int  # 1 if there are masks


@dataclass(frozen=True)
class Photographs:
    """The V photographs of a scene, N pixels in total, on the device."""

    windows: Var  # int32 [V, 6]: first pixel and width of the photograph; left, top, width and height of its window
    shares: Var  # float64 [V]: the part of all windows in this one and those before
    cameras: Var  # float64 [V, 12]: rotation of c2w times inverse of the intrinsics, by rows; camera centre
    rgb: Var  # uint8 [N, 3]
    masks: Var | None  # uint8 [N]


SOURCE = Source("draw.h", (Draw,), (("SPAN_HALF_LENGTH", SPAN_HALF_LENGTH), *PHILOX))


def _reference(photographs: Photographs, draw: Draw) -> tuple[PixelBatch, Var]:
    """The pixels of a batch of R rays, as Vars, and their jitter, float32 [R, 1] in [0, 1)."""
    windows, shares = photographs.windows.numpy(), photographs.shares.numpy()
    words = philox(draw.rays, (draw.first_key, draw.second_key))
    place = draw.turn + (np.arange(draw.rays) + words[:, 0] * 2.0**-32) / draw.rays
    view = np.minimum(np.searchsorted(shares, place - (place >= 1.0), side="right"), len(windows) - 1).astype(np.int32)
    own = windows[view].astype(np.int64)
    x, y = (
        own[:, first] + (words[:, word].astype(np.int64) * own[:, size] >> 32)
        for word, first, size in ((1, LEFT, COLUMNS), (2, TOP, ROWS))
    )
    cameras = photographs.cameras.numpy()
    to_world, centres = cameras[:, :TO_WORLD].reshape(-1, 3, 3), cameras[:, TO_WORLD:]
    rays = rays_of(np.stack([x, y], axis=1), view, to_world, centres)
    pixel = own[:, OFFSET] + y * own[:, WIDTH] + x
    jitter = (words[:, 3:] >> np.uint32(32 - BITS)).astype(np.float32) * np.float32(2.0**-BITS)
    rgb, mask = (
        None if values is None else values.numpy()[pixel].astype(np.float32) / np.float32(255)
        for values in (photographs.rgb, photographs.masks)
    )
    arrays = [*vars(rays).values(), jitter, rgb, view, *([] if mask is None else [mask[:, None]])]
    return _batch([jt.array(array) for array in arrays])


def _native(photographs: Photographs, draw: Draw) -> tuple[PixelBatch, Var]:
    """One operation."""
    outputs = [*((draw.rays, width) for width in (3, 3, 1, 1, 1, 3)), ((draw.rays,), "int32")]
    outputs += [(draw.rays if draw.masked else 1, 1)]
    masks = photographs.masks if draw.masked else photographs.rgb[:1]
    inputs = [photographs.windows, photographs.shares, photographs.cameras, photographs.rgb, masks]
    pixels = SOURCE.call("draw_pixels", draw, outputs, inputs)
    return _batch(pixels if draw.masked else pixels[:-1])


def _batch(values: list[Var]) -> tuple[PixelBatch, Var]:
    origins, directions, near, far, jitter, rgb, view, *mask = (value.stop_grad() for value in values)
    return PixelBatch(Rays(origins, directions, near, far), rgb, mask[0] if mask else None, view), jitter


draw_pixels = Kernel(_reference, cuda=_native)
