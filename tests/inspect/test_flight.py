"""How many wgmmas can be unfinished, against kernels whose groups are counted by hand."""

from __future__ import annotations

import pytest

from ptxkit.check.analysis import Analysis
from ptxkit.check.places import Places
from ptxkit.grammar import parse
from ptxkit.inspect.facts import FlightFact
from ptxkit.inspect.flight import flight

pytestmark = pytest.mark.pure

MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %rd1, %rd2, 1, 1, 1, 0, 0;\n"
FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
LOOP, AGAIN = "again:\n", "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra again;\n"


def wait(left: int) -> str:
    return f"wgmma.wait_group.sync.aligned {left};\n"


def found(body: str) -> FlightFact | None:
    module = parse(f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
.reqntid 128, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<4>;
    mov.u32 %r1, 0;
{body}
    ret;
}}
""")
    analysis = Analysis(module, module.entries[0], Places(module, None))
    return flight(analysis.routine, analysis.values)


@pytest.mark.parametrize(("body", "products", "groups"), [
    (FENCE + MMA + COMMIT + wait(0), 1, 1),
    (FENCE + 4 * MMA + COMMIT + wait(0), 4, 1),
    (FENCE + 2 * MMA + COMMIT + 3 * MMA + COMMIT + wait(0), 5, 2),
    (LOOP + FENCE + 4 * MMA + COMMIT + wait(0) + AGAIN, 4, 1),
    (LOOP + FENCE + 4 * MMA + COMMIT + wait(1) + AGAIN + wait(0), 8, 2),
    (LOOP + FENCE + 2 * MMA + COMMIT + wait(3) + AGAIN + wait(0), 8, 4),
    (FENCE + MMA + COMMIT + LOOP + FENCE + 2 * MMA + COMMIT + wait(1) + AGAIN + wait(0), 4, 2),
    ("setp.eq.u32 %p2, %r1, 0; @%p2 bra other;\n" + FENCE + 6 * MMA + COMMIT + wait(0) + "bra done;\nother:\n" + FENCE + MMA + COMMIT
     + wait(0) + "done:\n", 6, 1),
    (FENCE + 3 * MMA, 3, 0),
    (COMMIT + COMMIT + FENCE + MMA + COMMIT + wait(0), 1, 1),
])
def test_counted_by_hand(body: str, products: int, groups: int) -> None:
    assert found(body) == FlightFact(products, groups)


def test_without_a_wait_there_is_no_bound() -> None:
    assert found(LOOP + FENCE + MMA + COMMIT + AGAIN) == FlightFact(None, None)
    assert found(LOOP + FENCE + MMA + AGAIN + COMMIT + wait(0)) == FlightFact(None, None)


def test_no_wgmma() -> None:
    assert found("") is None
