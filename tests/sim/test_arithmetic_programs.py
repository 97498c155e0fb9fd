"""CUDA programs compiled by nvcc, run on the simulator, against NumPy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit.sim import run

PTX = Path(__file__).with_name("programs").joinpath("numbers.ptx").read_text()
SCHEDULES = [("fifo", 0), ("random", 3)]
EDGES = [0.0, -0.0, 1e-45, -1e-40, 65504.0, 65520.0, 1e6, -1e9, 448.0, 464.0, 465.0, 57344.0, 61440.0, 3e38, float("inf"), -float("inf"),
         0.5, 1.5, 2.5, -2.5, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 2147483647.0, -2147483648.0, 6e-8, 2.98e-8]


def launch(entry: str, grid: Any, block: Any, *args: Any, schedule: tuple[str, int] = ("fifo", 0)) -> None:
    report = run(PTX, entry, grid=grid, block=block, args=list(args), schedule=schedule[0], seed=schedule[1], check=False)
    assert not report.findings, report.findings


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sum(rng: np.random.Generator, schedule: tuple[str, int]) -> None:
    x, out = rng.integers(-(1 << 31), 1 << 31, 3001).astype(np.int32), np.zeros(1, np.int32)
    launch("sum", 3, 256, x, out, len(x), schedule=schedule)
    assert out[0] == x.sum(dtype=np.int32)


def test_scan(rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 1 << 32, 1024, np.uint32), np.zeros(1024, np.uint32)
    launch("scan", 1, 1024, x, y)
    np.testing.assert_array_equal(y, np.cumsum(x, dtype=np.uint32))


def test_softmax(rng: np.random.Generator) -> None:
    x = rng.normal(size=(6, 129)).astype(np.float32) * 8
    y = np.zeros_like(x)
    launch("softmax", 6, 32, x, y, 129)
    power = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, power / power.sum(1, keepdims=True), rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("shape", [(64, 32), (70, 45), (1, 33)])
def test_transpose(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    x, y = rng.normal(size=shape).astype(np.float32), np.zeros(shape[::-1], np.float32)
    launch("transpose", (-(-shape[1] // 32), -(-shape[0] // 32)), (32, 8), x, y, *shape)
    np.testing.assert_array_equal(y, x.T)


def test_conversions(rng: np.random.Generator) -> None:
    x = np.concatenate([np.array(EDGES, np.float32), (rng.normal(size=512) * 2.0 ** rng.integers(-30, 30, 512)).astype(np.float32)])[:512]
    h, b = np.zeros(512, np.float16), np.zeros(512, np.uint16)
    e4, e5, n, d = np.zeros(512, np.uint8), np.zeros(512, np.uint8), np.zeros(512, np.int32), np.zeros(512)
    launch("conversions", 4, 128, x, h.view(np.uint16), b, e4, e5, n, d)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(h, x.astype(np.float16))
        np.testing.assert_array_equal(b.view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
        for found, dtype, top in ((e4, ml_dtypes.float8_e4m3fn, 448.0), (e5, ml_dtypes.float8_e5m2, 57344.0)):
            np.testing.assert_array_equal(found, np.clip(x, -top, top).astype(dtype).view(np.uint8))
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(n, np.clip(np.trunc(wide), -(1 << 31), (1 << 31) - 1).astype(np.int32))
        product = np.array([float(Fraction(v) * 3 + Fraction(1e-17)) if np.isfinite(v) else v for v in wide.tolist()])
        np.testing.assert_array_equal(d, product / 7 + np.sqrt(np.abs(wide)))


def test_integers(rng: np.random.Generator) -> None:
    edges = [0, 1, -1, -(1 << 31), (1 << 31) - 1, 7, -7]
    a = np.array([*edges, *rng.integers(-(1 << 31), 1 << 31, 249)], np.int32)
    b = np.array([*edges[::-1], *rng.integers(-(1 << 31), 1 << 31, 249)], np.int32)
    q, r, p, c = np.zeros(256, np.int32), np.zeros(256, np.uint32), np.zeros(256, np.int64), np.zeros(256, np.uint32)
    launch("integers", 2, 128, a, b, q, r, p, c)
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        word = 0xFFFFFFFF
        assert q[i] == (np.int32(_quotient(x, y | 1)) if y and (x, y | 1) != (-(1 << 31), -1) else q[i] if y else 0)
        assert r[i] == ((x & word) % 1000003 + (y & word) // 7) & word
        high = (x << 30) * (y << 30) >> 64
        assert p[i] == _quotient(x * y, 12345) + high
        octets = (x & word).to_bytes(4, "little") + (y & word).to_bytes(4, "little")
        permuted = int.from_bytes(bytes(octets[k] for k in (0, 5, 7, 2)), "little")
        dot = sum(s * t for s, t in zip(np.array([x], np.int32).view(np.int8).tolist(), np.array([y], np.int32).view(np.int8).tolist(),
                                        strict=True)) + 5
        first = (x & -x).bit_length() if x else 0
        counts = bin(x & word).count("1") + 100 * (32 - (y & word).bit_length()) + 10000 * first
        assert c[i] == counts + permuted + int(f"{y & word:032b}"[::-1], 2) + dot & word


def _quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_atomics(rng: np.random.Generator, schedule: tuple[str, int]) -> None:
    x = rng.integers(0, 1 << 32, 700, np.uint32)
    bins, total, top, old = np.zeros(16, np.uint32), np.zeros(1, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    launch("histogram", 2, 128, x, bins, total, top, old, len(x), schedule=schedule)
    np.testing.assert_array_equal(bins, np.bincount(x & 15, minlength=16))
    assert (total[0], top[0], old[0]) == ((x & 15).sum(), x.max(), (x & 3).sum())


def test_votes(rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 100, 32).astype(np.int32), np.zeros(32, np.uint32)
    launch("votes", 1, 32, x, y)
    even = sum(1 << i for i, v in enumerate(x) if v % 2 == 0)
    rest = 5 * int((x < 1000).all()) + 9 * int((x == 7).any()) + int(x.sum()) + 17 * int(x.max()) + int(np.bitwise_xor.reduce(x))
    for i, v in enumerate(x):
        same = sum(1 << j for j, w in enumerate(x) if w % 5 == v % 5)
        assert y[i] == (even ^ same * 3 + rest & 0xFFFFFFFF) & 0xFFFFFFFF


def test_halves(rng: np.random.Generator) -> None:
    x, y = (rng.normal(size=256).astype(np.float16) for _ in range(2))
    b = rng.normal(size=256).astype(ml_dtypes.bfloat16)
    z, c = np.zeros(256, np.uint16), np.zeros(256, np.uint16)
    launch("halves", 1, 128, x.view(np.uint32), y.view(np.uint32), z.view(np.uint32), b.view(np.uint32), c.view(np.uint32))
    wide = [v.astype(np.float64) for v in (x, y, b)]
    inner = x + y * y
    np.testing.assert_array_equal(z.view(np.float16), (wide[0] * wide[1] + inner.astype(np.float64)).astype(np.float16))
    squared = (wide[2] * wide[2] + wide[2]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(c.view(ml_dtypes.bfloat16), np.maximum(squared, -b))
