"""Builds the nodes of bodies that the template reader has read, from the templates and the words of each body.

An operand with one hole is filled with a word only once (`Filled`). So loops of the interpreter build most instructions: each takes as
many of the body's operands as its template has holes, and the constants after them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress
from itertools import count as count_from
from operator import add, attrgetter, getitem, itemgetter, length_hint, sub
from threading import Lock
from typing import Any

from .. import tree
from ..gc_pause import gc_pause
from ..lazy import ANY, CALLEE_WORD, LABEL, LABEL_WORD, PARAMETER_WORD, Template, TemplateBody
from ..tree import Address, Guard, Instruction, Name, Operand, Statement, Variable
from .directives import LOC, loc, pragma
from .lines import COMMENT
from .operands import register_ranges
from .slots import Draft, instructions, names, new, set_base, set_displaced, set_name, set_offset, set_unified, statement
from .source import Source
from .templates import CALL, PARAMETER_HOLE, WORD
from .tokens import BLANKS, NeedsReference

HOLE = re.compile(r"%(?:[A-Za-z0-9_]+#?|\$[PF]#|#)|\$L__#")
"""A word of a body as it stands in the line of a template, whether something stands for it or not."""
NOTHING = Name("_")
CELLS, ROW, OTHER = attrgetter("cells"), attrgetter("row"), attrgetter("other")


class Names(dict[str, Name]):
    """The name for each word."""

    def __missing__(self, word: str) -> Name:
        found = self[word] = new(Name)
        set_name(found, LABEL + word[len(LABEL_WORD):] if word.startswith(LABEL_WORD) else word.removeprefix(CALLEE_WORD))
        return found


class Parameters(Names):
    """The name for each word that stands for a parameter of one function."""

    prefix = ""

    def __missing__(self, word: str) -> Name:
        found = self[word] = Name(self.prefix + word[len(PARAMETER_WORD):])
        return found


class Filled(dict[str, Any]):
    """An operand or guard with one hole, filled with each word."""

    def __init__(self, node: Operand | Guard, names: Names) -> None:
        self.node, self.names = node, names

    def __missing__(self, word: str) -> Operand | Guard:
        found: Operand | Guard = filled(self.node, iter((self.names[word],)))
        self[word] = found
        return found


class NodeBuilder:
    """Builds the bodies of one text."""

    def __init__(self, source: Source, read_statements: Callable[[int, int], tuple[Statement, ...]]) -> None:
        """`read_statements` reads a body between two offsets with the statement reader. A few bodies need it."""
        self.source, self.read_statements = source, read_statements
        self.lock = Lock()
        self.names, self.parameters = Names(), Parameters()
        for _, words in register_ranges(source.text, {}):
            self.names.update(zip(words, names(words), strict=True))
        self.filled: dict[Operand | Guard, Filled] = {}
        self.own: list[Filled] = []  # those with a hole for a parameter of the function itself
        self.next: TemplateBody | None = None
        self.done = 0  # how many lines were built without a gap up to `next`

    def build(self, body: TemplateBody) -> None:
        """Builds the nodes of a body, and of as many lines after it as were built before it without a gap.

        A program that asks for one body after the other will ask for more, and the garbage collector then looks at all of them less often.
        """
        with self.lock, gc_pause():
            if body is not self.next:
                self.done = 0
            most = 2 * self.done
            following: TemplateBody | None = body
            while following is not None and following.nodes is None and (following is body or self.done < most):
                following.nodes = self._body(following)
                self.done += len(following.templates)
                following = following.following
            self.next = following

    def _body(self, body: TemplateBody) -> tuple[Statement, ...]:
        try:
            return self._nodes(body)
        except NeedsReference:
            return self.read_statements(body.start, body.stop)

    def _nodes(self, body: TemplateBody) -> tuple[Statement, ...]:
        """The nodes of a body. `NeedsReference`: its templates do not tell all of a line."""
        templates, words = body.templates, body.words
        for template in {*templates}:
            if template.cells is None:
                self._plan(template)
        self.parameters.prefix = body.parameter_prefix
        for known in (self.parameters, *self.own):
            known.clear()
        lines = self._lines(body)
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
            braces, simple = template.braces, template.row is not None
            found += nodes[done:before - simple]
            if braces[:1] == "{":
                stack.append(found)
                found = []
            if simple:
                found.append(nodes[before - 1])
            elif template.drafts or template.deferred:
                drafts = self._drafts(template, line, cells[stops[number]:stops[number + 1]])
                found += [statement(draft, line) for draft in drafts]
            done = before
            if braces[-1:] == "}":
                block = tree.Block(tuple(found))
                found = stack.pop()
                found.append(block)
        found += nodes[done:]
        return tuple(found)

    def _lines(self, body: TemplateBody) -> Sequence[int]:
        """The line of each template. A call of several lines has one template. `NeedsReference`: it is not alone in its lines."""
        text = self.source.text
        begin = text.find("\n", body.start) + 1
        first = self.source.position(begin).line
        if text.count("\n", begin, body.stop) + 1 == len(body.templates):
            return range(first, first + len(body.templates))
        bare = COMMENT.sub("", text[begin:body.stop])
        lines: list[int] = []
        at = 0
        for call in CALL.finditer(bare):
            more = call[0].count("\n")
            if more:
                lines += range(first, first + bare.count("\n", at, call.end()) + 1 - more)
                if len(body.templates[len(lines) - 1].drafts) != 1:
                    raise NeedsReference
                first, at = lines[-1] + more + 1, bare.find("\n", call.end()) + 1
        return [*lines, *range(first, first + len(body.templates) - len(lines))]

    # ------------------------------------------------------------------------------------------------- templates

    def _plan(self, template: Template) -> None:
        """Sets how nodes are built by a template. `row`: it is one instruction, and its guard and operands have one hole at most."""
        holes = HOLE.findall(template.line)
        words = [self.parameters if hole == PARAMETER_HOLE else self.names for hole in holes]
        template.cells = tuple(words)
        template.other = bool(template.drafts or template.braces or template.deferred)
        if len(template.drafts) != 1 or len(template.drafts[0]) != 4:
            return
        opcode, operands, guard, column = template.drafts[0]
        most = len(holes)
        counts = [_count(operand, most) for operand in operands]
        guarded = guard is not None and _has_hole(guard.predicate)
        size = sum(counts)
        if max(counts, default=0) > 1 or size + guarded != most:
            return
        begun: list[Any] = list(compress(operands, counts))
        if guard is not None and guarded:
            begun.insert(0, guard)
            column -= len(guard.predicate)
        template.cells = tuple([self._cell(node, names) for node, names in zip(begun, words, strict=True)])
        tail = tuple([operand for operand, count in zip(operands, counts, strict=True) if not count])
        order = None
        if 0 in counts[:size]:
            kept, constant = count_from(0), count_from(size)
            order = itemgetter(*[next(kept) if count else next(constant) for count in counts])
        template.row = opcode, tail, size, guarded or guard, column, order
        template.other = bool(template.braces)

    def _cell(self, node: Operand | Guard, names: Names) -> Names | Filled:
        """The operand or guard with one hole, filled with each word."""
        if type(node) is Name and "." not in node.name:
            return names
        known = self.filled.get(node)
        if known is None:
            known = self.filled[node] = Filled(node, names)
            if names is self.parameters:
                self.own.append(known)
        return known

    def _drafts(self, template: Template, line: int, cells: tuple[Name, ...]) -> list[Draft]:
        """The statements of a line that is not one simple instruction, with these names in its holes."""
        if template.deferred == ".loc":
            if not template.drafts:
                match = LOC.fullmatch(template.line.strip(BLANKS))
                assert match is not None
                found: list[Draft] = [(loc(match),)]
                template.drafts = found
            return template.drafts
        if template.deferred:
            return [(pragma(self.source, self.source.starts[line - 1]),)]
        if "#" not in template.line:
            return template.drafts
        if template.kind == "label" and isinstance(column := template.drafts[0][-1], int) and len(template.drafts) == 1:
            return [(cells[0].name, column)]
        key = tuple([cell.name for cell in cells])
        known = template.known = template.known or {}
        drafts = known.get(key)
        if drafts is None:
            drafts = known[key] = _filled_drafts(template, cells)
        return drafts


def _filled_drafts(template: Template, cells: tuple[Name, ...]) -> list[Draft]:
    """The statements of a line with these names in its holes. A longer name moves the following statements to the right."""
    holes = HOLE.findall(template.line)
    longer = [0, *accumulate(map(sub, map(len, [cell.name for cell in cells]), [len(hole.replace("#", ANY)) for hole in holes]))]
    words = iter(cells)
    found: list[Draft] = []
    for draft in template.drafts:
        before = longer[len(cells) - length_hint(words)]
        if len(draft) == 4:
            opcode, operands, guard, column = draft
            guard = None if guard is None else filled(guard, words)
            before = longer[len(cells) - length_hint(words)]
            found.append((opcode, tuple([filled(operand, words) for operand in operands]), guard, column + before))
        elif len(draft) == 2 and isinstance(draft[0], str):
            found.append((filled(Name(draft[0]), words).name, draft[1] + before))
        elif len(draft) == 2 and isinstance(draft[0], Variable) and ANY not in draft[0].name:
            found.append((draft[0], draft[1] + before))
            filled(Name(draft[0].name), words)
        else:
            raise NeedsReference
    if length_hint(words):
        raise NeedsReference
    return found


def _instructions(rows: list[Any], cells: tuple[Any, ...], stops: Iterable[int], lines: Iterable[int]) -> list[Instruction]:
    """The instructions of these rows, in the lines of these numbers. The cells of each row end at its stop."""
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
    """How many holes an operand has; there are no more than `most`."""
    if type(node) is Name:
        return _has_hole(node.name)
    spare = iter([NOTHING] * most)
    filled(node, spare)
    return most - length_hint(spare)


def _has_hole(name: str) -> bool:
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
    if not _has_hole(node.name):
        return node
    _, hole, rest = node.name.partition(ANY)
    name = next(names, None)
    if name is None:
        raise NeedsReference
    return node if not hole else Name(name.name + rest) if rest else name
