"""Races, missing proxy fences and uninitialised reads, in shared and in global memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory import Allocation
from ..tasks import Region, Task
from ..values import Array, indices
from .base import Base
from .clocks import GLOBAL, MAPS, SEEN, SHARED, Home, Lanes, Published, View
from .shadow import ATOMIC, POLL, READ, GlobalShadow, Prior, Shadow, parts, stamps

if TYPE_CHECKING:
    from ..cta import Cluster, Cta
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op

BANKS_LOOKED_AT = 4
"""How many executions of an instruction the bank advice looks at."""
EVER = np.iinfo(np.int32).max


class MemoryRules(Base):
    """Every access is compared with the last write, and a write with all reads since, of the same bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._globals: dict[int, tuple[Allocation, GlobalShadow]] = {}
        self._published: dict[tuple[int, int], dict[Cta, Published]] = {}
        self._map: tuple[GlobalShadow, Array] | None = None
        self._looked: dict[int, int] = {}
        self._read: set[int] | None = None
        self.swizzles: dict[int, int] = {}
        """The span that each tensor copy (its instruction's index) wrote with last."""

    # ------------------------------------------------------------------------------------------- generic accesses

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool) -> None:
        space = memory.space
        if space != "shared" and space != "global":
            return
        self.accesses += 1
        lanes = self.lanes(f)
        lanes.warp.used = True
        if strong:
            self._acquire(f, lanes, mask, op, mode, memory, places)
        every: Any = places
        at: Any = every if type(every) is int else every[indices(mask)]
        if space == "shared":
            self._remote(f, mask, op, at)
            self._overlaps(f, op, mode, at, size)
            if type(at) is not int:
                self._banks(op, at, size)
        for m, view in lanes.groups:
            if m & mask:
                some = m & mask
                chosen = at if isinstance(at, int) or some == mask else np.asarray(places)[indices(some)]
                if space == "shared":
                    self._shared(f, lanes, view, some, op, mode, chosen, size, strong)
                else:
                    self._global(f, lanes, view, some, op, mode, memory, chosen, size, strong)
        if strong and mode != "r":
            self._release(f, lanes, mask, op, mode, memory, at)

    def _shared(self, f: Fragment, lanes: Lanes, view: View, mask: int, op: Op, mode: str, at: Any, size: int, strong: bool) -> None:
        shadow = self.shadow(f.cta.cluster)
        shadow.fit(at, size)
        warp = lanes.warp
        each: Array
        if type(at) is int:
            cells = np.arange(at >> shadow.shift, at + size >> shadow.shift)
            each = np.full(len(cells), mask.bit_length() - 1)
        else:
            count = size >> shadow.shift
            cells, each = at >> shadow.shift, indices(mask)
            if count > 1:
                cells = (cells[:, None] + np.arange(count)).reshape(-1)
                each = np.repeat(each, count)
        known = view.fit()[SEEN]
        together = type(at) is int and mask & mask - 1 != 0
        scope = 1 + scope_of(op.tokens) if strong else 0
        bad = shadow.writes_unknown(cells, known)
        if bad is not None:
            self._write_conflict(f, lanes, op, shadow, cells, each, bad, mode, together=together, strong=scope)
            if strong and mode != "w" and self._used(op):
                self.polled(f, mask, op)
        if mode != "w" and shadow.unwritten(cells):
            self._uninitialised(f, op, shadow, cells)
        prior = shadow.unknown(_against(mode, strong), cells, known, each, warp.base)
        if prior is not None:
            self._race(f, op, prior, "shared", "reads" if mode == "r" else "writes", f.cta.cluster)
        if mode != "r":
            shadow.wrote(cells, each + warp.base, warp.epoch, op.index, scope)
        if mode == "r" or strong:
            shadow.accessed(_kind(mode, strong), warp.base, cells, warp.epoch, op.index, mask if type(at) is int else each,
                            int(known[warp.own].min()))

    def _write_conflict(self, f: Fragment, lanes: Lanes, op: Op, shadow: Shadow, cells: Any, each: Array, bad: Array, mode: str, *,
                        together: bool, strong: int) -> None:
        """`strong`: the scope of a strong access + 1."""
        warp = lanes.warp
        agents, clocks = shadow.agent[cells][bad], shadow.epoch[cells][bad]
        wrong = np.ones(len(bad), bool) if together else agents != warp.base + each[bad]
        if strong:
            apart = agents // (32 * self.home(f.cta.cluster).warps_per_cta) != f.cta.rank
            wrong &= np.minimum(shadow.strong[cells][bad], strong) <= apart
        if warp.copies >= 0:
            wrong &= ~((agents == warp.copies + each[bad]) & (clocks <= warp.copied[each[bad]]))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            prior = shadow.write_at(cells, int(bad[first]), int(each[bad[first]]))
            self._race(f, op, prior, "shared", "reads" if mode == "r" else "writes", f.cta.cluster)

    def _race(self, f: Fragment, op: Op, prior: Prior, space: str, verb: str, cluster: Cluster) -> None:
        home = self.home(cluster)
        shadow = self.shadow(cluster)
        who = home.describe(prior.agent)
        where = self.place(cluster, prior.cell << shadow.shift)
        did = "wrote" if prior.wrote else "read"
        lane = f" lane {prior.lane}" if prior.lane >= 0 else ""
        earlier = f"{self.site(prior.site)} of {who.name}"
        if who.kind == "lane":
            message = f"{f.warp!r}{lane} {verb} {where}, which {earlier} {did}, with nothing that orders the two"
        else:
            message = f"{f.warp!r}{lane} {verb} {where}, while {earlier} may still be {'writing' if prior.wrote else 'reading'} it"
        self.report("shared-race" if space == "shared" else "global-race", op, message, other=(prior.site, prior.wrote))

    def _uninitialised(self, f: Fragment, op: Op, shadow: Shadow, cells: Any, rule: str = "shared-uninitialised") -> None:
        first = int(np.flatnonzero(shadow.epoch[cells] == 0)[0])
        cell = cells.start + first if isinstance(cells, slice) else int(cells[first])
        self.report(rule, op, f"{f.warp!r} reads {self.place(f.cta.cluster, cell << shadow.shift)} with `{op.opcode}`, which nothing has "
                    "written")

    # ------------------------------------------------------------------------------------------- global memory

    def _allocation(self, memory: Memory, place: int) -> GlobalShadow | None:
        found = memory.allocation(place, place + 1)
        if found is None:
            return None
        kept = self._globals.get(id(found))
        if kept is None:
            kept = self._globals[id(found)] = found, GlobalShadow(found.start, found.stop)
        return kept[1]

    def _global(self, f: Fragment, lanes: Lanes, view: View, mask: int, op: Op, mode: str, memory: Memory, at: Any, size: int,
                strong: bool) -> None:
        low, high = (at, at) if type(at) is int else (int(np.min(at)), int(np.max(at)))
        shadow = self._allocation(memory, low)
        if shadow is None or high >= shadow.start + shadow.bytes:
            return
        cells = shadow.cells(at, size)
        each = np.repeat(indices(mask), len(cells) // mask.bit_count()) if type(at) is not int \
            else np.full(len(cells), mask.bit_length() - 1)
        warp = lanes.warp
        known = view.fit()[SEEN]
        own = each + warp.base
        scope = 1 + scope_of(op.tokens) if strong else 0
        if shadow.touched:
            self._last_write(f, op, shadow, cells, view, known, SEEN, own, scope, mode)
            if "nc" in op.tokens:
                self._not_constant(f, op, shadow, cells)
        if shadow.touched or mode != "r":
            self._others(f, op, shadow, _against(mode, strong), cells, view, known, SEEN, warp.base, each, mode)
        if mode != "r":
            shadow.wrote(cells, stamps(view.home.number, own.astype(np.int64), warp.epoch), op.index, scope)
        if mode == "r" or strong:
            shadow.kinds[_kind(mode, strong)].add((view.home.number, warp.base), cells, warp.epoch, op.index,
                                                  mask if type(at) is int else each, int(known[warp.own].min()))

    def _last_write(self, f: Fragment, op: Op, shadow: GlobalShadow, cells: Array, view: View, known: Array, row: int, own: Array | None,
                    strong: int, mode: str) -> None:
        """`known`: the clocks of the view's own cluster; `own`: the lanes that access; `strong`: the scope of a strong access + 1."""
        stamp = shadow.write[cells]
        if not stamp.any():
            return
        number, agent, clock = parts(stamp)
        mine = number == view.home.number
        fine = (stamp == 0) | (mine & (known[np.where(mine, agent, 0)] >= clock))
        if strong and mode != "w" and not fine.all() and self._used(op):
            self.polled(f, f.mask, op)
        if own is not None:
            fine |= mine & (agent == own)
        if strong:
            per_cta = 32 * view.home.warps_per_cta
            apart = np.where(mine, np.where(agent // per_cta == f.cta.rank, 0, 1), 2)
            fine |= np.minimum(shadow.strong[cells], strong) > apart
        if fine.all():
            return
        for other in {int(n) for n in number[~fine]} - {view.home.number}:
            theirs = self._far(view, other, row)
            if theirs is not None:
                there = number == other
                reach = np.where(there & (agent < len(theirs)), agent, 0)
                fine |= there & (theirs[reach] >= clock)
        if fine.all():
            return
        i = int(np.flatnonzero(~fine)[0])
        who = int(number[i]), int(agent[i]), int(clock[i])
        self._global_race(f, op, shadow, int(cells[i]), who, int(shadow.site[cells[i]]), row, view, mode, wrote=True)

    def _not_constant(self, f: Fragment, op: Op, shadow: GlobalShadow, cells: Array) -> None:
        written = np.flatnonzero(shadow.write[cells])
        if len(written):
            cell = int(cells[written[0]])
            self.report("nc-load", op, f"{f.warp!r} reads {self._global_name(shadow.start + (cell << shadow.shift))} with `{op.opcode}`, "
                        f"and {self.site(int(shadow.site[cell]))} has written it in the same grid", other=int(shadow.site[cell]))

    def _others(self, f: Fragment, op: Op, shadow: GlobalShadow, kinds: tuple[str, ...], cells: Array, view: View, known: Array, row: int,
                base: int, own: Array | None, mode: str) -> None:
        """The accesses of these kinds that must come before this one."""
        home = view.home.number
        for kind in kinds:
            found = shadow.kinds[kind].unknown(cells, lambda number: known if number == home else self._far(view, number, row),
                                               (home, base), own)
            if found is not None:
                i, *who, site = found
                self._global_race(f, op, shadow, int(cells[i]), tuple(who), site, row, view, mode, wrote=kind == ATOMIC)

    def _far(self, view: View, number: int, row: int) -> Array | None:
        theirs = view.far.get(self.homes[number]) if view.far else None
        return None if theirs is None else theirs[row]

    def _global_race(self, f: Fragment, op: Op, shadow: GlobalShadow, cell: int, who: tuple[int, ...], site: int, row: int, view: View,
                     mode: str, *, wrote: bool) -> None:
        number, agent, clock = who
        name = self._global_name(shadow.start + (cell << shadow.shift))
        rule = "global-race"
        if row == MAPS:
            rule = "tensormap-fence"
        elif row != SEEN and self._is_seen(f, view, number, agent, clock):
            rule = "proxy-fence"
        verb = "reads" if mode == "r" else "writes"
        message = f"{f.warp!r} {verb} {name}, which {self.site(site)} of {self.homes[number].describe(agent).name} " \
                  f"{'wrote' if wrote else 'read'}, with "
        words = {"proxy-fence": "no proxy fence between the two", "tensormap-fence": "no fence of the tensormap proxy between the two"}
        self.report(rule, op, message + words.get(rule, "nothing that orders the two"), other=(site, wrote))

    def _is_seen(self, f: Fragment, view: View, number: int, agent: int, clock: int) -> bool:
        if number != view.home.number:
            theirs = view.far.get(self.homes[number]) if view.far else None
            return theirs is not None and bool(theirs[SEEN][agent] >= clock)
        base = self.lanes(f).warp.base
        return bool(view.fit()[SEEN][agent] >= clock) or base <= agent < base + 32

    def _global_name(self, place: int) -> str:
        found = self.machine.memory.allocation(place, place + 1)
        return f"global memory +{place:#x}" if found is None else f"{found.name} +{place - found.start:#x}"

    # ------------------------------------------------------------------------------------------- strong accesses

    def _acquire(self, f: Fragment, lanes: Lanes, mask: int, op: Op, mode: str, memory: Memory, places: Places) -> None:
        """A strong read may synchronise with the strong writes that led to what it reads, where both scopes include both threads."""
        if mode == "w":
            return
        tokens = op.tokens
        orders = "acquire" in tokens or "acq_rel" in tokens
        scope = scope_of(tokens)
        for place in {places} if type(places) is int else {int(p) for p in places[indices(mask)]}:
            for cta, found in self._published.get((id(memory), place), {}).items():
                apart = 0 if cta is f.cta else 1 if cta.cluster is f.cta.cluster else 2
                seen = found.seen[apart] if scope >= apart else None
                if seen is None:
                    lanes.learn(mask, found.done)
                else:
                    lanes.acquire(mask, seen, visible=orders, apart=apart)

    def _release(self, f: Fragment, lanes: Lanes, mask: int, op: Op, mode: str, memory: Memory, at: Any) -> None:
        tokens = op.tokens
        out = lanes.publish(mask, scope_of(tokens), visible="release" in tokens or "acq_rel" in tokens)
        for place in {at} if isinstance(at, int) else {int(p) for p in at}:
            key = id(memory), place
            if mode != "a":
                self._published[key] = {f.cta: out}
                continue
            known = self._published.setdefault(key, {})
            known[f.cta] = out.and_before(known[f.cta]) if f.cta in known else out

    def _used(self, op: Op) -> bool:
        """Whether anything reads what the instruction writes into registers."""
        if self._read is None:
            self._read = set().union(*(other.reads() for other in self.machine.program.ops))
        return not self._read.isdisjoint(op.writes())

    # ------------------------------------------------------------------------------------------- tensor maps

    def tensormap(self, f: Fragment, lane: int, op: Op, memory: Memory, place: int) -> None:
        """The map must have been published, and acquired by the issuing thread, since it was last written."""
        self._map = None
        if memory.space != "global":
            return
        shadow = self._allocation(memory, place)
        if shadow is None:
            return
        cells = shadow.cells(place, 128)
        self._map = shadow, cells
        if shadow.touched:
            view = self.lanes(f).view(1 << lane)
            self._last_write(f, op, shadow, cells, view, view.fit()[MAPS], MAPS, None, 0, "r")

    # ------------------------------------------------------------------------------------------- asynchronous accesses

    def issued(self, f: Fragment, task: Task) -> None:
        self.accesses += 1
        lanes = self.lanes(f)
        home = self.home(f.cta.cluster)
        lanes.warp.used = True
        if task.kind == "copy":
            self._copy(f, task, lanes, home)
            return
        if task.kind == "copy arrive":
            task.shadow = lanes.release_copies(task.mask), lanes.warp
            return
        if task.swizzle is not None:
            self.swizzles[task.op.index] = task.swizzle
        reader, writers = self._agents(f, task, home)
        if self._map is not None:
            shadow, cells = self._map
            agent, clock = writers[0] if task.signals else reader
            shadow.kinds[READ].add((home.number, agent), cells, clock, task.op.index, None, 0)
            self._map = None
        for region in task.reads:
            self._async_read(f, task, lanes, home, region, *reader)
        for i, region in enumerate(task.writes):
            self._async_write(f, task, lanes, home, region, *writers[min(i, len(writers) - 1)])

    def _agents(self, f: Fragment, task: Task, home: Home) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        """(agent, clock) of the task's reads, and of each of its writes."""
        raise NotImplementedError

    def _rely(self, lanes: Lanes, mask: int, row: int, task: Task | None, *, writes: bool) -> Array:
        if task is not None and task.kind in ("store", "reduce"):
            found: Array = lanes.view(mask).fit()[SEEN].copy()
            found[lanes.warp.base + mask.bit_length() - 1] = EVER
            return found
        return lanes.asynchronous(mask, row, writes=writes)

    def _async_read(self, f: Fragment, task: Task, lanes: Lanes, home: Home, region: Region, agent: int, clock: int) -> None:
        if region.memory.space == "shared":
            shadow = self.shadow(f.cta.cluster)
            cells = _region_cells(shadow, region)
            self.async_read(f, task.op, lanes, task.mask, cells, shadow, "bulk-source-uninitialised", task)
            shadow.accessed(READ, agent, cells, clock, task.op.index)
            if task.signals:
                self.source(f, task.op, agent, clock)
        elif region.memory.space == "global":
            self._global_async(f, task, lanes, home, region, agent, clock, "r")

    def async_read(self, f: Fragment, op: Op, lanes: Lanes, mask: int, cells: Any, shadow: Shadow, rule: str,
                   task: Task | None = None, known: Array | None = None) -> None:
        """The async proxy reads cells of shared memory on behalf of these lanes."""
        if known is None:
            known = self._rely(lanes, mask, SHARED, task, writes=False)
        bad = shadow.writes_unknown(cells, known)
        prior = shadow.write_at(cells, int(bad[0])) if bad is not None else shadow.unknown((ATOMIC,), cells, known, None, -1)
        if prior is not None:
            self._async_conflict(f, op, lanes, mask, prior, "reads")
        if shadow.unwritten(cells):
            self._uninitialised(f, op, shadow, cells, rule)

    def _async_write(self, f: Fragment, task: Task, lanes: Lanes, home: Home, region: Region, agent: int, clock: int) -> None:
        if region.memory.space == "global":
            self._global_async(f, task, lanes, home, region, agent, clock, "w")
            return
        shadow = self.shadow(f.cta.cluster)
        cells = _region_cells(shadow, region)
        known = self._rely(lanes, task.mask, SHARED, task, writes=True)
        atomic = task.kind.endswith("reduce")
        bad = shadow.writes_unknown(cells, known)
        if bad is not None and atomic:
            bad = bad[shadow.strong[cells][bad] <= 1]
        prior = shadow.write_at(cells, int(bad[0])) if bad is not None and len(bad) else \
            shadow.unknown((READ,) if atomic else (READ, POLL, ATOMIC), cells, known, None, -1)
        if prior is not None:
            self._async_conflict(f, task.op, lanes, task.mask, prior, "writes")
        shadow.wrote(cells, agent, clock, task.op.index, 2 if atomic else 0)
        if atomic:
            shadow.accessed(ATOMIC, agent, cells, clock, task.op.index)
        low = cells.start if isinstance(cells, slice) else int(cells[0])
        self._overlaps(f, task.op, "w", low << shadow.shift, region.length)

    def _async_conflict(self, f: Fragment, op: Op, lanes: Lanes, mask: int, prior: Prior, verb: str) -> None:
        home = self.home(f.cta.cluster)
        who = home.describe(prior.agent)
        seen = bool(lanes.view(mask).fit()[SEEN][prior.agent] >= prior.clock)
        if who.kind == "lane":
            lane = prior.agent - lanes.warp.base
            seen = seen or (0 <= lane < 32 and mask >> lane & 1 == 1)
        if not seen or who.kind not in ("lane", "cp.async"):
            self._race(f, op, prior, "shared", verb + " (asynchronously)", f.cta.cluster)
            return
        shadow = self.shadow(f.cta.cluster)
        where = self.place(f.cta.cluster, prior.cell << shadow.shift)
        self.report("proxy-fence", op, f"`{op.opcode}` of {f.warp!r} {verb} {where} through the async proxy, which "
                    f"{self.site(prior.site)} of "
                    f"{who.name} {'wrote' if prior.wrote else 'read'} through the generic proxy, with no proxy fence between the two",
                    other=(prior.site, prior.wrote))

    def _global_async(self, f: Fragment, task: Task, lanes: Lanes, home: Home, region: Region, agent: int, clock: int, mode: str) -> None:
        starts = region.starts
        if not region.length or (not isinstance(starts, int) and not len(starts)):
            return
        first = starts if isinstance(starts, int) else int(starts[0])
        shadow = self._allocation(region.memory, first)
        if shadow is None:
            return
        cells = shadow.cells(starts, region.length)
        view = lanes.view(task.mask)
        known = self._rely(lanes, task.mask, GLOBAL, task, writes=mode == "w")
        atomic = task.kind.endswith("reduce")
        if shadow.touched:
            self._last_write(f, task.op, shadow, cells, view, known, GLOBAL, None, 3 if atomic else 0, mode)
        if shadow.touched or mode != "r":
            self._others(f, task.op, shadow, _against("a" if atomic else mode, atomic), cells, view, known, GLOBAL, -1, None, mode)
        who = home.number, agent
        if mode != "r":
            shadow.wrote(cells, stamps(*who, clock), task.op.index, 3 if atomic else 0)
        if mode == "r" or atomic:
            shadow.kinds[_kind(mode, atomic)].add(who, cells, clock, task.op.index, None, 0)

    def _copy(self, f: Fragment, task: Task, lanes: Lanes, home: Home) -> None:
        """cp.async: generic accesses of the lanes that are over when the lane has waited."""
        warp = lanes.warp
        if warp.copies < 0:
            warp.copies = home.agent(("copies", warp.base), "cp.async", f"{warp.warp!r}", 32)
            home.generic.append(warp.copies)
        warp.issued_copies += 1
        task.shadow = warp.issued_copies
        shadow = self.shadow(f.cta.cluster)
        each = indices(task.mask)
        for region in task.writes:
            shadow.fit(region.starts, region.length)
            at = np.broadcast_to(np.asarray(region.starts), len(each))
            count = region.length >> shadow.shift
            cells = ((at >> shadow.shift)[:, None] + np.arange(count)).reshape(-1)
            owners = np.repeat(each, count)
            known = lanes.view(task.mask).fit()[SEEN]
            bad = shadow.writes_unknown(cells, known)
            if bad is not None:
                self._write_conflict(f, lanes, task.op, shadow, cells, owners, bad, "w", together=False, strong=0)
            prior = shadow.unknown((READ, POLL, ATOMIC), cells, known, owners, warp.base)
            if prior is not None:
                self._race(f, task.op, prior, "shared", "writes", f.cta.cluster)
            shadow.wrote(cells, owners + warp.copies, task.shadow, task.op.index)

    # ------------------------------------------------------------------------------------------- advice

    def _banks(self, op: Op, at: Array, size: int) -> None:
        """How many of the lanes' words lie in one bank: 32 banks of 4 bytes, a pass per 128 bytes."""
        looked = self._looked.get(op.index, 0)
        if looked >= BANKS_LOOKED_AT or len(at) < 8:
            return
        self._looked[op.index] = looked + 1
        words = np.unique((at[:, None] + np.arange(0, max(size, 4), 4)) >> 2)
        degree = int(np.bincount(words & 31, minlength=32).max())
        least = -(-len(words) // 32)
        if degree >= 4 * least:
            self.report("bank-conflict", op, f"`{op.opcode}` takes {degree} passes over shared memory where {least} would do: its lanes' "
                        "addresses fall into the same banks")

    def _remote(self, f: Fragment, mask: int, op: Op, at: Any) -> None:
        """An access to shared memory, perhaps another CTA's."""

    def source(self, f: Fragment, op: Op, agent: int, clock: int) -> None:
        """An asynchronous operation that signals an mbarrier reads the shared memory of its CTA."""

    def _overlaps(self, f: Fragment, op: Op, mode: str, at: Any, size: int) -> None:
        """An access to shared memory, perhaps to a live mbarrier's bytes."""


def _region_cells(shadow: Shadow, region: Region) -> Any:
    if isinstance(region.starts, int):
        return shadow.span(region.starts, region.length)
    shadow.fit(region.starts, region.length)
    first = region.starts >> shadow.shift
    count = region.length >> shadow.shift
    return first if count == 1 else (first[:, None] + np.arange(count)).reshape(-1)


def _kind(mode: str, strong: bool) -> str:
    return ATOMIC if mode != "r" else POLL if strong else READ


def _against(mode: str, strong: bool) -> tuple[str, ...]:
    """What must come before an access, besides the last write: strong accesses are not ordered among themselves."""
    if strong:
        return () if mode == "r" else (READ,)
    return (ATOMIC,) if mode == "r" else (READ, POLL, ATOMIC)


def scope_of(tokens: list[str]) -> int:
    """0 the CTA, 1 its cluster, 2 the device or the system (and what has no scope)."""
    return 0 if "cta" in tokens else 1 if "cluster" in tokens else 2
