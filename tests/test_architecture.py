"""The code follows the house rules, and each check detects violations."""

import ast

import architecture as rules
import pytest

MODULES = rules.modules()
TREES = {name: tree for name, (_, tree) in MODULES.items()}
EDGES = {name: rules.imported(tree, set(TREES)) for name, tree in TREES.items()}
PROGRAM_FILES = [path for folder in ("tests", "benchmarks") for path in (rules.ROOT / folder).rglob("*.py")]


def test_every_module_has_a_floor():
    assert [name for name in TREES if rules.room(name) is None] == ["models"]


def test_no_import_climbs_or_goes_sideways():
    assert rules.climbing(EDGES) == []


def test_no_imports_go_round():
    assert rules.cycle(EDGES) == [] and rules.cycle(rules.between_packages(EDGES)) == []


def test_each_package_has_one_row_and_each_row_a_package():
    loose_rows = {f"models.{name}" for name in rules.LOOSE["models"]}
    assert rules.packages() | loose_rows | {"data", "data.config", "exp_runner"} == set(rules.FLOORS)


@pytest.mark.parametrize("folder", rules.LOOSE)
def test_only_the_shared_words_lie_loose(folder):
    assert rules.loose(TREES, folder, rules.packages()) <= rules.LOOSE[folder]


def test_the_folders_of_a_package_know_nothing_of_each_other():
    assert rules.between_siblings(EDGES) == []


def test_data_knows_nothing_of_models():
    edges = [(name, target) for name in EDGES if name.startswith("data") for target in EDGES[name]]
    assert [edge for edge in edges if not edge[1].startswith("data")] == []


def test_no_file_and_no_function_is_too_long():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PROGRAM_FILES} | dict(MODULES.values())
    found = {str(path): rules.too_long(tree) for path, tree in trees.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    assert {name: count for name, count in lines.items() if count > rules.MAX_FILE_LINES} == {}


def test_nothing_of_jittor_runs_at_import():
    found = {name: rules.jittor_at_import(tree) for name, tree in TREES.items()}
    assert {name: places for name, places in found.items() if places} == {}


def test_no_scan_is_jittors():
    found = {name: rules.jittor_scans(tree) for name, tree in TREES.items()}
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("data.scenes.scene", "models.config"),
        ("data.roi.region", "data.inspection.finding"),
        ("data.readers.neus", "data.roi.region"),
        ("data.io.images", "data.scenes.scene"),
        ("data.errors", "data.io.files"),
        ("models.fields.sdf", "models.rendering.sections"),
        ("models.surface.export", "models.results.shading"),
        ("models.ops.scan", "data.scenes.scene"),
        ("models.runner", "models.commands.train"),
        ("models.training.trainer", "models.runner"),
        ("models.machine.backend", "models.ops.scan"),
        ("models.config", "models.ops"),
        ("models.fields.sdf", "."),
    ],
)
def test_the_floor_rule_sees_a_climb_and_a_step_sideways(importer, target):
    assert rules.climbing({importer: {target}}) == [f"{importer} imports {target}"]


def test_the_floor_rule_lets_a_room_use_itself_and_what_is_below():
    below = {"models.fields.layers", "models.machine.backend", "data.errors", "data.io.files", "models"}
    assert rules.climbing({"models.fields.sdf": below, "data.parsed_scene": {"data.errors"}}) == []


@pytest.mark.parametrize("name", ["data.attic", "data.attic.box", "models.attic", "models.attic.box", "attic"])
def test_the_floor_rule_knows_no_package_without_a_row(name):
    assert rules.room(name) is None and rules.climbing({"exp_runner": {name}, name: {"data.errors"}}) != []


def test_the_rule_of_loose_modules_sees_one_and_no_package():
    names = ["data.errors", "data.attic", "data.io", "data.io.files", "models.structs"]
    assert rules.loose(names, "data", {"data.io", "models.ops"}) == {"errors", "attic"}


def test_the_rule_of_siblings_sees_one_kind_in_another():
    edges = {
        "models.methods.nerf.model": {"models.methods.neus.conf", "models.methods.protocol", "models.methods.nerf.conf"}
    }
    edges |= {"models.methods.registry": {"models.methods.neus.conf"}, "data.roi.region": {"data.inspection.finding"}}
    assert rules.between_siblings(edges) == ["models.methods.nerf.model imports models.methods.neus.conf"]


def test_a_cycle_of_packages_is_seen_where_no_file_imports_itself():
    edges = {"data.roi.region": {"data.inspection.finding"}, "data.inspection.checks": {"data.roi.frustum"}}
    assert rules.cycle(edges | {"data.inspection.finding": set(), "data.roi.frustum": set()}) == []
    assert rules.cycle(rules.between_packages(edges)) == ["data.inspection", "data.roi"]


def test_the_import_reader_sees_every_form_also_inside_functions():
    known = {"models.machine.backend", "models.config", "models.fields", "models.fields.sdf", "data.rays"}
    source = """
import models.machine.backend
from models import config
def f():
    from models.fields.sdf import SdfNetwork
    import numpy, data.rays
"""
    expected = {"models.machine.backend", "models.config", "models.fields.sdf", "data.rays"}
    assert rules.imported(ast.parse(source), known) == expected
    assert rules.imported(ast.parse("from . import x"), known) == {"."}


def test_the_cycle_rule_sees_a_cycle_and_only_that():
    assert rules.cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    assert rules.cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_size_rule_counts_the_lines_of_a_function():
    just_right, too_long = ("def f():\n" + "    x = 1\n" * lines for lines in (59, 60))
    assert rules.too_long(ast.parse(just_right)) == [] and rules.too_long(ast.parse(too_long)) == ["f"]


@pytest.mark.parametrize(
    "source",
    [
        "x = jt.zeros(3)",
        "class A:\n    x = jt.nn.Linear(3, 3)",
        "def f(x=jt.zeros(3)): ...",
        "@jt.no_grad()\ndef f(): ...",
        "jt.flags.use_cuda = 1",
        "if True:\n    y = [jt.ones(1) for _ in range(3)]",
    ],
)
def test_the_import_time_rule_sees_what_runs_at_import(source):
    assert rules.jittor_at_import(ast.parse(source))


def test_the_import_time_rule_lets_definitions_be():
    source = "class A(jt.Module):\n    def f(self): return jt.zeros(3)\ng = lambda: jt.ones(1)\nx: jt.Var"
    assert rules.jittor_at_import(ast.parse(source)) == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("y = x.cumsum(dim=1)", 1),
        ("y = jt.cumprod(x)", 1),
        ("y = (1 - x)[:, order].cumsum(1)", 1),
        ("scan = jt.Var.cumsum", 1),
        ("y = np.cumsum(counts) + np.cumprod(counts)", 0),
    ],
)
def test_the_rule_of_scans_sees_those_of_jittor_only(source, count):
    assert len(rules.jittor_scans(ast.parse(source))) == count
