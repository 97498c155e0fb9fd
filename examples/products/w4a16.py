"""Y = X W^T for few tokens, with weights of 4 bits: X [M, K] of bf16, M at most 16, W [N, K] of numbers 0 to 15, and scales.

    w[n, k] = (q[n, k] - 8) scale[n, k / 128]

The weights are what takes time, so they are the matrix with many rows of `mma.m16n8k16`, and the tokens are its eight columns. They are
packed once (`pack_weights`) so that a lane's 16 bytes are its operands of four mma: no shared memory, no shuffle.

Four bits become bf16 in registers without a conversion: 0x4300 is 128, whose last bits of the mantissa count in ones. So `lop3` masks two
numbers of a word and sets the exponents, (w & 0x000F000F) | 0x43004300, which is a pair 128 + q, and one subtraction of 136 gives q - 8,
exactly. A word of eight weights takes 3 shifts, 4 lop3 and 4 subtractions; the tensor cores idle, and an SM issues 140 instructions of a
warp while memory brings its 512 bytes, of which this takes 52.

mma sums over k in any order, as long as both operands have the same. So lane t of four has the 16 neighbouring k of 64 from 16 t on, and
reads them of X by two loads of 16 bytes.

The eight warps of a CTA and the SPLIT CTAs of a cluster share the groups along K. They add their sums in a fixed order through
(distributed) shared memory: the same bits in every run.

    python -m examples.products.w4a16
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, narrow, normal, poison, report, ulps, wide
from ptxkit import Ptr, Reg, cluster_ctarank, ctaid, for_range, if_, kernel, laneid, smem, tid
from ptxkit.cards import H200
from ptxkit.fragments import pack, unpack
from ptxkit.idioms import cluster_sync
from ptxkit.ptx import add, bar, fma, ld, lop3, mapa, mma, mov, mul, st, sub
from ptxkit.runtime import driver
from ptxkit.types import b32, bf16, f32, u32

WARPS, LANES, GROUP = 8, 32, 128
ROWS, DEPTH = 16, 64                                                 # of W that a packed piece of 512 bytes has
TILES = 4                                                            # such pieces of a warp under way: 64 rows of W a CTA
WIDE = 16 * TILES
PITCH = WIDE + 4                                                     # of a token's sums: lanes t and t + 1 are 8 banks apart
MASK, EXPONENT, BIAS = 0x000F000F, 0x43004300, 0x43084308            # (128, 128) and (136, 136) in bf16
AND_OR = (0xF0 & 0xCC) | 0xAA                                        # lop3's table of (a & b) | c
multiply = mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32


def pack_weights(q: Array) -> Array:
    """q [N, K], numbers 0 to 15, as words [N / 16, K / 64, 32, 4]: the order in which lanes use them. N and K are multiples of 16 and 64.

    Word j of lane (g, t) has rows g and g + 8 and k = 16 t + 4 j + 0 ... 3. Registers i of an operand are nibbles i and i + 4: row g or
    g + 8 (bit 0 of i), the first or second pair of k (bit 1), and the nibbles are the two of a pair.
    """
    n, k = q.shape
    parts = q.reshape(n // ROWS, 2, 8, k // DEPTH, 4, 4, 2, 2)       # tile, half, g, block, t, j, pair, element
    parts = parts.transpose(0, 3, 2, 4, 5, 7, 6, 1).reshape(n // ROWS, k // DEPTH, LANES, 4, 8)     # the last three: nibble 4 e + 2 p + h
    return (parts.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)


def pack_scales(scale: Array) -> Array:
    """scale [N, K / 128], bits of bf16, as [N / 16, K / 128, 8, 2]: those of rows g and g + 8 in a word."""
    n, groups = scale.shape
    return np.ascontiguousarray(scale.reshape(n // ROWS, 2, 8, groups).transpose(0, 3, 2, 1))


def unpacked(word: Reg[u32]) -> list[Reg[b32]]:
    """Eight weights as the four registers of an operand: q - 8 in bf16."""
    pairs = [lop3.b32(word if not i else word >> 4 * i, mov.b32(MASK), mov.b32(EXPONENT), AND_OR) for i in range(4)]
    bias = mov.b32(BIAS)
    return [mov.b32(sub.rn.bf16x2(pair, bias)) for pair in pairs]


@kernel(target="sm_90a", block=WARPS * LANES, min_ctas=2, cluster=lambda config: config["SPLIT"])
def w4a16(x: Ptr[bf16], weights: Ptr[u32], scales: Ptr[u32], y: Ptr[bf16], m: Reg[u32], n: Reg[u32], *, K: int = 4096,
          TOKENS: int = 16, SPLIT: int = 1) -> None:
    """y [m, n] = x [m, K] times the weights. 64 rows of the weights a cluster; warp w of CTA r has pieces 8 r + w, 8 (SPLIT + r) + w, ...

    TOKENS, 8 or 16, is at least m. K is a constant, so that the tiles and tokens of a lane have one pointer and constant offsets.
    """
    halves = TOKENS // 8
    blocks = 2 // halves                                             # of 64 along K under way: registers hold no more for 16 tokens
    sums = smem.array(f32, WARPS * TOKENS * PITCH, name="sums of a warp")
    whole = smem.array(f32, TOKENS * PITCH, name="sums of a CTA")
    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    warp, g, t = thread >> 5, lane >> 2, lane & 3
    tile = (mov.u32(ctaid.x) // SPLIT) * TILES
    rank = mov.u32(cluster_ctarank) if SPLIT > 1 else mov.u32(0)
    total = [[[mov.f32(0.0) for _ in range(4)] for _ in range(halves)] for _ in range(TILES)]
    zero = [mov.f32(0.0) for _ in range(4)]
    of_token = x.at(g * K).at(16 * t)
    there = [g + 8 * h < m for h in range(halves)]
    of_lane, of_rows = weights.at(mul.wide.u32(tile, K * ROWS // 8)).at(4 * lane), scales.at(tile * (K // GROUP * 8) + g)
    with for_range(K // (DEPTH * blocks), start=rank * WARPS + warp, step=WARPS * SPLIT) as piece:
        place = of_lane.at(piece * (128 * blocks))
        packed = [[ld.global_.nc.L1__no_allocate.v4.u32(place + (i * K * ROWS // 8 + 128 * block)) for block in range(blocks)]
                  for i in range(TILES)]
        place = of_rows.at((piece // (2 // blocks)) * 8)
        scale = [ld.global_.nc.u32(place + i * K // GROUP * 8) for i in range(TILES)]
        place = of_token.at(piece * (DEPTH * blocks))
        of_x = []
        for h in range(halves):
            words = [[mov.b32(0) for _ in range(4)] for _ in range(2 * blocks)]
            for i, four in enumerate(words):
                ld.global_.nc.v4.b32(four, place + (8 * h * K + DEPTH * (i // 2) + 8 * (i % 2)), pred=there[h])
            of_x.append([word for four in words for word in four])   # 8 words a block: two for each mma
        for i in range(TILES):
            part = [zero] * halves
            for step in range(4 * blocks):                           # 16 of k each
                operand = unpacked(packed[i][step // 4][step % 4])
                part = [multiply(operand, of_x[h][2 * step:2 * step + 2], part[h]) for h in range(halves)]
            rows = unpack(bf16, scale[i])
            for h in range(halves):
                for c in range(4):                                   # rows g, g, g + 8, g + 8
                    fma.rn.f32(total[i][h][c], part[h][c], rows[c // 2], total[i][h][c])
    own = sums.at(warp * (TOKENS * PITCH) + t * (2 * PITCH) + g)
    for i in range(TILES):
        for h in range(halves):
            for c in range(4):
                st.shared__cta.f32(own + ((8 * h + c % 2) * PITCH + 16 * i + 8 * (c // 2)), total[i][h][c])
    bar.sync(0)
    place = (thread >> 4) * PITCH + (thread & 15) * 4                # a token, and four of its 64 results: threads 0 to 16 TOKENS - 1
    with if_(thread < 16 * TOKENS):
        found = ld.shared__cta.v4.f32(sums.at(place))
        for w in range(1, WARPS):
            for mine, more in zip(found, ld.shared__cta.v4.f32(sums.at(place) + w * TOKENS * PITCH), strict=True):
                add.rn.f32(mine, mine, more)
        st.shared__cta.v4.f32(whole.at(place), found)
    if SPLIT > 1:
        cluster_sync()
    with if_((thread < 16 * TOKENS) & ((thread >> 4) < m) & ((thread & (SPLIT - 1)) == rank)):
        if SPLIT > 1:
            found = [mov.f32(0.0) for _ in range(4)]
            for cta in range(SPLIT):
                for mine, more in zip(found, ld.shared__cluster.v4.f32(mapa.shared__cluster.u32(whole.at(place), cta)), strict=True):
                    add.rn.f32(mine, mine, more)
        else:
            found = ld.shared__cta.v4.f32(whole.at(place))
        words = [pack(bf16, found[0], found[1]), pack(bf16, found[2], found[3])]
        st.global_.v2.b32(y.at(mul.wide.u32(thread >> 4, n)).at(tile * ROWS + (thread & 15) * 4), words)
    if SPLIT > 1:
        cluster_sync()                                               # no CTA exits while others read its sums


def split(n: int, k: int, sms: int) -> int:
    """How many CTAs share 64 rows: enough for two CTAs an SM, each warp with a group at least."""
    found = 1
    while found < 8 and n // WIDE * found < 2 * sms and k // GROUP >= 2 * found * WARPS:
        found *= 2
    return found


def steps(x: Any, weights: Any, scales: Any, y: Any, sms: int | None = None) -> list[Step]:
    """The launch for x [M, K], weights and scales as packed, and y [M, N]. `sms` None asks the card."""
    (m, k), n = x.shape, y.shape[1]
    if not 1 <= m <= 16 or n % WIDE or k % GROUP:
        raise ValueError(f"M is 1 to 16, N a multiple of {WIDE} and K of {GROUP}, not {m}, {n} and {k}: `ptxkit.gemm.gemm` takes "
                         "more rows, with weights of bf16")
    sms = sms or (driver.device(driver.current_device()).multiprocessors if driver.available() else H200.sms)
    found = split(n, k, sms)
    return [Step(w4a16, n // WIDE * found, (x, weights, scales, y, m, n), {"K": k, "TOKENS": 8 if m <= 8 else 16, "SPLIT": found})]


def problem(m: int, n: int, k: int, seed: int = 0) -> Problem:
    """Random weights, scales near 1 / 100."""
    x, q = normal(seed, m, k), np.random.default_rng(seed).integers(0, 16, (n, k), np.uint8)
    scale = narrow((1 + 0.2 * normal(seed + 1, n, k // GROUP, kind="f32")) / 100)
    w = (q.astype(np.float64) - 8) * np.repeat(wide("bf16", scale), GROUP, 1)
    values = wide("bf16", x)
    exact, magnitude = values @ w.T, np.abs(values) @ np.abs(w).T
    operands = {"x": ("bf16", x), "weights": ("u32", pack_weights(q)), "scales": ("u32", pack_scales(scale).view(np.uint32)),
                "y": ("bf16", poison("bf16", m, n))}
    # One rounding to bf16; products of bf16 are exact and the tensor cores keep 22 bits of a sum of 16, the rest is f32.
    return Problem(operands, lambda a: steps(*(a[name] for name in operands)), {"y": (exact, 1.01 * ulps(exact) + 2.0**-19 * magnitude)},
                   bytes=n * k // 2 + n * k // 64 + 2 * m * (n + k), library=_library, library_name="cuBLAS with bf16 weights")


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    n, k = a["y"].shape[1], a["x"].shape[1]
    full = torch.randn((n, k), device="cuda").bfloat16()             # four times the bytes
    return lambda: torch.nn.functional.linear(a["x"], full)


if __name__ == "__main__":
    print(report("w4a16", problem(16, 8192, 8192), problem(5, 64, 384)))
