"""Step 5: the warpgroups take turns, so that one computes a softmax while the other one's products run."""

from __future__ import annotations

from ptxkit import Ptr, Reg, Ring, TensorMap, ctaid, for_range, if_, kernel, role, span, tid
from ptxkit.flow import else_
from ptxkit.ptx import bar, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import bf16, u32

from .parts import ROWS, WARPGROUP, Queries, blocks_of
from .producer import STAGES, Operands
from .rung import Rung
from .step04_two_consumers import BM, MMA_REGISTERS, PRODUCER_REGISTERS, WARPGROUPS

FIRST_TURN = 1                      # named barriers 1 and 2; 0 is that of the block
BOTH = WARPGROUPS * WARPGROUP


@kernel(target="sm_90a", block=(1 + WARPGROUPS) * WARPGROUP)
def pingpong(q: TensorMap, k: TensorMap, v: TensorMap, o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
             causal: bool = False) -> None:
    """In a turn a warpgroup issues all its products of a block: the scores of this block, and the weights of the block before times its
    values. Then it gives the turn away. Its softmax, with the exponentials of the special function units, runs during the other's turn.

    Without turns both warpgroups wait for the same stages, so they run in step: both multiply, then both compute exponentials.
    turn[w], named barrier 1 + w: 256 threads of a phase. The 128 of warpgroup w wait (bar.sync). The 128 of the other one have issued their
    products and go on (bar.arrive). Warpgroup 1 gives the first turn, and warpgroup 0 takes the one that is left over at the end: as many
    threads arrive at a barrier as wait at it.
    """
    operands = Operands(BM, HEAD, BN, WARPGROUPS)
    keys, values = operands.keys, operands.values
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    first, head = ctaid.x * BM, mov.u32(ctaid.y)
    blocks = blocks_of(rows, first, BM, BN, causal)
    with if_(thread == 0):
        operands.init()
    bar.sync(0)

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            role("producer")
            operands.produce(q, k, v, first, head, blocks)

    with else_():
        role("consumer")
        setmaxnreg.inc.sync.aligned.u32(MMA_REGISTERS)
        index = warpgroup - 1
        lane, lines = thread & (WARPGROUP - 1), index * ROWS
        mine, one = Queries(HEAD, BN, lane, first + lines, causal, lines), lane == 0
        own, other = index + FIRST_TURN, (index ^ 1) + FIRST_TURN
        of_keys, of_values = Ring(STAGES), Ring(STAGES)                     # values are a block behind keys
        with if_(index == 1):
            bar.arrive(other, BOTH)

        operands.wait_for_queries()
        with span("wait"):
            keys.consumer_wait(of_keys.stage, of_keys.parity)
        with span("products"):
            mine.issue_scores(operands.q[0], operands.k[of_keys.stage])
            wgmma.wait_group.sync.aligned(0)
            keys.consumer_release(of_keys.stage, pred=one)
            of_keys.advance()
        with span("softmax"):
            mine.keep(mine.weigh(mov.u32(0)))
        with for_range(blocks, start=1) as block:
            with span("wait"):
                keys.consumer_wait(of_keys.stage, of_keys.parity)
                values.consumer_wait(of_values.stage, of_values.parity)
            with span("turn"):
                bar.sync(own, b=BOTH)
            with span("products"):
                mine.issue_scores(operands.q[0], operands.k[of_keys.stage])
                mine.issue_output(operands.v[of_values.stage])
                bar.arrive(other, BOTH)                                     # issued, not complete: the tensor cores go on without a gap
                wgmma.wait_group.sync.aligned(0)
                keys.consumer_release(of_keys.stage, pred=one)
                values.consumer_release(of_values.stage, pred=one)
                of_keys.advance()
                of_values.advance()
            with span("softmax"):
                mine.keep(mine.weigh(block))
        with span("wait"):
            values.consumer_wait(of_values.stage, of_values.parity)
        with span("products"):
            mine.issue_output(operands.v[of_values.stage])
            wgmma.wait_group.sync.aligned(0)
        with if_(index == 0):
            bar.sync(own, b=BOTH)                                           # the turn that is left over
        with span("store"):
            mine.store(o, head * rows)


RUNG = Rung(5, pingpong, BM, "the warpgroups issue their products in turns, by named barriers")
