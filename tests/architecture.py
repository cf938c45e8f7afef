"""Checks of the house rules of docs/ARCHITECTURE.md on parsed modules, for tests/test_architecture.py."""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 300

# Package -> layer; the modules at the root of data are one package. An import goes to a lower layer, or stays
# in its package. Floors of data lie between those of models: what computes knows rays and files, and no scene.
FLOORS = {
    "data": 0,
    "data.demo": 0,
    "models.requests": 0,
    "models.structs": 0,
    "data.io": 1,
    "data.readers": 2,
    "models.machine": 2,
    "data.config": 3,
    "data.roi": 3,
    "models.config": 3,
    "data.scenes": 4,
    "models.ops": 4,
    "data.inspection": 5,
    "data.writers": 5,
    "models.fields": 5,
    "data.prepare": 6,
    "models.estimators": 6,
    "models.rendering": 6,
    "models.methods": 7,
    "models.checkpoints": 8,
    "models.surface": 8,
    "models.doctor": 9,
    "models.training": 9,
    "models.monitoring": 10,
    "models.experiment": 11,
    "models.results": 12,
    "models.evaluation": 13,
    "models.callback": 14,
    "models.report": 15,
    "models.viewer": 15,
    "models.runner": 16,
    "models.interface": 17,
    "models.commands": 18,
    "models.installed": 18,
    "exp_runner": 19,
}
# Modules at the root of a folder of packages. data's are the words that all its packages share.
LOOSE = {
    "data": {"cameras", "config", "errors", "parsed_scene", "rays"},
    "models": {"callback", "experiment", "interface", "requests", "runner", "structs"},
}
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


def room(module: str) -> str | None:
    """The row of FLOORS that a module belongs to; None where there is none, as for `models`, which holds nothing."""
    parts = module.split(".")
    package = ".".join(parts[:2])
    if package in FLOORS:
        return package
    return "data" if parts[0] == "data" and package in ("data", *(f"data.{name}" for name in LOOSE["data"])) else None


def loose(names: Iterable[str], folder: str, packages: Iterable[str]) -> set[str]:
    """The modules at the root of `folder` that are not packages."""
    found = {name.split(".")[1] for name in names if name.startswith(f"{folder}.")}
    return found - {name.split(".")[1] for name in packages if name.startswith(f"{folder}.")}


def packages() -> set[str]:
    """The packages right below data/ and models/."""
    files = [path for folder in LOOSE for path in (ROOT / folder).glob("*/*.py")]
    return {".".join(path.parent.relative_to(ROOT).parts) for path in files}


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


def between_packages(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same imports between packages; a loose module is one of its own, but at the root of data."""
    found: dict[str, set[str]] = {}
    for importer, targets in edges.items():
        own = room(importer) or importer
        found.setdefault(own, set()).update(room(target) or target for target in targets)
    return {name: {target for target in targets if target != name} for name, targets in found.items()}


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """The modules of an import cycle; [] where there is none."""
    remaining = {name: set(targets) - {name} for name, targets in edges.items()}
    while free := [name for name, targets in remaining.items() if not targets & set(remaining)]:
        for name in free:
            del remaining[name]
    return sorted(remaining)


def too_long(tree: ast.AST) -> list[str]:
    """The functions above MAX_FUNCTION_LINES."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [node.name for node in functions if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES]


def jittor_scans(tree: ast.AST) -> list[int]:
    """Line numbers of `cumsum` and `cumprod` that are not NumPy's, see models/ops/scan.py."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in SCANS]
    return [node.lineno for node in uses if not (isinstance(node.value, ast.Name) and node.value.id == "np")]


def jittor_at_import(tree: ast.AST) -> list[int]:
    """Line numbers at which importing the module would call, or set, something of `jt`."""

    def executed(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function | ast.Lambda):
                defaults = [*child.args.defaults, *(default for default in child.args.kw_defaults if default)]
                for part in (*getattr(child, "decorator_list", []), *defaults):
                    yield part
                    yield from executed(part)
            else:
                yield child
                yield from executed(child)

    def touches(node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return _root(node.func) == "jt"
        return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _root(node) == "jt"

    return [node.lineno for node in executed(tree) if touches(node)]


def _root(node: ast.AST) -> str:
    """`jt` for jt.flags.use_cuda; "" where the expression does not start at a name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
