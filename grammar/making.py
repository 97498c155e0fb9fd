"""The nodes of bodies that were read by their templates, made of the templates' own and of the words that stand in their holes.

What a hole's operand is with a word in it is made once (`Filled`), so most instructions of a body are made by the interpreter's own loops:
each takes as many of the body's operands as its template has holes, and the constants behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress
from itertools import count as count_from
from operator import add, attrgetter, getitem, itemgetter, length_hint, sub
from threading import Lock
from typing import TYPE_CHECKING, Any

from . import tree
from .bodies import Body, pragma
from .columns import COMMENT, LOC, Part, instructions, loc, made
from .resting import resting
from .templates import ANY, CALL, CALLED, FOUND, LABEL, PARAMETER, PARAMETER_HOLE, WORD, Plain, Template
from .tree import Address, Guard, Instruction, Name, Operand, Statement, Variable
from .words import BLANKS, Odd, named, new, ranges, set_base, set_displaced, set_name, set_offset, set_unified

if TYPE_CHECKING:
    from .read import Lines

HOLE = re.compile(r"%(?:[A-Za-z0-9_]+#?|\$[PF]#|#)|\$L__#")
"""What a word stands for in a template, or such a word that is kept."""
NOTHING = Name("_")
CELLS, ROW, OTHER = attrgetter("cells"), attrgetter("row"), attrgetter("other")


class Names(dict[str, Name]):
    """The name that a word is."""

    def __missing__(self, word: str) -> Name:
        found = self[word] = new(Name)
        set_name(found, LABEL + word[len(FOUND):] if word.startswith(FOUND) else word.removeprefix(CALLED))
        return found


class Parameters(Names):
    """The name that a parameter of one function is."""

    prefix = ""

    def __missing__(self, word: str) -> Name:
        found = self[word] = Name(self.prefix + word[len(PARAMETER):])
        return found


class Filled(dict[str, Any]):
    """What an operand or guard with one hole is with a word in it."""

    def __init__(self, node: Operand | Guard, names: Names) -> None:
        self.node, self.names = node, names

    def __missing__(self, word: str) -> Operand | Guard:
        found: Operand | Guard = filled(self.node, iter((self.names[word],)))
        self[word] = found
        return found


class Maker:
    """What has been made for one text."""

    def __init__(self, text: str) -> None:
        self.lock = Lock()
        self.names, self.parameters = Names(), Parameters()
        for _, words in ranges(text, {}):
            self.names.update(zip(words, named(words), strict=True))
        self.filled: dict[Operand | Guard, Filled] = {}
        self.own: list[Filled] = []  # those with a hole for the function's own parameters
        self.next: Plain | None = None
        self.done = 0  # the lines of bodies made one behind the other up to that one

    def make(self, plain: Plain) -> None:
        """Makes a body's nodes, and those of as many lines behind it as were made up to it without a gap.

        Whoever asks for one body after the other will ask for more, and Python's collector looks fewer times at all of them.
        """
        with self.lock, resting():
            if plain is not self.next:
                self.done = 0
            most = 2 * self.done
            following: Plain | None = plain
            while following is not None and following.nodes is None and (following is plain or self.done < most):
                following.nodes = self.body(following)
                self.done += len(following.templates)
                following = following.following
            self.next = following

    def body(self, plain: Plain) -> tuple[Statement, ...]:
        try:
            return self.nodes(plain)
        except Odd:
            body = Body(plain.reading, plain.at, plain.stop)
            body.read(plain.at)
            return body.made

    def nodes(self, plain: Plain) -> tuple[Statement, ...]:
        """A body's nodes; `Odd` if the lines have something that its templates do not tell."""
        templates, words = plain.templates, plain.words
        for template in {*templates}:
            if template.cells is None:
                self.plan(template)
        self.parameters.prefix = plain.parameters
        for known in (self.parameters, *self.own):
            known.clear()
        lines = self.lines(plain)
        cells = tuple(map(getitem, chain.from_iterable(map(CELLS, templates)), words))
        stops = [0, *accumulate(map(len, map(CELLS, templates)))]
        rows = list(map(ROW, templates))
        nodes = _instructions(list(filter(None, rows)), cells, compress(stops[1:], rows), compress(lines, rows))
        found: list[Statement] = []
        stack: list[list[Statement]] = []
        befores = list(accumulate(map(bool, rows)))
        done = 0
        for number in compress(range(len(templates)), map(OTHER, templates)):
            template, line, before = templates[number], lines[number], befores[number]
            signs, plain_one = template.signs, template.row is not None
            found += nodes[done:before - plain_one]
            if signs[:1] == "{":
                stack.append(found)
                found = []
            if plain_one:
                found.append(nodes[before - 1])
            elif template.parts or template.later:
                parts = self.parts(plain.reading, template, line, cells[stops[number]:stops[number + 1]])
                found += [made(part, line) for part in parts]
            done = before
            if signs[-1:] == "}":
                block = tree.Block(tuple(found))
                found = stack.pop()
                found.append(block)
        found += nodes[done:]
        return tuple(found)

    def lines(self, plain: Plain) -> Sequence[int]:
        """The line of each template, where a call that goes on behind its line takes some; `Odd` if it is not alone in them."""
        text = plain.reading.text
        begin = text.find("\n", plain.at) + 1
        first = plain.reading.place(begin).line
        if text.count("\n", begin, plain.stop) + 1 == len(plain.templates):
            return range(first, first + len(plain.templates))
        bare = COMMENT.sub("", text[begin:plain.stop])
        lines: list[int] = []
        at = 0
        for call in CALL.finditer(bare):
            more = call[0].count("\n")
            if more:
                lines += range(first, first + bare.count("\n", at, call.end()) + 1 - more)
                if len(plain.templates[len(lines) - 1].parts) != 1:
                    raise Odd
                first, at = lines[-1] + more + 1, bare.find("\n", call.end()) + 1
        return [*lines, *range(first, first + len(plain.templates) - len(lines))]

    # ------------------------------------------------------------------------------------------------- templates

    def plan(self, template: Template) -> None:
        """How nodes are made by a template: `row` if it is one instruction of a guard and operands with one hole each, or none."""
        holes = HOLE.findall(template.line)
        names = [self.parameters if hole == PARAMETER_HOLE else self.names for hole in holes]
        template.cells = tuple(names)
        template.other = bool(template.parts or template.signs or template.later)
        if len(template.parts) != 1 or len(template.parts[0]) != 4:
            return
        opcode, operands, guard, column = template.parts[0]
        most = len(holes)
        counts = [_count(operand, most) for operand in operands]
        guarded = guard is not None and _holds(guard.predicate)
        size = sum(counts)
        if max(counts, default=0) > 1 or size + guarded != most:
            return
        begun: list[Any] = list(compress(operands, counts))
        if guard is not None and guarded:
            begun.insert(0, guard)
            column -= len(guard.predicate)
        template.cells = tuple([self.cell(node, names) for node, names in zip(begun, names, strict=True)])
        tail = tuple([operand for operand, count in zip(operands, counts, strict=True) if not count])
        order = None
        if 0 in counts[:size]:
            kept, constant = count_from(0), count_from(size)
            order = itemgetter(*[next(kept) if count else next(constant) for count in counts])
        template.row = opcode, tail, size, guarded or guard, column, order
        template.other = bool(template.signs)

    def cell(self, node: Operand | Guard, names: Names) -> Names | Filled:
        """What an operand or guard with one hole is by the word in it."""
        if type(node) is Name and "." not in node.name:
            return names
        known = self.filled.get(node)
        if known is None:
            known = self.filled[node] = Filled(node, names)
            if names is self.parameters:
                self.own.append(known)
        return known

    def parts(self, reading: Lines, template: Template, line: int, cells: tuple[Name, ...]) -> list[Part]:
        """The statements of a line that is no plain instruction, with these names in its holes."""
        if template.later == ".loc":
            if not template.parts:
                match = LOC.fullmatch(template.line.strip(BLANKS))
                assert match is not None
                found: list[Part] = [(loc(match),)]
                template.parts = found
            return template.parts
        if template.later:
            return [(pragma(reading, reading.starts[line - 1]),)]
        if "#" not in template.line:
            return template.parts
        if template.sort == ":" and isinstance(column := template.parts[0][-1], int) and len(template.parts) == 1:
            return [(cells[0].name, column)]
        key = tuple([cell.name for cell in cells])
        known = template.known = template.known or {}
        parts = known.get(key)
        if parts is None:
            parts = known[key] = _parts(template, cells)
        return parts


