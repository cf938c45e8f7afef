"""Choosing chunks by measurement, the keys that steer it, and the table of --mode plan."""

import math
from types import SimpleNamespace

import pytest
from config_samples import changed
from memory_that_ends import without_memory
from runs import run

from models.commands import plan_table as plan
from models.machine import available, memory
from models.results import chunks

DEBUG_ROWS = [0, 8, 16, 32, 48, 64, 96, 128]  # confs/debug.conf has n_importance = 8


def affine(fixed, per_ray, asked):
    """A measurement whose true cost is known; notes what it was asked for."""

    def measure(chunk):
        asked.append(chunk)
        return fixed + per_ray * chunk

    return measure


@pytest.mark.parametrize("most", [1, 2, 3, 7, 64, 500, 512, 1024])
@pytest.mark.parametrize("allowed", [50, 101, 150, 400, 900, 5_000, 10**9])
@pytest.mark.parametrize("fixed", [0, 100])
def test_the_choice_is_the_largest_halving_that_fits(most, allowed, fixed):
    asked = []
    choice = memory.largest_chunk(most, affine(fixed, 1, asked), lambda: allowed)
    fitting = [size for size in memory.halvings(most) if fixed + size <= allowed]
    assert choice.chunk == max(fitting, default=1) and choice.fits == bool(fitting)
    # Nothing is tried that is foreseen not to fit, but for the first two small ones.
    first = memory.halvings(most)[:5][-2:]
    assert all(fixed + size <= allowed or size in first or size < min(first) for size in asked)


def test_a_measurement_that_turns_out_larger_than_foreseen_is_not_chosen():
    choice = memory.largest_chunk(512, lambda chunk: chunk if chunk < 200 else 10 * chunk, lambda: 600)
    assert choice.chunk == 128 and choice.fits


@pytest.mark.parametrize("most", [1, 2, 3, 7, 64, 500, 512, 1024])
@pytest.mark.parametrize("fitting", [1, 2, 5, 40, 100, 400])
@pytest.mark.parametrize("kind", [MemoryError, RuntimeError])
def test_a_measurement_that_runs_out_of_memory_does_not_fit_and_smaller_ones_are_tried(most, fitting, kind):
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


def test_the_chunks_of_images_and_meshes_are_determined_once_unless_the_conf_names_them(monkeypatch):
    found = iter([640, 4096])
    for name in ("render_chunk", "grid_chunk"):
        monkeypatch.setattr(chunks, name, lambda *_: SimpleNamespace(chunk=next(found)))
    model = SimpleNamespace(shows_pictures=False)
    sizes = chunks.ResultChunks(changed().train)
    assert [sizes.rays(model, None) for _ in range(2)] == [640, 640]
    assert [sizes.points(None) for _ in range(2)] == [4096, 4096]
    assert chunks.ResultChunks(changed(train={"render_chunk": 7}).train).rays(model, None) == 7


def test_where_memory_runs_out_with_one_entry_or_the_work_fails_otherwise_that_is_raised():
    def failing(text):
        def measure(chunk):
            raise RuntimeError(f"{text} {chunk}")

        return measure

    with pytest.raises(RuntimeError, match="Unable to alloc 1$"):
        memory.largest_chunk(512, failing("Unable to alloc"), lambda: 10**6)
    with pytest.raises(RuntimeError, match="no such kernel 64"):
        memory.largest_chunk(512, failing("no such kernel"), lambda: 10**6)


def test_a_containers_limit_is_what_it_leaves(tmp_path):
    assert available.container_leaves(tmp_path / "none") > 10**15
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available.container_leaves(tmp_path) > 10**15
    (tmp_path / "memory.max").write_text("1000\n")
    assert available.container_leaves(tmp_path) == 300
    (tmp_path / "memory.max").write_text("600\n")
    assert available.container_leaves(tmp_path) == 0


@pytest.mark.parametrize(
    ("n_samples", "up_sample_steps", "own", "expected"),
    [
        (64, 4, 64, [0, 16, 32, 48, 64, 96, 128]),
        (64, 4, 40, [0, 16, 32, 40, 48, 64, 96, 128]),
        (1, 4, 0, [0]),
        (8, 0, 0, [0]),
    ],
)
def test_the_rows_are_the_fixed_ones_and_the_confs_own(n_samples, up_sample_steps, own, expected):
    sizes = {"n_samples": n_samples, "n_importance": own, "up_sample_steps": up_sample_steps}
    assert plan.importances(changed(neus_renderer=sizes).model) == expected


@pytest.mark.slow
def test_the_table_holds_measured_figures_and_nothing_is_written(tmp_path, capsys):
    assert run(tmp_path / "new", "--mode", "plan", settings=("train.batch_size=512",)) == 0
    rows = [text.split() for text in capsys.readouterr().out.splitlines() if text.split()[0].rstrip("*").isdigit()]
    assert [int(row[0].rstrip("*")) for row in rows] == DEBUG_ROWS and rows[1][0] == "8*"
    figures = [[float(cell) for cell in row[1:]] for row in rows]
    assert all(math.isfinite(value) and value > 0 for row in figures for value in row)
    assert figures[-1][1] > figures[0][1] and figures[-1][3] > figures[0][3]
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_table_has_the_chunk_that_a_step_went_on_with(tmp_path, capsys, monkeypatch):
    build = plan.build_model

    def built(*arguments):
        model = build(*arguments)
        model.objective = without_memory(model.objective, 3)
        return model

    monkeypatch.setattr(plan, "build_model", built)
    monkeypatch.setattr(plan, "IMPORTANCES", ())
    assert run(tmp_path, "--mode", "plan", settings=("train.batch_size=8", "train.ray_chunk=8")) == 0
    row = next(text.split() for text in capsys.readouterr().out.splitlines() if text.split()[0] == "8*")
    assert row[1] == "2"


@pytest.mark.slow
def test_a_limit_below_the_process_itself_is_said_to_fit_nothing(tmp_path, capsys):
    assert run(tmp_path / "new", "--mode", "plan", settings=("train.memory_limit=0.01",)) == 0
    assert capsys.readouterr().out.count("does not fit") == len(DEBUG_ROWS)


BAD_VALUES = [
    ("ray_chunk=0", "at least 1"),
    ("ray_chunk=many", "a whole number or auto"),
    ("ray_chunk=1.5", "a whole number or auto"),
    ("render_chunk=-1", "at least 1"),
    ("render_chunk=true", "a whole number or auto"),
    ("memory_limit=0", "greater than 0"),
    ("memory_limit=-2", "greater than 0"),
    ("memory_limit=all", "a number or auto"),
    ("memory_limit=inf", "a number or auto"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "expected"), BAD_VALUES)
def test_a_wrong_chunk_or_limit_is_one_sentence_that_names_the_key(setting, expected, tmp_path, capsys):
    assert run(tmp_path / "new", settings=(f"train.{setting}",)) == 2
    error = capsys.readouterr().err
    assert f"train.{setting.split('=')[0]}" in error and expected in error and error.count("\n") == 1
