"""The call depth between the training loop and a kernel, measured in a real step."""

import pages as rules
import pytest
import runs

from models.ops.kernel import Kernel
from models.runner import Runner
from models.training.trainer import Trainer

pytestmark = pytest.mark.slow

ONE_STEP = ("train.end_iter=1", "train.warm_up_end=0", "train.save_freq=0", "train.val_freq=0", "train.val_mesh_freq=0")
KINDS = {
    "in chunks": ("train.ray_chunk=16",),
    "with a background": ("model.neus_renderer.n_outside=8", "train.mask_weight=0"),
    "nerf": ("model.type=nerf", "model.nerf.d_in=3", "train.mask_weight=0"),
}


def journeys(folder, settings):
    """The call stack of each kernel call in a training of one step, without the measurements before it."""
    found = []
    start = Runner.train.__code__
    with rules.watched(
        Kernel.__call__.__code__, lambda frame: found.append(rules.frames_between(frame, start, rules.is_ours))
    ):
        assert runs.run(folder, settings=settings) == 0
    steps = [stations for stations in found if stations and Trainer.step.__qualname__ in stations]
    return [stations for stations in steps if Kernel.__call__.__qualname__ not in stations]  # one asked by another


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_training_loop_to_a_kernel_there_are_few_stations(tmp_path, kind):
    found = journeys(tmp_path, (*ONE_STEP, *KINDS[kind]))
    longest = max(found, key=len)
    assert len(found) > 4 and len(longest) <= rules.MAX_FRAMES, " -> ".join(longest)
