"""Step 3: one warpgroup loads and another computes."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, role, span, tid
from ptxkit.flow import else_
from ptxkit.ptx import bar, mov, wgmma
from ptxkit.types import bf16, u32

from .parts import ROWS, WARPGROUP, Queries, blocks_of
from .producer import STAGES, Operands
from .rung import Rung

BM = ROWS


@kernel(target="sm_90a", block=2 * WARPGROUP)
def specialised(q: TensorMap, k: TensorMap, v: TensorMap, o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
                causal: bool = False) -> None:
    """One thread of warpgroup 0 loads. Warpgroup 1 multiplies and has no loads among its instructions, nor a barrier of the block.

    Keys and values have a ring each (see `Operands` for the barriers): S begins when the keys are there, whether the values are or not.
    """
    operands = Operands(BM, HEAD, BN, warpgroups=1)
    keys, values = operands.keys, operands.values
    thread = mov.u32(tid.x)
    first, head = ctaid.x * BM, mov.u32(ctaid.y)
    blocks = blocks_of(rows, first, BM, BN, causal)
    with if_(thread == 0):
        operands.init()
    bar.sync(0)

    with if_(thread < WARPGROUP):
        with if_(thread == 0):
            role("producer")
            operands.produce(q, k, v, first, head, blocks)

    with else_():
        role("consumer")
        lane = thread - WARPGROUP
        mine, one = Queries(HEAD, BN, lane, first, causal), lane == 0
        operands.wait_for_queries()
        with ring(STAGES, blocks) as (block, stage, parity):
            with span("wait"):
                keys.consumer_wait(stage, parity)
            with span("products"):
                mine.issue_scores(operands.q[0], operands.k[stage])
                wgmma.wait_group.sync.aligned(0)
                keys.consumer_release(stage, pred=one)      # the next keys may be copied while this block's softmax runs
            with span("softmax"):
                mine.keep(mine.weigh(block))
            with span("wait"):
                values.consumer_wait(stage, parity)
            with span("products"):
                mine.issue_output(operands.v[stage])
                wgmma.wait_group.sync.aligned(0)
                values.consumer_release(stage, pred=one)
        with span("store"):
            mine.store(o, head * rows)


RUNG = Rung(3, specialised, BM, "a producer warpgroup, a ring for keys and one for values")
