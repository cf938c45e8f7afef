"""How often a step reads what was computed: a card would be waited for each time that something was launched before.

A `Later` is no such read: what was launched after it is not waited for.
"""

from contextlib import contextmanager
from functools import partial

import pytest
import trainings
from browsing import demo_scene
from forms import Emulator
from runs import ROOT

from models.conf import load_config
from models.estimators.budget import UNCOUNTED
from models.machine.backend import jt
from models.ops.draw import draw_pixels
from models.ops.later import Later
from models.ops.outside import outside_samples
from models.ops.source import CPU, CUDA, emulated

pytestmark = pytest.mark.slow

SCENE = (f"dataset.data_dir={ROOT}/data/demo", "dataset.test_dir=")
WITHOUT_MASKS = ("train.mask_weight=0",)
FEW = ("model.packed.samples=1024", "model.open.samples=1024")
STEPS = 4
READ, LATE, LAUNCHED = "read", "late", "launched"
CONFS = {
    "neus": ("debug", ()),
    "neus beyond the sphere": ("debug", ("model.neus_renderer.n_outside=3", "model.nerf.d_in=4")),
    "nerf": ("nerf_cpu", ("train.batch_size=16",)),
    "on a grid, without masks": ("fast", (*FEW, *WITHOUT_MASKS)),
    "patches": ("geo", FEW),
    "a density on a grid": ("fast_nerf", ("model.radiance.samples=1024", *WITHOUT_MASKS)),
    "gaussians": ("gaussians", ()),
    "surfels": ("surfels", ()),
}
PACKED = ("on a grid, without masks", "patches", "a density on a grid")


@contextmanager
def heard(monkeypatch):
    """A list of what Jittor is asked for beside a card, in order; what is computed on the host does not count."""
    events = []
    is_hosted = [False]
    scope = jt.flag_scope

    @contextmanager
    def scoped(**flags):
        before, is_hosted[0] = is_hosted[0], is_hosted[0] or flags == {"use_cuda": 0}
        try:
            with scope(**flags):
                yield
        finally:
            is_hosted[0] = before

    def noting(what, function):
        def noted(*arguments, **named):
            if not is_hosted[0]:
                events.append(what)
            return function(*arguments, **named)

        return noted

    def read_late(later, read=Later.read):
        events.append(LATE)
        with scoped(use_cuda=0):
            return read(later)

    monkeypatch.setattr(jt, "flag_scope", scoped)
    monkeypatch.setattr(Later, "read", read_late)
    monkeypatch.setattr(jt, "code", noting(LAUNCHED, jt.code))
    for name in ("numpy", "item", "fetch_sync", "tolist"):
        monkeypatch.setattr(jt.Var, name, noting(READ, getattr(jt.Var, name)))
    yield events
    monkeypatch.undo()


# In the middle all losses apply, and later on the same operations; at the beginning fewer levels and cells are active.
@pytest.mark.parametrize(("name", "where"), [*((name, 0.5) for name in CONFS), *((name, 0.0) for name in PACKED)])
def test_a_step_waits_for_nothing_and_reads_late_what_it_needs(monkeypatch, name, where):
    trainer = at_some_step(monkeypatch, name, where)
    with heard(monkeypatch) as events:
        for _ in range(STEPS):
            trainer.step()
    assert READ not in events and events.count(LAUNCHED) > STEPS
    assert events.count(LATE) == (1 + (name in PACKED)) * STEPS  # the verdict, and how many samples a batch had


def at_some_step(monkeypatch, name, where):
    """A trainer within its training; what has no form for the CPU, where its reference reads, has that for a GPU."""

    def emulated_form(kernel, *given):
        with emulated(Emulator()):
            return kernel._native[CUDA](*given)

    for kernel in (draw_pixels, outside_samples):
        monkeypatch.setitem(kernel._native, CPU, partial(emulated_form, kernel))
    monkeypatch.setitem(UNCOUNTED, "cpu", UNCOUNTED["cuda"])
    monkeypatch.setattr("models.fields.sdf.device", lambda: CUDA)
    kind, settings = CONFS[name]
    conf = load_config(ROOT / f"confs/{kind}.conf", "waits", (*SCENE, *settings))
    trainer = trainings.trainer_of(conf, demo_scene())
    trainer.finished_steps = int(where * trainer.conf.end_iter) + 1  # no step at which something is done now and then
    trainer.step()
    trainer.step()
    return trainer
