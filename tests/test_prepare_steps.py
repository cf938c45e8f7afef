"""Pairs to match, and steps that are skipped."""

import pytest

from data.errors import UserError
from data.prepare import matching
from data.prepare.steps import Step, Steps


@pytest.mark.parametrize("count", [3, 17, matching.EXHAUSTIVE_LIMIT])
def test_few_photographs_are_all_compared(count):
    assert len(set(matching.pairs(count, False))) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [3, 12, 80, 400])
def test_a_sequence_is_compared_with_its_neighbours_and_closed(count):
    found = set(matching.pairs(count, True))
    assert all(0 <= i < j < count for i, j in found)
    assert all((i, i + 1) in found for i in range(count - 1))
    assert (0, count - 1) in found
    assert len(found) <= count * (matching.NEIGHBOURS + 9)


def test_what_does_not_hang_together_is_named():
    names = ["a", "b", "c", "d", "e"]
    assert "none of the 5" in matching.why_disconnected(names, {("a", "b"): 14})
    text = matching.why_disconnected(names, {("a", "b"): 50, ("c", "d"): 50})
    assert "2 groups with nothing in common: a and b; c and d" in text
    text = matching.why_disconnected(names, {("a", "b"): 50, ("b", "c"): 50, ("c", "d"): 20})
    assert text.startswith("1 of 5 photographs have too few") and text.endswith(": e")
    linked = {("a", "b"): 50, ("b", "c"): 50, ("c", "d"): 50, ("d", "e"): 16}
    assert "d and e" in matching.why_disconnected(names, linked)


def test_steps_are_skipped_until_their_inputs_change(tmp_path):
    ran = []

    def run(inputs):
        steps = Steps(tmp_path, inputs, str)
        return [steps.run(Step(name, lambda name=name: ran.append(name) or len(ran))) for name in inputs]

    assert run({"a": 1, "b": 1}) == [1, 2]
    assert run({"a": 1, "b": 1}) == [1, 2]
    assert run({"a": 1, "b": 2}) == [1, 3]
    assert run({"a": 2, "b": 2}) == [4, 5]
    assert ran == ["a", "b", "b", "a", "b"]


def test_a_step_that_failed_runs_again_and_loses_its_outputs_unless_it_can_go_on(tmp_path):
    was_there = []

    def work():
        was_there.append((tmp_path / "out").exists())
        (tmp_path / "out").mkdir(exist_ok=True)
        raise UserError("no")

    for is_sound in (None, lambda: False, lambda: True):
        with pytest.raises(UserError, match="no"):
            Steps(tmp_path, {"a": 1}, str).run(Step("a", work, ("out",), is_sound=is_sound))
    assert was_there == [False, False, True]


@pytest.mark.parametrize("stamp", ["", "[]", "{", '{"key": 3}', "[" * 100000])
def test_a_damaged_stamp_means_that_nothing_is_done(tmp_path, stamp):
    (tmp_path / "a.json").write_text(stamp)
    assert Steps(tmp_path, {"a": 1}, str).run(Step("a", lambda: 5)) == 5
