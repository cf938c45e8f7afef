"""The code keeps the house rules, and each rule can tell a house that does not."""

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


def test_only_the_backend_imports_jittor():
    assert [name for name, tree in TREES.items() if rules.imports_of(tree, "jittor")] == ["models.machine.backend"]


@pytest.mark.parametrize("name", TREES)
def test_a_module_keeps_the_house_rules(name):
    path, tree = MODULES[name]
    assert len(path.read_text(encoding="utf-8").splitlines()) <= rules.MAX_FILE_LINES
    assert rules.too_long(tree) == []
    assert rules.undocumented(tree) == []
    assert rules.unannotated(tree) == []
    assert rules.bare_excepts(tree) == []
    assert rules.jittor_at_import(tree) == []
    assert rules.prints(tree) == [] or name.startswith(rules.MAY_PRINT)
    assert rules.terminal_uses(tree) == [] or name.startswith((*rules.MAY_PRINT, *rules.THE_TERMINAL))


@pytest.mark.parametrize("path", PROGRAM_FILES, ids=lambda path: path.name)
def test_a_test_or_benchmark_keeps_the_size_budget(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= rules.MAX_FILE_LINES and rules.too_long(ast.parse(text)) == []


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


@pytest.mark.parametrize("source", ["import jittor", "import jittor.nn as nn", "def f():\n    from jittor import nn"])
def test_the_jittor_import_rule_sees_every_form(source):
    assert rules.imports_of(ast.parse(source), "jittor")
    harmless = "import jittorish\nfrom models.machine.backend import jt\nif TYPE_CHECKING:\n    from jittor import Var"
    assert not rules.imports_of(ast.parse(harmless), "jittor")


def test_the_size_rule_counts_the_lines_of_a_function():
    just_right, too_long = ("def f():\n" + "    x = 1\n" * lines for lines in (59, 60))
    assert rules.too_long(ast.parse(just_right)) == [] and rules.too_long(ast.parse(too_long)) == ["f"]


def test_the_documentation_rule_sees_modules_classes_functions_and_methods():
    source = """
class A:
    def f(self): ...
    def _g(self): ...
def h():
    def inner(): ...
class _B:
    def k(self): ...
"""
    assert sorted(rules.undocumented(ast.parse(source))) == ["A", "f", "h", "module"]
    assert rules.undocumented(ast.parse('"""D."""\ndef f():\n    """D."""')) == []


@pytest.mark.parametrize(
    "source",
    ["def f(a) -> int: ...", "def f(a: int): ...", "def f(*, a) -> int: ...", "def f(*a) -> int: ...", "def _f(): ..."],
)
def test_the_annotation_rule_sees_every_kind_of_gap(source):
    assert len(rules.unannotated(ast.parse(source))) == 1
    assert rules.unannotated(ast.parse("class A:\n    def f(self, a: int, *b: int, **c: int) -> None: ...")) == []


def test_the_print_and_except_rules_see_theirs():
    assert (
        rules.prints(ast.parse("def f():\n    print(1)")) == [2]
        and rules.prints(ast.parse("pprint(1)\nx.print(1)")) == []
    )
    assert rules.terminal_uses(ast.parse("import sys\nsys.stderr.write(x)\nfrom tqdm import tqdm\na.stdout")) == [2, 3]
    source = "try:\n    f()\nexcept:\n    pass"
    assert rules.bare_excepts(ast.parse(source)) == [3]
    assert rules.bare_excepts(ast.parse(source.replace("except:", "except OSError:"))) == []


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
