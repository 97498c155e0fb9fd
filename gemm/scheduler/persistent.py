"""Persistent loops: the work tile indices of a CTA or cluster, dealt out in advance (static) or drawn from a counter (dynamic)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Reg, clusterid, ctaid, for_range, loop, nclusterid, nctaid
from ptxkit.ptx import add, mov
from ptxkit.types import u32

from .dynamic import DynamicScheduler

Place = Callable[[Reg[u32]], Sequence[Reg[u32]]]
"""Computes where the work tile of an index lies, in up to three words."""


@dataclass(frozen=True, slots=True)
class PersistentLoop:
    """Cluster c of C works on indices c, c + C, ..., or on those that it draws from `dynamic`. Without `clusters`, CTAs do."""

    clusters: bool = False
    dynamic: DynamicScheduler | None = None

    @property
    def from_tail(self) -> bool:
        """Whether indices may come in descending order."""
        return self.dynamic is not None and self.dynamic.from_tail > 0

    def own_index(self) -> tuple[Reg[u32], Reg[u32]]:
        """The index of this cluster, and the number of clusters."""
        if self.clusters:
            return mov.u32(clusterid.x), mov.u32(nclusterid.x)
        return mov.u32(ctaid.x), mov.u32(nctaid.x)

    @contextmanager
    def placed(self, count: Reg[u32], place: Place, turn: Reg[u32] | int = 0, turns: int = 1,
               draws: bool = False) -> Iterator[Sequence[Reg[u32]]]:
        """A loop over this cluster's indices below `count`: each index and the words that `place` computes from it.

        Of every `turns` indices it yields only number `turn`, for warpgroups that take turns. With a dynamic scheduler, the thread with
        `draws` computes `place` and passes the words on to the readers.
        """
        if self.dynamic is not None:
            with (self.dynamic.producer_loop(count, place) if draws else self.dynamic.reader_loop(count, turn, turns)) as found:
                yield found
            return
        own, clusters = self.own_index()
        start = own if isinstance(turn, int) and turn == 0 else own + clusters * turn
        with for_range(count, start=start, step=clusters * turns if turns > 1 else clusters) as index:
            yield index, *place(index)

    @contextmanager
    def continued(self, count: Reg[u32], place: Place, first: Sequence[Reg[u32]]) -> Iterator[Sequence[Reg[u32]]]:
        """The static loop of `placed`, starting from the index and words in `first`. The next place is computed at the end of the body."""
        _, step = self.own_index()
        found = [mov.u32(word) for word in first]
        with loop() as more:
            more.break_if(found[0] >= count)
            yield found
            add.u32(found[0], found[0], step)
            for word, following in zip(found[1:], place(found[0]), strict=True):
                mov.u32(word, following)


__all__ = ["PersistentLoop", "Place"]
