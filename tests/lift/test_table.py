"""Every instruction that the table has can be lifted, and nearly all become calls of the DSL."""

from __future__ import annotations

import random
import re

import pytest

from ptxkit.grammar import forms, parse, tree
from ptxkit.lift.module import lifted

from ..grammar import certify

AT_ONCE = 400


def kernel(instructions: list[tree.Instruction]) -> tree.Module:
    """A module whose entry has these instructions among everything that they may name."""
    module = parse(certify.module_head("9.0", "sm_90a") + "\n}\n")
    items = list(module.items)
    entry = items[-1]
    assert isinstance(entry, tree.Function)
    body = (*(entry.body or ()), *instructions, tree.Instruction("ret"))
    items[-1] = tree.Function(entry.kind, entry.name, entry.parameters, body=body, linkage=entry.linkage)
    return tree.Module(module.version, module.target, module.address_size, tuple(items))


def lines(signatures: list[forms.Signature]) -> list[tree.Instruction]:
    return [line for signature in signatures for line in certify.instances(signature)]


def check(instructions: list[tree.Instruction]) -> list[str]:
    """The opcodes that stay PTX text; raises when what comes back differs."""
    plain: list[str] = []
    for start in range(0, len(instructions), AT_ONCE):
        text = lifted(kernel(instructions[start:start + AT_ONCE])).text
        plain += re.findall(r"verbatim\(\s*[\"'](?:@!?\{\} )?([a-z][\w.:]*) ", text)
    return plain


@pytest.mark.pure
@pytest.mark.timeout(120)
def test_a_sample_of_the_table_comes_back() -> None:
    chosen = random.Random(90).sample(certify.operand_lists(), 120)
    instructions = lines(chosen)
    assert len(instructions) > 500
    plain = [opcode for opcode in check(instructions) if not opcode.startswith(("call", "cp.async.bulk", "setmaxnreg"))]
    assert len(plain) < len(instructions) / 50, plain


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_much_of_the_table_comes_back() -> None:
    instructions = lines(random.Random(91).sample(certify.operand_lists(), 1000))
    assert len(check(instructions)) < len(instructions) / 20
