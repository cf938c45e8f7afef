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
