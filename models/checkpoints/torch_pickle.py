"""Python's own unpickler, narrowed to what a checkpoint needs: plain values, and calls of the functions it is handed.

A `find_class` alone does not make the unpickler in C safe: by a memo index a file would still ask it for gigabytes, a
tuple of itself as a key would stall or overflow its stack, and a state could be set as attributes. The unpickler in
Python looks each operation up in a table: here in one that holds the few a checkpoint needs.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, NoReturn

from data.errors import DAMAGE

# Checkpoints of the published networks need 25 kB. A byte can ask for a list or dictionary of 64 bytes.
MAX_PICKLE_BYTES = 4 << 20

_OPERATIONS = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID"
)


class RefusedError(Exception):
    """The bytes are damaged, or ask for something no checkpoint needs; the text says which, as half a sentence."""


class StateDict(dict):
    """Stands in for `collections.OrderedDict`, and drops the attributes PyTorch hangs on it (`_metadata`)."""

    __slots__ = ()

    def take_state(self, state: object) -> None:
        """Nothing."""


def read_pickle(stream: IO[bytes], names: Mapping[str, object], persistent: Callable[[object], object]) -> Any:
    """The value pickled in `stream`.

    `names` maps "module name" to what the pickle gets for it: its functions may be called with anything, its other
    values must not be callable. What these make may have a method `take_state` for the state a file hands it.
    `persistent` resolves persistent ids. Raises RefusedError for all else, names that are not in `names` included.
    """
    data = stream.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise RefusedError(f"holds a pickle of more than {MAX_PICKLE_BYTES >> 20} MiB")
    try:
        return _Unpickler(data, names, persistent).load()
    except (*DAMAGE, pickle.UnpicklingError) as error:
        raise RefusedError("is damaged: its pickle breaks off or makes no sense") from error


class _Unpickler(pickle._Unpickler):
    """Builds on nothing but the operations in `dispatch`, none of which recurses or trusts a length."""

    def __init__(self, data: bytes, names: Mapping[str, object], persistent: Callable[[object], object]) -> None:
        super().__init__(io.BytesIO(data))
        self.names = names
        self.persistent_load = persistent

    def find_class(self, module: str, name: str) -> object:
        """One of the names we were given, or nothing."""
        wanted = f"{module} {name}"
        if wanted not in self.names:
            shown = repr(f"{module}.{name}"[:100])  # a file's own text: neither its length nor its newlines are trusted
            raise RefusedError(f"asks for {shown}, which a published checkpoint does not need; nothing was run")
        return self.names[wanted]

    def load_reduce(self) -> None:
        """REDUCE: call one of the functions; nothing else on the stack is callable."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not callable(function) or type(arguments) is not tuple:
            raise RefusedError("is damaged: its pickle calls what is no function")
        self.append(function(*arguments))

    def load_build(self) -> None:
        """BUILD: hand a state to what may take one."""
        state = self.stack.pop()
        self.stack[-1].take_state(state)

    def load_setitem(self) -> None:
        """SETITEM: one key and its value."""
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key], [value])

    def load_setitems(self) -> None:
        """SETITEMS: keys and values in turn."""
        items = self.pop_mark()
        self._fill(items[::2], items[1::2])

    def _fill(self, keys: list[Any], values: list[Any]) -> None:
        """Into the dictionary on top: text and 64-bit integers alone as keys, as other hashes may take for ever."""
        target = self.stack[-1]
        are_keys = all(type(key) is str or (type(key) is int and key.bit_length() <= 64) for key in keys)
        if not isinstance(target, dict) or not are_keys:
            raise RefusedError("is damaged: its pickle fills a dictionary with what does not fit one")
        target.update(zip(keys, values, strict=True))


class _Table(dict):
    """Handlers by opcode."""

    def __missing__(self, code: int) -> NoReturn:
        known = pickletools.code2op.get(chr(code))
        name = known.name if known else f"{code:#04x}"
        raise RefusedError(f"uses the pickle operation {name}, which a published checkpoint does not need")


_Unpickler.dispatch = _Table(
    (code, getattr(_Unpickler, handler.__name__))  # ours where it is narrowed, else the inherited one
    for code, handler in pickle._Unpickler.dispatch.items()
    if code in {getattr(pickle, name)[0] for name in _OPERATIONS.split()}
)
