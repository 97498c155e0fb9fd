"""Asynchronous operations: issued now, their reads and writes land when the schedule says.

A task goes through `issued -> read -> done`: at the read milestone it has taken its sources, when it is done its destination is
written and what waits for it (an mbarrier's bytes, a bulk group) has been told. A schedule may land it at issue, when somebody
waits for it, or at any time between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .milestones import DONE, ISSUED, READ
from .values import Array

if TYPE_CHECKING:
    from .fragment import Fragment
    from .machine import Machine
    from .memory import Memory
    from .program import Op


class Region(NamedTuple):
    """Bytes of a memory: `length` bytes from each of `starts` (an int, or an array of places). `unit` divides them all; 0: unknown."""

    memory: Memory
    starts: int | Array
    length: int
    unit: int = 0


@dataclass(slots=True, eq=False)
class Task:
    """One operation of one lane (or, for cp.async, of the lanes of `mask`).

    `kind`: "tensor load", "tensor store", "tensor reduce", "bulk load", "bulk store", "bulk peer" (shared to another CTA), "bulk reduce",
    "copy" (cp.async), "store" (st.async), "reduce" (red.async). `fetch` takes the sources and returns what `deliver` then writes.
    `signals` are the mbarriers (places in the cluster's shared memory) that `bytes` complete on; `phases` are the phases that
    were current there at issue.
    """

    kind: str
    op: Op
    warp: Any
    mask: int
    fetch: Callable[[], Any]
    deliver: Callable[[Any], None]
    reads: list[Region] = field(default_factory=list)
    writes: list[Region] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    bytes: int = 0
    state: int = ISSUED
    held: Any = None
    waiters: list[Fragment] = field(default_factory=list)
    number: int = 0
    readers: list[int] = field(default_factory=list)
    """Of cp.async: per region of `reads` the lanes whose places it has."""
    swizzle: int | None = None
    """Of a tensor copy into shared memory: the span of its pattern in bytes, 16 when there is none."""
    lands: Callable[[], Array] | None = None
    """Of a tensor store: which of the bytes that it reads it writes; None: all of them."""
    box: Any = None
    """Of a tensor copy: what it moves, with the tensor map."""
    element: str = ""
    """Of a tensor reduction: the type of the tensor map's elements."""
    shadow: Any = None
    elected: Any = None
    """The checker's, too: who has issued it, where that is an elected lane."""

    def land(self, machine: Machine, milestone: int = DONE) -> None:
        """Go on to the milestone."""
        watch = machine.watch
        if self.state == ISSUED:
            self.held = self.fetch()
            self.state = READ
            machine.progress += 1
            if watch is not None:
                watch.landed(self, READ)
            machine.wake(self.waiters)
        if self.state == READ and milestone == DONE:
            self.deliver(self.held)
            self.fetch = self.deliver = _over                   # what they hold is a cycle
            self.held = None
            self.state = DONE
            machine.progress += 1
            if watch is not None:
                watch.landed(self, DONE)
            cluster = self.warp.cta.cluster
            for place in self.signals:
                machine.complete_tx(cluster, place, self.bytes, self)
            machine.wake(self.waiters)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number} of {self.warp!r}>"


def _over(*_: Any) -> Any:
    raise AssertionError("an operation that has landed lands again")


@dataclass(slots=True, eq=False)
class Group:
    """Tasks of the lanes of `mask` that are waited for together (cp.async and bulk groups); `open` until it is committed."""

    mask: int
    tasks: list[Task] = field(default_factory=list)
    open: bool = True

    def pending(self, milestone: int) -> list[Task]:
        return [task for task in self.tasks if task.state < milestone]


def join_group(groups: list[Group], task: Task) -> None:
    """Put a task into the open group of its lanes."""
    for group in groups:
        if group.open and group.mask == task.mask:
            group.tasks.append(task)
            return
    groups.append(Group(task.mask, [task]))


def commit(groups: list[Group], mask: int) -> Group:
    """Close what the lanes have issued since their last commit as one group, empty or not."""
    closed = Group(mask, open=False)
    for group in [g for g in groups if g.open and g.mask & mask]:
        closed.tasks += group.tasks
        group.mask &= ~mask
        if not group.mask:
            groups.remove(group)
    groups.append(closed)
    return closed


def due(groups: list[Group], mask: int, newest: int) -> list[Group]:
    """The committed groups that `wait_group newest` of these lanes waits for: for any lane, all but its newest ones."""
    found: list[Group] = []
    seen: dict[int, int] = {}
    alike = True
    kept = 0
    for group in reversed(groups):
        if group.open or not group.mask & mask:
            continue
        if alike and group.mask & mask == mask:
            kept += 1
            if kept > newest:
                found.append(group)
            continue
        if alike:
            alike = False
            seen = {lane: kept for lane in range(32) if mask >> lane & 1}
        wanted = False
        for lane in seen:
            if group.mask >> lane & 1:
                seen[lane] += 1
                wanted = wanted or seen[lane] > newest
        if wanted:
            found.append(group)
    return found[::-1]
