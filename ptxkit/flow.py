"""Control flow that runs on the GPU: a few branches and labels each. Python's own `for` and `if` unroll and choose at trace time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, overload

from .dsl.ambient import current
from .dsl.around import around
from .dsl.blocks import Block
from .dsl.branched import check_branch
from .dsl.carried import Carried, Round
from .dsl.division import fast_div
from .dsl.held import caller
from .dsl.label import Label
from .dsl.rebound import Names, check_namesakes
from .dsl.refused import NoAttributeError, int_of_numpy, nothing_carried
from .dsl.reg import Index, Negated, Ptr, Reg, Special, Vec
from .dsl.regions import accesses, leaves
from .dsl.source import line_at, outside
from .dsl.trace import Builder, LastIf
from .dsl.uncalled import EmittingMethods
from .errors import TraceError
from .grammar import tree
from .grammar.walk import instructions
from .ptx import mov
from .types import pred, s32, u32

Predicate = Reg[pred] | Negated


def label(hint: str = "L", *, name: str = "") -> Label:
    """A new label, not yet placed. Its name starts with `hint`. `name` sets the whole name, for references from outside the body."""
    return Label(hint, name)


def _guard(builder: Builder, p: Any, *, invert: bool = False) -> tree.Guard:
    reg = p.reg if isinstance(p, Negated) else p
    if not isinstance(reg, Reg) or reg.type is not pred:
        raise TraceError(f"control flow takes a predicate register, not {p!r}; a condition known in Python is a Python `if`")
    builder.own(reg)
    return tree.Guard(reg.operand().name, isinstance(p, Negated) != invert)


def _statement(entered: CodeType, frame: FrameType) -> tuple[int, int | None] | None:
    """The `with` statement that leaves a block: its frame and first line. None where another one does, as an ExitStack.

    Python leaves all blocks of `with a, b:` at the line of that statement, and two statements never begin at one line.
    """
    code = frame.f_code
    return (id(frame), line_at(code, frame.f_lasti)) if code is entered and outside(code.co_filename) else None


class if_(Block):
    """`with if_(p):` runs its body in the threads where `p` holds: one branch around it."""

    def __init__(self, p: Predicate) -> None:
        self.predicate = p

    def __enter__(self) -> None:
        builder = self._entered()
        self._code = sys._getframe(1).f_code
        self._after = builder.new_label("else")
        guard = _guard(builder, self.predicate, invert=True)
        builder.branch(self._after, guard)
        builder.populations.append(_population(builder, self.predicate))
        self._scope = builder.scope()
        self._scope.__enter__()
        self._region = builder.regions.enter(builder, "if_", tree.Guard(guard.predicate, not guard.negated))
        self._region.alone = builder.populations[-1] == 1 or _is_elected(builder, self.predicate)
        self._names = around(caller(1))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._scope.__exit__(kind, error, trace)
        if kind is None:
            builder = current()
            check_branch(builder, self._region, self._names)
            taken = builder.populations.pop()
            builder.regions.leave(builder, self._region)
            builder.place(self._after)
            last, here = builder.last_if, _statement(self._code, sys._getframe(1))
            shared = last is not None and here is not None and here == last.statement and last.region.at > self._region.at
            builder.last_if = LastIf(self._after, taken, self._region, here, shared)


class else_(Block):
    """`with else_():` directly after an `if_` block runs its body in the threads where the predicate did not hold."""

    _is = "else_()"

    def __enter__(self) -> None:
        builder = self._entered()
        last = builder.body[-1] if builder.body else None
        before = builder.last_if
        if before is None or not isinstance(last, tree.Label) or last.name != before.label:
            raise TraceError("else_() must stand directly after the `with if_(...)` block that it belongs to")
        if before.shared:
            raise TraceError("this else_() follows `with if_(a), if_(b):`, and would be that of `a` alone: where `a` holds and `b` does "
                             "not, neither body would run; write `with if_(a & b):`, or a `with` statement for each")
        builder.body.pop()
        self._after = builder.new_label("endif")
        builder.branch(self._after)
        builder.body.append(last)
        whole = builder.population()
        taken = before.population
        builder.populations.append(whole - taken if whole is not None and 0 < taken < whole else builder.unlimited)
        self._scope = builder.scope()
        self._scope.__enter__()
        condition = before.region.condition
        self._region = builder.regions.enter(builder, "else_", condition and tree.Guard(condition.predicate, not condition.negated))
        self._region.of = before.region
        self._names = around(caller(1))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._scope.__exit__(kind, error, trace)
        if kind is None:
            builder = current()
            check_branch(builder, self._region, self._names)
            builder.populations.pop()
            builder.regions.leave(builder, self._region)
            builder.place(self._after)


class _Body:
    """The body of a loop: the region of the trace, and the names of the code around it."""

    def __init__(self, builder: Builder, kind: str, frame: FrameType | None, carried: Mapping[str, Any], *own: Reg[Any]) -> None:
        self._scope = builder.scope(loop=True)
        self._scope.__enter__()
        self.region = builder.regions.enter(builder, kind)
        self._own = own
        self._carried = carried
        self._names = Names(frame)

    def end(self, builder: Builder, running: object) -> None:
        if isinstance(running, Carried):
            running._finish(builder, self.region.start)
        self._names.check(builder, self.region, self._own)
        if self._carried:
            check_namesakes(builder, self.region, self._names, self._carried)
        builder.regions.leave(builder, self.region)
        self._scope.__exit__(None, None, None)

    def abandon(self) -> None:
        self._scope.__exit__(None, None, None)


class Loop(EmittingMethods):
    """A loop that is being traced: methods to leave it or to start its next iteration."""

    def __init__(self, top: str, end: str) -> None:
        self._top = top
        self._end = end
        self._ended = False
        self._repeat: tree.Statement | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise NoAttributeError(f"the loop has no `{name}`, and carries nothing: give a value that it carries where it begins, "
                                   f"`with loop({name}=zero) as l:`")

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_"):
                raise nothing_carried(name, type(self))
            object.__setattr__(self, name, value)

    def break_if(self, p: Predicate) -> None:
        """Leave the loop in the threads where `p` holds."""
        builder = self._within()
        builder.branch(self._end, _guard(builder, p))
        builder.bounds.clear()

    def continue_if(self, p: Predicate) -> None:
        """Start the next iteration in the threads where `p` holds."""
        builder = self._within()
        builder.branch(self._top, _guard(builder, p))
        builder.bounds.clear()

    def break_(self) -> None:
        """Leave the loop."""
        self._within().branch(self._end)

    def continue_(self) -> None:
        """Start the next iteration."""
        self._within().branch(self._top)

    def repeat_if(self, p: Predicate) -> None:
        """The loop's last statement: threads where `p` holds start the next iteration, the others leave. One branch, at the bottom."""
        builder = self._within()
        builder.branch(self._top, _guard(builder, p))
        builder.bounds.clear()
        self._repeat = builder.body[-1]

    def _within(self) -> Builder:
        if self._ended:
            raise TraceError("this loop has ended: break and continue stand inside its `with` block")
        return current()


