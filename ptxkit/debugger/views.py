"""Looking at the device while a run stands: warps, barriers, what is in flight, registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..sim.barriers import MBarrier, NamedBarrier
from ..sim.deadlock import people, place, waits
from ..sim.errors import SimulationError
from ..sim.milestones import READ
from ..sim.operand import Address, Indexed
from ..sim.spaces import RESERVED_SHARED
from .rows import UNWRITTEN, BarrierRow, FlightRow, RegisterRow, WarpRow
from .tables import Rows
from .values import PLAIN, address, compact, element_bytes, lanes_words, numbers

if TYPE_CHECKING:
    from ..dsl.named import Names
    from ..sim.cta import Cta
    from ..sim.fragment import Fragment
    from ..sim.machine import Machine
    from ..sim.program import Op, Program, Routine
    from ..sim.tasks import Region, Task
    from .policy import Stepping


LONG = 40
"""Characters of an opcode that a table shows."""


def briefly(op: Op) -> str:
    """Where an instruction stands, with as much of its opcode as a table has room for."""
    words = place(op)
    return words if len(op.opcode) <= LONG else words.replace(op.opcode, f"{op.opcode[:LONG].rpartition('.')[0]}...")


def next_op(f: Fragment) -> Op | None:
    """The instruction that lanes execute next; None at the end of their function."""
    blocks = f.machine.program.blocks
    return blocks[f.block].ops[0] if f.block >= 0 and blocks[f.block].ops else None


def fragments(machine: Machine) -> list[Fragment]:
    """Every fragment: ready, waiting, or parked until other lanes of its warp come."""
    found = dict.fromkeys([*machine.ready, *machine.sleeping])
    for f in list(found):
        join = f.join
        while join is not None:
            found.update(dict.fromkeys(join.arrived))
            join = join.parent
    return [f for f in found if f.mask]


# ----------------------------------------------------------------------------------------------------- warps


def warps(machine: Machine, chosen: Fragment | None) -> Rows[WarpRow]:
    here: dict[Any, list[Fragment]] = {}
    for f in fragments(machine):
        here.setdefault(f.warp, []).append(f)
    rows = []
    for cluster in machine.clusters:
        for cta in cluster.ctas:
            for warp in cta.warps:
                if not warp.live:
                    rows.append(WarpRow(cta.index, warp.index, "", "exited", "", ""))
                for f in sorted(here.get(warp, []), key=lambda f: f.first()):
                    rows.append(_warp(machine, f, chosen))
    return Rows(rows, "no CTA is resident: all have exited")


def _warp(machine: Machine, f: Fragment, chosen: Fragment | None) -> WarpRow:
    state = "next" if f is chosen else "waits" if f.wait is not None else "ready" if f in machine.ready else "parked"
    op = f.wait.op if f.wait is not None else next_op(f)
    return WarpRow(f.cta.index, f.warp.index, lanes_words(f.mask), state, "its end" if op is None else briefly(op),
                   "" if f.wait is None else goal(f))


def goal(f: Fragment) -> str:
    """What a fragment waits for, in words."""
    wait = f.wait
    if wait is None:
        return ""
    words = waits(wait).partition(" for ")[2] or waits(wait).rpartition(" at ")[2]
    if isinstance(wait.on, MBarrier):
        return f"{words}: {wait.on.pending} arrivals pending" + (f", {wait.on.tx:,} bytes outstanding" if wait.on.tx else "")
    if isinstance(wait.on, NamedBarrier):
        return f"{words}: {wait.on.arrived} of {wait.on.wanted()} threads have come"
    return words


# ----------------------------------------------------------------------------------------------------- barriers


def barriers(machine: Machine) -> Rows[BarrierRow]:
    return Rows(list(_barriers(machine)), "no barrier has been used")


def _barriers(machine: Machine) -> Iterator[BarrierRow]:
    for cluster in machine.clusters:
        for _, each in sorted(cluster.mbarriers.items()):
            yield BarrierRow(str(each), each.phase, each.pending, each.expected, each.tx or None,
                             people(each.arrivals), people(f.warp for f in each.waiters))
        for cta in cluster.ctas:
            for _, named in sorted(cta.barriers.items()):
                wanted = named.wanted()
                yield BarrierRow(str(named), named.generation, wanted - named.arrived, wanted, None, people(named.warps),
                                 people(f.warp for f in named.waiters))
        barrier = cluster.barrier
        if barrier.arrived or barrier.phase:
            threads = [(cta.rank, warp) for cta in cluster.ctas for warp in cta.warps]
            come = sum(barrier.arrived.get((rank, warp.index), 0).bit_count() for rank, warp in threads)
            wanted = sum(warp.live.bit_count() for _, warp in threads)
            yield BarrierRow(str(barrier), barrier.phase, wanted - come, wanted, None,
                             people(warp for rank, warp in threads if barrier.arrived.get((rank, warp.index), 0)),
                             people(f.warp for f in barrier.waiters))


# ----------------------------------------------------------------------------------------------------- in flight


def flight(machine: Machine, policy: Stepping) -> Rows[FlightRow]:
    rows = [_task(machine, task, policy.names.of_task[task.number][2]) for task in machine.flying]
    for cluster in machine.clusters:
        for cta in cluster.ctas:
            rows += _groups(cta)
    return Rows(rows, "nothing is in flight")


def _task(machine: Machine, task: Task, number: int) -> FlightRow:
    barriers_ = [task.warp.cta.cluster.mbarriers.get(each) for each in task.signals]
    signals = ", ".join(str(each) for each in barriers_ if each is not None)
    return FlightRow(task.warp.cta.index, str(task.warp.index), str(number), task.kind, task.bytes, _regions(machine, task, task.reads),
                     _regions(machine, task, task.writes), signals, "has read its source" if task.state == READ else "issued",
                     briefly(task.op), task)


def _regions(machine: Machine, task: Task, regions: list[Region]) -> str:
    return ", ".join(dict.fromkeys(_region(machine, task, each) for each in regions))


def _region(machine: Machine, task: Task, region: Region) -> str:
    first = region.starts if isinstance(region.starts, int) else int(region.starts.min()) if len(region.starts) else 0
    if region.memory is machine.memory:
        found = machine.memory.allocation(first, first + 1)
        return "global" if found is None else found.name + (f"+{first - found.start}" if first > found.start else "")
    cta = task.warp.cta.cluster.ctas[first // machine.shared_stride]
    return f"{machine.name_of(first - cta.start)} of {cta!r}"


def _groups(cta: Cta) -> Iterator[FlightRow]:
    for index, group in enumerate(cta.warpgroups):
        who = f"{4 * index}-{4 * index + len(group.warps) - 1}"
        for each in group.groups[group.ran:]:
            count = each.last - each.first
            at = briefly(group.queue[each.first - group.dropped].shape.op) if count else ""
            yield FlightRow(cta.index, who, str(each.number), f"wgmma group of {count}", None, "", "", "",
                            f"committed by {each.committed} of {len(group.warps)} warps", at)
        first = group.groups[-1].last if group.groups else 0
        rest = max(group.issued) - first
        if rest > 0:
            yield FlightRow(cta.index, who, "open", f"{rest} wgmma", None, "", "", "", "issued, not committed",
                            briefly(group.queue[first - group.dropped].shape.op))


# ----------------------------------------------------------------------------------------------------- registers


def registers(machine: Machine, f: Fragment, names: Names | None, wanted: tuple[str, ...], every: bool) -> Rows[RegisterRow]:
    """Those that have been written and are read later (`every`: all), or those of these names."""
    routine = machine.program.owner[f.block] if f.block >= 0 else machine.program.entry
    chosen = range(len(routine.widths)) if every or wanted else machine.live(f.block)
    rows = []
    for index in chosen:
        key = routine.name, routine.names[index]
        known = names.registers.get(key, []) if names is not None else []
        if wanted and not _matches(wanted, routine.names[index], known):
            continue
        written = routine.widths[index] == 1 or f.R[index] is not machine.blank(routine)[index]
        type_ = _type(machine.program, routine, index, names)
        rows.append(_register(f, index, routine.names[index], known, type_, routine.widths[index], written))
    if wanted and not rows:
        raise SimulationError(f"no register of `{routine.name}` is called {', '.join(wanted)}; `registers` lists those that are read later")
    if wanted and not every:                                 # of several under one name those that are read later, or have been written
        live = {routine.names[index] for index in machine.live(f.block)}
        rows = [row for row in rows if row.register in live] or [row for row in rows if row.written] or rows
    if not wanted and not every:
        rows = [row for row in rows if row.written]
    return Rows(rows, "no register has been written that is read later")


def is_named(program: Program, names: Names | None, wanted: str) -> bool:
    """Whether a register of the program has this name."""
    known = [*names.registers.values()] if names is not None else []
    return any(wanted in routine.names for routine in program.routines.values()) or any(_matches((wanted,), "", each) for each in known)


def _matches(wanted: tuple[str, ...], register: str, known: list[str]) -> bool:
    return register in wanted or any(name == each or name.startswith((f"{each}[", f"{each}.")) for name in known for each in wanted)


def _type(program: Program, routine: Routine, index: int, names: Names | None) -> str:
    found = names.types.get((routine.name, routine.names[index])) if names is not None else None
    if found is not None:
        return found.__name__
    return "pred" if routine.widths[index] == 1 else used_as(routine, program).get(index, f"b{routine.widths[index]}")


@lru_cache(maxsize=64)
def used_as(routine: Routine, program: Program) -> dict[int, str]:
    """Of each register the type under which instructions compute with it most often, where they say more than its bits."""
    counts: dict[int, Counter[str]] = {}
    for op in program.ops:
        if op.routine is not routine or op.tokens[0] == "mov":
            continue
        for parameter, operand in op.parameters():
            type_ = str(parameter.operand.type)
            if operand is None or isinstance(operand, Address | Indexed) or type_ not in PLAIN or type_[0] == "b":
                continue
            for index in operand.registers():
                if routine.widths[index] == 8 * element_bytes(type_):
                    counts.setdefault(index, Counter())[type_] += 1
    return {index: found.most_common(1)[0][0] for index, found in counts.items()}


def _register(f: Fragment, index: int, register: str, known: list[str], type_: str, bits: int, written: bool) -> RegisterRow:
    value = f.R[index]
    values = numbers(value, bits, type_)
    words = compact(values, f.mask)
    if bits == 64 and type_[0] in "bu" and isinstance(value, int) and value >> 32:
        words = address(value)
    return RegisterRow(register, ", ".join(known[:2]), type_, words if written else UNWRITTEN, values, f.mask)


# ----------------------------------------------------------------------------------------------------- places


def offset_in_plan(machine: Machine, traced: Any, offset: int) -> int:
    """The offset in a CTA's shared memory of a byte of the kernel's plan."""
    layout = machine.program.layout
    of = layout.find(traced.shared.symbol)
    start = layout.dynamic_start if traced.shared.dynamic or of is None else of.address
    return int(start) + offset


__all__ = ["RESERVED_SHARED", "barriers", "flight", "fragments", "registers", "warps"]
