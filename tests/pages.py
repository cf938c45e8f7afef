"""What tests read of the repository itself: pages as Markdown, and modules as syntax trees.

Of the README and the pages beside it: commands, links, headings, tables, spans. Of modules: the house rules of
docs/ARCHITECTURE.md.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
CHINESE = ".zh-CN.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HOLE = "…"  # what a quoted message leaves out

PATHS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "data" / "README.md"]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(PATHS)}
PAIRS = {name.replace(CHINESE, ".md"): name for name in TEXTS if name.endswith(CHINESE)}  # English -> Chinese


def outside_fences(text):
    return FENCE.sub("", text)


def blocks(text):
    """(language, lines without comments) of each fenced block."""
    return [(kind, [re.sub(r"\s*#.*", "", line) for line in body.splitlines()]) for kind, body in FENCE.findall(text)]


def bodies(text, kind):
    """The raw text of each fenced block of a language."""
    return [body for language, body in FENCE.findall(text) if language == kind]


def commands(text):
    """The commands of every bash block, each on one line."""
    joined = re.sub(r" *\\\n *", " ", "\n".join(bodies(text, "bash")))
    return [line for line in (re.sub(r"(^|\s+)#.*", "", line) for line in joined.splitlines()) if line]


def spans(text):
    """What stands in backticks outside the fenced blocks."""
    return re.findall(r"`([^`\n]+)`", outside_fences(text))


def headings(text):
    """(hash signs, title) of each heading."""
    return re.findall(r"^(#+) (.+)$", outside_fences(text), re.MULTILINE)


def anchors(text):
    """The anchors GitHub gives the headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in headings(text)}


def rows(text):
    """The cells of each line of a table."""
    lines = re.findall(r"^\| (.*) \|$", outside_fences(text), re.MULTILINE)
    return [re.split(r"(?<!\\)\|", line) for line in lines]


def targets(name):
    """What the links of a page lead to within the project: (path from the root, anchor or "") of each."""
    for target in LINK.findall(TEXTS[name]):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            yield file.resolve(), anchor


def sources():
    """The program's own modules, parsed."""
    paths = [*ROOT.glob("data/**/*.py"), *ROOT.glob("models/**/*.py"), ROOT / "exp_runner.py"]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def literals(tree):
    """Every string of a module, with a hole for each value put into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


MAX_FILE_LINES = 500

# At the root of data: the words that all its packages share.
SHARED_WORDS = {"data", "data.cameras", "data.errors", "data.limits", "data.parsed_scene", "data.pixels", "data.rays"}
# What is computed in a training, and what surrounds it.
CORE: tuple[str, ...] = (
    "data.rays",
    "data.cameras",
    "data.pixels",
    "data.scenes.scene",
    "models.structs",
    "models.plan",
)
CORE += tuple(f"models.{name}" for name in ("fields", "ops", "estimators", "rendering", "methods", "training"))
CORE += tuple(f"models.mesh.{name}" for name in ("extraction", "sparse", "block"))
APPLICATION: tuple[str, ...] = ("data.io", "data.prepare", "data.scenes.readers")
APPLICATION += tuple(f"models.{name}" for name in ("conf", "checkpoints", "runs", "results", "viewer", "commands"))
SCANS = ("cumsum", "cumprod")
MAX_FRAMES = 6  # of our own, between the training loop and a kernel

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: Path) -> str:
    """`models.fields.sdf` for models/fields/sdf.py below the root, `models.fields` for its __init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Name -> path and syntax tree of every module of data/, models/ and of exp_runner."""
    paths = [*(ROOT / "data").rglob("*.py"), *(ROOT / "models").rglob("*.py"), ROOT / "exp_runner.py"]
    return {module_name(path): (path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(paths)}


def floors() -> dict[str, int]:
    """Package -> place in the page's list. An import goes to an earlier place, or stays in its package."""
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.search(r"^the root of `data`(; .*)\.$", page, re.MULTILINE).group(1)
    found = {"data": 0}
    for place, group in enumerate(listed.split(";")):
        for name in re.findall(r"`(\w+)`", group):
            paths = [ROOT / folder / name for folder in ("data", "models", ".")]
            found |= {module_name(path): place for path in paths if path.is_dir() or path.with_suffix(".py").is_file()}
    return found


FLOORS = floors()


def room(module: str) -> str | None:
    """The row of FLOORS that a module belongs to; None where there is none, as for `models`, which holds nothing."""
    package = ".".join(module.split(".")[:2])
    return "data" if package in SHARED_WORDS else package if package in FLOORS else None


