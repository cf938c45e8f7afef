"""Confs: strictness, the published recipes, round trips, and what is refused."""

import re

import pytest
from config_samples import CONFS, RECIPES, flat, write_conf
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import UserError
from models.config.hocon import parse_tree, write_tree
from models.config.strict import ConfigError
from models.methods.conf import known_leaves, load_config, parse_config, to_hocon

# The values of the published confs (Totoro97/NeuS, commit 6e0a230), typed in here once more as the oracle.
PUBLISHED = {
    "general.recording": ("./", "./models"),
    "dataset.data_dir": "./public_data/scan/",
    "dataset.render_cameras_name": "cameras_sphere.npz",
    "dataset.object_cameras_name": "cameras_sphere.npz",
    "train.learning_rate": 5e-4,
    "train.learning_rate_alpha": 0.05,
    "train.end_iter": 300000,
    "train.batch_size": 512,
    "train.validate_resolution_level": 0,
    "train.warm_up_end": 5000.0,
    "train.use_white_bkgd": False,
    "train.save_freq": 10000,
    "train.val_freq": 2500,
    "train.val_mesh_freq": 5000,
    "train.report_freq": 100,
    "train.igr_weight": 0.1,
    "model.nerf.D": 8,
    "model.nerf.d_in": 4,
    "model.nerf.d_in_view": 3,
    "model.nerf.W": 256,
    "model.nerf.multires": 10,
    "model.nerf.multires_view": 4,
    "model.nerf.output_ch": 4,
    "model.nerf.skips": (4,),
    "model.nerf.use_viewdirs": True,
    "model.sdf_network.d_out": 257,
    "model.sdf_network.d_in": 3,
    "model.sdf_network.d_hidden": 256,
    "model.sdf_network.n_layers": 8,
    "model.sdf_network.skip_in": (4,),
    "model.sdf_network.multires": 6,
    "model.sdf_network.bias": 0.5,
    "model.sdf_network.geometric_init": True,
    "model.sdf_network.weight_norm": True,
    "model.sdf_network.inside_outside": False,
    "model.variance_network.init_val": 0.3,
    "model.rendering_network.d_feature": 256,
    "model.rendering_network.mode": "idr",
    "model.rendering_network.d_in": 9,
    "model.rendering_network.d_out": 3,
    "model.rendering_network.d_hidden": 256,
    "model.rendering_network.n_layers": 4,
    "model.rendering_network.weight_norm": True,
    "model.rendering_network.multires_view": 4,
    "model.rendering_network.squeeze_out": True,
    "model.neus_renderer.n_samples": 64,
    "model.neus_renderer.n_importance": 64,
    "model.neus_renderer.up_sample_steps": 4,
    "model.neus_renderer.perturb": 1.0,
}
VARIED = (
    "general.base_exp_dir",
    "dataset.render_cameras_name",
    "train.anneal_end",
    "train.mask_weight",
    "model.sdf_network.scale",
    "model.neus_renderer.n_outside",
)
PUBLISHED_VARIED = {
    "wmask": ("./exp/scan/wmask", "cameras_sphere.npz", 0.0, 0.1, 1.0, 0),
    "womask": ("./exp/scan/womask_sphere", "cameras_sphere.npz", 50000.0, 0.0, 1.0, 32),
    "thin_structure": ("./exp/scan/womask", "cameras_sphere.npz", 50000.0, 0.0, 3.0, 0),
    "womask_dtu_large_roi": ("./exp/scan/womask_large_roi", "cameras_large.npz", 50000.0, 0.0, 3.0, 32),
}
OURS = {
    "dataset.camera_outside_sphere": True,
    "dataset.scale_mat_scale": 1.1,
    "dataset.test_dir": "",
    "dataset.reference_mesh": "",
    "dataset.type": "auto",
    "dataset.downscale": 1,
    "dataset.test_every": 0,
    "dataset.test_views": (),
    "dataset.train_views": (),
    "dataset.refine_cameras": "none",
    "dataset.masks_from_backdrop": False,
    "dataset.triangulate_points": False,
    "dataset.bbox": "",
    "dataset.roi": "",
    "train.seed": 0,
    "train.max_bad_steps": 10,
    "train.keep_checkpoints": 0,
    "train.render_chunk": "auto",
    "train.ray_chunk": "auto",
    "train.memory_limit": "auto",
    "train.ema_decay": 0.0,
    "train.tf32": False,
    "train.mesh_resolution": 64,
    "train.learning_rate_decay": "cosine",
    "train.optimizer": "adam",
    "train.adam_beta_2": 0.999,
    "train.adam_epsilon": 1e-8,
    "model.type": "neus",
    "model.surface": "sdf_network",
    "model.color": "rendering_network",
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_resolves_to_the_published_values_and_our_defaults(name):
    varied = dict(zip(VARIED, PUBLISHED_VARIED[name], strict=True))
    assert flat(load_config(CONFS / f"{name}.conf", case="scan")) == {**PUBLISHED, **OURS, **varied}


@pytest.mark.parametrize("path", sorted(CONFS.glob("*.conf")), ids=lambda path: path.stem)
def test_every_conf_loads_and_its_resolved_text_reads_back_equal(path, tmp_path):
    conf = load_config(path, case="scan")
    text = to_hocon(conf)
    assert parse_config(text, "text") == conf
    assert load_config(write_conf(tmp_path, text)) == conf


def test_the_base_confs_hold_every_key_once_with_a_comment_and_its_default():
    found = {}
    for path in (CONFS / "base").glob("*.conf"):
        blocks = []
        for line in path.read_text(encoding="utf-8").splitlines():
            code, _, comment = line.partition("#")
            if match := re.fullmatch(r"\s*(\w+) \{\s*", code):
                blocks.append(match[1])
            elif code.strip() == "}":
                blocks.pop()
            elif match := re.match(r"\s*(\w+) =", code):
                key = ".".join([*blocks, match[1]])
                assert key not in found and comment.strip(), key
                found[key] = path
    assert set(found) == set(known_leaves())


BAD_OVERRIDES = [
    ("train.lerning_rate=3", "unknown key train.lerning_rate; did you mean train.learning_rate?"),
    ("train.End_Iter=3", "did you mean train.end_iter?"),
    ("trian.end_iter=3", "did you mean train.end_iter?"),
    ("=3", "write it as KEY=VALUE"),
    ("train.end_iter", "write it as KEY=VALUE"),
    ("train.end_iter=", "must be a whole number"),
    ("train.end_iter=abc", "'abc': must be a whole number"),
    ('train.end_iter="300"', "must be a whole number"),
    ("train.end_iter=1.5", "must be a whole number"),
    ("train.end_iter=true", "must be a whole number"),
    ("train.end_iter=null", "must be a whole number"),
    ("train.end_iter=1e300", "must be a whole number"),
    ("train.end_iter=5 days", "must be a whole number"),
    ("train.end_iter=[3]", "must be a whole number"),
    ("train.end_iter=[3", "not HOCON"),
    ("train.end_iter=300\ntrain.foo=1", "line breaks"),
    ("train=3", "must be a block"),
    ("train={foo=1}", "train.foo: unknown key"),
    ("train.igr_weight=nan", "must be a number"),
    ("train.igr_weight=inf", "must be a number"),
    ("train.igr_weight=1e999", "must be a number"),
    ("train.igr_weight=" + "9" * 400, "must be a number"),
    ("train.use_white_bkgd=2", "must be true or false"),
    ("train.use_white_bkgd=maybe", "must be true or false"),
    ("model.sdf_network.skip_in=2", "must be a list"),
    ("model.sdf_network.skip_in=[a]", "must be a whole number"),
    ("general.recording=[1]", "in quotes"),
    ("dataset.data_dir=a\x07b", "control characters"),
    ("dataset.data_dir=./CASE_NAME", "pass --case NAME"),
    ("dataset.data_dir=./${case}", "pass --case NAME"),
    ("dataset.data_dir=./${nope}", "${nope}"),
    ("dataset.data_dir=", "dataset.data_dir: is empty"),
    ('train.end_iter=3, include url("http://127.0.0.1/x.conf")', "include of a file on a line of its own"),
]


@pytest.mark.parametrize(("override", "complaint"), BAD_OVERRIDES, ids=[repr(row[0])[:40] for row in BAD_OVERRIDES])
def test_a_bad_override_is_one_sentence_that_says_what(override, complaint):
    with pytest.raises(UserError) as caught:
        load_config(CONFS / "debug.conf", overrides=[override])
    message = str(caught.value)
    assert complaint in message and len(message) < 1000
    assert "--set" in message or "debug.conf" in message or "include" in message


NOT_OF_THE_METHOD = [
    ("debug", "model.packed.points_weight=1", "model.type = neus does not use model.packed, only fast_neus"),
    ("debug", "model.packed={points_weight=1}", "model.type = neus does not use model.packed, only fast_neus"),
    ("debug", "model.radiance_field=nerf", "does not use model.radiance_field, only nerf, fast_nerf"),
    ("fast", "model.neus_renderer.n_samples=8", "model.type = fast_neus does not use model.neus_renderer, only neus"),
    ("fast_nerf", "model.packed.hull_margin=1", "model.type = fast_nerf does not use model.packed, only fast_neus"),
    ("gaussians", "model.surface=sdf_grid", "model.type = gaussians does not use model.surface, only neus, fast_neus"),
]


@pytest.mark.parametrize(("name", "override", "words"), NOT_OF_THE_METHOD, ids=[row[1] for row in NOT_OF_THE_METHOD])
def test_an_override_that_the_method_would_not_read_is_refused(name, override, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(CONFS / f"{name}.conf", "scan", [override])


def test_an_override_may_choose_the_method_and_set_a_block_of_it():
    overrides = ["model.sdf_grid.levels=4", "model.surface=sdf_grid", "model.rendering_network.d_feature=15"]
    conf = load_config(CONFS / "debug.conf", overrides=overrides)
    assert conf.model.block("sdf_grid").levels == 4


GOOD_OVERRIDES = [
    ("train.end_iter=2e3", 2000),
    ("train.end_iter = 2000.0", 2000),
    ("train.igr_weight=1", 1.0),
    ("train.use_white_bkgd=yes", True),
    ("train.use_white_bkgd=True", True),
    ("train.use_white_bkgd=off", False),
    ("model.sdf_network.skip_in=[1, 3]", (1, 3)),
    ("model.sdf_network.skip_in=[]", ()),
    ("dataset.data_dir=/a b/c++ & d?/#e", "/a b/c++ & d?/#e"),
    ('dataset.data_dir="quoted"', "quoted"),
    ("dataset.data_dir=2024", "2024"),
    ("dataset.data_dir=C:\\scenes\\new", "C:\\scenes\\new"),
    ("dataset.data_dir=${general.base_exp_dir}/x", "./exp/debug/x"),
    ("dataset.data_dir=./场景/é", "./场景/é"),
]


@pytest.mark.parametrize(("override", "value"), GOOD_OVERRIDES, ids=[row[0] for row in GOOD_OVERRIDES])
def test_an_override_sets_exactly_its_key(override, value):
    key = override.partition("=")[0].strip()
    path = CONFS / "debug.conf"
    before, after = flat(load_config(path)), flat(load_config(path, overrides=[override]))
    assert after == {**before, key: value} and type(after[key]) is type(value)


PRINTABLE = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=20)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    text=PRINTABLE.filter(lambda text: "CASE_NAME" not in text),
    number=st.floats(allow_nan=False, allow_infinity=False),
    whole=st.integers(-(2**63), 2**63 - 1),
    whole_list=st.lists(st.integers(-99, 99), max_size=4),
)
def test_every_leaf_survives_the_round_trip_through_text_bit_for_bit(text, number, whole, whole_list):
    tree = {"a": {"text": text, "number": number, "flag": True}, "b": {"whole": whole, "list": whole_list, "no": False}}
    assert parse_tree(write_tree(tree), "text") == tree
