"""Instructions that lanes of a warp execute together: who takes part, who is waited for, what they exchange.

A `.sync` with a member mask waits until every lane of the mask that has not exited has executed one with the same qualifiers and the same
mask, perhaps another instruction in another arm of a branch. An `.aligned` instruction is executed by the whole warp together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..grammar.operands import width
from .errors import Fault
from .fragment import Fragment, Wait, merged
from .values import FULL, lane_list, lane_of, mask_of, merge

if TYPE_CHECKING:
    from .cta import Warp
    from .program import Op


@dataclass(slots=True)
class Part:
    """The token of a fragment that waits at a collective for other lanes: the instruction, its lanes, its function and its sources."""

    op: Op
    mask: int
    run: Collective
    sources: Callable[[], tuple[Any, ...]]


@dataclass(slots=True)
class Answer:
    """The token of a fragment whose collective is complete: the results, of all its lanes."""

    value: Any


class Gathering(Fragment):
    """The lanes of several fragments for the time of one collective."""

    __slots__ = ("parts",)
    parts: list[tuple[Fragment, Op, int]]


def meets(op: Op) -> bool:
    """Whether lanes that are apart meet at an instruction: it has a member mask, is `.aligned`, or opens a series of wgmma."""
    return op.signature.form.effects.convergence == "warp" or op.tokens[:2] == ["wgmma", "fence"]


def full(members: Any) -> bool:
    """Whether a member mask names the whole warp, in every lane."""
    return type(members) is int and members == FULL


def named(members: Any, lanes: int) -> list[tuple[int, int]]:
    """(member mask, the executing lanes that give it)."""
    if type(members) is int:
        return [(members, lanes)]
    found: dict[int, int] = {}
    for lane in lane_list(lanes):
        value = int(members[lane])
        found[value] = found.get(value, 0) | 1 << lane
    return list(found.items())


def meet(f: Fragment, op: Op, run: Collective, members: Any, sources: Callable[[], tuple[Any, ...]]) -> bool:
    """At an instruction with a member mask: whether the fragment must wait for lanes that are elsewhere."""
    if type(f.token) is Answer:
        return False
    f.token = None
    lanes = f.mask if op.guard is None else f.mask & (mask_of(f.R[op.guard.index]) ^ (FULL if op.negated else 0))
    if not lanes:
        return False
    every = 0
    for value, those in named(members, lanes):
        if those & ~value:
            raise Fault("membermask", f"`{op.opcode}` of {f.warp!r}: lanes {those & ~value:#010x} execute it with the member mask "
                        f"{value:#010x}, which does not name them", "a mask of the lanes that execute it", op)
        every |= value
    wanted = every & f.warp.live
    absent = wanted & f.mask & ~lanes
    if absent and _has_counterpart(f, op):
        f.part([(lanes, f.block), (f.mask & ~lanes, f.block + 1)], f.block + 1)
    elif absent:
        raise Fault("divergent-sync", f"`{op.opcode}` of {f.warp!r} names lanes {absent:#010x}, which their guard keeps from "
                    "executing it", "name the lanes that execute it, or let all of them", op)
    if not wanted & ~lanes:
        return False
    f.token = Part(op, lanes, run, sources)
    return _gather(f, op, (op.opcode, every), lanes, wanted)


def _has_counterpart(f: Fragment, op: Op) -> bool:
    """Whether lanes that the guard keeps from the instruction have one of their own: `@p shfl ...; @!p shfl ...;`."""
    return any(other.opcode == op.opcode and other.guard is not None and op.guard is not None and other.guard.index == op.guard.index
               and other.negated != op.negated for other in f.machine.program.ops)


def align(f: Fragment, op: Op, lanes: int | None = None) -> bool:
    """At an instruction for the whole warp, of which only some lanes (those of the guard) are here: whether to wait for the others."""
    if lanes is not None and f.mask & ~lanes:
        raise Fault("divergent-sync", f"`{op.opcode}` of {f.warp!r} is executed by lanes {lanes:#010x} only, their guard keeps lanes "
                    f"{f.mask & ~lanes:#010x} from it: it is for the whole warp together (.aligned)",
                    "a condition that all lanes of a warp evaluate alike", op)
    return _gather(f, op, ("aligned", op.index), f.mask, f.warp.live)


def _gather(f: Fragment, op: Op, key: tuple[str, int], lanes: int, wanted: int) -> bool:
    """Wait with the others that have come, or go on together when all have."""
    machine, meetings = f.machine, f.warp.meetings
    others = meetings.setdefault(key, [])
    here = lanes
    for other in others:
        here |= other.token.mask if isinstance(other.token, Part) else other.mask
    if wanted & ~here:
        _crossed(f, op, key, wanted)
        machine.sleep(f, others, Wait("aligned" if key[0] == "aligned" else "warp", op, f.warp, wanted))
        return True
    del meetings[key]
    if not others:
        return False
    machine.progress += 1
    parts = [*others, f]
    together = all(p.join is f.join and p.stack is f.stack and (key[0] == "aligned" or p.token.op is op) for p in parts)
    if together and (key[0] == "aligned" or all(p.token.mask == p.mask for p in parts)):
        _merge(f, op, parts)
        return True
    if key[0] == "aligned":
        raise Fault("divergent-sync", f"lanes of {f.warp!r} come to `{op.opcode}` from places that do not meet again together",
                    "execute it where the lanes have reconverged", op)
    _exchange(f.warp, parts)
    machine.wake(others)
    return False


def _crossed(f: Fragment, op: Op, key: tuple[str, int], wanted: int) -> None:
    """Lanes of a warp at two instructions, each of which waits for the lanes at the other."""
    for of, waiting in f.warp.meetings.items():
        for other in waiting:
            if of != key and other.wait is not None and other.wait.phase & f.mask and wanted & other.mask:
                there = other.wait.op.python or other.wait.op.position
                raise Fault("divergent-sync", f"lanes {f.mask:#010x} of {f.warp!r} are at `{op.opcode}` and lanes {other.mask:#010x} at "
                            f"`{other.wait.op.opcode}`{f' ({there})' if there else ''}: each waits for the lanes at the other",
                            "one instruction, where the lanes of the warp have reconverged", op)


def _merge(f: Fragment, op: Op, parts: list[Fragment]) -> None:
    """The fragments become one, which executes the instruction again."""
    machine = f.machine
    if machine.watch is not None:
        machine.watch.joined(sorted(parts, key=lambda p: -p.mask.bit_count()))
    whole = merged(parts, machine.live(op.block), machine.program.owner[op.block].widths)
    for part in parts:
        machine.sleeping.pop(part, None)
        part.wait = part.token = None
        if part is not whole:
            part.mask = 0
    whole.block = op.block
    if whole is not f:
        machine.ready.append(whole)


def _exchange(warp: Warp, parts: list[Fragment]) -> None:
    """Execute the instructions of all parts as one, and leave each its answer."""
    machine = warp.machine
    gathered = [(part, part.token.op, part.token.mask) for part in parts]
    if machine.watch is not None:
        machine.watch.warp_meet([(part, mask) for part, _, mask in gathered], gathered[0][1])
    mask = 0
    sources: tuple[Any, ...] = ()
    for part, op, lanes in gathered:
        given = part.token.sources()
        sources = given if not mask else tuple(merge(lanes, new, old, bits)
                                               for new, old, bits in zip(given, sources, _widths(op, "r"), strict=True))
        mask |= lanes
    whole = Gathering(machine, warp, [], mask, parts[0].block)
    whole.parts = gathered
    value = parts[0].token.run.grouped(whole, mask, sources)
    for part in parts:
        part.token = Answer(value)


def _widths(op: Op, access: str) -> list[int]:
    return [1 if str(p.operand.type) == "pred" else width(str(p.operand.type))
            for p, o in op.parameters() if p.operand.access == access and (o is not None or access == "r")]


class Collective:
    """The function of an instruction with a member mask: once per mask that its lanes give."""

    def __init__(self, op: Op, run: Callable[..., Any]) -> None:
        self.op = op
        self.run = run

    def __call__(self, f: Fragment, mask: int, *sources: Any) -> Any:
        if type(f.token) is Answer:
            value, f.token = f.token.value, None
            return _narrowed(value, f.lane)
        if f.machine.watch is not None:
            f.machine.watch.warp_sync(f, mask, self.op)
        if type(sources[-1]) is int:
            return self.run(f, mask, *sources)
        return self.grouped(f, mask, sources)

    def grouped(self, f: Fragment, mask: int, sources: tuple[Any, ...]) -> Any:
        """The lanes of each mask among themselves."""
        found: Any = None
        for members, lanes in named(sources[-1], mask):
            new = self.run(f, lanes, *sources[:-1], members)
            found = new if found is None else self._merged(lanes, new, found)
        return found

    def _merged(self, lanes: int, new: Any, old: Any) -> Any:
        bits = _widths(self.op, "w")
        if isinstance(new, tuple):
            return tuple(merge(lanes, n, o, b) for n, o, b in zip(new, old, bits, strict=True))
        return None if new is None else merge(lanes, new, old, bits[0])


def _narrowed(value: Any, lane: int | None) -> Any:
    if value is None or lane is None:
        return value
    return tuple(lane_of(v, lane) for v in value) if isinstance(value, tuple) else lane_of(value, lane)
