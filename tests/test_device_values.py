"""Values of a conf that depend on the device: reading, choosing, overriding, and resuming on another device."""

from dataclasses import replace
from pathlib import Path

import pytest

from models import interface
from models.config.strict import ConfigError
from models.experiment import _fitting
from models.machine import backend
from models.methods.conf import flat, load_config, parse_config, to_hocon
from models.methods.device_values import as_trained, for_device, sizes_line

CONFS = Path(__file__).parents[1] / "confs"
GRID = {"levels": (10, 14), "finest": (256, 1024), "log2_rows": (17, 19)}
COLORS = {"levels": (12, 14), "finest": (512, 1024), "log2_rows": (17, 19)}
SURFACE = {
    "train.batch_size": (8192, 32768),
    "model.packed.samples": (8192, 131072),
    "model.background.samples": (8192, 131072),
    "model.density_grid.log2_rows": (17, 19),
    **{f"model.sdf_grid.{key}": values for key, values in GRID.items()},
    **{f"model.color_grid.{key}": values for key, values in COLORS.items()},
}
RADIANCE = {
    "train.end_iter": (24000, 5000),
    "train.batch_size": (8192, 32768),
    "model.radiance.samples": (16384, 262144),
    "model.density_grid.levels": (12, 14),
    "model.density_grid.log2_rows": (17, 19),
}
BY_DEVICE = {"fast": SURFACE, "geo": SURFACE, "demo": SURFACE, "fast_nerf": RADIANCE}


def conf_of(name, *overrides):
    return load_config(CONFS / f"{name}.conf", "scan", overrides)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFS.glob("*.conf")))
def test_only_the_named_keys_depend_on_the_device(name):
    conf, expected = conf_of(name), BY_DEVICE.get(name, {})
    cpu, cuda = flat(conf), flat(for_device(conf, "cuda"))
    assert {key: (value, cuda[key]) for key, value in cpu.items() if cuda[key] != value} == expected
    assert for_device(for_device(conf, "cuda"), "cpu") == for_device(conf, "cpu") == conf


def test_a_plain_number_in_a_later_conf_or_override_holds_for_every_device(tmp_path):
    path = tmp_path / "own.conf"
    path.write_text(f'include required("{CONFS}/fast.conf")\nmodel {{ packed {{ samples = 5000 }} }}\n')
    for conf, samples in ((load_config(path, "x"), 5000), (conf_of("fast", "model.packed.samples=4096"), 4096)):
        assert "model.packed.samples" not in conf.by_device
        assert {for_device(conf, device).model.packed.samples for device in ("cpu", "cuda")} == {samples}


def test_a_block_replaces_a_plain_number(tmp_path):
    path = tmp_path / "own.conf"
    path.write_text(
        f'include required("{CONFS}/wmask.conf")\ntrain {{ learning_rate = {{ cuda = 1e-3, cpu = 2e-3 }} }}\n'
    )
    conf = load_config(path, "x")
    assert [for_device(conf, device).train.learning_rate for device in ("cpu", "cuda")] == [2e-3, 1e-3]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{ cuda = 9000 }", "train.end_iter: a value for each device needs both"),
        ("{ cpu = 1, cuda = 2, tpu = 3 }", "train.end_iter: a value for each device needs both"),
        ("{ cpu = 9000, cuda = 0 }", "train.end_iter = 0: must be at least 1"),
        ("{ cpu = 9000, cuda = fast }", "train.end_iter = 'fast': must be a whole number"),
    ],
)
def test_invalid_blocks_are_named(tmp_path, block, words):
    path = tmp_path / "own.conf"
    path.write_text(f'include required("{CONFS}/debug.conf")\ntrain {{ end_iter = {block} }}\n')
    with pytest.raises(ConfigError, match=words):
        load_config(path, "x")


@pytest.mark.parametrize("value", ["{cpu=1}", "{cpu=1,cuda=2}", "{ cuda = 7 }"])
def test_an_override_is_for_every_device(value):
    with pytest.raises(ConfigError, match="--set train.batch_size=.*: takes a plain value, for every device"):
        conf_of("fast", f"train.batch_size={value}")


@pytest.mark.parametrize("text", ["cpu = 1", "cuda = 2\ncpu = 1"])
def test_a_device_is_no_block_of_a_conf(tmp_path, text):
    path = tmp_path / "own.conf"
    path.write_text(f'include required("{CONFS}/debug.conf")\n{text}\n')
    with pytest.raises(ConfigError, match="own.conf: cpu and cuda: are no blocks of a conf"):
        load_config(path, "x")


def test_values_need_to_be_consistent_for_the_chosen_device_only():
    conf = conf_of("fast_nerf", "train.warm_up_end=6000")
    assert for_device(conf, "cpu").train.end_iter == 24000
    with pytest.raises(ConfigError, match="the conf for cuda: train.warm_up_end = 6000: must be below"):
        for_device(conf, "cuda")
    with pytest.raises(ConfigError, match="train.warm_up_end = 30000: must be below train.end_iter = 24000"):
        conf_of("fast_nerf", "train.warm_up_end=30000")


def test_devices_cannot_have_different_methods(tmp_path):
    path = tmp_path / "own.conf"
    types = "model.type = { cpu = fast_nerf, cuda = nerf }"
    path.write_text(f'include required("{CONFS}/fast_nerf.conf")\n{types}\nmodel.nerf.d_in = 3\n')
    with pytest.raises(ConfigError, match="must be the same for every device"):
        load_config(path, "x")


def test_the_conf_of_a_run_has_plain_numbers():
    """So a checkpoint keeps the sizes of the device that it was made on."""
    conf = for_device(conf_of("fast"), "cuda")
    text = to_hocon(conf)
    assert "cuda" not in text
    saved = parse_config(text, "text")
    assert saved == conf
    assert saved.by_device == {}


@pytest.mark.parametrize(("made_on", "now_on"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_a_checkpoint_keeps_its_sizes(made_on, now_on):
    made = for_device(conf_of("fast", "train.end_iter=9000", "model.packed.samples=4096"), made_on)
    checkpoint = type("Checkpoint", (), {"state": {"conf": to_hocon(made)}})
    conf = _fitting(for_device(conf_of("fast"), now_on), checkpoint)
    assert conf.model.sdf_grid == made.model.sdf_grid
    assert sizes_line(conf).startswith(f"sizes for {made_on}: train.batch_size = {made.train.batch_size}, ")


def test_the_conf_is_kept_where_a_checkpoint_is_of_neither_device():
    conf = for_device(conf_of("fast_nerf"), "cuda")
    other = conf_of("wmask")
    assert as_trained(conf, other) == conf


def test_choosing_a_device_gives_its_values(monkeypatch):
    conf = conf_of("fast")
    assert interface.choose_device(conf, "cpu", 0).model.packed.samples == 8192
    monkeypatch.setattr(backend, "device_name", lambda: "cuda")
    assert interface.choose_device(conf, "auto", 0).model.packed.samples == 131072
    assert sizes_line(conf_of("wmask")) == ""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_value_that_a_caller_sets_in_python_is_kept(device):
    conf = conf_of("fast")
    own = replace(conf, train=replace(conf.train, batch_size=256))
    found = for_device(own, device)
    assert found.train.batch_size == for_device(found, "cpu").train.batch_size == 256
    assert found.model == for_device(conf, device).model
