"""What is known of barriers: an mbarrier, or one that counts generations, and its phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array
from .clocks import Home, Lanes, Published, View

if TYPE_CHECKING:
    from ..program import Op


@dataclass(slots=True, eq=False)
class Phase:
    """One phase: what its arrivals publish (at cluster scope; `near`: within the CTA that they come from), and the stamps (clock per lane)
    of its arrivals and of the waits for it.
    """

    view: View
    arrivals: Array
    waits: Array
    near: dict[int, View] = field(default_factory=dict)
    promised: dict[int, tuple[int, Op, int]] = field(default_factory=dict)
    """By lane: when and where it has done what must come before the phase is complete, with no arrival that is known to come after it;
    how many bytes it has announced.
    """
    bytes: bool = False
    arrived: int = 0
    op: Any = None
    with_all: set[int] = field(default_factory=set)
    """Elected lanes that have waited with all lanes that one of them is of: those have waited, each by itself."""
    parts: dict[int, tuple[int, int, Published]] = field(default_factory=dict)
    """By elected lane: among which lanes it is, which of them have arrived, and what it knew before the first of them did."""

    def promise(self, lane: int, clock: int, op: Op, count: int = 0) -> None:
        """A lane lets the phase await more: an arrival, or bytes (`count`)."""
        self.promised[lane] = clock, op, count + self.promised.get(lane, (0, op, 0))[2]

    def follows(self, lane: int, known: Array, count: int | None = None) -> None:
        """A lane arrives, or issues a copy of `count` bytes, and knows this: what it comes after is in time. So it is where more bytes are
        still to come than were announced.
        """
        for other, (clock, op, left) in list(self.promised.items()):
            if other == lane or known[other] >= clock:
                if count is None or left < count:
                    del self.promised[other]
                else:
                    self.promised[other] = clock, op, left - count

    def publish(self, out: Published, rank: int) -> None:
        """An arrival from this CTA publishes."""
        near, far = out.seen[0] or out.done, out.seen[1]
        if rank in self.near:
            self.near[rank].join(near)
        else:
            self.near[rank] = near.copy() if near is not out.done else near
        if near is not out.done:
            self.near[rank].join_done(out.done)
        if far is not None:
            self.view.join(far)
        if far is not out.done:
            self.view.join_done(out.done)

    def late(self, known: Array) -> Array:
        """Who waits, or has waited, and is not known to."""
        late = self.waits > known[:len(self.waits)]
        late[list(self.with_all)] = False
        return late

    def with_elected(self, lanes: Lanes, lane: int, publish: Callable[[Lanes, int], Published]) -> Iterator[Published]:
        """What lanes that this one has elected publish: with the last of those that an elected one is among, it has arrived, too."""
        for double in lanes.doubles:
            if not double.among >> lane & 1:
                continue
            among, come, out = self.parts.get(double.agent, (0, 0, None))
            if out is None or among != double.among or come >> lane & 1:
                come, out = 0, publish(double.lanes, double.mask)
            come |= 1 << lane
            self.parts[double.agent] = double.among, come, out
            if come == double.among:
                yield out

    def fit(self, width: int) -> Phase:
        """With room for the elected lanes that have come since."""
        missing = width - len(self.arrivals)
        if missing > 0:
            self.arrivals, self.waits = np.pad(self.arrivals, (0, missing)), np.pad(self.waits, (0, missing))
        return self


@dataclass(slots=True, eq=False)
class Barrier:
    """An mbarrier, or a generation-counting barrier: its phases by number, its agent, its init's stamp."""

    home: Home
    agent: int
    owner: int = -1
    clock: int = 0
    fenced: bool = False
    phases: dict[int, Phase] = field(default_factory=dict)

    def phase(self, number: int) -> Phase:
        found = self.phases.get(number)
        if found is None:
            width = self.home.reach
            found = self.phases[number] = Phase(self.home.new(), np.zeros(width, np.int32), np.zeros(width, np.int32))
            self.phases.pop(number - 4, None)
        return found if len(found.arrivals) == self.home.reach else found.fit(self.home.reach)

    def before(self, number: int) -> Phase | None:
        """The phase before this one, if there is one."""
        found = self.phases.get(number - 1)
        return found if found is None or len(found.arrivals) == self.home.reach else found.fit(self.home.reach)
