"""Layer 3: mma warpgroups that issue their products in turn (CUTLASS's ordered sequence barrier)."""

from __future__ import annotations

from ptxkit import MBarriers, Reg, if_, smem
from ptxkit.idioms import wait
from ptxkit.ptx import bar, mbarrier, mov, selp
from ptxkit.types import u32

from .atoms import WARPGROUP


class OrderedSequence:
    """Pingpong: two warpgroups take turns at the tensor cores. While one multiplies, the other stores its tile.

    order[w]: 4 arrivals, of a lane of each warp of the other warpgroup when that warp has issued its last wgmma of a tile: each has then
    waited for its own turn, and none can miss a phase. Warpgroup 0's first wait is for the phase before the first, which has completed.
    """

    ARRIVALS = 4

    def __init__(self, order: MBarriers, warpgroup: Reg[u32], lane: Reg[u32]) -> None:
        self.mine, self.other = order[warpgroup], order[warpgroup ^ 1]
        self.parity = mov.u32(warpgroup ^ 1)
        self.first = lane == 0

    @staticmethod
    def allocate() -> MBarriers:
        """The two barriers."""
        return smem.mbarrier(2, name="order")

    def wait(self) -> None:
        """Wait for this warpgroup's turn."""
        wait(self.mine, self.parity)
        mov.u32(self.parity, self.parity ^ 1)

    def arrive(self) -> None:
        """Give the turn to the other warpgroup."""
        mbarrier.arrive.shared__cta.b64(self.other, pred=self.first)


class Stagger:
    """Warpgroups that share a tile issue their products one after another, and promote them while those of the others are multiplied.

    Left to themselves they get into step, since they wait for the same stages, and then promote at the same time. Barrier FIRST + w: the
    128 threads of warpgroup w wait there for the 128 of the one before it, which have issued theirs; the first begins by itself.
    """

    FIRST = 4                                   # the barriers below are those of the epilogue

    def __init__(self, warpgroup: Reg[u32], warpgroups: int) -> None:
        self.warpgroup, self.last = warpgroup, warpgroups - 1
        self.mine = warpgroup + self.FIRST
        self.next = selp.u32(self.FIRST, self.mine + 1, warpgroup == self.last)
        with if_(warpgroup == self.last):
            self.arrive()

    def wait(self) -> None:
        """Wait for this warpgroup's turn."""
        bar.sync(self.mine, b=2 * WARPGROUP)

    def arrive(self) -> None:
        """Give the turn to the next warpgroup."""
        bar.arrive(self.next, 2 * WARPGROUP)

    def tail(self) -> None:
        """Before the warpgroup exits: take the turn that is left over."""
        with if_(self.warpgroup == 0):
            self.wait()


__all__ = ["OrderedSequence", "Stagger"]