def _parts(template: Template, cells: tuple[Name, ...]) -> list[Part]:
    """The statements of a line with these names in its holes; a statement stands as much farther right as they are longer."""
    holes = HOLE.findall(template.line)
    longer = [0, *accumulate(map(sub, map(len, [cell.name for cell in cells]), [len(hole.replace("#", ANY)) for hole in holes]))]
    names = iter(cells)
    found: list[Part] = []
    for part in template.parts:
        before = longer[len(cells) - length_hint(names)]
        if len(part) == 4:
            opcode, operands, guard, column = part
            guard = None if guard is None else filled(guard, names)
            before = longer[len(cells) - length_hint(names)]
            found.append((opcode, tuple([filled(operand, names) for operand in operands]), guard, column + before))
        elif len(part) == 2 and isinstance(part[0], str):
            found.append((filled(Name(part[0]), names).name, part[1] + before))
        elif len(part) == 2 and isinstance(part[0], Variable) and ANY not in part[0].name:
            found.append((part[0], part[1] + before))
            filled(Name(part[0].name), names)
        else:
            raise Odd
    if length_hint(names):
        raise Odd
    return found


def _instructions(rows: list[Any], cells: tuple[Any, ...], stops: Iterable[int], lines: Iterable[int]) -> list[Instruction]:
    """The instructions of such rows, of which the cells end at these stops, in the lines of these numbers."""
    if not rows:
        return []
    opcodes, tails, sizes, given, before, orders = zip(*rows, strict=True)
    ends = list(stops)
    begins = list(map(sub, ends, sizes))
    operands = list(map(add, map(cells.__getitem__, map(slice, begins, ends)), tails))
    for number in compress(range(len(rows)), orders):
        operands[number] = orders[number](operands[number])
    guards, columns = list(given), list(before)
    if any(guards):
        for number in compress(range(len(rows)), guards):
            if guards[number] is True:
                guard = guards[number] = cells[begins[number] - 1]
                columns[number] += len(guard.predicate)
    return instructions(opcodes, operands, guards, columns, lines)


