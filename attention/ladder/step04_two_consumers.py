"""Step 4: two warpgroups compute, for 128 queries."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, role, span, tid
from ptxkit.flow import else_
from ptxkit.ptx import bar, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import bf16, u32

from .parts import ROWS, WARPGROUP, Queries, blocks_of
from .producer import STAGES, Operands
from .rung import Rung

WARPGROUPS = 2
BM = WARPGROUPS * ROWS
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232     # 128 x 40 + 256 x 232 = 64,512 = 384 x 168, the registers at entry


@kernel(target="sm_90a", block=(1 + WARPGROUPS) * WARPGROUP)
def two_consumers(q: TensorMap, k: TensorMap, v: TensorMap, o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
                  causal: bool = False) -> None:
    """Two warpgroups with 64 queries each read the same keys and values: a byte that is loaded serves twice as many products.

    384 threads have 168 registers each, and a thread of step 3 needs 160 for scores, weights and outputs alone. So the producer warpgroup
    gives up registers, and the others take them (setmaxnreg). empty[stage]: 2 arrivals, one thread of each mma warpgroup.
    While one warpgroup computes a softmax the other may multiply, but nothing makes them take turns.
    """
    operands = Operands(BM, HEAD, BN, WARPGROUPS)
    keys, values = operands.keys, operands.values
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
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
        lane, lines = thread & (WARPGROUP - 1), (warpgroup - 1) * ROWS
        mine, one = Queries(HEAD, BN, lane, first + lines, causal, lines), lane == 0
        operands.wait_for_queries()
        with ring(STAGES, blocks) as (block, stage, parity):
            with span("wait"):
                keys.consumer_wait(stage, parity)
            with span("products"):
                mine.issue_scores(operands.q[0], operands.k[stage])
                wgmma.wait_group.sync.aligned(0)
                keys.consumer_release(stage, pred=one)
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


RUNG = Rung(4, two_consumers, BM, "128 queries, two mma warpgroups, setmaxnreg")
