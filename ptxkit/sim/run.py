"""One simulated launch, from source and arguments to a report."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..cards import H200, Card
from ..dsl.rules import entry_registers
from ..grammar import tree
from ..smem import SHARED_LIMIT
from .arguments import Arguments
from .compile import Code, Compiler
from .deadlock import explain, livelock
from .definite import followed
from .errors import Fault, SimulationError
from .machine import Deadlock, Livelock, Machine
from .operand import Immediate
from .policy import policy_of
from .program import Decoder, Program, entry_of
from .report import Report, Stats
from .semantics import find
from .spaces import RESERVED_SHARED

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from .checker import Checker

Dim = int | tuple[int, ...]
_KEPT = 32
_programs: OrderedDict[tuple[int, str], tuple[tree.Module, Program]] = OrderedDict()
_codes: OrderedDict[tuple[int, bool], tuple[Program, list[Code]]] = OrderedDict()


def run(source: Any, entry: str | None = None, *, grid: Dim, block: Dim | None = None, cluster: Dim | None = None,
        dynamic_smem: int | None = None, args: Sequence[Any], schedule: str = "fifo", seed: int = 0, check: bool = True,
        max_steps: int | None = None, card: Card = H200, **config: Any) -> Report:
    """Execute one launch on the CPU device; arrays in `args` are updated in place.

    `source` is PTX text, a tree, or a kernel object (with its compile-time parameters as keywords). `args`: NumPy arrays for pointers
    and (for kernels that record their tiles) tensor maps, numbers, `ptxkit.TensorMap`. A grid counts CTAs. `block`, `cluster` and
    `dynamic_smem` default to what the kernel says. `schedule`: "fifo", "random" (by `seed`), "adversarial" or a named adversary.
    `check` runs the checker, whose findings the report holds; without it only faults are found. As many CTAs run at the same time as `card`
    has SMs.
    """
    if max_steps is not None and max_steps < 1:
        raise SimulationError(f"max_steps is a positive number of warp instructions, not {max_steps}")
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise SimulationError(f"args is a sequence, one entry per parameter, not {type(args).__name__}")
    module, traced = _module(source, config)
    program = _program(module, entry_of(module, entry or (traced.name if traced else None)))
    policy = policy_of(schedule, seed)
    shape = _Shape(program, grid, block, cluster, dynamic_smem, traced)
    arguments = Arguments(program, args, traced)
    watch: Checker | None = None
    if check:
        from .checker import Checker

        watch = Checker()
    code = _code(program, check)
    registers, honoured = _registers(program, shape)
    machine = Machine(program, code, policy, grid=shape.grid, block=shape.block, cluster=shape.cluster, dynamic_smem=shape.dynamic_smem,
                      memory=arguments.memory, parameters=bytes(arguments.parameters), registers_at_entry=registers,
                      resident=card.sms, honours_setmaxnreg=honoured, watch=watch, max_steps=max_steps, explicit_cluster=shape.explicit,
                      name_of=_names(program, traced))
    findings = []
    try:
        machine.run()
    except Fault as fault:
        findings.append(fault.finding)
    except Deadlock:
        findings.append(explain(machine))
    except Livelock as found:
        findings.append(livelock(machine, found.spinning))
    arguments.copy_back()
    ended = not findings
    if watch is not None:
        findings += watch.findings()
    return Report(tuple(findings), _stats(machine), check, incomplete=watch is not None and watch.incomplete,
                  every_schedule=ended and watch is not None and watch.every_schedule, schedule=schedule, seed=seed,
                  output="".join(machine.output))


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


def _program(module: tree.Module, function: tree.Function) -> Program:
    key = id(module), function.name
    kept = _programs.get(key)
    if kept is None:
        def blocks(op: Any) -> bool:
            found = find(op)
            return (found is not None and found.kind == "blocking") or op.operand("membermask") is not None

        kept = _programs[key] = module, Decoder(module, blocks).program(function)
        if len(_programs) > _KEPT:
            _programs.popitem(last=False)
    return kept[1]


def _code(program: Program, check: bool) -> list[Code]:
    """The program's functions; a checker wants to be told of accesses to registers that may hold nothing, and to those of wgmma."""
    watched: frozenset[int] = followed(program) if check else frozenset()
    key = id(program), bool(watched)
    kept = _codes.get(key)
    if kept is None:
        kept = _codes[key] = program, Compiler(program, watched).compile()
        if len(_codes) > _KEPT:
            _codes.popitem(last=False)
    return kept[1]


# ----------------------------------------------------------------------------------------------------- the launch


def _directive(function: tree.Function, name: str) -> tuple[int, int, int] | None:
    for directive in function.directives:
        if directive.name == name:
            given = [a for a in directive.arguments if isinstance(a, int)]
            return (*given, 1, 1)[:3]  # type: ignore[return-value]
    return None


