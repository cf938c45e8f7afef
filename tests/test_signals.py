"""SIGINT and SIGTERM during a training, in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import ROOT, command, run, saved

from models.checkpoints.folder import latest_checkpoint
from models.runs.stops import STOP_SIGNALS, Interrupts
from models.training.optimizer import Optimizer

LONG = ("train.end_iter=100000", "train.warm_up_end=2", "train.save_freq=0", "train.val_freq=0")
LONG += ("train.val_mesh_freq=0", "train.report_freq=1")
PATIENCE = 120  # s; a machine that compiles the kernels first needs most of it


def wait_for_steps(folder, count):
    """Until the text log reports that many steps."""
    log, end = folder / "logs" / "train.log", time.monotonic() + PATIENCE
    while not log.is_file() or log.read_text().count(" INFO step ") < count:
        assert time.monotonic() < end, "the training does not begin"
        time.sleep(0.02)


@pytest.mark.cli
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_step_and_resuming_goes_on_from_there(signum, status, tmp_path, capsys):
    program = command(tmp_path, settings=LONG)
    with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for_steps(tmp_path, 3)
            process.send_signal(signum)
            _, told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # where an assertion failed; one that has ended is past being killed
    assert process.returncode == status, told
    stopped = rf"(?m)^stopped by {signum.name} after step (\d+); continue with --is_continue"
    (step,) = map(int, re.findall(stopped, told))
    assert "Traceback" not in told and "quick exit" not in told
    assert latest_checkpoint(tmp_path / "checkpoints", pytest.fail).step == step >= 3
    assert run(tmp_path, "--is_continue", settings=(f"train.end_iter={step + 2}", *LONG[1:])) == 0
    assert f"checkpoint of step {step}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_compiler_that_the_signal_ends_too_is_no_error(tmp_path, monkeypatch, capsys):
    """A terminal sends Ctrl-C to all processes; Jittor takes the end of its compiler for that of memory."""
    original = Optimizer.step

    def without_compiler(self, *given):
        if self.steps == 2:
            if sends:
                os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("Run cmd failed:g++ -O2\nreturn -1. This might be an overcommit issue or out of memory.")
        return original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", without_compiler)
        sends = False
        with pytest.raises(RuntimeError, match="Run cmd failed"):
            run(tmp_path / "c")
        sends = True
        assert run(tmp_path / "a") == 130
    told = capsys.readouterr().err
    assert "stopped by SIGINT after step 2; continue with --is_continue" in told
    assert "error" not in told and "memory" not in told
    assert saved(tmp_path / "a", 2).adam_steps == 2


@pytest.mark.cli
def test_the_second_signal_ends_the_process_at_once():
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from models.runs.stops import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    os.kill(os.getpid(), signal.SIGINT); print(interrupts.received, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 143 and done.stdout == f"{int(signal.SIGINT)}\n"


def test_signals_are_noted_once_and_their_handlers_put_back():
    handlers = [signal.getsignal(signum) for signum in STOP_SIGNALS]
    with Interrupts() as interrupts:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):  # a closed terminal never hurries
            os.kill(os.getpid(), signum)
        assert interrupts.received == signal.SIGTERM
    assert [signal.getsignal(signum) for signum in STOP_SIGNALS] == handlers
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)  # one that is ignored is not heeded
            assert interrupts.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
