"""SIGINT and SIGTERM during a training, in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import ROOT, SHORT, command, contents, run, saved

from models.checkpoints.folder import latest_checkpoint
from models.monitoring.interrupts import STOPPING, Interrupts
from models.training.optimizer import Optimizer

LONG = ("train.end_iter=100000", "train.warm_up_end=2", "train.save_freq=0", "train.val_freq=0")
LONG += ("train.val_mesh_freq=0", "train.report_freq=1")
PATIENCE = 120  # s; a machine that compiles the kernels first needs most of it


def start(folder):
    """A training that would take very long."""
    program = command(folder, settings=LONG)
    return subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_steps(folder, count):
    """Until the text log reports that many steps."""
    log, end = folder / "logs" / "train.log", time.monotonic() + PATIENCE
    while not log.is_file() or log.read_text().count(" INFO step ") < count:
        assert time.monotonic() < end, "the training does not begin"
        time.sleep(0.02)


@pytest.mark.cli
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_step_saves_it_and_resuming_goes_on_from_there(signum, status, tmp_path, capsys):
    with start(tmp_path / "a") as process:
        try:
            wait_for_steps(tmp_path / "a", 3)
            process.send_signal(signum)
            _, told = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # where an assertion failed; one that has ended is past being killed
    assert process.returncode == status, told
    (step,) = map(
        int, re.findall(rf"error: stopped by {signum.name} after step (\d+); continue with --is_continue", told)
    )
    assert "Traceback" not in told and "quick exit" not in told
    found = latest_checkpoint(tmp_path / "a" / "checkpoints", pytest.fail)
    assert found.step == step >= 3
    assert run(tmp_path / "a", "--is_continue", settings=(f"train.end_iter={step + 2}", *LONG[1:])) == 0
    assert f"checkpoint of step {step}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_compiler_that_the_signal_ends_too_is_no_error(tmp_path, monkeypatch, capsys):
    """A terminal sends Ctrl-C to all processes; Jittor takes the end of its compiler for that of memory."""
    original = Optimizer.step

    def without_compiler(self, *given):
        if self.steps == 2:
            os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("Run cmd failed:g++ -O2\nreturn -1. This might be an overcommit issue or out of memory.")
        return original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", without_compiler)
        assert run(tmp_path / "a") == 130
    told = capsys.readouterr().err
    assert "error: stopped by SIGINT after step 2; continue with --is_continue" in told and "memory" not in told
    assert run(tmp_path / "b", settings=(*SHORT, "train.save_freq=2")) == 0
    ours, theirs = contents(saved(tmp_path / "a", 2)), contents(saved(tmp_path / "b", 2))
    assert {key for key in ours if ours[key] != theirs[key]} <= {"sampler", "jitter"}  # drawn for the third step
    assert run(tmp_path / "a", "--is_continue") == 0 and saved(tmp_path / "a", 6).step == 6


@pytest.mark.slow
def test_without_a_signal_a_compiler_that_fails_is_an_error(tmp_path, monkeypatch):
    def failing(self, *given):
        raise RuntimeError("Run cmd failed:g++ -O2")

    monkeypatch.setattr(Optimizer, "step", failing)
    with pytest.raises(RuntimeError, match="Run cmd failed"):
        run(tmp_path)


@pytest.mark.cli
def test_the_second_signal_ends_the_process_at_once():
    program = (
        "import os, signal, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from models.monitoring.interrupts import Interrupts\n"
        "with Interrupts() as interrupts:\n"
        "    os.kill(os.getpid(), signal.SIGINT); print(interrupts.received, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(ROOT)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 143 and done.stdout == f"{int(signal.SIGINT)}\n"


def test_a_closed_terminal_never_hurries_and_one_that_is_ignored_is_not_heeded():
    with Interrupts() as interrupts:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), signum)
        assert interrupts.received == signal.SIGTERM
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.received is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back_as_they_were():
    before = [signal.getsignal(signum) for signum in STOPPING]
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
    assert [signal.getsignal(signum) for signum in STOPPING] == before


@pytest.mark.slow
def test_a_signal_in_the_last_step_changes_nothing(tmp_path, monkeypatch):
    from models.training.trainer import Trainer

    original = Trainer.step

    def step(self):
        output = original(self)
        if self.finished_steps == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return output

    settings = ("train.end_iter=4", *LONG[1:])
    assert run(tmp_path / "a", settings=settings) == 0
    monkeypatch.setattr(Trainer, "step", step)
    assert run(tmp_path / "b", settings=settings) == 0
    assert contents(saved(tmp_path / "a", 4)) == contents(saved(tmp_path / "b", 4))