class CarryingLoop(Carried, Loop):
    """A `Loop` with carried values as attributes."""

    def __init__(self, top: str, end: str, values: Mapping[str, Any]) -> None:
        Carried.__init__(self, values)
        Loop.__init__(self, top, end)


class CarryingRange(Carried):
    """A `for_range` with carried values as attributes, and the `index`."""

    index: Reg[u32]


class CarryingRing(Carried):
    """A `ring` with carried values as attributes, and `index`, `stage` and `parity`."""

    index: Reg[u32]
    stage: Reg[u32]
    parity: Reg[u32]


class _Loop(Block):
    """`loop`, whose context is a `Loop`."""

    _is, _as = "loop()", " as l"

    def __init__(self, carried: Mapping[str, Any]) -> None:
        self._carried = carried

    def __enter__(self) -> Any:
        builder = self._entered()
        self._labels = top, end = builder.new_label("loop"), builder.new_label("done")
        self._loop = CarryingLoop(top, end, self._carried) if self._carried else Loop(top, end)
        builder.place(top)
        self._body = _Body(builder, "loop", caller(1), self._carried)
        self._body.region.out = end
        return self._loop

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._body.abandon()
            return
        builder, running, (top, end) = current(), self._loop, self._labels
        self._body.region.repeats = running._repeat is not None
        self._body.end(builder, running)
        running._ended = True
        if running._repeat is None:
            if not leaves(builder.body[self._body.region.start:], top):
                raise TraceError("this loop never ends: nothing in its body leaves it: write `l.break_if(p)`, or `exit()`")
            builder.branch(top)
        elif builder.body[-1] is not running._repeat:
            raise TraceError("repeat_if(p) is the end of its loop: nothing stands after it")
        builder.place(end)


@overload
def loop() -> AbstractContextManager[Loop, None]: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def loop(**carried: Reg[Any] | Vec[Any, Any] | Ptr[Any]) -> AbstractContextManager[CarryingLoop, None]: ...
def loop(**carried: Any) -> Any:
    """`with loop() as l:` repeats its body until `l.break_if(p)`, or ends with `l.repeat_if(p)`.

    `with loop(total=zero) as l:` carries a value: the body assigns `l.total`, and after the loop it is the result (see `for_range`).
    """
    return _Loop(carried)


