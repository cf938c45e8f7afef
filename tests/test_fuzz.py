"""Every input gives a value or an error of one sentence; `python -m benchmarks.fuzz` runs many more examples."""

import pytest
from fuzzing import TARGETS, fuzz

EXAMPLES = 150  # of each reader: some seconds in all


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_ends_in_a_value_or_a_user_error_whatever_it_is_given(name):
    count, accepted = fuzz(name, EXAMPLES)
    assert 0 < accepted < count, "the examples must lie on both sides of what can be read"
