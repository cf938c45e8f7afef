"""The time of each phase of a command."""

import time

import pytest

from data.io import clock
from data.io.clock import Spent, added, as_values, line, now, phase, recorded


def test_time_counts_for_the_innermost_phase_of_a_record(monkeypatch):
    moment = [Spent()]
    monkeypatch.setattr(clock, "now", lambda: moment[0])

    def passes(wall, processor):
        moment[0] += Spent(wall, processor)

    with recorded() as times:
        passes(8.0, 4.0)  # in no phase
        with phase("outer"):
            passes(0.5, 0.25)
            with phase("inner"):
                passes(2.0, 1.0)
            passes(0.25, 0.125)
        with pytest.raises(ValueError), phase("inner"):  # a failed one is closed
            passes(1.0, 0.5)
            raise ValueError
    assert list(times.items()) == [("outer", Spent(0.75, 0.375)), ("inner", Spent(3.0, 1.5))]


def test_sleeping_uses_no_processor():
    before = now()
    time.sleep(0.1)
    spent = now() - before
    assert spent.wall >= 0.1 and spent.processor < 0.1


def test_times_are_added_and_stand_on_one_line():
    total = added({"a": Spent(1.0, 0.5)}, {"a": Spent(2.0, 1.0), "b": Spent(3.0, 0.00001)})
    assert as_values(total) == {"a": {"wall": 3.0, "processor": 1.5}, "b": {"wall": 3.0, "processor": 0.0}}
    times = {"training": Spent(44.4, 80.0), "images": Spent(5.0, 5.0), "report": Spent(0.4, 0.4)}
    assert line(times) == "time: 50 s (training 44, images 5)"
