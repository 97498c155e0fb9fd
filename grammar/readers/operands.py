"""Operands, operand lists and guards by their spelling: a word that was read once is the same object wherever it comes again.

Only the spellings that compilers write are known here. `NeedsReference` hands every other one to the reference reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..tree import Address, Arguments, Element, Float, Guard, Integer, Minus, Name, Not, Offset, Operand, Pair, TensorAddress, Vector
from . import constant
from .folding import folded
from .slots import new, set_base, set_displaced, set_name, set_offset, set_unified
from .tokens import BLANKS, IDENT, LONG, NAME, NUMBER, NeedsReference

WORD = re.compile(
    rf"({NAME})|(-?)({NUMBER})|(0[fF][0-9a-fA-F]{{8}})|(0[dD][0-9a-fA-F]{{16}})|\[({NAME})(?:\+(-?{NUMBER}))?\]|!({NAME})"
    rf"|({NAME})\|({NAME})|({NAME})\+(-?{NUMBER})|({NAME})\[(?:({NUMBER})|({NAME}))\]|-({NAME})"
)
RANGE = re.compile(rf"\.reg[ \t]+\.[a-z0-9]+[ \t]+({IDENT})<([1-9][0-9]{{0,8}})>")
DECIMAL = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)")
ONE_NAME = re.compile(r"[A-Za-z_$%][A-Za-z0-9_$]*")
APART = re.compile(r"[\w$%)}\]][ \t]*[\r\n][ \t\r\n]*[\w$%@.]")
"""The end of a line between two words, which only an operator or a comma may stand between."""
INNER_BLANKS = re.compile(r"(?<=[\[\]{}(),+|!])[ \t\r\n]++|\A[ \t\r\n]++|(?<![ \t\r\n])[ \t\r\n]++(?=[\[\]{}(),+|!]|\Z)")
"""Each run of blanks is looked at from its beginning only: there may be very many."""
LIST_ITEM = re.compile(r"(\[[^\[\]{},]*(?:,[^\[\]{},]*){0,2}\{[^{}]*\}\]|\{[^{}]*\}|\([^()]*\)|[^\s{}(),;]+)(,|\Z)")
TENSOR = re.compile(rf"\[({NAME}),(?:({NAME}),)?(\{{[^{{}}]*\}})\]")
GUARD = re.compile(rf"@(!?)({NAME})")


def register_ranges(text: str, known: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """The stem and the new registers of every `.reg .b32 %r<9>;` in a text: `%r`, and `%r0` to `%r8`.

    `known` holds how many registers of each stem were yielded before; these are left out. A declaration may be much larger than the
    text: no more registers are yielded than a text of this size may use.
    """
    spare = len(text) // 16
    for stem, digits in RANGE.findall(text):
        first, count = known.get(stem, 0), int(digits)
        if first < count <= first + spare:
            spare -= count - first
            known[stem] = count
            yield stem, list(map(stem.__add__, map(str, range(first, count))))


class Operands(dict[str, Operand]):
    """The operand for each word without blanks."""

    def __missing__(self, word: str) -> Operand:
        value: Operand
        if word[:1] == "[":
            base, plus, digits = word[1:-1].partition("+")
            known = self.get(base) or (self[base] if ONE_NAME.fullmatch(base) is not None else None)
            if type(known) is Name and word[-1] == "]" and (not plus or (digits.isdecimal() and digits[0] != "0" and len(digits) < 16)):
                value = new(Address)
                set_base(value, known)
                set_offset(value, int(digits) if plus else 0)
                set_displaced(value, False)
                set_unified(value, False)
                self[word] = value
                return value
        elif ONE_NAME.fullmatch(word) is not None and word != "WARP_SZ":
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
                raise NeedsReference
            return Integer(32)
        kind = match.lastindex
        if kind == 1:
            return Name(word)
        if kind == 3:
            return integer(word)
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
        return Element(self.name(match[13]), integer(match[14]) if kind == 14 else self.name(match[15]))

    def name(self, word: str) -> Name:
        found = self[word]
        if type(found) is not Name:
            raise NeedsReference
        return found


def integer(word: str) -> Integer:
    """The integer that a number is, with or without a minus."""
    try:
        if word[0] == "-":
            value = constant.unary("-", constant.integer(word[1:]))
            assert isinstance(value, Integer)
            return value
        return constant.integer(word)
    except ValueError:
        raise NeedsReference from None


def _decimal(word: str) -> Operand:
    try:
        if DECIMAL.fullmatch(word) is None:
            return folded(word)
        value = constant.decimal(word.removeprefix("-"))
        return constant.unary("-", value) if word[0] == "-" else value
    except ValueError:
        raise NeedsReference from None


def _bytes(word: str) -> int:
    return constant.wrap(integer(word).value).value


class OperandLists:
    """Operand lists with vectors, tensor addresses and arguments, with blanks anywhere between them."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands
        self.vectors: dict[str, Vector] = {}

    def of_instruction(self, text: str) -> tuple[Operand, ...]:
        """The operands of any instruction but a call."""
        operands, tight = self.operands, text.strip(BLANKS).replace(", ", ",")
        known = tuple(map(operands.get, tight.split(",")))
        if all(known):
            return known  # type: ignore[return-value]
        if len(text) > LONG and APART.search(text):
            raise NeedsReference
        if len(tight.split()) > 1:
            tight = INNER_BLANKS.sub("", tight)
        if not tight:
            return ()
        if "{" not in tight:
            return tuple([operands[word] for word in tight.split(",")])
        return tuple([self._operand(item) for item in _items(tight)])

    def of_call(self, text: str) -> tuple[Operand, ...]:
        """The operands of a call."""
        found: list[Operand] = []
        for item in _items(INNER_BLANKS.sub("", text)):
            if item[0] == "(":
                found.append(Arguments(self._lanes(item[1:-1]) if len(item) > 2 else ()))
            else:
                found.append(self.operands.name(item))
        if not found:
            raise NeedsReference
        return tuple(found)

    def _operand(self, item: str) -> Operand:
        if item[0] == "{":
            return self._vector(item)
        if "{" in item:
            match = TENSOR.fullmatch(item)
            if match is None:
                raise NeedsReference
            sampler = None if match[2] is None else self.operands.name(match[2])
            return TensorAddress(self.operands.name(match[1]), self._vector(match[3]), sampler)
        return self.operands[item]

    def _vector(self, item: str) -> Vector:
        vector = self.vectors.get(item)
        if vector is None:
            vector = self.vectors[item] = Vector(self._lanes(item[1:-1]))
        return vector

    def _lanes(self, text: str) -> tuple[Operand, ...]:
        operands = self.operands
        lanes = tuple([operands[lane] for lane in text.split(",")])
        for lane in lanes:
            if type(lane) is not Name and type(lane) is not Integer and type(lane) is not Float:
                raise NeedsReference
        return lanes


def _items(text: str) -> list[str]:
    """The operands of a list without blanks, split at the commas that stand outside brackets."""
    found: list[str] = []
    at, end, comma = 0, len(text), ","
    while at < end:
        match = LIST_ITEM.match(text, at)
        if match is None:
            raise NeedsReference
        item, comma = match.groups()
        found.append(item)
        at = match.end()
    if comma:
        raise NeedsReference
    return found


class Guards(dict[str, Guard]):
    """The guard for each word such as `@p` or `@!p`."""

    def __missing__(self, word: str) -> Guard:
        match = GUARD.fullmatch(word)
        if match is None:
            raise NeedsReference
        guard = self[word] = Guard(match[2], bool(match[1]))
        return guard
