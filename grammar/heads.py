"""The plain spellings of a module's head, its declarations, function heads and debug sections; `Odd` leaves the rest to the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from itertools import accumulate, count
from operator import add
from typing import Any, NamedTuple, Protocol

from . import constant
from .blanks import without_comments
from .errors import Position
from .folding import NUMBER, folded
from .tree import (
    Aggregate,
    Constant,
    Data,
    Directive,
    Expression,
    Float,
    Function,
    Initializer,
    Integer,
    Label,
    Name,
    Pointer,
    Text,
    Variable,
)
from .words import BLANKS, IDENT, Odd, Words, new, setter, spot

W = r"[ \t\r\n]*+"
SPACES = "reg|sreg|const|global|local|param|shared|tex"
TYPES = r"[bus](?:8|16|32|64)|b128|f16x2|f16|f32|f64|pred|texref|samplerref|surfref"
DIRECTIVES = ("maxntid|reqntid|minnctapersm|maxnctapersm|maxnreg|noreturn|reqnctapercluster|explicitcluster|maxclusterrank"
              "|blocksareclusters|abi_preserve_control|abi_preserve")
STOP = "(?![A-Za-z0-9_$])"

COMMENTS = r"(?:[ \t\r\n]|//[^\n]*+)*+"
HEADER = re.compile(
    rf"\.version{COMMENTS}([0-9]{{1,4}})\.([0-9]{{1,4}}){COMMENTS}\.target{COMMENTS}([a-z][a-z0-9_]*(?:{COMMENTS},{COMMENTS}[a-z][a-z0-9_]*)*)"
    rf"(?:{COMMENTS}\.address_size{COMMENTS}({NUMBER})(?![A-Za-z0-9_$.]))?(?=[ \t\r\n./]|\Z)")
VARIABLES = re.compile(
    rf"(?:\.(?P<linkage>extern|visible|weak|common){STOP}{W})?\.(?P<space>{SPACES}){W}(?:\.align[ \t]+(?P<align>{NUMBER}){W})?"
    rf"(?:\.v(?P<vector>[248]){W})?\.(?P<type>{TYPES}){STOP}(?P<names>[^;={{}}\"/:]*+)"
    rf"(?:={W}(?:\{{(?P<values>[^{{}};\"/=]*+)\}}{W}|(?P<value>[^{{}};,\"/=]++)))?;")
DECLARATOR = re.compile(rf"({IDENT})(?:<({NUMBER})>)?((?:\[(?:{NUMBER})?\])*+)")
EXTENT_OF = re.compile(r"\[([^\]]*)\]")
FUNCTION = re.compile(
    rf"(?:\.(?P<linkage>extern|visible|weak|common){STOP}{W})?\.(?P<kind>entry|func)(?=[ \t\r\n(]){W}"
    rf"(?:\((?P<returns>[^()\"/]*+)\){W})?(?P<name>{IDENT}){W}(?:\((?P<parameters>[^()\"/]*+)\))?{W}"
    rf"(?P<directives>[^{{}};\"/()]*+)(?P<end>[{{;])")
PARAMETER = re.compile(
    rf"\.({SPACES}){W}(?:\.align[ \t]+({NUMBER}){W})?(?:\.v([248]){W})?\.({TYPES}){STOP}{W}"
    rf"(?:(\.ptr){STOP}{W}(?:\.({SPACES}){STOP}{W})?(?:\.align[ \t]+({NUMBER})[ \t]+)?)?({IDENT}|_)((?:\[(?:{NUMBER})?\])*)")
SYMBOL = rf"(?:(?!WARP_SZ{STOP})({IDENT})|generic{W}\({W}({IDENT}){W}\))"
DISPLACED = re.compile(rf"{SYMBOL}{W}(?:\+(.*))?", re.DOTALL)
MASK = re.compile(rf"({NUMBER}){W}\({W}(.*)\)", re.DOTALL)
DIRECTIVE = re.compile(rf"{W}(\.(?:{DIRECTIVES})){STOP}(?:{W}({NUMBER}(?:{W},{W}{NUMBER})*))?{W}")
FILE = re.compile(rf"\.file[ \t]+([0-9]+)[ \t]+(\"[^\"\n]*\")(?:[ \t]*,[ \t]*([0-9]+)(?:[ \t]*,[ \t]*([0-9]+))?)?(?={W}(?:[.]|//|\Z))")
SECTION = re.compile(rf"\.section[ \t]+(\.[A-Za-z_][A-Za-z0-9_$]*){W}\{{")
ROW = re.compile(rf"\.({TYPES})[ \t]+([^\n]*)")
DATUM = re.compile(rf"(-?[0-9]+)|((?:{IDENT})|\.[A-Za-z_][A-Za-z0-9_$]*)(?:\+([0-9]+)|-({IDENT}|\.[A-Za-z_][A-Za-z0-9_$]*))?")
ONE_LABEL = re.compile(rf"({IDENT}):")
BEGINNING = re.compile(
    rf"^[ \t]*\.(?:visible|extern|weak|common|entry|func|global|const|shared|section|file|alias|pragma){STOP}", re.MULTILINE)
# An item of any spelling: a function's head up to its brace or semicolon (a pragma in it has one of its own), or all up to a semicolon.
EXTENT = re.compile(
    rf"(?:\.(?:extern|visible|weak|common){STOP}{W})?(?:\.(?:entry|func){STOP}"
    rf"(?>\"[^\"\n]*\"{W};|\"[^\"\n]*\"|//[^\n]*|/(?!/)|[^{{}};\"/]+)*+(?:(?P<head>\{{)|;)"
    r"|(?!\.(?:section|file|entry|func)\b)(?>\"[^\"\n]*\"|//[^\n]*|/(?!/)|[^;\"/]+)*+;)")
# A declaration up to the brace of its initialiser.
LISTED = re.compile(rf"(?!\.(?:section|file|entry|func|alias|pragma)\b)\.(?>//[^\n]*|/(?!/)|[^;{{}}\"/=]+)*+={COMMENTS}\{{")
FIELDS = [(vars(Variable)[field.name].__get__, setter(Variable, field.name)) for field in fields(Variable) if field.name != "position"]
set_name, set_place, set_body = setter(Variable, "name"), setter(Variable, "position"), setter(Function, "body")
OWN = "\x03"
"""What stands for the beginning of the names of a function's own parameters."""


