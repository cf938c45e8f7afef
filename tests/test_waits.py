"""How often a step reads what was computed: a card would be waited for each time that something was launched before.

A `Later` is no such read: what was launched after it is not waited for.
"""

from contextlib import contextmanager

import pytest
import trainings
from emulation import Emulator
from runs import ROOT
from test_device_batches import on_device

from data.scenes.load import load_scene
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
    "patches, without masks": ("geo", (*FEW, *WITHOUT_MASKS)),
    "a density on a grid": ("fast_nerf", ("model.radiance.samples=1024", *WITHOUT_MASKS)),
    "gaussians": ("gaussians", ()),
    "gaussians that are densified": ("gaussians", ("model.gaussians.densify=adaptive",)),
    "surfels": ("surfels", ()),
}


PACKED = [name for name in CONFS if "on a grid" in name or "patches" in name]


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
    for name in ("numpy", "item"):
        monkeypatch.setattr(jt.Var, name, noting(READ, getattr(jt.Var, name)))
    yield events
    monkeypatch.undo()


def waits(events):
    """How often something is read after something was launched."""
    return sum(one == LAUNCHED and other == READ for one, other in zip(events, events[1:], strict=False))


@pytest.fixture(scope="module")
def trainer_of():
    scene = {}

    def made(conf, settings):
        conf = load_config(ROOT / f"confs/{conf}.conf", "waits", (*SCENE, *settings))
        if not scene:
            scene["it"] = load_scene(conf.dataset)
        return trainings.trainer_of(conf, scene["it"])

    return made


@pytest.mark.parametrize("where", [0.0, 0.5])
@pytest.mark.parametrize("name", CONFS)
def test_a_step_reads_twice_at_most(trainer_of, monkeypatch, name, where):
    use_gpu_forms(monkeypatch)
    trainer = trainer_of(*CONFS[name])
    trainer.finished_steps = int(where * trainer.conf.end_iter) + 1  # no step at which something is done now and then
    trainer.step()
    trainer.step()
    with heard(monkeypatch) as events:
        for _ in range(STEPS):
            trainer.step()
    assert events.count(LAUNCHED) > STEPS
    reads = 2 if name in PACKED else 1  # the verdict, and how many samples a batch had
    assert events.count(LATE) == reads * STEPS
    assert waits(events) + events.count(LATE) <= 2 * STEPS


VOLUMES = [name for name in CONFS if not name.startswith(("gaussians", "surfels"))]


@pytest.mark.parametrize("where", [0.0, 0.5])
@pytest.mark.parametrize("name", VOLUMES)
def test_nothing_is_read_within_a_step_of_a_volume_method(trainer_of, monkeypatch, name, where):
    """Between steps the verdict on the last one is read, and how many samples it had, before a batch is drawn."""
    use_gpu_forms(monkeypatch)
    trainer, reads, is_between = trainer_of(*CONFS[name]), [], [False]
    trainer.finished_steps = int(where * trainer.conf.end_iter) + 1

    def between(function):
        def called(*arguments):
            is_between[0] = True
            try:
                return function(*arguments)
            finally:
                is_between[0] = False

        return called

    def noting(what, function, is_read):
        def noted(*arguments, **named):
            if is_read(*arguments, **named) and not is_between[0]:
                reads.append(what)
            return function(*arguments, **named)

        return noted

    trainer.step()
    trainer.step()
    monkeypatch.setattr(trainer.sampler, "next", between(trainer.sampler.next))
    monkeypatch.setattr(trainer, "settle", between(trainer.settle))
    for read in ("numpy", "item", "fetch_sync", "tolist"):
        monkeypatch.setattr(jt.Var, read, noting(read, getattr(jt.Var, read), lambda *_: True))
    data = jt.Var.data
    monkeypatch.setattr(jt.Var, "data", property(noting("data", data.__get__, lambda *_: True)))
    sync = noting("sync", jt.sync, lambda _=None, device_sync=False, *__: device_sync)
    monkeypatch.setattr(jt, "sync", sync)
    monkeypatch.setattr(jt, "sync_all", noting("sync_all", jt.sync_all, lambda device_sync=False: device_sync))
    trainer.step()
    trainer.step()
    monkeypatch.undo()
    assert reads == []


def use_gpu_forms(monkeypatch):
    """Operations that have no form for the CPU, where their references read, in that for a GPU."""
    for kernel in (draw_pixels, outside_samples):
        monkeypatch.setitem(kernel._native, CPU, emulated_form(kernel))


@pytest.mark.parametrize("where", [0.0, 0.5])
@pytest.mark.parametrize("name", PACKED)
def test_a_step_of_packed_samples_reads_on_a_gpu_only_what_was_copied_before(trainer_of, monkeypatch, name, where):
    """The verdict on the last step, and how many samples the batch before it had: nothing that is still computed."""
    use_gpu_forms(monkeypatch)
    trainer = on_device(trainer_of(*CONFS[name]))
    trainer.finished_steps = int(where * trainer.conf.end_iter) + 1
    trainer.step()
    trainer.step()
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
    reads = [(what, kind) for what, kind, _ in copies if what == "read"]
    assert reads == [("read", "int32"), ("read", "bool")] * STEPS
    for number, (what, kind, copy) in enumerate(copies):
        if (what, kind) == ("copied", "int32") and ("read", kind, copy) in copies:
            between = copies[number : copies.index(("read", kind, copy))]  # the verdict on the same step was waited for
            assert any(("read", "bool", later) in between for what, _, later in between if what == "copied")


def emulated_form(kernel):
    def form(*given):
        with emulated(Emulator()):
            return kernel._native[CUDA](*given)

    return form
