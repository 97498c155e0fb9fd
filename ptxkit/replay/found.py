"""What a search for a failing schedule has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..grammar.errors import Finding

if TYPE_CHECKING:
    from .replay import Replay

SEEN = frozenset(("deadlock", "livelock", "memory"))
"""Failures that show without the checker."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place of memory that two schedules leave with different values."""

    array: str
    index: tuple[int, ...]
    usual: str
    here: str
    count: int

    def __str__(self) -> str:
        where = f"{self.array}[{', '.join(map(str, self.index))}]"
        more = f" ({self.count:,} elements of `{self.array}` differ)" if self.count > 1 else ""
        return f"{where} is {self.here}, first come first run gives {self.usual}{more}"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a launch fails: an error of the report (`rule` and where it is), or memory that differs from that of "fifo" (`rule` "memory")."""

    rule: str
    message: str
    finding: Finding | None = None
    differences: tuple[Difference, ...] = ()

    def same(self, other: Failure | None) -> bool:
        """Whether the other is this failure: the same rule at the same place."""
        if other is None or other.rule != self.rule:
            return False
        if self.finding is None or other.finding is None or self.rule in SEEN:
            return True
        return (self.finding.position, self.finding.ptx_line) == (other.finding.position, other.finding.ptx_line)

    def data(self) -> dict[str, Any]:
        return {"rule": self.rule, "message": self.message, "differences": [str(each) for each in self.differences]}


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found: a replay for each failure, the one that shows most first. `runs` and `seconds` are what it took, `schedules`
    is how many different ones were tried before any was shortened. `complete`: it ended by itself, not because its runs or its time were
    used up.
    """

    replays: tuple[Replay, ...]
    runs: int
    seconds: float
    schedules: int
    complete: bool = True

    @property
    def replay(self) -> Replay | None:
        return self.replays[0] if self.replays else None

    def __bool__(self) -> bool:
        return bool(self.replays)

    def _repr_html_(self) -> str:
        from ..html.reports import search

        return search(self)

    def __str__(self) -> str:
        ended = "" if self.complete else ", its limit"
        took = f"{self.schedules} schedules, {self.runs} runs, {self.seconds:.1f} s{ended}"
        if not self.replays:
            return f"no schedule fails ({took})"
        return "\n".join([f"{len(self.replays)} failure{'s' * (len(self.replays) > 1)} ({took})", *map(str, self.replays)])
