"""Results that are lost: `add.u32(n, 1)` or `n + 1`, a statement of its own, makes a register that nothing reads."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CheckError, TraceError
from ..grammar import tree
from ..grammar.errors import Finding, Position
from ..grammar.spelling import python_name
from ..settings import settings
from .fates import drops_operator, loses, loses_operator
from .source import user_position

if TYPE_CHECKING:
    from types import FrameType

    from .trace import Builder
    from .traced import Traced

RULES = {
    "result-dropped": "an instruction without a destination, or an operator, whose result nothing reads: the line changes nothing",
    "result-guarded": "a guarded instruction without a destination whose result is stored, or added to another, everywhere",
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call without a destination, or of an operator. `usage` names the operands of the instruction, the destination first;
    it is empty for an operator."""

    function: str
    result: tree.Operand
    opcode: str
    usage: str
    position: Position | None

    @property
    def in_place(self) -> str:
        """The call with its destination, as Python spells it: `and_.b32(d, a, b)`."""
        return ".".join(python_name(self.opcode.split("."))) + self.usage

    def half(self, reader: str, ptx_line: int | None, ptx_column: int) -> Finding:
        """What is said where `reader` stores it although the predicate may not hold."""
        return Finding(
            "result-guarded", f"`{self.opcode}` is guarded and called without a destination, so that its new register holds nothing where "
            f"the predicate does not hold, and {reader} takes it everywhere",
            f"give the destination first, `{self.in_place}`, to keep the old value there; or guard the store; or use selp",
            self.position, "advice", "review", ptx_line, ptx_column)

    def finding(self, ptx_line: int | None = None, ptx_column: int = 0) -> Finding:
        """What is said of it where nothing reads it."""
        if not self.usage:
            return Finding(
                "result-dropped", f"an operator or `.at(i)` makes a new register by `{self.opcode}`, and nothing reads it: the line "
                "changes nothing",
                "give the result a name; an instruction with its destination first, as `add.u32(n, n, 1)`, writes in place",
                self.position, "advice", "review", ptx_line, ptx_column)
        return Finding(
            "result-dropped", f"`{self.opcode}` is called without a destination, and nothing reads its result: the line changes nothing",
            f"give the destination first, `{self.in_place}`, to write a register in place; else give the result a name",
            self.position, "advice", "review", ptx_line, ptx_column)


def operated(builder: Builder, opcode: str, result: tree.Operand, *operands: tree.Operand) -> None:
    """Emits an operator's instruction. Where nothing takes the operator's value, its result is noted as dropped."""
    builder.emit(opcode, (result, *operands))
    if loses_operator(_caller()):
        builder.dropped.append(Result(builder.name, result, opcode, "", user_position()))


def note_dropped(builder: Builder, opcode: str, result: tree.Operand) -> None:
    """Note the place of a `p.at(i)` that nothing takes."""
    if loses(_caller()):
        builder.dropped.append(Result(builder.name, result, opcode, "", user_position()))


def refuse_dropped(text: str) -> None:
    """Raise where an operator that emits nothing is a statement of its own."""
    if drops_operator(_caller()):
        raise TraceError(f"`{text}` stands here alone, so that it emits nothing: give it a name, or use it in an instruction")


def _caller() -> FrameType:
    """The frame that called the module of the function that asks."""
    frame = sys._getframe(2)
    own = frame.f_globals
    while frame.f_globals is own and frame.f_back is not None:
        frame = frame.f_back
    return frame


_said: set[Result] = set()


def said(traced: Traced) -> Traced:
    """The trace, before it runs. What it dropped is logged once in a process; PTXKIT_CHECK=error raises it, =off does not say it."""
    if traced.dropped and settings().check == "error":
        raise CheckError([each.finding() for each in traced.dropped])
    for each in traced.dropped:
        if each not in _said and settings().check != "off":
            _said.add(each)
            logging.getLogger("ptxkit").warning("%s", each.finding())
    return traced
