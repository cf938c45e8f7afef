"""An operation: a reference in plain Jittor, and native source, a header of csrc/ with a function and a layout.

A module of this package contains one operation, or a few with the same layout: the sizes, the reference, and the calls
of its source in csrc/<device>/. Code outside this package does not depend on the form of a `Kernel`; `use` selects it
for tests and benchmarks.

A layout is a frozen dataclass of numbers, tuples of numbers and other layouts; field names differ from type names. It
is declared in Python; the C++ struct is generated from it, and its values are passed by name. A Python float is a float
in C++, an np.float64 a double. The gradient of a function NAME, if it has one, is the function NAME_backward.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from models.machine.backend import jt
from models.structs import Var

CSRC = Path(__file__).parent / "csrc"
CPU, CUDA = "cpu", "cuda"
BOTH = "both"  # folder of the code common to all devices
JITTED = "jit"  # folder of Jittor's cache, whose files operations include by this name
_LOCAL_LINE = re.compile(r'#pragma once|#include "(.*)"')
# Host functions and kernels that are not templates, at the beginning of a line.
_FUNCTION = re.compile(r"^(template <.*>\n)?inline (?=\w)", re.MULTILINE)
_KERNEL = re.compile(r"^(template <.*>\n)?__global__ inline void (\w+)", re.MULTILINE)
_UNUSED = "template <int Unused = 0> "
_TYPES = {int: "int", bool: "int", float: "float", np.float64: "double"}
Outputs = Sequence[Any]  # a shape each, of float32 numbers, or a shape and a dtype
Typed = Sequence[tuple[tuple[int, ...], str]]  # a shape and a dtype each
# Runs `function(layout, ...)` of a CUDA source, with outputs as Jittor's, at the next synchronisation.
Emulator = Callable[["Source", str, Any, Typed, Sequence[Var]], list[Var]]
# Inputs, outputs and cotangents of an operation -> the inputs of its gradient.
Given = Callable[[list[Var], list[Var], list[Var]], list[Var]]
_emulator: ContextVar[Emulator | None] = ContextVar("emulator", default=None)
NATIVE, REFERENCE = "native", "reference"
_form: ContextVar[str] = ContextVar("form", default=NATIVE)
_written: list[Path] = []


@contextmanager
def emulated(emulator: Emulator) -> Iterator[None]:
    """Within the context operations use their CUDA forms, if they have one, run by the emulator."""
    token = _emulator.set(emulator)
    try:
        yield
    finally:
        _emulator.reset(token)


def written() -> int:
    """The number of sources that this process has written into Jittor's cache, which lacked them."""
    return len(_written)


def device() -> str:
    """The device of the active forms: "cpu" or "cuda"."""
    return CUDA if _emulator.get() is not None or jt.flags.use_cuda else CPU


@contextmanager
def use(form: str) -> Iterator[None]:
    """Within the context every kernel uses this form: REFERENCE, or NATIVE if the device has one (the default)."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


class Kernel:
    """An operation in all its forms, called like a function; all forms take the same arguments."""

    def __init__(self, reference: Callable[..., Any], **native: Callable[..., Any]) -> None:
        """`reference` is the specification, and the form of every device without one in `native`.

        Native forms are given by device, cpu= and cuda=; a source with both is passed as both.
        """
        self.reference = reference
        self._native = native

    @property
    def is_native(self) -> bool:
        """Whether a native form of the device is selected."""
        return _form.get() != REFERENCE and device() in self._native

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result of the selected form."""
        native = None if _form.get() == REFERENCE else self._native.get(device())
        return (native or self.reference)(*arguments, **named)


