"""Values that a loop carries from one iteration to the next: `with for_range(n, total=zero) as loop:` and `loop.total = ...`.

Each has a register of its own: one mov before the loop, and one mov where it is assigned. ptxas removes what is not needed of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import TraceError
from ..grammar import tree
from ..grammar.operands import alike
from ..grammar.walk import instructions
from ..types import u32
from .ambient import current
from .refused import NoAttributeError, not_of_a_count
from .reg import Ptr, Reg, Special, Vec
from .regions import accesses

if TYPE_CHECKING:
    from .trace import Builder


class CarriedReg(Reg[Any]):
    """`loop.total`: the register of a carried value, until the next assignment to it."""

    __slots__ = ("of", "version")

    def __init__(self, reg: Reg[Any], of: _Slot) -> None:
        super().__init__(reg.builder, reg.name, reg.type)
        self.of = of
        self.version = of.version

    def operand(self) -> tree.Name:
        if self.version != self.of.version:
            name = self.of.name
            raise TraceError(f"this value was taken from `loop.{name}` before `loop.{name}` was assigned, and that has overwritten it: "
                             f"copy it first, as `old = mov.{_kind(self)}(loop.{name})`")
        return super().operand()


class _Slot:
    """One carried value: its registers, and how often it was assigned."""

    def __init__(self, builder: Builder, name: str, value: Any) -> None:
        self.name = name
        self.version = 0
        self.like: Any = value.read() if isinstance(value, Special) else value
        if not isinstance(self.like, Reg | Vec | Ptr) or not all(isinstance(reg, Reg) for reg in _registers(self.like)):
            way = f", as `{name}=mov.{'f32' if isinstance(value, float) else 'u32'}({value!r})`" if isinstance(value, int | float) else ""
            raise TraceError(f"a loop carries registers, Vecs of registers and pointers, and `{name}` is {value!r}: "
                             f"give it a register{way}")
        self.regs = [builder.register(reg.type) for reg in _registers(self.like)]
        self._copy(builder, self.like)

    def get(self) -> Any:
        regs = [CarriedReg(reg, self) for reg in self.regs]
        if isinstance(self.like, Vec):
            return Vec(regs)
        return Ptr(regs[0], self.like.type, self.like.space) if isinstance(self.like, Ptr) else regs[0]

    def set(self, value: Any) -> None:
        builder = current()
        value = value.read() if isinstance(value, Special) else value
        if not _fits(self.like, value):
            way = f"cast it, `p.cast({self.like.type.__name__})`, or carry a pointer for each array" \
                if isinstance(self.like, Ptr) and isinstance(value, Ptr) and value.space == self.like.space else "convert it"
            raise TraceError(f"`loop.{self.name}` carries {_said(self.like)}, not {_said(value)}: {way}")
        self._copy(builder, value)
        self.version += 1

    def _copy(self, builder: Builder, value: Any) -> None:
        """Set all registers at once: a source that an earlier mov would overwrite is kept first."""
        sources = [reg.operand() for reg in _registers(value)]
        for reg in _registers(value):
            builder.own(reg)
        if isinstance(value, Ptr) and value.offset:
            builder.emit("add.u64", (self.regs[0].operand(), sources[0], tree.Integer(value.offset)))
            builder.wrote(self.regs[0])
            return
        for i, source in enumerate(sources):
            if any(source.name == reg.name for reg in self.regs[:i]):
                kept = builder.register(self.regs[i].type)
                builder.emit(f"mov.{_kind(kept)}", (kept.operand(), source))
                sources[i] = kept.operand()
        for reg, source in zip(self.regs, sources, strict=True):
            if source.name != reg.name:
                builder.emit(f"mov.{_kind(reg)}", (reg.operand(), source))
                builder.wrote(reg)
            if builder.remote:
                builder.moved("mov", reg.name, (source,))


class Carried:
    """A loop with carried values: each is an attribute, which the body assigns. After the loop it is the result."""

    _ended: bool

    def __init__(self, values: Mapping[str, Any], **fixed: Any) -> None:
        builder = current()
        for name in values:
            if name.startswith("_") or name in fixed or hasattr(type(self), name):
                raise TraceError(f"a loop cannot carry `{name}`: it is the loop's own name; call the value another")
        self.__dict__.update(fixed, _ended=False, _carried={name: _Slot(builder, name, value) for name, value in values.items()})

    def _finish(self, builder: Builder, start: int) -> None:
        """The end of the body, which began with statement `start`: each value was assigned, or its registers written in place."""
        idle = {name: slot for name, slot in self.__dict__["_carried"].items() if not slot.version}
        written = {name for each in instructions(builder.body[start:]) for name in accesses(each)[1]} if idle else set()
        for name, slot in idle.items():
            if not any(reg.name in written for reg in slot.regs):
                raise TraceError(
                    f"the loop carries `{name}`, and its body never assigns `loop.{name}`, so that the result is the first value: write "
                    f"`loop.{name} = ...`; where a configuration has nothing to assign, `loop.{name} = loop.{name}`")

    def __getattr__(self, name: str) -> Any:
        carried = self.__dict__.get("_carried", {})
        if name not in carried:
            raise NoAttributeError(not_of_a_count(name, "the loop") or
                                   f"the loop has no `{name}`; it carries {', '.join(carried)}: give it its first value where the loop "
                                   f"begins, as `{name}=zero`")
        return carried[name].get()

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.__dict__[name] = value
            return
        carried = self.__dict__["_carried"]
        if name not in carried:
            own = name in self.__dict__ or hasattr(type(self), name)
            raise TraceError(f"`{name}` is the loop's own and is not assigned" if own else
                             f"the loop does not carry `{name}`: give it its first value where the loop begins, as `{name}=zero`")
        if self._ended:
            raise TraceError(f"the loop has ended, and `loop.{name}` is its result: bind a name of your own to what follows")
        carried[name].set(value)


class Round(tuple[Reg[u32], Reg[u32], Reg[u32]]):
    """(k, stage, parity) of a ring that carries nothing. The methods of a `loop` are errors that say the way out."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("stage", "parity"):
                sentence = f"`ring` gives three registers, with no `{name}`: name them, `with ring(STAGES, n) as (k, stage, parity):`"
            else:
                sentence = not_of_a_count(name, "a `ring`") or f"a `ring` has no `{name}`"
            raise NoAttributeError(sentence)


