"""A training of bm_versions.py, in the folder of its checkout: `python versions_worker.py WARM_UP STEPS ARGUMENTS...`.

Runs its command line with ARGUMENTS; after WARM_UP steps it serves the command `round`, which takes STEPS further ones.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from serve import serve  # this folder's, whatever checkout is measured


def main(arguments: list[str]) -> int:
    """Train; the process ends with its standard input."""
    sys.path.insert(0, os.getcwd())  # the checkout
    answers = os.dup(1)
    os.dup2(2, 1)  # standard output carries only the answers
    import exp_runner
    from models.training import trainer

    warm_up, steps, taken = int(arguments[0]), int(arguments[1]), 0
    step = trainer.Trainer.step

    def warm_step(self: trainer.Trainer) -> Any:
        nonlocal taken
        if taken == warm_up:
            os.dup2(answers, 1)
            serve({"round": lambda: _timed(lambda: step(self), steps)})
            os._exit(0)
        taken += 1
        return step(self)

    trainer.Trainer.step = warm_step
    return exp_runner.main(arguments[2:])


def _timed(step: Any, steps: int) -> dict[str, float]:
    """Wall-clock and CPU seconds of one of `steps` steps."""
    import jittor

    jittor.sync_all(True)
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    jittor.sync_all(True)
    return {"wall": (time.perf_counter() - wall) / steps, "processor": (time.process_time() - processor) / steps}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
