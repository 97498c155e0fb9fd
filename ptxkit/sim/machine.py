"""The device while a grid runs: resident clusters, ready fragments, operations in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ..grammar.errors import Finding
from .barriers import MBarrier
from .compile import BLOCK, Code
from .cta import Cluster
from .errors import Fault
from .fragment import Fragment, Join, Wait, merged
from .limits import LIMITS, MAX_STEPS, Limits
from .memory import Memory, Places
from .milestones import DONE, READ
from .operand import Immediate, Register
from .spaces import RESERVED_SHARED
from .symbols import round_up
from .tasks import Task
from .values import FULL

if TYPE_CHECKING:
    from .observer import Observer
    from .policy import Policy
    from .program import Op, Program, Routine

FRAME_ROOM = 1 << 14
"""Bytes of local memory per lane beyond one frame of each function, for calls that recur."""


PATIENCE = 30_000
"""Warp instructions without any progress after which the machine asks whether there can be any."""
POLLED = 1_000
"""The same in a program that is known to poll: operations land that it may be polling for."""
SPIN = 3_000
"""Blocks within which a fragment that polls must come back to the same state to be found spinning."""


_MOVES = {"tensor load": ("global", "shared"), "bulk load": ("global", "shared"), "copy": ("global", "shared"),
          "tensor store": ("shared", "global"), "tensor reduce": ("shared", "global"), "bulk store": ("shared", "global"),
          "bulk reduce": ("shared", "global"), "bulk peer": ("shared", "shared"), "store": ("", "shared"), "reduce": ("", "shared")}


class Deadlock(Exception):
    """No fragment can go on."""


class Livelock(Exception):
    """All that can go on go round in the same states for ever."""

    def __init__(self, spinning: list[Fragment]) -> None:
        super().__init__()
        self.spinning = spinning


class Machine:
    """Runs one grid. `resident` CTAs run at the same time; a larger grid follows as clusters end, in order. `watch` is the observer (the
    checker) or None; `progress` counts whatever may let a waiting fragment go on."""

    def __init__(self, program: Program, code: list[Code], policy: Policy, *, grid: tuple[int, int, int], block: tuple[int, int, int],
                 cluster: tuple[int, int, int], dynamic_smem: int, memory: Memory, parameters: bytes, registers_at_entry: int,
                 resident: int, honours_setmaxnreg: bool = True,
                 watch: Observer | None = None, max_steps: int = MAX_STEPS, limits: Limits = LIMITS, explicit_cluster: bool = False,
                 name_of: Callable[[int], str] | None = None) -> None:
        self.program = program
        self.code = code
        self.policy = policy
        self.grid, self.block, self.cluster = grid, block, cluster
        self.threads = block[0] * block[1] * block[2]
        self.dynamic_smem = dynamic_smem
        layout = program.layout
        end = layout.dynamic_start + dynamic_smem if layout.dynamic or dynamic_smem else layout.sizes["shared"]
        self.shared_bytes = round_up(max(end, RESERVED_SHARED), 16)
        self.shared_stride = round_up(self.shared_bytes, 1024)
        self.memory = memory
        constants = bytes(layout.contents("const"))
        self.const = Memory(np.frombuffer(constants.ljust(round_up(len(constants), 16) or 16, b"\0"), np.uint8), "const")
        self.parameters = Memory(np.frombuffer(parameters.ljust(round_up(len(parameters), 16) or 16, b"\0"), np.uint8), "param")
        self.parameters_read: dict[int, Any] = {}
        """What loads of the entry's parameters have read, by the instruction's index."""
        callees = [routine.frame for routine in program.routines.values() if routine is not program.entry]
        self.local_bytes = round_up(program.entry.frame + sum(callees) + FRAME_ROOM * bool(callees), 16) or 16
        self.registers_at_entry = registers_at_entry
        self.honours_setmaxnreg = honours_setmaxnreg
        self.explicit_cluster = explicit_cluster
        self.resident = resident
        self.watch = watch
        self.max_steps = max_steps
        self.limits = limits
        self._steps_due = max_steps
        self.name_of: Callable[[int], str] = name_of or (lambda offset: f"mbarrier at shared +{offset - RESERVED_SHARED:#x}")
        self.ready: deque[Fragment] = deque()
        self.going: Fragment | None = None
        """Whose turn was over before it had to wait, if the last turn ended so."""
        self.sleeping: dict[Fragment, None] = {}
        self.flying: list[Task] = []
        self.clusters: list[Cluster] = []
        self.progress = 0
        self.steps = 0
        self._seen_progress, self._seen_at, self._patience, self._polite = 0, 0, PATIENCE, PATIENCE
        self.tasks = 0
        self.probing = False
        """Whether a fragment runs alone to find out whether it can go on: no try_wait fails then for its time."""
        self.clock = 0
        self.storing: tuple[Places, Sequence[Any], int] | None = None
        """What a store is about to write while the observer is told of it: places, values, bytes of each."""
        self.bank_conflicts = 0
        self.barrier_waits = 0
        self.traffic = {space: [0, 0] for space in ("global", "shared", "local", "const", "param")}
        for of in (self.memory, self.const, self.parameters):
            of.traffic = self.traffic[of.space]
        self.counts = [0] * len(program.blocks)
        self.findings: list[Finding] = []
        self.output: list[str] = []
        self._printed = 0
        self._local = 0
        self.live = cache(self._live)
        self._blank: dict[str, list[Any]] = {}
        self._sizes = [len(b.ops) + b.begins for b in program.blocks]
        self._functions = {address: name for name, address in layout.functions.items()}
        self._waiting = self._positions()

    # ------------------------------------------------------------------------------------------- the run

    def run(self) -> None:
        """Run the grid to its end; raises `Fault` or `Deadlock`."""
        self.begin()
        while self.advance():
            pass
        self.end()

    def begin(self) -> None:
        """Make the first clusters resident."""
        if self.watch is not None:
            self.watch.begin(self)
        self.policy.begin(self)
        self._admit()

    def advance(self) -> bool:
        """One turn or, where nobody can go on, what happens by itself. False: all threads have exited."""
        if self.ready:
            self._turn(self.policy.next(self.ready))
            self.policy.between(self)
            if self.steps - self._seen_at > self._patience:
                self._look_for_progress()
            return True
        if self.clusters:
            self._stalled()
            return True
        return False

    def end(self) -> None:
        """All threads have exited: what is still in flight lands."""
        while self.flying:
            self.land(self.flying[0])
        if self.watch is not None:
            self.watch.end(self)

    def _turn(self, start: Fragment, states: set[Any] | None = None) -> bool:
        """Run a fragment until it waits, ends, joins others, or its turn is over. With `states`: until a state comes again (True)."""
        f = start
        self.going = None
        code, counts, sizes = self.code, self.counts, self._sizes
        block = f.block
        turns = min(self.policy.turn(f) if states is None else SPIN, max(self._steps_due - self.steps, 0) + 1)
        while True:
            counts[block] += 1
            self.steps += sizes[block]
            f.block = block
            after = code[block](f)
            if after >= 0:
                block = after
                join = f.join
                while join is not None and join.block == block and join.depth == (0 if f.stack is None else f.stack.depth):
                    whole = f.arrive(block)
                    if whole is None:
                        return False
                    f, join = whole, whole.join
                turns -= 1
                repeats = False
                if states is not None:
                    state = self._state(f, block)
                    repeats = state in states
                    states.add(state)
                if turns <= 0 or repeats:
                    f.block = block
                    self.going = f
                    self._check_steps()
                    self.ready.append(f)
                    return repeats
            elif after == BLOCK:
                counts[block] -= 1
                self._check_steps()
                if f.wait is not None:
                    self.sleeping[f] = None
                elif f.mask:
                    self.ready.append(f)
                return False
            else:
                f.exit(f.mask)
                self._check_steps()
                return False

    def _check_steps(self) -> None:
        """`steps` counts what blocks, too, so that it is larger than the number of instructions that have been executed."""
        if self.steps > self._steps_due:
            executed = self.executed
            if executed > self.max_steps or self.steps > 8 * self.max_steps + 64:
                raise Fault("max-steps", f"the program has not ended after {executed:,} warp instructions "
                            f"(max_steps is {self.max_steps:,})",
                            "raise max_steps if it needs more")
            self._steps_due = self.steps + max(self.max_steps - executed, 1)

    @property
    def executed(self) -> int:
        """Warp instructions so far."""
        return sum(len(block.ops) * count for block, count in zip(self.program.blocks, self.counts, strict=True))

    def printed(self, words: str, op: Op) -> None:
        """What a lane prints."""
        self._printed += len(words)
        if self._printed > self.limits.output:
            raise Fault("max-output", f"the program has printed more than {self.limits.output:,} characters: {self.limits.says('output')}",
                        "", op)
        self.output.append(words)

    def _stalled(self) -> None:
        """Nothing is ready: land something, let a try_wait time out, or find that nobody can ever go on."""
        self._check_steps()
        if not (self._help() or self._part_joins()):
            raise Deadlock

    def _help(self) -> bool:
        """What happens by itself when no thread does anything: operations land, a try_wait times out."""
        if self.flying:
            for task in self.policy.choose([task for task in self.flying if task.state < DONE]):
                self.land(task)
            return True
        for f in self.sleeping:
            if f.wait is not None and f.wait.times_out and f.stalled_at != self.progress:
                f.stalled_at = self.progress
                f.timed_out = True
                self._rouse(f)
                return True
        return False

    def _part_joins(self) -> bool:
        """Let lanes go on that wait for others of their warp only to run together: the others may need them to. First those of warps
        whose lanes wait for each other at an instruction, then all; but none past an instruction that is for the whole warp together.
        """
        waits = [(f, f.wait.kind) for f in self.sleeping if f.wait is not None]
        return self._unpark([f for f, kind in waits if kind == "warp"]) or self._unpark([f for f, kind in waits if kind != "aligned"])

    def _unpark(self, waiting: list[Fragment]) -> bool:
        found = False
        for f in waiting:
            join = f.join
            while join is not None:
                for parked in join.arrived:
                    parked.join = join.parent
                    parked.block = join.block
                    join.expected &= ~parked.mask
                    self.ready.append(parked)
                    found = True
                join.arrived = []
                join = join.parent
        return found

    def _look_for_progress(self) -> None:
        """Fragments run and nothing that others could wait for has happened for long: find out whether it ever can."""
        if self.progress != self._seen_progress:
            self._seen_progress, self._seen_at, self._patience = self.progress, self.steps, self._polite
            return
        if self._help():
            self._polite = POLLED
        elif self._patience < PATIENCE:
            self._patience = PATIENCE
            return
        else:
            before = self._contents()
            spinning = [f for f in list(self.ready) if self._spins(f)]
            if spinning and len(spinning) == len(self.ready) and self.progress == self._seen_progress and before == self._contents() \
                    and not self._part_joins():
                raise Livelock(spinning)
            self._patience *= 2
        self._seen_at = self.steps

    def _spins(self, f: Fragment) -> bool:
        """Whether the fragment, run alone, comes back to a state that it was in."""
        self.ready.remove(f)
        self.probing = True
        try:
            return self._turn(f, {self._state(f, f.block)})
        finally:
            self.probing = False

    def _state(self, f: Fragment, block: int) -> Any:
        registers = f.R
        values = tuple(v if isinstance(v, int) else v.tobytes() for v in (registers[i] for i in self.live(block)))
        return block, f.mask, id(f.stack), hash(values)

    def _contents(self) -> tuple[int, ...]:
        memories = [self.memory, *(cluster.shared for cluster in self.clusters)]
        return tuple(crc32(memory.data.data) for memory in memories)

    # ------------------------------------------------------------------------------------------- clusters

    def local_memory(self) -> int:
        """The bytes of a warp's local memory, which it now takes: 32 times a lane's."""
        self._local += 32 * self.local_bytes
        if self._local > self.limits.memory:
            raise Fault("max-memory", f"the resident threads have {self.local_bytes:,} bytes of local memory each, together more than "
                        f"{self.limits.memory:,}", self.limits.says("memory"))
        return self.local_bytes

    def _positions(self) -> deque[list[tuple[int, int, int]]]:
        found: deque[list[tuple[int, int, int]]] = deque()
        x, y, z = self.cluster
        for cz in range(0, self.grid[2], z):
            for cy in range(0, self.grid[1], y):
                for cx in range(0, self.grid[0], x):
                    found.append([(cx + i, cy + j, cz + k) for k in range(z) for j in range(y) for i in range(x)])
        return found

    def _admit(self) -> None:
        """Make as many clusters resident as there is room for."""
        room = max(1, self.resident // (self.cluster[0] * self.cluster[1] * self.cluster[2]))
        while self._waiting and len(self.clusters) < room:
            made = Cluster(self, self.tasks, self._waiting.popleft())
            self.clusters.append(made)
            for cta in made.ctas:
                if self.watch is not None:
                    self.watch.cta_begin(cta)
                for warp in cta.warps:
                    registers = self.blank(self.program.entry)
                    self.ready.append(Fragment(self, warp, registers, warp.lanes, self.program.entry.entry))

    def exited(self, f: Fragment, mask: int) -> None:
        """Lanes of a warp have ended: joins, barriers and the cluster no longer count on them."""
        warp, cta = f.warp, f.cta
        warp.live &= ~mask
        self.progress += 1
        if self.watch is not None:
            self.watch.exited(f, mask)
        join = f.join
        while join is not None:
            join.expected &= ~mask
            whole = self.complete(join) if join.arrived else None
            if whole is not None:
                self.ready.append(whole)
            join = join.parent
        for waiting in warp.meetings.values():
            self.wake(waiting)
        if warp.live:
            return
        for barrier in cta.barriers.values():
            barrier.check()
        cta.cluster.barrier.check()
        if not cta.live:
            if self.watch is not None:
                self.watch.cta_end(cta)
            self._local -= sum(warp.release_local() for warp in cta.warps)
            if not cta.cluster.live:
                self.clusters.remove(cta.cluster)
                if not any(task.warp.cta.cluster is cta.cluster for task in self.flying):
                    cta.cluster.release()
                self._admit()

    def complete(self, join: Join) -> Fragment | None:
        """The merged fragment, once all lanes that the join expects are there."""
        arrived = join.arrived
        mask = 0
        for f in arrived:
            mask |= f.mask
        if mask != join.expected or not arrived:
            return None
        whole = arrived[0]
        if len(arrived) > 1:
            if self.watch is not None:
                self.watch.joined(arrived)
            whole = merged(arrived, self.live(join.block), self.program.owner[join.block].widths)
        whole.block = join.block
        whole.join = join.parent
        join.arrived = []
        return whole

    # ------------------------------------------------------------------------------------------- waiting and waking

    def sleep(self, f: Fragment, waiters: list[Fragment], wait: Wait) -> None:
        """The fragment waits among `waiters`; its instruction must return BLOCKED."""
        f.wait = wait
        waiters.append(f)
        if wait.kind in ("mbarrier", "barrier", "cluster"):
            self.barrier_waits += 1
        if self.watch is not None:
            self.watch.slept(f, wait)

    def wake(self, waiters: list[Fragment]) -> None:
        for f in waiters:
            self._rouse(f)
        waiters.clear()

    def _rouse(self, f: Fragment) -> None:
        if f in self.sleeping:
            del self.sleeping[f]
            f.wait = None
            self.ready.append(f)

    # ------------------------------------------------------------------------------------------- tasks and barriers

    def issue(self, f: Fragment, task: Task) -> None:
        """Start an asynchronous operation."""
        self.tasks += 1
        task.number = self.tasks
        source, target = _MOVES.get(task.kind, ("", ""))
        target = "shared" if target and task.signals else target
        if source:
            self.traffic[source][0] += task.bytes * (task.mask.bit_count() if task.kind == "copy" else 1)
        if target:
            self.traffic[target][1] += task.bytes * (task.mask.bit_count() if task.kind == "copy" else len(task.signals) or 1)
        if self.watch is not None:
            self.watch.issued(f, task)
        if self.policy.lands_at_once(task):
            task.land(self)
        else:
            self.flying.append(task)

    def land(self, task: Task, milestone: int = DONE) -> None:
        if task.state == READ == milestone:
            return
        task.land(self, milestone)
        if task.state == DONE:
            self.flying.remove(task)

    def mbarrier(self, f: Fragment, op: Op, place: int) -> MBarrier:
        found = f.cta.cluster.mbarriers.get(place)
        if found is None:
            cta = f.cta.cluster.ctas[place // self.shared_stride]
            name = self.name_of(place - cta.start)
            raise Fault("mbarrier-uninitialised", f"{f.warp!r}: `{op.opcode}` on {name} of {cta!r}, which is not initialised",
                        "mbarrier.init it, and let a barrier separate the init from its first use", op)
        return found

    def complete_tx(self, cluster: Cluster, place: int, count: int, task: Task) -> None:
        barrier = cluster.mbarriers.get(place)
        if barrier is None:
            cta = cluster.ctas[place // self.shared_stride]
            name = self.name_of(place - cta.start)
            raise Fault("mbarrier-uninitialised", f"{count} bytes complete on {name} of {cta!r}, which is not initialised",
                        "mbarrier.init it before the copy is issued", task.op)
        if self.watch is not None:
            self.watch.mbarrier_complete_tx(task, barrier, count)
        barrier.complete_tx(count, task.op, task.warp)

    # ------------------------------------------------------------------------------------------- registers

    def _live(self, block: int) -> tuple[int, ...]:
        """The registers live at the begin of a block."""
        if block < 0:
            return tuple(range(len(self.program.entry.widths)))
        bits = self.program.blocks[block].live
        return tuple(i for i in range(bits.bit_length()) if bits >> i & 1)

    def blank(self, routine: Routine) -> list[Any]:
        """Registers that hold nothing yet: a poison of their width."""
        known = self._blank.get(routine.name)
        if known is None:
            known = self._blank[routine.name] = [False if bits == 1 else 0xDEADBEEFDEADBEEFDEADBEEFDEADBEEF & (1 << bits) - 1
                                                 for bits in routine.widths]
        return known.copy()

    def read(self, f: Fragment, operand: Any, registers: list[Any]) -> Any:
        """The value of a call's argument."""
        if isinstance(operand, Register):
            return registers[operand.index]
        if isinstance(operand, Immediate):
            return operand.value
        raise AssertionError(operand)

    def function_at(self, address: int) -> str | None:
        return self._functions.get(address)

    def special(self, name: str, behind: int) -> Any:
        """A special register that is not a constant of the warp. Clocks count warp instructions, so that runs repeat."""
        self.clock += 1
        now = self.steps - behind + self.clock
        values = {"%clock64": now, "%clock": now & FULL, "%clock_hi": now >> 32, "%globaltimer": now, "%globaltimer_lo": now & FULL,
                  "%globaltimer_hi": now >> 32}
        return values[name]

    def trap(self, f: Fragment, mask: int, op: Op) -> None:
        raise Fault("trap", f"{f.warp!r} executes trap", "", op)
