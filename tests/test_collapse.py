"""If renderings become worse, training returns to its best checkpoint, and keeps the better of the two results."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from runs import SHORT, everything, run, saved
from test_guard import NO_PROBE

from models.checkpoints.ours import save_checkpoint
from models.results import image_metrics
from models.results.image_metrics import ScoredViews
from models.training.checkpoint import FALL, Record, recorded
from models.training.watch import LOW_SCORES

pytestmark = pytest.mark.slow

SETTINGS = ("train.end_iter=12", "train.warm_up_end=2", "train.save_freq=2", *SHORT[3:], NO_PROBE)


def scripted(monkeypatch, *scores, blurred=0.0):
    """Trainings of any length are scored, with these numbers one after the other, the last one for ever."""
    given = list(scores)
    monkeypatch.setattr(image_metrics, "SCORED_FROM", 1)
    monkeypatch.setattr(image_metrics, "JUDGED_FROM", 1)
    monkeypatch.setattr(ScoredViews, "score", lambda *_: given.pop(0) if len(given) > 1 else given[0])
    monkeypatch.setattr(ScoredViews, "blurred", lambda *_: blurred)


VALUES = [((20, 22, 22 - FALL), 0), ((20, 22, 22 - FALL - 0.01), 1), ((22, 20, 20, 20), 3), ((22, 20, 21.5, 20), 1)]


@pytest.mark.parametrize(("values", "low"), VALUES)
def test_scores_count_how_often_in_a_row_they_are_far_below_the_best(values, low):
    record = Record()
    for step, value in enumerate(values):
        record = record.after_score(step, 2.0 * step, value, "validation")
    assert (record.low, record.best, record.best_step) == (low, max(values), int(np.argmax(values)))
    assert record.curve == tuple((step, 2.0 * step, value) for step, value in enumerate(values))


def test_a_training_that_gets_worse_goes_back_to_the_best_and_resumes(monkeypatch, tmp_path, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    scripted(monkeypatch, 20.0, 25.0, *[20.0] * LOW_SCORES, 24.5)
    assert run(whole, settings=SETTINGS) == 0
    told = capsys.readouterr().err
    words = "PSNR of 4 training photographs fell from 25.0 dB at step 4 to 20.0 dB: returning to the weights of step 4,"
    assert f"step 8: {words}" in told and "zero Adam moments and 0.5 times the learning rate of the conf\n" in told
    assert (whole / "checkpoints/ckpt_000006.safetensors.worse").is_file()
    last = saved(whole, 12)
    record = recorded(last.state, 12)
    assert (record.returns, record.falls, record.best, record.best_step, record.low) == (1, 1, 25.0, 4, 0)
    assert record.group == "training"
    other = recorded(last.state, 24)  # another schedule: its scores do not compare
    assert (other.returns, other.falls, other.best_step, other.curve) == (1, 0, 0, record.curve)
    assert last.adam_steps == 8  # moments were zero after the return to step 4
    shutil.copytree(whole, broken)
    for step in (8, 10, 12):
        (broken / f"checkpoints/ckpt_{step:06d}.safetensors").unlink()
    scripted(monkeypatch, 24.5)
    assert run(broken, "--is_continue", settings=SETTINGS) == 0
    assert everything(saved(broken, 12)) == everything(last)


def test_what_stays_worse_ends_with_the_weights_of_the_best_checkpoint(monkeypatch, tmp_path, capsys):
    scripted(monkeypatch, 20.0, 25.0, 20.0)
    assert run(tmp_path, settings=SETTINGS) == 0
    assert "step 12: the training ends with the weights of step 4, 25.0 dB" in capsys.readouterr().err
    best, last = (saved(tmp_path, step).tensors for step in (4, 12))
    for network, tensors in best.items():
        assert all(np.array_equal(values, last[network][name]) for name, values in tensors.items())


def test_what_gets_worse_before_the_time_is_over_goes_back(monkeypatch, tmp_path, capsys):
    begun = iter(range(99))
    monkeypatch.setattr("models.commands.runner.LEAST_STEPS", 0)
    monkeypatch.setattr("models.commands.runner.seconds_left", lambda: 5 - next(begun))
    scripted(monkeypatch, 20.0, 25.0, 20.0, 24.5)
    assert run(tmp_path, settings=SETTINGS) == 0
    told = "".join(capsys.readouterr())
    assert "the training ends with step 6 of 12" in told and "step 6: PSNR of 4 training photographs fell from" in told
    record = recorded(saved(tmp_path, 5).state)
    assert [step for step, _, _ in record.curve] == [2, 4, 6, 4, 5] and (record.best_step, record.low) == (4, 0)


def test_a_training_below_its_blurred_photographs_fails_and_is_kept(monkeypatch, tmp_path, capsys):
    scripted(monkeypatch, 12.0, blurred=14.0)
    assert run(tmp_path, settings=SETTINGS) == 1
    told = capsys.readouterr().err
    assert (
        "training photographs reach 12.0 dB, less than blurred photographs (14.0 dB)" in told
        and "Traceback" not in told
    )
    assert "less than blurred photographs" in saved(tmp_path, 12).state["stopped"]
    assert (tmp_path / "report.html").is_file()
    assert run(tmp_path, "--is_continue", settings=SETTINGS) == 1  # already trained, and still without a surface


def test_a_real_training_is_scored_from_its_photographs(monkeypatch, tmp_path):
    monkeypatch.setattr(image_metrics, "SCORED_FROM", 1)
    assert run(tmp_path, settings=SETTINGS) == 0
    found = recorded(saved(tmp_path, 12).state, 12)
    assert 3 < found.best < 40 and found.best_step in range(2, 13, 2)
    assert "PSNR of 4 training photographs, reduced in size, " in (tmp_path / "logs/train.log").read_text()


def test_scores_of_other_photographs_are_dropped_at_a_resume(monkeypatch, tmp_path):
    """Those of an earlier version, which do not say of which; the curve begins anew, too."""
    scripted(monkeypatch, 20.0)
    assert run(tmp_path, settings=SETTINGS) == 0
    (tmp_path / "checkpoints/ckpt_000012.safetensors").unlink()
    before = saved(tmp_path, 10)
    kept = {key: value for key, value in before.state["watch"].items() if key != "group"} | {"best": 99.0}
    save_checkpoint(tmp_path / "checkpoints", replace(before, state=before.state | {"watch": kept}))
    assert run(tmp_path, "--is_continue", settings=SETTINGS) == 0
    record = recorded(saved(tmp_path, 12).state, 12)
    assert record.best == 20.0 and [step for step, _, _ in record.curve] == [12]


def test_the_best_checkpoint_is_spared_where_few_are_kept(tmp_path, monkeypatch):
    scripted(monkeypatch, 20.0, 25.0, 24.5)
    assert run(tmp_path, settings=(*SETTINGS, "train.keep_checkpoints=1")) == 0
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.safetensors"))
    assert kept == ["ckpt_000004.safetensors", "ckpt_000012.safetensors"]
