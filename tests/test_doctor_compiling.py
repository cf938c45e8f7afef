"""What `--mode doctor` says of compiling, on stderr: enough at the first time, nothing later."""

import os
import time
from types import SimpleNamespace

import pytest
from cuda_machines import builds_jittor

from models.doctor import compiling, examine


@pytest.fixture
def clock(monkeypatch):
    """What `time.time` says in compiling.py."""
    shown = SimpleNamespace(now=time.time())
    monkeypatch.setattr(compiling.time, "time", lambda: shown.now)
    return shown


def _compile(folder, name, now):
    for ending in ("cc", "so"):
        (folder / f"{name}.{ending}").touch()
        os.utime(folder / f"{name}.{ending}", (now, now))


def _look(watch, clock):
    clock.now += compiling.INTERVAL_SECONDS
    watch.look()


def test_what_is_compiled_is_told_once_for_each_stage_and_counted_at_the_end(clock, capsys, tmp_path):
    watch = compiling.Compiling()
    _compile(tmp_path, "old", clock.now - 60)
    for number in (1, 2, 3):
        watch.begin(compiling.CompileStage(f"op {number} of 3", str(tmp_path)))
        for part in range(3 if number != 2 else 0):
            _compile(tmp_path, f"{number}{part}", clock.now + 1)
            _look(watch, clock)
    watch.finish()
    first, *stages, last = capsys.readouterr().err.splitlines()
    assert first == compiling.FIRST and stages == ["  compiling for op 1 of 3", "  compiling for op 3 of 3"]
    assert last.startswith("  6 operations compiled in ")


def test_nothing_is_said_where_all_is_compiled_although_sources_are_written_anew(clock, capsys, tmp_path):
    watch = compiling.Compiling()
    _compile(tmp_path, "old", clock.now - 60)
    for folder in (tmp_path, tmp_path / "none"):
        watch.begin(compiling.CompileStage("op 1 of 3", str(folder)))
        (tmp_path / "old.cc").touch()
        _look(watch, clock)
    watch.finish()
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_what_the_child_says_of_jittors_own_build_is_said_here(monkeypatch, capsys):
    monkeypatch.setattr(examine, "compute", builds_jittor)
    assert examine.examine("cpu", 0, lambda line: None)
    assert capsys.readouterr().err.splitlines() == [
        "Jittor compiles itself; this happens once, and takes a minute or two.",
        "  compiled in 0 s",
    ]
