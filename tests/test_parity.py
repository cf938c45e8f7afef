"""The golden numbers of the published code, and that their comparison notices what differs."""

from pathlib import Path

import numpy as np
import parity
import pytest

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
