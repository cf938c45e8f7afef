"""The forms of an operation that a test goes through: the device's own, plain Jittor, and CUDA's in emulation.

The emulation compiles each CUDA source once, for the CPU, with cuda_emulation.h included first. On a card the device's
own form is CUDA's, so there nothing is emulated: the real one takes the place of the emulated.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cuda_check import own_text
from models.machine import toolchain
from models.machine.backend import jt
from models.ops.source import CUDA, NATIVE, REFERENCE, Source, device, emulated, numbers, use

HEADER = Path(__file__).with_name("cuda_emulation.h")
ORDERS = ("up", "down", "shuffled")  # of threads and blocks, as the header's
DRY = len(ORDERS)  # nothing runs
MOST_PRODUCTS = 1 << 12
# No contractions: what a text asks to be rounded is.
FLAGS = ("-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-ffp-contract=off")
LARGEST_MESSAGE = 1000
MOST_INPUTS = 10  # of Jittor's numpy_code
GUARD = 16  # bytes behind each output that must stay as they are

ENTRY = """
struct Named {{ const char *name; double value; }};
extern "C" int {name}(int order, const Named *named, long count, long rows, void **memory, const long *sizes,
                      long inputs, long outputs, char *message) {{
    std::map<std::string, double> numbers;
    for (long i = 0; i < count; i++) numbers[named[i].name] = named[i].value;
    std::vector<emulation::Array> arrays;
    for (long i = 0; i < inputs + outputs; i++) arrays.push_back({{memory[i], sizes[i]}});
    emulation::Arrays in, out;
    for (long i = 0; i < inputs + outputs; i++) (i < inputs ? in : out).push_back(&arrays[i]);
    emulation::order = order;
    try {{
        emulation::call(neus::{function}, numbers, rows, in, out);
    }} catch (const std::exception &error) {{
        std::strncpy(message, error.what(), {largest});
        return 1;
    }}
    return 0;
}}
"""


class _Named(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Emulator:
    """What `models.ops.source.emulated` takes; `order` is that of threads and blocks."""

    def __init__(self, order="up"):
        self.order = ORDERS.index(order)
        self.called = []  # the functions, in their order

    def __call__(self, source, function, layout, outputs, inputs):
        """The outputs as Jittor's; made when they are asked for, since this may be within `jt.grad`."""
        entry, rows = getattr(library(source), f"emulate_{function}"), inputs[0].shape[0]

        def run(_, data):
            self.called.append(function)
            call(entry, self.order, numbers(layout), rows, data["inputs"], data["outputs"])

        shapes, dtypes = zip(*outputs, strict=True)
        if len(inputs) > MOST_INPUTS and {*dtypes} == {"float32"}:
            return _as_one(run, outputs, inputs)
        if len(inputs) > MOST_INPUTS:  # a verdict among lists of parameters, or sums: nothing differentiates them
            found = [np.empty(shape, dtype) for shape, dtype in outputs]
            run(np, {"inputs": [value.numpy() for value in inputs], "outputs": found})
            with jt.flag_scope(auto_convert_64_to_32=0):
                return [jt.array(value) for value in found]
        return list(jt.numpy_code(list(shapes), list(dtypes), list(inputs), run))


def _as_one(run, outputs, inputs):
    """The same with all inputs joined to one, and the outputs taken from one: numpy_code takes few."""
    shapes = [shape for shape, _ in outputs]

    def split(whole, shapes):
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(whole, ends[:-1]), shapes, strict=True)]

    def run_joined(_, data):
        found = [np.empty(shape, np.float32) for shape in shapes]
        run(np, {"inputs": split(data["inputs"][0], [value.shape for value in inputs]), "outputs": found})
        data["outputs"][0][...] = np.concatenate([value.ravel() for value in found])

    joined = jt.concat([value.reshape((-1,)) for value in inputs], dim=0)
    total = sum(int(np.prod(shape)) for shape in shapes)
    whole = jt.numpy_code([total], "float32", [joined], run_joined)
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    return [whole[int(a) : int(b)].reshape(s) for a, b, s in zip(starts[:-1], starts[1:], shapes, strict=True)]


def call(entry, order, named, rows, inputs, outputs):
    """Run an entry of a library on arrays; the outputs hold NaN at first, and nothing may be written behind them."""
    guarded = [np.full(array.nbytes + GUARD, 0xFF, np.uint8) for array in outputs]
    arrays = [np.ascontiguousarray(array) for array in inputs]
    memory = (ctypes.c_void_p * (len(arrays) + len(guarded)))(*(array.ctypes.data for array in (*arrays, *guarded)))
    sizes = (ctypes.c_long * len(memory))(*(array.size for array in (*arrays, *outputs)))
    values = (_Named * len(named))(*((name.encode(), value) for name, value in named.items()))
    message = ctypes.create_string_buffer(LARGEST_MESSAGE + 1)
    longs = (ctypes.c_long(count) for count in (len(arrays), len(outputs)))
    if entry(order, values, ctypes.c_long(len(named)), ctypes.c_long(rows), memory, sizes, *longs, message):
        raise AssertionError(message.value.decode())
    for array, found in zip(outputs, guarded, strict=True):
        assert (found[array.nbytes :] == 0xFF).all(), "a write behind an output"
        array[...] = found[: array.nbytes].view(array.dtype).reshape(array.shape)


