"""Y = X W^T for few tokens, with weights of 4 bits: X [M, K] of bf16, M at most 16, W [N, K] of numbers 0 to 15, and scales.

    w[n, k] = (q[n, k] - 8) scale[n, k / 128]

The weights are what takes time, so they are the matrix with many rows of `mma.m16n8k16`, and the tokens are its eight columns. They are
packed once (`pack_weights`) so that a lane's 16 bytes are its operands of four mma: no shuffle.

Four bits become bf16 in registers without a conversion: 0x4300 is 128, whose last bits of the mantissa count in ones. So `lop3` masks two
numbers of a word and sets the exponents, (w & 0x000F000F) | 0x43004300, which is a pair 128 + q, and one subtraction of 136 gives q - 8,
exactly. A word of eight weights takes 3 shifts, 4 lop3 and 4 subtractions; an SM issues 140 instructions of a warp while memory
brings its 512 bytes, of which this takes 44 and mma 4 for each 8 tokens.

mma sums over k in any order, as long as both operands have the same. So lane t of four has the 16 neighbouring k of 64 from 16 t on, and
reads them of X by two loads of 16 bytes.

A CTA has 128 rows of W. One warp brings stages of 512 along K by bulk copies, up to three of them ahead: 34 KB of weights and scales, and
the same k of X, that the other warps share. A warp multiplies a part of the rows and 128 of k, which have one scale. The SPLIT
CTAs of a cluster share the groups along K. Warps and CTAs add their sums in a fixed order through (distributed) shared memory: the same
bits in every run.

    python -m examples.products.w4a16
"""
from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, narrow, normal, poison, report, taken, ulps, wide
from ptxkit import Pipeline, Ptr, Reg, cluster_ctarank, ctaid, else_, if_, kernel, laneid, ring, smem, tid
from ptxkit.cards import H200, Card
from ptxkit.fragments import pack, unpack
from ptxkit.gemm.launch.dense import card_of
from ptxkit.idioms import cluster_sync
from ptxkit.ptx import add, bar, cp, fence, fma, ld, lop3, mapa, mbarrier, mma, mov, mul, st, sub
from ptxkit.ptx import min as least
from ptxkit.runtime import driver
from ptxkit.types import b32, bf16, f32, u32

LANES, GROUP = 32, 128
ROWS, DEPTH = 16, 64                                                 # of W that a packed piece of 512 bytes has
TILES, QUARTERS = 8, 4                                               # such rows of a CTA, and groups of a stage
PARTS = 2                                                            # of the rows: a warp has one, and one of the groups
WARPS, PART = QUARTERS * PARTS, TILES // PARTS
WIDE, RUN = ROWS * TILES, GROUP * QUARTERS                           # rows and k of a stage
PIECES = RUN * ROWS // 8                                             # words of 16 rows in a stage
PITCH = ROWS * PART + 4                                              # of a token's sums: lanes t and t + 1 are 8 banks apart
PITCH_X = RUN + 8                                                    # of a token: lanes g and g + 1 are 4 banks apart
copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
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