class _ForRange(Block):
    """`for_range`, whose context is the index, or a `CarryingRange`."""

    _is, _as = "for_range(n)", " as i"

    def __init__(self, stop: Index, start: Index, step: Index, carried: Mapping[str, Any], kind: type[Carried] = CarryingRange) -> None:
        self._given = stop, start, step
        self._carried = carried
        self._kind = kind

    def __enter__(self) -> Any:
        return self.begin(caller(1))

    def begin(self, frame: FrameType | None, **more: Reg[u32]) -> Any:
        builder = self._entered()
        stop, start, step = self._given
        stop = stop.read() if isinstance(stop, Special) else stop
        step = step.read() if isinstance(step, Special) else step
        end = _operand(builder, stop)
        self._by = _operand(builder, step)
        if self._by == tree.Integer(0):
            raise TraceError("for_range with step 0 does not end")
        index = _set(builder, start)
        self._loop = self._kind(self._carried, index=index, **more) if self._carried else None
        self._labels = builder.new_label("for"), builder.new_label("next"), builder.new_label("done")
        builder.place(self._labels[0])
        done = builder.register(pred)
        builder.emit("setp.ge.u32", (done.operand(), index.operand(), end))
        builder.branch(self._labels[2], tree.Guard(done.name))
        self._index = index
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and (counted := range(start, stop, step)):
            builder.bounds[index.name] = counted[-1] + 1, len(builder.regions.open)
        self._body = _Body(builder, "for_range", frame, self._carried, index, *more.values())
        self._counts = {value.name: (builder.versions.get(value.name, 0), *way) for value, way in (
            (stop, ("ends at", "copy its end before the loop, as `for_range(mov.u32(n))`")),
            (step, ("steps by", "copy its step before the loop, as `step=mov.u32(by)`")),
            (index, ("counts in", "copy its index into a register of your own, as `j = mov.u32(i)`"))) if isinstance(value, Reg)}
        return self._loop or index

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._body.abandon()
            return
        builder, index = current(), self._index
        self._check_counts(builder)
        self._body.end(builder, self._loop)
        builder.place(self._labels[1])
        builder.emit("add.u32", (index.operand(), index.operand(), self._by))
        builder.wrote(index)
        builder.branch(self._labels[0])
        builder.place(self._labels[2])
        if self._loop is not None:
            self._loop._ended = True

    def _check_counts(self, builder: Builder) -> None:
        """Raise where the body writes a register that says how many rounds there are: it is read again in each."""
        changed = {name: words for name, (version, *words) in self._counts.items() if builder.versions.get(name, 0) != version}
        for each in instructions(builder.body[self._body.region.start:]) if changed else ():
            for name in accesses(each)[1]:
                if name in changed:
                    does, way = changed[name]
                    raise TraceError(f"this writes `{name}`, the register that the for_range around it {does}, and so changes how many "
                                     f"rounds there are: {way}; a loop that ends otherwise is `with loop() as l:` with `l.break_if(p)`",
                                     each.position)


@overload
def for_range(  # pyright: ignore[reportOverlappingOverload]
        stop: Index, *, start: Index = 0, step: Index = 1) -> AbstractContextManager[Reg[u32], None]: ...
@overload
def for_range(stop: Index, *, start: Index = 0, step: Index = 1,
              **carried: Reg[Any] | Vec[Any, Any] | Ptr[Any]) -> AbstractContextManager[CarryingRange, None]: ...
def for_range(stop: Index, *more: Index, start: Index = 0, step: Index = 1, **carried: Any) -> Any:
    """`with for_range(n) as i:` counts a u32 register on the GPU, from `start` while it is below `stop`. The body may run zero times.

    `with for_range(n, total=zero) as loop:` carries a value: `loop.index` counts, the body assigns `loop.total`, and after the loop
    `loop.total` is the result. It has a register of its own: one mov before the loop, and one mov where it is assigned.
    """
    if more:
        raise TraceError("`for_range` takes one number by position, the end: Python's `range(first, end, by)` is "
                         "`for_range(end, start=first, step=by)`")
    return _ForRange(stop, start, step, carried)