def _dims(value: Dim, what: str) -> tuple[int, int, int]:
    dims = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(dims) <= 3 or any(not isinstance(d, int) or d < 1 for d in dims):
        raise SimulationError(f"{what} is one to three positive extents, not {value!r}")
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


class _Shape:
    """The launch, checked against what the kernel says of itself."""

    def __init__(self, program: Program, grid: Dim, block: Dim | None, cluster: Dim | None, dynamic_smem: int | None,
                 traced: Traced | None) -> None:
        function = program.entry.function
        self.grid = _dims(grid, "grid")
        required, most = _directive(function, "reqntid"), _directive(function, "maxntid")
        if block is None:
            if required is None:
                raise SimulationError(f"`{function.name}` does not say its block (.reqntid): give block=")
            self.block = required
        else:
            self.block = _dims(block, "block")
            if required is not None and self.block != required:
                raise SimulationError(f"block {self.block} conflicts with .reqntid {required} of `{function.name}`")
        if any(extent > limit for extent, limit in zip(self.grid, (2**31 - 1, 65535, 65535), strict=True)):
            raise SimulationError(f"a grid of {self.grid}: at most 2,147,483,647 x 65,535 x 65,535 CTAs")
        if self.block[2] > 64:
            raise SimulationError(f"a block of {self.block}: at most 64 threads deep")
        threads = self.block[0] * self.block[1] * self.block[2]
        if threads > 1024:
            raise SimulationError(f"a block of {threads} threads: at most 1024")
        if most is not None and threads > most[0] * most[1] * most[2]:
            raise SimulationError(f"block {self.block} is more than .maxntid {most} of `{function.name}`")
        clustered = _directive(function, "reqnctapercluster")
        self.explicit = clustered is not None or cluster is not None
        if cluster is None:
            self.cluster = clustered or (1, 1, 1)
        else:
            self.cluster = _dims(cluster, "cluster")
            if clustered is not None and self.cluster != clustered:
                raise SimulationError(f"cluster {self.cluster} conflicts with .reqnctapercluster {clustered} of `{function.name}`")
        if any(g % c for g, c in zip(self.grid, self.cluster, strict=True)):
            raise SimulationError(f"the grid {self.grid} is not divisible by the cluster {self.cluster}")
        if self.cluster[0] * self.cluster[1] * self.cluster[2] > 16:
            raise SimulationError(f"a cluster of {self.cluster}: at most 16 CTAs")
        planned = 0 if traced is None else traced.dynamic_smem
        self.dynamic_smem = planned if dynamic_smem is None else dynamic_smem
        if self.dynamic_smem < 0:
            raise SimulationError(f"dynamic_smem {self.dynamic_smem}: at least 0 bytes")
        if self.dynamic_smem < planned:
            raise SimulationError(f"dynamic_smem {self.dynamic_smem} is less than the {planned} bytes of the kernel's plan")
        layout = program.layout
        total = layout.dynamic_start + self.dynamic_smem - RESERVED_SHARED
        if total > SHARED_LIMIT:
            raise SimulationError(f"{total:,} bytes of shared memory a CTA: at most {SHARED_LIMIT:,}")


def _registers(program: Program, shape: _Shape) -> tuple[int, bool]:
    """(registers a thread at entry, whether setmaxnreg is honoured: ptxas ignores it without a register cap)."""
    function = program.entry.function
    counts = [o.value for op in program.ops if op.tokens[0] == "setmaxnreg" for o in op.operands if isinstance(o, Immediate)]
    capped = _directive(function, "maxnreg")
    if capped is not None:
        return capped[0], True
    bounded = _directive(function, "minnctapersm")
    sized = _directive(function, "reqntid") or _directive(function, "maxntid")
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    if bounded is None or sized is None:
        return min(255, entry_registers(threads, max(counts, default=255))), False
    return min(255, entry_registers(threads * bounded[0], max(counts, default=255))), True


def _names(program: Program, traced: Traced | None) -> Any:
    """The author's name of a byte of shared memory."""
    start = program.layout.dynamic_start
    symbols = sorted((s.address, s) for s in program.layout.symbols.values() if s.region == "shared")

    def name(offset: int) -> str:
        if traced is not None:
            base = start if traced.shared.dynamic else program.layout.symbols[traced.shared.symbol].address
            for barriers in traced.shared.barriers:
                index, rest = divmod(offset - base - barriers.offset, 8)
                if 0 <= index < len(barriers) and not rest:
                    return f"{barriers.name}[{index}]"
            for a in traced.shared.allocations:
                if a.offset <= offset - base < a.offset + a.bytes:
                    return a.name + (f"+{offset - base - a.offset}" if offset - base > a.offset else "")
        for address, symbol in symbols:
            if address <= offset < address + symbol.size:
                return symbol.name + (f"+{offset - address}" if offset > address else "")
        return f"shared+{offset - start if offset >= start else offset - RESERVED_SHARED}"

    return name


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


