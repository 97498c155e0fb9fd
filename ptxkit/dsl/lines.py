"""Finds the line of each statement of a tree in its text, without writing and parsing the text.

`grammar.write` puts one statement on a line, a blank line after declarations, and braces on lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.write import INDENT, write_items, write_statement


def numbered(module: tree.Module, files: Mapping[int, str]) -> tuple[tree.Module, dict[int, Position]]:
    """The module with its lines in `write(module)` as positions, and the author's position of each line of that text.

    `files` maps `.file` numbers to the author's files.
    """
    walk = _Walk(files)
    walk.line = 3 if module.address_size is None else 4
    return replace(module, items=tuple(walk.items(module.items))), walk.authors


class _Walk:
    """`line` is the line of the next statement. `author` is the position of the last `.loc`."""

    def __init__(self, files: Mapping[int, str]) -> None:
        self.files = files
        self.line = 1
        self.author: Position | None = None
        self.authors: dict[int, Position] = {}

    def items(self, items: Iterable[tree.Item]) -> Iterable[tree.Item]:
        before: type | None = None
        for item in items:
            if type(item) is not before or isinstance(item, tree.Function | tree.Section):
                self.line += 1  # a blank line
            before = type(item)
            if isinstance(item, tree.Function):
                yield self._function(item)
            elif isinstance(item, tree.Variable):
                yield self._declared(item, "")
            else:
                yield replace(item, position=Position(None, self.line, 1)) if isinstance(item, tree.Directive) else item
                self.line += write_items((item,)).count("\n") + 1

    def _function(self, function: tree.Function) -> tree.Function:
        head = write_items((replace(function, body=None),)).split("\n")
        column = head[0].rindex(f"{function.name}(") + 1
        place = Position(None, self.line, column)
        parameters = tuple(replace(parameter, position=Position(None, self.line + number, _name(head[number], parameter)))
                           for number, parameter in enumerate(function.parameters, 1))
        returns = self._listed(function.returns, head[0])
        self.line += len(head)
        body = function.body
        if body is not None:
            self.line += 1
            body = tuple(self._body(body, ""))
            self.line += 1
        return replace(function, parameters=parameters, returns=returns, body=body, position=place)

    def _listed(self, variables: Iterable[tree.Variable], text: str, after: int = 0) -> tuple[tree.Variable, ...]:
        """Variables that are declared in one line, after some column."""
        found = []
        for variable in variables:
            after = _name(text, variable, after)
            found.append(replace(variable, position=Position(None, self.line, after)))
        return tuple(found)

    def _declared(self, variable: tree.Variable, indent: str) -> tree.Variable:
        text = indent + write_items((variable,))
        place = Position(None, self.line, _name(text, variable))
        self.line += text.count("\n") + 1
        return replace(variable, position=place)

    def _body(self, body: Iterable[tree.Statement], margin: str) -> Iterable[tree.Statement]:
        indent = margin + INDENT
        declaring = False
        for statement in body:
            if declaring and not isinstance(statement, tree.Variable):
                self.line += 1  # a blank line
            declaring = isinstance(statement, tree.Variable)
            if isinstance(statement, tree.Variable):
                yield self._declared(statement, indent)
                continue
            if isinstance(statement, tree.Loc):
                self.author = Position(self.files[statement.file], statement.line)
                yield statement
            elif isinstance(statement, tree.Block):
                self.line += 1
                yield tree.Block(tuple(self._body(statement.body, indent)))
            elif isinstance(statement, tree.Directive):
                yield replace(statement, position=Position(None, self.line, len(indent) + 1))
            else:
                if self.author is not None:
                    self.authors[self.line] = self.author
                yield self._placed(statement, margin, indent)
            self.line += 1

    def _placed(self, statement: tree.Instruction | tree.Label | tree.Targets | tree.Prototype, margin: str, indent: str) -> tree.Statement:
        if isinstance(statement, tree.Prototype):
            text = margin + write_statement(statement)
            statement = replace(statement, returns=self._listed(statement.returns, text),
                                parameters=self._listed(statement.parameters, text, text.index(") _ (") + 4))
        if not isinstance(statement, tree.Instruction):
            return replace(statement, position=Position(None, self.line, len(margin) + 1))
        guard = statement.guard
        column = len(indent) + 1 + (0 if guard is None else len(guard.predicate) + (3 if guard.negated else 2))
        return tree.Instruction(statement.opcode, statement.operands, guard, Position(None, self.line, column))


def _name(text: str, variable: tree.Variable, after: int = 0) -> int:
    """The column of a variable's name in its declaration. All other words of a declaration begin with a dot or a digit."""
    return text.index(f" {variable.name}", after) + 2
