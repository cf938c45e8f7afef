"""Values that cannot work, alone or together, and what contradicts trained weights."""

import re

import pytest
from config_samples import CONFS, changed

from models.conf import load_config, network_differences, parse_config, to_hocon, validate
from models.config.strict import ConfigError
from models.fields.conf import LARGEST_INIT_VAL, VarianceConfig
from models.fields.sdf import SingleVarianceNetwork
from models.machine.backend import jt

CONTRADICTORY = """
model.neus_renderer.n_samples=1 model.neus_renderer.up_sample_steps=0 model.sdf_network.skip_in=[0]
model.sdf_network.skip_in=[2,5] model.sdf_network.d_hidden=9 model.rendering_network.mode=idf
model.rendering_network.d_in=6"""


def test_a_value_that_contradicts_another_is_refused_by_its_key():
    for override in CONTRADICTORY.split():
        with pytest.raises(ConfigError, match=rf"{re.escape(override.partition('=')[0])} = .*must ") as caught:
            load_config(CONFS / "debug.conf", "scan", [override])
        assert "\n" not in str(caught.value)


CONTRADICTIONS = [
    ("model.neus_renderer.up_sample_steps", {"neus_renderer": {"up_sample_steps": -1, "n_importance": 0}}),
    ("model.rendering_network.d_feature", {"sdf_network": {"d_out": 64}}),
    ("model.rendering_network.d_in", {"rendering_network": {"mode": "no_normal"}}),
    ("train.warm_up_end", {"train": {"end_iter": 5}}),
]


def test_blocks_that_contradict_each_other_are_refused_by_their_key():
    for key, blocks in CONTRADICTIONS:
        with pytest.raises(ConfigError, match=rf"^{re.escape(key)}\b"):
            validate(changed(**blocks))


CAN_WORK = [
    {"neus_renderer": {"n_samples": 1, "n_importance": 0}},
    {"neus_renderer": {"n_importance": 0, "up_sample_steps": 0}},
    {"neus_renderer": {"n_samples": 2, "n_importance": 7, "up_sample_steps": 3, "n_outside": 5}},
    {"nerf": {"multires": 0, "multires_view": 0}, "neus_renderer": {"n_outside": 4}},
    {"sdf_network": {"d_hidden": 9, "skip_in": ()}},
    {"rendering_network": {"mode": "no_view_dir", "d_in": 6, "multires_view": 4}},
    {"rendering_network": {"mode": "no_normal", "d_in": 6}},
    {"train": {"end_iter": 1, "warm_up_end": 0.0}},
]


@pytest.mark.parametrize("blocks", CAN_WORK, ids=str)
def test_a_value_at_the_edge_of_what_works_is_accepted(blocks):
    conf = changed(**blocks)
    validate(conf)
    assert parse_config(to_hocon(conf), "text") == conf


def test_inv_s_has_a_gradient_at_every_initial_value():
    for value in (LARGEST_INIT_VAL, -LARGEST_INIT_VAL):
        network = SingleVarianceNetwork(VarianceConfig(value))
        assert jt.grad(network().sum(), network.variance).item() > 0


def test_only_what_contradicts_trained_weights_is_a_difference():
    demo = load_config(CONFS / "debug.conf").model
    harmless = {"bias": 0.6, "geometric_init": False, "inside_outside": True}
    same = changed(sdf_network=harmless, variance_network={"init_val": 0.5}, neus_renderer={"n_samples": 3}).model
    assert network_differences(demo, demo) == [] and network_differences(demo, same) == []
    other = changed(sdf_network={"d_hidden": 128, "scale": 3.0}, nerf={"skips": (0,)}).model
    assert network_differences(demo, other) == [
        "model.nerf.skips: [] in the checkpoint, [0] in the conf",
        "model.sdf_network.d_hidden: 16 in the checkpoint, 128 in the conf",
        "model.sdf_network.scale: 1.0 in the checkpoint, 3.0 in the conf",
    ]
