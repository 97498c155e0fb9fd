"""Options by name, of the tuner and the bench: one that there is not, or a number that is none, is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import PtxkitError

_AT_LEAST = {"rounds": 1, "jobs": 1, "seconds": 0, "patience_s": 0, "tolerance": 0, "flops": 0, "bytes": 0}


def check_options(options: Mapping[str, Any], known: type, error: type[PtxkitError]) -> None:
    """Raise `error` unless the options are among those of the TypedDict `known`, and numbers are large enough."""
    for word, value in options.items():
        if word not in known.__annotations__:
            raise error(f"there is no option `{word}`; there are {', '.join(known.__annotations__)}")
        least = _AT_LEAST.get(word)
        if least is None or value is None:
            continue
        kind: Any = int if least else int | float
        if not isinstance(value, kind) or isinstance(value, bool) or not least <= value < float("inf"):
            raise error(f"{word}= is {'an int' if least else 'a number'} of at least {least}, not {value!r}")


__all__ = ["check_options"]
