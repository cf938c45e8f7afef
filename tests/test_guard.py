"""Steps with values that are not finite are skipped and reported; and many of them in a row."""

import dataclasses
import re

import numpy as np
import pytest
from dense_renderer import random_rays, tiny_renderer
from forms import FORMS, in_form
from runs import SHORT, run, saved

from data.scenes.sampler import PixelSampler
from models.checkpoints.ours import save_checkpoint
from models.estimators.base import upload
from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import jt
from models.ops.update import readings
from models.training import guard
from models.training import trainer as trainer_module
from models.training.checkpoint import MOMENTS
from models.training.optimizer import Optimizer, UpdateSettings, faults

NO_PROBE = "train.ray_chunk=64"  # a chunk that is given needs no batch to measure its memory with


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
    monkeypatch.setattr("models.runs.measured.compile_step", lambda trainer: 0)  # it draws a batch, too


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


def on_host(values):
    return np.concatenate([value.numpy().reshape(-1) for value in values])


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
    values, is_finite = readings(loss, [first, second], [jt.ones((2, 3))])
    np.testing.assert_allclose(on_host(values), [7, 6, 5, 6])  # loss, magnitudes, sum of the weights
    assert is_finite.numpy()[0]
    numbers[place][-1] = bad
    loss, first, second = (jt.array(np.float32(value)) for value in numbers)
    values, is_finite = readings(loss, [first, second], [jt.ones((2, 3))])
    assert not is_finite.numpy()[0]
    found = guard.find_in_losses({"total": numbers[0][0]})
    found += guard.find_in_gradients({"a": first.numpy(), "b": second.numpy()}, on_host(values)[1:])
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
    gated.steps -= 1
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
            assert not readings(loss, jt.grad(loss, parameters), parameters)[1].item(), name
        import_state(field, state)


# updates that are not finite although loss and gradients are

BAD_MOMENTS = {
    "NaN for a first moment": (np.nan, 1.0),
    "a negative second moment": (1.0, -1.0),
    "a first moment that the second does not bear": (3e38, 0.0),
}


@all_paths
@pytest.mark.parametrize("case", BAD_MOMENTS)
def test_an_update_that_would_not_be_finite_is_refused(case):
    first, second = BAD_MOMENTS[case]
    start = np.linspace(-1.0, 1.0, 23, dtype=np.float32)
    optimizer = Optimizer({"net": {"a": jt.array(start), "b": jt.array(start[:5])}})
    moments = [[np.zeros(23, np.float32), np.zeros(5, np.float32)] for _ in range(2)]
    moments[0][1][3], moments[1][1][3] = first, second
    optimizer.restore(4, *moments)
    taken = optimizer.step([jt.array(start * 0.0), jt.array(start[:5] * 0.0)], 0.1, jt.array([True]))
    optimizer.steps -= 1
    after = [value.numpy() for value in (*optimizer.parameters, *optimizer.exp_avg, *optimizer.exp_avg_sq)]
    assert not taken.numpy()[0] and optimizer.steps == 4
    for value, expected in zip(after, (start, start[:5], *moments[0], *moments[1]), strict=True):
        np.testing.assert_array_equal(value, expected)


SETTINGS = UpdateSettings(learning_rate=0.1, steps=5, beta_2=0.999, epsilon=1e-8, factors={"net": 0.5})


def parts_of(size=23, **changed):
    """Weight, gradient and moments of a parameter, with other numbers for some entries: name -> (index, number)."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=size).astype(np.float32) for name in ("weight", "gradient", *MOMENTS)}
    arrays["exp_avg_sq"] = np.abs(arrays["exp_avg_sq"])
    for name, (index, number) in changed.items():
        arrays[name][index] = number
    return arrays


def faults_of(**parameters):
    """The faults of the update of parameters, name -> `parts_of`."""
    named = {part: {name: arrays[part] for name, arrays in parameters.items()} for part in parts_of()}
    return faults(named.pop("weight"), named.pop("gradient"), named, SETTINGS)


def test_the_entries_that_spoil_an_update_are_counted_and_named():
    bad = parts_of(exp_avg_sq=([3, 7], [-1.0, -4.0]), exp_avg=(7, 2.5))
    (found,) = faults_of(a=parts_of(), b=bad)
    assert found.startswith("2 NaN or Inf in the update of b (weight ")
    assert "to 2.5, exp_avg_sq -4 to -1 in these entries)" in found
    (found,) = faults_of(a=parts_of(gradient=(4, 3e38)))  # finite until it is squared
    assert "1 NaN or Inf" in found and "gradient 3e+38, " in found
    assert not faults_of(a=parts_of())


# whole runs


@pytest.mark.slow
def test_bad_batches_and_gradients_are_skipped_and_named(tmp_path, monkeypatch, capsys):
    def spoil_camera(batch):
        return dataclasses.replace(batch, rays=dataclasses.replace(batch.rays, origins=with_nan(batch.rays.origins)))

    spoil_batches(monkeypatch, {2}, spoil_camera)
    spoil_gradients(monkeypatch, {4}, 1)
    assert run(tmp_path, settings=(*SHORT, NO_PROBE)) == 0
    told = capsys.readouterr().err
    assert "step 3 skipped: " in told and "(its camera)" in told and "NaN in the color loss" in told
    assert re.search(r"step 5 skipped: (\d+) NaN or Inf in the gradient of sdf_network_fine\.", told)
    last = saved(tmp_path, 6)
    assert last.step == 6 and last.adam_steps == 4 and is_finite(last)


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
