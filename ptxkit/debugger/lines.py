"""Where lines of source are among the instructions of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..grammar import tree
from ..grammar.authors import Authors
from ..sim.errors import SimulationError
from .breaks import Line

if TYPE_CHECKING:
    from ..sim.program import Op, Program

PTX = "ptx"


class Lines:
    """The source lines of a program; `.loc` gives those of the author's files. Inlined code stands at the line of the outermost call. A
    line whose code was inlined everywhere stands for those copies.
    """

    def __init__(self, program: Program) -> None:
        self.ptx: dict[int, set[int]] = {}
        for op in program.ops:
            if op.position is not None and op.position.file is None:
                self.ptx.setdefault(op.position.line, set()).add(op.index)
        self.files = _starts(program, {op.index: (op.python.file, op.python.line) for op in program.ops
                                       if op.python is not None and op.python.file is not None})
        for file, lines in _starts(program, _innermost(program)).items():
            for line, starts in lines.items():
                self.files.setdefault(file, {}).setdefault(line, starts)
        first = next((op.python for op in program.ops if op.python is not None), None)
        self.main = first.file if first is not None else None

    def find(self, text: str) -> Line:
        """The line that `12`, `file.py:12` or `ptx:12` names, or the next one with an instruction. A bare number is a line of the file that
        the kernel begins in, and of the PTX where there is none.
        """
        found = re.fullmatch(r"(?:(.*):)?(\d+)", text.strip())
        if found is None:
            raise SimulationError(f"{text!r} is no place: write a line as 12, file.py:12 or ptx:12")
        name, number = found[1], int(found[2])
        if not number:
            raise SimulationError(f"{text!r} is no place: lines count from 1")
        if name == PTX or (name is None and self.main is None):
            return self._at(PTX, self.ptx, number)
        file = self.main if name is None else self._file(name)
        assert file is not None
        return self._at(file, self.files[file], number)

    def _file(self, name: str) -> str:
        wanted = PurePath(name).parts
        found = [file for file in self.files if PurePath(file).parts[-len(wanted):] == wanted]
        if len(found) != 1:
            known = ", ".join(self.files) or "none: the PTX has no .loc"
            raise SimulationError(f"{name!r} names {'several' if found else 'no'} files of the kernel; they are {known}")
        return found[0]

    def _at(self, file: str, lines: dict[int, set[int]], number: int) -> Line:
        later = [line for line in lines if line >= number]
        if not later:
            raise SimulationError(f"{file}:{number} has no instruction, nor has a line after it"
                                  + (f"; the last that has one is {max(lines)}" if lines else ""))
        line = min(later)
        return Line(file, line, frozenset(lines[line]))

    def __iter__(self) -> Iterator[Line]:
        """Every line of the author's files and of the PTX that has an instruction."""
        for file, lines in (*self.files.items(), (PTX, self.ptx)):
            for number, ops in sorted(lines.items()):
                yield Line(file, number, frozenset(ops))


def _starts(program: Program, places: Mapping[int, tuple[str, int]]) -> dict[str, dict[int, set[int]]]:
    """By file and line, the instructions that begin a run of those at the line."""
    found: dict[str, dict[int, set[int]]] = {}
    before: Op | None = None
    for op in program.ops:
        place = places.get(op.index)
        if place is not None:
            starts = found.setdefault(place[0], {}).setdefault(place[1], set())
            if before is None or before.routine is not op.routine or places.get(before.index) != place:
                starts.add(op.index)
        before = op
    return found


def _innermost(program: Program) -> dict[int, tuple[str, int]]:
    """The line that `.loc` itself gives to each instruction."""
    files = Authors(program.module).files
    found: dict[int, tuple[str, int]] = {}
    for routine in {id(each): each for each in program.routines.values()}.values():
        ops = (op for op in program.ops if op.routine is routine)
        for op, loc in zip(ops, _located(routine.function.body or ()), strict=True):
            if loc is not None and loc.file in files and loc.line:
                found[op.index] = str(files[loc.file]), loc.line
    return found


def _located(body: Iterable[tree.Statement]) -> Iterator[tree.Loc | None]:
    """For each instruction the `.loc` before it, which holds to the end of its block."""
    loc: tree.Loc | None = None
    for statement in body:
        if isinstance(statement, tree.Loc):
            loc = statement
        elif isinstance(statement, tree.Block):
            yield from _located(statement.body)
        elif isinstance(statement, tree.Instruction):
            yield loc


def line_of(op: Op) -> tuple[str | None, int]:
    """The author's line of an instruction, or that of the PTX."""
    position = op.python or op.position
    return (None, -op.index) if position is None else (position.file, position.line)
