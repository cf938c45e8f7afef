"""The golden numbers of the published code, and that their comparison notices what differs."""

import json
from pathlib import Path

import numpy as np
import parity
import pytest
import reached
from seeded_weights import drawn_matrix

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"
FILES = ("wmask_small", "womask_small", "wmask_full")

# entry -> what is done to its first value; each is just beyond its bound, or no number at all
PERTURBATIONS = {
    "field/sdf": lambda x: x + 1e-4,
    "field/color": lambda x: x * np.nan,
    "out/up_sample_1": lambda x: x + 1e-2,
    "out/color_fine": lambda x: x + 5e-4,
    "out/weight_sum": lambda x: x * np.nan,
    "loss/eikonal": lambda x: x * 1.001,
    "loss/total": lambda x: x * np.nan,
    "grad/variance_network_fine.variance": lambda x: x * 1.01,
    "train/lr": lambda x: x + 1e-3,
    "train/loss": lambda x: x * np.nan,
}


@pytest.mark.parametrize("name", FILES)
def test_all_quantities_lie_within_half_their_bounds_and_twice_what_was_reached(name):
    rows = parity.compare(GOLDEN / f"{name}.npz")
    assert [row for row in rows if not row.passed] == []
    assert [row for row in rows if row.error > row.bound / 2] == []
    assert len(rows) > 50 and any(row.name.startswith("grad/") for row in rows)


def test_perturbed_numbers_are_each_noticed_and_the_exit_status_is_one(tmp_path, capsys):
    with np.load(GOLDEN / "wmask_small.npz") as archive:
        arrays = dict(archive)
    for name, change in PERTURBATIONS.items():
        value = np.array(arrays[name])
        value.reshape(-1)[0] = change(value.reshape(-1)[0])
        arrays[name] = value
    path = tmp_path / "perturbed.npz"
    np.savez(path, **arrays)
    assert parity.main([str(path)]) == 1
    failed = {line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("  FAIL")}
    assert failed == set(PERTURBATIONS)


def test_without_files_the_usage_is_shown_and_the_status_is_two(capsys):
    assert parity.main([]) == 2
    assert "parity.py [--keep] FILE.npz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "passed"), [(0.0, True), (1e-3, True), (1.1e-3, False), (np.inf, False), (np.nan, False)]
)
def test_a_row_passes_up_to_its_bound(error, passed):
    assert parity.Row("x", error, 1e-3).passed is passed


@pytest.mark.parametrize(
    ("name", "before", "error", "passed"),
    [
        ("field/x", None, 1e-3, True),
        ("field/x", 2e-4, 3.9e-4, True),
        ("field/x", 2e-4, 4.1e-4, False),
        ("field/x", 1e-7, 0.9 * reached.STEADY_FLOOR * 1e-3, True),
        ("field/x", 1e-7, 1.1 * reached.STEADY_FLOOR * 1e-3, False),
        ("field/x", 9e-4, 1.1e-3, False),  # the bound always holds
        ("out/x", 1e-7, 0.9 * reached.MOVING_FLOOR * 1e-3, True),  # a moved sample
        ("out/x (given depths)", 1e-7, 0.9 * reached.MOVING_FLOOR * 1e-3, False),
    ],
)
def test_a_row_fails_where_it_is_more_than_twice_as_far_off_as_before(name, before, error, passed):
    assert parity.Row(name, error, 1e-3, before).passed is passed


def test_what_is_kept_is_what_the_same_instruction_set_is_compared_with(tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "_rows", lambda path: [parity.Row("field/x", 4e-4, 1e-3)])
    (tmp_path / "table.json").write_text("{}")
    monkeypatch.setattr(reached, "read", lambda: json.loads((tmp_path / "table.json").read_text()))
    monkeypatch.setattr(reached, "write", lambda table: (tmp_path / "table.json").write_text(json.dumps(table)))
    monkeypatch.setenv("NEUS_ISA", "x86-64-v3")
    assert parity.main(["--keep", "some/file.npz"]) == 0
    monkeypatch.setattr(parity, "_rows", lambda path: [parity.Row("field/x", 9e-4, 1e-3)])
    assert parity.main(["other/file.npz"]) == 1
    monkeypatch.setenv("NEUS_ISA", "x86-64-v2")
    assert parity.main(["other/file.npz"]) == 0


def test_a_matrix_is_drawn_as_ever():
    drawn = drawn_matrix("sdf_network_fine.lin0.weight_v", 2, np.float32([[0.0, 1.0], [1.0, 0.5]]), 1)
    assert drawn.tolist() == [[0.6964379549026489, 1.4704920053482056], [0.04357108101248741, 1.3237940073013306]]


def test_the_worst_error_is_the_largest_and_ignores_axes_of_length_one():
    assert parity.worst(np.ones((3, 1)), np.float64([1.0, 3.0, 0.5])) == 2.0


@pytest.mark.parametrize("actual", [np.ones((2, 3)), np.ones(7), np.ones((3, 2))[:, :1]], ids=["axes", "size", "cut"])
def test_shapes_that_differ_are_infinitely_wrong(actual):
    assert parity.worst(actual, np.ones((3, 2))) == np.inf


@pytest.mark.parametrize("side", [0, 1])
def test_not_a_number_on_either_side_is_not_swallowed(side):
    pair = [np.ones(3), np.ones(3)]
    pair[side][1] = np.nan
    assert np.isnan(parity.worst(*pair))


def test_relative_errors_are_absolute_where_the_golden_number_is_zero():
    assert parity.relative(1.1, 1.0) == pytest.approx(0.1) and parity.relative(0.2, 0.0) == pytest.approx(0.2)
