"""A step in chunks of rays: the same loss and gradients, within less memory, and memory failures that are survived."""

from unittest.mock import Mock

import numpy as np
import pytest
import trainings
from runs import ROOT, SHORT, contents, run, saved
from trainings import assert_same_gradients, gradients, without_memory

from models.conf import load_config
from models.machine import memory
from models.machine.backend import jt
from models.runs import measured
from models.training.gradient import GradientSum

pytestmark = pytest.mark.slow

SCENE = (f"dataset.data_dir={ROOT}/data/demo",)
WITH_BACKGROUND = ("model.neus_renderer.n_outside=3", "model.nerf.d_in=4", "train.use_white_bkgd=true")


def trainer_of(*settings, steps=0):
    """A trainer on the bundled scene with the networks of confs/debug.conf."""
    conf = load_config(ROOT / "confs/debug.conf", overrides=(*SCENE, *settings))
    return trainings.trainer_of(conf, steps=steps)


@pytest.fixture(scope="module", params=[(), WITH_BACKGROUND], ids=["masked", "background"])
def whole(request):
    """A trainer after a few steps, a batch, and its gradients in one piece."""
    trainer = trainer_of(*request.param, steps=3)
    batch = trainer.sampler.next()
    noise = trainer.model.draw_noise(len(batch), trainer.generator)
    return trainer, batch, noise, gradients(trainer, batch, len(batch), noise)


@pytest.mark.parametrize("chunk", [63, 17, 1])
def test_losses_and_gradients_do_not_depend_on_the_chunk(whole, chunk):
    trainer, batch, noise, expected = whole
    assert_same_gradients(gradients(trainer, batch, chunk, noise), expected)
    assert all(value.any() for value in expected[1].values())
    one, split = (trainer.gradient_of(batch, noise, size).output for size in (64, chunk))
    for name in ("rgb", "cdf", "weight_max", "inv_s", "mask", "target"):
        ours, theirs = split[name].numpy(), one[name].numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=name)


def test_smaller_chunks_take_less_memory():
    trainer = trainer_of("train.batch_size=4096")
    batch = trainer.sampler.next()
    noise = trainer.model.draw_noise(len(batch), trainer.generator)
    peaks = [memory.growth(lambda chunk=chunk: trainer.gradient_of(batch, noise, chunk)) for chunk in (4096, 1024, 256)]
    assert peaks[0] > 1.5 * peaks[1] and peaks[1] > peaks[2]


def test_a_tight_limit_splits_the_step():
    trainer = trainer_of("train.batch_size=4096")
    memory.release()
    limit = (memory.resident_bytes() + 60e6) / memory.GB
    choice = measured.training_chunk(trainer_of("train.batch_size=4096", f"train.memory_limit={limit}"))
    assert choice.chunk < 4096 and choice.fits
    assert measured.training_chunk(trainer).chunk == 4096


def test_a_split_run_resumes_bit_for_bit(tmp_path):
    settings = (*SHORT, "train.ray_chunk=10")
    assert run(tmp_path / "a", settings=settings) == 0
    assert run(trainings.stopped_after(3, tmp_path / "a", tmp_path / "b"), "--is_continue", settings=settings) == 0
    assert contents(saved(tmp_path / "a", 6)) == contents(saved(tmp_path / "b", 6))


@pytest.mark.parametrize(
    ("settings", "chunk"), [((), 16), (("train.memory_limit=2",), None), (("train.ray_chunk=7",), 7)]
)
def test_a_resumed_auto_run_keeps_its_chunk_unless_the_limit_changes(settings, chunk):
    conf, other = (load_config(ROOT / "confs/debug.conf", overrides=given).train for given in ((), settings))
    assert measured.known_chunk(other, measured.chunk_state(conf, 16)) == chunk
    assert measured.known_chunk(conf, {}) is None


def test_a_failed_allocation_halves_the_chunk_and_says_so_once(monkeypatch, caplog):
    """As on a card: the arrays that wait for it would be computed again by all that waits for all arrays."""
    ours, expected = trainer_of(), trainer_of("train.ray_chunk=16")
    expected.ray_chunk = 16
    monkeypatch.setattr(ours.model, "objective", without_memory(ours.model.objective, 16))
    losses = [ours.scalars(ours.step())["Loss/loss"] for _ in range(2)]
    assert ours.finish_step() and ours.ray_chunk == 16 and ours.finished_steps == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "64 rays at a time; continuing more slowly with 32" in caplog.text
    jt.sync_all(True)
    assert [expected.scalars(expected.step())["Loss/loss"] for _ in range(2)] == losses


@pytest.mark.parametrize(("error", "chunk"), [(RuntimeError("Wrong inputs arguments"), 64), (MemoryError(), 1)])
def test_other_failures_and_one_ray_that_does_not_fit_are_errors(error, chunk, monkeypatch):
    monkeypatch.setattr(GradientSum, "prepare_chunks", Mock(side_effect=error))
    trainer = trainer_of()
    with pytest.raises(type(error)):
        trainer.step()
    assert trainer.ray_chunk == chunk


def test_a_measurement_leaves_the_run_alone_and_finds_a_chunk_that_fits():
    trainer, other = trainer_of(), trainer_of()
    true = trainer.model.objective
    trainer.model.objective = without_memory(true, 3)
    choice = measured.training_chunk(trainer)
    assert (choice.chunk, choice.fits) == (2, True)
    trainer.model.objective = true
    for _ in range(3):
        assert trainer.scalars(trainer.step())["Loss/loss"] == other.scalars(other.step())["Loss/loss"]


def test_what_a_step_hands_on_keeps_none_of_its_graph():
    trainer, variables = trainer_of(), set()
    for trainer.ray_chunk in (64, 64, 64, 20, 20):
        output = trainer.step()
        jt.sync_all(True)
        assert jt.liveness_info()["lived_ops"] == 0
        variables.add(jt.liveness_info()["lived_vars"])
        assert np.isfinite(trainer.scalars(output)["Loss/loss"])
    assert len(variables) == 1
