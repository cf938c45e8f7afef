"""Photographs without masks with confs/fast.conf: batches in which nothing is seen, or what is no number."""

import numpy as np
import pytest
from packed_samples import on_host
from test_fast_background import trained

from data.errors import UserError
from models.estimators.sampler import MOST_EMPTY
from models.machine.backend import jt

pytestmark = pytest.mark.slow


def test_where_all_cells_are_empty_rays_are_drawn_again():
    trainer = trained()
    for grid in (trainer.model.estimator.grid, trainer.model.estimator.background.grid):
        grid.set(np.zeros_like(grid.cells))
    assert on_host(trainer.sampler.next()).offsets[-1] == 0
    assert np.isfinite(trainer.step().found.losses["total"].item())
    assert trainer.model.estimator.grid.is_open
    assert on_host(trainer.sampler.next()).offsets[-1] > 0


def test_where_no_ray_sees_anything_the_scene_is_told_of():
    trainer = trained()
    hull = np.zeros_like(trainer.model.estimator.grid.hull)
    hull[0, 0, 0] = True  # a corner of the cube, beyond the sphere to which rays are cut
    trainer.model.estimator.grid.enclose(hull)
    beyond = trainer.model.estimator.background.grid
    beyond.set(np.zeros_like(beyond.cells))
    with pytest.raises(UserError, match="no photograph sees the region where the object may be"):
        for _ in range(MOST_EMPTY + 1):
            on_host(trainer.sampler.next())


@pytest.mark.parametrize("where", [0.0, 0.9])  # before and after samples that show nothing are left out
def test_a_sharpness_that_is_no_number_is_named_by_the_guard(where):
    trainer = trained()
    trainer.finished_steps = int(where * trainer.conf.end_iter)
    trainer.networks["variance_network_fine"].variance.update(jt.array(np.array([np.nan], np.float32)))
    trainer.step()
    assert not trainer.settle()
    assert any("variance_network_fine" in finding for finding in trainer.guard.take()[0].findings)
