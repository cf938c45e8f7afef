"""The time of each phase of a command."""

import time

import pytest

from data.io.clock import Spent, added, as_values, line, phase, recorded


def test_time_counts_for_the_innermost_phase_of_a_record():
    with recorded() as times:
        with phase("outer"):
            time.sleep(0.02)
            with phase("inner"):
                time.sleep(0.1)
        with pytest.raises(ValueError), phase("inner"):  # a failed one is closed
            time.sleep(0.02)
            raise ValueError
    assert list(times) == ["outer", "inner"]
    assert times["inner"].wall >= 0.12 and 0.02 <= times["outer"].wall < 0.1
    assert times["inner"].processor < 0.1, "sleeping uses no processor"


def test_times_are_added_and_stand_on_one_line():
    total = added({"a": Spent(1.0, 0.5)}, {"a": Spent(2.0, 1.0), "b": Spent(3.0, 0.00001)})
    assert as_values(total) == {"a": {"wall": 3.0, "processor": 1.5}, "b": {"wall": 3.0, "processor": 0.0}}
    times = {"training": Spent(44.4, 80.0), "images": Spent(5.0, 5.0), "report": Spent(0.4, 0.4)}
    assert line(times) == "time: 50 s (training 44, images 5)"
