"""A space of points: values of compile-time parameters, and conditions that say which points are asked for."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from ..dsl.computed import raised
from ..dsl.values import FieldError, named, to_json
from ..errors import PtxkitError

Point = tuple[tuple[str, Any], ...]
"""Parameters with their values, in the order of the space. `dict(point)` is a configuration."""
Condition = Callable[..., Any]


class SpaceError(PtxkitError, ValueError):
    """A space that says nothing, or a condition about a parameter that it does not have."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """A point that a condition leaves out, with that condition in words."""

    point: Point
    why: str


class Space:
    """Every combination of the values of its parameters that its conditions allow.

        Space(BLOCK=(64, 128, 256), STAGES=(2, 3, 4)).where(lambda BLOCK, STAGES: BLOCK * STAGES <= 512, "at most 512 in flight")

    A condition is a function of some parameters, by name. The sentence says what it is for; without one, the names of its parameters do.
    """

    def __init__(self, **values: Iterable[Any]) -> None:
        for name, given in values.items():
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise SpaceError(f"the space has {given!r} for `{name}`: give its values, as {name}=({given!r},)")
        self.values = {name: tuple(value.item() if isinstance(value, np.generic) else value for value in given)
                       for name, given in values.items()}
        self.conditions: tuple[tuple[Condition, tuple[str, ...], str], ...] = ()
        for name, given in self.values.items():
            if not given:
                raise SpaceError(f"the space has no value for `{name}`: give at least one, as {name}=(64, 128)")
            for value in given:
                try:
                    hash(value)
                except TypeError:
                    raise SpaceError(f"the space has {value!r} for `{name}`, which may change: give a value that can be hashed, as a "
                                     "tuple") from None
            if len({spelled(value) for value in given}) != len(given):
                raise SpaceError(f"the space has a value of `{name}` twice: {', '.join(map(spelled, given))}")

    def where(self, condition: Condition, sentence: str = "") -> Space:
        """The space of the points for which `condition` is true, too."""
        names = self._asked_by(condition)
        made = Space(**self.values)
        made.conditions = (*self.conditions, (condition, names, sentence or f"a condition on {', '.join(names)}"))
        return made

    def _asked_by(self, condition: Condition) -> tuple[str, ...]:
        if not callable(condition):
            raise SpaceError(f"a condition is a function of parameters, as `lambda BLOCK: BLOCK <= 512`, not {condition!r}")
        parameters = inspect.signature(condition).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return tuple(self.values)
        for parameter in parameters:
            if parameter.name not in self.values:
                raise SpaceError(f"a condition asks for `{parameter.name}`, the space has {', '.join(self.values) or 'no parameters'}: its "
                                 "arguments have the names of the parameters, as `lambda BLOCK, STAGES: BLOCK * STAGES <= 512`")
        return tuple(parameter.name for parameter in parameters)

    def points(self) -> tuple[list[Point], list[Unasked]]:
        """Those that are asked for, in the order of the values, the last parameter fastest; and the others."""
        asked: list[Point] = []
        others: list[Unasked] = []
        for values in itertools.product(*self.values.values()):
            point = tuple(zip(self.values, values, strict=True))
            why = self._refused(dict(point))
            if why is None:
                asked.append(point)
            else:
                others.append(Unasked(point, why))
        return asked, others

    def _refused(self, config: Mapping[str, Any]) -> str | None:
        for condition, names, sentence in self.conditions:
            asked = {name: config[name] for name in names}
            try:
                holds = condition(**asked)
            except Exception as error:
                where, why = raised(error, asked)
                raise SpaceError(f"{where or sentence}: a condition of the space {why}") from error
            if not holds:
                return sentence
        return None

    def _repr_html_(self) -> str:
        from ..html.measures import space

        return space(self, [words(point) for point in self.points()[0]])

    def __repr__(self) -> str:
        return f"Space({', '.join(f'{name}={given!r}' for name, given in self.values.items())})"


class Points(Space):
    """A space whose points are written down one by one."""

    def __init__(self, given: Iterable[Mapping[str, Any]]) -> None:
        super().__init__()
        listed = list(given) if isinstance(given, Iterable) else [given]
        if not all(isinstance(one, Mapping) for one in listed):
            raise SpaceError(f"a space is {{'BLOCK': (64, 128)}}, parameters with their values, or a list of points, "
                             f"[{{'BLOCK': 64}}, ...], not {given!r}")
        self.listed = [tuple(one.items()) for one in listed]
        if not self.listed:
            raise SpaceError("the space has no points: give parameters with their values, as {'BLOCK': (64, 128)}, or a list of points")

    def points(self) -> tuple[list[Point], list[Unasked]]:
        return list(self.listed), []


Given = Space | Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]]


def space_of(given: Given) -> Space:
    """A Space is itself; a mapping has the values of each parameter; a list has points."""
    if isinstance(given, Space):
        return given
    if isinstance(given, Mapping):
        if not given:
            raise SpaceError("the space has no parameters: give some with their values, as {'BLOCK': (64, 128)}")
        return Space(**given)
    return Points(given)


def spelled(value: Any) -> str:
    """A value as text that is the same in every process: of plain values, of types by their names, of dataclasses by their fields."""
    if isinstance(value, type) or callable(value):
        line = getattr(getattr(value, "__code__", None), "co_firstlineno", "")      # two lambdas have one name
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}{line and f':{line}'}"
    try:
        return json.dumps(named(value) if is_dataclass(value) else to_json(value))
    except (FieldError, TypeError, ValueError):
        return repr(value)


def words(point: Point) -> str:
    """A point as text: `BLOCK=128 STAGES=3`."""
    return " ".join(f"{name}={getattr(value, '__name__', None) or value!r}" for name, value in point) or "the only point"


def digest(points: Sequence[Point]) -> str:
    """What tells this space from others: its points, in their order."""
    text = json.dumps([[(name, spelled(value)) for name, value in point] for point in points])
    return hashlib.sha256(text.encode()).hexdigest()


def within(points: Sequence[Point], fixed: Mapping[str, Any]) -> list[Point]:
    """The points with these values, where they have those parameters."""
    return [point for point in points if all(value == fixed[name] for name, value in point if name in fixed)]


__all__ = ["Given", "Point", "Points", "Space", "SpaceError", "Unasked", "digest", "space_of", "spelled", "within", "words"]