@dataclass(frozen=True, eq=False)  # each source is one object, found quickly among those that are compiled
class Source:
    """The native source of some operations.

    `constants` become `constexpr` numbers before the source, `layouts` structs, in this order. `lists`: its functions
    take inputs and outputs as lists of Jittor variables, because their number varies.
    """

    header: str
    layouts: tuple[type, ...]
    constants: tuple[tuple[str, float], ...] = ()
    lists: bool = False
    folder: Path = CSRC  # contains a folder for each device, and BOTH

    @classmethod
    def of(cls, header: str, *layouts: type, **constants: float) -> Source:
        """A source with these layouts and constants."""
        return cls(header, layouts, tuple(constants.items()))

    def file(self, device: str) -> Path:
        """The header for a device, which may be that of all devices."""
        own = self.folder / device / self.header
        return own if own.exists() else self.folder / BOTH / self.header

    def text(self, device: str = CPU) -> str:
        """The complete source for a device."""
        return _sparing(self) if device == CUDA else _text(self, device)

    def call(self, function: str, layout: Any, outputs: Outputs, inputs: Sequence[Var]) -> list[Var]:
        """Run `function(layout, rows of the first input, inputs ..., outputs ...)` at the next synchronisation.

        It is compiled at its first use, once per function for any values of `layout`.
        """
        return self.launch(function, layout, _typed(outputs), inputs)

    def launch(self, function: str, layout: Any, outputs: Typed, inputs: Sequence[Var]) -> list[Var]:
        """The same, for shapes with their dtypes."""
        if (emulator := _emulator.get()) is not None:
            return emulator(self, function, layout, outputs, inputs)
        shapes, dtypes = [shape for shape, _ in outputs], [dtype for _, dtype in outputs]
        code = _code(self, device(), function, type(layout).__name__, len(inputs), len(outputs))
        return jt.code(shapes, dtypes, list(inputs), data=numbers(layout), **code)

    def detached(self, function: str, layout: Any, outputs: Outputs, inputs: Sequence[Var]) -> list[Var]:
        """The same, without gradients."""
        return [value.stop_grad() for value in self.call(function, layout, outputs, inputs)]

    def differentiable(
        self,
        function: str,
        layout: Any,
        outputs: Outputs,
        inputs: Sequence[Var],
        trained: Sequence[int] | None = None,
        given: Given | None = None,
    ) -> Any:
        """The same, differentiable once: a Var, or a tuple; outputs that are not floats have no gradient.

        Args:
            trained: indices of the inputs that have gradients; None for all.
            given: the inputs of the gradient; by default `inputs`, then the cotangents. The outputs are only kept for
                it.
        """
        indices = range(len(inputs)) if trained is None else trained
        operation = _Native(self, function, layout, _typed(outputs), list(inputs), indices, given)
        return operation(*(inputs[index] for index in indices))

    def with_slopes(self, function: str, layout: Any, outputs: Outputs, inputs: Sequence[Var]) -> Var:
        """The first output; the others are its derivatives with respect to the first inputs."""
        operation = _WithSlopes(partial(self.call, function, layout, outputs), list(inputs))
        return operation(*inputs[: len(outputs) - 1])


def only_first(inputs: list[Var], outputs: list[Var], cotangents: list[Var]) -> list[Var]:
    """The inputs of a gradient, if only the first output has one."""
    return [*inputs, cotangents[0]]


@cache
def _code(source: Source, name: str, function: str, layout: str, inputs: int, outputs: int) -> dict[str, str]:
    """The arguments of `jt.code` for a call with these numbers of inputs and outputs on a device.

    Jittor copies, compares and hashes them at each launch, and recompiles when they change. So the source is included
    from a file of its cache, which is named by the content.
    """
    text = source.text(name).encode()
    file = f"{JITTED}/{hashlib.sha256(text).hexdigest()[:32]}.h"
    path = Path(jt.flags.cache_path, file)
    if not (path.is_file() and path.read_bytes() == text):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(text)
        unfinished.replace(path)  # other processes see the whole file or none
        _written.append(path)
    places = [f"in{index}_p" for index in range(inputs)] + [f"out{index}_p" for index in range(outputs)]
    arguments = "_inputs, _outputs" if source.lists else ", ".join(["in0->shape[0]", *places])
    line = f"neus::{function}(neus::{layout}(data), {arguments});"
    return {f"{name}_header": f'#include "{file}"\n', f"{name}_src": line}


def _typed(outputs: Outputs) -> Typed:
    """Shape and dtype of each output."""
    return [
        (tuple(entry[0]), entry[1]) if isinstance(entry[-1], str) else (tuple(entry), "float32") for entry in outputs
    ]


