"""The reference reader: `ptx.lark` says what a module looks like, and this module says which nodes each phrase becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast

import lark
from lark import Token

from ..errors import ParseError, Position
from ..tree import (
    Address,
    Aggregate,
    Alias,
    Arguments,
    Block,
    Data,
    Directive,
    Element,
    Expression,
    Float,
    Function,
    Guard,
    Initializer,
    Instruction,
    Integer,
    Label,
    Loc,
    Minus,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Pointer,
    Prototype,
    Section,
    Statement,
    Targets,
    TensorAddress,
    Text,
    Variable,
    Vector,
)
from . import constant
from .comments import without_comments
from .limits import check_size
from .syntax_error import syntax_error
from .tokens import NeedsReference

T = TypeVar("T")

MAX_LABELS = 1 << 16
"""How many labels `L<n>` may list."""


def parse(text: str) -> Module:
    """The module that a PTX text is. `ParseError` says where it is not PTX and what was expected there."""
    blank = without_comments(text)
    check_size(blank, Position(None, 1, 1))
    try:
        return cast(Module, _lark().parse(blank, start="module"))
    except lark.exceptions.UnexpectedInput as error:
        raise syntax_error(error, blank, {t.name: t.pattern.value for t in _lark().terminals}) from None


def fragment(text: str, start: str, place: Position) -> list[Any]:
    """The nodes of a part of a text, read by the grammar's rule `start`. `NeedsReference`: the part is not right by itself.

    `place`: where the part begins.
    """
    try:
        blank = without_comments(text)
        check_size(blank, place)
        parser = _lark().parse_interactive(blank, start=start)
        assert parser.lexer_thread.state is not None
        counter = parser.lexer_thread.state.line_ctr
        counter.line, counter.column, counter.line_start_pos = place.line, place.column, 1 - place.column
        parser.exhaust_lexer()
        return list(_flat(parser.feed_eof()))  # type: ignore[no-untyped-call]
    except (lark.exceptions.UnexpectedInput, ParseError):
        raise NeedsReference from None


@cache
def _lark() -> lark.Lark:
    grammar = files("ptxkit.grammar.readers").joinpath("ptx.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="contextual", start=["module", "items", "statements"], transformer=Transformer())


class Names(dict[str, Name]):
    """One `Name` for each spelling. lark's tokens are not plain strings, so they must not get into the tree."""

    def __missing__(self, word: str) -> Name:
        name = self[word] = Name(str(word))
        return name


class Opcodes(dict[str, str]):
    """One string for each opcode, without the blanks that may stand before its dots."""

    def __missing__(self, word: str) -> str:
        opcode = self[word] = "".join(word.split())
        return opcode


