"""The grid before, in a programmatic dependent launch: what it may still read and write until griddepcontrol.wait returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import SimulationError

if TYPE_CHECKING:
    from .arguments import Arguments

WAYS = ("reads", "writes")


@dataclass(frozen=True, slots=True)
class Use:
    """Bytes of global memory that the grid before uses, and the argument that they belong to."""

    name: str
    start: int
    stop: int
    writes: bool


def uses_of(previous: Mapping[str, Iterable[Any]] | None, arguments: Arguments) -> tuple[Use, ...] | None:
    """The bytes that `previous` names, None if nothing is said. It has "reads" and "writes": each lists parameters by name or index, or
    arrays that lie in the memory of an argument (a view of some rows, for example).
    """
    if previous is None:
        return None
    if not isinstance(previous, Mapping):
        raise SimulationError(f'previous is a mapping of "reads" and "writes" to the arrays that the grid before uses, not {previous!r}')
    unknown = [key for key in previous if key not in WAYS]
    if unknown:
        raise SimulationError(f'previous has "reads" and "writes", not {", ".join(map(repr, unknown))}')
    found = []
    for way in WAYS:
        named = previous.get(way, ())
        if isinstance(named, str | bytes) or not isinstance(named, Iterable):
            raise SimulationError(f'previous["{way}"] is a list of parameters, not {named!r}')
        found += [_use(entry, arguments, way) for entry in named]
    return tuple(found)


def _use(entry: Any, arguments: Arguments, way: str) -> Use:
    names = arguments.names
    if isinstance(entry, np.ndarray):
        place = arguments.place_of(entry)
        if place is None:
            raise SimulationError(f'previous["{way}"]: an array of shape {entry.shape} is in the memory of no argument')
        return Use(*place, way == "writes")
    index = entry if isinstance(entry, int) and not isinstance(entry, bool) else names.index(entry) if entry in names else -1
    if not isinstance(entry, int | str) or not 0 <= index < len(names):
        raise SimulationError(f'previous["{way}"] names {entry!r}; the parameters are {", ".join(names)}')
    part = arguments.part_of(index)
    if part is None:
        raise SimulationError(f'previous["{way}"]: `{names[index]}` is no array')
    return Use(names[index], *part, way == "writes")
