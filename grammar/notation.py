"""The manual's notation as a small language. A form's syntax line becomes an automaton over modifiers and a list of operand places.

    mnemonic  part*  ' '  place (, place)*
    part      .token | { parts } | ( parts | parts )            { } is optional, | is a choice, both nest
    place     name | [name] | [name, name] | [name, {name,} name] | name|name | (name) | _ | {, place} | {place, } | name{|name}

The automaton is Glushkov's: it has one position per written token or slot. A set of positions is a state, so nothing is expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .errors import PtxkitError
from .schema import Form

GroupKind = Literal["plain", "address", "tensor", "pair", "arguments", "literal"]

_OPCODE_WORD = re.compile(r"\.[A-Za-z0-9_:]+|[{}()|]")
_OPERAND_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[{}()\[\]|,]|\s+")


class NotationError(PtxkitError, ValueError):
    """A row of the table is not written in the notation."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one operand stands. `regions`: the optional brackets around it, numbered from 1. (): it is required."""

    name: str
    regions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Operands that PTX writes as one (an address, a tensor map with coordinates, a pair, the list of a call), or the literal `_`."""

    kind: GroupKind
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Notation:
    """A compiled syntax line. Position p reads one of `tokens[p]`, for the slot `slots[p]` ("": a literal). `follow[p]` may come next."""

    mnemonic: str
    slots: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]
    empty: bool
    groups: tuple[PlaceGroup, ...]


@dataclass(slots=True)
class _Piece:
    """A part of the expression: whether it may be empty, and which positions can begin and end it."""

    empty: bool
    first: list[int]
    last: list[int]


def compile_form(form: Form) -> Notation:
    """The automaton and the operand places of a row. `NotationError`: the row is not written in the notation."""
    opcode, _, operands = form.syntax.partition(" ")
    mnemonic = form.mnemonic
    builder = _Builder(form, opcode[len(mnemonic):])
    whole = builder.alternatives("")
    return Notation(mnemonic, tuple(builder.slots), tuple(builder.tokens), tuple(whole.first),
                    tuple(tuple(follow) for follow in builder.follow), frozenset(whole.last), whole.empty,
                    _Places(form, operands).read())


class _Builder:
    """Recursive descent over the opcode part. Positions are numbered in the order of the text."""

    def __init__(self, form: Form, text: str) -> None:
        self.form = form
        self.words = _OPCODE_WORD.findall(text)
        if "".join(self.words) != text:
            raise NotationError(f"`{form.syntax}`: the modifiers {text!r} are not `.token`, braces, parentheses and bars")
        self.at = 0
        self.slots: list[str] = []
        self.tokens: list[tuple[str, ...]] = []
        self.follow: list[list[int]] = []

    def alternatives(self, closing: str) -> _Piece:
        pieces = [self.sequence()]
        while self.at < len(self.words) and self.words[self.at] == "|":
            self.at += 1
            pieces.append(self.sequence())
        found = self.words[self.at] if self.at < len(self.words) else ""
        if found != closing:
            raise NotationError(f"`{self.form.syntax}`: {found or 'the end'!r} where {closing or 'the end'!r} is due")
        self.at += 1
        return _Piece(any(p.empty for p in pieces), [f for p in pieces for f in p.first], [e for p in pieces for e in p.last])

    def sequence(self) -> _Piece:
        result = _Piece(True, [], [])
        while self.at < len(self.words) and self.words[self.at] not in ")}|":
            piece = self.atom()
            for end in result.last:
                self.follow[end] += [p for p in piece.first if p not in self.follow[end]]
            result = _Piece(result.empty and piece.empty,
                            result.first + piece.first if result.empty else result.first,
                            result.last + piece.last if piece.empty else piece.last)
        return result

    def atom(self) -> _Piece:
        word = self.words[self.at]
        self.at += 1
        if word == "{":
            piece = self.alternatives("}")
            return _Piece(True, piece.first, piece.last)
        if word == "(":
            return self.alternatives(")")
        name = word[1:]
        choices = self.form.slots.get(name)
        self.slots.append(name if choices else "")
        self.tokens.append(choices or (name,))
        self.follow.append([])
        position = len(self.slots) - 1
        return _Piece(False, [position], [position])


class _Places:
    """Recursive descent over the operand part. A comma only separates, so `{, x}` and `{x, }` need no further rules."""

    def __init__(self, form: Form, text: str) -> None:
        self.form = form
        self.words: list[str] = [word for word in _OPERAND_WORD.findall(text) if not word.isspace()]
        if "".join(self.words) != "".join(text.split()):
            raise NotationError(f"`{form.syntax}`: the operands {text!r} are not names, brackets, bars and commas")
        self.at = 0
        self.regions = 0

    def read(self) -> tuple[PlaceGroup, ...]:
        groups = self.places(())
        if self.at < len(self.words):
            raise NotationError(f"`{self.form.syntax}`: {self.words[self.at]!r} closes nothing")
        return tuple(groups)

    def places(self, regions: tuple[int, ...]) -> list[PlaceGroup]:
        groups: list[PlaceGroup] = []
        while self.at < len(self.words) and self.words[self.at] not in "}])":
            word = self.take()
            if word == "{":
                self.regions += 1
                groups += self.places((*regions, self.regions))
                self.expect("}")
            elif word in "[(":
                inner = [g.places[0] for g in self.places(regions)]
                self.expect("]" if word == "[" else ")")
                if len(inner) not in ((1, 2, 3) if word == "[" else (1,)):
                    raise NotationError(f"`{self.form.syntax}`: {len(inner)} operands inside {word!r}")
                groups.append(PlaceGroup("arguments" if word == "(" else "address" if len(inner) == 1 else "tensor", tuple(inner)))
            elif word != ",":
                groups.append(self.named(word, regions))
        return groups

    def named(self, name: str, regions: tuple[int, ...]) -> PlaceGroup:
        if name == "_":
            return PlaceGroup("literal", (Place(name, regions),))
        if self.words[self.at:self.at + 1] == ["|"]:
            self.at += 1
            return PlaceGroup("pair", (Place(name, regions), Place(self.take(), regions)))
        if self.words[self.at:self.at + 2] == ["{", "|"]:
            self.at += 2
            self.regions += 1
            second = Place(self.take(), (*regions, self.regions))
            self.expect("}")
            return PlaceGroup("pair", (Place(name, regions), second))
        return PlaceGroup("plain", (Place(name, regions),))

    def take(self) -> str:
        if self.at == len(self.words):
            raise NotationError(f"`{self.form.syntax}`: ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def expect(self, word: str) -> None:
        if self.at == len(self.words) or self.words[self.at] != word:
            raise NotationError(f"`{self.form.syntax}`: {word!r} is missing")
        self.at += 1
