"""Memory whose contents PTX leaves undefined: written where it must be constant, discarded, accessed at once in different sizes, written
by the lanes of one instruction with different values. Each part works only in programs that have the instructions for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.operands import width
from ..values import Array, indices, lane_list
from .clocks import SEEN
from .products import ProductRules

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..machine import Machine
    from ..memory import Allocation, Memory, Places
    from ..program import Op, Program
    from ..tasks import Task
    from .shadow import Shadow


class Marks:
    """Of each byte of the buffers in global memory the instruction (its index + 1) that has marked it, 0 for none."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Allocation, Array]] = {}

    def at(self, memory: Memory, starts: Array, length: int, mark: int | None = None) -> int:
        """The mark of the first marked byte of `length` bytes from each place; `mark` replaces it."""
        before = 0
        for start in np.unique(starts).tolist():
            buffer = memory.allocation(start, start + 1)
            if buffer is None:
                continue
            kept = self._of.get(id(buffer))
            if kept is None:
                if not mark:
                    continue
                kept = self._of[id(buffer)] = buffer, np.zeros(buffer.stop - buffer.start, np.int32)
            part = kept[1][start - buffer.start:start - buffer.start + length]
            if not before and part.any():
                before = int(part[part != 0][0])
            if mark is not None:
                part[:] = mark
        return before


    def left(self) -> list[tuple[str, int, int]]:
        """Of each buffer with marks: its name, where the first is, and the instruction's index."""
        found = []
        for buffer, marks in self._of.values():
            if marks.any():
                first = int(np.flatnonzero(marks)[0])
                found.append((buffer.name, first, int(marks[first]) - 1))
        return found


class Strong:
    """A strong access that is remembered: its bytes, the size of what is accessed at once, who and when."""

    __slots__ = ("agent", "clock", "home", "length", "site", "size", "start", "wrote")

    def __init__(self, start: int, length: int, size: int, wrote: bool, home: int, agent: int, clock: int, site: int) -> None:
        self.start, self.length, self.size, self.wrote = start, length, size, wrote
        self.home, self.agent, self.clock, self.site = home, agent, clock, site


