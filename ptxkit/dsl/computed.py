"""What `@kernel` is given as a value or as a function of the configuration: blocks, clusters and directives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import PtxkitError, TraceError
from ..grammar.errors import Position
from .source import named, outside

Dim = int | tuple[int, ...] | Callable[[Mapping[str, Any]], "int | tuple[int, ...]"]


def computed(given: Callable[[Mapping[str, Any]], Any], config: Mapping[str, Any], what: str) -> Any:
    """What an author's function of the configuration returns. Raises TraceError, at its line, where it raises."""
    try:
        inspect.signature(given).bind(config)
    except TypeError as error:
        raise TraceError(f"{what} is called with the configuration alone, as `lambda config: config['N']`, and this one is not: "
                         f"{error}") from None
    except ValueError:  # a function of C says nothing of its parameters
        pass
    try:
        return given(config)
    except PtxkitError:
        raise
    except Exception as error:
        where, why = raised(error, config)
        raise TraceError(f"{what} {why}", where) from error


def raised(error: Exception, config: Mapping[str, Any]) -> tuple[Position | None, str]:
    """The author's line that raised, and what a function of a configuration did there, in words."""
    where, at = None, error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if outside(code.co_filename):
            where = Position(named(code.co_filename), at.tb_lineno)
        at = at.tb_next
    if isinstance(error, KeyError) and error.args and error.args[0] not in config:
        return where, (f"asks for {error.args[0]!r}, and the configuration has {', '.join(config) or 'no parameters'}: take one of these, "
                       "or give the kernel a keyword-only parameter of that name")
    spelled = ", ".join(f"{name}={value!r}" for name, value in config.items())
    return where, f"raised {type(error).__name__} for the configuration {spelled or 'without parameters'}: {error}"


def dims(given: Dim, config: Mapping[str, Any], what: str, here: Position) -> tuple[int, int, int]:
    """One to three positive extents as three."""
    value = computed(given, config, what) if callable(given) else given
    extents = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if not 1 <= len(extents) <= 3 or any(type(d) is not int or d < 1 for d in extents):
        raise TraceError(f"{what} is one to three positive extents, not {value!r}", None if callable(given) else here)
    x, y, z, *_ = (*extents, 1, 1)
    return x, y, z


__all__ = ["Dim", "computed", "dims", "raised"]