def _registers(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Vec) else [value.reg] if isinstance(value, Ptr) else [value]


def _kind(reg: Reg[Any]) -> str:
    """The type under which a mov copies the register."""
    return reg.type.__name__ if reg.type.__name__ in ("u32", "s32", "u64", "s64", "u16", "s16") else reg.type.register


def _fits(like: Any, value: Any) -> bool:
    """Whether a mov copies the value as one of the type that is carried. Bits may be read as anything of their width."""
    if isinstance(like, Ptr):
        return (isinstance(value, Ptr) and value.space == like.space and value.type.bits == like.type.bits
                and alike(value.type.__name__, like.type.__name__))
    if not isinstance(value, Vec if isinstance(like, Vec) else Reg):
        return False
    carried, given = _registers(like), _registers(value)
    return all(isinstance(reg, Reg) for reg in given) and [_kind(reg) for reg in carried] == [_kind(reg) for reg in given] and all(
        alike(one.type.__name__, other.type.__name__) for one, other in zip(carried, given, strict=True))


def _said(value: Any) -> str:
    if isinstance(value, Vec):
        kinds = {reg.type.__name__ if isinstance(reg, Reg) else type(reg).__name__ for reg in value}
        return f"a Vec of {len(value)} {', '.join(sorted(kinds))}"
    if isinstance(value, Ptr):
        return f"Ptr[{value.type.__name__}]" + (f" in .{value.space} memory" if value.space != "global" else "")
    return f"a register of {value.type.__name__}" if isinstance(value, Reg) else repr(value)


__all__ = ["Carried", "CarriedReg", "Round"]
