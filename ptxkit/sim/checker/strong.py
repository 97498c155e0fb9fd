"""Strong accesses: what they synchronise with, and what of them depends on the order in which they come.

Strong accesses of one word need no order among themselves. So what a strong read gives, and what unordered strong writes leave, may depend
on the schedule. Two writes *commute* where either order leaves the same: two additions of integers, two stores of one value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.operands import width
from ..operand import Immediate
from ..values import Array, indices, lane_list, lane_of
from .clocks import SEEN, Lanes, Published, View
from .global_shadow import GlobalShadow, History
from .shadow import Prior, Shadow
from .sources import SourceRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cta import Cta
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op
    from ..tasks import Task

@dataclass(slots=True)
class Strong:
    """A strong access of lanes that know the same: the shadow of its memory, the cells and the lane of each.

    `together`: all lanes access one place; `meet`: two lanes access one. Of a store, `changes` are the cells (indices) that get another
    value, and `differ` says whether lanes store different values at one place.
    """

    f: Fragment
    lanes: Lanes
    view: View
    mask: int
    op: Op
    mode: str
    where: Shadow | GlobalShadow
    cells: Array
    each: Array
    together: bool
    meet: bool
    changes: Array | None = None
    differ: bool = True


ASKED, WROTE = "asked ", "wrote "
"""Kinds of accesses in a shadow: strong reads whose result is used, by instruction, and strong writes, by what they do."""
LAST, EITHER = "set", frozenset({"set", "cas", "sum"})
"""Operations that do not commute with themselves; stores of one value do."""


def operation(op: Op, element: str = "") -> str:
    """What a strong write does to a word, so that two of one name commute. `element`: the type of a tensor map's elements."""
    name = op.bindings.get("op") or op.bindings.get("redOp") or LAST
    type = element or str(op.bindings.get("type", ""))
    if name in (LAST, "exch"):
        return LAST
    if name == "cas":
        return name
    if name == "add":
        return "sum" if type[:1] not in "us" else f"add {width(type)}"
    if name in ("and", "or", "xor"):
        return f"{name} {width(type.partition('.')[0])}"
    if name in ("inc", "dec"):
        limit = op.operand("b")
        return f"{name} {limit.value}" if isinstance(limit, Immediate) else "cas"
    return f"{name} {type}"


