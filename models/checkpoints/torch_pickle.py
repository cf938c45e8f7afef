"""Python's unpickler, restricted to the operations of a checkpoint: plain values, and calls of given functions.

A `find_class` alone does not make the unpickler in C safe: a memo index could allocate gigabytes, a recursive tuple as
a key could hang or overflow its stack, and a state could set attributes. The unpickler in Python looks up each
operation in a table, which is restricted here.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, NoReturn

from data.errors import DAMAGE

# Checkpoints of the published networks have 25 kB. One byte can create a list or dictionary of 64 bytes.
MAX_PICKLE_BYTES = 4 << 20

_OPERATIONS = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID"
)
_Python: Any = pickle._Unpickler  # a type checker does not know its parts


class RefusedError(Exception):
    """The file is damaged or has content that no checkpoint needs; the text is a clause that says which."""


class StateDict(dict):
    """Replaces `collections.OrderedDict`, without the attributes that PyTorch adds (`_metadata`)."""

    __slots__ = ()

    def take_state(self, state: object) -> None:
        """Ignore the attributes."""


def read_pickle(stream: IO[bytes], names: Mapping[str, object], persistent: Callable[[object], object]) -> Any:
    """The value pickled in `stream`.

    `names` maps "module name" to its replacement. Functions in it may be called with any arguments; other values must
    not be callable. The returned objects may have a method `take_state` for BUILD. `persistent` resolves persistent
    ids. Raises RefusedError for anything else, including names that are not in `names`.
    """
    data = stream.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise RefusedError(f"holds a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB")
    try:
        return _Unpickler(data, names, persistent).load()
    except (*DAMAGE, pickle.UnpicklingError) as error:
        raise RefusedError("is damaged: its pickle is truncated or invalid") from error


class _Unpickler(_Python):
    """An unpickler with only the operations in `dispatch`, none of which recurses or trusts a length."""

    def __init__(self, data: bytes, names: Mapping[str, object], persistent: Callable[[object], object]) -> None:
        super().__init__(io.BytesIO(data))
        self.names = names
        self.persistent_load = persistent

    def find_class(self, module: str, name: str) -> object:
        """The replacement of a name; raises RefusedError if there is none."""
        wanted = f"{module} {name}"
        if wanted not in self.names:
            shown = repr(f"{module}.{name}"[:100])  # untrusted text, so shortened and escaped
            raise RefusedError(f"references {shown}, which a published checkpoint does not need; nothing was executed")
        return self.names[wanted]

    def load_reduce(self) -> None:
        """REDUCE: call one of the given functions; nothing else on the stack is callable."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not callable(function) or type(arguments) is not tuple:
            raise RefusedError("is damaged: its pickle calls an object that is not a function")
        self.append(function(*arguments))

    def load_build(self) -> None:
        """BUILD: pass a state to `take_state`."""
        state = self.stack.pop()
        self.stack[-1].take_state(state)

    def load_setitem(self) -> None:
        """SETITEM: one key and its value."""
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key], [value])

    def load_setitems(self) -> None:
        """SETITEMS: alternating keys and values."""
        items = self.pop_mark()
        self._fill(items[::2], items[1::2])

    def _fill(self, keys: list[Any], values: list[Any]) -> None:
        """Fill the dictionary on top; keys must be strings or 64-bit integers, since other hashes may hang."""
        target = self.stack[-1]
        are_keys = all(type(key) is str or (type(key) is int and key.bit_length() <= 64) for key in keys)
        if not isinstance(target, dict) or not are_keys:
            raise RefusedError("is damaged: its pickle sets an invalid key of a dictionary")
        target.update(zip(keys, values, strict=True))


class _Table(dict):
    """Handlers by opcode; raises RefusedError for unsupported ones."""

    def __missing__(self, code: int) -> NoReturn:
        name = next((known.name for known in pickletools.opcodes if known.code == chr(code)), f"{code:#04x}")
        raise RefusedError(f"uses the pickle operation {name}, which a published checkpoint does not need")


_Unpickler.dispatch = _Table(
    (code, getattr(_Unpickler, handler.__name__))  # the override if there is one, else the inherited handler
    for code, handler in pickle._Unpickler.dispatch.items()
    if code in {getattr(pickle, name)[0] for name in _OPERATIONS.split()}
)
