"""Operations of rays in their CUDA forms: each beside its reference, and a whole gradient of NeuS.

In emulation, where it is seen besides which functions are called; on a card they run on it.
"""

import numpy as np
import pytest
from forms import CUDA_FORMS, in_form
from test_micro_batches import trainer_of
from trainings import gradients

from models.commands.doctor_operations import MOST_DIFFERENCE, difference
from models.commands.operation_examples import example, kernels
from models.ops.source import REFERENCE
from models.ops.upsample import place
from models.ops.volrend import points_along
from models.rendering import losses as table
from models.structs import Term

OF_RAYS = ("place", "intervals", "color_inputs", "alpha_from_sdf", "weights_from_alpha", "composite")
OF_RAYS += ("tangent_points", "second_differences", "loss_sum")
OF_NUMBERS = ("inv_s_of", "weighted_means")
IN_A_STEP = {"place", "intervals", "color_inputs", "sdf_forward", "color_forward", "section_alpha", "packed_weights"}
IN_A_STEP |= {"sharpness", "weighted_means"}
SHARE = 2e-4  # of a gradient: float32 sums in other orders, through two networks


@pytest.mark.parametrize("form", CUDA_FORMS)
@pytest.mark.parametrize("name", OF_RAYS + OF_NUMBERS)
def test_an_operation_of_rays_is_its_reference_in_any_order_of_threads(name, form):
    with in_form(form):
        error, count = difference(kernels()[name], example(name, 1))
    # A new depth is a quotient of differences, which makes a thousand times more of the roundings of a distance.
    assert error <= (MOST_DIFFERENCE if name == "place" else MOST_DIFFERENCE / 20) and count > 0


@pytest.mark.parametrize("form", CUDA_FORMS[:1])
def test_placing_takes_the_distances_that_are_known(form):
    *rays, _, distance, counts, sharpness = example("place", 2).arguments
    origins, directions, depths = rays
    points = points_along(origins, directions, depths).reshape((-1, 3))
    with in_form(form):
        known = distance(points).reshape(depths.shape)
        with_them = place(*rays, known, distance, counts, sharpness).numpy()
        without = place(*rays, None, distance, counts, sharpness).numpy()
    np.testing.assert_allclose(with_them, without, atol=1e-3)  # their points may be rounded otherwise


def step_in(form, **added):
    """Losses and gradients of a batch, and the functions that were emulated for them, None where nothing is.

    `added`: losses by name, which are trained with as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, loss in added.items():
            patch.setitem(table.LOSSES, name, table.Loss(loss))
        trainer = trainer_of()
        batch = trainer.sampler.next()
        noise = trainer.model.draw_noise(len(batch), np.random.default_rng(0))
        with in_form(form) as called:
            found = gradients(trainer, batch, len(batch), noise)
    return *found, called


def close(some, others):
    """Whether gradients agree, by network parameter."""
    size = max(np.linalg.norm(value) for value in others.values())
    return all(np.linalg.norm(some[name] - value) <= SHARE * size for name, value in others.items())


def compare_with_references(**added):
    """The losses of the references, which are those of every form, with the gradients."""
    losses, expected, _ = step_in(REFERENCE, **added)
    for form in CUDA_FORMS:
        found, ours, called = step_in(form, **added)
        assert found == pytest.approx(losses, rel=1e-5) and close(ours, expected)
        assert called is None or {called.count(name) for name in IN_A_STEP} == {1}
    return losses


def darkness(rendered):
    """A loss from outside."""
    rendering = rendered.rendering
    return Term((1.0 - rendering.rgb).sqr().sum() + rendering.weights.sqr().sum(), float(len(rendered.target)))


@pytest.mark.slow
def test_a_whole_gradient_of_neus_is_that_of_the_references_with_any_loss():
    """Each operation is called once; a loss may be added from outside."""
    plain, more = compare_with_references(), compare_with_references(darkness=darkness)
    assert more["total"] == pytest.approx(plain["total"] + more["darkness"], rel=1e-5)
