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
from test_device_batches import on_device

from models.machine.backend import jt
from models.methods.conf import load_config
from models.ops.draw import draw_pixels
from models.ops.later import Later
from models.ops.outside import outside_samples
from models.ops.source import CPU, CUDA, emulated

pytestmark = pytest.mark.slow

SCENE = (f"dataset.data_dir={ROOT}/data/demo", "dataset.test_dir=")
WITHOUT_MASKS = ("train.mask_weight=0",)
FEW = ("model.packed.samples=1024", "model.background.samples=1024")
STEPS = 4
READ, LATE, LAUNCHED = "read", "late", "launched"
CONFS = {
    "neus": ("debug", ()),
    "neus beyond the sphere": ("debug", ("model.neus_renderer.n_outside=3", "model.nerf.d_in=4")),
    "nerf": ("nerf_cpu", ("train.batch_size=16",)),
    "on a grid": ("fast", FEW),
    "on a grid, without masks": ("fast", (*FEW, *WITHOUT_MASKS)),
    "patches": ("geo", FEW),
    "a density on a grid": ("fast_nerf", ("model.radiance.samples=1024", *WITHOUT_MASKS)),
    "gaussians": ("gaussians", ()),
    "gaussians that are densified": ("gaussians", ("model.gaussians.densify=adaptive",)),
    "surfels": ("surfels", ()),
}


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


@pytest.mark.parametrize("where", [0.0, 0.5])
@pytest.mark.parametrize("name", CONFS)
def test_a_step_waits_for_nothing_and_reads_late_what_it_needs(monkeypatch, name, where):
    trainer = at_some_step(monkeypatch, name, where)
    with heard(monkeypatch) as events:
        for _ in range(STEPS):
            trainer.step()
    assert READ not in events and events.count(LAUNCHED) > STEPS
    reads = 2 if name in PACKED else 1  # the verdict, and how many samples a batch had
    assert events.count(LATE) == reads * STEPS


def at_some_step(monkeypatch, name, where, prepared=lambda trainer: trainer):
    """A trainer within its training; what has no form for the CPU, where its reference reads, has that for a GPU."""

    def emulated_form(kernel, *given):
        with emulated(Emulator()):
            return kernel._native[CUDA](*given)

    for kernel in (draw_pixels, outside_samples):
        monkeypatch.setitem(kernel._native, CPU, partial(emulated_form, kernel))
    kind, settings = CONFS[name]
    conf = load_config(ROOT / f"confs/{kind}.conf", "waits", (*SCENE, *settings))
    trainer = prepared(trainings.trainer_of(conf, demo_scene()))
    trainer.finished_steps = int(where * trainer.conf.end_iter) + 1  # no step at which something is done now and then
    trainer.step()
    trainer.step()
    return trainer


PACKED = [name for name in CONFS if "on a grid" in name or "patches" in name]


@pytest.mark.parametrize("name", PACKED)
def test_packed_steps_read_on_a_gpu_only_what_was_copied_before(monkeypatch, name):
    """The verdict on the last step, and how many samples the batch before it had: nothing that is still computed."""
    trainer = at_some_step(monkeypatch, name, 0.5, on_device)
    made, is_late, copies = Later.__init__, Later.read, []

    def make(later, value):
        made(later, value)
        copies.append(("copied", str(value.dtype), later))

    def read(later):
        copies.append(("read", str(later._dtype), later))
        return is_late(later)

    monkeypatch.setattr(Later, "__init__", make)
    monkeypatch.setattr(Later, "read", read)
    with heard(monkeypatch) as events:
        for _ in range(STEPS):
            trainer.step()
    assert READ not in events and events.count(LATE) == 2 * STEPS and events.count(LAUNCHED) > STEPS
    assert [kind for what, kind, _ in copies if what == "read"] == ["int32", "bool"] * STEPS
    for number, (what, kind, copy) in enumerate(copies):
        if (what, kind) == ("copied", "int32") and ("read", kind, copy) in copies:
            between = copies[number : copies.index(("read", kind, copy))]  # the verdict on the same step was waited for
            assert any(("read", "bool", later) in between for what, _, later in between if what == "copied")
