"""What a register holds: its definition at a place (static single assignment, found on demand), and addresses as symbol + bytes + terms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..grammar import tree
from ..grammar.operands import width
from .definitions import START, Definitions
from .effort import spend
from .program import Routine, Site

_BITS: dict[str, Callable[[int, int], int]] = {"or": operator.or_, "xor": operator.xor, "and": operator.and_}
_FOLLOWED = frozenset(("mov", "cvta", "cvt", "add", "sub", "mul", "mad", "shl", "mapa", "or", "xor", "and", "selp", "min", "max", "shfl"))
LOWERED = 6
"""How often the form of one value may change before it is taken for unknown."""


LONGEST = 64
"""Terms of a form. A longer sum is a value of which nothing more is known: sums of ever more terms take quadratic time."""


@dataclass(eq=False, slots=True)
class Value:
    """One definition. `kind`: "int" (`number`), "symbol" (`name` + `number` bytes), "special" (`name`), "op" (result of `site`),
    "select" (a guarded instruction: its result or what was there before), "phi" (joins at the begin of `block`), "unknown".
    """

    kind: str
    name: str = ""
    number: int = 0
    site: Site | None = None
    block: int = -1


@dataclass(frozen=True, slots=True)
class Linear:
    """`symbol + offset + sum(coefficient * term)`; terms are values that nothing more is known of.

    `rank` is the CTA of the cluster whose memory it is (mapa), None for the executing one.
    """

    symbol: str | None
    offset: int
    terms: frozenset[tuple[Value, int]] = frozenset()
    rank: Value | None = None

    @property
    def constant(self) -> bool:
        return not self.terms

    def beyond(self, unit: int) -> int:
        """What is over a multiple of the unit, where that is so whatever the terms are; else 0."""
        return self.offset % unit if all(factor % unit == 0 for _, factor in self.terms) else 0

    def plus(self, bytes: int) -> Linear:
        return Linear(self.symbol, self.offset + bytes, self.terms, self.rank) if bytes else self


_UNKNOWN = Value("unknown")


class Values:
    """The values of one routine."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.definitions = Definitions(routine)
        self._values: dict[tuple[Site | int, str], Value] = {}
        self._alternatives: dict[Value, list[Value]] = {}
        self._linear: dict[Value, Linear] = {}
        self._integers: dict[int, Value] = {}
        self._named: dict[tuple[str, int], Value] = {}
        self._initial: dict[tuple[Value, int], int | None] = {}
        self._parameters = frozenset(variable.name for variable in routine.function.parameters)
        self.uniform: dict[Value, bool] = {}
        self.mixed: frozenset[int] = frozenset()
        """The blocks whose joins may differ between threads (`Lanes.mixed`)."""

    # ------------------------------------------------------------------------------------------- definitions

    def of(self, site: Site, operand: tree.Operand | None) -> Value:
        """The value of an operand: of a register, literal, special register or variable's address; of the base of an address."""
        if isinstance(operand, tree.Integer):
            return self.integer(operand.value)
        if isinstance(operand, tree.Offset):
            if operand.base.name in self.routine.registers or operand.base.name in self.definitions.writes:
                return _UNKNOWN
            return self._symbol(operand.base.name, operand.offset)
        if isinstance(operand, tree.Name):
            return self.register(site, operand.name)
        if isinstance(operand, tree.Not):
            return self.of(site, operand.operand)
        if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name):
            return self.register(site, operand.base.name)
        return _UNKNOWN

    def register(self, site: Site, name: str) -> Value:
        """What the name stands for just before the site."""
        if name not in self.routine.registers and name not in self.definitions.writes:
            if name in self.routine.variables:
                passed = self.routine.variables[name].space == "param" and name not in self._parameters
                return self._named.setdefault((name, -2), Value("unknown", name)) if passed else self._symbol(name, 0)
            return self._named.setdefault((name, -1), Value("special", name))
        return self._value(self.definitions.before(site, name), name)

    def defined(self, definition: Site | int, name: str) -> Value:
        """The value of one of a register's definitions."""
        return self._value(definition, name)

    def integer(self, number: int) -> Value:
        return self._integers.setdefault(number, Value("int", number=number))

    def _symbol(self, name: str, offset: int) -> Value:
        return self._named.setdefault((name, offset), Value("symbol", name, offset))

    def _value(self, definition: Site | int, name: str) -> Value:
        made = self._values.get((definition, name))
        if made is None:
            if isinstance(definition, Site):
                made = Value("op" if definition.instruction.guard is None else "select", name, site=definition)
            else:
                made = Value("unknown" if definition == START else "phi", name, block=definition)
            self._values[definition, name] = made
        return made

    def alternatives(self, value: Value) -> list[Value]:
        """What a phi joins, or a select chooses from."""
        if value not in self._alternatives:
            found: list[Site | int] = []
            if value.kind == "phi":
                found = self.definitions.joined(value.block, value.name)
            elif value.kind == "select" and value.site is not None:
                found = [self.definitions.before(value.site, value.name)]
            self._alternatives[value] = [self._value(definition, value.name) for definition in found]
        return self._alternatives[value]

    def initial(self, value: Value, depth: int = 0) -> int | None:
        """The number that the value is the first time, when that is known: of a loop's register, what it has before the loop."""
        known = self.number(value)
        if known is not None or depth > 24:
            return known
        if (value, depth) not in self._initial:
            self._initial[value, depth] = self._first(value, depth)
        return self._initial[value, depth]

    def before_loop(self, value: Value) -> Value | None:
        """What a loop's register has before the loop, if that comes from one place."""
        if value.kind != "phi":
            return None
        parents, blocks = self.routine.dominators, self.routine.blocks[value.block].predecessors
        before = [p for p in blocks if p in self.routine.reachable and not parents.above(value.block, p)]
        return self._value(self.definitions.at_end(before[0], value.name), value.name) if len(before) == 1 else None

    def _first(self, value: Value, depth: int) -> int | None:
        before = self.before_loop(value)
        if before is not None:
            return self.initial(before, depth + 1)
        if value.kind == "op" and value.site is not None and (
                value.site.mnemonic in (*_BITS, "shr", "rem", "bfe") or "hi" in value.site.tokens):
            given = [self.initial(argument, depth + 1) for argument in self.arguments(value)]
            numbers = [number for number in given if number is not None]
            return _first_result(value.site, numbers) if len(numbers) == len(given) else None
        if value.kind == "op":
            form = self.linear(value)
            firsts = [(self.initial(term, depth + 1) if term is not value else None, factor) for term, factor in form.terms]
            if form.symbol is None and all(first is not None for first, _ in firsts):
                return form.offset + sum((first or 0) * factor for first, factor in firsts)
        return None

    def arguments(self, value: Value) -> list[Value]:
        """The operands of the instruction that a value results from, without its destination."""
        if value.site is None:
            return []
        return [self.of(value.site, operand) for operand in sources(value.site)]

    def depends(self, value: Value, most: int = 400) -> Iterator[Value]:
        """The value and what it is computed from; after `most` definitions an unknown ends the list."""
        seen, todo = {value}, [value]
        while todo:
            here = todo.pop()
            spend(4)
            yield here
            if len(seen) > most:
                yield _UNKNOWN
                return
            for other in (*self.alternatives(here), *self.arguments(here)):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)

    # ------------------------------------------------------------------------------------------- linear forms

    def address(self, site: Site, operand: tree.Operand | None) -> Linear:
        """The place that an address operand names."""
        if isinstance(operand, tree.Address):
            if isinstance(operand.base, tree.Integer):
                return Linear(None, operand.base.value)
            return self.linear(self.register(site, operand.base.name)).plus(operand.offset)
        if isinstance(operand, tree.Element):
            variable = self.routine.variables.get(operand.base.name)
            size = max(1, width(variable.type) // 8) if variable is not None else 1
            if isinstance(operand.index, tree.Integer):
                return Linear(operand.base.name, (operand.index.value + operand.offset) * size)
            index = _scaled(self.linear(self.register(site, operand.index.name)), size)
            return _sum(Linear(operand.base.name, operand.offset * size), index) or Linear(operand.base.name, 0, _atom(_UNKNOWN).terms)
        return self.linear(self.of(site, operand))

    def linear(self, value: Value) -> Linear:
        if value not in self._linear:
            self._solve(value)
        return self._linear[value]

    def number(self, value: Value) -> int | None:
        """The value when it is a constant."""
        form = self.linear(value)
        return form.offset if form.symbol is None and not form.terms else None

    def _solve(self, value: Value) -> None:
        """The forms of the value and of all that it is computed from: each is lowered until none changes."""
        needs: dict[Value, list[Value]] = {}
        users: dict[Value, list[Value]] = {}
        todo = [value]
        while todo:
            here = todo.pop()
            if here not in needs and here not in self._linear:
                needs[here] = self._needed(here)
                todo += needs[here]
                for other in needs[here]:
                    users.setdefault(other, []).append(here)
        forms: dict[Value, Linear] = {}
        lowered: dict[Value, int] = {}
        waiting = dict.fromkeys(reversed(needs))
        while waiting:
            here = next(iter(waiting))
            del waiting[here]
            spend(len(needs[here]))
            new = self._evaluated(here, [self._linear.get(other, forms.get(other)) for other in needs[here]])
            if new is None or new == forms.get(here):
                continue
            if len(new.terms) > LONGEST:
                new = _atom(here)
            lowered[here] = lowered.get(here, 0) + 1
            if lowered[here] > LOWERED:
                if lowered[here] > 2 * LOWERED:
                    continue
                new = _atom(here)
            forms[here] = new
            waiting.update(dict.fromkeys(users.get(here, ())))
        for here in needs:
            self._linear[here] = forms.get(here) or _atom(here)

    def _needed(self, value: Value) -> list[Value]:
        """What the form is made of: `alternatives`, then the operands of an operation that keeps addresses."""
        needed = self.alternatives(value) if value.kind in ("phi", "select") else []
        if value.kind in ("op", "select") and value.site is not None:
            if value.site.mnemonic in _FOLLOWED:
                needed = needed + self.arguments(value)
            elif (passed := self._passed(value.site)) is not None:
                needed = [*needed, passed]
        return needed

    def _evaluated(self, value: Value, given: list[Linear | None]) -> Linear | None:
        """None as long as too little is known of what it is made of."""
        if value.kind == "int":
            return Linear(None, value.number)
        if value.kind == "symbol":
            return Linear(value.name, value.number)
        if value.kind == "phi":
            return self._joined_form(value, given)
        if value.kind == "select":
            before = len(self.alternatives(value))
            after = self._operation(value, given[before:])
            return self._joined_form(value, [*given[:before], after])
        return self._operation(value, given) if value.kind == "op" else _atom(value)

    def _joined_form(self, value: Value, given: list[Linear | None]) -> Linear | None:
        """Alternatives of one symbol are that symbol plus something unknown, from the lowest offset on."""
        known = [form for form in given if form is not None]
        if not known:
            return None
        forms = [form for form in known if all(term is not value for term, _ in form.terms)]
        if len(forms) == len(known) and all(form == forms[0] for form in forms):
            return forms[0]
        symbols, ranks = {form.symbol for form in forms}, {form.rank for form in forms}
        if len(symbols) != 1 or len(ranks) != 1 or None in symbols:
            return _atom(value)
        return Linear(forms[0].symbol, min(form.offset for form in forms), frozenset(((value, 1),)), forms[0].rank)

    def _operation(self, value: Value, given: list[Linear | None]) -> Linear | None:
        site = value.site
        assert site is not None
        if site.mnemonic in _FOLLOWED:
            forms = [form for form in given if form is not None]
            return self._computed(value, site, forms) or _atom(value) if len(forms) == len(given) else None
        if given:
            return given[0]
        return self._parameter(site) or _atom(value)

    def _computed(self, value: Value, site: Site, given: list[Linear]) -> Linear | None:
        mnemonic = site.mnemonic
        match mnemonic, given:
            case "cvt", [one] if _integral(site) and any((width(token) or 32) < 32 for token in site.opcode.split(".")):
                return _converted(one, site)
            case ("mov" | "cvta" | "cvt"), [one] if isinstance(site.instruction.operands[0], tree.Name) and _integral(site):
                return one
            case ("add" | "sub"), [one, other] if _integral(site):
                return _sum(_signed(one, site), _scaled(_signed(other, site), -1 if mnemonic == "sub" else 1))
            case "mul", [one, other] if _integral(site) and "hi" not in site.tokens:
                return _product(one, other)
            case "mad", [one, other, base] if _integral(site) and "hi" not in site.tokens:
                product = _product(one, other)
                return None if product is None else _sum(product, base)
            case "shl", [one, other] if other.constant and other.symbol is None and 0 <= other.offset < 64:
                return _wrapped(_scaled(one, 1 << other.offset), site) if one.symbol is None else None
            case "mapa", [one, _]:
                return Linear(one.symbol, one.offset, one.terms, self.of(site, sources(site)[1]))
            case "and", [one, mask] if one.symbol is not None and mask.constant and mask.symbol is None:
                return _unranked(self._aligned(value, one, mask.offset), ~mask.offset)
            case "shfl", [one, *_] if one.constant:
                return one  # every lane has the same
            case ("or" | "xor" | "and" | "selp" | "min" | "max" | "shfl"), [*_]:
                form = self._folded(site, given) or self._same_symbol(value, site, given)
                bits = [one.offset for one in given if one.symbol is None] if site.mnemonic in ("or", "xor") else []
                return form if form is None or not bits else _unranked(form, bits[0])
        return None

    @staticmethod
    def _folded(site: Site, given: list[Linear]) -> Linear | None:
        """Bits of constants."""
        if site.mnemonic not in _BITS or len(given) != 2 or any(form.terms or form.symbol is not None for form in given):
            return None
        return Linear(None, _BITS[site.mnemonic](given[0].offset, given[1].offset))

    def _aligned(self, value: Value, one: Linear, mask: int) -> Linear:
        """An address rounded down to a power of two starts a region of its own: `smem+1023&-1024`.

        A mask of the low 18 bits or more keeps all that a shared address has.
        """
        if mask >= 0x3FFFF and mask & (mask + 1) == 0:
            return one
        low = -mask if mask < 0 else (~mask & 0xFFFFFFFF) + 1
        if one.constant and low & (low - 1) == 0:
            return Linear(f"{one.symbol}+{one.offset}&-{low}", 0, rank=one.rank)
        return Linear(one.symbol, one.offset, _merged((*one.terms, (value, 1))), one.rank)

    def _same_symbol(self, value: Value, site: Site, given: list[Linear]) -> Linear | None:
        """Bits of an address changed, or one of several addresses of a variable: that variable plus something unknown."""
        based = [form for form in given if form.symbol is not None]
        if not based or len({(form.symbol, form.rank) for form in based}) != 1:
            return None
        if site.mnemonic in ("selp", "min", "max") and len(based) < 2:
            return None  # the other one may be anywhere
        if site.mnemonic == "selp" and len(based) == 2 and based[0] == based[1]:
            return based[0]
        terms = based[0].terms if len(based) == 1 else frozenset()
        return Linear(based[0].symbol, min(form.offset for form in based), _merged((*terms, (value, 1))), based[0].rank)

    def _passed(self, site: Site) -> Value | None:
        """What a load of a parameter of an inlined function gives: what its caller has put there."""
        operand = site.value("a") if site.mnemonic == "ld" and len(site.writes) == 1 else None
        if not isinstance(operand, tree.Address) or not isinstance(operand.base, tree.Name) or operand.offset:
            return None
        name = operand.base.name
        return self.register(site, name) if name in self.definitions.writes and site.writes[0] != name else None

    def _parameter(self, site: Site) -> Linear | None:
        """A kernel parameter is the same value wherever it is loaded."""
        operand = site.value("a") if site.mnemonic == "ld" and "param" in site.tokens and len(site.writes) == 1 else None
        if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name) and operand.base.name in self._parameters:
            return _atom(self._named.setdefault((operand.base.name, 1 << 40 | operand.offset), Value("param", operand.base.name)))
        return None


