"""Ordinary instructions against an oracle of fractions and integers, over the whole table."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ptxkit.sim.errors import UnsupportedError

from . import instructions
from .instructions import Batch, Case, inputs
from .oracle import expected, number, other


def _refused(case: Case) -> bool:
    return case.opcode.startswith("mma.sp") or ("m8n8k4" in case.opcode and "f64" not in case.opcode)


CASES = [case for case in instructions.cases() if not _refused(case)]
CHUNK = 150


def _same(found: int, wanted: int, type: str) -> bool:
    """Whether a result of that type is the wanted one; -1 is some NaN, or what the ISA leaves open."""
    if wanted >= 0 or type not in ("f32", "f64", "tf32"):
        return wanted in (found, -1)
    value = number(found, type)
    return isinstance(value, float) and math.isnan(value)


def _type(case: Case) -> str:
    bindings = case.signature.bindings
    return bindings.get("type") or ("b32" if case.opcode.endswith("b32") else "pred" if case.opcode.endswith("pred") else "")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("start", range(0, len(CASES), CHUNK))
def test_every_instruction_gives_what_the_oracle_says(start: int) -> None:
    batch = Batch(CASES[start:start + CHUNK], start, 64)
    words = inputs(start)
    results = batch.simulate(words)
    row = 0
    wrong: list[Any] = []
    for case, reads, table in zip(batch.cases, batch.operands, batch.tables, strict=True):
        rows = range(row, row + len(case.results))
        row += len(case.results)
        type = _type(case)
        for lane in range(start % 5, 64, 5):
            operands = [int(words[r, lane]) for r in reads]
            wanted = other(case.opcode, type, operands, table)
            if wanted is None:
                wanted = expected(case.opcode, type, operands)
            if wanted is None:
                break
            for r, w in zip(rows, wanted, strict=False):
                found = int(results[r, lane])
                if case.results[r - rows[0]] == "s8":
                    found &= 0xFF
                if not _same(found, w, case.results[r - rows[0]]):
                    wrong.append((case.opcode, [hex(o) for o in operands], hex(found), hex(w)))
                    break
    assert not wrong, (len(wrong), sorted({w[0] for w in wrong})[:40], wrong[:5])


def test_what_neither_the_oracle_nor_another_test_knows() -> None:
    """The rest has tests of its own or is compared with a GPU only (`gpu_differential`)."""
    unknown = set()
    for case in CASES:
        zeros = [0] * sum(p.operand.access == "r" for p in case.signature.parameters)
        if other(case.opcode, _type(case), [0, 0, *zeros], 0) is None and expected(case.opcode, _type(case), zeros) is None:
            name, *tokens = case.opcode.split(".")
            unknown.add(" ".join([name, *(t for t in tokens if t in ("approx", "full", "oob", "pack"))]))
    assert sorted(unknown) == [
        "cos approx", "cvt pack", "div approx", "div full", "ex2 approx", "fma oob", "fns", "lg2 approx", "match", "mma", "mov", "prmt",
        "rcp approx", "redux", "rsqrt approx", "shfl", "sin approx", "sqrt approx", "tanh approx", "vote"]


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_what_a_tensor_copy_fills_in_makes_a_product_nothing(type: str) -> None:
    batch = Batch([case for case in CASES if case.opcode == f"fma.rn.oob.{type}"], 0, 64)
    words = inputs(3)
    a, b, c = batch.operands[0]
    one = 0x3C00 if type == "f16" else 0x3F80
    words[[a, b, c], :5] = [[0x7FF7, one, 0xFFF7, 0x7FFF, one], [one, 0x7FF7, 0x7FFF, one, one], [one] * 5]
    assert batch.simulate(words)[0, :5].tolist() == [0, 0, 0, 0x7FFF, 0x4000]


def test_what_the_simulator_refuses() -> None:
    """By name, before anything runs."""
    refused = set()
    forms_of = {case.signature.form.syntax: case for case in instructions.cases() if _refused(case)}
    for syntax, case in forms_of.items():
        with pytest.raises(UnsupportedError, match="does not execute"):
            Batch([case]).simulate(inputs(0))
        refused.add(".".join(syntax.split(".")[:2]))
    assert refused == {"mma.spvariant", "mma.sync"}
