"""The interface of an operation: a reference in plain Jittor, and native forms that tests compare with it.

A module of this package contains one operation, or a few with the same layout: the sizes, the reference, and the calls
of its source in csrc/<device>/. Code outside this package does not depend on the form; `use` selects it for tests and
benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from models.ops.source import device

NATIVE, REFERENCE = "native", "reference"
_form: ContextVar[str] = ContextVar("form", default=NATIVE)


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
        form = self._native[device()] if self.is_native else self.reference
        return form(*arguments, **named)