def _first_result(site: Site, given: list[int]) -> int | None:
    """The result of numbers, where it is the same in every type that the instruction has."""
    bits, signed = width(site.opcode.rpartition(".")[2]), site.opcode[-3] == "s"
    match site.mnemonic, given:
        case ("or" | "xor" | "and") as bitwise, [one, other]:
            return _BITS[bitwise](one, other)
        case "shr", [one, by] if 0 <= by < bits:
            return (one if signed else one & (1 << bits) - 1) >> by
        case "mul", [one, by] if one >= 0 and bits == 32:
            return one * (by if signed else by & 0xFFFFFFFF) >> 32
        case "rem", [one, by] if one >= 0 and by > 0:
            return one % by
        case "bfe", [one, by, count] if not signed and 0 <= by < bits and 0 < count < bits:
            return (one & (1 << bits) - 1) >> by & (1 << count) - 1
    return None


def sources(site: Site) -> list[tree.Operand]:
    """The operands that are read as values: all but destinations."""
    if site.signature is None:
        return list(site.instruction.operands[1:])
    return [value for parameter, value in zip(site.signature.parameters, site.values, strict=True)
            if value is not None and parameter.operand.access != "w"]


def _integral(site: Site) -> bool:
    types = [token for token in site.opcode.split(".") if width(token)]
    return not types or all(token[0] in "usb" and token != "bf16" and not token.startswith("bf") for token in types)