def _count(node: Operand, most: int) -> int:
    """How many holes are in an operand, which are so many at most."""
    if type(node) is Name:
        return _holds(node.name)
    spare = iter([NOTHING] * most)
    filled(node, spare)
    return most - length_hint(spare)


def _holds(name: str) -> bool:
    return ANY in name or WORD.match(name) is not None


def filled(node: Any, names: Iterator[Name]) -> Any:
    """An operand or guard with these names in its holes."""
    kind = type(node)
    if kind is Name:
        return _named(node, names)
    if kind is Address:
        found = new(Address)
        set_base(found, filled(node.base, names))
        set_offset(found, node.offset)
        set_displaced(found, node.displaced)
        set_unified(found, node.unified)
        return found
    if kind is tree.Vector or kind is tree.Arguments:
        return kind(tuple([filled(element, names) for element in node.elements]))
    if kind is Guard:
        return Guard(_named(Name(node.predicate), names).name, node.negated)
    if kind is tree.Pair:
        return tree.Pair(filled(node.first, names), filled(node.second, names))
    if kind is tree.Not or kind is tree.Minus:
        return kind(filled(node.operand, names))
    if kind is tree.Offset:
        return tree.Offset(filled(node.base, names), node.offset)
    if kind is tree.Element:
        return tree.Element(filled(node.base, names), filled(node.index, names), node.offset)
    if kind is tree.TensorAddress:
        tensormap = filled(node.tensormap, names)
        sampler = None if node.sampler is None else filled(node.sampler, names)
        return tree.TensorAddress(tensormap, filled(node.coordinates, names), sampler)
    return node


def _named(node: Name, names: Iterator[Name]) -> Name:
    if not _holds(node.name):
        return node
    _, hole, rest = node.name.partition(ANY)
    name = next(names, None)
    if name is None:
        raise Odd
    return node if not hole else Name(name.name + rest) if rest else name
