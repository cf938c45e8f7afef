"""Confs: the published recipes, strictness, round trips, overrides, and what is refused."""

import json
import re

import pytest
from config_samples import CONFS, RECIPES, flat, write_conf

from data.errors import UserError
from models.conf import load_config, parse_config, to_hocon
from models.config.hocon import parse_tree

# The values of the published confs (Totoro97/NeuS, commit 6e0a230), typed in here once more as the oracle.
PUBLISHED = """
general.recording = ["./", "./models"]
dataset { data_dir = ./public_data/scan/, object_cameras_name = cameras_sphere.npz }
train { learning_rate = 5e-4, learning_rate_alpha = 0.05, end_iter = 300000, batch_size = 512
    validate_resolution_level = 0, warm_up_end = 5000.0, use_white_bkgd = false, save_freq = 10000, val_freq = 2500
    val_mesh_freq = 5000, report_freq = 100, igr_weight = 0.1 }
model.nerf { D = 8, d_in = 4, d_in_view = 3, W = 256, multires = 10, multires_view = 4, output_ch = 4, skips = [4]
    use_viewdirs = true }
model.sdf_network { d_out = 257, d_in = 3, d_hidden = 256, n_layers = 8, skip_in = [4], multires = 6, bias = 0.5
    geometric_init = true, weight_norm = true, inside_outside = false }
model.variance_network.init_val = 0.3
model.rendering_network { d_feature = 256, mode = idr, d_in = 9, d_out = 3, d_hidden = 256, n_layers = 4
    weight_norm = true, multires_view = 4, squeeze_out = true }
model.neus_renderer { n_samples = 64, n_importance = 64, up_sample_steps = 4, perturb = 1.0 }
"""
VARIED = ("general.base_exp_dir", "dataset.render_cameras_name", "train.anneal_end", "train.mask_weight")
VARIED += ("model.sdf_network.scale", "model.neus_renderer.n_outside")
PUBLISHED_VARIED = {
    "wmask": ("./exp/scan/wmask", "cameras_sphere.npz", 0.0, 0.1, 1.0, 0),
    "womask": ("./exp/scan/womask_sphere", "cameras_sphere.npz", 50000.0, 0.0, 1.0, 32),
    "thin_structure": ("./exp/scan/womask", "cameras_sphere.npz", 50000.0, 0.0, 3.0, 0),
    "womask_dtu_large_roi": ("./exp/scan/womask_large_roi", "cameras_large.npz", 50000.0, 0.0, 3.0, 32),
}


def leaves(tree, prefix=""):
    """The values of a tree by their whole keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_to_the_published_values_and_our_defaults(name):
    """Keys that the published code lacks have the defaults of a conf without them."""
    varied = zip(VARIED, PUBLISHED_VARIED[name], strict=True)
    text = PUBLISHED + "\n".join(f"{key} = {json.dumps(value)}" for key, value in varied)
    found = flat(load_config(CONFS / f"{name}.conf", case="scan"))
    assert found.items() >= dict(leaves(parse_tree(text, "text"))).items()
    assert flat(parse_config(text, "text")) == found


@pytest.mark.parametrize("path", sorted(CONFS.glob("*.conf")), ids=lambda path: path.stem)
def test_every_conf_loads_and_its_resolved_text_reads_back_equal(path, tmp_path):
    conf = load_config(path, case="scan")
    assert parse_config(to_hocon(conf), "text") == load_config(write_conf(tmp_path, to_hocon(conf))) == conf


END = "train.end_iter="
NOT_WHOLE = ("", "abc", '"300"', "1.5", "true", "null", "1e300", "5 days", "[3]")
BAD_OVERRIDES = {
    "unknown key train.lerning_rate; did you mean train.learning_rate?": ["train.lerning_rate=3"],
    "write it as KEY=VALUE": ["=3", "train.end_iter"],
    "must be a whole number": [*(END + value for value in NOT_WHOLE), "model.sdf_network.skip_in=[a]"],
    "must be a number": [f"train.igr_weight={value}" for value in ("nan", "inf", "1e999", "9" * 400)],
    "must be true or false": ["train.use_white_bkgd=2", "train.use_white_bkgd=maybe"],
    "must be a list": ["model.sdf_network.skip_in=2"],
    "model.type = neus does not use model.packed, only fast_neus": ["model.packed.cells=64"],
    "does not use model.radiance_field, only nerf, fast_nerf": ["model.radiance_field=nerf"],
    "must be a block": ["train=3"],
    "not HOCON": [f"{END}[3"],
    "in quotes": ["general.recording=[1]"],
    "control characters": ["dataset.data_dir=a\x07b"],
    "pass --case NAME": ["dataset.data_dir=./CASE_NAME", "dataset.data_dir=./${case}"],
    "dataset.data_dir: is empty": ["dataset.data_dir="],
}
BAD_OVERRIDES = [(override, words) for words, overrides in BAD_OVERRIDES.items() for override in overrides]


@pytest.mark.parametrize(("override", "words"), BAD_OVERRIDES, ids=[repr(row[0])[:40] for row in BAD_OVERRIDES])
def test_a_bad_override_is_one_sentence_that_says_what(override, words):
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        load_config(CONFS / "debug.conf", overrides=[override])
    message = str(caught.value)
    assert len(message) < 1000 and ("--set" in message or "debug.conf" in message or "include" in message)


GOOD_OVERRIDES = [
    ("train.end_iter=2e3", 2000),
    ("train.igr_weight=1", 1.0),
    ("train.use_white_bkgd=yes", True),
    ("model.sdf_network.skip_in=[1, 3]", (1, 3)),
    ('dataset.data_dir="quoted"', "quoted"),
    ("dataset.data_dir=C:\\scenes\\new", "C:\\scenes\\new"),
    ("dataset.data_dir=${general.base_exp_dir}/x", "./exp/debug/x"),
    ("dataset.data_dir=./场景/é", "./场景/é"),
    ('dataset.data_dir="a \\" $ {b} = [1], \'c\' true"', "a \" $ {b} = [1], 'c' true"),
    ("train.learning_rate=1e-9", 1e-9),
]


@pytest.mark.parametrize(("override", "value"), GOOD_OVERRIDES, ids=[row[0] for row in GOOD_OVERRIDES])
def test_an_override_sets_exactly_its_key(override, value):
    key = override.partition("=")[0].strip()
    confs = [load_config(CONFS / "debug.conf", overrides=given) for given in ([], [override])]
    assert parse_config(to_hocon(confs[1]), "text") == confs[1]
    before, after = map(flat, confs)
    assert after == {**before, key: value} and type(after[key]) is type(value)
