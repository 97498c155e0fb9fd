"""Races, missing proxy fences and uninitialised reads, in shared and in global memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..memory import Allocation
from ..tasks import Region, Task
from ..values import Array, indices
from .agents import ranks
from .clocks import GLOBAL, MAPS, SEEN, SHARED, Home, Lanes, View
from .global_shadow import GlobalShadow, Stamp, cells_of, earlier, parts, stamps
from .shadow import ATOMIC, OVER, READ, SAME, Prior, Shadow, against, bytes_of, kind_of, region_cells, writes
from .strong import scope_of
from .waits import WaitRules

if TYPE_CHECKING:
    from ..cta import Cluster
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op

BANKS_LOOKED_AT = 4
"""How many executions of an instruction the bank advice looks at."""
EVER = np.iinfo(np.int32).max


class MemoryRules(WaitRules):
    """Every access is compared with the last write, and a write with all reads since, of the same bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._globals: dict[int, tuple[Allocation, GlobalShadow]] = {}
        self._map: tuple[GlobalShadow, Array] | None = None
        self._looked: dict[int, int] = {}
        self.swizzles: dict[int, int] = {}
        """The span that each tensor copy (its instruction's index) wrote with last."""

    # ------------------------------------------------------------------------------------------- generic accesses

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        space = memory.space
        if space != "shared" and space != "global":
            return
        self.accesses += 1
        lanes = self.lanes(f, op, mask)
        lanes.warp.used = True
        if strong:
            self._synchronise(f, lanes, mask, op, mode, memory, places, size, values)
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
        warp = lanes.warp
        cells, each = cells_of(shadow, at, size, mask)
        known = view.fit()[SEEN]
        together = type(at) is int and mask & mask - 1 != 0
        scope = 1 + scope_of(op.tokens) if strong else 0
        bad = shadow.writes_unknown(cells, known)
        if bad is not None:
            self._write_conflict(f, lanes, op, shadow, cells, each, bad, mode, together=together, strong=scope)
        if mode != "w" and shadow.unwritten(cells):
            self._uninitialised(f, op, shadow, cells)
        left = self.unobserved(shadow, cells, view, each + warp.base) if not strong and shadow.kinds[ATOMIC] else None
        prior = shadow.unknown(against(mode, strong), cells, known, each, warp.base, warp.copies, left)
        if prior is None and (some := self.before_equal(f, shadow, mode, strong, cells, each)) is not None:
            prior = shadow.unknown((SAME,), cells[some], known, each[some], warp.base)
        if prior is not None:
            self._race(f, op, prior, "shared", "reads" if mode == "r" else "writes", f.cta.cluster, lanes)
        if strong:
            self.scoped(f, lanes, shadow, mode, op, cells, view, each, scope)
        if mode != "r":
            if strong:
                self.overwrites(f, shadow, cells)
                if mode == "w":
                    shadow.stores.update(bytes_of(at, size))
            shadow.wrote(cells, each + warp.base, warp.epoch, op.index, scope)
        if mode == "r" or strong:
            shadow.accessed(kind_of(mode, strong), warp.base, cells, warp.epoch, op.index, mask if type(at) is int else each,
                            int(known[warp.own].min()))

    def _write_conflict(self, f: Fragment, lanes: Lanes, op: Op, shadow: Shadow, cells: Any, each: Array, bad: Array, mode: str, *,
                        together: bool, strong: int) -> None:
        """`strong`: the scope of a strong access + 1."""
        warp = lanes.warp
        agents, clocks = shadow.agent[cells][bad], shadow.epoch[cells][bad]
        wrong = np.ones(len(bad), bool) if together else agents != warp.base + each[bad]
        if strong:
            apart = ranks(self.home(f.cta.cluster), agents) != f.cta.rank
            wrong &= np.minimum(shadow.strong[cells][bad], strong) <= apart
        if warp.copies >= 0:
            wrong &= ~((agents == warp.copies + each[bad]) & (clocks <= warp.copied[each[bad]]))
        if wrong.any() and not (mode == "w" and not strong and self.equal_shared(f, op, shadow, cells[bad[wrong]], each[bad[wrong]])):
            first = int(bad[wrong][0])
            prior = shadow.write_at(cells, first, int(each[first]))
            self._race(f, op, prior, "shared", "reads" if mode == "r" else "writes", f.cta.cluster, lanes)

    def _race(self, f: Fragment, op: Op, prior: Prior, space: str, verb: str, cluster: Cluster, lanes: Lanes | None = None) -> None:
        home = self.home(cluster)
        shadow = self.shadow(cluster)
        who = home.describe(prior.agent)
        where = self.place(cluster, prior.cell << shadow.shift)
        did = "wrote" if prior.wrote else "read"
        by = f"{f.warp!r} lane {prior.lane}" if prior.lane >= 0 else f"{f.warp!r}"
        if lanes is not None and lanes.warp.elected:
            by = f"the elected lane of {f.warp!r}"
        earlier = f"{self.site(prior.site)} of {who.name}"
        if who.kind == "lane":
            message = f"{by} {verb} {where}, which {earlier} {did}, with nothing that orders the two"
        else:
            message = f"{by} {verb} {where}, while {earlier} may still be {'writing' if prior.wrote else 'reading'} it"
        self.report("shared-race" if space == "shared" else "global-race", op, message, other=(prior.site, prior.wrote))

    def equal_shared(self, f: Fragment, op: Op, shadow: Shadow, cells: Array, each: Array) -> bool:
        """Whether these lanes' stores leave the cells, which other threads stored to, as they are."""
        return False

    def equal_global(self, f: Fragment, op: Op, shadow: GlobalShadow, view: View, cells: Array, each: Array) -> bool:
        return False

    def equal_later(self, f: Fragment, task: Task, shadow: GlobalShadow, view: View, cells: Array, earlier: Mapping[Stamp, Array],
                    race: Callable[[], None], site: int = -1) -> bool:
        """Whether it is to be seen, when they land, that an asynchronous store leaves these cells as they are. `earlier` are the writes
        that it is not ordered after, with their cells (indices); `race` reports that they differ. `site` is the instruction of a write
        that another of equal bytes has followed.
        """
        return False

    def stored(self, f: Fragment, task: Task, number: int, agent: int, clock: int, bytes_: int) -> None:
        """An asynchronous operation writes to global memory, as this agent at this clock."""

    def _after_same(self, f: Fragment, task: Task, shadow: GlobalShadow, cells: Array, view: View, known: Array, mode: str) -> None:
        """An asynchronous write must come after those that one of equal bytes has followed, or write these bytes again."""
        home, left = view.home.number, np.arange(len(cells))
        while len(left):
            found = shadow.kinds[SAME].unknown(cells[left], lambda number: known if number == home else self._far(view, number, GLOBAL),
                                               None, None)
            if found is None:
                return
            i, *who, site = found
            first = int(left[i])

            def race(first: int = first, who: Sequence[int] = who, site: int = site) -> None:
                self._global_race(f, task.op, shadow, int(cells[first]), tuple(who), site, GLOBAL, view, mode, wrote=True)

            at = np.union1d(shadow.kinds[SAME].of_agent(cells, who[0], who[1], who[2]), [first])
            if not self.equal_later(f, task, shadow, view, cells[at], {tuple(who): np.arange(len(at))}, race, site):
                race()
            left = np.setdiff1d(left, at)

    def overwrites(self, f: Fragment, shadow: Shadow | GlobalShadow, cells: Any) -> None:
        """A strong write follows, in these cells."""

    def unobserved(self, shadow: Shadow | GlobalShadow, cells: Array, view: View, own: Array) -> Array | None:
        """The cells (indices) where atomics must come before a weak access of these lanes; None: all of them."""
        return None

    def scoped(self, f: Fragment, lanes: Lanes, shadow: Shadow | GlobalShadow, mode: str, op: Op, cells: Array, view: View, each: Array,
               strong: int) -> None:
        """A strong access of lanes (`strong`: its scope + 1) must come after strong ones if either's scope does not include both."""

    def before_equal(self, f: Fragment, shadow: Shadow | GlobalShadow, mode: str, strong: bool, cells: Array, each: Array) -> Array | None:
        """The cells (indices) whose writes before an equal one must come before this access, too."""
        return None

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
        cells, each = cells_of(shadow, at, size, mask)
        warp = lanes.warp
        known = view.fit()[SEEN]
        own = each + warp.base
        scope = 1 + scope_of(op.tokens) if strong else 0
        if shadow.touched:
            self._last_write(f, op, shadow, cells, view, known, SEEN, own, scope, mode)
            if "nc" in op.tokens:
                self._not_constant(f, op, shadow, cells)
        if shadow.touched or mode != "r":
            kinds = against(mode, strong)
            left = None if strong else self.unobserved(shadow, cells, view, own)
            if left is not None:
                kinds = tuple(kind for kind in kinds if kind != ATOMIC)
                self._others(f, op, shadow, (ATOMIC,), cells[left], view, known, SEEN, warp.base, each[left], mode)
            self._others(f, op, shadow, kinds, cells, view, known, SEEN, warp.base, each, mode)
            some = self.before_equal(f, shadow, mode, strong, cells, each)
            if some is not None:
                self._others(f, op, shadow, (SAME,), cells[some], view, known, SEEN, warp.base, each[some], mode)
        if strong:
            self.scoped(f, lanes, shadow, mode, op, cells, view, each, scope)
        if mode != "r":
            if strong:
                self.overwrites(f, shadow, cells)
                if mode == "w":
                    shadow.stores.update(bytes_of(at, size))
            shadow.wrote(cells, stamps(view.home.number, own.astype(np.int64), warp.epoch), op.index, scope)
        if mode == "r" or strong:
            who, by = (view.home.number, warp.base), mask if type(at) is int else each
            floor = int(known[warp.own].min())
            shadow.kinds[kind_of(mode, strong)].add(who, cells, warp.epoch, op.index, by, floor)

    def _last_write(self, f: Fragment, op: Op, shadow: GlobalShadow, cells: Array, view: View, known: Array, row: int, own: Array | None,
                    strong: int, mode: str, task: Task | None = None) -> None:
        """`known`: the clocks of the view's own cluster; `own`: the lanes that access, or `task`: the asynchronous operation that does;
        `strong`: the scope of a strong access + 1.
        """
        stamp = shadow.write[cells]
        if not stamp.any():
            return
        number, agent, clock = parts(stamp)
        mine = number == view.home.number
        fine = (stamp == 0) | (mine & (known[np.where(mine, agent, 0)] >= clock))
        if own is not None:
            fine |= mine & (agent == own)
        if strong:
            apart = np.where(mine, np.where(ranks(view.home, agent) == f.cta.rank, 0, 1), 2)
            fine |= np.minimum(shadow.strong[cells], strong) > apart
        if fine.all():
            return
        for other in {int(n) for n in number[~fine]} - {view.home.number}:
            theirs = self._far(view, other, row)
            if theirs is not None:
                there = number == other
                reach = np.where(there & (agent < len(theirs)), agent, 0)
                fine |= there & (theirs[reach] >= clock)
        if fine.all() or (own is not None and mode == "w" and not strong
                          and self.equal_global(f, op, shadow, view, cells[~fine], own[~fine] & 31)):
            return
        i = int(np.flatnonzero(~fine)[0])
        who = int(number[i]), int(agent[i]), int(clock[i])
        site = int(shadow.site[cells[i]])

        def race() -> None:
            self._global_race(f, op, shadow, int(cells[i]), who, site, row, view, mode, wrote=True)

        if task is None or mode != "w" or not self.equal_later(f, task, shadow, view, cells[~fine], earlier(shadow, cells[~fine]), race):
            race()

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
                self._global_race(f, op, shadow, int(cells[i]), tuple(who), site, row, view, mode, wrote=writes(kind))

    def _far(self, view: View, number: int, row: int) -> Array | None:
        theirs = view.of(number)
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
            theirs = view.of(number)
            return theirs is not None and bool(theirs[SEEN][agent] >= clock)
        base = self.lanes(f).warp.base
        return bool(view.fit()[SEEN][agent] >= clock) or base <= agent < base + 32

    def _global_name(self, place: int) -> str:
        found = self.machine.memory.allocation(place, place + 1)
        return f"global memory +{place:#x}" if found is None else f"{found.name} +{place - found.start:#x}"

    # ------------------------------------------------------------------------------------------- asynchronous accesses

    def issued(self, f: Fragment, task: Task) -> None:
        self.accesses += 1
        lanes = self.lanes(f, task.op, task.mask)
        task.elected = lanes if lanes.warp.elected else None
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
            cells = region_cells(shadow, region)
            self.async_read(f, task.op, lanes, task.mask, cells, shadow, "bulk-source-uninitialised", task)
            low = cells.start if isinstance(cells, slice) else int(cells.min())
            high = cells.stop if isinstance(cells, slice) else int(cells.max()) + 1
            self._overlaps(f, task.op, "r", low << shadow.shift, high - low << shadow.shift)
            shadow.accessed(READ, agent, cells, clock, task.op.index)
            if task.signals:
                self.source(f, task.op, agent, clock)
        elif region.memory.space == "global":
            self._global_async(f, task, lanes, home, region, agent, clock, "r")

    def async_read(self, f: Fragment, op: Op, lanes: Lanes, mask: int, cells: Any, shadow: Shadow, rule: str,
                   task: Task | None = None, known: Array | None = None) -> None:
        """The async proxy reads cells of shared memory on behalf of these lanes."""
        if known is None:
            known = self._rely(lanes, mask, SHARED + f.cta.rank, task, writes=False)
        bad = shadow.writes_unknown(cells, known)
        prior = shadow.write_at(cells, int(bad[0])) if bad is not None else shadow.unknown((ATOMIC, SAME, OVER), cells, known, None, -1)
        if prior is not None:
            self._async_conflict(f, op, lanes, mask, prior, "reads")
        if shadow.unwritten(cells):
            self._uninitialised(f, op, shadow, cells, rule)

    def _async_write(self, f: Fragment, task: Task, lanes: Lanes, home: Home, region: Region, agent: int, clock: int) -> None:
        if region.memory.space == "global":
            self._global_async(f, task, lanes, home, region, agent, clock, "w")
            return
        shadow = self.shadow(f.cta.cluster)
        cells = region_cells(shadow, region)
        start = region.starts if isinstance(region.starts, int) else int(region.starts[0])
        known = self._rely(lanes, task.mask, SHARED + start // self.machine.shared_stride, task, writes=True)
        atomic = task.kind.endswith("reduce")
        bad = shadow.writes_unknown(cells, known)
        if bad is not None and atomic:
            bad = bad[shadow.strong[cells][bad] <= 1]
        prior = shadow.write_at(cells, int(bad[0])) if bad is not None and len(bad) else \
            shadow.unknown((*against("a" if atomic else "w", atomic), SAME), cells, known, None, -1)
        if prior is not None:
            self._async_conflict(f, task.op, lanes, task.mask, prior, "writes")
        if atomic:
            self.overwrites(f, shadow, cells)
        shadow.wrote(cells, agent, clock, task.op.index, 2 if atomic else 0)
        if atomic:
            shadow.accessed(ATOMIC, agent, cells, clock, task.op.index)
            self._blurs(f, region, task.op)
            self._reduces(f, task, shadow, cells, lanes.view(task.mask), known, SHARED, agent, clock, self._namer(f, shadow))
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
            self._race(f, op, prior, "shared", verb + " (asynchronously)", f.cta.cluster, lanes)
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
        who = home.number, agent
        if mode == "r" and not shadow.touched:
            shadow.kinds[READ].add(who, shadow.region(region) or shadow.cells(starts, region.length), clock, task.op.index, None, 0)
            return
        cells = shadow.cells(starts, region.length)
        view = lanes.view(task.mask)
        known = self._rely(lanes, task.mask, GLOBAL, task, writes=mode == "w")
        atomic = task.kind.endswith("reduce")
        if mode != "r":
            self._after_same(f, task, shadow, cells, view, known, mode)
        if shadow.touched:
            self._last_write(f, task.op, shadow, cells, view, known, GLOBAL, None, 3 if atomic else 0, mode, task)
        if shadow.touched or mode != "r":
            kinds = against("a" if atomic else mode, atomic)
            self._others(f, task.op, shadow, kinds if mode != "r" else (*kinds, SAME), cells, view, known, GLOBAL, -1, None, mode)
        if atomic:
            self._blurs(f, region, task.op)
            self._reduces(f, task, shadow, cells, view, known, GLOBAL, agent, clock, self._namer(f, shadow))
        if atomic:
            self.overwrites(f, shadow, cells)
        if mode != "r":
            shadow.wrote(cells, stamps(*who, clock), task.op.index, 3 if atomic else 0)
            self.stored(f, task, *who, clock, len(cells) << shadow.shift)
        if mode == "r" or atomic:
            shadow.kinds[kind_of(mode, atomic)].add(who, cells, clock, task.op.index, None, 0)

    def _copy(self, f: Fragment, task: Task, lanes: Lanes, home: Home) -> None:
        """cp.async: generic accesses of the lanes that are over when the lane has waited."""
        raise NotImplementedError

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
