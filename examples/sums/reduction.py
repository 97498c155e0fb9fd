"""The sum of a vector of f32, in two launches: the same bits on every card and in every run.

The first launch sums chunks of a fixed length, whatever the card, a CTA each; the second one sums the sums. Atomic additions would save the
second launch, and add in another order each time. Within a thread 32 values are added in pairs, so a value passes few roundings.

    python -m examples.sums.reduction
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, normal, poison, report, taken
from examples.rows.held import tree
from ptxkit import Ptr, Reg, ctaid, else_, for_range, if_, kernel, tid
from ptxkit.ptx import add, ld, mov, st
from ptxkit.reductions import block_reduce
from ptxkit.types import f32, u32

THREADS, VECTOR, EACH, TURNS = 256, 4, 8, 8
TURN = THREADS * VECTOR * EACH                                       # values of a CTA under way: 32 KB
CHUNK = TURN * TURNS                                                 # values of a CTA


@kernel(target="sm_90a", block=THREADS, min_ctas=4)
def sum_chunks(x: Ptr[f32], sums: Ptr[f32], n: Reg[u32]) -> None:
    """sums[i] = the sum of x[CHUNK i : CHUNK (i + 1)]."""
    thread = mov.u32(tid.x)
    begin = mov.u32(ctaid.x) * CHUNK
    start = x.at(begin).at(thread * VECTOR)
    read = ld.global_.nc.L1__no_allocate.v4.f32
    total = mov.f32(0.0)
    left = n - begin                                                 # the grid has no CTA that begins after the end
    with if_(left >= CHUNK):
        with for_range(TURNS) as turn:
            place = start.at(turn * TURN)
            vectors = [read(place + i * THREADS * VECTOR) for i in range(EACH)]
            add.rn.f32(total, total, tree([value for vector in vectors for value in vector], add.rn.f32))
    with else_():
        with for_range(left & 0xFFFFFFFC, start=thread * VECTOR, step=THREADS * VECTOR) as i:
            add.rn.f32(total, total, tree(list(ld.global_.v4.f32(x.at(begin).at(i))), add.rn.f32))
        last = (left & 0xFFFFFFFC) + thread
        with if_(last < left):                                       # one to three values, a thread each
            add.rn.f32(total, total, ld.global_.f32(x.at(begin).at(last)))
    whole = block_reduce(add.rn.f32, total)
    st.global_.f32(sums.at(mov.u32(ctaid.x)), whole, pred=thread == 0)


@kernel(target="sm_90a", block=1024)
def sum_sums(sums: Ptr[f32], out: Ptr[f32], n: Reg[u32]) -> None:
    """out[0] = the sum of n sums, in one CTA."""
    thread, zero = mov.u32(tid.x), mov.f32(0.0)
    with for_range(n, start=thread, step=1024, total=zero) as loop:
        loop.total = add.rn.f32(loop.total, ld.global_.f32(sums.at(loop.index)))
    st.global_.f32(out, block_reduce(add.rn.f32, loop.total), pred=thread == 0)


def steps(x: Any, sums: Any, out: Any) -> list[Step]:
    """The launches for x [n], sums [ceil(n / CHUNK)] as work space, and out [1]."""
    (n,) = extents("x [n]", x)
    count = -(-n // CHUNK)
    taken(x=(x, (n,)), sums=(sums, (count,)), out=(out, (1,)))
    apart("sums", "out", x=x, sums=sums, out=out)
    return [Step(sum_chunks, count, (x, sums, n)), Step(sum_sums, 1, (sums, out, count))]


def problem(n: int, seed: int = 0) -> Problem:
    """Normal values."""
    x, count = normal(seed, n, kind="f32"), -(-n // CHUNK)
    # In a chunk 5 roundings in a thread's tree and TURNS after it (64 of two vectors' in the last chunk), 8 of the block; then of the sums.
    roundings = max(5 + TURNS, 2 + 64) + 8 + -(-count // 1024) + 10
    operands = {"x": ("f32", x), "sums": ("f32", poison("f32", count)), "out": ("f32", poison("f32", 1))}
    exact = np.array([x.sum(dtype=np.float64)])
    return Problem(operands, lambda a: steps(*(a[name] for name in operands)),
                   {"out": (exact, roundings * 2.0**-24 * np.abs(x).sum(dtype=np.float64))}, bytes=4 * n, library=_library)


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    compiled = torch.compile(lambda x: x.sum())
    return lambda: compiled(a["x"])


if __name__ == "__main__":
    print(report("reduction", problem(1 << 28), problem(CHUNK + 1234)))
