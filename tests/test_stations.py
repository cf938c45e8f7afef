"""How far it is from the training loop to a kernel: a reader can follow a step."""

import sys

import pytest
from runs import ROOT, run

from models.ops.kernel import Kernel
from models.runner import Runner

pytestmark = pytest.mark.slow

MOST = 7  # functions of ours, the training loop and the kernel included
STEP = ("train.end_iter=2", "train.warm_up_end=1", "train.val_freq=0", "train.val_mesh_freq=0", "train.ray_chunk=512")
KINDS = {
    "neus": (),
    "with a background": ("model.neus_renderer.n_outside=8", "train.mask_weight=0"),
    "nerf": ("model.type=nerf", "model.nerf.d_in=3", "train.mask_weight=0"),
}


def stations(frame):
    """The functions of ours from the training loop to the first kernel on the way to the frame; () outside of it."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(str(ROOT / "models")):
            found = [] if frame.f_code is Kernel.__call__.__code__ else found  # a kernel's form may call others
            found.append(frame.f_code.co_qualname)
        if frame.f_code is Runner.train.__code__:
            return tuple(found[::-1])
        frame = frame.f_back
    return ()


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_training_loop_to_a_kernel_there_are_few_stations(kind, tmp_path):
    ways = set()

    def watch(frame, event, argument):
        if event == "call" and frame.f_code is Kernel.__call__.__code__:
            ways.add(stations(frame))

    sys.setprofile(watch)
    try:
        assert run(tmp_path, settings=(*STEP, *KINDS[kind])) == 0
    finally:
        sys.setprofile(None)
    assert len(ways) > 2 and all(way[:2] == ("Runner.train", "Trainer.step") for way in ways if way)
    assert [way for way in ways if len(way) > MOST] == []