class Parameter(NamedTuple):
    """A parameter as it was read once: what it is but its name and place, and where in its text the name stands.

    `name`: all of it, or what follows the prefix that is the function's `own`. `before`: the line breaks before the name, behind the last
    of which is `column`, and `lines`: those in the whole text.
    """

    fields: list[tuple[Callable[[Any, Any], None], Any]]
    name: str
    own: bool
    offset: int
    column: int
    before: int
    lines: int


class Reading(Protocol):
    """What these readers need of the text's reader."""

    text: str
    original: str
    words: Words
    rows: dict[str, Data]
    values: Values
    parameters: dict[str, Parameter]

    def place(self, offset: int) -> Position: ...


def header(match: re.Match[str]) -> tuple[tuple[int, int], tuple[str, ...], int | None]:
    targets = tuple([target.strip(BLANKS) for target in without_comments(match[3]).split(",")])
    return (int(match[1]), int(match[2])), targets, _optional(match[4])


def number(text: str) -> int:
    return _integer(text).value


def _integer(text: str) -> Integer:
    try:
        return constant.integer(text)
    except ValueError:
        raise Odd from None


def _optional(text: str | None) -> int | None:
    return None if text is None else number(text)


def _shape(text: str) -> tuple[int | None, ...]:
    return tuple([number(extent) if extent else None for extent in EXTENT_OF.findall(text)]) if text else ()


