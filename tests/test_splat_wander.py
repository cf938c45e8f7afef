"""SGLD noise of Gaussians: random numbers, moments, which Gaussians it moves, and that all implementations agree."""

import numpy as np
import pytest
from forms import CUDA_FORMS, FORMS, in_form
from method_oracles import random_splats, rotations64

from models.machine.backend import jt
from models.ops.draw import philox
from models.ops.gaussians.splat_wander import step_of, wander_splats
from models.ops.source import NATIVE

pytestmark = pytest.mark.slow

NAMES = ("means", "quats", "sizes", "opacities")
MASK = 2**32 - 1
# Of the generator's authors: counter, key, words.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
)


def philox_by_hand(counter, key):
    """Ten rounds, in whole numbers without bounds."""
    a, b, c, d = counter
    for step in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        keys = ((key[0] + step * 0x9E3779B9) & MASK, (key[1] + step * 0xBB67AE85) & MASK)
        a, b, c, d = (right >> 32) ^ b ^ keys[0], right & MASK, (left >> 32) ^ d ^ keys[1], left & MASK
    return a, b, c, d


def normals64(words):
    """Box and Muller in float64, of the upper 24 bits of each word."""
    share, turn = ((words[:, k::2].astype(np.int64) >> 8) / 2.0**24 for k in range(2))
    radius, angle = np.sqrt(-2.0 * np.log(share + 2.0**-24)), 2.0 * np.pi * (turn - 0.5)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(-1, 4)[:, :3]


def wandered64(splats, step, flat=False):
    """By the words of the definition, in float64."""
    words = philox(len(splats["means"]), (step.first_key, step.second_key))
    squares = np.exp(2.0 * splats["sizes"].astype(np.float64)) * ([1, 1, 0] if flat else [1, 1, 1])
    opacity = 1.0 / (1.0 + np.exp(-splats["opacities"].astype(np.float64)))
    gate = np.where(opacity < 0.1, 1.0 / (1.0 + np.exp(100.0 * (opacity - 0.005))), 0.0)
    offsets = np.einsum("nij,nj->ni", rotations64(splats["quats"].astype(np.float64)), normals64(words) * squares)
    return splats["means"] + step.rate * gate * offsets


def with_and_without_noise(count):
    splats = random_splats(count, 0, opacity=(-9.0, 1.0), size=(-3.0, 0.0))
    return {name: splats[name].astype(np.float32) for name in NAMES}


def wandered(splats, step, form=NATIVE):
    with in_form(form):
        return wander_splats(*(jt.array(splats[name]) for name in NAMES), step).numpy()


def test_the_words_of_each_splat_are_the_generators():
    assert all(philox_by_hand(counter, key) == words for counter, key, words in KNOWN)
    for key in ((1, -1), (-(2**31), 2**31 - 1)):
        unsigned = tuple(word & MASK for word in key)
        expected = [philox_by_hand((n, 0, 0, 0), unsigned) for n in range(70)]
        assert [tuple(row) for row in philox(70, key).tolist()] == expected


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_moves_the_centres_as_the_definition_says(form, flat):
    splats = with_and_without_noise(300)
    splats["opacities"][:4] = [[-200.0], [-80.0], [80.0], [200.0]]
    for step in (step_of(1.0, flat, 7, 1), step_of(1.0, flat, 7, 2)):
        np.testing.assert_allclose(wandered(splats, step, form), wandered64(splats, step, flat), atol=3e-6)


def test_bits_do_not_hang_on_threads_nor_on_how_many_splats_follow(openmp_threads):
    splats, step = with_and_without_noise(500), step_of(1.0, False, 5)
    first, *others = (wandered(splats, step, form) for form in CUDA_FORMS)
    assert all(np.array_equal(first, other) for other in others)
    whole = wandered(splats, step)
    for threads in (2, 5):
        openmp_threads(threads)
        assert np.array_equal(wandered(splats, step), whole)
    for count in (1, 7, 16, 33, 299):
        some = {name: array[:count] for name, array in splats.items()}
        assert np.array_equal(wandered(some, step), whole[:count])
        assert np.array_equal(wandered(some, step, CUDA_FORMS[0]), first[:count])
