"""How long `--mode reconstruct --minutes auto` trains."""

import pytest

from models.commands.reconstruction_folder import ReconstructionPlan
from models.commands.reconstruction_settings import LEAST_GAIN, longer

BEFORE = [5, 1.0, 20.0]
CASES = {
    "no score yet": ([], 20),
    "a score of the first training only": ([[10, 2.0, 20.0]], 20),
    "it helped": ([BEFORE, [10, 2.0, 20.0 + LEAST_GAIN]], 20),
    "it hardly helped": ([BEFORE, [10, 2.0, 20.0 + 0.9 * LEAST_GAIN]], None),
    "it harmed": ([BEFORE, [10, 2.0, 19.0]], None),
    "scores at other steps": ([[4, 1.0, 20.0], [10, 2.0, 20.0]], 20),
}


def plan(steps, longest):
    settings = {"dataset.downscale": "2", "train.end_iter": str(steps)}
    return ReconstructionPlan(10.0, settings, 0.1, longest=longest)


@pytest.mark.parametrize("name", CASES)
def test_the_steps_are_doubled_while_the_scores_increase(name):
    curve, expected = CASES[name]
    found = longer(plan(10, 80), curve)
    assert found == (None if expected is None else plan(expected, 80))


@pytest.mark.parametrize(("steps", "longest"), [(80, 80), (41, 80), (10, None)])
def test_the_longest_training_is_not_doubled(steps, longest):
    assert longer(plan(steps, longest), [[steps // 2, 1.0, 20.0], [steps, 2.0, 30.0]]) is None