@dataclass(frozen=True)
class Product:
    """C [rows, columns] += A B; whether all operands are aligned to 16 bytes."""

    rows: int
    columns: int
    depth: int
    is_aligned: bool


@dataclass(frozen=True)
class Work:
    """What a function starts."""

    launches: int  # of kernels, beside the products
    products: list[Product]
    scratch: int  # bytes, at a time


def work(source, function, layout, rows):
    """The work of a function for `rows` rows, without running it."""
    built = library(source)
    parameters = parameters_of(source, function)
    room = np.zeros(2 * GUARD, np.uint8)  # of which no value is read
    memory = (ctypes.c_void_p * parameters)(*[-(-room.ctypes.data // GUARD) * GUARD] * parameters)
    sizes, named = (ctypes.c_long * parameters)(), numbers(layout)
    values = (_Named * len(named))(*((name.encode(), value) for name, value in named.items()))
    message = ctypes.create_string_buffer(LARGEST_MESSAGE + 1)
    launches, scratch, copied = ctypes.c_long(), ctypes.c_long(), (ctypes.c_long * (4 * MOST_PRODUCTS))()
    found = (ctypes.byref(launches), ctypes.byref(scratch), copied, ctypes.c_long(MOST_PRODUCTS))
    built.emulated_work(*found)
    longs = (ctypes.c_long(count) for count in (parameters, 0))
    entry = getattr(built, f"emulate_{function}")
    assert entry(DRY, values, ctypes.c_long(len(named)), ctypes.c_long(rows), memory, sizes, *longs, message) == 0
    count = built.emulated_work(*found)
    assert count <= MOST_PRODUCTS
    products = [Product(*copied[4 * i : 4 * i + 3], bool(copied[4 * i + 3])) for i in range(count)]
    return Work(launches.value, products, scratch.value)


@cache
def library(source):
    """The compiled text of a source; kept from run to run, by a hash of all that it is made of."""
    text = f'#include "{HEADER.name}"\n{source.text(CUDA)}\n'
    for function in functions(source):
        entry = f"{function}<emulation::Arrays>" if source.lists else f"{function}<>"
        text += ENTRY.format(name=f"emulate_{function}", function=entry, largest=LARGEST_MESSAGE).replace(
            "Named", f"Named_{function}"
        )
    return build(text)


def build(text):
    """A library of a text that includes the header."""
    command = [toolchain.compiler(), *FLAGS]
    parts = (text, HEADER.read_text(encoding="utf-8"), *command)
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"neus-emulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            new, written = Path(made) / "it.so", Path(made) / "it.cpp"
            written.write_text(text, encoding="utf-8")
            line = [*command, f"-I{HEADER.parent}", str(written), "-o", str(new)]
            done = subprocess.run(line, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:5000]
            os.replace(new, path)
    return ctypes.CDLL(str(path))


def parameters_of(source: Source, function):
    """How many arrays a function of a source's text takes."""
    return re.search(rf"^inline void {function}\((.*?)\) {{", own_text(source), re.MULTILINE | re.DOTALL)[1].count("*")


def functions(source: Source):
    """The functions of a source's text that take one of its layouts first, and so are called from Python."""
    layouts = "|".join(layout.__name__ for layout in source.layouts)
    return re.findall(rf"^inline void (\w+)\(const (?:{layouts}) &", own_text(source), re.MULTILINE)


def emulated_on(name):
    """The forms that are emulated on a device."""
    return () if name == CUDA else tuple(f"cuda, threads {order}" for order in ORDERS)


IS_ON_GPU = device() == CUDA
EMULATED = emulated_on(device())
CUDA_FORMS = EMULATED or (NATIVE,)
OWN_FORMS = (NATIVE, *EMULATED)  # all but the reference
FORMS = (NATIVE, REFERENCE, *EMULATED)
only_on_the_cpu = pytest.mark.skipif(IS_ON_GPU, reason="of the CPU's memory, or in the host's Python")


@contextmanager
def in_form(form):
    """Within it every operation runs in this form; yields the names of the functions that are emulated, or None."""
    if form in EMULATED:
        emulator = Emulator(ORDERS[EMULATED.index(form)])
        with emulated(emulator):
            yield emulator.called
    else:
        with use(form):
            yield None
