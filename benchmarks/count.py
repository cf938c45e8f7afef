"""Print the sizes of the project: code lines of each part, and words of the English pages.

Code lines are those without docstrings, comments and blank lines: `python -m benchmarks.count [CHECKOUT ...]`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

PARTS = ("models", "data", "tests", "benchmarks")
METHOD = ("fields", "estimators", "rendering", "methods", "training", "ops")
NATIVE = (".h", ".cu", ".c", ".cpp")
UNCOUNTED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def python_lines(text: str) -> int:
    """Lines of Python with a token that is neither comment nor docstring."""
    documented = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            documented.update(range(body[0].lineno, body[0].end_lineno + 1))
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in UNCOUNTED:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - documented)


def native_lines(text: str) -> int:
    """Lines of C++ or CUDA that are neither blank nor comments."""
    return sum(bool(line.strip()) for line in _COMMENT.sub("", text).splitlines())


def sizes(root: Path) -> dict[str, int]:
    """The figures of a checkout by name."""
    python = {
        path: python_lines(path.read_text(encoding="utf-8")) for part in PARTS for path in (root / part).rglob("*.py")
    }
    native = {
        path: native_lines(path.read_text(encoding="utf-8"))
        for part in PARTS
        for path in (root / part).rglob("*")
        if path.suffix in NATIVE
    }
    found = {
        part: sum(count for path, count in python.items() if path.relative_to(root).parts[0] == part) for part in PARTS
    }
    found["models and data"] = found["models"] + found["data"]
    found["method"] = sum(
        n for path, n in python.items() if path.relative_to(root).parts[:2] in {("models", m) for m in METHOD}
    )
    found["native"] = sum(count for path, count in native.items() if path.relative_to(root).parts[0] == "models")
    pages = [*root.glob("docs/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages if "zh-CN" not in page.name}
    found["words of English pages"] = sum(words.values())
    found |= {f"words of {name}": words[name] for name in sorted(words)}
    return found


def main(checkouts: list[Path]) -> None:
    """Print one column per checkout."""
    columns = [sizes(checkout) for checkout in checkouts]
    for name in columns[0]:
        print(f"{name:32}", *(f"{column.get(name, 0):8}" for column in columns))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [Path(__file__).resolve().parents[1]])