class Transformer:
    """lark's callbacks. A method in capitals gives the value of a terminal, another one the value of a rule from its children."""

    def __init__(self) -> None:
        self.names = Names()
        self.opcodes = Opcodes()

    # ----------------------------------------------------------------------------------------- numbers and constants

    def NAME(self, token: Token) -> Name:
        return self.names[token]

    def INTEGER(self, token: Token) -> Integer:
        return _checked(token, constant.integer, token)

    def DECIMAL(self, token: Token) -> Float:
        return _checked(token, constant.decimal, token)

    def SINGLE(self, token: Token) -> Float:
        return constant.single(token)

    def DOUBLE(self, token: Token) -> Float:
        return constant.double(token)

    def WARP_SZ(self, _: Token) -> Integer:
        return constant.WARP_SIZE

    def STRING(self, token: Token) -> Text:
        return Text(token[1:-1])

    def unary(self, children: list[Any]) -> constant.Number:
        return _checked(children[0], constant.unary, *children)

    def binary(self, children: list[Any]) -> constant.Number:
        left, symbol, right = children
        return _checked(symbol, constant.binary, symbol, left, right)

    def cast(self, children: list[Any]) -> Integer:
        return _checked(children[0], constant.cast, *children)

    def conditional(self, children: list[Any]) -> Integer:
        condition, mark, yes, no = children
        return _checked(mark, constant.conditional, condition, yes, no)

    # --------------------------------------------------------------------------------------------------- operands

    def pair(self, children: list[Any]) -> Operand:
        return Pair(children[0], children[1])

    def negated(self, children: list[Name]) -> Operand:
        return Not(children[0])

    def minus(self, children: list[Name]) -> Operand:
        return Minus(children[0])

    def vector(self, children: list[Operand]) -> Vector:
        return Vector(tuple(children))

    def arguments(self, children: list[Operand]) -> Operand:
        return Arguments(tuple(children))

    def offset(self, children: list[Any]) -> Operand:
        name, plus, value = children
        return Offset(name, _bytes(plus, value))

    def address(self, children: list[Any]) -> Operand:
        bracket, base, *rest = children
        if type(base) is Float:
            raise ParseError("an address is an integer", _place(bracket))
        if not rest:
            return Address(base)
        plus, value, unified = rest
        offset = _bytes(plus, value)
        return Address(base, offset, plus is not None and offset == 0, unified is not None)

    def element(self, children: list[Any]) -> Operand:
        base, bracket, index, *rest = children
        if type(index) is Float:
            raise ParseError("an index is an integer", _place(bracket))
        return Element(base, index, _bytes(*rest) if rest else 0)

    def tensor(self, children: list[Any]) -> Operand:
        tensormap, *sampler, coordinates = children
        return TensorAddress(tensormap, coordinates, sampler[0] if sampler else None)

    # ------------------------------------------------------------------------------------------------- statements

    def guard(self, children: list[Any]) -> Guard:
        negation, predicate = children
        return Guard(predicate.name, negation is not None)

    def instruction(self, children: list[Any]) -> Instruction:
        opcode = children[1]
        return Instruction(self.opcodes[opcode], tuple(children[2:]), children[0], _place(opcode))

    def label(self, children: list[Token]) -> Label:
        return Label(_label(children[0]), _place(children[0]))

    def block(self, children: list[Any]) -> Block:
        return Block(_flat(children))

    def pragma(self, children: list[Any]) -> Directive:
        return Directive("pragma", tuple(children[1:]), _place(children[0]))

    def file(self, children: list[Any]) -> Directive:
        word, index, text, *numbers = children
        return Directive("file", (index.value, text, *[n.value for n in numbers]), _place(word))

    def loc(self, children: list[Any]) -> Loc:
        file, line, column, inlined = children
        return Loc(file.value, line.value, column.value, inlined)

    def inlined(self, children: list[Any]) -> tuple[str, int, int, int, int]:
        name, offset, file, line, column = children
        return str(name), 0 if offset is None else offset.value, file.value, line.value, column.value

    def targets(self, children: list[Any]) -> Targets:
        label, kind, *listed = children
        return Targets(_label(label), kind[1:], tuple([name for names in listed for name in names]), _place(label))

    def listed(self, children: list[Any]) -> list[str]:
        name, count = children
        if count is not None and count.value > MAX_LABELS:
            raise ParseError(f"more than {MAX_LABELS} labels are listed", _place(name))
        return [str(name)] if count is None else [f"{name}{i}" for i in range(count.value)]

    def prototype(self, children: list[Any]) -> Prototype:
        label, returns, _, parameters, *directives = children
        return Prototype(_label(label), returns or (), parameters or (), tuple(directives), _place(label))

    # ----------------------------------------------------------------------------------- declarations and functions

    def public(self, children: list[Any]) -> list[Variable]:
        linkage, variables = children
        return variables if linkage is None else [replace(v, linkage=linkage[1:]) for v in variables]

    def declaration(self, children: list[Any]) -> list[Variable]:
        space, attributes, align, vector, type, *declarators = children
        lanes = 1 if vector is None else int(vector[2:])
        return [
            Variable(space[1:], type[1:], str(name), count, lanes, align, shape, initializer, "", attributes or (), None, _place(name))
            for name, count, shape, initializer in declarators
        ]

    def declarator(self, children: list[Any]) -> tuple[Token, int | None, tuple[int | None, ...], Initializer | None]:
        name, count, *shape, initializer = children
        return name, None if count is None else count.value, tuple(shape), initializer

    def parameter(self, children: list[Any]) -> Variable:
        space, align, vector, type, pointer, name, *shape = children
        lanes = 1 if vector is None else int(vector[2:])
        return Variable(space[1:], type[1:], str(name), None, lanes, align, tuple(shape), pointer=pointer, position=_place(name))

    def pointer(self, children: list[Any]) -> Pointer:
        space, align = children
        return Pointer("" if space is None else space[1:], align)

    def extent(self, children: list[Integer | None]) -> int | None:
        return None if children[0] is None else children[0].value

    def align(self, children: list[Integer]) -> int:
        return children[0].value

    def attributes(self, children: list[str]) -> tuple[str, ...]:
        return tuple(children)

    def attribute(self, children: list[Any]) -> str:
        word, *numbers = children
        given = f"({', '.join([str(n.value) for n in numbers])})" if numbers else ""
        return f"{word[1:]}{given}"

    def parameters(self, children: list[Variable]) -> tuple[Variable, ...]:
        return tuple(children)

    def entry(self, children: list[Any]) -> Function:
        linkage, word, attributes, name, parameters, *directives, body = children
        return _function(linkage, word, attributes, None, name, parameters, directives, body)

    def func(self, children: list[Any]) -> Function:
        linkage, word, attributes, returns, name, parameters, *directives, body = children
        return _function(linkage, word, attributes, returns, name, parameters, directives, body)

    def directive(self, children: list[Any]) -> Directive:
        word, *numbers = children
        return Directive(word[1:], tuple([n.value for n in numbers]), _place(word))

    def undefined(self, _: list[Any]) -> None:
        return None

    def body(self, children: list[Any]) -> tuple[Statement, ...]:
        return _flat(children)

    # --------------------------------------------------------------------------------------------- initialisers

    def aggregate(self, children: list[Initializer]) -> Aggregate:
        return Aggregate(tuple(children))

    def name(self, children: list[Token]) -> Name:
        return self.names[children[0]]

    def displaced(self, children: list[Any]) -> Expression:
        base, symbol, value = children
        if type(value) is Float:
            raise ParseError("an address is displaced by an integer", _place(symbol))
        return Expression(str(symbol), (base, value))

    def generic(self, children: list[Token]) -> Expression:
        return Expression("generic", (self.names[children[0]],))

    def mask(self, children: list[Any]) -> Expression:
        return Expression("mask", tuple(children))

    def assignment(self, children: list[Any]) -> Expression:
        field, value = children
        return Expression("=", (self.names[field], value))

    # --------------------------------------------------------------------------------------------------- the module

    def items(self, children: list[Any]) -> tuple[Any, ...]:
        return _flat(children)

    def statements(self, children: list[Any]) -> tuple[Any, ...]:
        return _flat(children)

    def module(self, children: list[Any]) -> Module:
        version, target, address_size, *items = children
        return Module(version, target, address_size, _flat(items))

    def version(self, children: list[Token]) -> tuple[int, int]:
        major, _, minor = children[0].partition(".")
        if len(children[0]) > 9:
            raise ParseError("there is no version of that many digits", _place(children[0]))
        return int(major), int(minor)

    def target(self, children: list[Token]) -> tuple[str, ...]:
        return tuple([str(word) for word in children])

    def address_size(self, children: list[Integer]) -> int:
        return children[0].value

    def alias(self, children: list[Token]) -> Alias:
        return Alias(str(children[0]), str(children[1]))

    def section(self, children: list[Any]) -> Section:
        return Section(str(children[0]), tuple(children[1:]))

    def data(self, children: list[Any]) -> Data:
        return Data(children[0][1:], tuple(children[1:]))


