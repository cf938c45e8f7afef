"""Trainings whose batches are drawn on the device and sized one batch late, as on a GPU."""

from dataclasses import replace

import numpy as np
import pytest
from runs import ROOT, everything
from test_fast_background import OPEN
from test_fast_neus import SHORT, TINY
from trainings import assert_same_gradients, gradients, trainer_of

from models.conf import load_config
from models.estimators.packed import DevicePixels
from models.machine.backend import jt
from models.training.guard import find_in_inputs

pytestmark = pytest.mark.slow
NERF = ("model.radiance.samples=1024", "model.density_grid.levels=4", "model.density_grid.log2_rows=10")
KINDS = {
    "surface": ("fast", (*TINY, *SHORT)),
    "patches": ("geo", (*TINY, *SHORT, "model.patches.begins=0")),
    "without masks": ("fast", (*OPEN, *SHORT)),
    "without masks, patches": ("geo", (*OPEN, *SHORT, "model.patches.begins=0")),
    "radiance": ("fast_nerf", (*NERF, *SHORT, f"dataset.data_dir={ROOT}/data/demo")),
}


@pytest.fixture(params=KINDS)
def made(request):
    """A function that builds a trainer as on a GPU."""
    name, settings = KINDS[request.param]
    return lambda: on_device(trainer_of(load_config(ROOT / f"confs/{name}.conf", "demo", settings)))


def on_device(trainer):
    """The trainer with what a GPU would have: photographs on the device, and counts that are read later."""
    sampler = trainer.sampler
    sampler.pixels = DevicePixels(sampler._scene, sampler.pixels._windows)
    trainer.model.estimator.budget.uncounted = 1
    return trainer


def test_a_batch_on_the_device_has_the_gradients_of_its_arrays(made):
    """In one piece and in chunks; and what is not finite in it is named."""
    trainer = made()
    trainer.step()
    batch = trainer.sampler.next()
    assert isinstance(batch.rgb, jt.Var) and (batch.mask is None or isinstance(batch.mask, jt.Var))
    mask = None if batch.mask is None else batch.mask.numpy()
    again = replace(batch, rgb=batch.rgb.numpy(), mask=mask, view=batch.view.numpy())
    whole, of_arrays = (gradients(trainer, one, 10**6) for one in (batch, again))
    assert_same_gradients(of_arrays, whole, loss=0.0, slope=0.0)
    assert_same_gradients(gradients(trainer, batch, 40), whole, loss=1e-5, slope=2e-4)
    assert len(batch.part(3, 9)) == 6
    assert find_in_inputs(batch, None) == []
    colours = batch.rgb.numpy()
    colours[2, 1] = np.nan
    object.__setattr__(batch, "rgb", jt.array(colours))
    assert find_in_inputs(batch, None) == ["1 NaN or Inf in the colours of the photographs"]


def test_a_resumed_training_draws_the_same_batches(made):
    whole, resumed = made(), made()
    for _ in range(4):
        whole.step()
    resumed.restore(whole.checkpoint({}))
    for trainer in (whole, resumed):
        trainer.step()
        trainer.step()
    one, other = (trainer.checkpoint({}) for trainer in (whole, resumed))
    assert one.state == other.state and everything(one) == everything(other)
    last = [trainer.sampler.next().words() for trainer in (whole, resumed)]
    assert all(np.array_equal(last[0][name], values) for name, values in last[1].items())
