"""The checks that need Jittor, as the task of a child process, so that a crash does not hide the other lines."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from data.errors import UserError
from models.commands.machine_checks.lines import CompileStage, Line, guarded
from models.machine import backend, jittor_import
from models.machine.progress import Word, hand_on

ROWS, INNER = 16384, 256  # a large batch through a hidden layer of the released networks
REPEATS = 10
MATMUL_BOUND = 1e-5  # relative, of sums of 256 products in float32; TF32 is off
REMEDY = "report it with all of these lines, or use --device cpu"


def compute(report: Callable[[Line | CompileStage | Word], None], device: str, gpu: int) -> None:
    """Import Jittor and run the checks; reports each line as soon as it is known, and the start of each stage."""
    hand_on(report)
    begin = time.perf_counter()
    try:
        jittor_import.select(device, gpu)
        info = backend.device_info()
    except UserError as error:
        report(Line.from_sentence("Jittor", str(error), REMEDY))
        return
    found = f"{info.line()}; started in {time.perf_counter() - begin:.1f} s"
    is_idle = info.name == "cpu" != device and jittor_import.cuda_ready(gpu).home is not None
    report(Line("Jittor", found, info.warning or (REMEDY if is_idle else "")))
    folder = str(Path(backend.jt.flags.cache_path) / "jit")

    def begun(name: str) -> None:
        report(CompileStage(name, folder))

    checks = {"the matrix product": _matmul, "the gradients": _gradients}
    checks |= {"operations": lambda: _operations(begun), "the checkpoint": _checkpoint}
    for name, check in checks.items():
        begun(name)
        for line in guarded(name, check, REMEDY):
            report(line)


def _gradients() -> Iterator[Line]:
    """The gradients of an SDF. Imports are inside the checks, so that a missing package fails only one check."""
    from models.commands.machine_checks.operations import gradients

    yield from gradients()


def _operations(begun: Callable[[str], None]) -> Iterator[Line]:
    """Each native operation against its reference in plain Jittor."""
    from models.commands.machine_checks.operations import operations

    yield from operations(begun)


def _matmul() -> Iterator[Line]:
    """Speed and accuracy of a matrix product."""
    import numpy as np

    from models.machine.backend import jt

    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=shape).astype(np.float32) for shape in ((ROWS, INNER), (INNER, INNER)))
    x, y = jt.array(left), jt.array(right)
    product = jt.matmul(x, y)
    some = product.numpy()[:100]
    exact = left[:100].astype(np.float64) @ right
    error = np.abs(some - exact).max() / np.abs(exact).max()
    jt.sync_all(True)
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jt.matmul(x, y).sync(True)
        jt.sync_all(True)
        times.append(time.perf_counter() - begin)
    rate = 2.0 * ROWS * INNER * INNER / min(times) / 1e9
    wrong = "" if error <= MATMUL_BOUND else REMEDY
    yield Line("matrix product", f"{rate:.0f} GFLOP/s in float32, within {error:.0e} of NumPy", wrong)


def _checkpoint() -> Iterator[Line]:
    """Whether a checkpoint is unchanged after writing and reading."""
    import numpy as np

    from models.checkpoints.ours import load_checkpoint, save_checkpoint
    from models.commands.machine_checks.operations import CONF
    from models.fields.sdf import SDFNetwork
    from models.fields.state import export_state
    from models.training.checkpoint import Checkpoint

    network = SDFNetwork(CONF, np.random.default_rng(0))
    tensors = {"sdf_network_fine": export_state(network)}
    with tempfile.TemporaryDirectory() as name:
        path = save_checkpoint(Path(name), Checkpoint(1, tensors, {"exp_avg": {}, "exp_avg_sq": {}}, 0))
        read = load_checkpoint(path)
        size = path.stat().st_size
    before, after = tensors["sdf_network_fine"], read.tensors["sdf_network_fine"]
    is_same = set(before) == set(after) and all(np.array_equal(before[name], after[name]) for name in before)
    yield Line("checkpoint", f"written and read, {size} bytes", "" if is_same else "it was read differently")
