"""One simulated launch on the machine, from source and arguments to a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cards import H200, Card
from ..grammar import tree
from ..grammar.errors import Finding
from ..newest import Newest
from .arguments import Arguments
from .asked import Dim, ObserverBase, PolicyBase
from .collecting import seldom_collecting
from .compile import Code, Compiler
from .deadlock import explain, livelock
from .definite import followed
from .errors import Again, Fault, SimulationError
from .failure import explained
from .limits import LIMITS, MAX_STEPS, Limits
from .machine import Deadlock, Livelock, Machine
from .meeting import meets
from .observer import Observer, Several
from .policy import policy_of
from .previous import uses_of
from .program import Decoder, Program, entry_of
from .report import Report, Stats
from .semantics import find
from .shape import Shape, registers_at_entry, whole
from .spaces import RESERVED_SHARED
from .written import Buffer, Written

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from .checker import Checker
    from .memory import Allocation

_KEPT = 32
_programs: Newest[tuple[int, str, int, bool], tuple[tree.Module, Program]] = Newest(_KEPT)
_codes: Newest[tuple[int, frozenset[int] | None], tuple[Program, frozenset[int], list[Code]]] = Newest(_KEPT)


def prepare(source: Any, entry: str | None = None, *, args: Sequence[Any], schedule: str | PolicyBase = "fifo", seed: int = 0,
            max_steps: int | None = None, limits: Limits = LIMITS, card: Card = H200, observers: Sequence[ObserverBase] = (),
            grid: Dim, block: Dim | None = None, cluster: Dim | None = None, dynamic_smem: int | None = None, check: bool = True,
            previous: Mapping[str, Iterable[Any]] | None = None, names: Sequence[str] | None = None, marks: str = "",
            **config: Any) -> Simulation:
    """A launch that is ready to run: see `run`."""
    _asked(args, seed, card, limits, max_steps)
    told = _told(observers)
    policy_of(schedule, seed)
    module, traced = _module(source, config)
    callers = bool(told) or not isinstance(schedule, str)
    with explained(module, callers=callers):
        stepwise = isinstance(schedule, PolicyBase) and schedule.stepwise
        program = _program(module, entry_of(module, entry or (traced.name if traced else None)), limits, stepwise)
        shape = Shape(program, grid, block, cluster, dynamic_smem, traced, limits)
        return Simulation(program, traced, shape, args, schedule, seed, check, max_steps or MAX_STEPS, limits, card, told, previous,
                          names, marks, callers)


class Simulation:
    """One launch, ready to run. `begin` makes it a machine, `report` says what came of the run on it."""

    def __init__(self, program: Program, traced: Traced | None, shape: Shape, args: Sequence[Any], schedule: str | PolicyBase, seed: int,
                 check: bool, max_steps: int, limits: Limits, card: Card, observers: Sequence[Observer],
                 previous: Mapping[str, Iterable[Any]] | None, names: Sequence[str] | None, marks: str,
                 callers: bool) -> None:
        self.program, self.traced, self.shape = program, traced, shape
        self.given, self.schedule, self.seed = args, schedule, seed
        self.check, self.max_steps, self.limits, self.card = check, max_steps, limits, card
        self.observers, self.previous, self.names = observers, previous, names
        self.marks, self.callers = marks, callers
        self.registers, self.honoured = registers_at_entry(program, shape)

    def run(self) -> Report:
        """Run it to its end."""
        with self.explained():
            while (findings := _execute(self.begin())) is None:
                pass
            return self.report(findings)

    def explained(self) -> AbstractContextManager[None]:
        """Around what runs on the machine: every exception that leaves it is one of ptxkit's."""
        return explained(self.program.module, callers=self.callers)

    def begin(self) -> Machine:
        """A machine before its first turn. A run that raises `Again` goes on with another one."""
        program, shape = self.program, self.shape
        self.arguments = arguments = Arguments(program, self.given, self.traced, self.limits, self.names)
        self.watch, code = _watched(program, self.check, arguments.allocation(self.marks) if self.marks else None)
        uses = uses_of(self.previous, arguments)
        if self.watch is not None:
            self.watch.previous = uses
        self.policy = policy_of(self.schedule, self.seed)
        self.machine = Machine(program, code, self.policy, grid=shape.grid, block=shape.block, cluster=shape.cluster,
                               dynamic_smem=shape.dynamic_smem, memory=arguments.memory, parameters=bytes(arguments.parameters),
                               registers_at_entry=self.registers, resident=self.card.sms, honours_setmaxnreg=self.honoured,
                               watch=_watch(self.watch, self.observers), max_steps=self.max_steps, limits=self.limits,
                               explicit_cluster=shape.explicit, name_of=_names(program, self.traced))
        return self.machine

    def report(self, findings: list[Finding]) -> Report:
        """What came of the run, which the findings have ended (none: it came to its end); the arrays get what it has written."""
        arguments, watch, machine = self.arguments, self.watch, self.machine
        arguments.copy_back()
        ended = not findings
        if watch is not None:
            findings = findings + watch.findings()
        return Report(tuple(findings), _stats(machine), self.check, incomplete=watch is not None and watch.incomplete,
                      every_schedule=ended and watch is not None and watch.every_schedule,
                      provided="" if watch is None else watch.provided, schedule=self.policy.name, seed=self.policy.seed,
                      output="".join(machine.output), ended=ended, variables=arguments.variables(),
                      written=None if watch is None else _written(watch, arguments, self.marks))


