"""wgmma descriptors as far as the PTX tells them: known bits, and the shared address behind the low 14.

A descriptor is put together from a shared address (masked, shifted by 4) and constants, and stepped by adding to its address field. What an
unknown index adds is taken for such a step: fields of a descriptor that is in range never carry into one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..check.program import Site
from ..check.values import Linear, Value, Values, sources
from ..grammar import tree
from ..grammar.operands import width

ALL = (1 << 64) - 1
ADDRESS = 0x3FFF
LANES = tuple(0xFFFF << shift for shift in (0, 16, 32, 48))
"""Each field of a descriptor lies in a lane of 16 bits."""


@dataclass(frozen=True, slots=True)
class Word:
    """64 bits of which those in `known` are those of `bits`. `address`: what bits 0 to 13 hold in units of 16 bytes."""

    known: int
    bits: int
    address: Linear | None = None

    def field(self, first: int, count: int) -> int | None:
        mask = (1 << count) - 1
        return self.bits >> first & mask if self.known >> first & mask == mask else None


UNKNOWN = Word(0, 0)


def constant(number: int) -> Word:
    return Word(ALL, number & ALL)


class Descriptors:
    """The words of one routine's values. None stands for "nothing has been found out yet" while a loop is being followed."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._known: dict[Value, Word] = {}

    def of(self, site: Site, operand: str) -> Word:
        """What is known of that operand of a wgmma."""
        return self.word(self.values.of(site, site.value(operand)))

    def word(self, value: Value) -> Word:
        if value not in self._known:
            self._solve(value)
        return self._known[value]

    def _solve(self, value: Value) -> None:
        needs: dict[Value, list[Value]] = {}
        users: dict[Value, list[Value]] = {}
        todo = [value]
        while todo:
            here = todo.pop()
            if here not in needs and here not in self._known:
                needs[here] = self._needed(here)
                todo += needs[here]
                for other in needs[here]:
                    users.setdefault(other, []).append(here)
        found: dict[Value, Word] = {}
        waiting = dict.fromkeys(reversed(needs))
        while waiting:
            here = next(iter(waiting))
            del waiting[here]
            new = self._evaluated(here, [self._known.get(other, found.get(other)) for other in needs[here]])
            if new is not None and new != found.get(here):
                old = found.get(here)
                found[here] = new if old is None else _lowered(here, old, new)
                if found[here] != old:
                    waiting.update(dict.fromkeys(users.get(here, ())))
        for here in needs:
            self._known[here] = found.get(here, UNKNOWN)

    # ------------------------------------------------------------------------------------------- one value

    def _needed(self, value: Value) -> list[Value]:
        if self._number(value) is not None:
            return []
        needed = self.values.alternatives(value) if value.kind in ("phi", "select") else []
        if value.kind in ("op", "select") and value.site is not None and value.site.mnemonic in _FOLLOWED:
            needed = needed + self._given(value.site)
        return needed

    def _number(self, value: Value) -> int | None:
        """The number that a literal is, or that arithmetic which is not followed here results in."""
        followed = value.site is not None and value.site.mnemonic in _FOLLOWED
        return None if followed or value.kind == "phi" else self.values.number(value)

    def _given(self, site: Site) -> list[Value]:
        """The operands, those of a packing `mov` one by one."""
        operands = sources(site)
        if len(operands) == 1 and isinstance(operands[0], tree.Vector):
            operands = list(operands[0].elements)
        return [self.values.of(site, operand) for operand in operands]

    def _evaluated(self, value: Value, given: list[Word | None]) -> Word | None:
        number = self._number(value)
        if number is not None:
            return _narrowed(constant(number), _width(value.site)) if value.site is not None else constant(number)
        if value.kind == "phi":
            return _joined(value, given)
        if value.kind == "select":
            before = len(self.values.alternatives(value))
            return _joined(value, [*given[:before], self._operation(value, given[before:])])
        return self._operation(value, given) if value.kind == "op" else UNKNOWN

    def _operation(self, value: Value, given: list[Word | None]) -> Word | None:
        site = value.site
        assert site is not None
        if site.mnemonic not in _FOLLOWED:
            return UNKNOWN
        words = [word for word in given if word is not None]
        if len(words) < len(given):
            return None
        return _narrowed(self._computed(value, site, words), _width(site))

    def _computed(self, value: Value, site: Site, given: list[Word]) -> Word:
        operands = sources(site)
        match site.mnemonic, given:
            case "mov", [low, high] if isinstance(operands[0], tree.Vector):
                half = width(site.opcode.rpartition(".")[2]) // 2
                low, high = _narrowed(low, half), _narrowed(high, half)
                mask = (1 << half) - 1
                return Word(low.known & mask | (high.known & mask) << half, low.bits & mask | (high.bits & mask) << half, low.address)
            case ("mov" | "cvta"), [one]:
                return one
            case "cvt", [one]:
                source = site.opcode.rpartition(".")[2]
                return _narrowed(one, width(source)) if source[0] in "ub" else Word(one.known & (1 << width(source) - 1) - 1, one.bits,
                                                                                     one.address)
            case ("shr" | "bfe"), _ if (address := self._address(site)) is not None:
                return Word(ALL & ~((1 << address[1]) - 1), 0, address[0])
            case "shr", [one, by] if by.known == ALL and by.bits < 64:
                return Word(_shifted(one.known, by.bits), one.bits >> by.bits)
            case "shl", [one, by] if by.known == ALL and by.bits < 64:
                return Word((one.known << by.bits | (1 << by.bits) - 1) & ALL, one.bits << by.bits & ALL)
            case "and", [one, other]:
                ones = one.bits & other.bits & one.known & other.known
                zeros = (one.known & ~one.bits) | (other.known & ~other.bits)
                kept = next((a.address for a, b in ((one, other), (other, one)) if a.address is not None
                             and b.known & ADDRESS == ADDRESS and self._keeps(a.address, (b.bits & ADDRESS) << 4)), None)
                return Word((ones | zeros) & ALL, ones, kept)
            case "or", [one, other]:
                ones = one.bits & one.known | other.bits & other.known
                zeros = one.known & ~one.bits & other.known & ~other.bits
                return Word((ones | zeros) & ALL, ones, _stepped(value, one, other))
            case "add", [one, other]:
                return _added(value, one, other)
            case "selp", [one, other, _]:
                return _joined(value, [one, other]) or UNKNOWN
            case "shfl", [one, *_]:
                return one
        return UNKNOWN

    def _address(self, site: Site) -> tuple[Linear, int] | None:
        """(the shared address that is shifted by 4, how many bits of it are left)"""
        operands = [self.values.of(site, operand) for operand in sources(site)]
        numbers = [self.values.number(value) for value in operands[1:]]
        if not numbers or numbers[0] != 4:
            return None
        kept, mask = numbers[1] if len(numbers) > 1 else 28, None
        value = operands[0]
        while value.kind == "op" and value.site is not None and value.site.mnemonic in ("and", "cvt", "mov"):
            inner = self.values.arguments(value)
            if value.site.mnemonic == "and" and len(inner) == 2 and mask is None:
                mask = self.values.number(inner[1])
                if mask is None:
                    break
            elif value.site.mnemonic == "and" or len(inner) != 1:
                break
            value = inner[0]
        form = self.values.linear(value)
        if form.symbol is None or kept is None or not 14 <= kept <= 28 or (mask is not None and not self._keeps(form, mask)):
            return None
        return form, 14 if mask is not None else kept

    def _keeps(self, form: Linear, mask: int) -> bool:
        """Whether masking an address keeps its low 18 bits, those apart that are zero by its alignment (of the last 4 nothing is left)."""
        mask &= 0x3FFF0
        low = mask & -mask
        variable = self.values.routine.variables.get(form.symbol or "")
        aligned = low <= 16 or (variable is not None and (variable.align or 1) % low == 0 and form.offset % low == 0
                                and all(factor % low == 0 for _, factor in form.terms))
        return mask == 0x40000 - low and aligned