class UndefinedRules(ProductRules):
    def __init__(self) -> None:
        super().__init__()
        self._constant: Marks | None = None
        self._discarded: Marks | None = None
        self._copying: Task | None = None
        self._strong: dict[tuple[int, int], dict[tuple[Any, ...], Strong]] | None = None
        self._units: dict[int, int] = {}

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        ops = machine.program.ops
        if any("nc" in op.tokens or op.tokens[0] == "ldu" for op in ops):
            self._constant = Marks()
        if any(op.tokens[0] == "discard" for op in ops):
            self._discarded = Marks()
        strong = [op for op in ops if op.tokens[0] in ("ld", "st", "atom", "red") and not _ORDERED.isdisjoint({*op.tokens, op.tokens[0]})]
        self._units = {op.index: _unit(op) for op in strong}
        if len(set(self._units.values())) > 1:
            self._strong = {}

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        if strong and self._strong is not None and memory.space in ("shared", "global"):
            self._mixed(f, mask, op, mode, memory, places, size)
        super().access(f, mask, op, mode, memory, places, size, strong, values)
        if memory.space == "global" and (self._constant is not None or self._discarded is not None):
            starts = np.asarray([places] if isinstance(places, int) else places[indices(mask)])
            self._contents(f, op, mode, memory, starts, size)

    def issued(self, f: Fragment, task: Task) -> None:
        self._copying = task
        super().issued(f, task)
        if self._constant is not None or self._discarded is not None:
            for mode, regions in (("r", task.reads), ("w", task.writes)):
                for region in regions:
                    if region.memory.space == "global":
                        if mode == "w" and task.kind.endswith("reduce"):
                            self._contents(f, task.op, "r", region.memory, np.atleast_1d(np.asarray(region.starts)), region.length)
                        self._contents(f, task.op, mode, region.memory, np.atleast_1d(np.asarray(region.starts)), region.length)

    def end(self, machine: Machine) -> None:
        super().end(machine)
        for name, first, site in self._discarded.left() if self._discarded is not None else ():
            op = machine.program.ops[site]
            self.withhold(op, f"what is left in {name} +{first:#x} is not defined: `{op.opcode}` has discarded it, and nothing has "
                          "written it again", "undefined", name)
        done = [op for op in machine.program.ops if machine.counts[op.block]]
        for op in done if any("complete_tx::bytes" in other.opcode for other in done) else ():
            if op.opcode.startswith("mbarrier.complete_tx"):
                self.withhold(op, f"which bytes `{op.opcode}` stands for is not followed, and those of copies may come before or after",
                              "order")
        for op in no_carry(machine.program):
            reach = self.reach(op, "order") if machine.counts[op.block] else None
            if reach is not None:
                self.blame(op, "undefined", f"`{op.opcode}` reads a carry that nothing may have written since the function's begin, or "
                           "since a call", reach)

    def _uninitialised(self, f: Fragment, op: Op, shadow: Shadow, cells: Any, rule: str = "shared-uninitialised") -> None:
        super()._uninitialised(f, op, shadow, cells, rule)
        if rule != "bulk-source-uninitialised" or self._copying is None:
            return
        empty = np.repeat(shadow.epoch[cells] == 0, 1 << shadow.shift)
        if self._copying.lands is None or (empty & self._copying.lands()[:len(empty)]).any():
            self.withhold(op, f"`{op.opcode}` of {f.warp!r} hands on bytes of shared memory that nothing has written", "undefined")

    def _contents(self, f: Fragment, op: Op, mode: str, memory: Memory, starts: Array, size: int) -> None:
        where = self._global_name(int(starts.flat[0])) if starts.size else ""
        if self._constant is not None:
            if mode != "r":
                read = self._constant.at(memory, starts, size)
                if read:
                    self.report("nc-load", op, f"{f.warp!r} writes {where} with `{op.opcode}`, and {self.site(read - 1)} has read it in "
                                "the same grid: such a load is for memory that nobody writes while the grid runs", other=read)
            elif "nc" in op.tokens or op.tokens[0] == "ldu":
                self._constant.at(memory, starts, size, op.index + 1)
        if self._discarded is not None:
            if mode != "w":
                gone = self._discarded.at(memory, starts, size)
                if gone:
                    self.report("discarded", op, f"{f.warp!r} reads {where} with `{op.opcode}`, which {self.site(gone - 1)} has discarded",
                                other=gone)
                    self._discarded.at(memory, starts, size, 0)
            elif op.tokens[0] == "discard":
                self._discarded.at(memory, starts, size, op.index + 1)
            else:
                self._discarded.at(memory, starts, size, 0)

    # ------------------------------------------------------------------------------------------- sizes

    def _mixed(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int) -> None:
        """Two strong accesses to the same bytes are atomic to each other only if they access exactly the same."""
        assert self._strong is not None
        lanes = self.lanes(f, op, mask)
        home = self.home(f.cta.cluster)
        unit = self._units.get(op.index, size)
        for lane in lane_list(mask):
            start = places if isinstance(places, int) else int(places[lane])
            view = lanes.view(1 << lane)
            for chunk in range(start >> 4, (start + size - 1 >> 4) + 1):
                kept = self._strong.setdefault((id(memory), chunk), {})
                for other in kept.values():
                    apart = other.start < start + size and start < other.start + other.length and other.size != unit
                    if apart and (other.wrote or mode != "r") and (other.home, other.agent) != (home.number, lanes.warp.base + lane):
                        known = view.fit()[SEEN] if other.home == home.number else self._far(view, other.home, SEEN)
                        if known is None or other.agent >= len(known) or known[other.agent] < other.clock:
                            who = self.homes[other.home].describe(other.agent).name
                            self.report("mixed-size", op, f"{f.warp!r} lane {lane} accesses {unit} bytes at once with `{op.opcode}` where "
                                        f"{self.site(other.site)} of {who} accesses {other.size}, with nothing that orders the two",
                                        other=other.site)
                made = Strong(start, size, unit, mode != "r", home.number, lanes.warp.base + lane, lanes.warp.epoch, op.index)
                kept[made.home, made.agent, start, unit, made.wrote] = made

    # ------------------------------------------------------------------------------------------- lanes of one instruction

    def overwritten(self, f: Fragment, op: Op, memory: Memory, place: int, lane: int) -> None:
        where = self.place(f.cta.cluster, place) if memory.space == "shared" else self._global_name(place)
        self.report("lane-conflict", op, f"lane {lane} of {f.warp!r} and another one write different values to {where} with one "
                    f"`{op.opcode}`: either may stay")


def no_carry(program: Program) -> list[Op]:
    """The instructions that read the carry where, on some way, nothing has written it: it lasts to the next call at most."""
    if not any("r" in op.signature.form.effects.carry for op in program.ops):
        return []
    found: dict[int, Op] = {}
    begins = {routine.entry for routine in program.routines.values()}
    todo = list(begins)
    while todo:
        block = program.blocks[todo.pop()]
        nothing = block.index in begins
        for op in block.ops:
            effects = op.signature.form.effects
            if nothing and "r" in effects.carry:
                found[op.index] = op
            if effects.control == "call":
                nothing = True
            elif "w" in effects.carry and op.guard is None:
                nothing = False
        new = {at for at in block.successors if at >= 0} - begins if nothing else set()
        begins |= new
        todo += new
    return list(found.values())


_ORDERED = {"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "atom", "red"}


def _unit(op: Op) -> int:
    """Bytes that a strong access accesses at once: an element of a vector or of packed data."""
    type = op.bindings["type"]
    return width(type) // (16 if type.endswith("x2") else 8)
