"""Sample positions along rays, as pure functions of Vars; `depths` are interval starts along the unit direction,
ascending.

R rays, N depths. Nothing here is differentiated; callers disable gradients (NeuS, arXiv 2106.10689, section 3.3 and
appendix B; the constants are those of https://github.com/Totoro97/NeuS/blob/6e0a230/models/renderer.py).
"""

from __future__ import annotations

import numpy as np

from data.cameras import SPAN_LENGTH
from models.machine.backend import jt
from models.structs import Var

FIRST_INV_S = 64.0  # inv_s of the first up-sampling round; each further round doubles it
FARTHEST_FRACTION = 1e-3  # inverse distance of the farthest background depth, relative to that of `far`


def inside_depths(near: Var, far: Var, count: int, jitter: Var | None) -> Var:
    """Evenly spaced depths from near to far, [R, 1] -> [R, count].

    Args:
        jitter: [R, 1] uniform in [0, 1), shifts all depths of a ray by up to half an interval; None for no shift.
    """
    depths = near + (far - near) * jt.array(np.linspace(0.0, 1.0, count, dtype=np.float32)[None, :])
    if jitter is None:
        return depths
    return depths + (jitter - 0.5) * (SPAN_LENGTH / count)


def outside_depths(far: Var, count: int, inside_count: int, jitter: Var | None) -> Var:
    """Depths beyond the sphere, evenly spaced in inverse distance, [R, 1] -> [R, count] (NeRF++, arXiv 2010.07492).

    Args:
        inside_count: `n_samples`; the first depth lies one interval beyond `far`.
        jitter: [R, count] uniform in [0, 1), places each depth within its stratum; None for the strata's own.
    """
    fraction = np.linspace(FARTHEST_FRACTION, 1.0 - 1.0 / (count + 1.0), count, dtype=np.float32)
    if jitter is None:
        placed = jt.array(fraction[None, ::-1].copy())
    else:
        middles = 0.5 * (fraction[1:] + fraction[:-1])
        upper = np.concatenate([middles, fraction[-1:]])
        lower = np.concatenate([fraction[:1], middles])
        stratum = jt.array(np.stack([lower[::-1], (upper - lower)[::-1]]))
        placed = stratum[:1] + stratum[1:] * jitter[:, ::-1]
    return far / placed + 1.0 / inside_count


def round_counts(total: int, rounds: int) -> list[int]:
    """The number of new depths of each up-sampling round; the last, sharpest rounds get the remainder.

    With total < rounds, the first rounds get none.
    """
    if total == 0:
        return []
    base, remainder = divmod(total, rounds)
    return [base + (1 if index >= rounds - remainder else 0) for index in range(rounds)]


def strata(near: Var, far: Var, count: int) -> Var:
    """Borders of `count` equal strata from near to far, [R, 1] -> [R, count + 1] (NeRF, arXiv 2003.08934, eq. 2)."""
    return near + (far - near) * jt.array(np.linspace(0.0, 1.0, count + 1, dtype=np.float32)[None, :])


def stratified_depths(borders: Var, jitter: Var | None) -> Var:
    """A depth in each stratum: [R, N + 1] -> [R, N]; jitter [R, N] uniform in [0, 1), None for the middles."""
    share = 0.5 if jitter is None else jitter
    return borders[:, :-1] + (borders[:, 1:] - borders[:, :-1]) * share
