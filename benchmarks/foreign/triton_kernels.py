"""Triton kernels: row softmax, layer norm, products by pointers and by TMA, causal attention."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, SIZE: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, SIZE)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, power / tl.sum(power, 0), mask=at < columns)


@triton.jit
def layer_norm(x, weight, bias, y, mean, rstd, columns, eps, SIZE: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, columns, SIZE):
        at = start + tl.arange(0, SIZE)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    middle = tl.sum(total, 0) / columns
    square = tl.zeros((SIZE,), tl.float32)
    for start in range(0, columns, SIZE):
        at = start + tl.arange(0, SIZE)
        off = tl.where(at < columns, tl.load(x + row * columns + at, mask=at < columns, other=0.0) - middle, 0.0)
        square += off * off
    scale = 1 / tl.sqrt(tl.sum(square, 0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for start in range(0, columns, SIZE):
        at = start + tl.arange(0, SIZE)
        inside = at < columns
        value = tl.load(x + row * columns + at, mask=inside, other=0.0)
        made = (value - middle) * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(y + row * columns + at, made, mask=inside)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        depth = start + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        y = tl.load(b + depth[:, None] * N + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.bfloat16), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def matmul_tma_host(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(a.load([row, start]), b.load([start, column]), acc)
    c.store([row, column], acc.to(tl.bfloat16))


@triton.jit
def matmul_tma_device(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    made = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(left.load([row, start]), right.load([start, column]), acc)
    made.store([row, column], acc.to(tl.bfloat16))


@triton.jit
def attention(q, k, v, o, length, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal, one head a program of axis 1, with an online softmax in base 2."""
    first, head = tl.program_id(0) * BM, tl.program_id(1) * length * D
    rows, depth = first + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + depth[None, :], mask=rows[:, None] < length, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, first + BM, BN):
        columns = start + tl.arange(0, BN)
        inside = columns[:, None] < length
        key = tl.load(k + head + columns[:, None] * D + depth[None, :], mask=inside, other=0.0)
        score = tl.dot(query, tl.trans(key)) * (scale * 1.44269504)
        score = tl.where(columns[None, :] <= rows[:, None], score, -float("inf"))
        above = tl.maximum(most, tl.max(score, 1))
        power = tl.exp2(score - above[:, None])
        old = tl.exp2(most - above)
        value = tl.load(v + head + columns[:, None] * D + depth[None, :], mask=inside, other=0.0)
        acc = tl.dot(power.to(tl.bfloat16), value, acc * old[:, None])
        total = total * old + tl.sum(power, 1)
        most = above
    tl.store(o + head + rows[:, None] * D + depth[None, :], (acc / total[:, None]).to(tl.bfloat16), mask=rows[:, None] < length)


@triton.jit
def matmul_specialized(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Persistent; the compiler divides loads, products and stores among warps."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    made = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), warp_specialize=True):
        row, column = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for start in tl.range(0, K, BK):
            acc = tl.dot(left.load([row, start]), right.load([start, column]), acc)
        made.store([row, column], acc.to(tl.bfloat16))
