"""Functions of the Python interface: their arguments are checked, and they print nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from data.errors import UserError
from data.io.streams import quiet
from data.limits import shown

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """The function without output; raises UserError for an argument of no class that its annotation names.

    Names are compared, as not every class of an annotation is imported. A Sequence is a list or a tuple.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        for name, value in inspect.signature(function).bind(*arguments, **named).arguments.items():
            kind = function.__annotations__[name]
            if not _is_of(value, kind):
                raise UserError(f"{function.__name__}: {name} = {shown(value)} must be {kind}")
        with quiet():
            return function(*arguments, **named)

    return call


def _is_of(value: Any, kind: str) -> bool:
    outer, _, inner = kind.removesuffix("]").partition("[")
    if isinstance(value, tuple | list):
        return outer == "Sequence" and all(_is_of(item, inner) for item in value)
    classes = {"None"} if value is None else {parent.__name__ for parent in value.__class__.__mro__}
    names = outer.split(" | ")
    return not classes.isdisjoint(names) or (isinstance(value, int) and "float" in names)