@kernel(target="sm_90a", block=(WARPS + 1) * LANES, cluster=lambda config: config["SPLIT"])
def w4a16(x: Ptr[bf16], weights: Ptr[u32], scales: Ptr[u32], y: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32], share: Reg[u32], *,
          TOKENS: int = 16, SPLIT: int = 1, STAGES: int = 3) -> None:
    """y [m, n] = x [m, k] times the weights. A cluster has 128 rows of them, and each of its CTAs `share` groups of 128 along K, the last
    what is left.

    TOKENS, 8 or 16, is at least m. The last warp loads: lanes 0 to 7 weights of 16 rows each, 8 to 15 their scales, 16 to 31 a token each.
    full[stage]: 1 arrival, the arrive.expect_tx of lane 0. empty[stage]: lane 0 of each other warp.
    """
    halves = TOKENS // 8
    of_stage = [smem.array(u32, STAGES * TILES * PIECES, align=128, name="weights"),
                smem.array(u32, STAGES * TILES * QUARTERS * 8, align=128, name="scales"),
                smem.array(bf16, STAGES * TOKENS * PITCH_X, align=128, name="x")]
    sums = smem.array(f32, WARPS * TOKENS * PITCH, name="sums of a warp")
    whole = smem.array(f32, TOKENS * WIDE, name="sums of a CTA")
    stages = Pipeline(STAGES, consumers=WARPS)
    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    warp, tile = thread >> 5, (mov.u32(ctaid.x) // SPLIT) * TILES
    rank = mov.u32(cluster_ctarank) if SPLIT > 1 else mov.u32(0)
    tiles = least.u32(TILES, n // ROWS - tile)                       # the last CTA may have 4
    first = least.u32(rank * share, k // GROUP)
    groups = least.u32(share, k // GROUP - first)
    rounds = (groups + (QUARTERS - 1)) // QUARTERS
    with if_(thread == 0):
        stages.init()
    bar.sync(0)
    with if_(warp == WARPS):
        of_weights = weights.at(mul.wide.u32(tile + lane, k * 2)).at(first * (GROUP * 2))
        of_scales = scales.at((tile + (lane & 7)) * (k // GROUP * 8) + first * 8)
        of_x = x.at((lane & 15) * k).at(first * GROUP)
        with ring(STAGES, rounds) as (step, stage, parity):
            done = step * QUARTERS
            now = least.u32(QUARTERS, groups - done)
            full = stages.producer_acquire(stage, parity)
            fence.proxy.async_.shared__cta()                         # the warps' loads from the stage, before the copies into it
            bytes = now * (tiles * (GROUP * ROWS // 2 + 2 * ROWS) + m * (2 * GROUP))
            mbarrier.arrive.expect_tx.shared__cta.b64(full, bytes, pred=lane == 0)
            bar.warp.sync(0xFFFFFFFF)
            with if_(lane < tiles):
                copy(of_stage[0].at((stage * TILES + lane) * PIECES), of_weights.at(done * (GROUP * 2)), now * (GROUP * ROWS // 2), full)
            with if_((lane >= 8) & (lane - 8 < tiles)):
                copy(of_stage[1].at((stage * TILES + lane - 8) * (QUARTERS * 8)), of_scales.at(done * 8), now * (2 * ROWS), full)
            with if_((lane >= 16) & (lane - 16 < m)):
                copy(of_stage[2].at((stage * TOKENS + lane - 16) * PITCH_X), of_x.at(done * GROUP), now * (2 * GROUP), full)
    with else_():
        g, t, part, quarter = lane >> 2, lane & 3, warp % PARTS, warp // PARTS
        total = [[[mov.f32(0.0) for _ in range(4)] for _ in range(halves)] for _ in range(PART)]
        with ring(STAGES, rounds) as (step, stage, parity):
            stages.consumer_wait(stage, parity)
            with if_((step * QUARTERS + quarter < groups) & (part * PART < tiles)):
                place = stage * TILES + part * PART
                of_warp = [of_stage[0].at(place * PIECES + quarter * (GROUP * 2) + lane * 4),
                           of_stage[1].at(place * (QUARTERS * 8) + quarter * 8 + g),
                           of_stage[2].at((stage * TOKENS + g) * PITCH_X + quarter * GROUP + t * 16)]
                multiply_group(*of_warp, total, [g + 8 * h < m for h in range(halves)])
            bar.warp.sync(0xFFFFFFFF)                                # all lanes have read
            stages.consumer_release(stage, pred=lane == 0)
        own = sums.at(warp * (TOKENS * PITCH) + t * (2 * PITCH) + g)
        for i, h, c in product(range(PART), range(halves), range(4)):
            st.shared__cta.f32(own + ((8 * h + c % 2) * PITCH + 16 * i + 8 * (c // 2)), total[i][h][c])
    bar.sync(0)
    # Warp w has the results of tokens w and w + 8, four neighbouring ones a lane.
    lanes = LANES // PARTS                                           # that share a part
    tokens = [warp + later for later in range(0, TOKENS, 8)]
    with if_(warp < 8):
        for token in tokens:
            place = sums.at(lane // lanes * (TOKENS * PITCH) + token * PITCH + lane % lanes * 4)
            found = ld.shared__cta.v4.f32(place)
            for w in range(PARTS, WARPS, PARTS):
                for mine, more in zip(found, ld.shared__cta.v4.f32(place + w * TOKENS * PITCH), strict=True):
                    add.rn.f32(mine, mine, more)
            st.shared__cta.v4.f32(whole.at(token * WIDE + lane * 4), found)
    if SPLIT > 1:
        cluster_sync()
    for token in tokens:
        with if_((warp < 8) & (token < m) & (lane < tiles * 4) & (thread % SPLIT == rank)):
            place = whole.at(token * WIDE + lane * 4)
            if SPLIT > 1:
                found = [mov.f32(0.0) for _ in range(4)]
                for cta in range(SPLIT):
                    for mine, more in zip(found, ld.shared__cluster.v4.f32(mapa.shared__cluster.u32(place, cta)), strict=True):
                        add.rn.f32(mine, mine, more)
            else:
                found = ld.shared__cta.v4.f32(place)
            words = [pack(bf16, found[0], found[1]), pack(bf16, found[2], found[3])]
            st.global_.v2.b32(y.at(mul.wide.u32(token, n)).at(tile * ROWS + lane * 4), words)
    if SPLIT > 1:
        cluster_sync()                                               # no CTA exits while others read its sums


def multiply_group(weights: Any, scales: Any, x: Any, total: Any, there: list[Any]) -> None:
    """Adds 128 of k to the sums of a part of the rows. `there` says whether a lane's tokens are."""
    of_x = []
    for h, valid in enumerate(there):
        words = [[mov.b32(0) for _ in range(4)] for _ in range(4)]
        for i, four in enumerate(words):
            ld.shared__cta.v4.b32(four, x + (8 * h * PITCH_X + DEPTH * (i // 2) + 8 * (i % 2)), pred=valid)
        of_x.append([word for four in words for word in four])       # 8 words for 64 of k: two for each mma
    zero = [mov.f32(0.0) for _ in range(4)]
    for i, sums in enumerate(total):
        part = [zero] * len(there)
        for block in range(GROUP // DEPTH):
            for j, word in enumerate(ld.shared__cta.v4.u32(weights + (i * PIECES + 4 * LANES * block))):
                operand, at = unpacked(word), 8 * block + 2 * j
                part = [multiply(operand, values[at:at + 2], before) for values, before in zip(of_x, part, strict=True)]
        rows = unpack(bf16, ld.shared__cta.u32(scales + i * (QUARTERS * 8)))
        for mine, more in zip(sums, part, strict=True):
            for c in range(4):                                       # rows g, g, g + 8, g + 8
                fma.rn.f32(mine[c], more[c], rows[c // 2], mine[c])


def split(n: int, k: int, card: Card) -> int:
    """How many CTAs share 128 rows: as many as are at work at a time, and each with a group at least."""
    blocks = -(-n // WIDE)
    return max([1, *(size for size, ctas in card.clusters if blocks * size <= ctas and size <= k // GROUP)])


def steps(x: Any, weights: Any, scales: Any, y: Any, card: Card | None = None) -> list[Step]:
    """The launch for x [M, K], weights and scales as packed, and y [M, N]. `card` None is the GPU of this process."""
    (m, k), n = x.shape, y.shape[1]
    if not 1 <= m <= 16 or n % 64 or k % GROUP:
        raise ValueError(f"M is 1 to 16, N a multiple of 64 and K of {GROUP}, not {m}, {n} and {k}: `ptxkit.gemm.gemm` takes "
                         "more rows, with weights of bf16")
    taken(x=(x, (m, k)), weights=(weights, (n // ROWS, k // DEPTH, LANES, 4)), scales=(scales, (n // ROWS, k // GROUP, 8, 1)),
          y=(y, (m, n)))
    card = card or (card_of(driver.current_device()) if driver.available() else H200)
    found = split(n, k, card)
    return [Step(w4a16, -(-n // WIDE) * found, (x, weights, scales, y, m, n, k, -(-(k // GROUP) // found)),
                 {"TOKENS": 8 if m <= 8 else 16, "SPLIT": found})]


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
