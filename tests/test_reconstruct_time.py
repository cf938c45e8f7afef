"""`--minutes` is the time of the whole command; trainings that end early; bars that leave compilation out."""

import io
import os
import sys
import time
from types import SimpleNamespace

import pytest
from runs import run, saved

from data.io import bars
from data.io.bars import Bar
from models.commands import reconstruction_time
from models.commands.reconstruction_time import Budget, announce, budget
from models.machine import progress
from models.training.pace import Pace
from models.training.stops import is_over, training_ends_at


@pytest.fixture
def clock(monkeypatch):
    """The moment of time.perf_counter(), which tests set."""
    now = [100.0]
    monkeypatch.setattr(reconstruction_time.time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(("photographs", "resolution"), [(15, 512), (44, 512), (44, 256)])
def test_steps_mesh_and_report_end_within_the_minutes(clock, photographs, resolution):
    given, pace = budget(5.0, 40.0, photographs, resolution, 1.0), Pace(0.05, 1.0)
    steps = given.steps(pace)
    training = reconstruction_time.STARTING + steps * pace.seconds / reconstruction_time.STEPPING
    assert 60.0 + training + given.after == pytest.approx(300.0, abs=0.1)
    clock[0] += 30.0  # that estimating the cameras takes longer costs steps
    assert steps - given.steps(pace) == pytest.approx(30.0 * reconstruction_time.STEPPING / pace.seconds, abs=1)
    assert budget(5.0, 40.0, photographs, 2 * resolution, 1.0).after > given.after
    assert budget(5.0, 40.0, photographs, resolution, 3.0).after == 3.0 * given.after  # beside other processes


def test_compiling_on_a_cold_cache_is_told_and_not_part_of_the_minutes(clock, capsys):
    given, warm, cold = Budget(300.0, 40.0, 40.0), Pace(0.05, 2.0), Pace(0.05, 80.0)
    assert given.end_of_training(cold) - given.end_of_training(warm) == 80.0
    clock[0] += 80.0
    assert announce(given, cold, 100, given.steps(cold))
    assert "compiling took 80 s, which --minutes does not include" in capsys.readouterr().out
    assert announce(given, warm, 100, given.steps(warm)) and "compiling" not in capsys.readouterr().out


def test_minutes_that_are_too_short_are_told_at_once(clock, capsys):
    given, pace = Budget(60.0, 40.0, 40.0), Pace(0.05, 0.0)
    assert not announce(given, pace, 200, given.steps(pace))
    told = capsys.readouterr().out
    assert "--minutes 1 is too short: 60 s have passed, mesh and report take about 40 s, and 200 steps are" in told
    assert "the whole command will take about 2.0 minutes" in told


def test_a_training_whose_time_is_over_ends_as_one_at_its_last_step(tmp_path, capsys):
    settings = ("train.end_iter=50", "train.warm_up_end=1", "train.val_freq=50", "train.save_freq=50")
    with training_ends_at(time.perf_counter(), 3):  # fewer steps would be of no use
        assert is_over(2) and not is_over(1) and run(tmp_path, settings=settings) == 0
    assert not is_over(2) and "the time is over: the training ends with step 3 of 50" in capsys.readouterr().out
    assert saved(tmp_path, 3).step == 3
    assert any((tmp_path / "validations_fine").glob("00000003_*.png")), "the results of the last step"


def test_the_remaining_time_leaves_out_compiling_and_images():
    now = [0.0]
    with Bar(total=1000, file=io.StringIO(), mininterval=0.1) as bar:
        bar._time = lambda: now[0]
        bar.start_t = bar.last_print_t = 0.0
        now[0] += 300.0  # compiling
        bar.update(1)
        bar.leave_out()
        for _ in range(99):
            now[0] += 0.5
            bar.update(1)
        assert 1.9 < bar.format_dict["rate"] < 2.1
        now[0] += 60.0  # an image
        bar.leave_out()
        now[0] += 0.5
        bar.update(1)
        assert 1.9 < bar.format_dict["rate"] < 2.1


def test_work_of_some_seconds_has_a_bar_on_a_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(bars, "is_watched", lambda: True)
    monkeypatch.setattr(bars, "A_MOMENT", 0.0)
    monkeypatch.setattr("sys.stderr", screen)
    assert list(bars.shown([1, 2], "photographs")) == [1, 2] and "photographs" in screen.getvalue()
    monkeypatch.setattr(bars, "is_watched", lambda: False)
    screen.truncate(0)
    assert list(bars.shown([1, 2], "photographs")) == [1, 2] and "photographs" not in screen.getvalue()


@pytest.mark.parametrize(("is_held", "words"), [(True, "Jittor compiles itself"), (False, "another process compiles")])
def test_the_process_that_compiles_is_named(is_held, words, tmp_path, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "jittor_utils.lock", SimpleNamespace(jittor_lock=SimpleNamespace(is_locked=is_held))
    )
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.01)
    told = []
    monkeypatch.setattr(progress, "_tell", told.append)
    (tmp_path / "obj_files").mkdir()
    with progress.compile_progress(lambda: [tmp_path]):
        (tmp_path / "obj_files" / "a.o").touch()
        os.utime(tmp_path / "obj_files" / "a.o", (time.time() + 60,) * 2)
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
    assert told[0].text.startswith(words)
