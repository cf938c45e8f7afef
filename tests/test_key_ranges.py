"""Every key with values that cannot work: each is refused in a sentence that names it, or gives a usable conf.

All of them are read within 200 MB of address space, so that a size is bounded before anything is made of it.
"""

import contextlib
import copy
import math
import resource
from pathlib import Path

import pytest
from config_samples import CONFS
from runs import run

from data.errors import UserError
from models.conf import build, flat, known_leaves, load_config
from models.config.hocon import read_tree
from models.results.capacity import require_networks
from models.training.optimizer import learning_rate

NUMBERS = (0, -1, math.nan, math.inf, -math.inf, 1e308, 1e-308, -1e308, 5e-324, 1e30, 10**7, 2**63 - 1, 2**63, 10**400)
OTHERS = (None, True, "text", "", [], [None], [1e308], ["x"], [2**63 - 1], {}, {"a": 1})
SPACE = 200_000_000  # bytes
METHODS = ("womask", "nerf_synthetic", "geo", "fast_nerf", "surfels")  # one conf of each


@pytest.fixture
def little_memory():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def with_value(tree, key, value):
    """The tree of a conf with another value at a dotted key."""
    *blocks, name = key.split(".")
    part = tree = copy.deepcopy(tree)
    for block in blocks:
        part = part.setdefault(block, {})
    part[name] = value
    return tree


def beyond(limits):
    """Numbers just outside a range."""
    least, above, most = (limits.get(name) for name in ("at_least", "above", "at_most"))
    return [
        *([] if least is None else [least - 1, least - abs(least) / 2 - 1e-300]),
        *([] if above is None else [above]),
        *([] if most is None else [most + 1, most + abs(most) / 2 + 1e-300]),
    ]


def read(tree, key, value):
    """Whether the conf is accepted with a value, which is then harmless."""
    try:
        conf = build(with_value(tree, key, value), "x.conf")
    except UserError as error:
        assert key.rpartition(".")[2] in str(error) and "\n" not in str(error)
        return False
    with contextlib.suppress(UserError):  # the memory of this machine decides
        require_networks(conf.model)
    ends = (0, 1, conf.train.end_iter // 2, conf.train.end_iter)
    assert all(0 <= learning_rate(conf.train)(step) <= conf.train.learning_rate for step in ends)
    return True


@pytest.mark.parametrize("name", METHODS)
def test_every_key_refuses_what_cannot_work_by_its_name(name, little_memory):
    tree = read_tree(CONFS / f"{name}.conf", "scan")
    keys = [key for key in flat(build(tree, name)) if key.startswith("model.") or name == METHODS[0]]
    accepted = {(key, repr(value)) for key in keys for value in (*NUMBERS, *OTHERS) if read(tree, key, value)}
    assert not {pair for pair in accepted if pair[1] in ("nan", "inf", "-inf", "None", repr(10**400))}
    for key, (_, limits) in known_leaves().items():
        if key in keys:
            assert not any(read(tree, key, value) for value in beyond(limits)), key


def test_every_number_has_a_range():
    kinds = {key: (str(kind), limits) for key, (kind, limits) in known_leaves().items()}
    numbers = {key: limits for key, (kind, limits) in kinds.items() if "float" in kind or "int" in kind}
    open_ended = {key for key, limits in numbers.items() if limits.get("at_most") is None} - {
        "dataset.test_views",  # compared with the photographs
        "dataset.train_views",
        "dataset.validation_views",
        "model.nerf.skips",
        "model.sdf_network.skip_in",  # compared with the layers
    }
    assert not open_ended and len(numbers) > 100


REFUSED = """
womask model.rendering_network.n_layers=300000000
womask model.neus_renderer.up_sample_steps=2000
geo model.open.section=1e-308
geo model.packed.last_step=1e-308
fast_nerf model.radiance.last_step=1e-308
debug train.learning_rate=1e30
debug train.adam_epsilon=1e308
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_number_without_use_ends_the_program_before_any_work(line, tmp_path, capfd):
    name, override = line.split()
    assert run(tmp_path / "exp", "--conf", str(CONFS / f"{name}.conf"), "--set", override) == 2
    said = capfd.readouterr()
    assert override.partition("=")[0] in said.err and "Traceback" not in said.err
    assert not (tmp_path / "exp").exists()


def test_the_home_folder_is_meant_by_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = load_config(CONFS / "debug.conf", "", ["general.base_exp_dir=~/exp", "dataset.test_dir=~"])
    assert (conf.general.base_exp_dir, conf.dataset.test_dir) == (f"{tmp_path}/exp", str(tmp_path))