def _place(token: Token) -> Position:
    return Position(None, cast(int, token.line), cast(int, token.column))


def _checked(token: Token, make: Callable[..., T], *arguments: Any) -> T:
    """`make(*arguments)`. Its `ValueError` becomes a `ParseError` at the token."""
    try:
        return make(*arguments)
    except ValueError as error:
        raise ParseError(str(error), _place(token)) from None


def _bytes(plus: Token | None, value: constant.Number | None) -> int:
    if value is None:
        return 0
    if isinstance(value, Float):
        raise ParseError("an address is displaced by an integer", _place(cast(Token, plus)))
    return constant.wrap(value.value).value


def _label(token: Token) -> str:
    return token[:-1].rstrip()


def _flat(children: list[Any]) -> tuple[Any, ...]:
    """The nodes in order. A declaration is a list of variables, one for each name."""
    flat: list[Any] = []
    for child in children:
        if type(child) is list:
            flat.extend(child)
        else:
            flat.append(child)
    return tuple(flat)


def _function(
    linkage: Token | None,
    word: Token,
    attributes: tuple[str, ...] | None,
    returns: tuple[Variable, ...] | None,
    name: Token,
    parameters: tuple[Variable, ...] | None,
    directives: list[Directive],
    body: tuple[Statement, ...] | None,
) -> Function:
    return Function(
        word[1:], str(name), parameters or (), returns or (), tuple(directives), body,
        linkage[1:] if linkage is not None else "", attributes or (), _place(name),
    )
