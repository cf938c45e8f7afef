"""Operations of rays in their CUDA forms: each beside its reference, and a whole gradient of NeuS.

In emulation, where it is seen besides which functions are called; on a card they run on it.
"""

import numpy as np
import pytest
from forms import CUDA_FORMS, in_form
from test_micro_batches import gradients, trainer_of

from models.doctor.operations import BOUND, difference
from models.kinds.neus.terms import TERMS
from models.kinds.protocol import Term
from models.ops.examples import MAKERS
from models.ops.kernel import REFERENCE
from models.ops.placing import place
from models.ops.volrend import points_along

OF_RAYS = ("place", "ray_sections", "color_inputs", "shade", "loss_sums", "section_alpha", "weights_from_alpha")
OF_NUMBERS = ("sharpness", "weighted_means")
IN_A_STEP = {"place", "ray_sections", "color_inputs", "sdf_forward", "color_forward", "shade", "loss_sums"}
IN_A_STEP |= {"sharpness", "weighted_means"}
SHARE = 2e-4  # of a gradient: float32 sums in other orders, through two networks


@pytest.mark.parametrize("form", CUDA_FORMS)
@pytest.mark.parametrize("name", OF_RAYS + OF_NUMBERS)
def test_an_operation_of_rays_is_its_reference_whatever_the_order_of_threads(name, form):
    with in_form(form):
        error, count = difference(MAKERS[name](np.random.default_rng(1)))
    # A new depth is a quotient of differences, which makes a hundred times more of the roundings of a distance.
    assert error <= (BOUND / 2 if name == "place" else BOUND / 20) and count > 0


@pytest.mark.parametrize("form", CUDA_FORMS[:1])
def test_placing_takes_the_distances_that_are_known(form):
    *rays, _, distance, counts, sharpness = MAKERS["place"](np.random.default_rng(2)).arguments
    origins, directions, depths = rays
    points = points_along(origins, directions, depths).reshape((-1, 3))
    with in_form(form):
        known = distance(points).reshape(depths.shape)
        with_them = place(*rays, known, distance, counts, sharpness).numpy()
        without = place(*rays, None, distance, counts, sharpness).numpy()
    np.testing.assert_allclose(with_them, without, atol=1e-3)  # their points may be rounded otherwise


def step_in(form, terms=TERMS):
    """Losses and gradients of a batch, and the functions that were emulated for them, None where nothing is."""
    trainer = trainer_of()
    trainer.model.terms = terms
    batch = trainer.sampler.next()
    noise = trainer.model.draw_noise(len(batch), np.random.default_rng(0))
    with in_form(form) as called:
        found = gradients(trainer, batch, noise, len(batch))
    return *found, called


def close(some, others):
    """Whether gradients agree, by network parameter."""
    size = max(np.linalg.norm(value) for value in others.values())
    return all(np.linalg.norm(some[name] - value) <= SHARE * size for name, value in others.items())


def test_a_whole_gradient_of_neus_is_that_of_the_references_and_each_operation_is_called_once():
    losses, expected, _ = step_in(REFERENCE)
    for form in CUDA_FORMS:
        found, ours, called = step_in(form)
        assert found == pytest.approx(losses, rel=1e-5) and close(ours, expected)
        assert called is None or {name: called.count(name) for name in IN_A_STEP} == dict.fromkeys(IN_A_STEP, 1)


def twice_as_dark(seen, conf):
    """A term from outside."""
    del conf
    return Term((1.0 - seen.render.rgb).sqr().sum() + seen.render.weights.sqr().sum(), float(len(seen.mask)))


@pytest.mark.parametrize(
    "terms", [TERMS | {"dark": twice_as_dark}, {"color": TERMS["color"], "dark": twice_as_dark}], ids=["more", "others"]
)
def test_terms_from_outside_join_the_published_ones_or_do_without_them(terms):
    losses, expected, _ = step_in(REFERENCE, terms)
    found, ours, called = step_in(CUDA_FORMS[-1], terms)
    assert found == pytest.approx(losses, rel=1e-5) and close(ours, expected)
    assert called is None or ("loss_sums" in called) == ("mask" in terms)