class Ring(EmittingMethods):
    """The position in a ring of `stages` slots: a stage register, and the parity of the current round through the ring.

    A consumer waits on the full barrier for the phase of this parity. The producer waits on the empty barrier with `parity ^ 1`, and does
    not wait in the first round. The position may continue over several loops: `with ring(position, n)`.
    """

    __slots__ = ("parity", "stage", "stages")

    def __init__(self, stages: int) -> None:
        if type(stages) is not int or stages < 1:
            raise TraceError(f"a ring has at least one stage, an int, not {stages!r}")
        builder = current()
        self.stages = stages
        self.stage: Reg[u32] = _set(builder, 0)
        self.parity: Reg[u32] = _set(builder, 0)
        builder.bounds[self.stage.name] = stages, len(builder.regions.open)

    def skip(self, rounds: Reg[u32]) -> None:
        """Advance by `rounds` slots at once, past stages that another warpgroup uses."""
        at = self.stage + rounds
        turns = fast_div(at, self.stages)
        mov.u32(self.stage, at - turns * self.stages)
        mov.u32(self.parity, self.parity ^ (turns & 1))

    def advance(self) -> None:
        """Go to the next slot. After the last slot, go to the first one and flip the parity."""
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


class _Rounds(Block):
    """`ring`, whose context is (k, stage, parity), or a `CarryingRing`."""

    _is, _as = "ring(STAGES, n)", " as (k, stage, parity)"

    def __init__(self, stages: int | Ring, rounds: Index, carried: Mapping[str, Any]) -> None:
        self._stages = stages
        self._range = _ForRange(rounds, 0, 1, carried, CarryingRing)

    def __enter__(self) -> Any:
        self._entered()
        self._position = position = self._stages if isinstance(self._stages, Ring) else Ring(self._stages)
        found = self._range.begin(caller(1), stage=position.stage, parity=position.parity)
        return found if isinstance(found, CarryingRing) else Round((found, position.stage, position.parity))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._position.advance()
        self._range.__exit__(kind, error, trace)


@overload
def ring(  # pyright: ignore[reportOverlappingOverload]
        stages: int | Ring, rounds: Index) -> AbstractContextManager[tuple[Reg[u32], Reg[u32], Reg[u32]], None]: ...
@overload
def ring(stages: int | Ring, rounds: Index,
         **carried: Reg[Any] | Vec[Any, Any] | Ptr[Any]) -> AbstractContextManager[CarryingRing, None]: ...
def ring(stages: int | Ring, rounds: Index, **carried: Any) -> Any:
    """`with ring(STAGES, n) as (k, stage, parity):` counts k from 0 to `rounds` - 1. Each iteration advances the ring by one slot.

    `with ring(STAGES, n, total=zero) as loop:` carries a value (see `for_range`) beside `loop.index`, `loop.stage` and `loop.parity`.
    """
    return _Rounds(stages, rounds, carried)


def _operand(builder: Builder, value: Index) -> tree.Operand:
    if isinstance(value, Special):
        value = value.read()
    if isinstance(value, Reg) and value.type.register == "b32":
        builder.own(value)
        if value.type is s32:
            raise TraceError(f"a loop counts in u32, and {value!r} may be negative, which would be 2^31 rounds or more: write "
                             "`mov.u32(n)` if it never is, or `mov.u32(max.s32(n, 0))`")
        return value.operand()
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise TraceError(f"a loop counts in u32: it takes an int from 0 to 2^32 - 1 or a 32-bit register, not {value!r}"
                         f"{int_of_numpy(value) or '; downward is `n - 1 - i` in the body'}")
    return tree.Integer(value)


def _set(builder: Builder, value: Index) -> Reg[u32]:
    operand, result = _operand(builder, value), builder.register(u32)
    builder.emit("mov.u32", (result.operand(), operand))
    return result


def _population(builder: Builder, p: Any) -> int:
    """The most threads of the CTA in which `p` can hold. Known if `p` compares %tid.x with a constant, or comes from elect.sync."""
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


def _is_elected(builder: Builder, p: Any) -> bool:
    definition = None if isinstance(p, Negated) else _definition(builder, p.name)
    return definition is not None and definition.opcode == "elect.sync"


def _by_constant(instruction: tree.Instruction, mnemonic: str) -> tuple[str, int] | None:
    """(register, constant) of `mnemonic result, register, constant`."""
    match instruction.operands:
        case (_, tree.Name(name), tree.Integer(value)) if instruction.opcode.startswith(f"{mnemonic}."):
            return name, value
    return None


def _definition(builder: Builder, name: str) -> tree.Instruction | None:
    for statement in reversed(builder.body):
        if type(statement) is tree.Instruction and statement.operands:
            first = statement.operands[0]
            if type(first) is tree.Name:
                if first.name == name:
                    return statement
            elif type(first) is tree.Pair and tree.Name(name) in (first.first, first.second):
                return statement
    return None
