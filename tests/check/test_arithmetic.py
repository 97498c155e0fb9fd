"""What the rules of arithmetic say of ptxas, asked of ptxas."""

from __future__ import annotations

import re

import pytest

from ptxkit import Ptr, kernel
from ptxkit.check.arithmetic import TAKES
from ptxkit.ptx import opcode
from ptxkit.runtime import toolchain
from ptxkit.types import TYPES

pytestmark = [pytest.mark.ptxas, pytest.mark.timeout(120)]


def instructions(word: str, divide: str, by: int) -> int:
    """Of the machine code, without what fills it up."""
    def body(x, y):
        value = opcode(f"ld.global.{word}")(x)
        opcode(f"st.global.{word}")(y, opcode(f"{divide}.{word}")(value, by) if divide else value)

    body.__annotations__ = {"x": Ptr[TYPES[word]], "y": Ptr[TYPES[word]], "return": None}
    text = kernel(target="sm_90a", block=32)(body).sass()
    return len(re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?!NOP)\S", text, re.M))


@pytest.mark.thinned(40)
@pytest.mark.parametrize("word", TAKES)
def test_ptxas_makes_as_many_instructions_of_a_division_by_any_constant(word: str) -> None:
    if toolchain.ptxas().version.split(".")[0] != "13":
        pytest.skip("counted with ptxas 13")
    alone = instructions(word, "", 0)
    for by in (64, 10):
        assert tuple(instructions(word, divide, by) - alone for divide in ("div", "rem")) == TAKES[word]
    if word[0] == "u":
        assert instructions(word, "shr", 6) - alone <= 2
