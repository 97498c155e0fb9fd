"""Laws of the kernels that measure a card's ceilings: wgmma alone, and the streaming read."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxkit.gemm.tools.bench import baselines
from ptxkit.gemm.tools.bench.ceilings import READ_WARPS, resident, resident_flops, resident_k, stream
from ptxkit.runtime.toolchain import disassemble
from ptxkit.types import bf16, e4m3, f16

TYPES = {bf16: "bfloat16", f16: "float16", e4m3: "float8_e4m3fn"}


@pytest.mark.parametrize(("type_", "slices"), [(bf16, 2), (f16, 1), (e4m3, 1)])
def test_wgmma_alone_multiplies_what_it_keeps(type_, slices):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = getattr(ml_dtypes, TYPES[type_], np.float16)
    k, grid, rounds = resident_k(type_, slices), 2, 3
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((grid * 128, k), (256, k)))
    d = np.full((grid * 128, 256), np.nan, np.float32)
    found = resident.simulate(grid, a, b, d, rounds, TYPE=type_, SLICES=slices)
    assert found.verdict == "clean", found
    exact = rounds * (a.astype(np.float64) @ b.astype(np.float64).T)
    assert np.abs(d - exact).max() <= 1e-4 * np.abs(exact).max()
    assert resident_flops(grid, rounds, type_, slices) == 2 * d.size * k * rounds


@pytest.mark.parametrize(("chunks", "grid"), [(1, 1), (7, 2), (3, 4)])
def test_the_streaming_read_sees_every_word_once(chunks, grid):
    words = np.random.default_rng(chunks).integers(0, 1 << 32, chunks * 512 + 512, dtype=np.uint32)
    total = np.zeros(grid * READ_WARPS, np.uint32)
    found = stream.simulate(grid, words, total, chunks, CHUNK=2048, STAGES=2, schedule="random", seed=chunks)
    assert found.verdict == "clean", found
    assert np.bitwise_xor.reduce(total) == np.bitwise_xor.reduce(words[:chunks * 512])


@pytest.mark.ptxas
@pytest.mark.parametrize("type_", TYPES)
def test_wgmma_alone_is_nothing_but_wgmma(type_):
    assembly = resident.assemble(TYPE=type_)
    assert assembly.findings == ()
    assert assembly.resources["resident"].spills == 0
    sass = disassemble(assembly.cubin)
    loop = max(re.split(r"\bBRA\b", sass), key=lambda part: part.count("GMMA.64x256"))
    assert loop.count("GMMA.64x256") == 16
    assert not re.search(r"\bSTG|\bLDG|\bLDS|\bUTMALDG", loop)


@pytest.mark.ptxas
@pytest.mark.parametrize(("chunk", "stages"), baselines._READ_SHAPES)
def test_the_streaming_reads_keep_an_sm_full(chunk, stages):
    traced = stream.trace(CHUNK=chunk, STAGES=stages)
    assert 190_000 <= traced.shared.total <= 232_448
    assert stream.assemble(CHUNK=chunk, STAGES=stages).resources["stream"].spills == 0
