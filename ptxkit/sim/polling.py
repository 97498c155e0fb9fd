"""Loops that wait: from an instruction that asks (a wait for an mbarrier, a strong load), through what leads back to it.

What an answer leads to is found by walking on from the instruction with the answer in its register: instructions on registers are
executed as far as what they read is known, both ways of a branch are taken where its predicate is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .compile import Compiler
from .definite import bits
from .operand import Register, SpecialRegister, SymbolValue, Word
from .semantics import find

if TYPE_CHECKING:
    from .program import Op, Program
    from .slices import Nature, Slices

STEPS = 2000
"""Instructions that a walk looks at."""
ASKS = ("addr", "a", "state", "phaseParity")
"""Operands that say what is asked."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a walk comes to: the same question again, or (`again` False) something else. `written` on the way: registers as a bit set."""

    again: bool
    op: Op
    written: int
    branches: frozenset[int]


@dataclass(frozen=True, slots=True)
class Loop:
    """How an instruction that asks is asked again: registers that each round changes, the branches that decide, whether anything but the
    answer decides whether to ask again.
    """

    carried: int
    branches: frozenset[int]
    ends: tuple[Op, ...]
    steady: bool = True
    gives_up: Op | None = None
    """What the thread comes to although the answer was no."""


class Stepper:
    """Instructions from registers to registers, one at a time, on lanes of one."""

    def __init__(self, program: Program) -> None:
        self.compiler = Compiler(program)
        self._made: dict[int, Callable[[Any], Any] | None] = {}

    def of(self, op: Op) -> Callable[[Any], Any] | None:
        if op.index not in self._made:
            known = find(op)
            self._made[op.index] = self._make(op) if known is not None and known.kind == "pure" else None
        return self._made[op.index]

    def _make(self, op: Op) -> Callable[[Any], Any]:
        compiler = self.compiler
        compiler.lines = [f"def step{op.index}(f):", " R = f.R"]
        compiler._instruction(op)
        exec(compile("\n".join(compiler.lines), "<step>", "exec"), compiler.environment)
        made: Callable[[Any], Any] = compiler.environment[f"step{op.index}"]
        return made


class Scratch:
    """A lane for a stepper: its registers as a mapping; what else it needs is that of a fragment."""

    mask = 1
    lane = 0

    def __init__(self, registers: Any, of: Any = None) -> None:
        self.R = registers
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class Walk:
    """From an instruction, with a value for what it writes."""

    def __init__(self, slices: Slices, stepper: Stepper, start: Op, value: dict[int, Any], variant: int = 0) -> None:
        self.program, self.slices, self.stepper = slices.program, slices, stepper
        self.start = start
        self.ends: list[End] = []
        self.steps = 0
        self.variant_decides = False
        block = self.program.blocks[start.block]
        self._todo: list[tuple[int, int, dict[int, Any], int, frozenset[int], int, frozenset[Any]]] = [
            (start.block, block.ops.index(start) + 1, value, bits(start.writes()), frozenset(), variant, frozenset())]
        self._seen: set[Any] = set()

    def run(self) -> list[End]:
        while self._todo:
            self._way(*self._todo.pop())
        return self.ends

    def _way(self, index: int, at: int, known: dict[int, Any], written: int, branches: frozenset[int], variant: int,
             path: frozenset[Any]) -> None:
        while True:
            block = self.program.blocks[index]
            for op in block.ops[at:]:
                self.steps += 1
                nature = self.slices.nature(op)
                if self._same(op, written):
                    self.ends.append(End(True, op, written, branches))
                    return
                if nature.branch and op.tokens[0] == "bra":
                    self._branch(op, known, written, branches, variant, path)
                    return
                if self.steps > STEPS or not self._free(op, nature):
                    self.ends.append(End(False, op, written, branches))
                    return
                if nature.reads & variant:
                    variant |= nature.writes
                self._execute(op, nature, known)
                written |= nature.writes
            if len(block.successors) != 1:
                self.ends.append(End(False, block.ops[-1] if block.ops else self.start, written, branches))
                return
            index, at = block.successors[0], 0

    def _free(self, op: Op, nature: Nature) -> bool:
        return not nature.leaves and not nature.branch and not nature.call and (nature.quiet or op.tokens[0] in ("fence", "membar"))

    def _same(self, op: Op, written: int) -> bool:
        """Whether it asks what the first one asked."""
        if op is self.start:
            return True
        if op.tokens[:1] != self.start.tokens[:1] or self.slices.nature(op).wait != self.slices.nature(self.start).wait:
            return False
        asked = [(name, self.start.operand(name)) for name in ASKS]
        return all(op.operand(name) == operand for name, operand in asked) and _order(op) == _order(self.start) \
            and op.bindings.get("type") == self.start.bindings.get("type") \
            and not written & bits(r for _, operand in asked if operand is not None for r in operand.registers())

    def _branch(self, op: Op, known: dict[int, Any], written: int, branches: frozenset[int], variant: int, path: frozenset[Any]) -> None:
        block = self.program.blocks[op.block]
        target = next(int(o.text) for o in op.operands if isinstance(o, Word))
        if op.guard is None:
            ways = [target]
        elif op.guard.index in known:
            ways = [target if bool(known[op.guard.index]) != op.negated else block.index + 1]
        else:
            ways = [target, block.index + 1]
        if op.guard is not None:
            branches |= {op.index}
            self.variant_decides |= bool(variant >> op.guard.index & 1)
        for way in ways:
            state = way, tuple(sorted(known.items(), key=str)), written, variant
            if state in path:                                    # round and round, and asks no more
                self.ends.append(End(False, op, written, branches))
            elif state not in self._seen:
                self._seen.add(state)
                self._todo.append((way, 0, dict(known), written, branches, variant, path | {state}))

    def _execute(self, op: Op, nature: Nature, known: dict[int, Any]) -> None:
        if op.guard is not None and known.get(op.guard.index) is op.negated:
            return
        step = self.stepper.of(op)
        sure = step is not None and not any(isinstance(o, SpecialRegister | SymbolValue) for o in op.operands) \
            and all(r in known for r in op.reads()) and (op.guard is None or op.guard.index in known)
        if sure and step is not None:
            step(Scratch(known))
            return
        for register in op.writes():
            known.pop(register, None)


