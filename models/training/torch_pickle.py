"""A pickle interpreter that can build plain values and what it is handed names for, and can do nothing else.

`pickle.Unpickler` with a guarded `find_class` would still let a file set attributes on what it was given, ask for
gigabytes through a memo index, or stall in the hash of a self-repeating tuple. The few opcodes a checkpoint needs are
therefore carried out here; `pickletools` of the standard library only splits the bytes into opcodes.
"""

from __future__ import annotations

import io
import pickletools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Checkpoints of the published networks need 25 kB; the bound keeps what a hostile file can cost within seconds.
MAX_PICKLE_BYTES = 4 << 20

_LITERALS = frozenset(
    ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
    + ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLE_LENGTHS = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class RefusedError(ValueError):
    """The bytes are damaged, or ask for something no checkpoint needs; the text says which, as half a sentence."""


@dataclass(frozen=True)
class Builder:
    """A function that a pickle may call; it must treat its arguments as hostile."""

    build: Callable[..., Any]


class Stateful:
    """What a pickle may hand a state to after having built it."""

    def take_state(self, state: object) -> None:
        """Make what sense of `state` there is to make; by default none."""


class StateDict(dict, Stateful):
    """Stands in for `collections.OrderedDict`; the attributes PyTorch hangs on it (`_metadata`) are dropped."""


def read_pickle(
    data: bytes, start: int, names: Mapping[str, object], persistent: Callable[[object], object]
) -> tuple[Any, int]:
    """The value pickled at `data[start:]` and the position after it.

    `names` maps "module name" to what the pickle gets for it (a Builder if it may be called); `persistent` resolves
    persistent ids. Raises RefusedError for anything else, `names` the file asks for but does not get included.
    """
    stream = io.BytesIO(data)
    stream.seek(start)
    machine = _Machine(names, persistent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd escapes in damaged text
            for opcode, argument, position in pickletools.genops(stream):
                if (position or 0) - start > MAX_PICKLE_BYTES:
                    raise RefusedError(f"holds a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB")
                machine.execute(opcode.name, argument)
        return machine.pop(), stream.tell()
    except RefusedError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise RefusedError("is damaged: its pickle breaks off or makes no sense") from error


class _Machine:
    """The stack, the marked stacks below it and the memo."""

    def __init__(self, names: Mapping[str, object], persistent: Callable[[object], object]) -> None:
        self.names = names
        self.persistent = persistent
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks that MARK set aside
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Take the top of the stack; IndexError if it is empty."""
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        """Take everything above the last mark."""
        items = self.stack
        self.stack = self.below.pop()
        return items

    def execute(self, name: str, argument: Any) -> None:
        """Carry out one opcode; raises RefusedError for one that no checkpoint needs."""
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLE_LENGTHS:
            self._tuple(_TUPLE_LENGTHS[name])
        elif name in _HANDLERS:
            _HANDLERS[name](self, argument)
        else:
            raise RefusedError(f"uses the pickle operation {name}, which no checkpoint of the published code needs")

    def _tuple(self, length: int) -> None:
        items = [self.pop() for _ in range(length)]
        self.stack.append(tuple(reversed(items)))

    def mark(self, _: Any) -> None:
        """MARK: set the stack aside."""
        self.below.append(self.stack)
        self.stack = []

    def marked_tuple(self, _: Any) -> None:
        """TUPLE: everything above the mark."""
        items = self.pop_mark()
        self.stack.append(tuple(items))

    def extend(self, items: list[Any]) -> None:
        """APPEND, APPENDS: onto the list on top."""
        target = self.stack[-1]
        if type(target) is not list:
            raise RefusedError("is damaged: its pickle appends to what is no list")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        """SETITEM, SETITEMS: keys and values in turn."""
        target = self.stack[-1]
        keys = items[::2]
        if not isinstance(target, dict) or len(items) % 2 or not all(map(_is_key, keys)):
            raise RefusedError("is damaged: its pickle fills a dictionary with what does not fit one")
        target.update(zip(keys, items[1::2], strict=True))

    def remember(self, index: Any) -> None:
        """PUT in all spellings; MEMOIZE has no index of its own."""
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def look_up(self, module: Any, name: Any) -> None:
        """GLOBAL, STACK_GLOBAL: one of the names we were given, or nothing."""
        wanted = f"{module} {name}"
        if wanted not in self.names:
            shown = repr(f"{module}.{name}"[:100])  # a file's own text: neither its length nor its newlines are trusted
            raise RefusedError(f"asks for {shown}, which no checkpoint of the published code needs; nothing was run")
        self.stack.append(self.names[wanted])

    def reduce(self, _: Any) -> None:
        """REDUCE: call a Builder."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Builder) or type(arguments) is not tuple:
            raise RefusedError("is damaged: its pickle calls what is no function")
        try:
            self.stack.append(function.build(*arguments))
        except (TypeError, AttributeError) as error:
            raise RefusedError("is damaged: its pickle builds something from the wrong parts") from error

    def build(self, _: Any) -> None:
        """BUILD: hand a state to what may take one."""
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, Stateful):
            raise RefusedError("is damaged: its pickle gives a state to what has none")
        target.take_state(state)


def _is_key(key: object) -> bool:
    """Text or a 64-bit integer: keys whose hash costs nothing, whatever the file."""
    return type(key) is str or (type(key) is int and key.bit_length() <= 64)


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    if type(name) is not str or type(module) is not str:
        raise RefusedError("is damaged: its pickle names something by what is no text")
    machine.look_up(module, name)


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.update([key, value])


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.look_up(module, name)


def _nothing(machine: _Machine, _: Any) -> None:
    """PROTO, FRAME and STOP change no value."""


_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, index: machine.stack.append(machine.memo[index])),
    "MARK": _Machine.mark,
    "TUPLE": _Machine.marked_tuple,
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_mark()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.update(machine.pop_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "BINPERSID": lambda machine, _: machine.stack.append(machine.persistent(machine.pop())),
}
