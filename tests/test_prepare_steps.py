"""Pairs to match, and steps that are skipped."""

import contextlib
import sqlite3

import numpy as np
import pytest

from data.errors import UserError
from data.prepare import database, matching, reconstruct
from data.prepare.steps import Step, Steps, WorkError


@pytest.mark.parametrize("count", [3, 17])
def test_few_photographs_are_all_compared(count):
    assert len(set(matching.all_pairs(count))) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [3, 12, 80, 400])
def test_a_sequence_is_compared_with_its_neighbours_and_closed(count):
    found = set(matching.sequence_pairs(count))
    assert all(0 <= i < j < count for i, j in found)
    assert all((i, i + 1) in found for i in range(count - 1))
    assert (0, count - 1) in found
    assert len(found) <= count * (matching.NEIGHBOURS + 9)


def test_all_pairs_of_few_photographs_are_matched_and_a_part_of_those_of_many(tmp_path, monkeypatch):
    """Photographs on a line, of which neighbours share features."""
    draw = np.random.default_rng(0)
    world = np.abs(draw.normal(size=(400, 128))).astype(np.float32)
    world /= np.linalg.norm(world, axis=1, keepdims=True)
    monkeypatch.setattr(
        reconstruct, "read_largest", lambda database, names, count: [world[5 * int(name) :][:100] for name in names]
    )
    limit = matching.EXHAUSTIVE_LIMIT
    few, many = ([str(index) for index in range(count)] for count in (limit, limit + 10))
    assert reconstruct._pairs(tmp_path, few, False) == matching.all_pairs(limit)
    chosen = reconstruct._pairs(tmp_path, many, False)
    assert len(chosen) <= 0.7 * len(matching.all_pairs(limit + 10))
    assert {(i, i + 1) for i in range(limit + 9)} <= set(chosen)


def test_many_photographs_are_compared_with_those_that_share_features():
    """Two groups of 20 on a circle, of which neighbours share features; images 0 and 20 share some."""
    draw = np.random.default_rng(0)
    world = np.abs(draw.normal(size=(2, 200, 128))).astype(np.float32)
    world /= np.linalg.norm(world, axis=2, keepdims=True)
    views = [np.roll(world[group], 10 * view, axis=0)[:40] for group in range(2) for view in range(20)]
    views[20] = np.concatenate([views[20][:35], views[0][:5]])
    pairs = matching.similar_pairs(views)
    assert len(pairs) == len(set(pairs)) <= 40 * matching.MOST_SIMILAR
    assert all(0 <= i < j < 40 for i, j in pairs)
    for group in (0, 20):
        neighbours = {tuple(sorted((group + i, group + (i + step) % 20))) for i in range(20) for step in (1, 2, 3)}
        assert neighbours <= set(pairs)
    assert (0, 20) in pairs, "the groups are connected"


def test_the_largest_features_are_read_from_the_database(tmp_path):
    path, scales = tmp_path / "database" / "matches.db", [1.0, 5.0, 3.0]
    path.parent.mkdir()
    keypoints = np.array([[9, 9, scale, 0, 0, scale] for scale in scales], np.float32)
    descriptors = np.zeros((3, 128), np.uint8)
    descriptors[range(3), range(3)] = 200
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE images (image_id, name)")
        opened.execute("INSERT INTO images VALUES (7, 'a.png')")
        for table, matrix in (("keypoints", keypoints), ("descriptors", descriptors)):
            opened.execute(f"CREATE TABLE {table} (image_id, rows, cols, data)")
            opened.execute(f"INSERT INTO {table} VALUES (7, ?, ?, ?)", (*matrix.shape, matrix.tobytes()))
    (largest,) = database.read_largest(path, ["a.png"], 2)
    assert np.argmax(largest, axis=1).tolist() == [1, 2] and np.allclose(np.linalg.norm(largest, axis=1), 1)
    with pytest.raises(WorkError, match="is damaged"):
        database.read_largest(path, ["b.png"], 2)


def test_photographs_without_features_are_compared_too():
    pairs = matching.similar_pairs([np.zeros((0, 128), np.float32)] * 30)
    assert {i for pair in pairs for i in pair} == set(range(30))


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
