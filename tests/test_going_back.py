"""Many skipped steps in a row: fresh moments, a lower rate, an earlier state; and what is left in the end."""

import dataclasses
import re
import shutil

import numpy as np
import pytest
from runs import SHORT, command, everything, finished, needs_mpi, run, saved, started
from test_guard import NO_PROBE, spoil_batches, spoil_image

from models.checkpoints.ours import save_checkpoint
from models.training import watch
from models.training.checkpoint import Record, recorded

pytestmark = pytest.mark.slow

QUIET = (*SHORT[3:], NO_PROBE)
LONG = ("train.end_iter=40", "train.warm_up_end=2", "train.save_freq=2", "train.max_bad_steps=3", *QUIET)


def finite(checkpoint):
    named = [*checkpoint.tensors.values(), *checkpoint.moments.values(), *checkpoint.ema.values()]
    return all(np.isfinite(array).all() for arrays in named for array in arrays.values())


def with_bad_moments(checkpoint, name="sdf_network_fine.lin1.bias"):
    """A checkpoint that a training goes on from into a wall: no update by these moments is finite."""
    moments = {key: {one: array.copy() for one, array in named.items()} for key, named in checkpoint.moments.items()}
    place = moments["exp_avg_sq"][name].argmin()  # where gradients are smallest
    moments["exp_avg"][name].flat[place], moments["exp_avg_sq"][name].flat[place] = 3e38, 0.0
    return dataclasses.replace(checkpoint, moments=moments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder, settings=(*SHORT[:3], *QUIET, "train.ema_decay=0.9")) == 0
    return folder


@pytest.fixture
def spoilt(trained, tmp_path):
    """A folder whose last checkpoint, that of step 6, has moments that no step survives."""
    folder = shutil.copytree(trained / "checkpoints", tmp_path / "run" / "checkpoints").parent
    save_checkpoint(folder / "checkpoints", with_bad_moments(saved(folder, 6)))
    return folder


AVERAGED = ("train.end_iter=20", "train.warm_up_end=2", "train.save_freq=5", "train.max_bad_steps=3", *QUIET)
AVERAGED = (*AVERAGED, "train.ema_decay=0.9", "train.learning_rate=0.02", "train.learning_rate_alpha=1")


def test_bad_moments_are_left_behind_and_the_lower_rate_stays(spoilt, tmp_path, capsys):
    shutil.copytree(spoilt, tmp_path / "broken")
    assert run(spoilt, "--is_continue", settings=AVERAGED) == 0
    told = capsys.readouterr().err
    words = "1 NaN or Inf in the update of sdf_network_fine.lin1.bias"
    assert re.search(rf"step 7 skipped: {words} \(weight .* in these entries\)", told)
    assert "returning to the weights of step 6, with other random numbers, zero Adam moments and 0.5 times" in told
    assert told.count("steps in a row") == 1
    last = saved(spoilt, 20)
    assert finite(last) and last.adam_steps == 14
    assert recorded(last.state, 20) == Record(returns=1, attempts=1, reached=6, end_iter=20)

    for step in (10, 6, 3):
        shutil.copy(spoilt / f"checkpoints/ckpt_{step:06d}.safetensors", tmp_path / "broken/checkpoints")
    assert run(tmp_path / "broken", "--is_continue", settings=AVERAGED) == 0
    assert "returned to an earlier state once: it continues with 0.5 times the learning" in capsys.readouterr().out
    assert everything(saved(tmp_path / "broken", 20)) == everything(saved(spoilt, 20))


def test_a_run_that_stays_bad_tries_an_older_state_and_leaves_a_good_one(tmp_path, monkeypatch, capsys):
    spoil_batches(monkeypatch, set(range(5, 200)), spoil_image)
    assert run(tmp_path, settings=LONG) == 1
    told = capsys.readouterr().err
    targets = re.findall(r"returning to the weights of step (\d+)", told)
    assert targets == ["5", "4", "4"] and "Traceback" not in told
    last = told.strip().splitlines()[-1]
    assert last.startswith("error: 3 steps in a row were skipped (") and "--is_continue resumes" in last
    assert "NaN or Inf in the colours of photograph" in last and "; 3 restarts from finite states failed" in last
    assert "the state of step 5 is saved in" in last and "ckpt_000005.safetensors" in last and "report.html" in last
    kept = saved(tmp_path, 5)
    assert finite(kept) and kept.adam_steps == 0 and not any(m.any() for n in kept.moments.values() for m in n.values())
    assert recorded(kept.state, 40) == Record(returns=4, end_iter=40) and "3 steps in a row" in kept.state["stopped"]
    assert "the training stopped at step 5 of 40" in (tmp_path / "report.html").read_text()

    monkeypatch.undo()
    assert run(tmp_path, "--is_continue", settings=LONG) == 0
    assert "0.0625 times the learning rate" in capsys.readouterr().out
    assert saved(tmp_path, 40).adam_steps == 35 and "stopped" not in saved(tmp_path, 40).state


def test_attempts_are_counted_anew_after_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(watch, "PROGRESS", 3)
    spoil_batches(monkeypatch, {at + k for at in (4, 14, 24, 34, 44) for k in range(3)}, spoil_image)
    assert run(tmp_path, settings=LONG) == 0
    told = capsys.readouterr().err
    assert told.count("returning to the weights") == 5 and told.count("(attempt 1 of 3)") == 5
    assert (recorded(saved(tmp_path, 40).state).returns, recorded(saved(tmp_path, 40).state).attempts) == (5, 1)


@needs_mpi
def test_two_ranks_go_back_as_one_process_does(spoilt, tmp_path):
    shutil.copytree(spoilt, tmp_path / "two")
    status, _, err = finished(started(command(tmp_path / "two", "--is_continue", settings=AVERAGED)))
    assert status == 0 and err.count("returning to the weights of step 6") == 1, err
    last = saved(tmp_path / "two", 20)
    assert finite(last) and recorded(last.state, 20) == Record(returns=1, attempts=1, reached=6, end_iter=20)


def test_the_record_of_an_earlier_version_is_read():
    old = {
        "setbacks": {"total": 2, "attempts": 1, "reached": 7, "target": 5, "in_a_row": 3},
        "score_curve": [[4, 9.5, 20.0]],
    }
    old["scores"] = {"best": 20.0, "best_step": 4, "low": 1, "returns": 1, "end_iter": 12}
    found = Record(2, 1, 7, 3, 1, 20.0, 4, 1, 12, curve=((4, 9.5, 20.0),))
    assert recorded(old, 12) == found == recorded(found.state(), 12)
