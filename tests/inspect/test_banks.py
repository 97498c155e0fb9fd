"""Bank conflicts against a count over words and banks with NumPy, known patterns, and kernels whose addresses are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.check.analysis import Analysis
from ptxkit.check.places import Places
from ptxkit.grammar import parse
from ptxkit.inspect.banks import conflicts, wavefronts
from ptxkit.inspect.facts import Banks
from ptxkit.layout import swizzled

pytestmark = pytest.mark.pure


def counted(addresses: dict[int, int], size: int) -> int:
    """Passes, by filling a table of (bank, distinct words) for each group of lanes that goes together."""
    total = 0
    for group in np.array_split(np.arange(32), max(1, size // 4)):
        table = [set() for _ in range(32)]
        for lane in group:
            if lane in addresses:
                for byte in range(addresses[lane], addresses[lane] + size):
                    table[byte // 4 % 32].add(byte // 4)
        total += max(map(len, table))
    return total


@given(st.sampled_from([1, 2, 4, 8, 16]), st.dictionaries(st.integers(0, 31), st.integers(0, 4000), min_size=1))
def test_any_addresses(size: int, given_addresses: dict[int, int]) -> None:
    addresses = {lane: at * size for lane, at in given_addresses.items()}
    assert wavefronts(addresses, size)[0] == counted(addresses, size)


@pytest.mark.parametrize("stride", range(1, 65))
def test_strides(stride: int) -> None:
    """A stride of s words has gcd(s, 32)-way conflicts."""
    assert wavefronts({lane: 4 * stride * lane for lane in range(32)}, 4) == (int(np.gcd(stride, 32)), 1)


def test_what_has_none() -> None:
    assert wavefronts(dict.fromkeys(range(32), 64), 4) == (1, 1)                               # broadcast
    assert wavefronts({lane: 16 * lane for lane in range(32)}, 16) == (4, 4)                   # 16 bytes a lane
    assert wavefronts({lane: 128 * lane for lane in range(8)}, 16) == (8, 1)                   # a column of rows
    assert wavefronts({lane: swizzled(128 * lane, 128) for lane in range(8)}, 16) == (1, 1)    # swizzled
    assert wavefronts({}, 4) == (0, 0)


def found(body: str, threads: int = 64, align: int = 1024) -> Banks:
    module = parse(f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 p)
.reqntid {threads}, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<8>;
    .shared .align {align} .b8 tile[32768];
    mov.u32 %r0, %tid.x;
    mov.u32 %r9, tile;
{body}
    ret;
}}
""")
    return conflicts(Analysis(module, module.entries[0], Places(module, None)))


@pytest.mark.parametrize(("body", "passes"), [
    ("shl.b32 %r1, %r0, 7; add.u32 %r2, %r1, %r9; st.shared.u32 [%r2], %r0;", (32, 1)),
    ("shl.b32 %r1, %r0, 3; add.u32 %r2, %r1, %r9; ld.shared.u32 %r3, [%r2+4];", (2, 1)),
    ("shl.b32 %r1, %r0, 2; add.u32 %r2, %r1, %r9; ld.shared.u32 %r3, [%r2];", None),
    ("mad.lo.u32 %r2, %r0, 132, %r9; ld.shared.u32 %r3, [%r2];", None),
    ("and.b32 %r1, %r0, 31; shl.b32 %r1, %r1, 7; add.u32 %r2, %r1, %r9; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3,%r4,%r5,%r6}, [%r2];",
     (32, 4)),
    ("and.b32 %r1, %r0, 31; and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 4; shl.b32 %r1, %r1, 7; or.b32 %r1, %r1, %r7; add.u32 %r2, %r1, %r9;"
     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3,%r4,%r5,%r6}, [%r2];", None),
    ("shl.b32 %r1, %r0, 8; add.u32 %r2, %r1, %r9; st.shared.v4.f32 [%r2], {%f0,%f1,%f2,%f3};", (32, 4)),
    ("setp.lt.u32 %p1, %r0, 2; shl.b32 %r1, %r0, 7; add.u32 %r2, %r1, %r9; @%p1 st.shared.u32 [%r2], %r0;", (2, 1)),
])
def test_addresses_in_ptx(body: str, passes: tuple[int, int] | None) -> None:
    made = found(body)
    assert (made.accesses, made.known) == (1, 1)
    assert [(fact.passes, fact.ideal) for fact in made.conflicts] == ([passes] if passes else [])
    for fact in made.conflicts:
        assert len(fact.lanes) == 2


@pytest.mark.parametrize(("align", "decided"), [(1024, True), (16, False)])
def test_a_swizzle_by_xor_on_the_address(align: int, decided: bool) -> None:
    """A column of 16-byte chunks, its rows 128 bytes apart, with address bits 7 to 9 XORed into 4 to 6; without that it has conflicts."""
    column = "and.b32 %r1, %r0, 31; shl.b32 %r2, %r1, 7; add.u32 %r2, %r2, %r9;"
    swizzle = "shr.u32 %r3, %r2, 3; and.b32 %r3, %r3, 112; xor.b32 %r4, %r2, %r3;"
    made = found(f"{column}{swizzle} ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r5,%r6,%r7,%r8}}, [%r4];", align=align)
    assert (made.known, made.conflicts) == (int(decided), ())
    if decided:
        wrong = swizzle.replace("112", "16")
        made = found(f"{column}{wrong} ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r5,%r6,%r7,%r8}}, [%r4];")
        assert [(fact.passes, fact.ideal) for fact in made.conflicts] == [(16, 4)]


def test_what_is_not_known_is_not_decided() -> None:
    made = found("ld.param.u32 %r1, [p]; mul.lo.u32 %r2, %r0, %r1; add.u32 %r2, %r2, %r9; ld.shared.u32 %r3, [%r2];")
    assert (made.accesses, made.known, made.conflicts) == (1, 0, ())
    made = found("ld.param.u32 %r1, [p]; shl.b32 %r2, %r0, 7; add.u32 %r2, %r2, %r1; add.u32 %r2, %r2, %r9; ld.shared.u32 %r3, [%r2];")
    assert made.known == 1  # an offset that all threads share moves all banks alike
    assert made.conflicts[0].passes == 32