def _order(op: Op) -> set[str]:
    """What an instruction makes known, but for what it does without a word."""
    return {token for token in op.tokens if token in ("relaxed", "cluster", "gpu", "sys")}


class Polls:
    """The loops of a program's instructions that ask."""

    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        self.stepper = Stepper(slices.program)
        self._waits: dict[int, Loop] = {}
        self._loads: dict[int, Loop | None] = {}

    def wait(self, op: Op) -> Loop:
        """Of a wait for an mbarrier that says no."""
        if op.index not in self._waits:
            answer = op.operand("waitComplete")
            ends = Walk(self.slices, self.stepper, op, {answer.index: False} if isinstance(answer, Register) else {}).run()
            other = next((end.op for end in ends if not end.again), None)
            self._waits[op.index] = self._loop([end for end in ends if end.again], op, gives_up=other)
        return self._waits[op.index]

    def elsewhere(self, op: Op) -> frozenset[int]:
        """The branches that a wait's answer decides and no other wait's, where other waits ask again."""
        loop = self.wait(op)
        others = [self.wait(end).branches for end in loop.ends if end is not op]
        return loop.branches.difference(*others) if others else frozenset()

    @cached_property
    def repeats(self) -> frozenset[int]:
        """The branches that do nothing but let a wait for an mbarrier ask again."""
        waits = [self.wait(op) for op in self.slices.program.ops if self.slices.nature(op).wait]
        return frozenset(branch for loop in waits if loop.gives_up is None for branch in loop.branches)

    def load(self, op: Op) -> Loop | None:
        """Of a strong load; None where it is not asked again, or also by another load: who goes on from there may have seen less."""
        if op.index not in self._loads:
            again = [end for end in Walk(self.slices, self.stepper, op, {}).run() if end.again]
            self._loads[op.index] = self._loop(again, op) if again and all(end.op is op for end in again) else None
        return self._loads[op.index]

    def _loop(self, again: list[End], op: Op, gives_up: Op | None = None) -> Loop:
        carried, branches = 0, frozenset[int]()
        for end in again:
            carried |= end.written & self.slices.live_at(end.op)
            branches |= end.branches
        walk = Walk(self.slices, self.stepper, op, {}, carried)
        walk.run()
        return Loop(carried, branches, tuple({end.op.index: end.op for end in again}.values()), not walk.variant_decides, gives_up)
