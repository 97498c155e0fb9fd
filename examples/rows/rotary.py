"""Rotary embedding: pairs (x[i], x[i + D/2]) of each head are turned by an angle of the token's position.

    y[i] = x[i] cos - x[i + D/2] sin        y[i + D/2] = x[i + D/2] cos + x[i] sin

A thread has eight neighbouring pairs: 16 bytes of each half. It keeps their cosines and sines in registers and goes over the heads, so the
tables are read once a token and not once a head. The heads are unrolled: the loads of HEADS of them are under way at once.

    python -m examples.rows.rotary
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, normal, poison, report, taken, ulps, wide
from ptxkit import Ptr, Reg, ctaid, for_range, if_, kernel, tid
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import fma, ld, mad, mov, mul, neg, st
from ptxkit.types import bf16, f32, u32

THREADS = 256
VECTOR = 8
HEADS = 4                                                            # heads under way


def rotated(x: Ptr[bf16], y: Ptr[bf16], cosines: list[Reg[f32]], sines: list[Reg[f32]], half: int, heads: int) -> None:
    """`heads` neighbouring heads of one token. All loads come first."""
    read = ld.global_.nc.v4.b32
    words = [(read(x + 2 * half * h), read(x + 2 * half * h + half)) for h in range(heads)]
    for h, pair in enumerate(words):
        first, second = ([value for word in four for value in unpack(bf16, word)] for four in pair)
        turned = [], []
        for a, b, c, s in zip(first, second, cosines, sines, strict=True):
            turned[0].append(fma.rn.f32(neg.f32(b), s, mul.rn.f32(a, c)))
            turned[1].append(fma.rn.f32(a, s, mul.rn.f32(b, c)))
        for part, values in enumerate(turned):
            st.global_.v4.b32(y + (2 * half * h + half * part), [pack(bf16, values[i], values[i + 1]) for i in range(0, VECTOR, 2)])


@kernel(target="sm_90a", block=THREADS, min_ctas=2)
def rotary(x: Ptr[bf16], positions: Ptr[u32], cos: Ptr[f32], sin: Ptr[f32], y: Ptr[bf16], tokens: Reg[u32], heads: Reg[u32], *,
           HEAD: int = 128) -> None:
    """x and y [tokens, heads, HEAD], positions [tokens], cos and sin [positions, HEAD / 2]. A group of HEAD / 16 threads has a token."""
    half, group = HEAD // 2, HEAD // (2 * VECTOR)
    thread = mad.lo.u32(mov.u32(ctaid.x), THREADS, mov.u32(tid.x))
    token, column = thread // group, (thread % group) * VECTOR
    with if_(token < tokens):
        place = mul.wide.u32(ld.global_.u32(positions.at(token)), half)
        tables = [[value for i in (0, 4) for value in ld.global_.nc.v4.f32(table.at(place).at(column) + i)] for table in (cos, sin)]
        start = mul.wide.u32(token * heads, HEAD)
        source, target = x.at(start).at(column), y.at(start).at(column)
        whole = (heads // HEADS) * HEADS
        with for_range(whole, step=HEADS) as head:
            rotated(source.at(head * HEAD), target.at(head * HEAD), *tables, half, HEADS)
        with for_range(heads, start=whole) as head:
            rotated(source.at(head * HEAD), target.at(head * HEAD), *tables, half, 1)


def steps(x: Any, positions: Any, cos: Any, sin: Any, y: Any) -> list[Step]:
    """The launch for x and y [tokens, heads, D], positions [tokens] and the tables [positions, D / 2]. D is 64, 128 or 256. Positions
    are on the device: who makes them sees to it that the tables have them."""
    tokens, heads, head = extents("x [tokens, heads, D]", x)
    if head not in (64, 128, 256):
        raise ValueError(f"a head has 64, 128 or 256 elements, so that whole groups of threads share a token, not {head}")
    table = extents("cos [positions, D / 2]", cos)[0], head // 2
    taken(x=(x, x.shape), positions=(positions, (tokens,)), cos=(cos, table), sin=(sin, table), y=(y, x.shape))
    apart("y", x=x, positions=positions, cos=cos, sin=sin, y=y)
    return [Step(rotary, -(-tokens * head // (2 * VECTOR) // THREADS), (x, positions, cos, sin, y, tokens, heads), {"HEAD": head})]


def problem(tokens: int, heads: int, head: int = 128, seed: int = 0) -> Problem:
    """Random positions below 4,096."""
    x, positions = normal(seed, tokens, heads, head), np.random.default_rng(seed).integers(0, 4096, tokens, np.uint32)
    angles = np.arange(4096)[:, None] * 10_000.0 ** (-np.arange(head // 2) / (head // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = np.split(wide("bf16", x), 2, axis=2)
    c, s = (table.astype(np.float64)[positions][:, None] for table in (cos, sin))
    exact = np.concatenate([a * c - b * s, b * c + a * s], 2)
    magnitude = np.abs(np.concatenate([a * c, b * c], 2)) + np.abs(np.concatenate([b * s, a * s], 2))
    operands = {"x": ("bf16", x), "positions": ("u32", positions), "cos": ("f32", cos), "sin": ("f32", sin),
                "y": ("bf16", poison("bf16", *x.shape))}
    return Problem(operands, lambda given: steps(*(given[name] for name in operands)),
                   {"y": (exact, 1.01 * ulps(exact) + 2.0**-22 * magnitude)}, bytes=4 * x.size + 8 * tokens * head // 2 + 4 * tokens,
                   library=_library)


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    def turn(x: Any, positions: Any, cos: Any, sin: Any) -> Any:
        first, second = x.float().chunk(2, 2)
        c, s = cos[positions][:, None], sin[positions][:, None]
        return torch.cat([first * c - second * s, second * c + first * s], 2).bfloat16()

    compiled, positions = torch.compile(turn), a["positions"].long()
    return lambda: compiled(a["x"], positions, a["cos"], a["sin"])


if __name__ == "__main__":
    print(report("rotary", problem(16_384, 32), problem(5, 6, 64)))
