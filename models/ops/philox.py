"""Counter-based random numbers: Philox4x32-10. The native form is csrc/both/philox.h.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import numpy as np

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
