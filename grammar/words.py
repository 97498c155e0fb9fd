"""Operands by their spelling: a word that was read once is the same object wherever it stands again.

Only the plain spellings are known here, those that compilers write; `Odd` leaves every other one to the grammar.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from . import constant
from .errors import Position
from .folding import NUMBER, folded
from .tree import Address, Arguments, Element, Float, Guard, Integer, Minus, Name, Not, Offset, Operand, Pair, TensorAddress, Vector

IDENT = r"(?:[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+)"
NAME = r"[A-Za-z_$%][A-Za-z0-9_$]*(?:\.(?:[xyzwrgba]|[bh][0-9]+))?"
OPCODE = r"[a-z][a-z0-9_]*(?:\.(?!(?:reg|loc|pragma)\b)[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)*"

WORD = re.compile(
    rf"({NAME})|(-?)({NUMBER})|(0[fF][0-9a-fA-F]{{8}})|(0[dD][0-9a-fA-F]{{16}})|\[({NAME})(?:\+(-?{NUMBER}))?\]|!({NAME})"
    rf"|({NAME})\|({NAME})|({NAME})\+(-?{NUMBER})|({NAME})\[(?:({NUMBER})|({NAME}))\]|-({NAME})"
)
RANGE = re.compile(rf"\.reg[ \t]+\.[a-z0-9]+[ \t]+({IDENT})<([1-9][0-9]{{0,8}})>")
DECIMAL = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)")
PLAIN = re.compile(r"[A-Za-z_$%][A-Za-z0-9_$]*")
LOOSE = re.compile(r"[ \t\r\n]+(?=[\[\]{}(),+|!])|(?<=[\[\]{}(),+|!])[ \t\r\n]+|^[ \t\r\n]+|[ \t\r\n]+$")
PIECE = re.compile(r"(\[[^\[\]{},]*(?:,[^\[\]{},]*){0,2}\{[^{}]*\}\]|\{[^{}]*\}|\([^()]*\)|[^\s{}(),;]+)(,|\Z)")
TENSOR = re.compile(rf"\[({NAME}),(?:({NAME}),)?(\{{[^{{}}]*\}})\]")
GUARD = re.compile(rf"@(!?)({NAME})")
BLANKS = " \t\r\n"


class Odd(Exception):
    """A spelling that is left to the grammar: it may be right or wrong."""


def setter(node: type, field: str) -> Callable[[Any, Any], None]:
    """Writes a slot of a frozen node that is being made: a quarter of the time that its `__init__` takes."""
    set: Callable[[Any, Any], None] = vars(node)[field].__set__
    return set


new = object.__new__
exhaust: Callable[[Iterable[Any]], None] = deque(maxlen=0).extend
set_name = setter(Name, "name")
set_base, set_offset, set_displaced = setter(Address, "base"), setter(Address, "offset"), setter(Address, "displaced")
set_unified = setter(Address, "unified")
set_file, set_line, set_column = setter(Position, "file"), setter(Position, "line"), setter(Position, "column")


def spot(line: int, column: int) -> Position:
    """A place in the text that is read."""
    place = new(Position)
    set_file(place, None)
    set_line(place, line)
    set_column(place, column)
    return place


def ranges(text: str, told: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """The registers of every `.reg .b32 %r<9>;` in a text: `%r`, and `%r0` to `%r8` without as many as were told already.

    No more are told than a text of its size will use.
    """
    spare = len(text) // 16
    for stem, digits in RANGE.findall(text):
        first, count = told.get(stem, 0), int(digits)
        if first < count <= first + spare:
            spare -= count - first
            told[stem] = count
            yield stem, list(map(stem.__add__, map(str, range(first, count))))


def named(words: list[str]) -> list[Name]:
    """A name of each."""
    names = list(map(new, repeat(Name, len(words))))
    exhaust(map(set_name, names, words))
    return names


class Words(dict[str, Operand]):
    """The operand that a word without blanks is."""

    def __missing__(self, word: str) -> Operand:
        value: Operand
        if word[:1] == "[":
            base, plus, digits = word[1:-1].partition("+")
            known = self.get(base) or (self[base] if PLAIN.fullmatch(base) is not None else None)
            if type(known) is Name and word[-1] == "]" and (not plus or (digits.isdecimal() and digits[0] != "0" and len(digits) < 16)):
                value = new(Address)
                set_base(value, known)
                set_offset(value, int(digits) if plus else 0)
                set_displaced(value, False)
                set_unified(value, False)
                self[word] = value
                return value
        elif PLAIN.fullmatch(word) is not None and word != "WARP_SZ":
            value = new(Name)
            set_name(value, word)
            self[word] = value
            return value
        value = self[word] = self._read(word)
        return value

    def _read(self, word: str) -> Operand:
        match = WORD.fullmatch(word)
        if match is None:
            return _decimal(word)
        if "WARP_SZ" in word:
            if word != "WARP_SZ":
                raise Odd
            return Integer(32)
        kind = match.lastindex
        if kind == 1:
            return Name(word)
        if kind == 3:
            return _number(word)
        if kind == 4:
            return constant.single(word)
        if kind == 5:
            return constant.double(word)
        if kind == 6 or kind == 7:
            offset = 0 if kind == 6 else _bytes(match[7])
            return Address(self.name(match[6]), offset, kind == 7 and offset == 0)
        if kind == 8:
            return Not(self.name(match[8]))
        if kind == 10:
            return Pair(self.name(match[9]), self.name(match[10]))
        if kind == 12:
            return Offset(self.name(match[11]), _bytes(match[12]))
        if kind == 16:
            return Minus(self.name(match[16]))
        return Element(self.name(match[13]), _number(match[14]) if kind == 14 else self.name(match[15]))

    def name(self, word: str) -> Name:
        found = self[word]
        if type(found) is not Name:
            raise Odd
        return found


def _number(word: str) -> Integer:
    try:
        if word[0] == "-":
            value = constant.unary("-", constant.integer(word[1:]))
            assert isinstance(value, Integer)
            return value
        return constant.integer(word)
    except ValueError:
        raise Odd from None


def _decimal(word: str) -> Operand:
    try:
        if DECIMAL.fullmatch(word) is None:
            return folded(word)
        value = constant.decimal(word.removeprefix("-"))
        return constant.unary("-", value) if word[0] == "-" else value
    except ValueError:
        raise Odd from None


def _bytes(word: str) -> int:
    return constant.wrap(_number(word).value).value


class Lists:
    """Operand lists with vectors, tensor addresses and arguments, and with blanks anywhere between."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.vectors: dict[str, Vector] = {}

    def operands(self, text: str) -> tuple[Operand, ...]:
        """The operands of any instruction but a call."""
        words, tight = self.words, text.strip(BLANKS).replace(", ", ",")
        known = tuple(map(words.get, tight.split(",")))
        if all(known):
            return known  # type: ignore[return-value]
        if len(tight.split()) > 1:
            tight = LOOSE.sub("", tight)
        if not tight:
            return ()
        if "{" not in tight:
            return tuple([words[word] for word in tight.split(",")])
        return tuple([self._operand(piece) for piece in _pieces(tight)])

    def callees(self, text: str) -> tuple[Operand, ...]:
        """The operands of a call."""
        found: list[Operand] = []
        for piece in _pieces(LOOSE.sub("", text)):
            if piece[0] == "(":
                found.append(Arguments(self._lanes(piece[1:-1]) if len(piece) > 2 else ()))
            else:
                found.append(self.words.name(piece))
        if not found:
            raise Odd
        return tuple(found)

    def _operand(self, piece: str) -> Operand:
        if piece[0] == "{":
            return self._vector(piece)
        if "{" in piece:
            match = TENSOR.fullmatch(piece)
            if match is None:
                raise Odd
            sampler = None if match[2] is None else self.words.name(match[2])
            return TensorAddress(self.words.name(match[1]), self._vector(match[3]), sampler)
        return self.words[piece]

    def _vector(self, piece: str) -> Vector:
        vector = self.vectors.get(piece)
        if vector is None:
            vector = self.vectors[piece] = Vector(self._lanes(piece[1:-1]))
        return vector

    def _lanes(self, text: str) -> tuple[Operand, ...]:
        words = self.words
        lanes = tuple([words[lane] for lane in text.split(",")])
        for lane in lanes:
            if type(lane) is not Name and type(lane) is not Integer and type(lane) is not Float:
                raise Odd
        return lanes


def _pieces(text: str) -> list[str]:
    """The operands of a list without blanks, split at the commas outside brackets."""
    found: list[str] = []
    at, end, comma = 0, len(text), ","
    while at < end:
        match = PIECE.match(text, at)
        if match is None:
            raise Odd
        piece, comma = match.groups()
        found.append(piece)
        at = match.end()
    if comma:
        raise Odd
    return found


class Guards(dict[str, Guard]):
    """The guard that `@p` or `@!p` is."""

    def __missing__(self, word: str) -> Guard:
        match = GUARD.fullmatch(word)
        if match is None:
            raise Odd
        guard = self[word] = Guard(match[2], bool(match[1]))
        return guard