_FOLLOWED = frozenset(("mov", "cvt", "cvta", "shr", "bfe", "shl", "and", "or", "add", "selp", "shfl"))


def _width(site: Site) -> int:
    """Bits of what the instruction results in."""
    types = [bits for token in site.opcode.split(".") if (bits := width(token))]
    result = types[0] if types and site.mnemonic == "cvt" else types[-1] if types else 64
    return min(64, 2 * result if "wide" in site.tokens else result)


def _shifted(known: int, by: int) -> int:
    return known >> by | (ALL << 64 - by & ALL if by else 0)


def _narrowed(word: Word, bits: int) -> Word:
    """A register of so many bits: those above are zero."""
    if bits >= 64 or not bits:
        return word
    mask = (1 << bits) - 1
    return Word(word.known & mask | ALL & ~mask, word.bits & mask, word.address)


def _added(value: Value, one: Word, other: Word) -> Word:
    """The sum field by field; with one unknown index a step of the address."""
    known = bits = 0
    for lane in LANES:
        zero_one, zero_other = (word.known & lane == lane and not word.bits & lane for word in (one, other))
        if one.known & lane == lane and other.known & lane == lane:
            known, bits = known | lane, bits | (one.bits & lane) + (other.bits & lane) & lane
        elif zero_one or zero_other:
            kept = other if zero_one else one
            known, bits = known | kept.known & lane, bits | kept.bits & kept.known & lane
        elif lane == LANES[0]:
            high = lane & ~ADDRESS
            known, bits = known | one.known & other.known & high, bits | (one.bits | other.bits) & one.known & other.known & high
        elif _fixed(one, lane) != _fixed(other, lane):  # one side says it, the other is an index
            kept = one if _fixed(one, lane) else other
            known, bits = known | lane, bits | kept.bits & lane
    return Word(known, bits, _stepped(value, one, other))


