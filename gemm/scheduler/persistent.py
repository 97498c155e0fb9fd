"""Persistent loops: which indices of many a CTA, or a cluster, works on, dealt out in advance or taken from a counter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Reg, clusterid, ctaid, for_range, loop, nclusterid, nctaid
from ptxkit.ptx import add, mov
from ptxkit.types import u32

from .dynamic import Tickets

Place = Callable[[Reg[u32]], Sequence[Reg[u32]]]
"""What is to be known of an index: where it lies, in up to three words."""


@dataclass(frozen=True, slots=True)
class PersistentLoop:
    """Cluster c of C works on c, c + C, ..., or on what it draws from `tickets`. Without `clusters` the same of CTAs."""

    clusters: bool = False
    tickets: Tickets | None = None

    @property
    def from_tail(self) -> bool:
        """Whether indices do not come in their order."""
        return self.tickets is not None and self.tickets.from_tail > 0

    def here(self) -> tuple[Reg[u32], Reg[u32]]:
        """The number of this cluster, and how many there are."""
        if self.clusters:
            return mov.u32(clusterid.x), mov.u32(nclusterid.x)
        return mov.u32(ctaid.x), mov.u32(nctaid.x)

    @contextmanager
    def placed(self, count: Reg[u32], place: Place, turn: Reg[u32] | int = 0, turns: int = 1,
               draws: bool = False) -> Iterator[Sequence[Reg[u32]]]:
        """A loop over this cluster's indices below `count`: each, and what `place` says of it. Of every `turns` of them only number
        `turn`, for warpgroups that take turns. With tickets the thread that `draws` asks, and passes it on."""
        if self.tickets is not None:
            with (self.tickets.drawn(count, place) if draws else self.tickets.passed_on(count, turn, turns)) as found:
                yield found
            return
        here, all_ = self.here()
        start = here if isinstance(turn, int) and turn == 0 else here + all_ * turn
        with for_range(count, start=start, step=all_ * turns if turns > 1 else all_) as index:
            yield index, *place(index)

    @contextmanager
    def continued(self, count: Reg[u32], place: Place, first: Sequence[Reg[u32]]) -> Iterator[Sequence[Reg[u32]]]:
        """A loop over the indices below `count` that are dealt out to this cluster, whose `first` has been found already; each further one
        is found at the end of the one before."""
        _, step = self.here()
        found = [mov.u32(word) for word in first]
        with loop() as more:
            more.break_if(found[0] >= count)
            yield found
            add.u32(found[0], found[0], step)
            for word, following in zip(found[1:], place(found[0]), strict=True):
                mov.u32(word, following)


__all__ = ["PersistentLoop", "Place"]
