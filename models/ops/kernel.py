"""What an operation is: one contract, its reference in plain Jittor, and native forms that are held to it.

A module of this package holds one operation, or the few that share a layout: the sizes, the reference, and the calls
into its text in csrc/<device>/. Nothing beyond this package asks which form runs; `use` chooses for tests and
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
    """Within it every kernel runs in this form: REFERENCE, or NATIVE where the device has one (the default)."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


class Kernel:
    """An operation in all its forms, called like a function; each takes the same arguments."""

    def __init__(self, reference: Callable[..., Any], **native: Callable[..., Any]) -> None:
        """`reference` is the specification, and the form of every device without one of its own in `native`.

        Those are named by the device, cpu= and cuda=; a call into a source whose text has both forms is both.
        """
        self.reference = reference
        self._native = native

    @property
    def is_native(self) -> bool:
        """Whether a form of the device's own is the one that is chosen."""
        return _form.get() != REFERENCE and device() in self._native

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result of the form that is chosen."""
        form = self._native[device()] if self.is_native else self.reference
        return form(*arguments, **named)