def _fixed(word: Word, lane: int) -> bool:
    return word.known & lane == lane


def _stepped(value: Value, one: Word, other: Word) -> Linear | None:
    for base, step in ((one, other), (other, one)):
        if base.address is not None and step.address is None:
            if step.known & ADDRESS == ADDRESS:
                return base.address.plus((step.bits & ADDRESS) << 4)
            return Linear(base.address.symbol, base.address.offset, base.address.terms | {(value, 1)}, base.address.rank)
    return None


def _joined(value: Value, given: Iterable[Word | None]) -> Word | None:
    """What holds whichever it is."""
    words = [word for word in given if word is not None]
    if not words:
        return None
    known = words[0].known
    for word in words:
        known &= word.known & ~(word.bits ^ words[0].bits)
    addresses = [word.address for word in words]
    forms = [form for form in addresses if form is not None]
    if not forms or len(forms) < len(words):
        address = None
    elif all(form == forms[0] for form in forms):
        address = forms[0]
    elif len({(form.symbol, form.rank) for form in forms}) == 1:
        address = Linear(forms[0].symbol, min(form.offset for form in forms), frozenset(((value, 1),)), forms[0].rank)
    else:
        address = None
    return Word(known & ALL, words[0].bits & known, address)


def _lowered(value: Value, old: Word, new: Word) -> Word:
    """What a value still is after it turned out to be another: never more than before, so that loops come to an end."""
    known = old.known & new.known & ~(old.bits ^ new.bits)
    if old.address == new.address:
        address = old.address
    elif old.address is None or new.address is None or old.address.symbol != new.address.symbol:
        address = None
    else:
        terms = frozenset(((value, 1),))
        offset = old.address.offset if old.address.terms == terms else min(old.address.offset, new.address.offset)
        address = Linear(old.address.symbol, offset, terms, old.address.rank)
    return Word(known, old.bits & known, address)
