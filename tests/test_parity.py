"""The golden numbers of the published code."""

from pathlib import Path

import parity
import pytest

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["wmask_small", "womask_small", "wmask_full"])
def test_all_quantities_lie_within_half_their_bounds(name):
    rows = parity.compare(GOLDEN / f"{name}.npz")
    assert [row for row in rows if not row.passed] == []
    assert [row for row in rows if row.error > row.bound / 2] == []
    assert len(rows) > 50 and any(row.name.startswith("grad/") for row in rows)
