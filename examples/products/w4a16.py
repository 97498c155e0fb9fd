"""Y = X W^T for few tokens, with weights of 4 bits: X [M, K] of bf16, M at most 16, W [N, K] of numbers 0 to 15, and scales.

    w[n, k] = (q[n, k] - 8) scale[n, k / 128]

The weights are what takes time, so they are the matrix with many rows of `mma.m16n8k16`, and the tokens are its eight columns. They are
packed once (`pack_weights`) so that a lane's 16 bytes are its operands of four mma: no shuffle.

Four bits become bf16 in registers without a conversion: 0x4300 is 128, whose last bits of the mantissa count in ones. So `lop3` masks two
numbers of a word and sets the exponents, (w & 0x000F000F) | 0x43004300, which is a pair 128 + q, and one subtraction of 136 gives q - 8,
exactly. A word of eight weights takes 3 shifts, 4 lop3 and 4 subtractions; an SM issues 140 instructions of a warp while memory
brings its 512 bytes, of which this takes 44 and mma 4 for each 8 tokens.

mma sums over k in any order, as long as both operands have the same. So lane t of four has the 16 neighbouring k of 64 from 16 t on, and
reads them of X by two loads of 16 bytes, a stage before it uses them: X comes from the L2, which all CTAs read it from.

One warp of a CTA brings stages of 34 KB of weights and scales in two or four bulk copies, for 64 rows of W are contiguous as they are
packed. Copies of 16 rows each, and of each token, took as long to issue as memory took to bring them. The other warps multiply 64 rows, or
some of them, by 128 of k, which have one scale. The SPLIT CTAs of a cluster share the groups along K, and each of them has a part of the
results: all warps store their sums for it in its shared memory, and it adds them in a fixed order, so that a result has the same bits in
every run.

A stage is 64 rows by 1,024 of k, so that no two warps of a CTA load the same tokens: what a warp loads of them is half as much as its
weights, and comes from the L2 beside the weights. 64 rows a CTA are also more CTAs, of which a narrow W has few. Where W has more bands of
64 rows than the card has SMs, a CTA has 128 rows by 512 of k instead, unless that fills the last wave of CTAs much less.

Weights are constant, X is not: the kernel begins while the launch before it ends, asks for its first stages of weights, and then waits
for X.

    python -m examples.products.w4a16
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain, product
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, apart, extents, narrow, normal, poison, report, taken, ulps, wide
from ptxkit import Pipeline, Ptr, Reg, cluster_ctarank, ctaid, else_, if_, kernel, laneid, ring, smem, tid
from ptxkit.cards import H200, Card
from ptxkit.fragments import pack, unpack
from ptxkit.gemm.launch.dense import card_of
from ptxkit.idioms import cluster_sync
from ptxkit.ptx import add, bar, barrier, cp, fence, fma, griddepcontrol, ld, lop3, mapa, mbarrier, mma, mov, mul, st, sub
from ptxkit.ptx import min as least
from ptxkit.runtime import driver
from ptxkit.types import b32, bf16, f32, u32

LANES, GROUP = 32, 128
ROWS, DEPTH = 16, 64                                                 # of W in an operand of mma, and k of four of them
TILES, BAND = 4, 64                                                  # operands along the 64 rows that are contiguous
PIECES = 8                                                           # groups of 64 rows in a stage
PIECE, SCALES = GROUP * BAND // 8, BAND // 2                         # words of a group of a band: weights, scales
copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
MASK, EXPONENT, BIAS = 0x000F000F, 0x43004300, 0x43084308            # (128, 128) and (136, 136) in bf16
AND_OR = (0xF0 & 0xCC) | 0xAA                                        # lop3's table of (a & b) | c
multiply = mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32


def pack_weights(q: Array) -> Array:
    """q [N, K], numbers 0 to 15, as words [N / 64, K / 128, 4, 2, 32, 4]: the order in which lanes use them. N and K are multiples of 64
    and 128, and 64 rows of 128 along K are contiguous.

    Word j of lane (g, t) has rows g and g + 8 of 16 and k = 16 t + 4 j + 0 ... 3 of 64. Registers i of an operand are nibbles i and i + 4:
    row g or g + 8 (bit 0 of i), the first or second pair of k (bit 1), and the nibbles are the two of a pair.
    """
    n, k = extents("q [N, K]", q)
    if n % BAND or k % GROUP or q.dtype.kind not in "iu" or not 0 <= int(q.min()) <= int(q.max()) <= 15:
        raise ValueError(f"q has integers of 0 to 15, N is a multiple of {BAND} and K of {GROUP}, not {q.dtype} of {q.min()} to {q.max()} "
                         f"with {n} and {k}")
    parts = q.reshape(n // BAND, TILES, 2, 8, k // GROUP, 2, 4, 4, 2, 2)     # band, tile, half, g, group, block, t, j, pair, element
    parts = parts.transpose(0, 4, 1, 5, 3, 6, 7, 9, 8, 2).reshape(n // BAND, k // GROUP, TILES, 2, LANES, 4, 8)    # nibble 4 e + 2 p + h
    return (parts.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)


def pack_scales(scale: Array) -> Array:
    """scale [N, K / 128], bits of bf16, as [N / 64, K / 128, 4, 8, 2]: a word has the scales of rows g and g + 8."""
    n, groups = extents("scale [N, K / 128]", scale)
    if n % BAND or scale.dtype != np.uint16:
        raise ValueError(f"scale has the bits of bf16 in uint16, and N is a multiple of {BAND}, not {scale.dtype} with {n}: `narrow` makes "
                         "bits")
    return np.ascontiguousarray(scale.reshape(n // BAND, TILES, 2, 8, groups).transpose(0, 4, 1, 3, 2))


def unpacked(word: Reg[u32]) -> list[Reg[b32]]:
    """Eight weights as the four registers of an operand: q - 8 in bf16."""
    pairs = [lop3.b32(word if not i else word >> 4 * i, mov.b32(MASK), mov.b32(EXPONENT), AND_OR) for i in range(4)]
    bias = mov.b32(BIAS)
    return [mov.b32(sub.rn.bf16x2(pair, bias)) for pair in pairs]


def threads(config: Mapping[str, Any]) -> int:
    """Of a CTA: the warps that multiply, and the one that loads."""
    return LANES * (PIECES * config["SHARERS"] + 1)


@kernel(target="sm_90a", block=threads, cluster=lambda config: config["SPLIT"])
def w4a16(x: Ptr[bf16], weights: Ptr[u32], scales: Ptr[u32], y: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32], share: Reg[u32], *,
          TOKENS: int = 16, SPLIT: int = 1, PARTS: int = 1, SHARERS: int = 1, STAGES: int = 3) -> None:
    """y [m, n] = x [m, k] times the weights. A cluster has PARTS bands of 64 rows of them, and each of its CTAs `share` groups of 128 along
    K, the last what is left.

    TOKENS, 8 or 16, is at least m. SHARERS warps share a band and a group: each has some of its operands. The last warp loads: each of its
    lanes 0 to PARTS - 1 the weights and the scales of a band.

    full[stage]: 1 arrival, the arrive.expect_tx of lane 0. empty[stage]: lane 0 of each other warp. The cluster has a barrier before its
    CTAs store sums for one another, which begins at once, and one after it.
    """
    halves, warps, along = TOKENS // 8, PIECES * SHARERS, PIECES // PARTS     # groups of a stage
    of_weights = smem.array(u32, STAGES * PIECES * PIECE, align=128, name="weights")
    of_scales = smem.array(u32, STAGES * PIECES * SCALES, align=128, name="scales")
    rows = BAND * PARTS // SPLIT                                     # whose results a CTA has
    pitch = rows + 4                                                 # of a token's sums: lanes t and t + 1 are 8 banks apart
    sums = smem.array(f32, SPLIT * along * TOKENS * pitch, align=16, name="sums of all warps")
    stages = Pipeline(STAGES, consumers=warps)
    thread, lane = mov.u32(tid.x), mov.u32(laneid)
    warp, band = thread >> 5, (mov.u32(ctaid.x) // SPLIT) * PARTS
    rank = mov.u32(cluster_ctarank) if SPLIT > 1 else mov.u32(0)
    bands = least.u32(PARTS, n // BAND - band)                       # the last CTA may have one
    first = least.u32(rank * share, k // GROUP)
    groups = least.u32(share, k // GROUP - first)
    rounds = (groups + (along - 1)) // along
    with if_(thread == 0):
        stages.init()
    if SPLIT > 1:
        barrier.cluster.arrive.release.aligned()
    bar.sync(0)
    with if_(warp == warps):
        place = (band + lane) * (k // GROUP) + first
        sources = weights.at(mul.wide.u32(place, PIECE)), scales.at(mul.wide.u32(place, SCALES))
        with ring(STAGES, rounds) as (step, stage, parity):
            done = step * along
            now = least.u32(along, groups - done)
            full = stages.producer_acquire(stage, parity)
            fence.proxy.async_.shared__cta()                         # the warps' loads from the stage, before the copies into it
            mbarrier.arrive.expect_tx.shared__cta.b64(full, now * bands * (4 * (PIECE + SCALES)), pred=lane == 0)
            bar.warp.sync(0xFFFFFFFF)
            with if_(lane < bands):
                target = (stage * PARTS + lane) * along
                for array, source, words in ((of_weights, sources[0], PIECE), (of_scales, sources[1], SCALES)):
                    copy(array.at(target * words), source.at(done * words), now * (4 * words), full)
        if SPLIT > 1:
            barrier.cluster.wait.acquire.aligned()
    with else_():
        griddepcontrol.wait()                                        # x may be the result of the launch before
        g, t, part, number = lane >> 2, lane & 3, warp // SHARERS % PARTS, warp // (PARTS * SHARERS)
        own = (warp % SHARERS) * (TILES // SHARERS)                  # the first of the operands of this warp
        total = [[[mov.f32(0.0) for _ in range(4)] for _ in range(halves)] for _ in range(TILES // SHARERS)]
        tokens = x.at(mul.wide.u32(g, k)).at((first + number) * GROUP + t * 16).cast(b32)
        there = [g + 8 * h < m for h in range(halves)]
        held, coming = ([[mov.b32(0) for _ in range(16)] for _ in there] for _ in range(2))
        load_tokens(held, tokens, k, [valid & (number < groups) for valid in there])
        with ring(STAGES, rounds) as (step, stage, parity):
            following = (step + 1) * along + number
            load_tokens(coming, tokens.at((step + 1) * (along * GROUP // 2)), k, [valid & (following < groups) for valid in there])
            stages.consumer_wait(stage, parity)                      # also without work in it: who ran ahead would release later stages
            with if_((step * along + number < groups) & (part < bands)):
                place = (stage * PARTS + part) * along + number
                words = of_weights.at(place * PIECE + own * (8 * LANES) + lane * 4)
                multiply_group(words, of_scales.at(place * SCALES + own * 8 + g), held, total)
            bar.warp.sync(0xFFFFFFFF)                                # all lanes have read
            stages.consumer_release(stage, pred=lane == 0)
            for word, other in zip(chain(*held), chain(*coming), strict=True):
                mov.b32(word, other)
        if SPLIT > 1:
            barrier.cluster.wait.acquire.aligned()                   # all CTAs are there
        place = sums.at(((rank * along + number) * TOKENS + t * 2) * pitch + g)
        eights = rows // 8                                           # of rows of a CTA: a lane has row g of them
        for i, half in product(range(TILES // SHARERS), range(2)):
            eight = (part * TILES + own + i) * 2 + half
            its = place + (eight & (eights - 1)) * 8
            of_owner = mapa.shared__cluster.u32(its, eight // eights) if SPLIT > 1 else None
            for h, c in product(range(halves), range(2)):
                offset, value = (8 * h + c) * pitch, total[i][h][2 * half + c]
                if of_owner is None:
                    st.shared__cta.f32(its + offset, value)
                else:
                    st.shared__cluster.f32(of_owner + 4 * offset, value)
    griddepcontrol.launch_dependents()
    if SPLIT > 1:
        cluster_sync()
    else:
        bar.sync(0)
    quads = rows // 4                                                # of results, four neighbouring ones a thread
    for item in range(0, TOKENS * quads, LANES * (warps + 1)):
        token, row = (thread + item) // quads, (thread + item) % quads * 4
        with if_((token < m) & (rank * rows + row < bands * BAND)):
            found = [mov.f32(0.0) for _ in range(4)]
            for summand in range(SPLIT * along):
                for mine, more in zip(found, ld.shared__cta.v4.f32(sums.at((summand * TOKENS + token) * pitch + row)), strict=True):
                    add.rn.f32(mine, mine, more)
            words = [pack(bf16, found[0], found[1]), pack(bf16, found[2], found[3])]
            st.global_.v2.b32(y.at(mul.wide.u32(token, n)).at(band * BAND + rank * rows + row), words)


def load_tokens(words: list[list[Any]], x: Ptr[b32], k: Reg[u32], there: list[Any]) -> None:
    """A lane's x for 128 of k, in 16 words: 16 neighbouring elements of each 64, of tokens g and g + 8 where they are."""
    for h, valid in enumerate(there):
        place = x.at(mul.wide.u32(k, 4 * h)) if h else x
        for i in range(4):
            four = words[h][4 * i:4 * i + 4]                         # 8 words for 64 of k: two for each mma
            ld.global_.v4.b32(four, place + (DEPTH // 2 * (i // 2) + 4 * (i % 2)), pred=valid)


def multiply_group(weights: Any, scales: Any, of_x: list[list[Any]], total: Any) -> None:
    """Adds 128 of k to the sums of some operands."""
    zero = [mov.f32(0.0) for _ in range(4)]
    for i, sums in enumerate(total):
        part = [zero] * len(of_x)
        for block in range(GROUP // DEPTH):
            for j, word in enumerate(ld.shared__cta.v4.u32(weights + 4 * LANES * (2 * i + block))):
                operand, at = unpacked(word), 8 * block + 2 * j
                part = [multiply(operand, values[at:at + 2], before) for values, before in zip(of_x, part, strict=True)]
        rows = unpack(bf16, ld.shared__cta.u32(scales + 8 * i))
        for mine, more in zip(sums, part, strict=True):
            for c in range(4):                                       # rows g, g, g + 8, g + 8
                fma.rn.f32(mine[c], more[c], rows[c // 2], mine[c])


def parts(n: int, sms: int) -> int:
    """The bands of a CTA: 1 where the CTAs are one wave, or where those with 2 take longer, counted in waves and bands; else 2."""
    one, two = (count * math.ceil(math.ceil(n / (BAND * count)) / sms) for count in (1, 2))
    return 1 if one < two else 2


def split(n: int, k: int, card: Card) -> int:
    """How many CTAs share the rows of a cluster, a power of 2: as many as are at work at a time, and each with a group at least."""
    blocks = -(-n // (BAND * parts(n, card.sms)))
    return max([1, *(size for size, ctas in card.clusters if blocks * size <= ctas and size <= k // GROUP and size in (2, 4, 8))])


def steps(x: Any, weights: Any, scales: Any, y: Any, card: Card | None = None) -> list[Step]:
    """The launch for x [M, K], weights and scales as packed, and y [M, N]. `card` None is the GPU of this process."""
    (m, k), n = extents("x [M, K]", x), extents("y [M, N]", y)[1]
    if not 1 <= m <= 16 or n % 64 or k % GROUP:
        raise ValueError(f"M is 1 to 16, N a multiple of 64 and K of {GROUP}, not {m}, {n} and {k}: `ptxkit.gemm.gemm` takes "
                         "more rows, with weights of bf16")
    bands, groups = n // BAND, k // GROUP
    taken(x=(x, (m, k)), weights=(weights, (bands, groups, TILES, 2, LANES, 4)), scales=(scales, (bands, groups, TILES, 8, 1)),
          y=(y, (m, n)))
    apart("y", x=x, weights=weights, scales=scales, y=y)
    if not (card is None or isinstance(card, Card)):
        raise ValueError(f"card is a {type(card).__name__}: it is a Card of ptxkit.cards, or None")
    card = card or (card_of(driver.current_device()) if driver.available() else H200)
    found, wide = split(n, k, card), parts(n, card.sms)
    return [Step(w4a16, -(-bands // wide) * found, (x, weights, scales, y, m, n, k, -(-groups // found)),
                 {"TOKENS": 8 if m <= 8 else 16, "SPLIT": found, "PARTS": wide, "SHARERS": 2 if m <= 8 and wide > 1 else 1},
                 ("weights", "scales"))]


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
