"""Loops that wait for a word: when their end, and what they acquire, are the same in every schedule.

A loop that only reads a word again until it holds what it waits for depends on nothing if it ends in every schedule, and has then seen the
same writes. Of the words of a program that polls, the strong writes are kept in their order, with what each was ordered after. Some of
them, not known to the reader before, are those that it waits for: with any of these missing the loop must go on, with all of them it must
end. Writes that come later, or may come later, must keep it so. Then the reader acquires what those writes have released, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.operands import width
from ..definite import bits
from ..operand import Immediate, Register, Vector
from ..polling import Loop, Scratch
from ..slices import Seed
from ..values import indices, lane_list, lane_of, signed
from .clocks import SEEN, Lanes, Published, View
from .global_shadow import GlobalShadow, cells_of
from .shadow import Shadow
from .strong import EITHER, LAST, Strong, StrongRules, operation, scope_of, stored

if TYPE_CHECKING:
    from ..cta import Cta
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op
    from ..tasks import Region

MOST_VALUES = 4096
"""Different values of a word, as some of its writes have come and others not, that are looked at."""
MOST_WRITES = 4096
"""Writes of a word that are kept."""
ENDLESS = 64
"""Instructions of a loop that are executed to find out whether it goes on."""


@dataclass(slots=True, eq=False)
class Write:
    """A strong write of a word. `depth`: so many of the word's writes before it are known to come before it, from the first on."""

    cta: Cta
    number: int
    agent: int
    clock: int
    op: Op
    done: str
    operand: int
    before: int
    after: int
    depth: int
    published: Published | None = None


@dataclass(slots=True, eq=False)
class Waiter:
    """A loop that has ended: who, the writes that it has waited for (those before `seen`), the values that it may have read."""

    number: int
    agent: int
    clock: int
    op: Op
    goes_on: Callable[[int], bool]
    seen: int
    values: set[int]


