"""Shared memory as the rules see it: where an access starts, and which accesses may meet."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from ..grammar import tree
from ..grammar.operands import width
from .effort import spend
from .lanes import Lanes, uniform
from .program import Routine, Site
from .values import Linear, Value, Values, sources

Mode = Literal["r", "w", "rw"]
_DESCRIPTOR = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of shared memory that an instruction reads or writes. `low`: the lowest address that its threads have, in bytes of `symbol`.

    `by`: "generic" (a thread's own load or store), "async" (the copy engine or wgmma).
    """

    site: Site
    operand: str
    mode: Mode
    by: Literal["generic", "async"]
    address: Linear
    symbol: str
    low: int
    bytes: int | None = None
    """Bytes that one thread moves, where that is known."""

    @property
    def strong(self) -> bool:
        """Whether the access may race with others of its kind: atomics, volatile, relaxed."""
        tokens = ("volatile", "relaxed", "acquire", "release", "mmio")
        return self.site.mnemonic in ("atom", "red") or not self.site.tokens.isdisjoint(tokens)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A wgmma descriptor: the shared address that its low 14 bits hold in units of 16 bytes, and the bits above them, where known."""

    address: Linear
    bits: int | None

    def with_bits(self, number: int | None, value: Value, added: bool) -> Matrix:
        """After `add` or `or` of the value, which may be this number."""
        if number is None:
            return Matrix(Linear(self.address.symbol, self.address.offset, self.address.terms | {(value, 16)}), None)
        low, high = number & 0x3FFF, number & 0xFFFF_FFFF_FFFF_C000
        bits = None if self.bits is None else self.bits + high & _DESCRIPTOR if added else self.bits | high
        return Matrix(self.address.plus(low << 4), bits)


class Memory:
    """The accesses of a routine to shared memory, and the regions that its symbols fall into.

    A region starts wherever an asynchronous operation, a barrier or an allocation of the plan does.
    """

    def __init__(self, routine: Routine, values: Values, lanes: Lanes, starts: dict[str, list[int]]) -> None:
        self.routine = routine
        self.values = values
        self.lanes = lanes
        self.accesses: dict[int, list[Access]] = {}
        self._spans: dict[Access, tuple[int, int] | None] = {}
        self._regions: dict[int, tuple[str, int]] = {}
        """By the identity of an access, which `accesses` keeps."""
        self._places: dict[Access, list[int | None] | None] = {}
        self._matrices: dict[tuple[Value, int], Matrix | None] = {}
        self.unknown_stores = False
        """Whether something is stored to an address that may be in shared memory, and nobody knows where."""
        for site in routine.body():
            found = [access for access in self._accesses(site) if access is not None]
            if found:
                self.accesses[site.index] = found
        self._starts: dict[str, list[int]] = {symbol: [0, *given] for symbol, given in starts.items()}
        for access in (access for found in self.accesses.values() for access in found):
            if access.by == "async" or access.operand == "addr":
                self._starts.setdefault(access.symbol, [0]).append(access.low)
        self._starts = {symbol: sorted(set(given)) for symbol, given in self._starts.items()}

    def of(self, site: Site) -> list[Access]:
        return self.accesses.get(site.index, [])

    def region(self, access: Access) -> tuple[str, int]:
        """The region in which the access starts."""
        known = self._regions.get(id(access))
        if known is None:
            starts = self._starts.get(access.symbol, [0])
            known = access.symbol, starts[max(0, bisect_right(starts, access.low) - 1)]
            if any(own is access for own in self.of(access.site)):
                self._regions[id(access)] = known
        return known

    def may_meet(self, one: Access, other: Access) -> bool:
        """Whether two accesses may touch the same bytes: they start in the same region."""
        spend(2)
        return self.region(one) == self.region(other)

    def is_shared(self, symbol: str | None) -> bool:
        variable = self.routine.variables.get((symbol or "").partition("+")[0])
        return variable is not None and variable.space == "shared"

    def low(self, site: Site, address: Linear) -> int:
        """The lowest offset that the threads of the site have; what is not known of a term counts as 0."""
        vectors = [(vector, factor) for term, factor in address.terms if (vector := self.lanes.vector(term)) is not None]
        if not vectors:
            return address.offset
        threads = self.lanes.of(site)
        return min((address.offset + sum((vector[thread] or 0) * factor for vector, factor in vectors)
                    for thread in range(self.lanes.launch.threads) if threads >> thread & 1), default=address.offset)

    def places(self, access: Access) -> list[int | None] | None:
        """The offset in each thread, without the terms that are the same in all threads (`rest`); None where it is not known."""
        if access not in self._places:
            self._places[access] = self._spread(access)
        return self._places[access]

    def _spread(self, access: Access) -> list[int | None] | None:
        found: list[int | None] = [access.address.offset] * self.lanes.launch.threads
        for term, factor in access.address.terms:
            vector = self.lanes.vector(term)
            if vector is not None:
                found = [None if at is None or number is None else at + number * factor for at, number in zip(found, vector, strict=True)]
            elif not uniform(self.values, term):
                return None
        return found

    def span(self, access: Access) -> tuple[int, int] | None:
        """From which byte to which the access is, of the threads where `places` tells it; None where it tells of none."""
        if access not in self._spans:
            known = [at for at in self.places(access) or () if at is not None]
            self._spans[access] = (min(known), max(known) + (access.bytes or 1)) if known else None
        return self._spans[access]

    def rest(self, access: Access) -> frozenset[tuple[Value, int]]:
        """The terms that are the same in all threads."""
        return frozenset((term, factor) for term, factor in access.address.terms if self.lanes.vector(term) is None)

    # ------------------------------------------------------------------------------------------- one instruction

    def _accesses(self, site: Site) -> list[Access | None]:
        if site.mnemonic == "wgmma":
            return [self._tile(site, name) for name in ("a_desc", "b_desc") if site.value(name) is not None]
        found = []
        for effect in site.effects.memory:
            operand = site.value(effect.operand)
            private = site.space(effect.operand).partition("::")[0] in ("param", "local")  # no address, though what is passed may be one
            if isinstance(operand, tree.Address | tree.Element) and effect.proxy != "tensormap" and not private:
                # st.async and cp.async are asynchronous, but of the generic proxy.
                generic = effect.proxy == "generic" or site.mnemonic in ("st", "red")
                found.append(self._access(site, effect.operand, effect.mode, "generic" if generic else "async",
                                          self.values.address(site, operand)))
        return found

    def _access(self, site: Site, operand: str, mode: Mode, by: Literal["generic", "async"], address: Linear) -> Access | None:
        if address.symbol is None or not self.is_shared(address.symbol):
            self.unknown_stores |= address.symbol is None and mode != "r" and site.space(operand) in ("", "shared")
            return None
        return Access(site, operand, mode, by, address, address.symbol, self.low(site, address), _moved(site))

    def _tile(self, site: Site, operand: str) -> Access | None:
        matrix = self.matrix(site, operand)
        return None if matrix is None else self._access(site, operand, "r", "async", matrix.address)

    def matrix(self, site: Site, operand: str) -> Matrix | None:
        """What the descriptor operand of a wgmma says, None where its address is not understood."""
        return self.descriptor(self.values.of(site, site.value(operand)))

    def descriptor(self, value: Value, depth: int = 0) -> Matrix | None:
        if depth > 24:
            return None
        if (value, depth) not in self._matrices:
            self._matrices[value, depth] = self._descriptor(value, depth)
        return self._matrices[value, depth]

    def _descriptor(self, value: Value, depth: int) -> Matrix | None:
        if value.kind in ("phi", "select"):
            found = [matrix for other in self.values.alternatives(value) if (matrix := self.descriptor(other, depth + 8)) is not None]
            if not found:
                return None
            form = found[0].address
            bits = found[0].bits if len({matrix.bits for matrix in found}) == 1 else None
            return Matrix(Linear(form.symbol, form.offset, form.terms | {(value, 1)}), bits)
        if value.kind != "op" or value.site is None:
            return None
        site, given = value.site, self.values.arguments(value)
        if site.mnemonic in ("add", "or") and len(given) == 2:
            for one, other in (given, given[::-1]):
                matrix = self.descriptor(one, depth + 1)
                if matrix is not None:
                    return matrix.with_bits(self.values.number(other), other, site.mnemonic == "add")
        elif site.mnemonic in ("cvt", "mov", "and") and given:
            if site.mnemonic == "mov" and isinstance(sources(site)[0], tree.Vector):
                packed = sources(site)[0]
                assert isinstance(packed, tree.Vector)
                low, *high = (self.values.of(site, element) for element in packed.elements)
                matrix = self.descriptor(low, depth + 1)
                upper = self.values.number(high[0]) if len(high) == 1 else None
                if matrix is None or upper is None or matrix.bits is None:
                    return None if matrix is None else Matrix(matrix.address, None)
                return Matrix(matrix.address, matrix.bits | (upper & 0xFFFFFFFF) << 32)
            return self.descriptor(given[0], depth + 1)
        elif (site.mnemonic == "shr" or site.mnemonic == "bfe") and self.values.number(given[1]) == 4:
            form = self.values.linear(given[0])
            return Matrix(form, 0) if form.symbol is not None else None
        return None


def bytes_of(values: Values, site: Site) -> int | None:
    """The bytes that one execution of a bulk copy, st.async or red.async completes on its barrier, where the PTX says it."""
    size = site.value("size")
    if size is not None:
        return values.number(values.of(site, size))
    if site.mnemonic in ("st", "red") and "async" in site.tokens:
        type = site.opcode.split(".")[-1]
        lanes = 2 if "v2" in site.tokens else 4 if "v4" in site.tokens else 1
        return width(type) // 8 * lanes
    return None


def _moved(site: Site) -> int | None:
    """Bytes that one thread loads, stores or addresses: a row of ldmatrix and stmatrix, the size of a cp.async."""
    if site.mnemonic in ("ldmatrix", "stmatrix"):
        return 16
    size = site.value("cp_size")
    if isinstance(size, tree.Integer):
        return size.value
    tokens = site.opcode.split(".")
    bits = width(tokens[-1])
    lanes = next((int(token[1:]) for token in tokens if token in ("v2", "v4", "v8")), 1)
    return bits // 8 * lanes or None if site.mnemonic in ("ld", "st", "atom", "red") else None
