"""Reads a module: its items by patterns, and each body by the template reader or the statement reader.

The tree is the one that the reference reader builds, and the errors are those that it gives. The fast readers refuse nothing but brackets
nested too deep: what they do not know goes to the reference reader (`fallback`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..errors import ParseError
from ..lazy import TemplateBody
from ..tree import Function, Module, Statement
from . import declarations, directives, sections
from .declarations import FunctionReader
from .fallback import Fallback
from .lines import LineReader
from .nodes import NodeBuilder
from .operands import Operands
from .sections import SectionReader
from .slots import at_position
from .source import Source
from .statements import StatementReader
from .templates import TemplateReader
from .tokens import BLANKS, NeedsReference


class ModuleReader:
    """One reading of a text."""

    def __init__(self, source: Source, errors: list[ParseError] | None = None) -> None:
        """`errors`: the list for errors. None: the first one is raised."""
        self.source, self.text = source, source.text
        self.operands = Operands()
        self.fallback = Fallback(source, self.operands, errors)
        self.functions, self.sections = FunctionReader(source), SectionReader(source, self.operands)
        self.templates = TemplateReader(source.text)
        self.last: TemplateBody | None = None  # the body that the template reader read last
        self.skip_templates = 0  # up to this offset no body is given to the template reader

    @cached_property
    def lines(self) -> LineReader:
        return LineReader(self.source, self.operands)

    @cached_property
    def builder(self) -> NodeBuilder:
        return NodeBuilder(self.source, self._read_statements)

    def read(self) -> Module:
        """The module. Raises the first error, or adds every error to the list."""
        try:
            return self._module()
        except NeedsReference:
            return self.fallback.whole()

    def _module(self) -> Module:
        head = declarations.HEADER.match(self.text, self.source.skip(0))
        if head is None:
            raise NeedsReference
        version, target, address_size = declarations.header(head)
        items: list[Any] = []
        at, end = self.source.skip(head.end()), len(self.text)
        while at < end:
            try:
                at = self._item(at, items)
            except ParseError as error:
                match = declarations.NEXT_ITEM.search(self.text, self.fallback.resume(error, at))
                at = end if match is None else match.start()
            at = self.source.skip(at)
        self.last = None  # from now on only the bodies that are not built yet hold the text
        return Module(version, target, address_size, tuple(items))

    def _item(self, at: int, items: list[Any]) -> int:
        """Reads the item that begins at the offset; the offset after it."""
        text = self.text
        try:
            if (match := declarations.FUNCTION.match(text, at)) is not None:
                function = self.functions.function(match)
                if match["end"] == "{":
                    return self._body(function, match.end(), items)
                items.append(function)
                return match.end()
            if (match := declarations.VARIABLES.match(text, at)) is not None:
                found = declarations.variables(match, self.operands, public=True)
                items += [at_position(variable, self.source.position(at + offset)) for variable, offset in found]
                return match.end()
            if (match := sections.SECTION.match(text, at)) is not None and (stop := text.find("}", match.end())) >= 0:
                items.append(self.sections.section(match, stop))
                return stop + 1
            if (match := directives.FILE.match(text, at)) is not None:
                items.append(directives.file(match, self.source))
                return match.end()
        except NeedsReference:
            pass
        return self._other_item(at, items)

    def _other_item(self, at: int, items: list[Any]) -> int:
        """Gives an item to the reference reader, the head alone if it is a function; the offset after it."""
        section = sections.SECTION.match(self.text, at)
        match = declarations.EXTENT.match(self.text, at)
        stop = self.text.find("}", at) + 1 if section is not None else match.end() if match is not None else 0
        try:
            if section is None and (initialized := self.fallback.initialized("items", at, 0)) is not None:
                items += initialized[0]
                return initialized[1]
            if stop == 0:
                raise NeedsReference
            if section is None and match is not None and match["head"] is not None:
                return self._body(self.fallback.fragment("items", at, stop, "}")[0], stop, items)
            items += self.fallback.fragment("items", at, stop)
        except NeedsReference:
            if not items:
                raise  # the head of the module may still go on there
            raise self.fallback.error(at) from None
        return stop

    # ---------------------------------------------------------------------------------------------------- bodies

    def _body(self, function: Function, start: int, items: list[Any]) -> int:
        """Reads the body of a function, which begins at the offset after its opening brace; the offset after its closing brace."""
        body = self._template_body(start, f"{function.name}_param_")
        if body is not None:
            declarations.set_body(function, body)
            stop = body.stop + 2
        else:
            reader = self._statement_reader(start, self.skip_templates)
            stop = reader.read()
            declarations.set_body(function, reader.statements)
        items.append(function)
        return stop

    def _statement_reader(self, start: int, stop: int) -> StatementReader:
        return StatementReader(self.source, self.lines, self.fallback, start, stop)

    def _read_statements(self, start: int, stop: int) -> tuple[Statement, ...]:
        reader = self._statement_reader(start, stop)
        reader.read()
        return reader.statements

    def _template_body(self, start: int, parameter_prefix: str) -> TemplateBody | None:
        """The body after an opening brace, if it has its lines for itself and the template reader knows all of them.

        `parameter_prefix`: how the names of the function's own parameters begin.
        """
        begin = self.text.find("\n", start) + 1
        if start < self.skip_templates or not begin or self.text[start:begin - 1].partition("//")[0].strip(BLANKS):
            return None
        stop = self._closing(begin - 1)
        found = self.templates.body(self.text[begin:stop], parameter_prefix) if stop >= 0 else None
        if found is None:
            self.skip_templates = stop if stop >= 0 else len(self.text)
            return None
        if self.last is not None:
            self.last.following = found
        self.last = found
        return found.within(self.source, start, stop, self._build)

    def _build(self, body: TemplateBody) -> None:
        self.builder.build(body)

    def _closing(self, at: int) -> int:
        """The line break before the brace that closes a body, or -1. It begins a line, and all blocks before it are closed.

        The search begins at the line break at the offset.
        """
        text, depth = self.text, 0
        while (stop := text.find("\n}", at)) >= 0:
            if text.find("{", at, stop) >= 0 or text.find("}", at, stop) >= 0:  # most bodies have no braces, and finding none is fast
                depth += text.count("{", at, stop) - text.count("}", at, stop)
            if depth <= 0:
                break
            at = stop + 1
        return stop if depth == 0 else -1
