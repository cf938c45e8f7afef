"""A training of bm_versions.py, in the folder of its checkout: `python versions_worker.py WARM_UP STEPS ARGUMENTS...`.

Runs its command line with ARGUMENTS, and waits for a line of standard input before each STEPS steps. Writes READY
and then, after the steps, the wall-clock and CPU seconds that they took, to standard error.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

READY, TOOK = "READY", "TOOK"


def main(arguments: list[str]) -> int:
    """Train; ends with the first end of standard input."""
    sys.path.insert(0, os.getcwd())  # the checkout, not the folder of this file
    import exp_runner
    from models.training import trainer

    warm_up, block, taken, began = int(arguments[0]), int(arguments[1]), 0, (0.0, 0.0)
    step = trainer.Trainer.step

    def timed_step(self: trainer.Trainer) -> Any:
        nonlocal taken, began
        if taken >= warm_up and (taken - warm_up) % block == 0:
            import jittor

            jittor.sync_all(True)
            now = (time.perf_counter(), time.process_time())
            words = [READY] if taken == warm_up else [TOOK, *(str(b - a) for a, b in zip(began, now, strict=True))]
            print(f"\n{' '.join(words)}", file=sys.__stderr__, flush=True)  # a progress bar may hold the line
            if not sys.stdin.readline():
                os._exit(0)
            began = (time.perf_counter(), time.process_time())
        taken += 1
        return step(self)

    trainer.Trainer.step = timed_step
    return exp_runner.main(arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