def _asked(args: Any, seed: Any, card: Any, limits: Any, max_steps: Any) -> None:
    """What is no launch at all."""
    if max_steps is not None and whole(max_steps, "max_steps") < 1:
        raise SimulationError(f"max_steps is a positive number of warp instructions, not {max_steps}")
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise SimulationError(f"args is a sequence, one entry per parameter, not {type(args).__name__}")
    whole(seed, "seed")
    for name, value, type_, words in (("card", card, Card, "ptxkit.cards.Card"), ("limits", limits, Limits, "ptxkit.sim.Limits")):
        if not isinstance(value, type_):
            raise SimulationError(f"{name}={value!r} is no {words}")


def _told(observers: Any) -> tuple[Observer, ...]:
    if not isinstance(observers, Sequence):
        raise SimulationError(f"observers={observers!r} is no sequence: put the observer in a list")
    for each in observers:
        if not isinstance(each, Observer):
            raise SimulationError(f"{each!r} among the observers is no ptxkit.sim.observer.Observer: derive its class from that")
    return tuple(observers)


def _execute(machine: Machine) -> list[Finding] | None:
    """What ended the run before its end, if anything; None if it must begin again."""
    try:
        with seldom_collecting():
            machine.run()
    except Again:
        return None
    except STOPS as stop:
        return [finding_of(machine, stop)]
    return []


STOPS = Fault, Deadlock, Livelock
"""What ends a run before its end."""


def finding_of(machine: Machine, stop: Exception) -> Finding:
    """The finding of what has ended a run, one of `STOPS`."""
    if isinstance(stop, Fault):
        return stop.finding
    return livelock(machine, stop.spinning) if isinstance(stop, Livelock) else explain(machine)


def _watch(checker: Checker | None, observers: Sequence[Observer]) -> Observer | None:
    return Several([*([] if checker is None else [checker]), *observers]) if observers else checker


def _module(source: Any, config: dict[str, Any]) -> tuple[tree.Module, Traced | None]:
    if isinstance(source, tree.Module | str):
        if config:
            raise SimulationError(f"compile-time parameters ({', '.join(config)}) are for kernel objects")
        if isinstance(source, tree.Module):
            return source, None
        from ..grammar import parse

        return parse(source), None
    if hasattr(source, "trace"):
        traced = source.trace(**config)
        return traced.module, traced
    if hasattr(source, "module") and hasattr(source, "copies"):
        return source.module, source
    raise SimulationError(f"{source!r} is neither PTX text, nor a tree, nor a kernel")


