"""What the rules know of a register's number is what the instructions make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.check.places import Places
from ptxkit.check.program import routine
from ptxkit.check.values import Values
from ptxkit.grammar import parse

pytestmark = pytest.mark.pure


def number(bits: int, value: int, by: int) -> int | None:
    """The number in the register of a shift of a constant."""
    module = parse(f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry f()
{{
    .reg .b{bits} %a<3>;
    mov.b{bits} %a0, {value};
    shl.b{bits} %a1, %a0, {by};
    mov.b{bits} %a2, %a1;
    ret;
}}
""")
    found = routine(module, module.functions[0], Places(module, None))
    values = Values(found)
    last = next(site for site in found.sites if site.writes == ("%a2",))
    return values.number(values.of(last, last.instruction.operands[1]))


@given(st.sampled_from((32, 64)), st.integers(0, (1 << 64) - 1), st.integers(0, 63))
def test_a_shifted_constant_has_the_bits_of_its_register(bits: int, value: int, by: int) -> None:
    value &= (1 << bits) - 1
    assert number(bits, value, by) == value << by & (1 << bits) - 1


def test_a_negative_constant_stays_one_while_it_fits() -> None:
    assert number(32, -16, 4) == -256
    assert number(32, -16, 28) == 0
