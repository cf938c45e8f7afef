"""No function of Jittor is used whose source calls Python while it is compiled.

Jittor compiles in threads that are not registered with Python: such a call is a segmentation fault from Python 3.12.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

import pages as architecture
import pytest

CALLS_PYTHON = "@python."  # in a text that Jittor compiles
OTHERS = ("np", "numpy", "math", "torch")  # whose functions of these names are their own
PROGRAM = [path for folder in ("models", "tests", "benchmarks") for path in (architecture.ROOT / folder).rglob("*.py")]


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
