"""What a recorder writes down: events, operations in flight, phases of barriers, waits, and what findings are about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..grammar.errors import Finding
    from ..sim.told import Site, Space

Who = tuple[int, int]
"""(CTA, warp)."""
LIMIT = 100_000
"""Events that a record keeps: the last ones."""


@dataclass(slots=True, eq=False)
class Touched:
    """The bytes of an access, from each of `places`."""

    memory: Space
    places: Any
    size: int
    verb: str


@dataclass(slots=True, eq=False)
class Event:
    """One thing that happened. `step` counts warp instructions, `row` names the barrier or the flight that it is also about."""

    number: int
    step: int
    kind: str
    who: Who | None
    mask: int
    op: Site | None
    words: str
    row: str = ""
    touched: tuple[Touched, ...] = ()
    flight: Flight | None = None


@dataclass(slots=True, eq=False)
class Flight:
    """An asynchronous operation, or a group of wgmma, from its issue on. Numbers are those of events."""

    words: str
    who: Who
    op: Site
    issued: int
    read: int | None = None
    landed: int | None = None
    touched: tuple[Touched, ...] = ()


@dataclass(slots=True, eq=False)
class Phase:
    """One phase of a barrier: the numbers of its events, and who arrived."""

    number: int
    start: int
    wanted: int
    arrivals: list[tuple[int, Who, int, int]] = field(default_factory=list)
    """(event, who, lanes, count)."""
    announced: int = 0
    came: int = 0
    end: int | None = None


@dataclass(slots=True, eq=False)
class Asleep:
    """A fragment waits from one event to another (None: to the end). `lacks` says what is missing and of whom."""

    who: Who
    mask: int
    op: Site
    words: str
    row: str
    start: int
    end: int | None = None
    lacks: str = ""
    missing: tuple[Who, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A finding with the event in which it was found and, of a race, the access before (None: it is not kept)."""

    finding: Finding
    second: Event | None
    first: Event | None
    other: Site | None = None
    """The instruction of the access before."""


class Record(ABC):
    """What a run did: its last `limit` events, all barriers' phases and asynchronous operations, the waits, and which events a finding is
    about.
    """

    limit: int
    count: int
    """How many events there were."""
    events: deque[Event]
    turns: deque[tuple[int, Who]]
    """(the first event of a turn, whose it is)."""
    phases: dict[str, list[Phase]]
    """By barrier."""
    flights: deque[Flight]
    sleeps: deque[Asleep]
    marks: list[Mark]
    said: dict[str, int]
    """How many events there were of each kind."""
    choices: tuple[str, ...] = ()
    """Where the schedule was not the usual one, as sentences."""

    @abstractmethod
    def writer(self, name: str, array: Any, index: tuple[int, ...]) -> Event | None:
        """The last event that wrote this element of an argument's array."""

    @abstractmethod
    def says(self, event: Event) -> str:
        """The event as a sentence."""

    @abstractmethod
    def where(self, touched: Touched, event: Event) -> str:
        """The bytes of an access by their author's names."""


def people(who: Who, mask: int = 0) -> str:
    """A warp, with its lane where only one is meant."""
    lane = f" lane {mask.bit_length() - 1}" if mask and mask & mask - 1 == 0 else ""
    return f"CTA {who[0]} warp {who[1]}{lane}"


def crowd(warps: Sequence[Who]) -> str:
    """Warps by CTA, those that follow each other as a range."""
    parts = []
    for cta in sorted({who[0] for who in warps}):
        runs: list[list[int]] = []
        for warp in sorted({who[1] for who in warps if who[0] == cta}):
            if runs and runs[-1][-1] == warp - 1:
                runs[-1].append(warp)
            else:
                runs.append([warp])
        said = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        parts.append(f"CTA {cta} warp{'s' if len(runs) > 1 or len(runs[0]) > 1 else ''} {said}")
    return ", ".join(parts)


def overlap(a: Touched, b: Touched) -> bool:
    """Whether two accesses share a byte."""
    if a.memory is not b.memory:
        return False
    one, two = np.atleast_1d(np.asarray(a.places, np.int64)), np.atleast_1d(np.asarray(b.places, np.int64))
    if not len(one) or not len(two) or one.min() >= two.max() + b.size or two.min() >= one.max() + a.size:
        return False
    two = np.sort(two)
    at = np.searchsorted(two, one - b.size, side="right")
    inside = at < len(two)
    return bool((two[at[inside]] < one[inside] + a.size).any())
