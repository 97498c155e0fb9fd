"""Declarations that compilers write: a module's head, variables, and the heads of functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..tree import (
    Aggregate,
    Constant,
    Expression,
    Float,
    Function,
    Initializer,
    Integer,
    Name,
    Pointer,
    Variable,
)
from .comments import without_comments
from .directives import function_directives
from .folding import folded
from .operands import Operands, integer
from .slots import VARIABLE_FIELDS, new, position_at, set_variable_position, setter
from .source import Source
from .tokens import BLANKS, GAP, IDENT, NAME_END, NUMBER, SPACES, TYPES, NeedsReference

COMMENTS = r"(?:[ \t\r\n]|//[^\n]*+)*+"
HEADER = re.compile(
    rf"\.version{COMMENTS}([0-9]{{1,4}})\.([0-9]{{1,4}}){COMMENTS}\.target{COMMENTS}([a-z][a-zA-Z0-9_]*(?:{COMMENTS},{COMMENTS}[a-z][a-zA-Z0-9_]*)*)"
    rf"(?:{COMMENTS}\.address_size{COMMENTS}({NUMBER})(?![A-Za-z0-9_$.]))?(?=[ \t\r\n./]|\Z)")
VARIABLES = re.compile(
    rf"(?:\.(?P<linkage>extern|visible|weak|common){NAME_END}{GAP})?\.(?P<space>{SPACES}){GAP}(?:\.align[ \t]+(?P<align>{NUMBER}){GAP})?"
    rf"(?:\.v(?P<vector>[248]){GAP})?\.(?P<type>{TYPES}){NAME_END}(?P<names>[^;={{}}\"/:]*+)"
    rf"(?:={GAP}(?:\{{(?P<values>[^{{}};\"/=]*+)\}}{GAP}|(?P<value>[^{{}};,\"/=]++)))?;")
DECLARATOR = re.compile(rf"({IDENT})(?:<({NUMBER})>)?((?:\[(?:{NUMBER})?\])*+)")
EXTENT_OF = re.compile(r"\[([^\]]*)\]")
FUNCTION = re.compile(
    rf"(?:\.(?P<linkage>extern|visible|weak|common){NAME_END}{GAP})?\.(?P<kind>entry|func)(?=[ \t\r\n(]){GAP}"
    rf"(?:\((?P<returns>[^()\"/]*+)\){GAP})?(?P<name>{IDENT}){GAP}(?:\((?P<parameters>[^()\"/]*+)\))?{GAP}"
    rf"(?P<directives>[^{{}};\"/()]*+)(?P<end>[{{;])")
PARAMETER = re.compile(
    rf"\.({SPACES}){GAP}(?:\.align[ \t]+({NUMBER}){GAP})?(?:\.v([248]){GAP})?\.({TYPES}){NAME_END}{GAP}"
    rf"(?:(\.ptr){NAME_END}{GAP}(?:\.({SPACES}){NAME_END}{GAP})?(?:\.align[ \t]+({NUMBER})[ \t]+)?)?({IDENT}|_)((?:\[(?:{NUMBER})?\])*)")
SYMBOL = rf"(?:(?!WARP_SZ{NAME_END})({IDENT})|generic{GAP}\({GAP}({IDENT}){GAP}\))"
DISPLACED = re.compile(rf"{SYMBOL}{GAP}(?:\+(.*))?", re.DOTALL)
MASK = re.compile(rf"({NUMBER}){GAP}\({GAP}(.*)\)", re.DOTALL)
NEXT_ITEM = re.compile(
    rf"^[ \t]*\.(?:visible|extern|weak|common|entry|func|global|const|shared|section|file|alias|pragma){NAME_END}", re.MULTILINE)
"""Where reading goes on after an error between functions."""
# An item of any spelling: the head of a function up to its brace or semicolon (a pragma in it has its own semicolon), or any other item up
# to its semicolon.
EXTENT = re.compile(
    rf"(?:\.(?:extern|visible|weak|common){NAME_END}{GAP})?(?:\.(?:entry|func){NAME_END}"
    rf"(?>\"[^\"\n]*\"{GAP};|\"[^\"\n]*\"|//[^\n]*|/(?!/)|[^{{}};\"/]+)*+(?:(?P<head>\{{)|;)"
    r"|(?!\.(?:section|file|entry|func)\b)(?>\"[^\"\n]*\"|//[^\n]*|/(?!/)|[^;\"/]+)*+;)")
# A declaration up to the opening brace of its initialiser.
LISTED = re.compile(rf"(?!\.(?:section|file|entry|func|alias|pragma)\b)\.(?>//[^\n]*|/(?!/)|[^;{{}}\"/=]+)*+={COMMENTS}\{{")
set_variable_name, set_body = setter(Variable, "name"), setter(Function, "body")
OWN = "\x03"
"""Stands for the beginning of the names of a function's own parameters."""


