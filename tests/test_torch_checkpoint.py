"""Theorems about published checkpoints in our terms: the same networks and moments, with colours turned to RGB."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from checkpoint_samples import assert_same

from models.checkpoints.published import NETWORKS, read_torch_checkpoint, to_checkpoint
from models.training.checkpoint import CheckpointError

GOLDEN = Path(__file__).parent / "golden"


def in_64(named):
    return {name: array.astype(np.float64) for name, array in named.items()}


def color(named, hidden):
    """The published colour network without its encoding, in float64."""
    for layer in range(4):
        hidden = oracles.relu(oracles.dense(named, f"lin{layer}", hidden))
    return oracles.sigmoid(oracles.dense(named, "lin4", hidden))


@pytest.mark.parametrize("name", ["official_wmask_000040", "official_womask_000040"])
def test_an_official_checkpoint_gives_what_the_published_code_gave(name):
    """Its distances, its colours in reverse, and everything else as it is, with moments."""
    probe = np.load(GOLDEN / f"{name}_probe.npz")
    conf = SimpleNamespace(**json.loads(str(probe["meta_json"]))["sdf_network"])
    raw = read_torch_checkpoint(GOLDEN / f"{name}.pth")
    checkpoint = to_checkpoint(raw)
    found = checkpoint.tensors
    sdf = oracles.sdf_network(in_64(found["sdf_network_fine"]), conf, probe["points"].astype(np.float64))[0]
    np.testing.assert_allclose(sdf, probe["sdf"], rtol=0, atol=5e-6)
    inputs = np.random.default_rng(0).normal(size=(5, raw["color_network_fine"]["lin0.weight_v"].shape[1]))
    bgr, rgb = (color(in_64(named["color_network_fine"]), inputs) for named in (raw, found))
    np.testing.assert_allclose(rgb, bgr[:, ::-1], rtol=1e-12)
    assert (checkpoint.step, checkpoint.adam_steps, checkpoint.state) == (40, 40, {"source": "published NeuS"})
    changed = set()
    for network in NETWORKS:
        for key, array in raw[network].items():
            if not np.array_equal(found[network][key], array):
                changed.add(f"{network}.{key}")
            for moment in checkpoint.moments.values():
                assert moment[f"{network}.{key}"].shape == found[network][key].shape == array.shape
    allowed = {f"color_network_fine.lin4.{part}" for part in ("weight_v", "weight_g", "bias")}
    assert allowed <= changed <= allowed | {"nerf.rgb_linear.weight", "nerf.rgb_linear.bias"}


# The order in which the published Runner hands its parameters to Adam, written out by hand for a tiny model.
TINY = {
    "nerf": {"rgb_linear.weight": (3, 2), "rgb_linear.bias": (3,)},
    "sdf_network_fine": {"lin0.bias": (2,), "lin0.weight_g": (2, 1), "lin0.weight_v": (2, 3)},
    "variance_network_fine": {"variance": ()},
    "color_network_fine": {"lin2.weight": (3, 2), "lin2.bias": (3,), "lin10.weight": (3, 3), "lin10.bias": (3,)},
}
TINY_ORDER = [(network, name, shape) for network, named in TINY.items() for name, shape in named.items()]


def tiny_raw():
    """A published checkpoint in which rows of parameter i count from i, and its moments from 100 i and 1000 i."""

    def rows(start, shape):
        counts = np.arange(shape[0] if shape else 1, dtype=np.float32).reshape(-1, *[1] * (len(shape) - 1))
        return start + np.broadcast_to(counts, shape) if shape else np.array(start, np.float32)

    raw = {network: {} for network in TINY}
    states = {}
    for index, (network, name, shape) in enumerate(TINY_ORDER):
        raw[network][name] = rows(index, shape)
        states[index] = {"step": 7, "exp_avg": rows(100 * index, shape), "exp_avg_sq": rows(1000 * index, shape)}
    groups = [{"lr": 0.1, "params": list(range(len(TINY_ORDER)))}]
    return {**raw, "optimizer": {"state": states, "param_groups": groups}, "iter_step": 9}


def test_moments_belong_to_the_parameter_of_their_number_and_turn_with_it():
    raw = tiny_raw()
    checkpoint = to_checkpoint(raw)
    colors = {"nerf.rgb_linear.weight", "nerf.rgb_linear.bias"}
    colors |= {"color_network_fine.lin10.weight", "color_network_fine.lin10.bias"}
    for index, (network, name, _) in enumerate(TINY_ORDER):
        full = f"{network}.{name}"
        turn = slice(None, None, -1) if full in colors else ...
        np.testing.assert_array_equal(checkpoint.tensors[network][name], raw[network][name][turn])
        for moment in ("exp_avg", "exp_avg_sq"):
            expected = raw["optimizer"]["state"][index][moment][turn]
            np.testing.assert_array_equal(checkpoint.moments[moment][full], expected)
    assert (checkpoint.step, checkpoint.adam_steps) == (9, 7)


def test_other_numbers_of_parameters_and_spellings_are_understood():
    raw = tiny_raw()
    numbers = [10 * index + 5 for index in range(len(TINY_ORDER))]
    states = raw["optimizer"]["state"]
    renumbered = {number: {**states[index], "step": np.array(7.0, np.float32)} for index, number in enumerate(numbers)}
    raw["optimizer"] = {"state": renumbered, "param_groups": [{"params": numbers[:4]}, {"params": numbers[4:]}]}
    newer = {f"lin0.weight_{part}": f"lin0.parametrizations.weight.original{k}" for k, part in enumerate("gv")}
    raw["sdf_network_fine"] = {newer.get(name, name): array for name, array in raw["sdf_network_fine"].items()}
    other = to_checkpoint(raw)
    assert_same(other, to_checkpoint(tiny_raw()))


def change(*path, to):
    """tiny_raw() changed at a path of keys; `to` may be a value or, if callable, what makes it of the old one."""
    raw = inner = tiny_raw()
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to(inner[path[-1]]) if callable(to) else to
    if to is None:
        del inner[path[-1]]
    return raw


GROUPS = ("optimizer", "param_groups")
UNFIT = [
    *((change(key, to=None), key) for key in (*NETWORKS, "optimizer", "iter_step")),
    (change("nerf", to=[1]), "nerf"),
    *((change("nerf", "rgb_linear.bias", to=to), "rgb_linear.bias") for to in (1.0, np.arange(3))),
    *((change("iter_step", to=step), "iter_step") for step in ("40", float("nan"), -1, 1 << 4000000)),
    (change("optimizer", "state", to=[]), "optimizer"),
    (change(*GROUPS, to=None), "param_groups"),
    (change(*GROUPS, 0, "params", to=[[]]), "param"),
    (change(*GROUPS, 0, "params", to=[1, 2]), "2 parameters"),
    (change("optimizer", "state", 3, "exp_avg", to=None), "exp_avg"),
    (change("optimizer", "state", 3, "exp_avg_sq", to=np.zeros(7)), "lin0.weight_g"),
    (change("optimizer", "state", 3, "step", to=8), "different numbers of steps"),
    (change("color_network_fine", to=lambda old: {f"x{name}": old[name] for name in old}), "color_network_fine"),
]


@pytest.mark.parametrize(("raw", "part"), UNFIT, ids=range(len(UNFIT)))
def test_what_is_no_published_checkpoint_is_told_by_its_part(raw, part):
    with pytest.raises(CheckpointError) as caught:
        to_checkpoint(raw, "FILE.pth")
    text = str(caught.value)
    assert text.startswith("FILE.pth is not a checkpoint of the published NeuS") and part in text and "\n" not in text