def _converted(form: Linear, site: Site) -> Linear | None:
    """A constant in a type of less than 32 bits, by way of what the conversion reads; of anything else bits may be lost."""
    types = [token for token in site.opcode.split(".") if width(token)]
    if not form.constant or form.symbol is not None or len(types) != 2 or "sat" in site.tokens:
        return None
    number = form.offset
    for token in types[::-1]:
        number &= (1 << width(token)) - 1
        number -= 1 << width(token) if token[0] == "s" and number >> width(token) - 1 else 0
    return Linear(None, number)


def _unranked(form: Linear, changed: int) -> Linear:
    """An address after a change of these bits. From bit 24 on a shared address holds the rank of the CTA whose memory it is."""
    return form if form.rank is None or not changed & 0xFF00_0000 else Linear(form.symbol, form.offset, form.terms, _UNKNOWN)


def _signed(form: Linear, site: Site) -> Linear:
    """A 32-bit literal from 2^31 on is a negative number."""
    narrow = site.opcode.endswith("32")
    if narrow and form.symbol is None and not form.terms and form.offset >= 1 << 31:
        return Linear(None, form.offset - (1 << 32))
    return form


def _wrapped(form: Linear, site: Site) -> Linear:
    """A constant without the bits that its register does not hold; a negative number stays one."""
    bits = width(site.opcode.rpartition(".")[2])
    held = not bits or -(1 << bits - 1) <= form.offset < 1 << bits
    return form if held or not form.constant else Linear(None, form.offset & (1 << bits) - 1)


def _atom(value: Value) -> Linear:
    return Linear(None, 0, frozenset(((value, 1),)))


def _merged(terms: Iterable[tuple[Value, int]]) -> frozenset[tuple[Value, int]]:
    added: dict[Value, int] = {}
    for term, factor in terms:
        added[term] = added.get(term, 0) + factor
    return frozenset((term, factor) for term, factor in added.items() if factor)


def _sum(one: Linear, other: Linear) -> Linear | None:
    if one.symbol is not None and other.symbol is not None:
        return None
    return Linear(one.symbol or other.symbol, one.offset + other.offset, _merged((*one.terms, *other.terms)), one.rank or other.rank)


def _scaled(form: Linear, factor: int) -> Linear:
    if form.symbol is not None and factor != 1:
        return _atom(_UNKNOWN)
    return Linear(form.symbol, form.offset * factor, _merged((t, f * factor) for t, f in form.terms), form.rank)


def _product(one: Linear, other: Linear) -> Linear | None:
    if other.constant and other.symbol is None:
        return _scaled(one, other.offset) if one.symbol is None else None
    if one.constant and one.symbol is None:
        return _scaled(other, one.offset) if other.symbol is None else None
    return None
