"""A step in chunks of rays: the same loss and gradients, within less memory, and memory failures that are survived."""

import numpy as np
import pytest
import trainings
from memory_that_ends import without_memory
from runs import ROOT, SHORT, contents, run, saved
from trainings import assert_same_gradients, gradients

from models.machine import memory
from models.machine.backend import jt
from models.methods.conf import load_config
from models.training import chunks
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


@pytest.mark.parametrize("chunk", [63, 32, 17, 5, 1])
def test_losses_and_gradients_do_not_depend_on_the_chunk(whole, chunk):
    trainer, batch, noise, expected = whole
    assert_same_gradients(gradients(trainer, batch, chunk, noise), expected)
    assert all(value.any() for value in expected[1].values())


def test_a_chunk_without_the_batchs_counts_would_give_another_loss(whole):
    trainer, batch, noise, (terms, _) = whole
    part = batch.part(0, 17)
    own, _ = gradients(trainer, part, 17, {name: array[:17] for name, array in noise.items()})
    assert abs(own["total"] - terms["total"]) > 1e-3 * terms["total"]


def test_the_joined_rendering_is_the_rendering(whole):
    trainer, batch, noise, _ = whole
    one, split = (trainer.gradient_of(batch, noise, chunk) for chunk in (64, 10))
    for name in ("rgb", "cdf", "weight_max", "inv_s"):
        ours, theirs = getattr(split.output, name).numpy(), getattr(one.output, name).numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=name)
    assert np.array_equal(split.output.mask.numpy(), one.output.mask.numpy())
    assert np.array_equal(split.output.target.numpy(), one.output.target.numpy())


def test_smaller_chunks_take_less_memory():
    trainer = trainer_of("train.batch_size=4096")
    batch = trainer.sampler.next()
    noise = trainer.model.draw_noise(len(batch), trainer.generator)
    peaks = [memory.growth(lambda chunk=chunk: trainer.gradient_of(batch, noise, chunk)) for chunk in (4096, 1024, 256)]
    assert peaks[0] > 1.5 * peaks[1] and peaks[1] > peaks[2]


def test_a_split_run_resumes_bit_for_bit(tmp_path):
    settings = (*SHORT, "train.ray_chunk=10")
    assert run(tmp_path / "a", settings=settings) == 0
    assert run(tmp_path / "b", settings=(*settings, "train.end_iter=3")) == 0
    assert run(tmp_path / "b", "--is_continue", settings=settings) == 0
    assert contents(saved(tmp_path / "a", 6)) == contents(saved(tmp_path / "b", 6))


def test_a_resumed_auto_run_keeps_its_chunk_and_another_limit_makes_it_choose_anew():
    conf = load_config(ROOT / "confs/debug.conf").train
    state = chunks.chunk_state(conf, 16)
    assert chunks.settled_chunk(conf, state) == 16
    assert chunks.settled_chunk(conf, {}) is None
    other = load_config(ROOT / "confs/debug.conf", overrides=("train.memory_limit=2",)).train
    assert chunks.settled_chunk(other, state) is None
    fixed = load_config(ROOT / "confs/debug.conf", overrides=("train.ray_chunk=7",)).train
    assert chunks.settled_chunk(fixed, state) == 7


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("helper_cuda.h:128 CUDA error code=2( cudaErrorMemoryAllocation ) cudaMalloc(&ptr, size)"),
        MemoryError(),
        RuntimeError("std::bad_alloc"),
    ],
    ids=["cuda", "python", "c++"],
)
def test_a_failed_allocation_halves_the_chunk_says_so_once_and_goes_on_with_the_batch(error, monkeypatch, capsys):
    seen, true = [], GradientSum.chunks

    def failing(self, size):
        batch, jitter = self.batch, self.noise["inside"]
        seen.append((size, batch.rays.origins.tobytes(), batch.rgb.tobytes(), jitter.tobytes()))
        if size > 16:
            raise error
        return true(self, size)

    monkeypatch.setattr(GradientSum, "chunks", failing)
    ours, expected = trainer_of(), trainer_of("train.ray_chunk=16")
    expected.ray_chunk = 16
    losses = [ours.step().scalars()["Loss/loss"] for _ in range(2)]
    assert [chunk for chunk, *_ in seen] == [64, 32, 16, 16] and ours.ray_chunk == 16
    assert seen[0][1:] == seen[1][1:] == seen[2][1:] != seen[3][1:]
    told = capsys.readouterr().err
    assert told.count("Warning") == 1 and "train.ray_chunk = 32" in told
    assert [expected.step().scalars()["Loss/loss"] for _ in range(2)] == losses


def test_an_allocation_that_fails_as_arrays_are_computed_halves_the_chunk_too(monkeypatch, capsys):
    """As on a card: the arrays that wait for it would be computed again by all that waits for all arrays."""
    trainer = trainer_of()
    monkeypatch.setattr(trainer.model, "objective", without_memory(trainer.model.objective, 16))
    trainer.step()
    assert trainer.settle() and trainer.ray_chunk == 16 and trainer.finished_steps == 1
    assert "64 rays at a time; continuing more slowly with 32" in capsys.readouterr().err
    jt.sync_all(True)


@pytest.mark.parametrize("error", [RuntimeError("Wrong inputs arguments"), ValueError("out of memory")])
def test_other_failures_are_not_mistaken_for_a_lack_of_memory(error, monkeypatch):
    def failing(*arguments):
        raise error

    monkeypatch.setattr(GradientSum, "chunks", failing)
    trainer = trainer_of()
    with pytest.raises(type(error)):
        trainer.step()
    assert trainer.ray_chunk == 64


def test_one_ray_that_does_not_fit_is_an_error(monkeypatch):
    def failing(*arguments):
        raise MemoryError

    monkeypatch.setattr(GradientSum, "chunks", failing)
    trainer = trainer_of()
    with pytest.raises(MemoryError):
        trainer.step()


def test_a_measurement_leaves_the_run_as_it_was():
    first, second = trainer_of(), trainer_of()
    chunks.training_chunk(first)
    losses = [[trainer.step().scalars()["Loss/loss"] for _ in range(3)] for trainer in (first, second)]
    assert losses[0] == losses[1]


def test_a_measurement_whose_arrays_find_no_memory_leads_to_a_chunk_that_fits():
    trainer = trainer_of()
    trainer.model.objective = without_memory(trainer.model.objective, 3)
    choice = chunks.training_chunk(trainer)
    assert (choice.chunk, choice.fits) == (2, True)
    trainer.ray_chunk = choice.chunk
    assert np.isfinite(trainer.step().scalars()["Loss/loss"])


def test_a_tight_limit_splits_the_step():
    limit = memory.GB, 4096
    trainer = trainer_of(f"train.batch_size={limit[1]}")
    memory.release()
    spare = 60e6
    conf_limit = (memory.resident_bytes() + spare) / limit[0]
    settings = (f"train.batch_size={limit[1]}", f"train.memory_limit={conf_limit}")
    choice = chunks.training_chunk(trainer_of(*settings))
    assert choice.chunk < limit[1] and choice.fits
    assert chunks.training_chunk(trainer).chunk == limit[1]


@pytest.mark.parametrize("chunk", [64, 20])
def test_what_a_step_hands_on_keeps_none_of_its_graph(chunk):
    from models.machine.backend import jt

    trainer = trainer_of()
    trainer.ray_chunk = chunk
    output = trainer.step()
    jt.sync_all(True)
    assert jt.liveness_info()["lived_ops"] == 0
    assert np.isfinite(output.scalars()["Loss/loss"])
