"""The mainloop of an mma warpgroup: scores, softmax and the product with the values, one block of keys after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ptxkit import Reg, Ring, Vec, for_range, if_, span
from ptxkit.gemm.collective.atoms import WARPGROUP
from ptxkit.gemm.collective.ordered_barrier import Stagger
from ptxkit.gemm.collective.pipeline import ConsumerSide
from ptxkit.gemm.collective.tiled import TiledMma
from ptxkit.gemm.collective.warpgroups import MmaThread
from ptxkit.ptx import bar, fence, mov, st, wgmma
from ptxkit.ptx import min as min_
from ptxkit.smem import SharedAddress, Tile
from ptxkit.types import Scalar, pred, s32, u32

from .softmax import OnlineSoftmax, mask_columns, pack_weights
from .work import Work


@dataclass(frozen=True, slots=True)
class Operand:
    """The warpgroup's side of one operand: its ring, the position there, its tile, and the stage that this warpgroup holds.

    Keys and values share a ring and a position, so stages are waited for in the order in which they are loaded.
    """

    stages: ConsumerSide
    position: Ring
    tile: Tile[Any]
    stage: Reg[u32]

    def wait(self) -> None:
        """Wait for the ring's next stage, and hold it."""
        with span("wait"):
            self.stages.wait(self.position.stage, self.position.parity)
        mov.u32(self.stage, self.position.stage)
        self.position.advance()

    def release(self) -> None:
        """Release the stage that is held."""
        self.stages.release(self.stage)


@dataclass(frozen=True, slots=True)
class Mask:
    """What hides keys from this warpgroup's rows: the end of the sequence, and with `causal` the keys after a row's own."""

    here: MmaThread
    BN: int
    causal: bool

    def apply(self, scores: Vec[Any, Any], work: Work, block: Reg[u32] | int) -> None:
        """Hide columns of a block of keys."""
        with span("mask"):
            first = self.here.column + block * self.BN
            limits = []
            for half in range(2):
                end = work.keys
                if self.causal:
                    end = min_.u32(end, work.row + self.here.first_row + self.here.row + (8 * half + 1))
                limits.append(_signed(end - first))
            mask_columns(scores, limits)


@dataclass(frozen=True, slots=True)
class Tail:
    """Packed sequences: the rows of V past a sequence's end are the next one's. Their weights are 0, but 0 times infinity is NaN, so the
    mma warpgroups clear them, each a part.

    At named barrier 8 all mma threads wait until every part is cleared.
    """

    here: MmaThread
    warpgroups: int

    BARRIER: ClassVar[int] = 8

    def clear(self, values: Operand, work: Work, block: Reg[u32]) -> None:
        """Clear what a block of keys has past the sequence's end, in a stage that has landed."""
        layout, view = values.tile.layout, values.tile[values.stage]
        BN, lines = layout.columns, 16 * self.warpgroups
        left = work.keys - block * BN
        with if_(left < BN):
            line = self.here.warpgroup * 16 + (self.here.thread >> 3)
            place = view.register() + line * layout.span_bytes + (self.here.thread & 7) * 16
            zero = mov.b32(0)
            for first in range(0, BN, lines):
                past = (line + first >= left) & (line + first < BN) if first + lines > BN else line + first >= left
                for span in range(layout.spans):
                    offset = span * layout.span_stride + first * layout.span_bytes
                    st.shared__cta.v4.b32(SharedAddress(offset, place), Vec((zero, zero, zero, zero)), pred=past)
            fence.proxy.async_.shared__cta()
            bar.sync(self.BARRIER, b=WARPGROUP * self.warpgroups)


def _signed(value: Reg[u32]) -> Reg[s32]:
    """The same bits as a signed number: columns past the end have a limit below 0."""
    found: Reg[s32] = mov.b32(value)
    return found


