"""The code follows the house rules, and each check detects violations."""

import ast

import architecture as rules
import pytest

MODULES = rules.modules()
TREES = {name: tree for name, (_, tree) in MODULES.items()}
EDGES = {name: rules.imported(tree, set(TREES)) for name, tree in TREES.items()}
PROGRAM_FILES = [path for folder in ("tests", "benchmarks") for path in (rules.ROOT / folder).rglob("*.py")]


def test_every_module_has_a_row_of_the_page_and_each_row_a_module():
    assert [name for name in TREES if rules.room(name) is None] == ["models"]
    assert {rules.room(name) for name in TREES} == {None, *rules.FLOORS}


def test_no_import_climbs_goes_sideways_or_round():
    assert rules.climbing(EDGES) == []
    assert rules.between_siblings(EDGES) == []
    assert rules.cycle(EDGES) == []


def test_no_file_and_no_function_is_too_long():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PROGRAM_FILES} | dict(MODULES.values())
    found = {str(path): rules.too_long(tree) for path, tree in trees.items()}
    assert {name: functions for name, functions in found.items() if functions} == {}
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    assert {name: count for name, count in lines.items() if count > rules.MAX_FILE_LINES} == {}


@pytest.mark.parametrize("rule", [rules.jittor_at_import, rules.jittor_scans])
def test_nothing_of_jittor_runs_at_import_and_no_scan_is_its(rule):
    found = {name: rule(tree) for name, tree in TREES.items()}
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    ("importer", "target", "is_climb"),
    [
        ("data.scenes.scene", "models.config", True),
        ("data.roi.region", "data.inspection.finding", True),
        ("data.errors", "data.io.files", True),
        ("models.machine.backend", "models.ops.scan", True),
        ("models.fields.sdf", ".", True),
        ("models.attic.box", "data.errors", True),
        ("models.fields.sdf", "models.fields.layers", False),
        ("models.fields.sdf", "data.io.files", False),
        ("data.parsed_scene", "data.errors", False),
    ],
)
def test_the_floor_rule_sees_a_climb_and_a_step_sideways(importer, target, is_climb):
    assert rules.climbing({importer: {target}}) == [f"{importer} imports {target}"] * is_climb


def test_the_rules_of_siblings_cycles_and_sizes_see_violations_only():
    nerf, neus = "models.methods.nerf.model", "models.methods.neus.conf"
    edges = {nerf: {neus, "models.methods.protocol", "models.methods.nerf.conf"}, "models.methods.registry": {neus}}
    assert rules.between_siblings(edges) == [f"{nerf} imports {neus}"]
    assert rules.cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    assert rules.cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    just_right, too_long = ("def f():\n" + "    x = 1\n" * lines for lines in (59, 60))
    assert rules.too_long(ast.parse(just_right)) == [] and rules.too_long(ast.parse(too_long)) == ["f"]


def test_the_import_reader_sees_every_form_also_inside_functions():
    known = {"models.machine.backend", "models.config", "models.fields", "models.fields.sdf", "data.rays"}
    source = "import models.machine.backend\nfrom models import config\nfrom . import x\n"
    source += "def f():\n    from models.fields.sdf import SdfNetwork\n    import numpy, data.rays"
    assert rules.imported(ast.parse(source), known) == known - {"models.fields"} | {"."}


@pytest.mark.parametrize(
    ("source", "at_import", "scans"),
    [
        ("class A:\n    x = jt.nn.Linear(3, 3)", 1, 0),
        ("def f(x=jt.zeros(3)): ...", 1, 0),
        ("@jt.no_grad()\ndef f(): ...", 1, 0),
        ("jt.flags.use_cuda = 1", 1, 0),
        ("class A(jt.Module):\n    def f(self): return jt.zeros(3)\ng = lambda: jt.ones(1)\nx: jt.Var", 0, 0),
        ("y = jt.cumprod(x)", 1, 1),
        ("y = (1 - x)[:, order].cumsum(1)", 0, 1),
        ("y = np.cumsum(counts) + np.cumprod(counts)", 0, 0),
    ],
)
def test_the_rules_of_jittor_see_violations_only(source, at_import, scans):
    tree = ast.parse(source)
    assert (len(rules.jittor_at_import(tree)), len(rules.jittor_scans(tree))) == (at_import, scans)
