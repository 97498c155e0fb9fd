"""The table says of every form what its results depend on, and the CPU device agrees."""

from __future__ import annotations

import pytest

from ptxkit.grammar import forms
from ptxkit.grammar.isa import FORMS
from ptxkit.grammar.schema import DEPENDS, SYNC_NEVER
from ptxkit.grammar.special import SPECIAL, SPECIAL_DEPENDS
from ptxkit.sim.semantics.registry import _REGISTRY

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
OF_THEIR_OPERANDS = {
    "cvta", "isspacep", "mov", "cvt", "shfl", "vote", "match", "redux", "movmatrix", "mma", "wmma", "wgmma", "bar", "barrier", "mbarrier",
    "tex", "tld4", "txq", "suq", "createpolicy", "alloca", "stacksave", "call"}
"""Mnemonics that are no functions of registers to the CPU device and give what their operands, and ordered memory, say."""


def kinds(opcode: str) -> set[str]:
    tokens = opcode.split(".")
    found = next((_REGISTRY[name] for n in range(len(tokens), 0, -1) if (name := ".".join(tokens[:n])) in _REGISTRY), [])
    return {semantics.kind for semantics in found}


def test_what_is_derived_is_a_function_of_registers() -> None:
    """Nobody has to say that `add` depends on its operands only; what the CPU device does not compute from registers must say it."""
    derived = [row for row in FORMS if not row.effects.depends and not row.effects.carry]
    silent = {row.mnemonic for row in derived if any(o.access != "r" for o in row.operands.values())
              and any(kinds(signature.opcode) - {"pure"} for signature in forms.variants(row))}
    assert silent <= OF_THEIR_OPERANDS


def test_what_the_memory_model_leaves_open_is_said() -> None:
    """Strong loads and stores, and whatever reads and writes memory in one, depend on order; weak accesses are ordered or a race."""
    for row in FORMS:
        opcodes = [signature.opcode.split(".") for signature in forms.variants(row)]
        strong = [bool({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"} & set(tokens)) for tokens in opcodes]
        if row.mnemonic in ("ld", "st"):
            assert (row.effects.dependence == "order") == strong[0], row.syntax
        if row.mnemonic in ("atom", "red", "multimem") or row.syntax.startswith("cp.reduce"):
            assert row.effects.dependence == "order", row.syntax
        if "mbarrier.test" in row.effects.sync or ("state" in row.operands and row.operands["state"].access == "w"):
            assert row.effects.dependence == "phase", row.syntax


def test_special_registers_are_complete() -> None:
    assert set(SPECIAL) == set(SPECIAL_DEPENDS)
    assert set(SPECIAL_DEPENDS.values()) <= set(DEPENDS)
    assert {name for name, kind in SPECIAL_DEPENDS.items() if kind == "time"} >= {"%clock", "%clock64", "%globaltimer"}
    assert {name for name, kind in SPECIAL_DEPENDS.items() if kind == "machine"} >= {"%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid"}
    assert SPECIAL_DEPENDS["%laneid"] == SPECIAL_DEPENDS["%tid.x"] == SPECIAL_DEPENDS["%lanemask_lt"] == "never"


def test_every_word_of_sync_is_known_or_said() -> None:
    words = {word for row in FORMS for word in row.effects.sync if not row.effects.depends}
    assert words <= SYNC_NEVER