def imported(tree: ast.AST, known: set[str]) -> set[str]:
    """The project modules a module imports, those inside functions included; relative imports count as `.`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add(".")
        elif isinstance(node, ast.ImportFrom):
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= members & known or ({node.module} & known)
    return found


def is_of(module: str, packages: Sequence[str]) -> bool:
    """Whether a module is one of the packages or in one of them."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def imported_first(tree: ast.Module, known: set[str]) -> set[str]:
    """The project modules that are imported with a module: without those inside functions or for types alone."""
    rest = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))]
    return imported(ast.Module([node for node in rest if not isinstance(node, Function | ast.ClassDef)], []), known)


def closure(module: str, edges: dict[str, set[str]]) -> set[str]:
    """The modules that must be read to understand one: those that it imports, and those that these import."""
    reached, pending = {module}, [module]
    while pending:
        pending += edges[pending.pop()] - reached
        reached |= set(pending)
    return reached


def climbing(edges: dict[str, set[str]]) -> list[str]:
    """The imports of a higher layer, of another package of the same layer, and relative ones."""
    return [
        f"{importer} imports {target}"
        for importer, targets in edges.items()
        for target in sorted(targets)
        if target == "." or not _may_import(room(importer), room(target))
    ]


def _may_import(importer: str | None, target: str | None) -> bool:
    """Whether the layers allow a package to import another; `models` itself is empty and may be imported.

    No module of data may import from models, in any layer.
    """
    if importer is None or target is None:
        return target is None
    if importer.startswith("data") and not target.startswith("data"):
        return False
    return importer == target or FLOORS[target] < FLOORS[importer]


def between_siblings(edges: dict[str, set[str]]) -> list[str]:
    """The imports from one folder of a package into another of the same package, such as between methods."""
    return [
        f"{importer} imports {target}"
        for importer, targets in edges.items()
        for target in sorted(targets)
        if _folder(importer) != _folder(target)
        and _folder(importer)[:2] == _folder(target)[:2]
        and min(len(_folder(importer)), len(_folder(target))) > 2
    ]


def _folder(module: str) -> tuple[str, ...]:
    """The parts of a module's name up to its last, of which there are at least two."""
    parts = module.split(".")
    return tuple(parts[: max(2, len(parts) - 1)])


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """The modules of an import cycle; [] where there is none."""
    remaining = {name: set(targets) - {name} for name, targets in edges.items()}
    while free := [name for name, targets in remaining.items() if not targets & set(remaining)]:
        for name in free:
            del remaining[name]
    return sorted(remaining)


def jittor_scans(tree: ast.AST) -> list[int]:
    """Line numbers of `cumsum` and `cumprod` that are not NumPy's, see models/ops/volrend.py."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in SCANS]
    return [node.lineno for node in uses if not (isinstance(node.value, ast.Name) and node.value.id == "np")]


def jittor_at_import(tree: ast.AST) -> list[int]:
    """Line numbers at which importing the module would call, or set, something of `jt`."""
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, Function | ast.Lambda)
        for line in (node.body if isinstance(node.body, list) else [node.body])
        for part in ast.walk(line)
    }
    touched = [
        node.func if isinstance(node, ast.Call) else node
        for node in ast.walk(tree)
        if id(node) not in inside
        and (isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)))
    ]
    return [node.lineno for node in touched if ast.unparse(node).split(".")[0] == "jt"]


@contextmanager
def watched(target: CodeType, on_call: Callable[[FrameType], None]) -> Iterator[None]:
    """Calls `on_call` with the frame of each call of `target` in this thread; nothing is replaced."""

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is target:
            on_call(frame)

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def frames_between(frame: FrameType, start: CodeType, own: Callable[[str], bool]) -> list[str] | None:
    """The functions of `own` files on the stack above `frame`, from `start`, itself left out; None without `start`."""
    found: list[str] = []
    above = frame.f_back
    while above is not None and above.f_code is not start:
        if own(above.f_code.co_filename):
            found.append(above.f_code.co_qualname)
        above = above.f_back
    return None if above is None else found[::-1]


def is_ours(filename: str) -> bool:
    """Whether a file is of models/ or data/, or the command line."""
    return filename.startswith((f"{ROOT}/models/", f"{ROOT}/data/")) or filename == f"{ROOT}/exp_runner.py"
