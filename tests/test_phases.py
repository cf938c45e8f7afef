"""The time of each phase of a command."""

import time

import pytest

from data.io.phases import Spent, added, as_values, line, phase, recorded


def test_time_counts_for_the_innermost_phase():
    with recorded() as times:
        with phase("outer"):
            time.sleep(0.02)
            with phase("inner"):
                time.sleep(0.2)
        with phase("inner"):
            time.sleep(0.02)
    assert list(times) == ["outer", "inner"]
    assert times["inner"].wall >= 0.22 and 0.02 <= times["outer"].wall < 0.2
    assert times["inner"].processor < 0.2, "sleeping uses no processor"


def test_a_failed_phase_is_counted_and_closed():
    with recorded() as times:
        with pytest.raises(ValueError), phase("failed"):
            raise ValueError
        with phase("next"):
            pass
    assert set(times) == {"failed", "next"}


def test_a_phase_outside_of_a_record_does_nothing():
    @phase("work")
    def work():
        return 3

    assert work() == 3
    with recorded() as times:
        assert work() == 3 and work() == 3
    assert list(times) == ["work"]


def test_times_of_two_calls_are_added():
    total = added({"a": Spent(1.0, 0.5)}, {"a": Spent(2.0, 1.0), "b": Spent(3.0, 0.00001)})
    assert as_values(total) == {"a": {"wall": 3.0, "processor": 1.5}, "b": {"wall": 3.0, "processor": 0.0}}


def test_the_times_stand_on_one_line():
    times = {"training": Spent(44.4, 80.0), "images": Spent(5.0, 5.0), "report": Spent(0.4, 0.4)}
    assert line(times) == "time: 50 s (training 44, images 5)"
    assert line({"report": Spent(0.4, 0.4)}) == "time: 0 s"
