"""What a refusal must be: an error of its class that begins with the user's file and line and says what, where and the way out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from ptxkit.errors import Position, PtxkitError, TraceError
from tests.ptxkit.machine import trace


def line_of(function: Callable[..., Any]) -> int:
    """The line of the function that ends in `# wrong`, else its only statement."""
    source, first = inspect.getsourcelines(getattr(function, "function", function))
    marked = [first + i for i, line in enumerate(source) if line.rstrip().endswith("# wrong")]
    return marked[0] if marked else first + len(source) - 1


def refused(function: Callable[..., Any], *words: str, error: type[PtxkitError] = TraceError, at: int | None = None, **how: Any) -> str:
    """The message of tracing `function`: it has every word, and begins with the function's file and the line that is wrong."""
    with pytest.raises(error) as caught:
        trace(function, **how)
    position = getattr(caught.value, "position", None)
    assert isinstance(position, Position)
    assert (position.file, position.line) == (function.__code__.co_filename, at or line_of(function)), str(caught.value)
    message = str(caught.value)
    assert message.startswith(f"{position.file}:{position.line}: ")
    for word in words:
        assert word in message, message
    return message
