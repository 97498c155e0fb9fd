"""The trace in progress. Every instruction is added to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import TraceError

if TYPE_CHECKING:
    from .trace import Builder

_builder: ContextVar[Builder | None] = ContextVar("ptxkit_builder", default=None)


def current() -> Builder:
    """The trace in progress."""
    builder = _builder.get()
    if builder is None:
        raise TraceError("PTX instructions can only be called while a @kernel function is being traced")
    return builder


def tracing_now() -> Builder | None:
    """The trace in progress, None outside of one."""
    return _builder.get()


@contextmanager
def tracing(builder: Builder) -> Iterator[Builder]:
    """Make `builder` the trace in progress."""
    token = _builder.set(builder)
    try:
        yield builder
    finally:
        _builder.reset(token)