def variables(match: re.Match[str], words: Words, *, public: bool) -> list[tuple[Variable, int]]:
    """The variables of one declaration, one for each name, without a position, and how far behind its beginning each name stands."""
    linkage, space, align, vector, type, names, values, value = match.groups()
    if linkage is not None and not public:
        raise Odd
    initializer: Initializer | None = None
    if values is not None:
        initializer = Aggregate(_constants(values, words) if values.strip(BLANKS) else ())
    elif value is not None:
        initializer = constant_of(value.strip(BLANKS), words)
    given, lanes = _optional(align), 1 if vector is None else int(vector)
    found: list[tuple[Variable, int]] = []
    at, parts = match.start("names") - match.start(), names.split(",")
    for number, part in enumerate(parts, 1):
        declared = DECLARATOR.fullmatch(part.strip(BLANKS))
        if declared is None:
            raise Odd
        first = initializer if number == len(parts) else None
        found.append((Variable(space, type, declared[1], _optional(declared[2]), lanes, given, _shape(declared[3]), first, linkage or ""),
                      at + len(part) - len(part.lstrip(BLANKS))))
        at += len(part) + 1
    return found


class Declarations(dict[str, list[tuple[Variable, int]]]):
    """What `variables` finds in the text of a declaration in a body; `Odd` if it is no plain one."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def __missing__(self, text: str) -> list[tuple[Variable, int]]:
        match = VARIABLES.fullmatch(text)
        if match is None:
            raise Odd
        found = self[text] = variables(match, self.words, public=False)
        return found


def moved(variable: Variable, place: Position) -> Variable:
    """The variable at a place: `dataclasses.replace` takes ten times as long."""
    found = new(Variable)
    for get, set in FIELDS:
        set(found, get(variable))
    set_place(found, place)
    return found


def _constants(text: str, words: Words) -> tuple[Constant, ...]:
    """The constants of a list, each read once; the text has no blanks but `BLANKS`."""
    listed = list(map(str.strip, text.split(",")))
    known = {word: constant_of(word, words) for word in dict.fromkeys(listed)}
    return tuple(map(known.__getitem__, listed))


def constant_of(word: str, words: Words) -> Constant:
    """The constant that a text is which has no blanks around it."""
    known = words.get(word)
    if type(known) is Integer:
        return known
    if (match := DISPLACED.fullmatch(word)) is not None:
        return _symbol(match)
    if (match := MASK.fullmatch(word)) is not None and (symbol := DISPLACED.fullmatch(match[2].strip(BLANKS))) is not None:
        return Expression("mask", (_integer(match[1]), _symbol(symbol)))
    value = words[word]
    if isinstance(value, Integer | Float):
        return value
    raise Odd


def _symbol(match: re.Match[str]) -> Constant:
    name, generic, displaced = match.groups()
    if (name or generic) == "generic":
        raise Odd
    symbol: Constant = Name(name) if name is not None else Expression("generic", (Name(generic),))
    if displaced is None:
        return symbol
    try:
        value = folded(displaced)
    except ValueError:
        raise Odd from None
    if type(value) is not Integer:
        raise Odd
    return Expression("+", (symbol, value))


def function(match: re.Match[str], reading: Reading) -> Function:
    """A function without its body: that of a declaration is None, that of a definition comes later."""
    linkage, kind, returns, name, parameters, directives, _ = match.groups()
    if returns is not None and kind == "entry":
        raise Odd
    prefix = f"{name}_param_"
    given = (_parameters(returns, match.start("returns"), prefix, reading),
             _parameters(parameters, match.start("parameters"), prefix, reading))
    return Function(kind, name, given[1], given[0], _directives(directives, match.start("directives"), reading), None, linkage or "", (),
                    reading.place(match.start("name")))


def _parameters(text: str | None, at: int, prefix: str, reading: Reading) -> tuple[Variable, ...]:
    """`prefix`: how the names of the function's own begin."""
    if text is None or not text.strip(BLANKS):
        return ()
    if OWN in text:
        raise Odd
    known, line = reading.parameters, reading.place(at).line
    found: list[Variable] = []
    for told in text.replace(prefix, OWN).split(","):
        parameter = known.get(told)
        if parameter is None or not parameter.before:
            part = told.replace(OWN, prefix)
            parameter = parameter or _parameter(part, prefix)
            # With another prefix the text is as right if this one begins a word.
            if told == part or (parameter.own and told.count(OWN) == 1 and part[parameter.offset - 1] in BLANKS):
                known[told] = parameter
        fields, name, own, offset, column, before, lines = parameter
        variable = new(Variable)
        for set, value in fields:
            set(variable, value)
        set_name(variable, prefix + name if own else name)
        set_place(variable, spot(line + before, column) if before else reading.place(at + offset))
        found.append(variable)
        line += lines
        at += len(told) + 1 + (len(prefix) - 1) * told.count(OWN)
    return tuple(found)


