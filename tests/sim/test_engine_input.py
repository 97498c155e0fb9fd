"""Bad input: one clear error each, before anything runs. Counts, and what the driver provides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, TensorMap, kernel, sim
from ptxkit.grammar.errors import ParseError, PtxkitError
from ptxkit.ptx import st
from ptxkit.types import f32, u32

from .kernels import OUT, run
from .kernels import kernel as text
from .test_engine_async import MAPS, SHARED
from .test_hgemm import product

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
WORDS = np.zeros(32, np.uint32)


@kernel(block=32, cluster=2)
def scale(x: Ptr[f32], n: Reg[u32]) -> None:
    st.global_.u32(x, n)


PLAIN = text("ret;")


@pytest.mark.parametrize(("source", "options", "words"), [
    (PLAIN, {"entry": "other"}, "no entry `other`; it has k"),
    (PLAIN + ".visible .entry j()\n{\n\tret;\n}\n", {}, r"2 entries \(k, j\): name one"),
    (PLAIN, {"args": ()}, r"takes 1 argument \(out\), 0 were given: `out` needs an array or a number"),
    (PLAIN, {"args": (WORDS, 1)}, r"takes 1 argument \(out\), 2 were given"),
    (PLAIN, {"args": WORDS}, "args is a sequence"),
    (PLAIN, {"args": (3.5,)}, "`out` is a u64: pass an int"),
    (PLAIN, {"args": ("text",)}, "`out` is a u64: pass a number"),
    (PLAIN, {"args": (1 << 64,)}, "does not fit its 64 bits"),
    (PLAIN, {"args": (np.array([None, None]),)}, "array of Python objects"),
    (PLAIN, {"args": (TensorMap(WORDS, box=(4,)),)}, "not a tensor map"),
    (text("ret;", ".param .u32 n"), {"args": (WORDS,)}, "an array needs a 64-bit parameter"),
    (text("ret;", ".param .align 64 .b8 map[128]"), {"args": (WORDS,)}, "pass ptxkit.TensorMap"),
    (text("ret;", ".param .align 8 .b8 pair[8]"), {"args": (b"123",)}, "is 8 bytes, 3 were given"),
    (PLAIN, {"grid": 0}, "grid is one to three positive extents"),
    (PLAIN, {"grid": (1, 1, 1, 1)}, "grid is one to three positive extents"),
    (PLAIN, {"grid": (1, 70_000)}, "a grid of"),
    (PLAIN, {"block": 1025}, "a block of 1025 threads: at most 1024"),
    (PLAIN, {"block": (1, 1, 65)}, "at most 64 threads deep"),
    (PLAIN, {"block": None}, "does not say its block"),
    (PLAIN, {"grid": 3, "cluster": 2}, "is not divisible by the cluster"),
    (PLAIN, {"grid": 32, "cluster": 32}, "at most 16 CTAs"),
    (text("ret;", directives=".reqntid 64"), {"block": 32}, "conflicts with .reqntid"),
    (text("ret;", directives=".maxntid 16"), {"block": 32}, "more than .maxntid"),
    (text("ret;", directives=".reqnctapercluster 2"), {"cluster": 4, "grid": 4}, "conflicts with .reqnctapercluster"),
    (PLAIN, {"dynamic_smem": 300_000}, "300,000 bytes of shared memory a CTA: at most 232,448"),
    (PLAIN, {"dynamic_smem": -1}, "at least 0 bytes"),
    (PLAIN, {"max_steps": 0}, "max_steps is a positive number"),
    (PLAIN, {"schedule": "never"}, "there is no schedule 'never'"),
    (PLAIN, {"BM": 3}, r"compile-time parameters \(BM\) are for kernel objects"),
    (7, {}, "neither PTX text, nor a tree, nor a kernel"),
    (text("add.u32 %r1, %r2;"), {}, "line 1[0-9]: `add.u32`"),
    (text("bra NOWHERE;"), {}, "no label `NOWHERE`"),
    (scale, {"args": (np.zeros(4, np.float64), 1), "grid": 2, "block": None}, "points to f32, the array has elements of f64"),
    (scale, {"args": (3, 1), "grid": 2, "block": None}, "`x` is a pointer: pass a NumPy array, not 3"),
    (scale, {"args": (np.zeros(4, np.float32), WORDS), "grid": 2, "block": None}, "`n` is a number of type u32, not an array"),
    (scale, {"args": (np.zeros(4, np.float32), 1), "grid": 3, "block": None}, "is not divisible by the cluster"),
    (scale, {"args": (np.zeros(4, np.float32), 1), "grid": 2, "block": 64}, "conflicts with .reqntid"),
])
def test_a_wrong_call(source: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(sim.SimulationError, match=words):
        sim.run(source, **{"grid": 1, "block": 32, "args": (WORDS,), "check": False, **options})


def test_unparsable() -> None:
    with pytest.raises(ParseError, match="line 5"):
        sim.run(PLAIN.replace("(.param .u64 out)", "(.param u64 out)"), grid=1, block=32, args=())


@pytest.mark.parametrize(("array", "options", "words"), [
    (np.zeros((8, 8), np.float32), {"box": (4,)}, "box"),
    (np.zeros((8, 8), np.float32), {"box": (4, 512)}, "box"),
    (np.zeros((8, 8), np.float32), {"box": (4, 8), "swizzle": 16}, "swizzle"),
    (np.zeros((8, 7), np.float32), {"box": (4, 4)}, "stride"),
    (np.zeros((8, 64), np.float32), {"box": (4, 64), "swizzle": 128}, "128"),
    (np.zeros((8, 64), np.complex64), {"box": (4, 2)}, "complex64"),
])
def test_a_tensor_map_that_does_not_fit_its_array(array: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PtxkitError, match=words):
        run("ret;", TensorMap(array, **options), WORDS, parameters=MAPS, before=SHARED)


@pytest.mark.parametrize("name", ["malloc", "free", "cudaMalloc"])
def test_what_nobody_defines(name: str) -> None:
    with pytest.raises(sim.UnsupportedError, match=f"`{name}` is declared but not defined"):
        run(f"call {name};", WORDS, before=f".extern .func {name};\n")


def test_interleaved_maps_are_refused() -> None:
    with pytest.raises(sim.UnsupportedError, match="interleaved"):
        run("ret;", TensorMap(np.zeros((4, 8, 8, 16), np.uint8), box=(4, 8, 8, 16), interleave=16), WORDS, parameters=MAPS, before=SHARED)


def test_counts() -> None:
    body = OUT + """shl.b32 %r1, %r0, 7;