class _Native(jt.Function):
    """Stores its inputs, and its outputs if the gradient needs them."""

    def __init__(self, source: Source, *rest: Any) -> None:
        super().__init__()
        self.source, self.saved_outputs = source, list[Var]()
        self.name, self.layout, self.outputs, self.inputs, self.trained, self.given = rest

    def execute(self, *values: Var) -> Var | tuple[Var, ...]:
        """The outputs."""
        inputs = list(self.inputs)
        for index, value in zip(self.trained, values, strict=True):
            inputs[index] = value
        results = self.source.launch(self.name, self.layout, self.outputs, inputs)
        pairs = zip(results, self.outputs, strict=True)
        results = [result if kind == "float32" else result.stop_grad() for result, (_, kind) in pairs]
        if self.given is not None:
            self.saved_outputs = results
        return tuple(results) if len(results) > 1 else results[0]

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of the trained inputs; zeros replace those of outputs that the loss does not depend on."""
        pairs = zip(cotangents, self.outputs, strict=True)
        filled = [jt.zeros(shape) if value is None else value for value, (shape, _) in pairs]
        inputs = [*self.inputs, *filled] if self.given is None else self.given(self.inputs, self.saved_outputs, filled)
        shapes = [self.inputs[index].shape for index in self.trained]
        return tuple(self.source.call(f"{self.name}_backward", self.layout, shapes, inputs))


class _WithSlopes(jt.Function):
    """Stores only the derivatives."""

    def __init__(self, call: Callable[[list[Var]], list[Var]], inputs: list[Var]) -> None:
        super().__init__()
        self.call, self.inputs = call, inputs

    def execute(self, *values: Var) -> Var:
        """The first output."""
        first, *self.slopes = self.call([*values, *self.inputs[len(values) :]])
        return first

    def grad(self, cotangent: Var) -> tuple[Var, ...]:
        """Cotangents of the first inputs."""
        return tuple(slopes * cotangent for slopes in self.slopes)


@lru_cache(maxsize=1024)  # most layouts are those of the step before
def numbers(layout: Any) -> dict[str, float]:
    """The values of a layout by name; tuple entries have numbered names, the length has the plain name."""
    values: dict[str, float] = {}
    for name, value in vars(layout).items():
        if isinstance(value, tuple):
            values[name] = len(value)
            for index, entry in enumerate(value):
                values[f"{name}{index}"] = entry
        elif isinstance(value, np.float64):
            values[name] = float(value)  # Jittor accepts only Python numbers
        elif isinstance(value, int | float):
            values[name] = value
        else:
            values |= numbers(value)
    return values


def _struct(layout: type) -> str:
    """The C++ struct of a layout, initialised from Jittor's map of names to numbers."""
    members, parts, reads = [], [], []
    for name, kind in get_type_hints(layout).items():
        if isinstance(kind, type) and is_dataclass(kind):
            members.append(f"    {kind.__name__} {name};")
            parts.append(f"{name}(data)")
        elif kind in _TYPES:
            members.append(f"    {_TYPES[kind]} {name};")
            reads.append(f'        {name} = ({_TYPES[kind]})data.at("{name}");')
        else:
            entry = _TYPES[get_args(kind)[0]]
            members.append(f"    std::vector<{entry}> {name};")
            reads.append(
                f'        for (int i = 0; i < (int)data.at("{name}"); i++)\n'
                f'            {name}.push_back(({entry})data.at("{name}" + std::to_string(i)));'
            )
    name = layout.__name__
    initialised = f" : {', '.join(parts)}" if parts else ""
    opening = f"    template <typename Numbers> explicit {name}(Numbers &data){initialised} {{"
    return "\n".join([f"struct {name} {{", *members, opening, *reads, "    }", "};"])


@cache
def _text(source: Source, name: str) -> str:
    """Constants, structs, then the header with its local includes inserted once each."""
    kinds: Mapping[type, str] = {int: "int", float: "float"}
    constants = [f"constexpr {kinds[type(value)]} {name} = {value!r};" for name, value in source.constants]
    declared = "\n".join([*constants, *map(_struct, source.layouts)])
    start = f"#include <string>\n#include <vector>\nnamespace neus {{\n{declared}\n}}\n"
    return start + _expanded((source.folder / name, source.folder / BOTH), source.header, set())


@cache
def _sparing(source: Source) -> str:
    """The CUDA source with all functions as templates, so that nvcc compiles only those that an operation calls.

    Otherwise it would compile all lambdas and kernels of a source for each of its operations.
    """
    text = _text(source, CUDA)
    text = _FUNCTION.sub(lambda match: match[0] if match[1] else f"{_UNUSED}inline ", text)
    for kernel in [match[2] for match in _KERNEL.finditer(text) if not match[1]]:
        text = re.sub(
            rf"^__global__ inline void {kernel}\b", f"{_UNUSED}__global__ void {kernel}", text, flags=re.MULTILINE
        )
        text = re.sub(rf"\blaunch\({kernel}\b", f"launch({kernel}<>", text)
    return text


def _expanded(folders: Sequence[Path], header: str, seen: set[str]) -> str:
    """A header, from the first folder that contains it, with its local includes inserted."""
    if header in seen:
        return ""
    seen.add(header)
    path = next((folder / header for folder in folders if (folder / header).exists()), folders[0] / header)
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = [(_LOCAL_LINE.fullmatch(line), line) for line in lines]
    parts = ((_expanded(folders, match[1], seen) if match[1] else "") if match else line for match, line in matches)
    return "\n".join(parts) + "\n"
