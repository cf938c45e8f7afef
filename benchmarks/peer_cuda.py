"""The published code's step on a card: `PYTHON peer_cuda.py FOLDER JOB.npz WEIGHTS.npz`; prints a line of JSON.

As peer.py, in the interpreter that has PyTorch; the tensors are made on the card, as its exp_runner.py has it.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import torch

WARM_UP, STEPS = 5, 30


def main() -> None:
    """Time steps, in float32 and with TF32 products."""
    sys.path.insert(0, sys.argv[1])
    import peer

    peer.stand_in_for_unused()
    torch.set_default_device("cuda")
    found = {"torch": torch.__version__, "card": torch.cuda.get_device_name()}
    for name, is_reduced in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = is_reduced
        one = OnCard(peer, sys.argv[2], sys.argv[3])
        times = [one.step() for _ in range(WARM_UP + STEPS)][WARM_UP:]
        found[f"{name}_seconds"] = median(times)
    found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    print(json.dumps(found))


class OnCard:
    """`peer.Peer` with all its tensors on the card."""

    def __init__(self, module: object, job: str, weights: str) -> None:
        self.peer = module.Peer.__new__(module.Peer)
        made, torch.from_numpy = torch.from_numpy, lambda array: made(array).cuda()
        try:
            rand = torch.rand
            self.peer.__init__(job, weights)
            torch.rand = rand  # the card's own
        finally:
            torch.from_numpy = made

    def step(self) -> float:
        """Seconds of one training step."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.peer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
