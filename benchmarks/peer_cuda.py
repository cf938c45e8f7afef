"""The published code's step on a card: `PYTHON peer_cuda.py FOLDER JOB.npz WEIGHTS.npz [DEVICE]`; a line of JSON.

As peer.py, in the interpreter that has PyTorch; the tensors are made on the GPU, as its exp_runner.py has it. DEVICE:
cuda, or cpu to see whether it runs at all.
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
    folder, job, weights, *rest = sys.argv[1:]
    device = rest[0] if rest else "cuda"
    sys.path.insert(0, folder)
    import peer

    peer.stand_in_for_unused()
    is_gpu = device == "cuda"
    if is_gpu:  # as its exp_runner.py does: a default device would leave torch.Tensor(...), which it calls, on the CPU
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    found = {"torch": torch.__version__, "card": torch.cuda.get_device_name() if is_gpu else ""}
    for name, is_reduced in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = is_reduced
        there = There(peer, job, weights, device)
        times = [there.step() for _ in range(WARM_UP + (STEPS if is_gpu else 1))][WARM_UP:]
        found[f"{name}_seconds"] = median(times)
    found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20 if is_gpu else 0.0
    print(json.dumps(found))


class There:
    """`peer.Peer` with all its tensors on a device."""

    def __init__(self, module: object, job: str, weights: str, device: str) -> None:
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.peer = module.Peer.__new__(module.Peer)
        made, rand = torch.from_numpy, torch.rand
        torch.from_numpy = lambda array: made(array).to(device)
        try:
            self.peer.__init__(job, weights)
        finally:
            torch.from_numpy, torch.rand = made, rand  # jitter is the device's own

    def step(self) -> float:
        """Seconds of one training step."""
        self.wait()
        begin = time.perf_counter()
        self.peer.step()
        self.wait()
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