def _parameter(text: str, prefix: str) -> Parameter:
    before = len(text) - len(text.lstrip(BLANKS))
    match = PARAMETER.fullmatch(text.strip(BLANKS))
    if match is None:
        raise Odd
    space, align, vector, type, pointer, pointed, pointer_align, name, shape = match.groups()
    target = None if pointer is None else Pointer(pointed or "", _optional(pointer_align))
    found = Variable(space, type, name, None, 1 if vector is None else int(vector), _optional(align), _shape(shape), None, "", (), target)
    offset, own = before + match.start(8), name.startswith(prefix)
    return Parameter([(set, get(found)) for get, set in FIELDS], name.removeprefix(prefix), own, offset,
                     offset - text.rfind("\n", 0, offset), text.count("\n", 0, offset), text.count("\n"))


def _directives(text: str, at: int, reading: Reading) -> tuple[Directive, ...]:
    found = []
    end = 0
    while end < len(text):
        match = DIRECTIVE.match(text, end)
        if match is None:
            raise Odd
        numbers = () if match[2] is None else tuple([number(word.strip(BLANKS)) for word in match[2].split(",")])
        found.append(Directive(match[1][1:], numbers, reading.place(at + match.start(1))))
        end = match.end()
    return tuple(found)


def file(match: re.Match[str], reading: Reading) -> Directive:
    index, text, *numbers = match.groups()
    start = match.start(2)
    said = Text(reading.original[start + 1:start + len(text) - 1])
    rest = [number(word) for word in numbers if word is not None]
    return Directive("file", (number(index), said, *rest), reading.place(match.start()))


def rows(reading: Reading, at: int, stop: int) -> tuple[Label | Data, ...]:
    """The rows of a debug section, one a line; equal rows are one object."""
    known, lines = reading.rows, reading.text[at:stop].split("\n")
    found: list[Label | Data | None] = list(map(known.get, lines))
    starts: list[int] = []
    for number in [number for number, row in enumerate(found) if row is None]:
        line = lines[number]
        bare = line.partition("//")[0].strip(BLANKS)
        label = ONE_LABEL.fullmatch(bare)
        if label is not None:
            starts = starts or list(map(add, accumulate(map(len, lines), initial=at), count()))
            found[number] = Label(label[1], reading.place(starts[number] + len(line) - len(line.lstrip(BLANKS))))
        elif bare:
            if line not in known:
                known[line] = _row(bare, reading.values)
            found[number] = known[line]
    return tuple(filter(None, found))


def _row(text: str, values: Values) -> Data:
    match = ROW.fullmatch(text)
    if match is None:
        raise Odd
    return Data(match[1], tuple([values[word.strip(BLANKS)] for word in match[2].split(",")]))


class Values(dict[str, Constant]):
    """What a word in a row of a debug section is."""

    def __init__(self, words: Words) -> None:
        self.words = words

    def __missing__(self, word: str) -> Constant:
        found = self[word] = _datum(word, self.words)
        return found


def _datum(text: str, words: Words) -> Constant:
    match = DATUM.fullmatch(text)
    if match is None:
        raise Odd
    integer, place, plus, minus = match.groups()
    if integer is not None:
        value = words[integer]
        if type(value) is not Integer:
            raise Odd
        return value
    name = _name(place, words)
    if plus is not None:
        return Expression("+", (name, Integer(number(plus))))
    return name if minus is None else Expression("-", (name, _name(minus, words)))


def _name(text: str, words: Words) -> Constant:
    return Name(text) if text[0] == "." else words.name(text)


