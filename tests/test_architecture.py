"""The code follows the house rules, and each check detects violations."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pages as rules
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


def test_no_file_is_too_long():
    paths = [*PROGRAM_FILES, *(path for path, _ in MODULES.values())]
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {name: count for name, count in lines.items() if count > rules.MAX_FILE_LINES} == {}


@pytest.mark.parametrize("rule", [rules.jittor_at_import, rules.jittor_scans])
def test_nothing_of_jittor_runs_at_import_and_no_scan_is_its(rule):
    found = {name: rule(tree) for name, tree in TREES.items()}
    assert {name: places for name, places in found.items() if places} == {}


def test_the_core_imports_nothing_of_the_application():
    core = {name: targets for name, targets in EDGES.items() if rules.is_of(name, rules.CORE)}
    outside = {name: {one for one in targets if rules.is_of(one, rules.APPLICATION)} for name, targets in core.items()}
    assert len(core) > 80 and {name: targets for name, targets in outside.items() if targets} == {}


@pytest.mark.parametrize(("module", "most", "lines"), [("rendering.render", 12, 1500), ("training.trainer", 26, 3200)])
def test_the_first_files_of_a_reader_lead_to_few_others(module, most, lines):
    first = {name: rules.imported_first(tree, set(TREES)) for name, tree in TREES.items()}
    reached = rules.closure(f"models.{module}", first)
    length = sum(len(MODULES[name][0].read_text(encoding="utf-8").splitlines()) for name in reached)
    assert len(reached) <= most and length <= lines, sorted(reached)


def test_each_rule_sees_a_violation_and_only_that():
    climbs = {
        "data.scenes.scene": "models.config",
        "data.scenes.region": "data.prepare.inspection.epipolar",
        "data.errors": "data.io",
    }
    climbs |= {"models.fields.sdf": ".", "models.attic.box": "data.errors"}
    assert len(rules.climbing({importer: {target} for importer, target in climbs.items()})) == len(climbs)
    assert rules.climbing({"models.fields.sdf": {"models.fields.layers", "data.io.files"}}) == []
    nerf, neus = "models.methods.nerf.model", "models.methods.neus.conf"
    assert rules.between_siblings({nerf: {neus, "models.methods.protocol"}}) == [f"{nerf} imports {neus}"]
    assert rules.cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    source = "from models import config\ndef f():\n    from models.fields.sdf import SdfNetwork\n    import data.rays"
    known = {"models.config", "models.fields.sdf", "data.rays"}
    assert rules.imported(ast.parse(source), known | {"models.fields"}) == known
    lazy = "if TYPE_CHECKING:\n    from models import config\nimport data.rays\n" + source.partition("\n")[2]
    assert rules.imported_first(ast.parse(lazy), known) == {"data.rays"}
    assert rules.closure("a", {"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}) == {"a", "b", "c"}
    assert rules.is_of("models.ops", ["models.ops"]) and not rules.is_of("models.opsin", ["models.ops"])
    for text in ("class A:\n    x = jt.nn.Linear(3, 3)", "def f(x=jt.zeros(3)): ...", "jt.flags.use_cuda = 1"):
        assert rules.jittor_at_import(ast.parse(text))
    assert rules.jittor_at_import(ast.parse("class A(jt.Module):\n    def f(self): return jt.zeros(3)")) == []
    assert rules.jittor_scans(ast.parse("y = (1 - x)[:, order].cumsum(1)\nz = np.cumsum(counts)")) == [1]


# No function of Jittor is used whose source calls Python while it is compiled. Jittor compiles in threads that are not
# registered with Python: such a call is a segmentation fault from Python 3.12.
CALLS_PYTHON = "@python."  # in a text that Jittor compiles
OTHERS = ("np", "numpy", "math", "torch")  # whose functions of these names are their own
PROGRAM = [*PROGRAM_FILES, *(rules.ROOT / "models").rglob("*.py")]


def calling(source):
    """The functions of a module that hold such a text, or call one that does."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    texts = {node.name: ast.get_source_segment(source, node) for node in functions}
    found = {name for name, text in texts.items() if CALLS_PYTHON in text}
    while more := {name for name, text in texts.items() if any(f"{other}(" in text for other in found)} - found:
        found |= more
    return found


def used(source, names):
    """Lines that reach for one of them."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in names]
    return [node.lineno for node in nodes if not (isinstance(node.value, ast.Name) and node.value.id in OTHERS)]


@pytest.mark.slow
def test_the_program_uses_none_of_them():
    sources = [path.read_text(encoding="utf-8") for path in Path(find_spec("jittor").origin).parent.glob("*.py")]
    names = set().union(*(calling(source) for source in sources if CALLS_PYTHON in source))
    found = {path.name: lines for path in PROGRAM if (lines := used(path.read_text(encoding="utf-8"), names))}
    assert names and len(PROGRAM) > 100 and found == {}
