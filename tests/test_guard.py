"""Steps with values that are not finite are skipped and reported; and many of them in a row."""

import dataclasses
import re

import numpy as np
import pytest
from dense_renderer import random_rays, tiny_renderer
from forms import FORMS, in_form
from runs import SHORT, contents, run, saved

from data.rays import PixelBatch, Rays
from data.scenes.sampler import PixelSampler
from models.checkpoints.ours import checkpoint_name, load_checkpoint, save_checkpoint
from models.estimators.pixels import upload
from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import jt
from models.ops.update import all_finite, readings
from models.training import guard
from models.training import trainer as trainer_module
from models.training.guard import StepInputs
from models.training.optimizer import Optimizer

NO_PROBE = "train.ray_chunk=64"  # a chunk that is given needs no batch to measure its memory with
INPUTS = StepInputs(
    step=6,
    batch=PixelBatch(
        Rays(np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32), *np.zeros((2, 2, 1), np.float32)),
        np.full((2, 3), 0.5, np.float32),
        None,
        np.int32([3, 3]),
    ),
    noise=None,
)


def is_finite(checkpoint):
    return all(np.isfinite(array).all() for named in checkpoint.tensors.values() for array in named.values())


def with_nan(array):
    spoilt = array.copy()
    spoilt.flat[0] = np.nan
    return spoilt


def spoil_batches(monkeypatch, steps, change):
    """Apply `change` to the batches drawn at these calls (counted from 0) of every sampler."""
    calls, original = [], PixelSampler.next

    def spoilt(self):
        batch = original(self)
        calls.append(batch)
        return change(batch) if len(calls) - 1 in steps else batch

    monkeypatch.setattr(PixelSampler, "next", spoilt)


def spoil_gradients(monkeypatch, steps, index):
    """Put a NaN into one gradient of these steps."""
    original, calls = trainer_module.readings, []

    def spoilt(loss, gradients, parameters):
        calls.append(loss)
        if len(calls) - 1 in steps:
            gradients[index] = gradients[index] * float("nan")
        return original(loss, gradients, parameters)

    monkeypatch.setattr(trainer_module, "readings", spoilt)


def spoil_image(batch):
    return dataclasses.replace(batch, rgb=with_nan(batch.rgb))


# the pieces


@pytest.fixture(params=FORMS)
def path(request):
    """All forms."""
    with in_form(request.param):
        yield


all_paths = pytest.mark.usefixtures("path")


@all_paths
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_any_number_that_is_not_finite_refuses_a_step(bad, place):
    numbers = [[7.0], [1.0, -2.0, 3.0], [-5.0]]
    loss, first, second = (jt.array(np.float32(value)) for value in numbers)
    values = readings(loss, [first, second], [jt.ones((2, 3))])
    np.testing.assert_allclose(guard.fetched(values), [7, 6, 5, 6])  # loss, magnitudes, sum of the weights
    assert all_finite(values).numpy()[0]
    numbers[place][-1] = bad
    loss, first, second = (jt.array(np.float32(value)) for value in numbers)
    values = readings(loss, [first, second], [jt.ones((2, 3))])
    assert not all_finite(values).numpy()[0]
    found = guard.find_in_losses({"total": numbers[0][0]})
    found += guard.find_in_gradients({"a": first.numpy(), "b": second.numpy()}, guard.fetched(values)[1:])
    what = "NaN" if np.isnan(bad) else "Inf"
    assert found == [f"{what} in the loss" if place == 0 else f"1 NaN or Inf in the gradient of {'ab'[place - 1]}"]
    losses = {"total": np.nan, "color": 0.1, "eikonal": np.inf, "mask": np.nan}
    assert guard.find_in_losses(losses) == ["Inf in the eikonal loss", "NaN in the mask loss"]


@all_paths
def test_a_refused_update_changes_nothing_and_an_accepted_one_is_the_usual():
    def state(optimizer):
        return [value.numpy() for value in (*optimizer.parameters, *optimizer.exp_avg, *optimizer.exp_avg_sq)]

    starts, gradients = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    plain, gated = (Optimizer({"net": {str(i): jt.array(start) for i, start in enumerate(starts)}}) for _ in range(2))
    for optimizer, verdict in ((plain, None), (gated, jt.array([True]))):
        optimizer.step([jt.array(gradient) for gradient in gradients], 0.1, verdict)
    before = state(gated)
    gated.step([jt.array(gradient * np.nan) for gradient in gradients], 0.1, jt.array([False]))
    gated.skip()
    assert gated.steps == plain.steps == 1
    np.testing.assert_equal(before, state(gated))
    np.testing.assert_equal(before, state(plain))


