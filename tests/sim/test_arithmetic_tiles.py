"""wmma in compiled programs, and mma.sync on whole numbers, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptxkit.sim import run

PTX = Path(__file__).with_name("programs").joinpath("tiles.ptx").read_text()
RNG = np.random.default_rng(5)


def test_wmma_of_halves() -> None:
    a, b = RNG.integers(-8, 9, (16, 16)).astype(np.float16), RNG.integers(-8, 9, (16, 24)).astype(np.float16)
    c, d = RNG.integers(-8, 9, (16, 16)).astype(np.float32), np.zeros((16, 16), np.float32)
    report = run(PTX, "half_tile", grid=1, block=32, args=[a, b, c, d], check=False)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(d.T, 2 * (a.astype(np.float32) @ b[:, :16].T.astype(np.float32) + c))


def test_wmma_of_bytes() -> None:
    a, b = RNG.integers(-128, 128, (8, 32)).astype(np.int8), RNG.integers(-128, 128, (16, 32)).astype(np.int8)
    d = np.zeros((8, 32), np.int32)
    report = run(PTX, "byte_tile", grid=1, block=32, args=[a, b, d], check=False)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(d, a[:, :16].astype(np.int32) @ b.astype(np.int32) + 3)


def test_mma_of_halves() -> None:
    """Fragments as the ISA draws them."""
    a, b = RNG.integers(-8, 9, (16, 16)).astype(np.float16), RNG.integers(-8, 9, (16, 8)).astype(np.float16)
    d = np.zeros((16, 8), np.float32)
    ptx = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d) .reqntid 32 {
.reg .b64 %a, %b, %d, %x; .reg .b32 %i, %g, %t, %o, %r<6>; .reg .f32 %f<4>; .reg .b16 %h<4>;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %d, [d];
mov.u32 %i, %tid.x; shr.u32 %g, %i, 2; and.b32 %t, %i, 3;
shl.b32 %o, %g, 5; mad.lo.u32 %o, %t, 4, %o; cvt.u64.u32 %x, %o; add.u64 %a, %a, %x;
ld.global.b32 %r0, [%a]; ld.global.b32 %r1, [%a+256]; ld.global.b32 %r2, [%a+16]; ld.global.b32 %r3, [%a+272];
shl.b32 %o, %t, 5; mad.lo.u32 %o, %g, 2, %o; cvt.u64.u32 %x, %o; add.u64 %b, %b, %x;
ld.global.b16 %h0, [%b]; ld.global.b16 %h1, [%b+16]; ld.global.b16 %h2, [%b+128]; ld.global.b16 %h3, [%b+144];
mov.b32 %r4, {%h0, %h1}; mov.b32 %r5, {%h2, %h3};
mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
shl.b32 %o, %g, 5; mad.lo.u32 %o, %t, 8, %o; cvt.u64.u32 %x, %o; add.u64 %d, %d, %x;
st.global.v2.f32 [%d], {%f0, %f1}; st.global.v2.f32 [%d+256], {%f2, %f3};
ret; }
"""
    report = run(ptx, grid=1, block=32, args=[a, b, d], check=False)
    assert not report.findings, report.findings
    np.testing.assert_array_equal(d, a.astype(np.float32) @ b.astype(np.float32) + 1)
