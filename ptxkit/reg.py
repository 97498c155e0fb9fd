"""The values that a trace handles: registers, negated predicates, vectors, pointers, special registers.

Operators exist for integer and address arithmetic and comparisons only, one instruction each. Rounding must be said, so
there are no float operators, and nothing here ever writes in place: PTX's own way is `add.u32(k, k, 1)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from grammar import tree

from .errors import TraceError
from .types import Scalar, b32, b64, pred, s16, s32, s64, u16, u32, u64

if TYPE_CHECKING:
    from .trace import Builder

T = TypeVar("T", bound=Scalar, covariant=True)
N = TypeVar("N", covariant=True)
S = TypeVar("S", bound=Scalar)

_INTEGER = (u16, s16, u32, s32, u64, s64)
_SIGNED = (s16, s32, s64)


class Value:
    """Anything that may stand as an operand of an instruction."""

    __slots__ = ()

    def operand(self) -> tree.Operand:
        """The operand as the tree writes it."""
        raise NotImplementedError


class Reg(Value, Generic[T]):
    """A virtual register of scalar type `type`, belonging to one trace."""

    __slots__ = ("builder", "name", "type")

    def __init__(self, builder: Builder, name: str, type: type[Scalar]) -> None:
        self.builder = builder
        self.name = name
        self.type = type

    def operand(self) -> tree.Name:
        return tree.Name(self.name)

    def __repr__(self) -> str:
        return f"Reg[{self.type.__name__}]({self.name})"

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} has no value while the kernel is being traced, so Python's `if`, `and`, `or`, `while` cannot look at it: "
            "write `with if_(p):`, combine predicates with `p & q`, `p | q`"
        )

    def __index__(self) -> NoReturn:
        raise TraceError(f"{self!r} has no value while the kernel is being traced: it cannot index or count in Python; use `with ring(...)` or `for_range`")

    def _arithmetic(self, mnemonic: str, other: Reg[Any] | int, *, swap: bool = False) -> Reg[Any]:
        kind = self._integer(mnemonic)
        result = self.builder.register(self.type)
        value = _side(self, other, mnemonic)
        operands = (value, self.operand()) if swap else (self.operand(), value)
        self.builder.emit(f"{mnemonic}.{kind}", (result.operand(), *operands))
        return result

    def _integer(self, mnemonic: str) -> str:
        if self.type in _INTEGER:
            return self.type.__name__
        if self.type in (b32, b64):
            return f"u{self.type.bits}"
        raise TraceError(
            f"operators work on integer registers, and {self!r} is not one: "
            + ("combine predicates with &, | and ~" if self.type is pred else f"say the instruction and its rounding, as in `fma.rn.{self.type.__name__}(a, b, c)`")
        )

    def _bits(self, mnemonic: str, other: Reg[Any] | int) -> Reg[T]:
        width = "pred" if self.type is pred else f"b{self.type.bits}"
        if self.type is not pred:
            self._integer(mnemonic)
        result: Reg[T] = self.builder.register(self.type)
        self.builder.emit(f"{mnemonic}.{width}", (result.operand(), self.operand(), _side(self, other, mnemonic)))
        return result

    def __add__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._arithmetic("add", other)

    def __radd__(self, other: int) -> Reg[T]:
        return self._arithmetic("add", other)

    def __sub__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: int) -> Reg[T]:
        return self._arithmetic("sub", other, swap=True)

    def __mul__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._arithmetic("mul.lo", other)

    def __rmul__(self, other: int) -> Reg[T]:
        return self._arithmetic("mul.lo", other)

    def __floordiv__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._arithmetic("div", other)

    def __mod__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._arithmetic("rem", other)

    def __lshift__(self, other: Reg[Any] | int) -> Reg[T]:
        kind = self._integer("shl")
        result: Reg[T] = self.builder.register(self.type)
        self.builder.emit(f"shl.b{kind[1:]}", (result.operand(), self.operand(), _amount(self, other)))
        return result

    def __rshift__(self, other: Reg[Any] | int) -> Reg[T]:
        kind = self._integer("shr")
        result: Reg[T] = self.builder.register(self.type)
        self.builder.emit(f"shr.{kind}", (result.operand(), self.operand(), _amount(self, other)))
        return result

    def __and__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._bits("and", other)

    def __or__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._bits("or", other)

    def __xor__(self, other: Reg[Any] | int) -> Reg[T]:
        return self._bits("xor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    @overload
    def __invert__(self: Reg[pred]) -> Negated: ...
    @overload
    def __invert__(self) -> Reg[T]: ...
    def __invert__(self) -> Any:
        if self.type is pred:
            return Negated(self)
        result: Reg[T] = self.builder.register(self.type)
        self.builder.emit(f"not.b{self._integer('not')[1:]}", (result.operand(), self.operand()))
        return result

    def __neg__(self) -> Reg[T]:
        kind = self._integer("neg")
        result: Reg[T] = self.builder.register(self.type)
        self.builder.emit(f"neg.s{kind[1:]}", (result.operand(), self.operand()))
        return result

    def _compare(self, relation: str, other: Any) -> Reg[pred]:
        kind = self._integer("setp")
        if not isinstance(other, Reg | int):
            raise TraceError(f"{self!r} can be compared with a register or an int, not with {type(other).__name__}")
        result: Reg[pred] = self.builder.register(pred)
        self.builder.emit(f"setp.{relation}.{kind}", (result.operand(), self.operand(), _side(self, other, "setp")))
        return result

    def __eq__(self, other: object) -> Reg[pred]:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Reg[pred]:  # type: ignore[override]
        return self._compare("ne", other)

    def __lt__(self, other: Reg[Any] | int) -> Reg[pred]:
        return self._compare("lt", other)

    def __le__(self, other: Reg[Any] | int) -> Reg[pred]:
        return self._compare("le", other)

    def __gt__(self, other: Reg[Any] | int) -> Reg[pred]:
        return self._compare("gt", other)

    def __ge__(self, other: Reg[Any] | int) -> Reg[pred]:
        return self._compare("ge", other)

    def _in_place(self, sign: str, mnemonic: str) -> NoReturn:
        raise TraceError(
            f"`x {sign}= y` would silently bind the Python name to a new register; to write in place say "
            f"`{mnemonic}.{self.type.__name__}(x, x, y)`, for a new value `z = x {sign} y`"
        )

    def __iadd__(self, other: object) -> NoReturn:
        self._in_place("+", "add")

    def __isub__(self, other: object) -> NoReturn:
        self._in_place("-", "sub")

    def __imul__(self, other: object) -> NoReturn:
        self._in_place("*", "mul.lo")

    def __iand__(self, other: object) -> NoReturn:
        self._in_place("&", "and_")

    def __ior__(self, other: object) -> NoReturn:
        self._in_place("|", "or_")

    def __ixor__(self, other: object) -> NoReturn:
        self._in_place("^", "xor")

    def __ilshift__(self, other: object) -> NoReturn:
        self._in_place("<<", "shl")

    def __irshift__(self, other: object) -> NoReturn:
        self._in_place(">>", "shr")


def _side(reg: Reg[Any], other: Any, mnemonic: str) -> tree.Operand:
    """The other operand of an operator, of the same width and class as `reg`."""
    if isinstance(other, bool) or not isinstance(other, Reg | int | Special):
        raise TraceError(f"`{mnemonic}` on {reg!r} takes a register of its width or an int, not {type(other).__name__}")
    if isinstance(other, int):
        limit = 1 << reg.type.bits
        if reg.type is pred:
            raise TraceError("a predicate combines with a predicate, not with an int")
        if not -(limit >> 1) <= other < limit:
            raise TraceError(f"{other} does not fit the {reg.type.bits} bits of {reg!r}")
        return tree.Integer(other)
    if isinstance(other, Special):
        other = other.read()
    if other.type.bits != reg.type.bits or (other.type.register == "pred") != (reg.type.register == "pred"):
        raise TraceError(
            f"`{mnemonic}` needs two registers of one width: {reg!r} has {reg.type.bits} bits, {other!r} has {other.type.bits}; "
            "convert one with cvt, as in `cvt.u64.u32(x)`"
        )
    if reg.type is not pred:
        other._integer(mnemonic)
    reg.builder.own(other)
    return other.operand()


def _amount(reg: Reg[Any], other: Any) -> tree.Operand:
    if isinstance(other, int):
        if not 0 <= other < reg.type.bits:
            raise TraceError(f"a shift of {reg!r} is by 0 to {reg.type.bits - 1}, not {other}")
        return tree.Integer(other)
    if isinstance(other, Reg) and other.type.bits == 32:
        reg.builder.own(other)
        return other.operand()
    raise TraceError(f"a shift amount is an int or a 32-bit register, not {other!r}")


class Negated(Value):
    """`~p`: a predicate used negated, as a guard (`pred=~p`) or where the ISA takes `!p`."""

    __slots__ = ("reg",)

    def __init__(self, reg: Reg[pred]) -> None:
        self.reg = reg

    def operand(self) -> tree.Not:
        return tree.Not(self.reg.operand())

    def __invert__(self) -> Reg[pred]:
        return self.reg

    def __bool__(self) -> NoReturn:
        self.reg.__bool__()


class Vec(Value, Generic[T, N]):
    """A brace list of registers (or immediates): a vector operand, a wgmma fragment."""

    __slots__ = ("elements",)

    def __init__(self, elements: Iterable[Reg[T] | int | float]) -> None:
        self.elements: tuple[Any, ...] = tuple(elements)

    def __len__(self) -> int:
        return len(self.elements)

    @overload
    def __getitem__(self, index: int) -> Reg[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Vec[T, Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return Vec(self.elements[index]) if isinstance(index, slice) else self.elements[index]

    def __iter__(self) -> Iterator[Reg[T]]:
        return iter(self.elements)

    def __repr__(self) -> str:
        return f"Vec({list(self.elements)!r})"


class Special(Value, Generic[T]):
    """A special register (`%tid.x`): `mov.u32(tid.x)` reads it; in an operator it is read for you."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: type[Scalar]) -> None:
        self.name = name
        self.type = type

    def operand(self) -> tree.Name:
        return tree.Name(self.name)

    def __repr__(self) -> str:
        return f"Special[{self.type.__name__}]({self.name})"

    def read(self) -> Reg[T]:
        """A register with the special register's value now: one `mov`."""
        from .trace import current

        builder = current()
        result: Reg[T] = builder.register(self.type)
        builder.emit(f"mov.{self.type.__name__}", (result.operand(), self.operand()))
        return result


