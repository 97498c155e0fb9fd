"""Bank conflicts of shared memory: how often a warp's access must be repeated, where the addresses of its lanes are known.

32 banks of 4 bytes. Accesses of 8 bytes go by half-warps, those of 16 (and the rows of ldmatrix, stmatrix) by eight lanes; lanes that use
the same word share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..check.analysis import Analysis
from ..check.lanes import Lanes, Vector
from ..check.memory import Access
from ..check.values import Value
from ..grammar import tree
from .facts import BankFact, Banks

BANKS = 32
WORD = 4
PATTERN = 1024
"""Bytes that a swizzle looks at: a variable aligned to them may as well lie at 0."""
ACCESSES = frozenset(("ld", "st", "ldmatrix", "stmatrix"))


def wavefronts(addresses: Mapping[int, int], size: int) -> tuple[int, int]:
    """(passes that the lanes' accesses of `size` bytes take, passes without any conflict). `addresses` are bytes by lane."""
    together = 32 * WORD // max(size, WORD)
    actual = ideal = 0
    for first in range(0, 32, together):
        words = {(at + byte) // WORD for lane, at in addresses.items() if first <= lane < first + together for byte in range(0, size, WORD)}
        if words:
            banks = [word % BANKS for word in words]
            actual += max(banks.count(bank) for bank in set(banks))
            ideal += 1
    return actual, ideal


class _Placed(Lanes):
    """Registers by thread, with shared variables that are aligned to the pattern at address 0."""

    def _vector(self, value: Value, depth: int) -> Vector | None:
        if value.kind != "symbol":
            return super()._vector(value, depth)
        variable = self.routine.variables.get(value.name)
        aligned = variable is not None and variable.space == "shared" and (variable.align or 1) % PATTERN == 0
        return (value.number,) * self.launch.threads if aligned else None


def conflicts(analysis: Analysis) -> Banks:
    """The accesses with conflicts, and how many could be decided."""
    found, known, asked = [], 0, 0
    placed = _Placed(analysis.routine, analysis.values, analysis.launch)
    for site in analysis.sites:
        if site.mnemonic not in ACCESSES:
            continue
        for access in analysis.memory.of(site):
            if access.by != "generic" or "async" in site.tokens:
                continue
            asked += 1
            worst = _worst(analysis, access, placed)
            if worst is not None:
                known += 1
                if worst[0] > worst[1]:
                    warp, lanes = worst[2], worst[3]
                    found.append(BankFact(site.place.line, _author(site.place), site.opcode, warp, *worst[:2], lanes))
    return Banks(asked, known, tuple(found))


def _author(place: object) -> str:
    author = getattr(place, "author", None)
    return str(author) if author else ""


def _places(analysis: Analysis, access: Access, placed: Lanes) -> list[int | None] | None:
    """The address in each thread: from its variable plus what all threads share, else with the variable at 0."""
    found = analysis.memory.places(access)
    operand = access.site.value(access.operand)
    if found is None and isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name):
        vector = placed.vector(analysis.values.register(access.site, operand.base.name))
        return None if vector is None else [None if at is None else at + operand.offset for at in vector]
    return found


def _worst(analysis: Analysis, access: Access, placed: Lanes) -> tuple[int, int, int, tuple[int, ...]] | None:
    """(passes, ideal, warp, two lanes that collide) of the worst warp whose active lanes are all known; None without any."""
    places, site = _places(analysis, access, placed), access.site
    threads = analysis.lanes.of(site)
    if places is None or not access.bytes or not analysis.lanes.exact(site):
        return None
    rows = 8 if "x1" in site.tokens else 16 if "x2" in site.tokens else 32  # lanes whose addresses ldmatrix and stmatrix use
    worst: tuple[int, int, int, tuple[int, ...]] | None = None
    for warp in range(-(-analysis.launch.threads // 32)):
        lanes = [lane for lane in range(rows) if threads >> warp * 32 + lane & 1]
        given = {lane: at for lane in lanes if (at := places[warp * 32 + lane]) is not None}
        if not given or len(given) < len(lanes):
            continue
        actual, ideal = wavefronts(given, access.bytes)
        if worst is None or actual - ideal > worst[0] - worst[1]:
            worst = actual, ideal, warp, _pair(given, access.bytes)
    return worst


def _pair(addresses: Mapping[int, int], size: int) -> tuple[int, ...]:
    """Two lanes of the same pass with other words in one bank; () without."""
    together = 32 * WORD // max(size, WORD)
    lanes = sorted(addresses)
    for index, lane in enumerate(lanes):
        for other in lanes[index + 1:]:
            if lane // together == other // together and _collide(addresses[lane], addresses[other], size):
                return lane, other
    return ()


def _collide(one: int, other: int, size: int) -> bool:
    words, others = _words(one, size), _words(other, size)
    return any(word % BANKS == across % BANKS and word != across for word in words for across in others)


def _words(at: int, size: int) -> Sequence[int]:
    return range(at // WORD, (at + max(size, 1) - 1) // WORD + 1)