def header(match: re.Match[str]) -> tuple[tuple[int, int], tuple[str, ...], int | None]:
    """The version, target and address size that `HEADER` matched."""
    targets = tuple([target.strip(BLANKS) for target in without_comments(match[3]).split(",")])
    return (int(match[1]), int(match[2])), targets, _optional(match[4])


# --------------------------------------------------------------------------------------------------- variables


def variables(match: re.Match[str], operands: Operands, *, public: bool) -> list[tuple[Variable, int]]:
    """The variables of one declaration that `VARIABLES` matched, one for each name. Each has no position yet: with it comes how far after
    the beginning of the declaration its name stands.

    `public`: the declaration stands between functions, where it may have a linkage.
    """
    linkage, space, align, vector, type, names, values, value = match.groups()
    if linkage is not None and not public:
        raise NeedsReference
    initializer: Initializer | None = None
    if values is not None:
        initializer = Aggregate(_constants(values, operands) if values.strip(BLANKS) else ())
    elif value is not None:
        initializer = constant_of(value.strip(BLANKS), operands)
    given, lanes = _optional(align), 1 if vector is None else int(vector)
    found: list[tuple[Variable, int]] = []
    at, parts = match.start("names") - match.start(), names.split(",")
    for number, part in enumerate(parts, 1):
        declared = DECLARATOR.fullmatch(part.strip(BLANKS))
        if declared is None:
            raise NeedsReference
        first = initializer if number == len(parts) else None
        found.append((Variable(space, type, declared[1], _optional(declared[2]), lanes, given, _shape(declared[3]), first, linkage or ""),
                      at + len(part) - len(part.lstrip(BLANKS))))
        at += len(part) + 1
    return found