@dataclass(slots=True, eq=False)
class Word:
    writes: list[Write] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    floors: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many of the writes a reader has waited for, by who it is."""
    opaque: Op | None = None
    """A write of which it is not followed what it leaves."""


class Open(Exception):
    """Why the end of a loop is not the same in every schedule."""


class WaitRules(StrongRules):
    def __init__(self) -> None:
        super().__init__()
        self.residency = False
        """Whether a loop waits for a CTA of another cluster."""
        self._words: dict[tuple[int, int, int], Word] = {}
        """By memory (`_space_of`), place and bytes."""
        self._polled: bool | None = None

    @property
    def provided(self) -> str:
        """What the certificate supposes: CTAs outside a cluster run at the same time only where there is room."""
        x, y, z = self.machine.grid
        return f"provided that its {x * y * z:,} CTAs are resident together" if self.residency else ""

    def _polls_words(self) -> bool:
        if self._polled is None:
            self._polled = any(self._loop(op) for op in self.machine.program.ops)
        return self._polled

    def _loop(self, op: Op) -> Loop | None:
        """The loop of a strong load (or of an atomic that changes nothing) that is asked again until it says yes."""
        if op.signature.form.effects.dependence != "order" or not _reads_only(op):
            return None
        loop = self.polls.load(op)
        return loop if loop is not None and loop.steady else None

    # ------------------------------------------------------------------------------------------- any strong access

    def _synchronise(self, f: Fragment, lanes: Lanes, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int,
                     values: Any) -> None:
        """Before a strong access: does anything depend on its order, and what does it make known?"""
        every: Any = places
        at: Any = every if type(every) is int else every[indices(mask)]
        together = type(at) is int
        loop = self._loop(op) if mode != "w" else None
        if loop is not None:
            self._waits_for(f, lanes, mask, op, loop, memory, places, size)
            return
        where = self.shadow(f.cta.cluster) if memory.space == "shared" else self._allocation(memory, at if together else int(at.min()))
        if where is None:
            return
        meet = mask & mask - 1 != 0 and (together or len(np.unique(at)) < len(at))
        count = 0 if values is None else len(values)
        stores = count > 0 and size <= 8 * count and operation(op) == LAST
        changed, differ = stored(memory, at, mask, values, size // count) if stores else (None, meet)
        fixed = 0
        for m, view in lanes.groups:
            some = m & mask
            if not some:
                continue
            cells, each = cells_of(where, at if together or some == mask else np.asarray(places)[indices(some)], size, some)
            changes = None if changed is None else np.flatnonzero(changed[np.searchsorted(indices(mask), each)])
            access = Strong(f, lanes, view, some, op, mode, where, cells, each, together, meet, changes, differ)
            if self._judge(access, self._namer(f, where)):
                fixed |= some
        if mode != "r" and self._polls_words():
            self._kept = self._written(f, lanes, mask, op, memory, places, size, values)
        if mode != "w" and fixed:
            self._acquire(f, lanes, fixed, op, memory, places)

    def _namer(self, f: Fragment, where: Shadow | GlobalShadow) -> Callable[[int], str]:
        if isinstance(where, Shadow):
            return lambda cell: self.place(f.cta.cluster, cell << where.shift)
        return lambda cell: self._global_name(where.start + (cell << where.shift))

    # ------------------------------------------------------------------------------------------- reads

    def _waits_for(self, f: Fragment, lanes: Lanes, mask: int, op: Op, loop: Loop, memory: Memory, places: Any, size: int) -> None:
        """A strong read by a loop that waits. What it acquires is acquired here."""
        for lane in lane_list(mask):
            place = lane_of(places, lane)
            value = int.from_bytes(memory.data[place:place + size].tobytes(), "little")
            goes_on = self._condition(f, lane, op)
            if not goes_on(value):
                continue
            key = self._space_of(f, memory), place, size
            word = self._words.get(key)
            if word is None:
                word = self._words[key] = Word()
            view = lanes.view(1 << lane)
            who = view.home.number, lanes.warp.base + lane
            try:
                seen, values, acquired = self._ends(word, view, who, goes_on, value)
            except Open as why:
                self.withhold(op, f"`{op.opcode}` of {f.warp!r} waits for {self._word_name(f, memory, place)}: {why}", "order")
                self._acquire(f, lanes, 1 << lane, op, memory, places)
                continue
            self.rounds(op, loop)
            self._several(op, loop, values)
            word.floors[who] = max(seen, word.floors.get(who, 0))
            word.waiters.append(Waiter(*who, lanes.warp.epoch, op, goes_on, seen, values))
            for write in acquired:
                self.residency |= write.cta.cluster is not f.cta.cluster
                self._acquire_one(f, lanes, 1 << lane, op, write)

    def _condition(self, f: Fragment, lane: int, op: Op) -> Callable[[int], bool]:
        """Whether the loop ends when the lane reads a value: found by executing what follows."""
        target = next(o for p, o in op.parameters() if p.operand.access == "w")
        assert isinstance(target, Register)
        kept = list(f.R)
        loop = self.polls.load(op)
        assert loop is not None
        again = {end.index for end in loop.ends} | {op.index}
        wide, signs = width(op.bindings["type"]), str(op.bindings["type"])[0] == "s"

        def goes_on(value: int) -> bool:
            registers = _Registers(kept, lane)
            filled = signed(value, wide) if signs and target.bits > wide else value
            registers[target.index] = filled & (1 << target.bits) - 1
            return self._leads_on(op, registers, again, f)

        return goes_on

    def _leads_on(self, op: Op, registers: _Registers, again: set[int], f: Fragment) -> bool:
        blocks = self.machine.program.blocks
        scratch = Scratch(registers, f)
        block = blocks[op.block]
        at = block.ops.index(op) + 1
        for _ in range(ENDLESS):
            for other in block.ops[at:]:
                if other.index in again:
                    return False
                control = other.signature.form.effects.control
                if control:
                    if other.tokens[0] != "bra":
                        return True
                    break
                step = self.polls.stepper.of(other)
                if step is not None:
                    step(scratch)
                elif not self.slices.nature(other).quiet and other.tokens[0] not in ("fence", "membar"):
                    return True
            last = block.ops[-1] if block.ops else None
            if last is not None and last.tokens[0] == "bra":
                taken = last.guard is None or bool(registers[last.guard.index]) != last.negated
                index = block.successors[0] if taken else block.index + 1
            elif len(block.successors) == 1:
                index = block.successors[0]
            else:
                return True
            block, at = blocks[index], 0
        return True

    def _ends(self, word: Word, view: View, who: tuple[int, int], goes_on: Callable[[int], bool],
              value: int) -> tuple[int, set[int], list[Write]]:
        """How many of the word's writes the loop has surely seen, the values that it may read then, and the writes that it synchronises
        with; raises `Open`.
        """
        if word.opaque is not None:
            raise Open(f"what {self.site(word.opaque.index)} leaves there is not followed")
        writes, floor = word.writes, word.floors.get(who, 0)
        known = [i < floor or self._is_known(view, who, write) for i, write in enumerate(writes)]
        first = next((i for i, sure in enumerate(known) if not sure), len(writes))
        if first == len(writes):
            return first, {value}, []
        rest, sure = writes[first:], known[first:]
        start = rest[0].before
        if len({w.done for w in rest}) == 1 and rest[0].done not in EITHER and rest[0].done != LAST:
            return self._gathered(rest, sure, first, start, goes_on)
        return self._in_turn(rest, sure, first, start, goes_on)

    def _gathered(self, rest: list[Write], sure: list[bool], first: int, start: int,
                 goes_on: Callable[[int], bool]) -> tuple[int, set[int], list[Write]]:
        """Of writes that commute: none but all of those that it waits for may let it go on."""
        for write, certain in zip(rest, sure, strict=True):
            if certain:
                start = result(write, start)
        unknown = [(i, w) for i, (w, certain) in enumerate(zip(rest, sure, strict=True)) if not certain]
        fewer, all_of, taken = set[int](), start, 0
        while not goes_on(all_of):
            if taken == len(unknown):
                raise Open("it goes on with a value that its writes do not explain")
            _, write = unknown[taken]
            fewer = fewer | {result(write, v) for v in fewer} | {all_of}
            all_of = result(write, all_of)
            taken += 1
            if len(fewer) > MOST_VALUES:
                raise Open(f"its writes can leave more than {MOST_VALUES} values on the way")
        found = next((v for v in fewer if goes_on(v)), None)
        if found is not None:
            raise Open(f"it may go on after any of several writes by {self.site(unknown[taken - 1][1].op.index)}, and which of them have "
                       "come, and released something, depends on the schedule")
        needed = [w for _, w in unknown[:taken]]
        seen = first + (unknown[taken - 1][0] + 1 if taken else 0)
        values = {all_of}
        for _, write in unknown[taken:]:
            values = self._later(write, seen, values, goes_on)
        return seen, values, needed

    def _in_turn(self, rest: list[Write], sure: list[bool], first: int, start: int,
                 goes_on: Callable[[int], bool]) -> tuple[int, set[int], list[Write]]:
        """Of writes each of which comes after those before it: the first that lets it go on is the one that it waits for."""
        if any(write.depth < first + i for i, write in enumerate(rest) if i):
            raise Open(f"nothing orders the writes by {self._sites(rest)}, and which of them it sees last depends on the schedule")
        last = max((i for i, certain in enumerate(sure) if certain), default=-1)
        values = [start, *(w.after for w in rest)][last + 1:]
        good = [goes_on(v) for v in values]
        k = good.index(True) if True in good else len(good)
        if k == len(good):
            raise Open("it goes on with a value that its writes do not explain")
        taken = last + 1 + k                                     # writes of `rest` that it has seen
        acquired = []
        for write in reversed(rest[:taken]):
            acquired.append(write)
            if write.done == LAST:
                break
        possible = {values[k]}
        for write in rest[taken:]:
            possible |= self._later(write, first + taken, possible, goes_on)
        return first + taken, possible, acquired if k else []

    def _later(self, write: Write, seen: int, values: Iterable[int], goes_on: Callable[[int], bool]) -> set[int]:
        """The values after a write that may come before or after the end of the loop."""
        there = self.site(write.op.index)
        if write.depth < seen:
            raise Open(f"{there} writes it too, and nothing orders that with the writes that it waits for")
        if write.done == LAST and (write.published is None or write.published.seen[0] is None):
            raise Open(f"{there} writes it again without release: whoever reads that has not acquired what it waits for")
        if write.done in EITHER and write.done != LAST:
            raise Open(f"{there} writes it, and what it leaves depends on the order")
        found = {result(write, v) for v in values}
        if not all(goes_on(v) for v in found):
            raise Open(f"{there} may change it before it is read")
        return found | set(values)

    def _sites(self, writes: list[Write]) -> str:
        return " and ".join(dict.fromkeys(self.site(w.op.index) for w in writes[:3]))

    def _several(self, op: Op, loop: Loop, values: set[int]) -> None:
        """A loop that may end with several values: the value itself must not last."""
        if len(values) == 1:
            return
        reach = self.slices.lasting(Seed(op, bits(op.writes()), "order", loop.branches))
        if reach is not None:
            self.blame(op, "order", f"`{op.opcode}` may end its loop with {', '.join(map(str, sorted(values)[:4]))}", reach)

    def _is_known(self, view: View, who: tuple[int, int], write: Write | Waiter) -> bool:
        if (write.number, write.agent) == who:
            return True
        if write.number == view.home.number:
            return bool(view.fit()[SEEN][write.agent] >= write.clock)
        theirs = view.of(write.number)
        return theirs is not None and write.agent < theirs.shape[1] and bool(theirs[SEEN][write.agent] >= write.clock)

    def _acquire_one(self, f: Fragment, lanes: Lanes, mask: int, op: Op, write: Write) -> None:
        if write.published is None:
            return
        tokens = op.tokens
        apart = 0 if write.cta is f.cta else 1 if write.cta.cluster is f.cta.cluster else 2
        seen = write.published.seen[apart] if scope_of(tokens) >= apart else None
        if seen is None:
            lanes.learn(mask, write.published.done)
        else:
            lanes.acquire(mask, seen, visible="acquire" in tokens or "acq_rel" in tokens, apart=apart)

    # ------------------------------------------------------------------------------------------- writes

    def _written(self, f: Fragment, lanes: Lanes, mask: int, op: Op, memory: Memory, places: Any, size: int, values: Any) -> list[Write]:
        """Before a strong write of words that may be polled: what is kept of it."""
        done, made = operation(op), list[Write]()
        each = size // max(1, len(values or ()))
        held: dict[int, int] = {}
        for lane in lane_list(mask):
            for i, given in enumerate(values or ()):
                place = lane_of(places, lane) + i * each
                before = held.get(place)
                if before is None:
                    before = int.from_bytes(memory.data[place:place + each].tobytes(), "little")
                made.append(self._write(f, lanes, lane, op, done, memory, place, each, before, given))
                held[place] = made[-1].after
        return made

    def _write(self, f: Fragment, lanes: Lanes, lane: int, op: Op, done: str, memory: Memory, place: int, size: int, before: int,
               given: Any) -> Write:
        key = self._space_of(f, memory), place, size
        word = self._words.get(key)
        if word is None:
            word = self._words[key] = Word()
        writes = word.writes
        if done in ("cas", "sum"):
            word.opaque = op
        if writes and writes[-1].after != before:                # a weak write: everything before it is known to whoever may go on
            writes.clear()
            word.waiters.clear()
            word.floors.clear()
        view = lanes.view(1 << lane)
        who = view.home.number, lanes.warp.base + lane
        depth = self._depth(word, view, who)
        operand = int(lane_of(given, lane)) & (1 << 8 * size) - 1
        write = Write(f.cta, *who, lanes.warp.epoch, op, done, operand, before, 0, depth)
        write.after = result(write, before) & (1 << 8 * size) - 1
        for waiter in word.waiters:
            if self._is_known(view, who, waiter):
                continue
            try:
                if len(writes) >= MOST_WRITES:
                    raise Open(f"more than {MOST_WRITES:,} writes of a word are not looked at")
                waiter.values = self._later(write, waiter.seen, waiter.values, waiter.goes_on)
                loop = self.polls.load(waiter.op)
                if loop is not None:
                    self._several(waiter.op, loop, waiter.values)
            except Open as why:
                self.withhold(waiter.op, f"`{waiter.op.opcode}` has waited for {self._word_name(f, memory, place)}: {why}", "order")
        writes.append(write)
        return write

    def _space_of(self, f: Fragment, memory: Memory) -> int:
        """The memory of a word: the number of the cluster of shared memory, -1 for global memory."""
        return self.home(f.cta.cluster).number if memory.space == "shared" else -1

    def _blurs(self, f: Fragment, region: Region, op: Op) -> None:
        """An asynchronous reduction of words that may be polled."""
        starts = [region.starts] if isinstance(region.starts, int) else region.starts.tolist()
        space = self._space_of(f, region.memory) if self._words else 0
        for (memory, place, size), word in self._words.items():
            if memory == space and any(start < place + size and place < start + region.length for start in starts):
                word.opaque = op
                for waiter in word.waiters:
                    self.withhold(waiter.op, f"`{waiter.op.opcode}` waits for a word that {self.site(op.index)} changes", "order", op.index)

    def _depth(self, word: Word, view: View, who: tuple[int, int]) -> int:
        """So many writes of the word, from the first on, are known."""
        for i in range(len(word.writes) - 1, -1, -1):
            write = word.writes[i]
            if write.depth == i and (i < word.floors.get(who, 0) or self._is_known(view, who, write)):
                depth = i + 1
                break
        else:
            depth = 0
        while depth < len(word.writes) and (depth < word.floors.get(who, 0) or self._is_known(view, who, word.writes[depth])):
            depth += 1
        return depth

    def _word_name(self, f: Fragment, memory: Memory, place: int) -> str:
        return self.place(f.cta.cluster, place) if memory.space == "shared" else self._global_name(place)

    def _global_name(self, place: int) -> str:
        raise NotImplementedError

    def _allocation(self, memory: Memory, place: int) -> GlobalShadow | None:
        raise NotImplementedError


class _Registers(dict[int, Any]):
    """One lane's registers, taken from a warp's as they are asked for."""

    def __init__(self, values: list[Any], lane: int) -> None:
        super().__init__()
        self.values_of = values
        self.lane = lane

    def __missing__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(index.start, index.stop)]
        return lane_of(self.values_of[index], self.lane)


def _reads_only(op: Op) -> bool:
    """A strong load of one word, or an atomic that leaves what is there."""
    if op.tokens[0] == "ld":
        return not isinstance(op.operand("d"), Vector)
    given = op.operand("b")
    return op.tokens[0] == "atom" and op.bindings.get("op") in ("add", "or", "xor") and isinstance(given, Immediate) and not given.value \
        and isinstance(op.operand("d"), Register)


def result(write: Write, old: int) -> int:
    """A word after a write, from what it held before."""
    size = width(str(write.op.bindings["type"]))
    name, given, most = write.done.split()[0], write.operand, (1 << size) - 1
    if name == LAST:
        return given
    if name in ("and", "or", "xor"):
        return {"and": old & given, "or": old | given, "xor": old ^ given}[name]
    if name == "add":
        return old + given & most
    if name == "inc":
        return 0 if old >= given else old + 1
    if name == "dec":
        return given if old == 0 or old > given else old - 1
    if name in ("min", "max") and write.done.split()[1][0] in "us":
        choose = min if name == "min" else max
        return choose(old, given) if write.done.split()[1][0] == "u" else choose(old, given, key=lambda v: signed(v, size))
    return old