def test_a_nan_in_any_weight_is_seen_even_where_a_relu_swallows_it():
    renderer = tiny_renderer(n_outside=4)
    fields = vars(renderer.fields).values()
    parameters = [value for field in fields for value in named_parameters(field).values()]
    for field in fields:
        state = export_state(field)
        for name in state:
            import_state(field, state | {name: with_nan(state[name])})
            loss = renderer.render(upload(random_rays(3))).rgb.sum()
            assert not all_finite(readings(loss, jt.grad(loss, parameters), parameters)).item(), name
        import_state(field, state)


# whole runs


@pytest.mark.slow
@pytest.mark.parametrize(("field", "words"), [("rgb", "the colours of photograph"), ("origins", "(its camera)")])
def test_a_bad_batch_is_skipped_and_named(field, words, tmp_path, monkeypatch, capsys):
    def spoil_camera(batch):
        return dataclasses.replace(batch, rays=dataclasses.replace(batch.rays, origins=with_nan(batch.rays.origins)))

    spoil_batches(monkeypatch, {2}, spoil_image if field == "rgb" else spoil_camera)
    assert run(tmp_path, settings=(*SHORT, NO_PROBE)) == 0
    told = capsys.readouterr().err
    assert "step 3 skipped: " in told and words in told and "NaN in the color loss" in told
    last = saved(tmp_path, 6)
    assert last.step == 6 and last.adam_steps == 5 and is_finite(last)


@pytest.mark.slow
def test_a_bad_gradient_is_named_and_its_step_is_as_if_never_taken(tmp_path, monkeypatch, capsys):
    spoil_gradients(monkeypatch, {5}, 1)
    assert run(tmp_path / "a", settings=("train.end_iter=6", *SHORT[1:])) == 0
    told = capsys.readouterr().err
    assert re.search(r"step 6 skipped: (\d+) NaN or Inf in the gradient of sdf_network_fine\.", told)
    monkeypatch.undo()
    assert run(tmp_path / "b", settings=("train.end_iter=6", "train.save_freq=5", SHORT[1], *SHORT[3:])) == 0
    ours, theirs = saved(tmp_path / "a", 6), saved(tmp_path / "b", 5)
    assert ours.adam_steps == 5
    arrays = [key for key in contents(ours) if key.startswith(("exp_avg", "sdf_", "color_", "variance_"))]
    assert len(arrays) > 10 and all(contents(ours)[key] == contents(theirs)[key] for key in arrays)


@pytest.mark.slow
def test_a_bad_weight_is_named_and_its_checkpoint_is_not_gone_back_to(tmp_path, capsys):
    assert run(tmp_path) == 0
    whole = saved(tmp_path, 6)
    spoilt = dict(whole.tensors["sdf_network_fine"])
    spoilt["lin1.bias"] = with_nan(spoilt["lin1.bias"])
    folder = tmp_path / "checkpoints"
    save_checkpoint(folder, dataclasses.replace(whole, tensors=whole.tensors | {"sdf_network_fine": spoilt}))
    settings = ("train.end_iter=12", SHORT[1], "train.max_bad_steps=2", *SHORT[3:])
    assert run(tmp_path, "--is_continue", settings=settings) == 0
    told = capsys.readouterr().err
    assert "1 NaN or Inf in the weights sdf_network_fine.lin1.bias" in told
    assert "2 steps in a row were skipped" in told and "returning to the weights of step 3" in told
    last = saved(tmp_path, 12)
    assert is_finite(last) and last.state["jitter"] != whole.state["jitter"]


# how many checkpoints stay


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "left"), [(0, [2, 4, 6]), (2, [4, 6])])
def test_keep_checkpoints_bounds_how_many_stay(keep, left, tmp_path):
    settings = (*SHORT[:2], "train.save_freq=2", *SHORT[3:], f"train.keep_checkpoints={keep}")
    assert run(tmp_path, settings=settings) == 0
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [checkpoint_name(step) for step in left]
    load_checkpoint(tmp_path / "checkpoints" / names[-1])
