"""Pairs to match, and steps that are skipped."""

import contextlib
import json
import re
import sqlite3

import numpy as np
import pytest

from data.errors import UserError
from data.prepare.sfm import matches, stages
from data.prepare.steps import Step, Steps, WorkError


def world(*shape):
    """Unit descriptors."""
    found = np.abs(np.random.default_rng(0).normal(size=(*shape, 128))).astype(np.float32)
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


@pytest.mark.parametrize("count", [3, 12, 80, 400])
def test_a_sequence_is_compared_with_its_neighbours_and_closed(count):
    found = set(matches.sequence_pairs(count))
    assert all(0 <= i < j < count for i, j in found)
    assert {(0, count - 1), *((i, i + 1) for i in range(count - 1))} <= found
    assert len(found) <= count * (matches.NEIGHBOURS + 9)


def test_all_pairs_of_few_photographs_are_matched_and_some_of_many(tmp_path, monkeypatch):
    """Photographs on a line, of which neighbours share features."""
    line, limit = world(400), matches.EXHAUSTIVE_LIMIT
    read = lambda database, names, count: [line[5 * int(name) :][:100] for name in names]  # noqa: E731
    monkeypatch.setattr(matches, "read_largest", read)
    few, many = ([str(index) for index in range(count)] for count in (limit, limit + 10))
    everything = stages.pairs_to_match(tmp_path, few, False)
    assert everything == matches.all_pairs(limit) and len(set(everything)) == limit * (limit - 1) // 2
    chosen = stages.pairs_to_match(tmp_path, many, False)
    assert len(chosen) <= 0.7 * len(matches.all_pairs(limit + 10))
    assert {(i, i + 1) for i in range(limit + 9)} <= set(chosen)


def test_many_photographs_are_compared_with_those_that_share_features():
    """Two groups of 20 on a circle, of which neighbours share features; images 0 and 20 share some."""
    circles = world(2, 200)
    views = [np.roll(circles[group], 10 * view, axis=0)[:40] for group in range(2) for view in range(20)]
    views[20] = np.concatenate([views[20][:35], views[0][:5]])
    pairs = matches.similar_pairs(views)
    assert len(pairs) == len(set(pairs)) <= 40 * matches.MOST_SIMILAR
    assert all(0 <= i < j < 40 for i, j in pairs)
    for group in (0, 20):
        neighbours = {tuple(sorted((group + i, group + (i + step) % 20))) for i in range(20) for step in (1, 2, 3)}
        assert neighbours <= set(pairs)
    assert (0, 20) in pairs, "the groups are connected"
    without_features = matches.similar_pairs([np.zeros((0, 128), np.float32)] * 30)
    assert {i for pair in without_features for i in pair} == set(range(30))


def test_the_largest_features_are_read_from_the_database(tmp_path):
    path = tmp_path / "matches.db"
    keypoints = np.array([[9, 9, scale, 0, 0, scale] for scale in (1.0, 5.0, 3.0)], np.float32)
    descriptors = 200 * np.eye(3, 128, dtype=np.uint8)
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE images (image_id, name)")
        opened.execute("INSERT INTO images VALUES (7, 'a.png')")
        for table, matrix in (("keypoints", keypoints), ("descriptors", descriptors)):
            opened.execute(f"CREATE TABLE {table} (image_id, rows, cols, data)")
            opened.execute(f"INSERT INTO {table} VALUES (7, ?, ?, ?)", (*matrix.shape, matrix.tobytes()))
    (largest,) = matches.read_largest(path, ["a.png"], 2)
    assert np.argmax(largest, axis=1).tolist() == [1, 2] and np.allclose(np.linalg.norm(largest, axis=1), 1)
    with pytest.raises(WorkError, match="is damaged"):
        matches.read_largest(path, ["b.png"], 2)


@pytest.mark.parametrize(
    ("links", "words"),
    [({"ab": 14}, "none of the 5"), ({"ab": 50, "bc": 50, "cd": 20}, "1 of 5 photographs have too few.*: e$")],
)
def test_what_does_not_hang_together_is_named(links, words):
    found = {tuple(pair): count for pair, count in links.items()}
    assert re.search(words, matches.why_disconnected([*"abcde"], found))


def test_steps_are_skipped_until_their_inputs_change(tmp_path):
    ran = []

    def run(inputs):
        steps = Steps(tmp_path, inputs, str)
        return [steps.run(Step(name, lambda name=name: ran.append(name) or len(ran))) for name in inputs]

    assert [run({"a": a, "b": b}) for a, b in ((1, 1), (1, 1), (1, 2), (2, 2))] == [[1, 2], [1, 2], [1, 3], [4, 5]]
    assert ran == ["a", "b", "b", "a", "b"]


def test_a_failed_step_runs_again_without_its_outputs_unless_it_can_go_on(tmp_path):
    was_there = []

    def work():
        was_there.append((tmp_path / "out").exists())
        (tmp_path / "out").mkdir(exist_ok=True)
        raise UserError("no")

    for is_sound in (None, lambda: False, lambda: True):
        with pytest.raises(UserError, match="no"):
            Steps(tmp_path, {"a": 1}, str).run(Step("a", work, ("out",), is_sound=is_sound))
    assert was_there == [False, False, True]


def test_a_damaged_stamp_means_that_nothing_is_done(tmp_path):
    stamp, steps, step = tmp_path / "a.json", Steps(tmp_path, {"a": 1}, str), Step("a", lambda: 5)
    steps.run(step)
    changed = json.dumps({**json.loads(stamp.read_text()), "result": 6})
    for text in ("", "[]", "{", '{"key": 3}', "[" * 100000, changed):
        stamp.write_text(text)
        assert not steps.was_run("a") and steps.run(step) == 5
