"""`--minutes` is the time of the whole command; trainings that end early; bars that leave compilation out."""

import io
import math
import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from runs import run, saved
from test_draw import unit_scene
from test_neus_writer import scene as any_scene

from data.io import bars
from data.io.bars import Bar
from data.io.clock import Spent, ends_at, seconds_left, slowdown
from data.io.images import write_image
from data.scenes.readers.neus import write_neus_scene
from models.checkpoints import scenes
from models.checkpoints.scenes import FEWEST_MAPS, SECONDS, measured
from models.commands import reconstruction_plan, runner
from models.commands.reconstruction_plan import (
    STEPPING,
    WORTH,
    Budget,
    announce,
    decide_details,
    on_cold_cache,
    seconds_of_details,
    timed_plan,
)
from models.conf import load_config
from models.config.program import FAST
from models.machine import jittor_import
from models.methods import registry
from models.requests import MeshRequest
from models.runs import measured as pace
from models.runs.measured import Pace

PACE = Pace(0.05)


@pytest.fixture
def clock(monkeypatch):
    """The moment of time.perf_counter(), which tests set."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(("photographs", "resolution"), [(15, 512), (44, 512), (44, 256)])
def test_steps_mesh_and_report_end_within_the_minutes(clock, photographs, resolution):
    given = Budget(300.0, 40.0).for_scene(photographs, resolution, details=0.0)
    steps = given.steps(PACE)
    assert 60.0 + steps * PACE.seconds / STEPPING + given.after == pytest.approx(300.0, abs=0.1)
    clock[0] += 30.0  # that estimating the cameras takes longer costs steps
    assert steps - given.steps(PACE) == pytest.approx(30.0 * STEPPING / PACE.seconds, abs=1)
    assert given.for_scene(photographs, 2 * resolution, details=0.0).after > given.after


def test_details_are_part_of_the_minutes_and_take_as_long_as_photographs_are_large(tmp_path):
    times = []
    for side in (350, 700, 1200, 1300):
        write_image(tmp_path / "photograph.png", np.zeros((side, side, 3), np.uint8))
        times.append(seconds_of_details([tmp_path / "photograph.png"]))
    assert 4 * times[0] == times[1] < times[2] == times[3]
    without, with_them = (Budget(300.0, 0.0).for_scene(15, 512, one).after for one in (0.0, times[0]))
    assert with_them - without == pytest.approx(times[0])


@pytest.mark.parametrize(
    ("asked", "key", "tested", "minutes", "resolution", "words"),
    [
        (None, "auto", 4, 10.0, 64, "yes, about 0 s (train.details = false leaves them out)"),
        (None, "auto", 5, 10.0, 64, "no, because 5 photographs are needed"),
        (None, "auto", 4, 1e-3, 64, "no, because they would take 229% of the time (train.details = true adds them)"),
        (None, "auto", 4, 10.0, 512, "no, because a pixel shows 0.0158 radii, and a cell of the mesh is 0.0039"),
        (None, "true", 5, 1e-3, 512, "yes, about 0 s (train.details = true)"),
        (None, "false", 4, 10.0, 64, "no (train.details = false)"),
        (True, "false", 5, 1e-3, 512, "yes, about 0 s (--details)"),
        (False, "true", 4, 10.0, 64, "no (--no-details)"),
    ],
)
def test_a_mesh_gets_details_if_they_can_be_tested_and_seen_in_time(
    asked, key, tested, minutes, resolution, words, tmp_path, monkeypatch, capsys
):
    write_neus_scene(tmp_path, any_scene())
    monkeypatch.setattr(reconstruction_plan, "TESTED", tested)
    settings = (f"dataset.data_dir={tmp_path}", f"train.details={key}")
    seconds = decide_details(MeshRequest(resolution, has_details=asked), load_config(FAST, "any", settings), minutes)
    assert (seconds > 0) == words.startswith("yes") and f"details: {words}" in capsys.readouterr().out


def test_beside_other_processes_the_training_leaves_more_time_for_what_follows(clock):
    given = Budget(300.0, 40.0, after=30.0)
    assert given.end_of_training(1.0) == 310.0 and given.end_of_training(3.0) == 250.0
    assert given.steps(Pace(0.05, 3.0)) < given.steps(Pace(0.05, 1.0)) == int(210.0 * STEPPING / 0.05)


def test_a_training_goes_on_if_time_is_left_and_at_most_doubles(clock):
    given = Budget(300.0, 40.0, after=30.0)
    clock[0] = given.end_of_training(1.0) - 60.0
    assert given.more_steps(2000, 100.0, 1.0) == int(60.0 * STEPPING * 20.0)
    assert given.more_steps(200, 20.0, 1.0) == 200
    clock[0] = given.end_of_training(1.0) - WORTH * 300.0 + 1.0
    assert given.more_steps(2000, 100.0, 1.0) == given.more_steps(2000, 100.0, 2.0) == 0


def test_compiling_on_a_cold_cache_is_told_and_not_part_of_the_minutes(clock, capsys):
    assert on_cold_cache({}) == on_cold_cache({"compiling": Spent(3.0)}) == 0.0
    assert on_cold_cache({"compiling": Spent(1e4)}) == 1e4
    warm, cold = Budget(300.0, 40.0, 40.0), Budget(300.0, 40.0, 40.0, compiling=80.0)
    assert cold.end_of_training(1.0) - warm.end_of_training(1.0) == 80.0
    clock[0] += 80.0
    assert announce(cold, PACE, 100, cold.steps(PACE))
    assert "compiling took 80 s, which --minutes does not include" in capsys.readouterr().out
    assert announce(warm, PACE, 100, warm.steps(PACE)) and "compiling" not in capsys.readouterr().out


def test_minutes_that_are_too_short_are_told_at_once(clock, capsys):
    given, pace = Budget(60.0, 40.0, 20.0), Pace(STEPPING / 20.0, 2.0)
    assert not announce(given, pace, 200, given.steps(pace))
    told = capsys.readouterr().out
    assert "--minutes 1 is too short: 60 s have passed, mesh and report take about 40 s, and 200 steps are" in told
    assert "the whole command will take about 1.8 minutes" in told


def test_the_measured_steps_are_those_of_the_planned_training(clock, monkeypatch, capsys):
    """Others, without the depth maps, compiled kernels that no training uses."""
    planned, measured = object(), []
    monkeypatch.setattr(scenes, "training_scene", lambda conf: unit_scene())
    monkeypatch.setattr(registry, "decide", lambda *given: planned)
    monkeypatch.setattr(pace, "measured_pace", lambda model, train, scene, plan, within: measured.append(plan) or PACE)
    given = Budget(300.0, clock[0])
    found, kept = timed_plan(load_config(FAST, "x"), {"dataset.downscale": "2"}, given, is_auto=False)
    assert measured == [planned] and found.seconds_per_step == PACE.seconds and kept == given
    assert int(found.settings["train.end_iter"]) == pytest.approx(300.0 * STEPPING / PACE.seconds, abs=9)
    assert "for 5 minutes in all" in capsys.readouterr().out


def test_how_slow_the_machine_is_follows_from_the_time_that_this_thread_waited(tmp_path, monkeypatch):
    monkeypatch.setattr("data.io.clock.SCHEDULED", tmp_path / "schedstat")
    assert slowdown() == 1.0  # where Linux does not tell
    (tmp_path / "schedstat").write_text("300 600 7\n")
    assert slowdown() == 3.0 and slowdown((100.0, 600.0)) == 1.0 and slowdown((300.0, 600.0)) == 1.0


def test_fewer_photographs_have_depth_maps_if_the_time_is_short_and_as_many_after_a_resume(monkeypatch):
    monkeypatch.setattr(scenes, "fused_depth", lambda scene, most: most)
    monkeypatch.setattr(scenes, "slowdown", lambda: 1.0)
    monkeypatch.setattr(scenes.os, "sched_getaffinity", lambda process: {0})

    def most(seconds, views=0):
        with ends_at(lambda: time.perf_counter() + seconds):
            return measured(unit_scene()).depth(views)

    count = unit_scene().n_views
    assert most(math.inf) == most(2 * SECONDS * count) == most(-5.0) == count <= FEWEST_MAPS
    monkeypatch.setattr(scenes, "FEWEST_MAPS", 1)
    assert (most((count - 0.5) * SECONDS), most(-5.0), most(math.inf, 2)) == (count - 1, 1, 2)


def test_a_training_whose_time_is_over_ends_as_one_at_its_last_step(tmp_path, capsys, monkeypatch):
    settings = ("train.end_iter=50", "train.warm_up_end=1", "train.val_freq=50", "train.save_freq=50")
    monkeypatch.setattr(runner, "LEAST_STEPS", 3)  # fewer steps would be of no use
    with ends_at(lambda: 0.0):
        assert seconds_left() < 0 and run(tmp_path, settings=settings) == 0
    assert seconds_left() == math.inf
    assert "the time is over: the training ends with step 3 of 50" in capsys.readouterr().out
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
    monkeypatch.setattr(bars, "is_terminal", lambda: True)
    monkeypatch.setattr(bars, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", screen)
    assert list(bars.progress([1, 2], "photographs")) == [1, 2] and "photographs" in screen.getvalue()
    monkeypatch.setattr(bars, "is_terminal", lambda: False)
    screen.truncate(0)
    assert list(bars.progress([1, 2], "photographs")) == [1, 2] and "photographs" not in screen.getvalue()


@pytest.mark.parametrize(("is_held", "words"), [(True, "Jittor compiles itself"), (False, "another process compiles")])
def test_the_process_that_compiles_is_named(is_held, words, tmp_path, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "jittor_utils.lock", SimpleNamespace(jittor_lock=SimpleNamespace(is_locked=is_held))
    )
    monkeypatch.setattr(jittor_import, "INTERVAL_SECONDS", 0.01)
    told = []
    monkeypatch.setattr(jittor_import, "_report_word", told.append)
    (tmp_path / "obj_files").mkdir()
    with jittor_import.compile_progress(lambda: [tmp_path]):
        (tmp_path / "obj_files" / "a.o").touch()
        os.utime(tmp_path / "obj_files" / "a.o", (time.time() + 60,) * 2)
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
    assert told[0].text.startswith(words)
