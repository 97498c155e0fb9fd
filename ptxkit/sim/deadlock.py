"""What a deadlock is told as: who waits for what, who has come, who is missing and where they are, and which mistake it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..grammar.errors import Finding, Position

if TYPE_CHECKING:
    from .barriers import MBarrier, NamedBarrier
    from .cta import Warp
    from .fragment import Fragment, Wait
    from .machine import Machine
    from .program import Op


@dataclass(slots=True, eq=False)
class _Queue:
    """Fragments that wait for one thing: `mistake` says what is wrong with it, the most telling has the highest `rank`."""

    wait: Wait
    fragments: list[Fragment] = field(default_factory=list)
    rank: int = 0
    mistake: str = ""
    fix: str = ""
    detail: str = ""


def explain(machine: Machine) -> Finding:
    """The finding of a deadlock: its first line names the mistake, the others who waits where."""
    queues: dict[tuple[Any, ...], _Queue] = {}
    for f in machine.sleeping:
        wait = f.wait
        assert wait is not None
        key = wait.kind, id(wait.on), wait.phase if wait.kind != "registers" else 0, id(wait.op)
        queues.setdefault(key, _Queue(wait)).fragments.append(f)
    for queue in queues.values():
        _JUDGES[queue.wait.kind](machine, queue)
    ordered = sorted(queues.values(), key=lambda queue: -queue.rank)
    lines = [f"{people(f.warp for f in queue.fragments)} {waits(queue.wait)}{queue.detail}" for queue in ordered]
    first = ordered[0]
    cycle = _cycle(queues.values())
    message = f"deadlock: {first.mistake}{cycle}" + "".join(f"\n    {line}" for line in lines[:12])
    if len(lines) > 12:
        message += f"\n    and {len(lines) - 12} more"
    return _finding("deadlock", message, first.fix, first.wait.op)


def livelock(machine: Machine, spinning: Sequence[Fragment]) -> Finding:
    """The finding of fragments that go round without anything that could ever let them out."""
    where = "; ".join(f"{people([f.warp])} at {place(machine.program.blocks[f.block].ops[0])}" for f in list(spinning)[:6]
                      if machine.program.blocks[f.block].ops)
    ops = machine.program.blocks[spinning[0].block].ops
    asleep = "".join(f"\n    {people([f.warp])} waits at {place(f.wait.op)}" for f in list(machine.sleeping)[:6] if f.wait is not None)
    many = "a fragment goes" if len(spinning) == 1 else f"{len(spinning)} fragments go"
    return _finding("livelock", f"livelock: {many} round for ever and nothing that is read there changes: {where}{asleep}",
                    "what they poll for is never written: look for who should write it, and where that thread is", ops[0] if ops else None)


def _finding(rule: str, message: str, fix: str, op: Op | None) -> Finding:
    from .errors import Fault

    return Fault(rule, message, fix, op).finding


# ----------------------------------------------------------------------------------------------------- the kinds of waits


def _mbarrier(machine: Machine, queue: _Queue) -> None:
    barrier: MBarrier = queue.wait.on
    phase = barrier.phase
    came = people(barrier.arrivals) if barrier.arrivals else "nobody"
    usual = [warp for warp in barrier.before if warp not in barrier.arrivals]
    missing = "".join(f"; {where(machine, warp)}" for warp in usual[:4])
    late = [f for f in queue.fragments if barrier.seen.get(f.warp, phase) <= phase - 3]
    state = f"phase {phase}, {barrier.expected - barrier.pending} of {barrier.expected} arrivals ({came})"
    queue.detail = f": {state}{f', {barrier.tx:+,} bytes outstanding' if barrier.tx else ''}{missing}"
    if late:
        queue.rank, queue.mistake = 90, (f"{people(f.warp for f in late)} missed a phase of {barrier}: it saw phase "
                                         f"{barrier.seen[late[0].warp]} complete, now phase {phase} is under way (overrun)")
        queue.fix = "nobody may start the phase after next before every waiter has seen this one"
    elif barrier.pending == 0 and barrier.tx > 0:
        queue.rank, queue.mistake = 80, f"{barrier.tx:,} bytes that were announced on {barrier} never come (tx deficit)"
        queue.fix = "expect_tx must be the bytes of the copies that signal this barrier in this phase"
    elif barrier.tx < 0:
        queue.rank, queue.mistake = 80, f"{-barrier.tx:,} bytes more than announced have come on {barrier} (tx surplus)"
        queue.fix = "expect_tx must be the bytes of the copies that signal this barrier in this phase"
    elif phase == 0 and barrier.pending == barrier.expected:
        waits_first = all(f.warp not in barrier.seen for f in queue.fragments)
        queue.rank = 50
        why = " (missing arrival, or the waiters' start parity)" if waits_first else ""
        queue.mistake = f"nobody has ever arrived on {barrier}{why}"
        queue.fix = "a thread that waits for a barrier to be empty before anybody filled it starts with parity 1"
    else:
        short = barrier.pending
        surplus = barrier.most and barrier.expected > barrier.most and phase == 0 and not usual
        gone = [warp for warp in usual if not warp.live]
        queue.rank = 75 if gone else 65 if surplus else 60
        queue.mistake = f"{short} of {barrier.expected} arrivals are missing on {barrier} in phase {phase}"
        if gone:
            queue.mistake += f": {people(gone)} arrived in the phase before and has exited"
        queue.fix = (f"mbarrier.init says {barrier.expected}: count who arrives in a phase"
                     if phase == 0 else "every thread that the init count counts must arrive once a phase")


def _barrier(machine: Machine, queue: _Queue) -> None:
    barrier: NamedBarrier = queue.wait.on
    came = barrier.warps
    absent = [warp for warp in barrier.cta.warps if warp not in came and warp.live]
    partial = ", ".join(f"lanes {mask:#x} of warp {index}" for index, mask in barrier.partial.items())
    there = ", ".join(word for word in (people(came) or "no whole warp", partial) if word)
    queue.detail = (f": {barrier.arrived} of {barrier.wanted()} threads ({there})"
                    + "".join(f"; {where(machine, warp)}" for warp in absent[:4]))
    queue.rank, queue.mistake = 70, f"{barrier} awaits {barrier.wanted()} threads, {barrier.arrived} have come"
    queue.fix = "the count must be that of the threads that come, and each of them must come: also those that left early"
    if partial:
        queue.rank, queue.mistake = 85, f"only {partial} of {barrier.cta!r} come to barrier {barrier.index}"
        queue.fix = "bar.sync is for whole warps: keep it out of code that an elected lane runs"


def _cluster(machine: Machine, queue: _Queue) -> None:
    cluster = queue.wait.on.cluster
    arrived = queue.wait.on.arrived
    absent = [warp for cta in cluster.ctas for warp in cta.warps
              if warp.live and arrived.get((cta.rank, warp.index), 0) & warp.live != warp.live]
    queue.detail = "".join(f"; {where(machine, warp)}" for warp in absent[:4])
    queue.rank, queue.mistake = 55, f"{people(absent)} never arrives at {queue.wait.on}"
    queue.fix = "every thread of the cluster that has not exited arrives once a phase"


def _registers(machine: Machine, queue: _Queue) -> None:
    cta = queue.wait.on
    short = queue.wait.phase - cta.free
    queue.detail = f": {queue.wait.phase} registers wanted, {cta.free} free of {cta.pool}"
    queue.rank, queue.mistake = 95, f"setmaxnreg of {cta!r} asks for {short} registers more than its pool of {cta.pool} ever has"
    queue.fix = "the sum over all warps of setmaxnreg x 32 may not exceed the registers at entry x threads"


def _wgmma(machine: Machine, queue: _Queue) -> None:
    group = queue.wait.on
    number = queue.wait.phase
    absent = [warp for warp, done in zip(group.warps, group.committed, strict=False) if done <= number]
    queue.detail = "".join(f"; {where(machine, warp)}" for warp in absent)
    queue.rank, queue.mistake = 88, f"{people(absent)} does not issue and commit the wgmma group that the rest of its warpgroup waits for"
    queue.fix = "all four warps of a warpgroup execute every wgmma"


def _warp(machine: Machine, queue: _Queue) -> None:
    first = queue.fragments[0]
    here = 0
    for f in queue.fragments:
        here |= f.mask
    queue.detail = f": lanes {here:#010x} are there"
    queue.rank = 87
    queue.mistake = f"`{queue.wait.op.opcode}` of {first.warp!r} is for lanes {queue.wait.phase:#010x}, only {here:#010x} come to it"
    queue.fix = "all lanes that the instruction names must execute it"


def _aligned(machine: Machine, queue: _Queue) -> None:
    here = 0
    for f in queue.fragments:
        here |= f.mask
    warp = queue.fragments[0].warp
    queue.rank = 89
    queue.mistake = f"only lanes {here:#x} of warp {warp.index} of {warp.cta!r} come to `{queue.wait.op.opcode}`, which is for all of it"
    queue.fix = "keep it out of code that an elected lane runs, or that a condition divides within a warp"


def _task(machine: Machine, queue: _Queue) -> None:
    queue.rank, queue.mistake = 10, f"{queue.wait.on!r} does not land"


_JUDGES = {"mbarrier": _mbarrier, "barrier": _barrier, "cluster": _cluster, "registers": _registers, "wgmma": _wgmma, "warp": _warp,
           "aligned": _aligned, "bulk": _task, "copies": _task}


# ----------------------------------------------------------------------------------------------------- words


def waits(wait: Wait) -> str:
    """Where somebody waits, and for what."""
    here = place(wait.op)
    match wait.kind:
        case "mbarrier":
            return f"waits at {here} for phase {wait.phase} (parity {wait.phase & 1}) of {wait.on}"
        case "barrier":
            return f"waits at {here} at {wait.on}"
        case "cluster":
            return f"waits at {here} at {wait.on}"
        case "registers":
            return f"waits at {here} for registers"
        case "wgmma":
            return f"waits at {here} for wgmma group {wait.phase}"
        case "warp" | "aligned":
            return f"waits at {here} for the other lanes of its warp"
    return f"waits at {here} for {wait.on!r}"


def place(op: Op) -> str:
    """Where an instruction stands, with its opcode."""
    position: Position | None = op.python or op.position
    return f"`{op.opcode}`" + (f" ({position})" if position else "")


def where(machine: Machine, warp: Warp) -> str:
    """Where a warp is that should have come."""
    if not warp.live:
        return f"{warp!r} has exited"
    found = sorted({place(f.wait.op) for f in machine.sleeping if f.warp is warp and f.wait is not None})
    return f"{warp!r} is at {', '.join(found)}" if found else f"{warp!r} has lanes that wait for each other"


def people(warps: Iterable[Warp]) -> str:
    """Warps by CTA: "CTA 0 warps 1-3, CTA 1 warp 0"."""
    by_cta: dict[int, set[int]] = {}
    for warp in warps:
        by_cta.setdefault(warp.cta.index, set()).add(warp.index)
    parts = []
    for cta, found in sorted(by_cta.items()):
        runs: list[list[int]] = []
        for index in sorted(found):
            if runs and runs[-1][1] == index - 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
        words = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
        parts.append(f"CTA {cta} warp{'s' if len(found) > 1 else ''} {words}")
    return ", ".join(parts[:8]) + (f" and {len(parts) - 8} CTAs more" if len(parts) > 8 else "")


def _cycle(queues: Iterable[_Queue]) -> str:
    """A ring of mbarriers, each awaiting an arrival by those who wait for the next."""
    barriers = [queue for queue in queues if queue.wait.kind == "mbarrier"]
    for one in barriers:
        for other in barriers:
            mine = {f.warp for f in one.fragments}
            theirs = {f.warp for f in other.fragments}
            if one is not other and mine & set(other.wait.on.before) and theirs & set(one.wait.on.before):
                return f"; {one.wait.on} and {other.wait.on} wait for each other"
    return ""
