"""Samples outside the unit sphere, in all forms: against the candidates in NumPy."""

import numpy as np
import pytest
from forms import CUDA_FORMS, in_form

from data.rays import Rays
from models.machine.backend import jt
from models.ops.outside import BEFORE, BEHIND, Outside, candidates, contracted, outside_samples
from models.ops.source import REFERENCE

pytestmark = pytest.mark.unit
FORMS = (REFERENCE, *CUDA_FORMS)
CELLS, NEAR = 16, 0.1


def rays_of(count, seed=0):
    """Through the sphere, beside it, and from within."""
    rng = np.random.default_rng(seed)
    origins = rng.normal(size=(count, 3))
    origins *= rng.uniform(0.5, 4, (count, 1)) / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = rng.uniform(-2, 2, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    return Rays(*(np.float32(values) for values in (origins, directions, middle - 1, middle + 1)))


def case(count=40, seed=0):
    """Rays, jitter, which transmit, and states of which a third are empty."""
    rng = np.random.default_rng(seed)
    states = rng.choice([0, BEHIND, BEFORE], (CELLS, CELLS, CELLS)).astype(np.uint8)
    return rays_of(count, seed), rng.random((count, 1), dtype=np.float32), rng.random(count) < 0.7, states


def found_in(form, rays, jitter, transmits, states, samples, section=0.15):
    sizes = Outside(CELLS, samples, np.float64(section), np.float64(NEAR))
    on_device = Rays(*map(jt.array, vars(rays).values()))
    with in_form(form):
        found = outside_samples(on_device, jt.array(jitter), jt.array(transmits), jt.array(states), sizes)
        return {name: value.numpy() for name, value in vars(found).items()}


def expected_rows(rays, jitter, transmits, states, section=0.15):
    """Ray, depth and point of each sample, one after another."""
    found, rows = candidates(rays, jitter, section, NEAR), []
    for ray, (depths, exist, is_before) in enumerate(zip(*found, strict=True)):
        for depth, is_there, before in zip(depths, exist, is_before, strict=True):
            if not is_there or not (before or transmits[ray]):
                continue
            point = contracted((rays.origins[ray] + rays.directions[ray] * depth)[None])[0]
            state = states[tuple(np.clip(((point + 1) * (0.5 * CELLS)).astype(int), 0, CELLS - 1))]
            if state == BEFORE or (state == BEHIND and not before):
                rows.append((ray, depth, point))
    return rows


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("form", FORMS)
def test_samples_are_the_candidates_in_cells_that_may_be_seen(form, count):
    given = case(count)
    found, rows = found_in(form, *given, samples=4096), expected_rows(*given)
    used = found["offsets"][-1]
    assert used == len(rows) >= count - 1 and found["kept"][0] == count
    assert found["rays"][:used].tolist() == [ray for ray, _, _ in rows]
    np.testing.assert_allclose(found["depths"][:used, 0], [depth for _, depth, _ in rows], rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(found["points"][:used], [point for _, _, point in rows], atol=3e-6)
    np.testing.assert_array_equal(found["directions"][:used], given[0].directions[found["rays"][:used]])
    np.testing.assert_array_equal(np.searchsorted(found["rays"][:used], np.arange(count + 1)), found["offsets"])


@pytest.mark.parametrize("form", FORMS)
def test_only_rays_whose_samples_fit_have_any(form):
    given = case()
    ends = found_in(form, *given, samples=4096)["offsets"]
    budget = int(ends[20]) + 1
    found, kept = found_in(form, *given, samples=budget), int((ends[1:] <= budget).sum())
    assert found["kept"][0] == kept >= 20
    assert found["offsets"].tolist() == np.minimum(ends, ends[kept]).tolist()
    assert not found["depths"][ends[kept] :].any() and not found["rays"][ends[kept] :].any()


@pytest.mark.parametrize("form", FORMS)
def test_empty_cells_have_no_samples_and_of_opaque_rays_only_those_before(form):
    rays, jitter, transmits, states = case()
    found = found_in(form, rays, jitter, transmits, np.zeros_like(states), samples=64)
    assert not found["offsets"].any() and found["kept"][0] == 40 and np.isfinite(found["points"]).all()
    given = rays, jitter, np.zeros_like(transmits), np.full_like(states, BEFORE)
    found = found_in(form, *given, samples=4096)
    used = found["offsets"][-1]
    assert 0 < used == len(expected_rows(*given))
    towards = (found["points"][:used] * found["directions"][:used]).sum(axis=1)
    assert (towards < 0).all()  # before the point of the ray nearest to the origin
