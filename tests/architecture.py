"""What the house rules of docs/ARCHITECTURE.md mean for a parsed module; tests/test_architecture.py applies them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 300

# Room -> floor. The longest prefix of a module's name decides. Floor 0 is the vocabulary that every room shares;
# models.machine.gemm stands beside the backend because it replaces Jittor's own matrix product as Jittor is loaded.
FLOORS = {
    "data.errors": 0,
    "data.config": 0,
    "data.capture": 0,
    "data.rays": 0,
    "data.streams": 0,
    "models.structs": 0,
    "models.machine.backend": 1,
    "data.files": 1,
    "models.machine.available": 1,
    "models.machine.precompiled": 1,
    "models.machine.toolchain": 1,
    "models.machine.gemm": 1,
    "data": 2,
    "models.config": 2,
    "models.config_blocks": 2,
    "models.config_sizes": 2,
    "models.config.hocon": 2,
    "models.config.strict": 2,
    "models.ops": 2,
    "models.machine.memory": 2,
    "models.fields": 3,
    "models.rendering": 4,
    "models.training": 5,
    "models.surface": 5,
    "models.views": 5,
    "models.argument_types": 6,
    "models.arguments": 6,
    "models.experiment": 6,
    "models.results": 6,
    "models.kinds.capacity": 6,
    "models.watch.recovery": 6,
    "models.watch.interrupts": 6,
    "models.watch.lock": 6,
    "models.watch.traces": 6,
    "models.watch.replay": 6,
    "models.runner": 6,
    "models.chunks": 6,
    "models.plan": 6,
    "models.preparation": 6,
    "models.prepare_flags": 6,
    "models.inspection": 6,
    "exp_runner": 7,
}
# Files that belong to one room without being a package.
HOUSEMATES = {
    "data.streams": "data.errors",
    "models.machine.available": "models.machine.backend",
    "models.machine.precompiled": "models.machine.backend",
    "models.machine.toolchain": "models.machine.backend",
    "models.machine.gemm": "models.machine.backend",
    "models.config_blocks": "models.config",
    "models.config_sizes": "models.config",
    "models.watch.recovery": "models.runner",
    "models.experiment": "models.runner",
    "models.watch.interrupts": "models.runner",
    "models.watch.lock": "models.runner",
    "models.watch.traces": "models.runner",
    "models.watch.replay": "models.runner",
    "models.results": "models.runner",
    "models.chunks": "models.runner",
    "models.plan": "models.runner",
    "models.argument_types": "models.arguments",
    "models.preparation": "models.arguments",
    "models.prepare_flags": "models.arguments",
    "models.inspection": "models.runner",
}
MAY_PRINT = ("data.demo",)
THE_TERMINAL = ("data.streams", "data.bars")

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
    """The entry of FLOORS a module belongs to; None where there is none."""
    parts = module.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in FLOORS), None)


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
    """The imports that go up, or sideways into another room of the same floor, or are relative."""
    return [
        f"{importer} imports {target}"
        for importer, targets in edges.items()
        for target in sorted(targets)
        if target == "." or not _may_import(room(importer), room(target))
    ]


def _may_import(importer: str | None, target: str | None) -> bool:
    """Whether the floor plan lets one room import another; `models` itself holds nothing and may be imported."""
    if importer is None or target is None:
        return target is None
    same_room = HOUSEMATES.get(importer, importer) == HOUSEMATES.get(target, target)
    return same_room or FLOORS[target] < FLOORS[importer]


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """The modules of an import cycle; [] where there is none."""
    remaining = {name: set(targets) - {name} for name, targets in edges.items()}
    while free := [name for name, targets in remaining.items() if not targets & set(remaining)]:
        for name in free:
            del remaining[name]
    return sorted(remaining)


def imports_of(tree: ast.AST, package: str) -> list[int]:
    """Line numbers at which running a module imports a package or something in it; `if TYPE_CHECKING` never runs."""
    lines = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        lines += [node.lineno for name in names if name.split(".")[0] == package]
        lines += imports_of(node, package)
    return lines


def functions(tree: ast.AST) -> Iterator[tuple[Function, bool]]:
    """Every function, and whether it is public: no leading underscore in its name or its class's, not nested."""

    def visit(node: ast.AST, public: bool) -> Iterator[tuple[Function, bool]]:
        for child in ast.iter_child_nodes(node):
            shown = public and not getattr(child, "name", "").startswith("_")
            if isinstance(child, Function):
                yield child, shown
                yield from visit(child, False)
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, shown)
            else:
                yield from visit(child, public)

    yield from visit(tree, True)


def too_long(tree: ast.AST) -> list[str]:
    """The functions above MAX_FUNCTION_LINES."""
    return [node.name for node, _ in functions(tree) if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES]


def undocumented(tree: ast.Module) -> list[str]:
    """The module, public classes and public functions without a docstring."""
    found = [] if ast.get_docstring(tree) else ["module"]
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    public = [node for node, shown in functions(tree) if shown]
    return found + [node.name for node in (*classes, *public) if not ast.get_docstring(node)]


def unannotated(tree: ast.AST) -> list[str]:
    """The functions, private ones included, with an argument or a result without a type."""
    found = []
    for node, _ in functions(tree):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        typed = all(arg is None or arg.annotation or arg.arg in ("self", "cls") for arg in arguments)
        if not typed or node.returns is None:
            found.append(node.name)
    return found


def prints(tree: ast.AST) -> list[int]:
    """Line numbers of calls of print."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def terminal_uses(tree: ast.AST) -> list[int]:
    """Line numbers where the process's streams or tqdm are reached for."""
    streams = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in streams]
    reached = [node.lineno for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "sys"]
    return sorted(reached + imports_of(tree, "tqdm"))


def bare_excepts(tree: ast.AST) -> list[int]:
    """Line numbers of `except:` without a type."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is None]


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