mov.u32 %r2, tile;
add.u32 %r2, %r2, %r1;
st.shared.u32 [%r2], %r0;
bar.sync 0;
ld.shared.u32 %r3, [%r2];
st.global.u32 [%rd1], %r3;"""
    report = run(body, np.zeros(64, np.uint32), before=".shared .align 128 .b8 tile[8192];\n", block=64)
    stats = report.stats
    assert stats.opcodes["st.shared.u32"] == 2
    assert stats.instructions == sum(stats.opcodes.values()) == 26
    assert stats.bank_conflicts == 4 * 31
    assert stats.barrier_waits == 1
    assert stats.bytes == {"write global": 256, "read shared": 256, "write shared": 256, "read param": 512}


def test_an_atomic_reads_and_writes() -> None:
    body = OUT + "atom.global.add.u32 %r3, [%rd1], 1;\nred.shared.add.u64 [%r1], 1;"
    report = run("mov.u32 %r1, tile;\n" + body, np.zeros(64, np.uint32), before=".shared .align 8 .b8 tile[8];\n", block=64)
    assert report.stats.bytes == {"read global": 256, "write global": 256, "read shared": 512, "write shared": 512, "read param": 512}


def test_counts_of_the_real_kernel() -> None:
    stats = product(256, 256, 128).stats
    assert stats.bytes["write shared"] >= (256 + 2 * 256) * 128 * 2
    assert stats.bytes["read global"] == 256 * 128 * 2 + 256 * 128 * 2
    assert stats.bytes["write global"] == 256 * 256 * 2
    assert stats.bank_conflicts == 0
    assert stats.barrier_waits > 0


PRINTF = """.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s) .noreturn;
.global .align 1 .b8 format[28] = {108, 97, 110, 101, 32, 37, 51, 100, 32, 37, 46, 50, 102, 32, 37, 108, 108, 120, 32, 37, 115, 37, 37, 10};
.global .align 1 .b8 word[3] = {104, 105};
"""


def test_printf_as_compilers_call_it() -> None:
    body = """.local .align 8 .b8 depot[32];
mov.u32 %r0, %tid.x;
setp.ge.u32 %p0, %r0, 2;
@%p0 ret;
mov.u64 %rd1, depot;
cvta.local.u64 %rd2, %rd1;
sub.u32 %r1, %r0, 5;
st.local.u32 [%rd1], %r1;
mov.f64 %fd0, 0d3FF4000000000000;
st.local.f64 [%rd1+8], %fd0;
mov.u64 %rd3, 0xabcdef0123;
st.local.u64 [%rd1+16], %rd3;
mov.u64 %rd4, word;
cvta.global.u64 %rd4, %rd4;
st.local.u64 [%rd1+24], %rd4;
mov.u64 %rd5, format;
cvta.global.u64 %rd5, %rd5;
{
.param .b64 p0;
.param .b64 p1;
.param .b32 r;
st.param.b64 [p0], %rd5;
st.param.b64 [p1], %rd2;
call.uni (r), vprintf, (p0, p1);
ld.param.b32 %r2, [r];
}"""
    report = run(body, parameters="", before=PRINTF)
    assert report.output == "lane  -5 1.25 abcdef0123 hi%\nlane  -4 1.25 abcdef0123 hi%\n"