@dataclass(frozen=True, slots=True)
class Mainloop:
    """The mainloop of one warpgroup. Scores, weights and outputs stay in registers.

    With `overlap` two products are in flight: the scores of block i and the weights of block i - 1 times its values. The softmax of block i
    begins when the first one is complete, and outputs are scaled when the second one is. Without it, the softmax of block i waits for both.
    """

    scores_mma: TiledMma
    output_mma: TiledMma
    scores: Vec[Any, Any]
    output: Vec[Any, Any]
    weights: list[Vec[Any, Any]]
    softmax: OnlineSoftmax
    mask: Mask
    queries: Operand
    keys: Operand
    values: Operand
    turns: Stagger | None
    overlap: bool
    type: type[Scalar]
    tail: Tail | None = None

    def run(self, work: Work, blocks: Reg[u32]) -> None:
        """output = the weighted sum of a tile's values, not normalised."""
        clear = work.clear_blocks(self.mask.here.first_row + mov.u32(0), self.mask.BN, self.mask.causal)
        self.softmax.reset()
        self.queries.wait()
        if self.overlap:
            self._overlapped(work, blocks, clear)
        else:
            self._serial(work, blocks, clear)

    def _overlapped(self, work: Work, blocks: Reg[u32], clear: Reg[u32]) -> None:
        self.keys.wait()
        self._issue_scores()
        wgmma.wait_group.sync.aligned(0)
        self.keys.release()
        self._weigh(work, mov.u32(0), clear)
        pack_weights(self.type, self.scores, self.weights)
        with for_range(blocks, start=1) as block, span("block"):
            self.keys.wait()
            self._wait_turn()
            self._issue_scores()
            self.values.wait()
            self._issue_output(block != 1)
            self._give_turn()
            wgmma.wait_group.sync.aligned(1)
            self.keys.release()
            factors = self._weigh(work, block, clear)
            wgmma.wait_group.sync.aligned(0)
            self.values.release()
            self.softmax.rescale(self.output, factors)
            pack_weights(self.type, self.scores, self.weights)
        self.queries.release()
        self.values.wait()
        self._clear_tail(work, blocks - 1)
        self._issue_output(blocks != 1)
        wgmma.wait_group.sync.aligned(0)
        self.values.release()

    def _serial(self, work: Work, blocks: Reg[u32], clear: Reg[u32]) -> None:
        with for_range(blocks) as block, span("block"):
            self.keys.wait()
            self._wait_turn()
            self._issue_scores()
            wgmma.wait_group.sync.aligned(0)
            self._give_turn()
            self.keys.release()
            factors = self._weigh(work, block, clear)
            self.softmax.rescale(self.output, factors)
            pack_weights(self.type, self.scores, self.weights)
            self.values.wait()
            self._clear_tail(work, block)
            self._issue_output(block != 0)
            wgmma.wait_group.sync.aligned(0)
            self.values.release()
        self.queries.release()

    def _issue_scores(self) -> None:
        wgmma.fence.sync.aligned()
        self.scores_mma.issue([self.scores], self.queries.tile[0], self.keys.tile[self.keys.stage], False)
        wgmma.commit_group.sync.aligned()

    def _issue_output(self, accumulate: Reg[pred]) -> None:
        wgmma.fence.sync.aligned()
        self.output_mma.issue_from_registers([self.output], [self.weights], self.values.tile[self.values.stage], accumulate)
        wgmma.commit_group.sync.aligned()

    def _weigh(self, work: Work, block: Reg[u32], clear: Reg[u32]) -> list[Reg[Any]]:
        with if_(block >= clear):
            self.mask.apply(self.scores, work, block)
        with span("softmax"):
            return self.softmax.weigh(self.scores)

    def _clear_tail(self, work: Work, block: Reg[u32]) -> None:
        if self.tail is not None:
            self.tail.clear(self.values, work, block)

    def _wait_turn(self) -> None:
        if self.turns is not None:
            with span("turn"):
                self.turns.wait()

    def _give_turn(self) -> None:
        if self.turns is not None:
            self.turns.arrive()


__all__ = ["Mainloop", "Mask", "Operand", "Tail"]
