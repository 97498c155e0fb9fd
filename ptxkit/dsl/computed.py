"""What `@kernel` is given as a value or as a function of the configuration: blocks, clusters and directives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import TraceError
from ..grammar.errors import Position

Dim = int | tuple[int, ...] | Callable[[Mapping[str, Any]], "int | tuple[int, ...]"]


def computed(given: Callable[[Mapping[str, Any]], Any], config: Mapping[str, Any], what: str) -> Any:
    """What an author's function of the configuration returns."""
    try:
        inspect.signature(given).bind(config)
    except TypeError as error:
        raise TraceError(f"{what} is called with the configuration alone, as `lambda config: config['N']`, and this one is not: "
                         f"{error}") from None
    except ValueError:  # a function of C says nothing of its parameters
        pass
    return given(config)


def dims(given: Dim, config: Mapping[str, Any], what: str, here: Position) -> tuple[int, int, int]:
    """One to three positive extents as three."""
    value = computed(given, config, what) if callable(given) else given
    extents = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if not 1 <= len(extents) <= 3 or any(type(d) is not int or d < 1 for d in extents):
        raise TraceError(f"{what} is one to three positive extents, not {value!r}", None if callable(given) else here)
    x, y, z, *_ = (*extents, 1, 1)
    return x, y, z


__all__ = ["Dim", "computed", "dims"]
