"""Choosing chunks by measurement, the keys that steer it, and the table of --mode plan."""

import math
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from config_samples import changed
from runs import run

from models.machine import available, memory
from models.results import context

DEBUG_ROWS = [0, 8, 16, 32, 48, 64, 96, 128]  # confs/debug.conf has n_importance = 8


@pytest.mark.parametrize("most", [1, 2, 3, 7, 64, 500, 512, 1024])
@pytest.mark.parametrize("allowed", [50, 101, 400, 900, 10**9])
@pytest.mark.parametrize("fixed", [0, 100])
def test_the_choice_is_the_largest_halving_that_fits(most, allowed, fixed):
    asked = []
    choice = memory.largest_chunk(most, lambda chunk: asked.append(chunk) or fixed + chunk, lambda: allowed)
    fitting = [size for size in memory.halvings(most) if fixed + size <= allowed]
    assert choice.chunk == max(fitting, default=1) and choice.fits == bool(fitting)
    # Nothing is tried that is foreseen not to fit, but for the first two small ones.
    first = memory.halvings(most)[:5][-2:]
    assert all(fixed + size <= allowed or size in first or size < min(first) for size in asked)


@pytest.mark.parametrize("most", [1, 3, 64, 500, 1024])
@pytest.mark.parametrize("fitting", [1, 2, 40, 400])
@pytest.mark.parametrize("kind", [MemoryError, RuntimeError])
def test_where_a_measurement_runs_out_of_memory_smaller_ones_are_tried(most, fitting, kind):
    asked = []

    def measure(chunk):
        asked.append(chunk)
        if chunk > fitting:
            raise kind("Unable to alloc")
        return chunk

    choice = memory.largest_chunk(most, measure, lambda: 10 * most)
    expected = max(size for size in memory.halvings(most) if size <= fitting)
    assert choice.fits and choice.chunk == (most if max(asked) <= fitting else expected)
    assert len(asked) == len(set(asked))


def test_failures_and_measurements_that_nothing_foresees():
    for error, last in ((RuntimeError("Unable to alloc"), 1), (RuntimeError("no such kernel"), 64)):
        measure = Mock(side_effect=error)
        with pytest.raises(RuntimeError, match=str(error)):
            memory.largest_chunk(512, measure, lambda: 10**6)
        assert measure.call_args.args == (last,)
    choice = memory.largest_chunk(512, lambda chunk: chunk if chunk < 200 else 10 * chunk, lambda: 600)
    assert choice.chunk == 128 and choice.fits


def test_chunks_of_results_are_measured_once_unless_the_conf_names_them(monkeypatch):
    found = iter([640, 4096])
    monkeypatch.setattr(context.memory, "chunk_that_fits", lambda *_: SimpleNamespace(chunk=next(found)))
    model, sizes = SimpleNamespace(shows_pictures=False), context.ResultChunks(changed().train)
    assert [sizes.rays(model, None) for _ in range(2)] == [640, 640]
    assert [sizes.points(None) for _ in range(2)] == [4096, 4096]
    assert context.ResultChunks(changed(train={"render_chunk": 7}).train).rays(model, None) == 7


def test_a_containers_limit_is_what_it_leaves(tmp_path):
    assert available.container_leaves(tmp_path / "none") > 10**15
    (tmp_path / "memory.current").write_text("700\n")
    for most, left in (("max", None), ("1000", 300), ("600", 0)):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        found = available.container_leaves(tmp_path)
        assert found == left if left is not None else found > 10**15


def test_the_table_holds_measured_figures_and_nothing_is_written(tmp_path, capsys):
    assert run(tmp_path / "new", "--mode", "plan", settings=("train.batch_size=512",)) == 0
    rows = [text.split() for text in capsys.readouterr().out.splitlines() if text.split()[0].rstrip("*").isdigit()]
    assert [int(row[0].rstrip("*")) for row in rows] == DEBUG_ROWS and rows[1][0] == "8*"
    figures = [[float(cell) for cell in row[1:]] for row in rows]
    assert all(math.isfinite(value) and value > 0 for row in figures for value in row)
    assert figures[-1][1] > figures[0][1] and figures[-1][3] > figures[0][3]
    assert run(tmp_path / "new", "--mode", "plan", settings=("train.memory_limit=0.01",)) == 0
    assert capsys.readouterr().out.count("does not fit") == len(DEBUG_ROWS) and not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value", "words"), [("ray_chunk", 0, "at least"), ("memory_limit", "inf", "or auto")])
def test_a_wrong_chunk_or_limit_is_one_sentence_that_names_the_key(tmp_path, capsys, key, value, words):
    assert run(tmp_path / "new", settings=(f"train.{key}={value}",)) == 2
    error = capsys.readouterr().err
    assert f"train.{key}" in error and words in error and error.count("\n") == 1
