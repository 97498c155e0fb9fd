"""A histogram of bytes: 256 counters for each lane, so that no two lanes of a warp meet in a bank.

With one set of counters a warp's 32 atomic additions collide where values repeat, and the time depends on the data. Here counter b of
lane l is word 32 b + l: its bank is the lane. So each addition has 32 banks for itself, for any data. 32 KB a CTA, six CTAs an SM.
At the end a thread sums a counter's 32 words, beginning at its own lane: without bank conflicts again.

    python -m examples.sums.histogram
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, report, taken
from ptxkit import Ptr, Reg, ctaid, else_, for_range, if_, kernel, smem, tid
from ptxkit.ptx import add, bar, bfe, cvt, ld, mov, red, st
from ptxkit.types import u8, u32

BINS = THREADS = 256
LANES, BYTES, EACH, TURNS = 32, 16, 4, 16
TURN = THREADS * BYTES * EACH                                        # bytes of a CTA under way
CHUNK = TURN * TURNS


@kernel(target="sm_90a", block=THREADS, min_ctas=6)
def histogram(x: Ptr[u8], counts: Ptr[u32], n: Reg[u32]) -> None:
    """counts[b] += how many of x[n] are b. A CTA has CHUNK bytes."""
    words = smem.array(u32, BINS * LANES, name="counters")
    thread = mov.u32(tid.x)
    lane = thread & (LANES - 1)
    own = words.at(lane)

    def count(word: Reg[u32]) -> None:
        for byte in range(4):
            red.shared__cta.add.u32(own.at(bfe.u32(word, 8 * byte, 8) * LANES), 1)

    for i in range(BINS * LANES // THREADS // 4):
        st.shared__cta.v4.u32(words.at(thread * 4) + i * THREADS * 4, [mov.u32(0)] * 4)
    bar.sync(0)
    begin = mov.u32(ctaid.x) * CHUNK
    left = n - begin
    with if_(left >= CHUNK):
        with for_range(TURNS) as turn:
            place = x.at(begin).at(turn * TURN).at(thread * BYTES)
            for vector in [ld.global_.nc.L1__no_allocate.v4.u32((place + i * THREADS * BYTES).cast(u32)) for i in range(EACH)]:
                for word in vector:
                    count(word)
    with else_():
        whole = left & 0xFFFFFFF0
        with for_range(whole, start=thread * BYTES, step=THREADS * BYTES) as i:
            for word in ld.global_.v4.u32(x.at(begin).at(i).cast(u32)):
                count(word)
        with if_(thread + whole < left):                             # at most 15 bytes, a thread each
            value = cvt.u32.u8(ld.global_.u8(x.at(begin).at(thread + whole)))
            red.shared__cta.add.u32(own.at(value * LANES), 1)
    bar.sync(0)
    row, total = words.at(thread * LANES), mov.u32(0)
    for i in range(LANES):
        add.u32(total, total, ld.shared__cta.u32(row.at((lane + i) & (LANES - 1))))
    red.global_.add.u32(counts.at(thread), total, pred=total != 0)


def steps(x: Any, counts: Any) -> list[Step]:
    """The launch for x [n] and counts [256], to which it adds."""
    (n,) = extents("x [n]", x)
    taken(x=(x, (n,)), counts=(counts, (256,)))
    apart("counts", x=x, counts=counts)
    return [Step(histogram, -(-n // CHUNK), (x, counts, n))]


def problem(n: int, kind: str = "uniform", seed: int = 0) -> Problem:
    """Bytes, uniform or all the same. Counts begin at 1, to show that they are added to."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 256, n, np.uint8) if kind == "uniform" else np.full(n, 7, np.uint8)
    start = np.ones(BINS, np.uint32)
    exact = np.bincount(x, minlength=BINS) + 1.0
    return Problem({"x": ("u8", x), "counts": ("u32", start)}, lambda a: steps(a["x"], a["counts"]), {"counts": (exact, 0.0)}, bytes=n,
                   library=_library, library_name="torch.histc (f32)")


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    values = a["x"].float()                                          # bincount waits for the host, which no graph can record
    return lambda: torch.histc(values, 256, 0, 255)


if __name__ == "__main__":
    print(report("histogram", problem(1 << 28), problem(30_001)))
