"""Control flow that runs on the GPU: each is a few branches and labels. Python's own `for` and `if` unroll and choose at trace time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from .dsl.ambient import current
from .dsl.division import fast_div
from .dsl.label import Label
from .dsl.reg import Index, Negated, Reg, Special
from .dsl.trace import Builder
from .errors import TraceError
from .grammar import tree
from .ptx import mov
from .types import pred, u32

Predicate = Reg[pred] | Negated


def label(hint: str = "L", *, name: str = "") -> Label:
    """A new label, not yet placed. Its name begins with `hint`, or is `name`, for references from outside the body."""
    return Label(hint, name)


def _guard(builder: Builder, p: Any, *, invert: bool = False) -> tree.Guard:
    reg = p.reg if isinstance(p, Negated) else p
    if not isinstance(reg, Reg) or reg.type is not pred:
        raise TraceError(f"control flow takes a predicate register, not {p!r}; a condition known in Python is a Python `if`")
    builder.own(reg)
    return tree.Guard(reg.name, isinstance(p, Negated) != invert)


class if_:
    """`with if_(p):` runs its body in the threads where `p` holds: one branch around it."""

    def __init__(self, p: Predicate) -> None:
        self.predicate = p

    def __enter__(self) -> None:
        builder = current()
        self._after = builder.new_label("else")
        builder.branch(self._after, _guard(builder, self.predicate, invert=True))
        builder.populations.append(_population(builder, self.predicate))
        self._scope = builder.scope()
        self._scope.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._scope.__exit__(kind, error, trace)
        if kind is None:
            builder = current()
            taken = builder.populations.pop()
            builder.place(self._after)
            builder.last_if = (self._after, taken)


class else_:
    """`with else_():` directly after an `if_` block: the threads where its predicate did not hold."""

    def __enter__(self) -> None:
        builder = current()
        last = builder.body[-1] if builder.body else None
        if builder.last_if is None or not isinstance(last, tree.Label) or last.name != builder.last_if[0]:
            raise TraceError("else_() must stand directly after the `with if_(...)` block that it belongs to")
        builder.body.pop()
        self._after = builder.new_label("endif")
        builder.branch(self._after)
        builder.body.append(last)
        whole = builder.population()
        taken = builder.last_if[1]
        builder.populations.append(whole - taken if whole is not None and 0 < taken < whole else builder.unlimited)
        self._scope = builder.scope()
        self._scope.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._scope.__exit__(kind, error, trace)
        if kind is None:
            builder = current()
            builder.populations.pop()
            builder.place(self._after)


class Loop:
    """A running loop: leave it or start its next round."""

    def __init__(self, top: str, end: str) -> None:
        self._top = top
        self._end = end
        self._running = True
        self._repeat: tree.Statement | None = None

    def break_if(self, p: Predicate) -> None:
        """Leave the loop in the threads where `p` holds."""
        builder = self._within()
        builder.branch(self._end, _guard(builder, p))

    def continue_if(self, p: Predicate) -> None:
        """Start the next round in the threads where `p` holds."""
        builder = self._within()
        builder.branch(self._top, _guard(builder, p))

    def break_(self) -> None:
        """Leave the loop."""
        self._within().branch(self._end)

    def continue_(self) -> None:
        """Start the next round."""
        self._within().branch(self._top)

    def repeat_if(self, p: Predicate) -> None:
        """The loop's last statement: the next round in the threads where `p` holds, the others leave. One branch, at the bottom."""
        builder = self._within()
        builder.branch(self._top, _guard(builder, p))
        self._repeat = builder.body[-1]

    def _within(self) -> Builder:
        if not self._running:
            raise TraceError("this loop has ended: break and continue stand inside its `with` block")
        return current()


@contextmanager
def loop() -> Iterator[Loop]:
    """`with loop() as l:` repeats its body until `l.break_if(p)`, or ends with `l.repeat_if(p)`."""
    builder = current()
    top, end = builder.new_label("loop"), builder.new_label("done")
    builder.place(top)
    running = Loop(top, end)
    with builder.scope(loop=True):
        yield running
    running._running = False
    if running._repeat is None:
        builder.branch(top)
    elif builder.body[-1] is not running._repeat:
        raise TraceError("repeat_if(p) is the end of its loop: nothing stands after it")
    builder.place(end)


@contextmanager
def for_range(stop: Index, *, start: Index = 0, step: Index = 1) -> Iterator[Reg[u32]]:
    """`with for_range(n) as i:` counts a u32 register from `start` below `stop` on the GPU; the body may run zero times."""
    builder = current()
    stop = stop.read() if isinstance(stop, Special) else stop
    _operand(builder, stop)
    by = _operand(builder, step)
    if by == tree.Integer(0):
        raise TraceError("for_range with step 0 does not end")
    index = _set(builder, start)
    top, next_, end = builder.new_label("for"), builder.new_label("next"), builder.new_label("done")
    builder.place(top)
    done = index >= stop
    builder.branch(end, tree.Guard(done.name))
    with builder.scope(loop=True):
        yield index
    builder.place(next_)
    builder.emit("add.u32", (index.operand(), index.operand(), by))
    builder.wrote(index)
    builder.branch(top)
    builder.place(end)


