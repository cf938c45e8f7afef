"""Values of a conf that depend on the device: reading, choosing, overriding, and resuming on another device."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from models.conf import as_trained, for_device, load_config, parse_config, to_hocon
from models.config.strict import ConfigError
from models.results.context import sizes_line
from models.results.experiment import _fitting

CONFS = Path(__file__).parents[1] / "confs"
BY_DEVICE = ("fast", "geo", "demo", "fast_nerf")


def conf_of(name, *overrides):
    return load_config(CONFS / f"{name}.conf", "scan", overrides)


def own(folder, base, text):
    """A conf that includes one of ours, read."""
    path = folder / "own.conf"
    path.write_text(f'include required("{CONFS}/{base}.conf")\n{text}\n')
    return load_config(path, "x")


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFS.glob("*.conf")))
def test_only_the_named_recipes_depend_on_the_device(name):
    conf = conf_of(name)
    assert (for_device(conf, "cuda") != conf) == (name in BY_DEVICE)
    assert for_device(for_device(conf, "cuda"), "cpu") == for_device(conf, "cpu") == conf


def test_the_last_value_of_a_key_holds_a_plain_one_for_every_device(tmp_path):
    later = own(tmp_path, "fast", "model { packed { samples = 5000 } }")
    with pytest.raises(ConfigError, match="--set train.batch_size=.*: takes a plain value, for every device"):
        conf_of("fast", "train.batch_size={cpu=1,cuda=2}")
    for conf, samples in ((later, 5000), (conf_of("fast", "model.packed.samples=4096"), 4096)):
        assert "model.packed.samples" not in conf.by_device
        assert {for_device(conf, device).model.packed.samples for device in ("cpu", "cuda")} == {samples}
    conf = own(tmp_path, "wmask", "train { learning_rate = { cuda = 1e-3, cpu = 2e-3 } }")
    assert [for_device(conf, device).train.learning_rate for device in ("cpu", "cuda")] == [2e-3, 1e-3]


OTHER_TYPE = "model.type = { cpu = fast_nerf, cuda = nerf }\nmodel.nerf.d_in = 3"
INVALID = [
    ("debug", "train { end_iter = { cuda = 9000 } }", "train.end_iter: a value for each device needs both"),
    ("debug", "train { end_iter = { cpu = 9000, cuda = 0 } }", "train.end_iter = 0: must be at least 1"),
    ("fast_nerf", OTHER_TYPE, "must be the same for every device"),
]


@pytest.mark.parametrize(("base", "text", "words"), INVALID)
def test_invalid_blocks_are_named(tmp_path, base, text, words):
    with pytest.raises(ConfigError, match=words):
        own(tmp_path, base, text)


def test_values_need_to_be_consistent_for_the_chosen_device_only():
    conf = conf_of("fast_nerf", "train.warm_up_end=6000")
    assert for_device(conf, "cpu").train.end_iter == 24000
    with pytest.raises(ConfigError, match="the conf for cuda: train.warm_up_end = 6000: must be below"):
        for_device(conf, "cuda")


@pytest.mark.parametrize(("made_on", "now_on"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_keeps_the_plain_sizes_of_its_device(made_on, now_on):
    made = for_device(conf_of("fast", "train.end_iter=9000", "model.packed.samples=4096"), made_on)
    text = to_hocon(made)
    assert "cuda" not in text and parse_config(text, "text") == made and parse_config(text, "text").by_device == {}
    conf = _fitting(for_device(conf_of("fast"), now_on), SimpleNamespace(state={"conf": text}))
    assert conf.model.sdf_grid == made.model.sdf_grid
    assert sizes_line(conf).startswith(f"sizes for {made_on}: train.batch_size = {made.train.batch_size}, ")
    assert as_trained(made, conf_of("wmask")) == made  # a checkpoint of neither device


def test_a_value_that_a_caller_sets_in_python_is_kept():
    conf = conf_of("fast")
    changed = replace(conf, train=replace(conf.train, batch_size=256))
    for device in ("cpu", "cuda"):
        found = for_device(changed, device)
        assert found.train.batch_size == for_device(found, "cpu").train.batch_size == 256
        assert found.model == for_device(conf, device).model
