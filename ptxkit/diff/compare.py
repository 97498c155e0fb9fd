"""Two programs aligned: the same but for names, or what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from .program import Code, Counts, Line, Program

_RESOURCES = ("registers", "spill_stores", "spill_loads", "stack", "shared", "barriers")
_SIGNS = {"removed": "-", "added": "+", "same": " "}


@dataclass(frozen=True, slots=True)
class Change:
    """One number that differs: how often an opcode stands there, registers, how often a barrier is armed so."""

    family: str
    what: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Hunk:
    """Neighbouring differences. `lines` are (sign, text): `-` only before, `+` only after, a blank in both."""

    before: int
    after: int
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """What differs in one function. `name` is that of the first side, `other` of the second."""

    name: str
    other: str
    kind: str
    removed: int
    added: int
    changes: tuple[Change, ...]
    hunks: tuple[Hunk, ...]

    @property
    def same(self) -> bool:
        return not (self.hunks or self.changes)


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between two programs; `same` when nothing does."""

    before: str
    after: str
    kind: str
    functions: tuple[Function, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not (self.only_before or self.only_after) and all(function.same for function in self.functions)


def diff(before: Program, after: Program, *, context: int = 2) -> Difference:
    """What differs, function by function: by name, or the only entries of both whatever their names."""
    pairs, only_before, only_after = _paired(before.codes, after.codes)
    functions = tuple(_function(a, b, context) for a, b in pairs)
    return Difference(before.name, after.name, before.kind, functions, only_before, only_after)


def _paired(before: Sequence[Code], after: Sequence[Code]) -> tuple[list[tuple[Code, Code]], tuple[str, ...], tuple[str, ...]]:
    second = {code.name: code for code in after}
    pairs = [(code, second[code.name]) for code in before if code.name in second]
    left = [code for code in before if code.name not in second]
    right = [code for code in after if code.name not in {code.name for code in before}]
    for kind in ("entry", "func"):
        alone, other = [c for c in left if c.kind == kind], [c for c in right if c.kind == kind]
        if len(alone) == len(other) == 1:
            pairs.append((alone[0], other[0]))
            left.remove(alone[0])
            right.remove(other[0])
    return pairs, tuple(c.name for c in left), tuple(c.name for c in right)


def _function(a: Code, b: Code, context: int) -> Function:
    steps, renamed = aligned(a.lines, b.lines)
    removed = sum(1 for sign, _, line in steps if sign == "removed" and line.opcode)
    added = sum(1 for sign, _, line in steps if sign == "added" and line.opcode)
    changes = (*_opcodes(a, b), *_facts(a, b), *_resources(a, b))
    return Function(a.name, b.name, a.kind, removed, added, changes, tuple(_hunks(steps, renamed, context)))


def _opcodes(a: Code, b: Code) -> Iterator[Change]:
    before, after = (Counter(line.opcode for line in code.lines if line.opcode) for code in (a, b))
    yield from _counts("opcodes", before, after)


def _facts(a: Code, b: Code) -> Iterator[Change]:
    for family in dict.fromkeys((*a.facts, *b.facts)):
        yield from _counts(family, a.facts.get(family, {}), b.facts.get(family, {}))


def _resources(a: Code, b: Code) -> Iterator[Change]:
    if a.resources is not None and b.resources is not None:
        first, second = ({name: getattr(code.resources, name) for name in _RESOURCES} for code in (a, b))
        yield from _counts("resources", first, second)


def _counts(family: str, before: Counts, after: Counts) -> Iterator[Change]:
    for what in sorted({*before, *after}):
        if before.get(what, 0) != after.get(what, 0):
            yield Change(family, what, before.get(what, 0), after.get(what, 0))


# ---------------------------------------------------------------------------------------------- alignment

Step = tuple[str, tuple[int, int], Line]


def aligned(before: Sequence[Line], after: Sequence[Line]) -> tuple[list[Step], dict[str, str]]:
    """Every line of both, in order, as ("same" | "removed" | "added", (places in both), line), and what names after are before.

    Lines are the same when their shapes are and one renaming of registers and labels, the same throughout, makes them equal.
    """
    swapped = [line.shape for line in after] < [line.shape for line in before]
    first, second = (after, before) if swapped else (before, after)
    matches = list(_matches(first, second))
    renamed = _renaming([(first[i].names, second[j].names) for i, j in matches])
    kept = [(i, j) for i, j in matches if all(renamed.get(a) == b for a, b in zip(first[i].names, second[j].names, strict=True))]
    if swapped:
        kept = [(j, i) for i, j in kept]
    return list(_steps(before, after, kept)), renamed if swapped else {other: name for name, other in renamed.items()}


def _steps(before: Sequence[Line], after: Sequence[Line], kept: Sequence[tuple[int, int]]) -> Iterator[Step]:
    i = j = 0
    for p, q in [*kept, (len(before), len(after))]:
        for k in range(i, p):
            yield "removed", (k, q), before[k]
        for k in range(j, q):
            yield "added", (p, k), after[k]
        if p < len(before):
            yield "same", (p, q), before[p]
        i, j = p + 1, q + 1


def _matches(first: Sequence[Line], second: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Pairs of places with equal shapes, in order on both sides: the common ends, and what difflib finds between."""
    low = 0
    while low < min(len(first), len(second)) and first[low].shape == second[low].shape:
        yield low, low
        low += 1
    tail = 0
    while tail < min(len(first), len(second)) - low and first[-1 - tail].shape == second[-1 - tail].shape:
        tail += 1
    middle = SequenceMatcher(None, [line.shape for line in first[low:len(first) - tail]],
                             [line.shape for line in second[low:len(second) - tail]], autojunk=False)
    for block in middle.get_matching_blocks():
        yield from ((low + block.a + k, low + block.b + k) for k in range(block.size))
    yield from ((len(first) - k, len(second) - k) for k in range(tail, 0, -1))


def _renaming(pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, str]:
    """One name of the second side for each of the first, and no two the same: those that most lines want."""
    votes: Counter[tuple[str, str]] = Counter()
    for names, others in pairs:
        votes.update(zip(names, others, strict=True))
    found: dict[str, str] = {}
    taken: set[str] = set()
    for (name, other), _ in votes.most_common():
        if name not in found and other not in taken:
            found[name] = other
            taken.add(other)
    return found


def _hunks(steps: Sequence[Step], renamed: Mapping[str, str], context: int) -> Iterator[Hunk]:
    """The differences with some lines around, those close together as one; registers under the names of the first side."""
    places = [n for n, (sign, _, _) in enumerate(steps) if sign != "same"]
    start = 0
    while start < len(places):
        end = start
        while end + 1 < len(places) and places[end + 1] - places[end] <= 2 * context + 1:
            end += 1
        low, high = max(0, places[start] - context), min(len(steps), places[end] + context + 1)
        before, after = steps[low][1]
        yield Hunk(before + 1, after + 1, tuple((_SIGNS[sign], line.written(renamed) if sign == "added" else line.text)
                                             for sign, _, line in steps[low:high]))
        start = end + 1
