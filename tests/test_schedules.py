"""Learning rate and annealing as functions of the step, at points computed by hand."""

import dataclasses
import math

import pytest
from config_samples import changed

from models.methods.neus import cos_anneal_ratio
from models.training.optimizer import learning_rate

# Warm-up to step 100, then half a cosine of 800 steps down to a twentieth.
TRAIN = dataclasses.replace(
    changed().train, learning_rate=4e-4, learning_rate_alpha=0.05, warm_up_end=100.0, end_iter=900, anneal_end=50.0
)
SHARES = {0: 0.0, 1: 0.01, 50: 0.5, 99: 0.99, 100: 1.0, 500: 0.525, 900: 0.05}
SHARES |= {300: 0.05 + 0.475 * (1.0 + math.sqrt(0.5)), 700: 0.05 + 0.475 * (1.0 - math.sqrt(0.5))}


def test_the_learning_rate_rises_evenly_and_falls_as_half_a_cosine():
    for step, share in SHARES.items():
        assert learning_rate(TRAIN)(step) == pytest.approx(4e-4 * share, rel=1e-12, abs=1e-18), step


def test_the_annealing_ratio_rises_from_zero_to_one_and_stays():
    for step, end, ratio in ((0, 50.0, 0.0), (25, 50.0, 0.5), (50, 50.0, 1.0), (10**6, 50.0, 1.0), (0, 0.0, 1.0)):
        assert cos_anneal_ratio(step, dataclasses.replace(TRAIN, anneal_end=end)) == pytest.approx(ratio)
