"""What `cp.async` reads in global memory, and local memory that nothing has written.

Such a copy reads on behalf of its lane, through the generic proxy, at any time until the lane has waited for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array, indices, lane_list
from .agents import WARP_WORDS
from .clocks import GLOBAL, SEEN, Home, Lanes
from .dependent import DependentRules
from .global_shadow import GlobalShadow, History
from .shadow import SAME, against

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op
    from ..tasks import Task

COPY = "copy"
"""The kind of the reads of cp.async in the shadow of global memory."""


class CopyRules(DependentRules):
    def issued(self, f: Fragment, task: Task) -> None:
        super().issued(f, task)
        if task.kind == "copy":
            for region, mask in zip(task.reads, task.readers, strict=True):
                self._copy_reads(f, task, region.memory, np.asarray(region.starts), region.length, mask)
            return
        for region in task.writes:
            if region.memory.space == "global" and np.size(region.starts):
                starts = np.atleast_1d(np.asarray(region.starts))
                self._after_copies(f, task.op, task.mask, region.memory, starts, region.length, GLOBAL)

    def _copy(self, f: Fragment, task: Task, lanes: Lanes, home: Home) -> None:
        warp = lanes.warp
        if warp.copies < 0:
            warp.copies = home.agent(("copies", warp.base), "cp.async", WARP_WORDS, (f.cta.index, f.warp.index), 32)
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
            prior = shadow.unknown((*against("w", False), SAME), cells, known, owners, warp.base, warp.copies)
            if prior is not None:
                self._race(f, task.op, prior, "shared", "writes", f.cta.cluster, lanes)
            shadow.wrote(cells, owners + warp.copies, task.shadow, task.op.index)
            self._overlaps(f, task.op, "w", at, region.length)

    def _copy_reads(self, f: Fragment, task: Task, memory: Memory, starts: Array, length: int, mask: int) -> None:
        shadow = self._allocation(memory, int(starts[0]))
        if shadow is None or not length:
            return
        lanes = self.lanes(f, task.op, task.mask)
        warp = lanes.warp
        for m, view in lanes.groups:
            some = m & mask
            if not some:
                continue
            chosen = starts[np.searchsorted(indices(mask), indices(some))]
            cells = shadow.cells(chosen, length)
            each = np.repeat(indices(some), len(cells) // some.bit_count())
            known = view.fit()[SEEN]
            if shadow.touched:
                self._last_write(f, task.op, shadow, cells, view, known, SEEN, each + warp.base, 0, "r")
                self._others(f, task.op, shadow, (*against("r", False), SAME), cells, view, known, SEEN, warp.base, each, "r")
            reads = shadow.kinds.setdefault(COPY, History(shadow))
            reads.add((view.home.number, warp.copies), cells, task.shadow, task.op.index, each, 0)

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        super().access(f, mask, op, mode, memory, places, size, strong, values)
        if memory.space == "global" and mode != "r":
            starts = np.asarray([places] * mask.bit_count() if isinstance(places, int) else places[indices(mask)])
            self._after_copies(f, op, mask, memory, starts, size, SEEN)
        elif memory.space == "local" and memory.shadow is not None:
            if mode != "r" and not self.slices.nature(op).private:
                self.slices.to_local.add(op.index)
            self._local(f, mask, op, mode, memory.shadow, places, size)

    def _after_copies(self, f: Fragment, op: Op, mask: int, memory: Memory, starts: Array, size: int, row: int) -> None:
        """A write must come after the copies that read there, of other lanes and its own."""
        shadow: GlobalShadow | None = self._allocation(memory, int(starts[0]))
        if shadow is None or COPY not in shadow.kinds:
            return
        lanes = self.lanes(f, op, mask)
        warp = lanes.warp
        cells = shadow.cells(starts, size)
        each = np.repeat(indices(mask), len(cells) // len(starts)) if len(starts) == mask.bit_count() else None
        view = lanes.view(mask)
        home = view.home.number
        known = view.fit()[row]
        done = known.copy()
        if warp.copies >= 0:
            own = slice(warp.copies, warp.copies + 32)
            done[own] = np.maximum(done[own], warp.copied)
        for own_lanes, clocks in ((each, known), (None, done)):
            def known_of(number: int, clocks: Array = clocks) -> Array | None:
                return clocks if number == home else self._far(view, number, row)

            if own_lanes is None and clocks is known:
                continue
            found = shadow.kinds[COPY].unknown(cells, known_of, (home, warp.copies), own_lanes)
            if found is not None:
                i, number, agent, clock, site = found
                self._global_race(f, op, shadow, int(cells[i]), (number, agent, clock), site, row, view, "w", wrote=False)
                return

    # ------------------------------------------------------------------------------------------- local memory

    def _local(self, f: Fragment, mask: int, op: Op, mode: str, written: Array, places: Places, size: int) -> None:
        """`written`: which bytes have been. A value of which no byte has been is undefined."""
        at = [places] if isinstance(places, int) else places[indices(mask)].tolist()
        if mode != "r":
            for start in at:
                written[start:start + size] = True
            return
        registers = op.registers("d")
        each = size // len(registers)
        for i, register in enumerate(registers):
            lost = sum(1 << lane for lane, start in zip(lane_list(mask), at, strict=False)
                       if not written[start + i * each:start + (i + 1) * each].any())
            if register >= 0 and not lost and not all(written[start + i * each:start + (i + 1) * each].all() for start in at):
                reach = self.reach(op, "order")
                if reach is not None:
                    self.blame(op, "undefined", f"`{op.opcode}` reads bytes of local memory that nothing has written", reach)
            if lost and register >= 0:
                self._undefined(op)
                self._holds(self.registers_of(f, op), register, mask, lost, f"{self.site(op.index)} has read it from local memory that "
                            "nothing has written")