class StrongRules(SourceRules):
    def __init__(self) -> None:
        super().__init__()
        self._published: dict[tuple[int, int], dict[Cta, Published]] = {}
        self._kept: list[Any] = []
        """Writes that are kept, of the access that is being made."""

    # ------------------------------------------------------------------------------------------- order

    def _judge(self, access: Strong, name: Callable[[int], str]) -> bool:
        """Before a strong access: whether what it synchronises with is the same in every schedule, or does not matter any more."""
        fixed = True
        if access.mode != "w":
            fixed = self._asks(access, name)
        if access.mode != "r":
            self._leaves(access, name)
        return fixed

    def _asks(self, access: Strong, name: Callable[[int], str]) -> bool:
        """A read: of words that others write, before it or after it, with nothing that orders them."""
        op, where, warp = access.op, access.where, access.f.warp
        if not op.writes():
            return False                                         # `red`: nobody reads, and nothing is acquired
        reach = self.reach(op, "order")
        prior = None
        for key in [key for key in where.kinds if key.startswith(WROTE)]:
            prior = prior or self._unordered(access, key)
        if reach is None:
            return prior is None
        if prior is not None:
            self.blame(op, "order", f"`{op.opcode}` of {warp!r} reads {name(prior.cell)}, which {self.site(prior.site)} writes, with "
                        "nothing that orders the two", reach)
        elif access.mode == "a" and access.meet:
            self.blame(op, "order", f"lanes of {warp!r} come to one address with `{op.opcode}`, in any order", reach)
        self._remember(access, f"{ASKED}{op.index}")
        return True

    def _leaves(self, access: Strong, name: Callable[[int], str]) -> None:
        """A write: whoever has read, or written, the word and is not ordered with it."""
        op, where, warp = access.op, access.where, access.f.warp
        for key in [key for key in where.kinds if key.startswith(ASKED)]:
            asked = self.machine.program.ops[int(key[len(ASKED):])]
            reach = self.reach(asked, "order")
            prior = self._unordered(access, key)
            if prior is not None and reach is not None:
                self.blame(asked, "order", f"`{asked.opcode}` reads {name(prior.cell)}, which {self.site(op.index)} writes, with nothing "
                            "that orders the two", reach)
        done = operation(op)
        for key in [key for key in where.kinds if key.startswith(WROTE)]:
            same = key == WROTE + done
            if same and done not in EITHER:
                continue
            prior = self._unordered(access, key, changes=same and done == LAST)
            if prior is not None:
                self.withhold(op, f"what is left in {name(prior.cell)} depends on which of `{op.opcode}` of {warp!r} and "
                              f"{self.site(prior.site)} comes last: nothing orders the two", "order", prior.site)
        if done in EITHER and op.tokens[0] != "st" and (access.differ if done == LAST else access.meet):
            self.withhold(op, f"what is left in {name(int(access.cells[0]))} depends on the order of the lanes of {warp!r} that come to "
                          f"one address with `{op.opcode}`", "order")
        self._remember(access, WROTE + done)

    def _unordered(self, access: Strong, key: str, *, changes: bool = False) -> Prior | None:
        """An access of that kind to one of the cells that is not known to come before. `changes`: of cells that get another value."""
        where, view, base, cells, each = access.where, access.view, access.lanes.warp.base, access.cells, access.each
        if changes and access.changes is not None:
            cells, each = cells[access.changes], each[access.changes]
            if not len(cells):
                return None
        return self._unknown(where, key, cells, view, view.fit()[SEEN], SEEN, base, each)

    def _unknown(self, where: Shadow | GlobalShadow, key: str, cells: Any, view: View, known: Array, row: int, base: int,
                 each: Array | None) -> Prior | None:
        if isinstance(where, Shadow):
            return where.unknown((key,), cells, known, each, base) if key in where.kinds else None
        history = where.kinds.get(key)
        if history is None:
            return None
        home = view.home.number

        def of(number: int) -> Array | None:
            theirs = None if number == home else view.of(number)
            return known if number == home else None if theirs is None else theirs[row]

        found = history.unknown(cells, of, (home, base), each)
        return None if found is None else Prior(int(cells[found[0]]), found[2], found[3], found[4], True)

    def _reduces(self, f: Fragment, task: Task, where: Shadow | GlobalShadow, cells: Any, view: View, known: Array, row: int, agent: int,
                 clock: int, name: Callable[[int], str]) -> None:
        """An asynchronous reduction, as `_leaves`."""
        op, done = task.op, operation(task.op, task.element)
        for key in [key for key in where.kinds if key.startswith((ASKED, WROTE))]:
            if key == WROTE + done and done not in EITHER:
                continue
            prior = self._unknown(where, key, cells, view, known, row, -1, None)
            if prior is None:
                continue
            if key.startswith(WROTE):
                self.withhold(op, f"what is left in {name(prior.cell)} depends on which of `{op.opcode}` of {f.warp!r} and "
                              f"{self.site(prior.site)} comes last: nothing orders the two", "order", prior.site)
                continue
            asked = self.machine.program.ops[prior.site]
            reach = self.reach(asked, "order")
            if reach is not None:
                self.blame(asked, "order", f"`{asked.opcode}` reads {name(prior.cell)}, which {self.site(op.index)} changes, with nothing "
                           "that orders the two", reach)
        if isinstance(where, Shadow):
            where.kinds.setdefault(WROTE + done, {})
            where.accessed(WROTE + done, agent, cells, clock, op.index)
        else:
            where.kinds.setdefault(WROTE + done, History(where)).add((view.home.number, agent), cells, clock, op.index, None, 0)

    def _remember(self, access: Strong, key: str) -> None:
        where, warp, view = access.where, access.lanes.warp, access.view
        floor = int(view.fit()[SEEN][warp.own].min())
        lanes = access.mask if access.together else access.each
        if isinstance(where, Shadow):
            where.kinds.setdefault(key, {})
            where.accessed(key, warp.base, access.cells, warp.epoch, access.op.index, lanes, floor)
        else:
            who = view.home.number, warp.base
            where.kinds.setdefault(key, History(where)).add(who, access.cells, warp.epoch, access.op.index, lanes, floor)

    # ------------------------------------------------------------------------------------------- synchronisation

    def _acquire(self, f: Fragment, lanes: Lanes, mask: int, op: Op, memory: Memory, places: Places) -> None:
        """A strong read may synchronise with the strong writes that led to what it reads, where both scopes include both threads."""
        tokens = op.tokens
        orders = "acquire" in tokens or "acq_rel" in tokens
        scope = scope_of(tokens)
        for place, some in words(mask, places if type(places) is int else places[indices(mask)]).items():
            for cta, found in self._published.get((id(memory), place), {}).items():
                apart = 0 if cta is f.cta else 1 if cta.cluster is f.cta.cluster else 2
                _take(lanes, some, found, apart, reaches=scope >= apart, visible=orders)

    def _release(self, f: Fragment, lanes: Lanes, mask: int, op: Op, mode: str, memory: Memory, at: Any) -> None:
        """Each word gets what the lanes that write it know: no lane's release is another's. (Where nothing is visible, all of them do.)

        Lanes that come to one word with an atomic read what those before them left. Which these are is open: that counts as read only where
        the result lasts, so that there is no certificate.
        """
        scope, visible = scope_of(op.tokens), "release" in op.tokens or "acq_rel" in op.tokens
        by_place = words(mask, at)
        if len(by_place) > 1 and (visible or any(lanes.sealed)):
            outs = {place: lanes.publish(some, scope, visible=visible) for place, some in by_place.items()}
        else:
            outs = dict.fromkeys(by_place, lanes.publish(mask, scope, visible=visible))
        for write in self._kept:
            write.published = outs[int(at if isinstance(at, int) else at[lane_list(mask).index(write.agent - lanes.warp.base)])]
        self._kept = []
        for place, out in outs.items():
            key = id(memory), place
            if mode != "a":
                self._published[key] = {f.cta: out}
                continue
            known = self._published.setdefault(key, {})
            known[f.cta] = out.and_before(known[f.cta]) if f.cta in known else out
            some = by_place[place]
            if some & some - 1 and op.writes() and self.reach(op, "order") is not None:
                _take(lanes, some, out, 0, reaches=True, visible="acquire" in op.tokens or "acq_rel" in op.tokens)


