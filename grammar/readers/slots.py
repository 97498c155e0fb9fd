"""Frozen nodes built by writing their slots, which takes a quarter of the time of their `__init__`.

A line that comes again is not read again. So a reader keeps each statement as a `Draft`, which has no line number, and builds the node
when it knows the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any

from ..errors import Position
from ..tree import Address, Directive, Guard, Instruction, Label, Loc, Name, Operand, Statement, Variable

InstructionFields = tuple[str, tuple[Operand, ...], Guard | None, int]
"""The opcode, operands, guard and column of an instruction."""
Draft = InstructionFields | tuple[Variable, int] | tuple[str, int] | tuple[Loc | Directive]
"""A statement without its line: an instruction, a variable or a label (its name) with its column, or a `.loc` or a pragma."""


def setter(node: type, field: str) -> Callable[[Any, Any], None]:
    """The function that writes a slot of a frozen node. Only the code that builds the node may call it."""
    set: Callable[[Any, Any], None] = vars(node)[field].__set__
    return set


new = object.__new__
exhaust: Callable[[Iterable[Any]], None] = deque(maxlen=0).extend
set_name = setter(Name, "name")
set_base, set_offset, set_displaced = setter(Address, "base"), setter(Address, "offset"), setter(Address, "displaced")
set_unified = setter(Address, "unified")
set_file, set_line, set_column = setter(Position, "file"), setter(Position, "line"), setter(Position, "column")
set_opcode, set_operands = setter(Instruction, "opcode"), setter(Instruction, "operands")
set_guard, set_position = setter(Instruction, "guard"), setter(Instruction, "position")
set_variable_position = setter(Variable, "position")
VARIABLE_FIELDS = [
    (vars(Variable)[field.name].__get__, setter(Variable, field.name)) for field in fields(Variable) if field.name != "position"]
"""How each field of a variable but its position is read and written."""


def position_at(line: int, column: int) -> Position:
    """A position in the text that is read."""
    place = new(Position)
    set_file(place, None)
    set_line(place, line)
    set_column(place, column)
    return place


def names(words: list[str]) -> list[Name]:
    """One name for each word."""
    made = list(map(new, repeat(Name, len(words))))
    exhaust(map(set_name, made, words))
    return made


def at_position(variable: Variable, place: Position) -> Variable:
    """The variable with this position: `dataclasses.replace` takes ten times as long."""
    found = new(Variable)
    for get, set in VARIABLE_FIELDS:
        set(found, get(variable))
    set_variable_position(found, place)
    return found


def statement(draft: Draft, line: int) -> Statement:
    """The statement of a draft in this line."""
    if len(draft) == 1:
        return draft[0]
    place = position_at(line, draft[-1])
    if len(draft) == 2:
        return Label(draft[0], place) if isinstance(draft[0], str) else at_position(draft[0], place)
    node = new(Instruction)
    set_opcode(node, draft[0])
    set_operands(node, draft[1])
    set_guard(node, draft[2])
    set_position(node, place)
    return node


def instructions(opcodes: Sequence[str], operands: Iterable[tuple[Operand, ...]], guards: Iterable[Guard | None], columns: Iterable[int],
                 lines: Iterable[int]) -> list[Instruction]:
    """Instructions with these fields, in the lines and columns of these numbers."""
    count = len(opcodes)
    nodes, places = list(map(new, repeat(Instruction, count))), list(map(new, repeat(Position, count)))
    exhaust(map(set_opcode, nodes, opcodes))
    exhaust(map(set_operands, nodes, operands))
    exhaust(map(set_guard, nodes, guards))
    exhaust(map(set_position, nodes, places))
    exhaust(map(set_file, places, repeat(None)))
    exhaust(map(set_line, places, lines))
    exhaust(map(set_column, places, columns))
    return nodes