class Ring:
    """The position in a ring of `stages` slots: a stage register and the parity of its current round, for any stage count.

    A consumer waits on a full barrier for the phase of this parity; the producer waits on the empty barrier with `parity ^ 1`, which
    passes at once in the first round. The position may continue over several loops: `with ring(position, n)`.
    """

    def __init__(self, stages: int) -> None:
        if stages < 1:
            raise TraceError(f"a ring has at least one stage, not {stages}")
        builder = current()
        self.stages = stages
        self.stage: Reg[u32] = _set(builder, 0)
        self.parity: Reg[u32] = _set(builder, 0)

    def skip(self, rounds: Reg[u32]) -> None:
        """Advance by `rounds` slots at once, past those that another warpgroup works on."""
        at = self.stage + rounds
        turns = fast_div(at, self.stages)
        mov.u32(self.stage, at - turns * self.stages)
        mov.u32(self.parity, self.parity ^ (turns & 1))

    def advance(self) -> None:
        """Go to the next slot; past the last one to the first, with the other parity."""
        builder = current()
        builder.own(self.stage)
        stage, parity = self.stage.operand(), self.parity.operand()
        if self.stages == 1:
            builder.emit("xor.b32", (parity, parity, tree.Integer(1)))
        else:
            builder.emit("add.u32", (stage, stage, tree.Integer(1)))
            wrap = builder.register(pred)
            builder.emit("setp.eq.u32", (wrap.operand(), stage, tree.Integer(self.stages)))
            builder.emit("selp.u32", (stage, tree.Integer(0), stage, wrap.operand()))
            builder.emit("xor.b32", (parity, parity, tree.Integer(1)), tree.Guard(wrap.name))
            builder.wrote(self.stage)
        builder.wrote(self.parity)


@contextmanager
def ring(stages: int | Ring, rounds: Index) -> Iterator[tuple[Reg[u32], Reg[u32], Reg[u32]]]:
    """`with ring(STAGES, n) as (k, stage, parity):` counts k from 0 below `rounds` while the ring advances once a round."""
    position = stages if isinstance(stages, Ring) else Ring(stages)
    with for_range(rounds) as k:
        yield k, position.stage, position.parity
        position.advance()


def _operand(builder: Builder, value: Index) -> tree.Operand:
    if isinstance(value, Special):
        value = value.read()
    if isinstance(value, Reg) and value.type.register == "b32":
        builder.own(value)
        return value.operand()
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise TraceError(f"a loop counts in u32: it takes an int from 0 to 2^32 - 1 or a 32-bit register, not {value!r}")
    return tree.Integer(value)


def _set(builder: Builder, value: Index) -> Reg[u32]:
    operand, result = _operand(builder, value), builder.register(u32)
    builder.emit("mov.u32", (result.operand(), operand))
    return result


def _population(builder: Builder, p: Any) -> int:
    """At most how many threads of the CTA have `p`: known when it compares %tid.x with a constant, or comes from elect.sync."""
    if isinstance(p, Negated):
        return builder.unlimited
    definition = _definition(builder, p.name)
    if definition is None:
        return builder.unlimited
    if definition.opcode == "elect.sync" and builder.module.threads is not None:
        return max(1, builder.module.threads // 32)
    if (compared := _by_constant(definition, "setp")) is None:
        return builder.unlimited
    name, bound = compared
    source, shift = _definition(builder, name), 0
    if source is not None and (shifted := _by_constant(source, "shr")) is not None:
        name, shift = shifted
        source = _definition(builder, name)
    if source is not None and source.opcode in ("mov.u32", "mov.b32") and source.operands[1] == tree.Name("%tid.x"):
        relation = definition.opcode.split(".")[1]
        count = {"eq": 1, "lt": bound, "le": bound + 1, "lo": bound, "ls": bound + 1}.get(relation)
        if count is not None:
            return (max(1, count) << shift) * builder.module.layers
    return builder.unlimited


def _by_constant(instruction: tree.Instruction, mnemonic: str) -> tuple[str, int] | None:
    """(register, constant) of `mnemonic result, register, constant`."""
    match instruction.operands:
        case (_, tree.Name(name), tree.Integer(value)) if instruction.opcode.startswith(f"{mnemonic}."):
            return name, value
    return None


def _definition(builder: Builder, name: str) -> tree.Instruction | None:
    for statement in reversed(builder.body):
        if isinstance(statement, tree.Instruction) and statement.operands:
            first = statement.operands[0]
            written = (first,) if isinstance(first, tree.Name) else (first.first, first.second) if isinstance(first, tree.Pair) else ()
            if any(isinstance(o, tree.Name) and o.name == name for o in written):
                return statement
    return None
