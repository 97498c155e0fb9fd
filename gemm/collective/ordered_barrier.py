"""Layer 3: mma warpgroups that issue their products in a fixed order (CUTLASS's ordered sequence barrier)."""

from __future__ import annotations

from ptxkit import MBarriers, Reg, if_, smem
from ptxkit.idioms import wait
from ptxkit.ptx import bar, mbarrier, mov, selp
from ptxkit.types import u32

from .atoms import WARPGROUP


class OrderedSequence:
    """Pingpong: two warpgroups take turns at the tensor cores. While one multiplies, the other stores its tile.

    order[w]: 4 arrivals, one lane of each warp of the other warpgroup, after that warp has issued its last wgmma of a tile. A warp arrives
    only after it has waited for its own turn, so no warp can miss a phase. Warpgroup 0 first waits for the phase before phase 0, which
    counts as complete.
    """

    ARRIVALS = 4

    def __init__(self, order: MBarriers, warpgroup: Reg[u32], lane: Reg[u32]) -> None:
        self.mine, self.other = order[warpgroup], order[warpgroup ^ 1]
        self.parity = mov.u32(warpgroup ^ 1)
        self.first = lane == 0

    @staticmethod
    def allocate() -> MBarriers:
        """The two mbarriers."""
        return smem.mbarrier(2, name="order")

    def wait(self) -> None:
        """Wait for this warpgroup's turn."""
        wait(self.mine, self.parity)
        mov.u32(self.parity, self.parity ^ 1)

    def arrive(self) -> None:
        """Give the turn to the other warpgroup."""
        mbarrier.arrive.shared__cta.b64(self.other, pred=self.first)


class Stagger:
    """Warpgroups that share a tile issue their products one after another: each promotes while the products of the others run.

    Without this order they would run in step, because they wait for the same stages, and promote at the same time. At named barrier
    FIRST + w the 128 threads of warpgroup w wait until the 128 threads of the previous warpgroup have issued their products. The first
    warpgroup's first turn is given by the last warpgroup's constructor.
    """

    FIRST = 4                                   # lower barriers are used by the epilogue

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
        """Before the warpgroup exits: the first one takes the turn that is left over."""
        with if_(self.warpgroup == 0):
            self.wait()


__all__ = ["OrderedSequence", "Stagger"]