def _take(lanes: Lanes, mask: int, found: Published, apart: int, *, reaches: bool, visible: bool) -> None:
    """Lanes have read what was published so far apart: 0 by their CTA, 1 by their cluster, 2 beyond it."""
    seen = found.seen[apart] if reaches else None
    if seen is None:
        lanes.learn(mask, found.done)
    else:
        lanes.acquire(mask, seen, visible=visible, apart=apart)


def words(mask: int, at: Any) -> dict[int, int]:
    """Which lanes access each place; `at`: a place for all, or one for each lane of the mask."""
    if isinstance(at, int):
        return {at: mask}
    found: dict[int, int] = {}
    for lane, place in zip(lane_list(mask), at, strict=True):
        found[int(place)] = found.get(int(place), 0) | 1 << lane
    return found


def stored(memory: Memory, at: Any, mask: int, values: Any, size: int) -> tuple[Array, bool]:
    """Of a store: which lanes change what is there, and whether two lanes store different values at one place."""
    lanes, left, differ = lane_list(mask), dict[int, bytes](), False
    changed = np.zeros(len(lanes), bool)
    most = (1 << 8 * size) - 1
    for i, lane in enumerate(lanes):
        place = at if isinstance(at, int) else int(at[i])
        new = b"".join((int(lane_of(value, lane)) & most).to_bytes(size, "little") for value in values)
        changed[i] = new != memory.data[place:place + len(new)].tobytes()
        differ = differ or left.setdefault(place, new) != new
    return changed, differ


def scope_of(tokens: list[str]) -> int:
    """0 the CTA, 1 its cluster, 2 the device or the system (and what has no scope)."""
    return 0 if "cta" in tokens else 1 if "cluster" in tokens else 2
