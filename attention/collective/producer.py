"""The producer thread: loads queries once for a tile, and keys and values through one ring."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Reg, Ring, for_range, if_, span
from ptxkit.gemm.collective.pipeline import Pipeline
from ptxkit.gemm.collective.tiled import TiledCopy
from ptxkit.types import u32

from .work import Work


@dataclass(frozen=True, slots=True)
class Loads:
    """One operand: its ring, its copies and the position in the ring."""

    pipeline: Pipeline
    copy: TiledCopy
    position: Ring

    def load(self, mn: Reg[u32], k: Reg[u32], head: Reg[u32], batch: Reg[u32]) -> None:
        """Fill the next stage, once it is empty."""
        stage = self.position.stage
        with span("wait"):
            self.pipeline.acquire(stage, self.position.parity)
        with span("load"):
            self.copy.load(stage, mn, k, self.pipeline.expect(stage, self.copy.bytes()), head, batch)
        self.position.advance()


@dataclass(frozen=True, slots=True)
class Producer:
    """Blocks are loaded in the order in which they are waited for. With `ahead` keys go one block ahead of values: the scores of the next
    block are issued before this block's values are multiplied."""

    queries: Loads
    keys: Loads
    values: Loads
    zero: Reg[u32]
    ahead: bool

    def load(self, work: Work, blocks: Reg[u32], group: Reg[u32]) -> None:
        """Load a tile's queries, keys and values. `group` heads of queries share a head of keys."""
        BN = self.keys.copy.tile.layout.rows
        head = work.head // group
        if self.ahead:
            self._keys(work, self.zero, head)
        self.queries.load(work.row + work.start, self.zero, work.head, work.batch)
        with for_range(blocks) as i:
            if self.ahead:
                following = i + 1
                with if_(following < blocks):
                    self._keys(work, following * BN, head)
            else:
                self._keys(work, i * BN, head)
            self.values.load(self.zero, i * BN + work.start, head, work.batch)

    def _keys(self, work: Work, row: Reg[u32], head: Reg[u32]) -> None:
        self.keys.load(row + work.start, self.zero, head, work.batch)

    def tail(self) -> None:
        """Before the producer exits: wait until every stage is empty."""
        for loads in (self.queries, self.keys):     # values are in the ring of the keys
            loads.pipeline.producer_tail(loads.position)


__all__ = ["Loads", "Producer"]
