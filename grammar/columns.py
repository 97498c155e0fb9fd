"""Lines that are one plain instruction each, read some thousands at a time, column by column: what a compiler writes is mostly such lines.

What is done for each line is done by the interpreter's own loops (`findall`, `map`): nodes are made so in a third of the time that their
`__init__` takes. What is no plain line is not read here, and nothing is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, compress, islice, repeat
from typing import Any

from .errors import Position
from .tree import Instruction, Operand
from .words import NAME, OPCODE, Guards, Lists, Odd, Words, exhaust, new, setter

# A guard, an opcode, what stands behind it; or a blank line; or the first sign of another one.
LINE = re.compile(
    rf"^(?:([ \t]*+(?:@!?+{NAME}[ \t]++)?+)([a-z][A-Za-z0-9_.:]*+)(?:[ \t]++([^;\n\"/@]*+))?+;[ \t\r]*+(?://[^\n]*+)?"
    r"|[ \t\r]*+(?://[^\n]*+)?|([^\n])[^\n]*+)$", re.MULTILINE)
ONE_OPCODE = re.compile(OPCODE)
CALLS = ("call", "call.uni")
LINES = 4096
"""Lines that are read at once: what is made on the way stays small beside the tree."""

set_opcode, set_operands = setter(Instruction, "opcode"), setter(Instruction, "operands")
set_guard, set_place = setter(Instruction, "guard"), setter(Instruction, "position")
set_file, set_line, set_column = setter(Position, "file"), setter(Position, "line"), setter(Position, "column")


class Columns:
    """The plain lines of a text: their instructions in `nodes`, in `ends` the numbers (from 0) of lines neither plain nor blank.

    `before`: how many instructions stand before each line.
    """

    def __init__(self, text: str, starts: list[int], words: Words, lists: Lists, guards: Guards) -> None:
        """`starts`: where each line begins, and one more number."""
        self.words, self.lists, self.guards = words, lists, guards
        self.opcodes: dict[str, str | None] = {"": None}
        self.prefixes: dict[str, tuple[Any, int]] = {}
        self.nodes: list[Instruction] = []
        self.before = [0]
        self.ends: list[int] = []
        lines = len(starts) - 1
        for first in range(0, lines, LINES):
            last = min(first + LINES, lines)
            self._read(LINE.findall(text, starts[first], starts[last] - 1), first)

    def run(self, line: int) -> tuple[list[Instruction], int]:
        """The instructions of the plain lines from this number on, and the number of the first line that is neither plain nor blank."""
        end = bisect_left(self.ends, line)
        stop = self.ends[end] if end < len(self.ends) else len(self.before) - 1
        return self.nodes[self.before[line]:self.before[stop]], stop

    def _read(self, found: list[tuple[str, str, str, str]], first: int) -> None:
        prefixes, names, rests, others = zip(*found, strict=True)
        for name in set(names).difference(self.opcodes):
            self.opcodes[name] = name if name not in CALLS and ONE_OPCODE.fullmatch(name) is not None else None
        opcodes = list(map(self.opcodes.__getitem__, names))
        operands = self._operands(list(compress(rests, opcodes)))
        if None in operands:
            left = iter(operands)
            opcodes = [opcode if opcode is not None and next(left) is not None else None for opcode in opcodes]
            operands = [listed for listed in operands if listed is not None]
        self.ends += [number for number, (opcode, name, other) in enumerate(zip(opcodes, names, others, strict=True), first)
                      if opcode is None and (name or other)]
        self.before += accumulate(map(bool, opcodes), initial=self.before.pop())
        for prefix in set(prefixes).difference(self.prefixes):
            self.prefixes[prefix] = self.guards[prefix.strip()] if "@" in prefix else None, len(prefix) + 1
        guards, columns = zip(*map(self.prefixes.__getitem__, compress(prefixes, opcodes)), strict=True) if operands else ((), ())
        nodes, places = list(map(new, repeat(Instruction, len(operands)))), list(map(new, repeat(Position, len(operands))))
        exhaust(map(set_opcode, nodes, filter(None, opcodes)))
        exhaust(map(set_operands, nodes, operands))
        exhaust(map(set_guard, nodes, guards))
        exhaust(map(set_place, nodes, places))
        exhaust(map(set_file, places, repeat(None)))
        exhaust(map(set_line, places, compress(range(first + 1, first + 1 + len(opcodes)), opcodes)))
        exhaust(map(set_column, places, columns))
        self.nodes += nodes

    def _operands(self, rests: list[str]) -> list[tuple[Operand, ...] | None]:
        """The operands of each list; None for one that is not written plainly."""
        words, special = self.words, [number for number, rest in enumerate(rests) if not rest or "{" in rest]
        plain = [rest for rest in rests if rest and "{" not in rest] if special else rests
        written = ", ".join(plain).split(", ") if plain else []
        odd = [word for word in set(written).difference(words) if not words.knows(word)]
        operands: Iterator[Any] = map(words.get, written)
        counts = map((1).__add__, map(str.count, plain, repeat(", ")))
        found: list[tuple[Operand, ...] | None] = list(map(tuple, map(islice, repeat(operands), counts)))
        if odd:
            found = [listed if all(listed or ()) else self._tried(rest) for rest, listed in zip(plain, found, strict=True)]
        for number in special:
            found.insert(number, self._tried(rests[number]))
        return found

    def _tried(self, rest: str) -> tuple[Operand, ...] | None:
        try:
            return self.lists.operands(rest)
        except Odd:
            return None
