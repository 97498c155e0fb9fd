"""Whether two sets of conditions can hold together: numbers are looked for that satisfy both, as a witness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from ..grammar import tree
from .effort import spend
from .lanes import OPERATIONS, higher, type_of
from .program import Site
from .values import Value, Values, sources

Conditions = dict[Value, bool]
"""Predicates, and whether they hold."""
MOST_VALUES, MOST_TRIED, MOST_SEARCHES = 200, 4096, 64
FREE = (0, 1, 2, 3, 4, 5, 7, 8, -1)


class Compatible:
    def __init__(self, values: Values) -> None:
        self.values = values
        self._left = MOST_SEARCHES

    def sources(self, conditions: Iterable[Value]) -> set[Value] | None:
        """What the predicates are computed from; None where that is too much."""
        found, seen, todo = set[Value](), set[Value](), list(conditions)
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            parts = self._parts(here)
            if parts is None:
                found.add(here)
            else:
                todo += parts
            if len(seen) > MOST_VALUES:
                return None
        return {value for value in found if value.kind != "int"}

    def _parts(self, value: Value) -> list[Value] | None:
        """The operands of an operation that can be computed, the terms of a sum; None of what is a source."""
        if value.kind != "op" or value.site is None:
            return None
        form = self.values.linear(value)
        if form.symbol is None and all(term is not value for term, _ in form.terms):
            return [term for term, _ in form.terms]
        return self.values.arguments(value) if _computed(value.site) else None

    def linked(self, first: Conditions, second: Conditions, lasts: Callable[[Value], bool]) -> list[tuple[Conditions, Conditions]]:
        """The conditions of both that share sources which last from one to the other, apart from those that do not."""
        groups: list[tuple[set[tuple[int, Value]], Conditions, Conditions]] = []
        for which, conditions in enumerate((first, second)):
            for value, holds in conditions.items():
                found = self.sources([value])
                keys = {(2 if lasts(source) else which, source) for source in ({value} if found is None else found)}
                near = [group for group in groups if group[0] & keys]
                groups = [group for group in groups if not group[0] & keys]
                joined: tuple[Conditions, Conditions] = {}, {}
                for seen, one, other in near:
                    keys |= seen
                    joined[0].update(one)
                    joined[1].update(other)
                joined[which][value] = holds
                groups.append((keys, *joined))
        return [(one, other) for _, one, other in groups if one and other]

    def together(self, first: Conditions, second: Conditions, shared: set[Value]) -> bool:
        """Whether some numbers satisfy both. What is not `shared` may be one number for the first and another for the second."""
        one, other = self.sources(first), self.sources(second)
        self._left -= 1
        if one is None or other is None or self._left < 0:
            return False
        own = sorted(other - shared, key=id)
        free = [*sorted(one | (other & shared), key=id), *own]
        constants = self._constants([*first, *second])
        most = len(free) and int(MOST_TRIED ** (1 / len(free)))
        tried = [*dict.fromkeys((*FREE[:2], *constants, *FREE))][:max(most, 2)]
        if len(free) > 10:
            return False
        for numbers in product(tried, repeat=len(free)):
            spend(4)
            mine, theirs = numbers[:len(numbers) - len(own)], numbers[len(numbers) - len(own):]
            here = dict(zip(free[:len(mine)], mine, strict=True))
            there = {value: here[value] for value in shared if value in here} | dict(zip(own, theirs, strict=True))
            if self._hold(first, here) and self._hold(second, there):
                return True
        return False

    def _constants(self, conditions: Iterable[Value]) -> list[int]:
        """The numbers that the code names, and those beside them."""
        found, seen, todo = dict[int, None](), set[Value](), list(conditions)
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                if here.kind == "int":
                    found |= dict.fromkeys((here.number, here.number + 1, here.number - 1))
                todo += self._parts(here) or []
                if here.site is not None and here.kind == "op":
                    todo += [part for part in self.values.arguments(here) if part.kind == "int"]
        return list(found)

    def _hold(self, conditions: Conditions, numbers: dict[Value, int]) -> bool:
        known: dict[Value, int | None] = dict(numbers)
        return all((number := self._number(value, known)) is not None and bool(number) == holds for value, holds in conditions.items())

    def _number(self, value: Value, known: dict[Value, int | None]) -> int | None:
        if value.kind == "int":
            return value.number
        if value not in known:
            known[value] = None
            known[value] = self._computed(value, known)
        return known[value]

    def _computed(self, value: Value, known: dict[Value, int | None]) -> int | None:
        site = value.site
        if value.kind != "op" or site is None:
            return None
        form = self.values.linear(value)
        if form.symbol is None and all(term is not value for term, _ in form.terms):
            parts = [(self._number(term, known), factor) for term, factor in form.terms]
            return None if any(part is None for part, _ in parts) else form.offset + sum((part or 0) * factor for part, factor in parts)
        if not _computed(site):
            return None
        operation = higher if "hi" in site.tokens else OPERATIONS[site.mnemonic]
        bits, signed = type_of(site)
        row = tuple([self._number(part, known) for part in self.values.arguments(value)])
        return operation(site, row, bits, signed, len(site.writes) > 1 and site.writes[0] != value.name)


def _computed(site: Site) -> bool:
    """Whether the result is a number that one thread makes of its own numbers, and that can be computed here."""
    return (site.mnemonic in OPERATIONS and site.mnemonic not in ("shfl", "bfe", "cvt") and "sat" not in site.tokens
            and not any(isinstance(operand, tree.Not | tree.Vector) for operand in sources(site)))