class Declarations(dict[str, list[tuple[Variable, int]]]):
    """What `variables` finds in the text of each declaration in a body."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands

    def __missing__(self, text: str) -> list[tuple[Variable, int]]:
        match = VARIABLES.fullmatch(text)
        if match is None:
            raise NeedsReference
        found = self[text] = variables(match, self.operands, public=False)
        return found


def _optional(text: str | None) -> int | None:
    return None if text is None else integer(text).value


def _shape(text: str) -> tuple[int | None, ...]:
    return tuple([integer(extent).value if extent else None for extent in EXTENT_OF.findall(text)]) if text else ()


# ------------------------------------------------------------------------------------------- constants in initialisers


def _constants(text: str, operands: Operands) -> tuple[Constant, ...]:
    """The constants of a list. Equal ones are read once. The text has no comments."""
    listed = list(map(str.strip, text.split(",")))
    known = {word: constant_of(word, operands) for word in dict.fromkeys(listed)}
    return tuple(map(known.__getitem__, listed))


def constant_of(word: str, operands: Operands) -> Constant:
    """The constant that a text is. There are no blanks around it."""
    known = operands.get(word)
    if type(known) is Integer:
        return known
    if (match := DISPLACED.fullmatch(word)) is not None:
        return _symbol(match)
    if (match := MASK.fullmatch(word)) is not None and (symbol := DISPLACED.fullmatch(match[2].strip(BLANKS))) is not None:
        return Expression("mask", (integer(match[1]), _symbol(symbol)))
    value = operands[word]
    if isinstance(value, Integer | Float):
        return value
    raise NeedsReference


def _symbol(match: re.Match[str]) -> Constant:
    name, generic, displaced = match.groups()
    if (name or generic) == "generic":
        raise NeedsReference
    symbol: Constant = Name(name) if name is not None else Expression("generic", (Name(generic),))
    if displaced is None:
        return symbol
    try:
        value = folded(displaced)
    except ValueError:
        raise NeedsReference from None
    if type(value) is not Integer:
        raise NeedsReference
    return Expression("+", (symbol, value))


# ---------------------------------------------------------------------------------------------- heads of functions


class Parameter(NamedTuple):
    """A parameter that was read once: its fields without name and position, and where in its text the name stands.

    `own`: the name begins with the function's name, as compilers write it; then `name` is only what follows this prefix. `offset` is where
    the name begins. `before` is how many line breaks stand before it, `column` its column, and `lines` how many line breaks the whole text
    of the parameter has.
    """

    fields: list[tuple[Callable[[Any, Any], None], Any]]
    name: str
    own: bool
    offset: int
    column: int
    before: int
    lines: int


class FunctionReader:
    """Reads the heads of the functions in a text. Parameters that differ only in the function's name are read once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.known: dict[str, Parameter] = {}

    def function(self, match: re.Match[str]) -> Function:
        """The function whose head `FUNCTION` matched. Its body is None until it is read."""
        linkage, kind, returns, name, parameters, directives, _ = match.groups()
        if returns is not None and kind == "entry":
            raise NeedsReference
        prefix = f"{name}_param_"
        given = (self._parameters(returns, match.start("returns"), prefix),
                 self._parameters(parameters, match.start("parameters"), prefix))
        found = function_directives(directives, match.start("directives"), self.source)
        return Function(kind, name, given[1], given[0], found, None, linkage or "", (), self.source.position(match.start("name")))

    def _parameters(self, text: str | None, at: int, prefix: str) -> tuple[Variable, ...]:
        """`prefix`: how the names of the function's own parameters begin."""
        if text is None or not text.strip(BLANKS):
            return ()
        if OWN in text:
            raise NeedsReference
        known, position = self.known, self.source.position
        line = position(at).line
        found: list[Variable] = []
        for item in text.replace(prefix, OWN).split(","):
            parameter = known.get(item)
            if parameter is None or not parameter.before:
                part = item.replace(OWN, prefix)
                parameter = parameter or _parameter(part, prefix)
                # The text is as right with the prefix of another function if the prefix stands once and begins a word.
                if item == part or (parameter.own and item.count(OWN) == 1 and part[parameter.offset - 1] in BLANKS):
                    known[item] = parameter
            fields, name, own, offset, column, before, lines = parameter
            variable = new(Variable)
            for set, value in fields:
                set(variable, value)
            set_variable_name(variable, prefix + name if own else name)
            set_variable_position(variable, position_at(line + before, column) if before else position(at + offset))
            found.append(variable)
            line += lines
            at += len(item) + 1 + (len(prefix) - 1) * item.count(OWN)
        return tuple(found)


def _parameter(text: str, prefix: str) -> Parameter:
    before = len(text) - len(text.lstrip(BLANKS))
    match = PARAMETER.fullmatch(text.strip(BLANKS))
    if match is None:
        raise NeedsReference
    space, align, vector, type, pointer, pointed, pointer_align, name, shape = match.groups()
    target = None if pointer is None else Pointer(pointed or "", _optional(pointer_align))
    found = Variable(space, type, name, None, 1 if vector is None else int(vector), _optional(align), _shape(shape), None, "", (), target)
    offset, own = before + match.start(8), name.startswith(prefix)
    return Parameter([(set, get(found)) for get, set in VARIABLE_FIELDS], name.removeprefix(prefix), own, offset,
                     offset - text.rfind("\n", 0, offset), text.count("\n", 0, offset), text.count("\n"))