class Ptr(Value, Generic[T]):
    """A 64-bit pointer to elements of `type` in `space`: a register plus a constant byte offset that folds into `[reg+imm]`.

    Arithmetic counts elements, as in C: `p + 4`, `p.at(i)`.
    """

    __slots__ = ("offset", "reg", "space", "type")

    def __init__(self, reg: Reg[u64], type: type[Scalar], space: str = "global", offset: int = 0) -> None:
        self.reg = reg
        self.type = type
        self.space = space
        self.offset = offset

    def operand(self) -> tree.Address:
        return tree.Address(self.reg.operand(), self.offset)

    def __repr__(self) -> str:
        return f"Ptr[{self.type.__name__}]({self.reg.name}+{self.offset})"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return max(1, self.type.bits // 8)

    def __add__(self, index: int | Reg[Any]) -> Ptr[T]:
        if isinstance(index, int):
            return Ptr(self.reg, self.type, self.space, self.offset + index * self.size)
        return self.at(index)

    def __sub__(self, index: int) -> Ptr[T]:
        return self + -index

    def at(self, index: int | Reg[Any]) -> Ptr[T]:
        """The pointer to element `index`: folded for an int, one mad.wide (32-bit index) or mad.lo (64-bit) for a register."""
        if isinstance(index, int):
            return self + index
        builder = self.reg.builder
        kind = index._integer("mad")
        result: Reg[u64] = builder.register(u64)
        opcode = f"mad.wide.{kind}" if index.type.bits == 32 else f"mad.lo.{kind}"
        builder.emit(opcode, (result.operand(), index.operand(), tree.Integer(self.size), self.reg.operand()))
        return Ptr(result, self.type, self.space, self.offset)

    def cast(self, type: type[S]) -> Ptr[S]:
        """The same address seen as elements of another type."""
        return Ptr(self.reg, type, self.space, self.offset)


def registers(values: Sequence[Any]) -> Iterator[Reg[Any]]:
    """Every register inside operands, vectors and pointers."""
    for value in values:
        if isinstance(value, Reg):
            yield value
        elif isinstance(value, Negated):
            yield value.reg
        elif isinstance(value, Ptr):
            yield value.reg
        elif isinstance(value, Vec | tuple | list):
            yield from registers(tuple(value))


