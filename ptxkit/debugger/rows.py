"""What a session shows of the device and of itself, a class for each kind of row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .tables import Row, aligned
from .values import number

UNWRITTEN = "not written"


@dataclass(frozen=True, slots=True)
class WarpRow(Row):
    """Lanes of a warp that are at one place: "next" (they execute the next instruction), "ready", "waits", "parked" (until other lanes of
    their warp come) or "exited".
    """

    cta: int
    warp: int
    lanes: str
    state: str
    at: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class BarrierRow(Row):
    """`phase` is under way. `pending`: arrivals (threads, for a barrier of a CTA or a cluster) that are missing of `expected`."""

    barrier: str
    phase: int
    pending: int
    expected: int
    bytes_outstanding: int | None
    arrived: str
    waiting: str


@dataclass(frozen=True, slots=True)
class FlightRow(Row):
    """An asynchronous operation, or a group of wgmma, that has been issued and has not landed. `number` counts the operations of
    its warp."""

    cta: int
    warp: str
    number: str
    what: str
    bytes: int | None
    source: str
    target: str
    signals: str
    state: str
    at: str
    of_task: Any = None


@dataclass(frozen=True, slots=True)
class RegisterRow(Row):
    """A register of a warp. `of_values` are the values of its 32 lanes; `of_lanes` says by bits which lanes are there."""

    register: str
    name: str
    type: str
    value: str
    of_values: Any
    of_lanes: int

    @property
    def written(self) -> bool:
        return self.value != UNWRITTEN

    def lanes_table(self) -> str:
        """The lanes, eight a row; those that are elsewhere are left blank."""
        rows = [["", *map(str, range(8))]]
        for first in range(0, 32, 8):
            cells = (number(self.of_values[lane]) if self.of_lanes >> lane & 1 else "" for lane in range(first, first + 8))
            rows.append([str(first), *cells])
        return aligned(rows, right=True)


@dataclass(frozen=True, slots=True)
class BreakRow(Row):
    """A breakpoint in a list."""

    number: int
    at: str
    only: str
    hits: int
