"""Which schedules a proof runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..sim import SCHEDULES, SimulationError

SEEDED = ("random", "adversarial", "spurious")
"""The schedules that go by a seed. The others are alike for all seeds."""
_ORDER = ("fifo", "random", "reverse", "adversarial", "lazy", "starve-producer", "starve-consumer", "delay-cta", "spurious", "elect-high")


Schedules = int | str | Sequence[str | tuple[str, int]]
"""How a caller gives schedules: a number of different ones, or names, with seeds as (name, seed)."""


class Schedule(NamedTuple):
    """A schedule by its name and its seed."""

    name: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.seed}" if self.name in SEEDED else self.name


def schedules_of(given: Schedules) -> tuple[Schedule, ...]:
    """The schedules that are asked for."""
    if isinstance(given, bool) or not isinstance(given, int | str | Sequence):
        raise SimulationError(f"schedules is a number, or a sequence of names or (name, seed), not {given!r}")
    if isinstance(given, int):
        if given < 1:
            raise SimulationError(f"schedules is at least 1, not {given}")
        return _different(given)
    found = tuple(_schedule(each) for each in ((given,) if isinstance(given, str) else given))
    if not found:
        raise SimulationError("schedules is empty: name at least one")
    return found


def _schedule(given: str | tuple[str, int]) -> Schedule:
    made = Schedule(given) if isinstance(given, str) else Schedule(*given)
    if made.name not in SCHEDULES:
        raise SimulationError(f"there is no schedule {made.name!r}; there are {', '.join(SCHEDULES)}")
    return made


def _different(count: int) -> tuple[Schedule, ...]:
    """That many different ones: each name once, those that differ most first; then seeds."""
    names = [*_ORDER, *(name for name in SCHEDULES if name not in _ORDER)]
    found = [Schedule(name, 1 if name in SEEDED else 0) for name in names][:count]
    while len(found) < count:
        seed, place = divmod(len(found) - len(names), len(SEEDED))
        found.append(Schedule(SEEDED[place], seed + 2))
    return tuple(found)