def _program(module: tree.Module, function: tree.Function, limits: Limits, stepwise: bool) -> Program:
    key = id(module), function.name, limits.registers, stepwise
    kept = _programs.get(key)
    if kept is None:
        def blocks(op: Any) -> bool:
            found = find(op)
            return (found is not None and found.kind == "blocking") or meets(op)

        kept = _programs[key] = module, Decoder(module, blocks, limits, stepwise).program(function)
    return kept[1]


def _watched(program: Program, check: bool, outside: Allocation | None) -> tuple[Checker | None, list[Code]]:
    """A checker, and the program's functions. The functions tell the checker of each access to a register that may hold nothing, or that
    wgmma uses. `outside` is the buffer of marks, which is not checked."""
    key = id(program), frozenset(program.undefined) if check else None
    kept = _codes.get(key)
    if kept is None:
        watched: frozenset[int] = followed(program) if check else frozenset()
        kept = _codes[key] = program, watched, Compiler(program, watched).compile()
    if not check:
        return None, kept[2]
    if outside is None:
        from .checker import Checker

        watch = Checker()
    else:
        from .checker.marked import MarkedChecker

        watch = MarkedChecker(outside)
    watch.followed = kept[1]
    return watch, kept[2]


# ----------------------------------------------------------------------------------------------------- the launch


def _names(program: Program, traced: Traced | None) -> Any:
    """The author's name of a byte of shared memory."""
    start = program.layout.dynamic_start
    symbols = sorted((s.address, s) for s in program.layout.placed if s.region == "shared")

    @cache
    def name(offset: int) -> str:
        if traced is not None:
            of = program.layout.find(traced.shared.symbol)
            base = start if traced.shared.dynamic or of is None else of.address
            for barriers in traced.shared.barriers:
                index, rest = divmod(offset - base - barriers.offset, 8)
                if 0 <= index < len(barriers) and not rest:
                    return f"{barriers.name}[{index}]"
            for a in traced.shared.allocations:
                if a.offset <= offset - base < a.offset + a.bytes:
                    said, within = traced.shared.said(a), offset - base - a.offset
                    return said if not within else f"{said}+{within}" if said == a.name else f"{said} (+{within})"
        for address, symbol in symbols:
            if address <= offset < address + symbol.size:
                return symbol.name + (f"+{offset - address}" if offset > address else "")
        return f"shared+{offset - start if offset >= start else offset - RESERVED_SHARED}"

    return name


def _written(checker: Checker, arguments: Arguments, but: str) -> Written:
    """What a run has written of all arguments `but` one."""
    shadows = {allocation.start: shadow for allocation, shadow in checker.global_shadows()}
    found = []
    for name, start, size, begin in arguments.regions():
        if name == but:
            continue
        shadow = shadows.get(start)
        bits = np.packbits(shadow.write != 0) if shadow is not None else np.zeros(1 + (size >> 7), np.uint8)
        found.append(Buffer(name, begin, size, 4 if shadow is None else shadow.shift, bits))
    return Written(tuple(found))


def _stats(machine: Machine) -> Stats:
    opcodes: dict[str, int] = {}
    for block, count in zip(machine.program.blocks, machine.counts, strict=True):
        if count:
            for op in block.ops:
                opcodes[op.opcode] = opcodes.get(op.opcode, 0) + count
    moved = {f"{verb} {space}": count for space, counts in machine.traffic.items()
             for verb, count in zip(("read", "write"), counts, strict=True) if count}
    return Stats(sum(opcodes.values()), dict(sorted(opcodes.items(), key=lambda item: -item[1])), machine.bank_conflicts,
                 machine.barrier_waits, moved)
