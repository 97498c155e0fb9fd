"""The values of a trace: registers, negated predicates, vectors, pointers and special registers.

Operators exist only for integer and address arithmetic and for comparisons. Each is one instruction: `//` and `%` of an unsigned register
by a power of two are `shr` and `and`, others are `div` and `rem`. There are no float operators, since rounding must be explicit. No
operator writes in place: write `add.u32(k, k, 1)`, as in PTX.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar, overload

from ..errors import TraceError
from ..grammar import tree
from ..types import Scalar, b32, b64, integer, integer16, integer32, integer64, pred, s16, s32, s64, u16, u32, u64
from .ambient import current
from .dropped import note_dropped, operated, refuse_dropped
from .fates import check_member
from .refused import InPlace, NoAttributeError, NoItems, NoQuotient, NotRead, Rebinding, int_of_numpy, integers_only, not_of_a_register
from .signs import check_signs

if TYPE_CHECKING:
    from .trace import Builder

T = TypeVar("T", bound=Scalar, covariant=True)
N = TypeVar("N", covariant=True)
S = TypeVar("S", bound=Scalar)
K = TypeVar("K", bound=integer)
I16 = TypeVar("I16", bound=integer16)
I32 = TypeVar("I32", bound=integer32)
I64 = TypeVar("I64", bound=integer64)

_INTEGER = (u16, s16, u32, s32, u64, s64)
_PART = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")


class Value(NoItems):
    """Anything that may stand as an operand of an instruction."""

    __slots__ = ()

    def operand(self) -> tree.Operand:
        """The operand as the tree writes it."""
        raise NotImplementedError


class _Operator:
    """An operator of registers, as a descriptor: its operand and result types depend on the register's width."""

    def __init__(self, mnemonic: str, *, swap: bool = False) -> None:
        self.mnemonic = mnemonic
        self.swap = swap


class _Arithmetic(_Operator):
    @overload
    def __get__(self, reg: Scalars[I32], owner: Any) -> Callable[[_Side32], Reg[I32]]: ...
    @overload
    def __get__(self, reg: Scalars[I64], owner: Any) -> Callable[[_Side64], Reg[I64]]: ...
    @overload
    def __get__(self, reg: Scalars[I16], owner: Any) -> Callable[[_Side16], Reg[I16]]: ...
    def __get__(self, reg: Scalars[Any], owner: Any) -> Callable[[Any], Reg[Any]]:
        return partial(_arithmetic, self, reg)


class _Bitwise(_Operator):
    @overload
    def __get__(self, reg: Scalars[pred], owner: Any) -> Callable[[Reg[pred] | Negated], Reg[pred]]: ...
    @overload
    def __get__(self, reg: Scalars[I32], owner: Any) -> Callable[[_Side32], Reg[I32]]: ...
    @overload
    def __get__(self, reg: Scalars[I64], owner: Any) -> Callable[[_Side64], Reg[I64]]: ...
    @overload
    def __get__(self, reg: Scalars[I16], owner: Any) -> Callable[[_Side16], Reg[I16]]: ...
    def __get__(self, reg: Scalars[Any], owner: Any) -> Callable[[Any], Reg[Any]]:
        return partial(_bits, self, reg)


class _Comparison(_Operator):
    @overload
    def __get__(self, reg: Scalars[I32], owner: Any) -> Callable[[_Side32], Reg[pred]]: ...
    @overload
    def __get__(self, reg: Scalars[I64], owner: Any) -> Callable[[_Side64], Reg[pred]]: ...
    @overload
    def __get__(self, reg: Scalars[I16], owner: Any) -> Callable[[_Side16], Reg[pred]]: ...
    def __get__(self, reg: Scalars[Any], owner: Any) -> Callable[[Any], Reg[pred]]:
        return partial(_compare, self.mnemonic, reg)


class _Shift(_Operator):
    def __get__(self, reg: Scalars[K], owner: Any) -> Callable[[Index], Reg[K]]:
        return partial(_shift, self.mnemonic, reg)


class _Inversion(_Operator):
    @overload
    def __get__(self, reg: Scalars[pred], owner: Any) -> Callable[[], Negated]: ...
    @overload
    def __get__(self, reg: Scalars[K], owner: Any) -> Callable[[], Reg[K]]: ...
    def __get__(self, reg: Scalars[Any], owner: Any) -> Callable[[], Any]:
        return partial(Negated, _read(reg)) if reg.type is pred else partial(_unary, self.mnemonic, "b", reg)


class _Negation(_Operator):
    def __get__(self, reg: Scalars[K], owner: Any) -> Callable[[], Reg[K]]:
        return partial(_unary, self.mnemonic, "s", reg)


class Scalars(NoQuotient, Value, Generic[T]):
    """The base of registers and special registers: a scalar type and the operators. Python cannot see their values."""

    __slots__ = ()

    type: type[T]

    def __hash__(self) -> int:
        check_member(self)
        return object.__hash__(self)

    def __bool__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} has no value while the kernel is being traced, so Python's `if`, `and`, `or`, `while` cannot look at it: "
            "write `with if_(p):`, combine predicates with `p & q`, `p | q`"
        )

    def __index__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} has no value while the kernel is being traced: it cannot index or count in Python; "
            "use `with ring(...)` or `for_range`"
        )

    __add__ = __radd__ = _Arithmetic("add")
    __sub__, __rsub__ = _Arithmetic("sub"), _Arithmetic("sub", swap=True)
    __mul__ = __rmul__ = _Arithmetic("mul.lo")
    __floordiv__, __mod__ = _Arithmetic("div"), _Arithmetic("rem")
    __and__ = __rand__ = _Bitwise("and")
    __or__ = __ror__ = _Bitwise("or")
    __xor__ = __rxor__ = _Bitwise("xor")
    __lt__, __le__, __gt__, __ge__ = _Comparison("lt"), _Comparison("le"), _Comparison("gt"), _Comparison("ge")

    __lshift__, __rshift__ = _Shift("shl"), _Shift("shr")
    __invert__, __neg__ = _Inversion("not"), _Negation("neg")

    def __eq__(self, other: object) -> Reg[pred]:  # type: ignore[override]
        return _compare("eq", self, other)

    def __ne__(self, other: object) -> Reg[pred]:  # type: ignore[override]
        return _compare("ne", self, other)

    __iadd__, __isub__, __imul__ = InPlace("+", "add"), InPlace("-", "sub"), InPlace("*", "mul.lo")
    __iand__, __ior__, __ixor__ = InPlace("&", "and_"), InPlace("|", "or_"), InPlace("^", "xor")
    __ilshift__, __irshift__ = InPlace("<<", "shl"), InPlace(">>", "shr")
    __ifloordiv__, __imod__ = InPlace("//", "div"), InPlace("%", "rem")


class Reg(Scalars[T]):
    """A virtual register of scalar type `type`. It belongs to one trace."""

    __slots__ = ("_operand", "builder", "name", "type")

    def __init__(self, builder: Builder, name: str, type: type[T]) -> None:
        self.builder = builder
        self.name = name
        self.type = type
        self._operand = tree.Name(name)

    def operand(self) -> tree.Name:
        return self._operand

    def __repr__(self) -> str:
        return f"Reg[{self.type.__name__}]({self.name})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if _PART.fullmatch(name):
                raise TraceError(f"a part of a register is an operand of video instructions only: write raw(\"{{}}.{name}\", r), "
                                 "with `from ptxkit.dsl.raw import raw`")
            if sentence := not_of_a_register(name, self):
                raise NoAttributeError(sentence)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _here(self) -> Builder:
        """The trace in progress. Raises TraceError if the register belongs to another trace."""
        builder = current()
        builder.own(self)
        return builder

    def _integer(self, mnemonic: str) -> str:
        if self.type in _INTEGER:
            return self.type.__name__
        if self.type in (b32, b64):
            return f"u{self.type.bits}"
        raise integers_only(self, mnemonic)


def _read(value: Scalars[S]) -> Reg[S]:
    """The register, or one that a special register is read into."""
    assert isinstance(value, Reg | Special)
    return value.read() if isinstance(value, Special) else value


def _arithmetic(operator: _Operator, left: Scalars[Any], other: Any) -> Reg[Any]:
    reg = _read(left)
    if operator.mnemonic in ("div", "rem") and type(other) is int:
        simple = _divided(operator.mnemonic, reg, other)
        if simple is not None:
            return simple
    kind, builder = reg._integer(operator.mnemonic), reg._here()
    if operator.mnemonic in ("div", "rem"):
        other = other.read() if isinstance(other, Special) else other
        if isinstance(other, Reg | int):
            check_signs(reg, other, operator.mnemonic)
    value = _side(reg, other, operator.mnemonic)
    result = builder.register(reg.type)
    operands = (value, reg.operand()) if operator.swap else (reg.operand(), value)
    operated(builder, f"{operator.mnemonic}.{kind}", result.operand(), *operands)
    if builder.remote:
        builder.moved(operator.mnemonic, result.name, operands)
    return result


def _divided(mnemonic: str, reg: Reg[Any], by: int) -> Reg[Any] | None:
    """Quotient or remainder of an unsigned register by a constant power of two, as a shift or a mask. ptxas does not do this for a `div`:
    it computes a reciprocal, in 14 instructions."""
    if by == 0:
        raise TraceError(f"{reg!r} is divided by 0")
    if by < 0 or by & (by - 1) or by >> reg.type.bits or reg._integer(mnemonic)[0] == "s":
        return None
    return _shift("shr", reg, by.bit_length() - 1) if mnemonic == "div" else _bits(_Bitwise("and"), reg, by - 1)


def _bits(operator: _Operator, left: Scalars[Any], other: Any) -> Reg[Any]:
    reg = _read(left)
    width = "pred" if reg.type is pred else f"b{reg.type.bits}"
    if reg.type is not pred:
        reg._integer(operator.mnemonic)
    builder, value = reg._here(), _side(reg, other, operator.mnemonic)
    result = builder.register(reg.type)
    operated(builder, f"{operator.mnemonic}.{width}", result.operand(), reg.operand(), value)
    if builder.remote:
        builder.moved(operator.mnemonic, result.name, (reg.operand(), value))
    return result


def _shift(mnemonic: str, left: Scalars[K], amount: Index) -> Reg[K]:
    reg = _read(left)
    kind, builder = reg._integer(mnemonic), reg._here()
    value = _amount(reg, amount)
    result = builder.register(reg.type)
    operated(builder, f"{mnemonic}.{kind if mnemonic == 'shr' else f'b{kind[1:]}'}", result.operand(), reg.operand(), value)
    return result


def _unary(mnemonic: str, letter: str, value: Scalars[K]) -> Reg[K]:
    reg = _read(value)
    kind, builder = reg._integer(mnemonic), reg._here()
    result = builder.register(reg.type)
    operated(builder, f"{mnemonic}.{letter}{kind[1:]}", result.operand(), reg.operand())
    return result


def _compare(relation: str, left: Scalars[Any], other: Any) -> Reg[pred]:
    reg = _read(left)
    kind = reg._integer(f"setp.{relation}")
    if not isinstance(other, Reg | int | Special):
        raise TraceError(f"{reg!r} can be compared with a register or an int, not with {type(other).__name__}{int_of_numpy(other)}")
    other = other.read() if isinstance(other, Special) else other
    check_signs(reg, other, relation)
    builder, value = reg._here(), _side(reg, other, "setp")
    result = builder.register(pred)
    operated(builder, f"setp.{relation}.{kind}", result.operand(), reg.operand(), value)
    return result


def _side(reg: Reg[Any], other: Any, mnemonic: str) -> tree.Operand:
    """The other operand of an operator, of the same width and class as `reg`."""
    if isinstance(other, Negated) and reg.type is pred:
        reg.builder.own(other.reg)
        return other.operand()
    if isinstance(other, bool) or not isinstance(other, Reg | int | Special):
        raise TraceError(f"`{mnemonic}` on {reg!r} takes a register of its width or an int, not {type(other).__name__}"
                         f"{int_of_numpy(other)}")
    if isinstance(other, int):
        limit = 1 << reg.type.bits
        if reg.type is pred:
            raise TraceError("a predicate combines with a predicate, not with an int")
        if not -(limit >> 1) <= other < limit:
            raise TraceError(f"{other} does not fit the {reg.type.bits} bits of {reg!r}")
        return tree.Integer(other)
    given: Reg[Any] = other.read() if isinstance(other, Special) else other
    if given.type.bits != reg.type.bits or (given.type.register == "pred") != (reg.type.register == "pred"):
        raise TraceError(
            f"`{mnemonic}` needs two registers of one width: {reg!r} has {reg.type.bits} bits, {given!r} has {given.type.bits}; "
            "convert one with cvt, as in `cvt.u64.u32(x)`"
        )
    if reg.type is not pred:
        given._integer(mnemonic)
    reg.builder.own(given)
    return given.operand()


def _amount(reg: Reg[Any], other: Any) -> tree.Operand:
    if isinstance(other, Special):
        other = other.read()
    if isinstance(other, int):
        if not 0 <= other < reg.type.bits:
            raise TraceError(f"a shift of {reg!r} is by 0 to {reg.type.bits - 1}, not {other}")
        return tree.Integer(other)
    if isinstance(other, Reg) and other.type.bits == 32:
        reg.builder.own(other)
        return other.operand()
    raise TraceError(f"a shift amount is an int or a 32-bit register, not {other!r}{int_of_numpy(other)}")


class Negated(Value):
    """`~p`: a negated predicate, for a guard (`pred=~p`) or an operand that takes `!p`."""

    __slots__ = ("reg",)

    def __init__(self, reg: Reg[pred]) -> None:
        refuse_dropped("~p")
        self.reg = reg

    def operand(self) -> tree.Not:
        return tree.Not(self.reg.operand())

    def __invert__(self) -> Reg[pred]:
        return self.reg

    def __and__(self, other: Reg[pred] | Negated) -> Reg[pred]:
        return self._combine("and", other)

    def __or__(self, other: Reg[pred] | Negated) -> Reg[pred]:
        return self._combine("or", other)

    def __xor__(self, other: Reg[pred] | Negated) -> Reg[pred]:
        return self._combine("xor", other)

    if not TYPE_CHECKING:
        __iand__, __ior__, __ixor__ = Rebinding("&"), Rebinding("|"), Rebinding("^")

    def _combine(self, mnemonic: str, other: Any) -> Reg[pred]:
        builder, value = self.reg._here(), _side(self.reg, other, mnemonic)
        result = builder.register(pred)
        operated(builder, f"{mnemonic}.pred", result.operand(), self.operand(), value)
        return result

    def __bool__(self) -> NoReturn:
        self.reg.__bool__()


class Sink(Value):
    """The type of `sink`."""

    __slots__ = ()

    def operand(self) -> tree.Name:
        return tree.Name("_")

    def __repr__(self) -> str:
        return "sink"


sink = Sink()
"""PTX's `_`: a destination, or a lane of a vector destination, whose result is discarded. Only some instructions take it."""


class Vec(Value, Generic[T, N]):
    """A brace list of registers (or immediates): a vector operand, a wgmma fragment."""

    __slots__ = ("elements",)

    @overload
    def __init__(self: Vec[S, Literal[2]], elements: tuple[_Element[S], _Element[S]]) -> None: ...
    @overload
    def __init__(self: Vec[S, Literal[4]], elements: tuple[_Element[S], _Element[S], _Element[S], _Element[S]]) -> None: ...
    @overload
    def __init__(self: Vec[S, Any], elements: Iterable[_Element[S]]) -> None: ...
    def __init__(self, elements: Iterable[Any]) -> None:
        self.elements: tuple[Any, ...] = tuple(elements)

    def __len__(self) -> int:
        return len(self.elements)

    @overload
    def __getitem__(self, index: int) -> Reg[T]: ...
    @overload
    def __getitem__(self, index: slice) -> Vec[T, Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, int) and not -len(self.elements) <= index < len(self.elements):
            raise TraceError(f"a Vec of {len(self.elements)} registers has no item {index}: its last is `v[{len(self.elements) - 1}]`")
        return Vec(self.elements[index]) if isinstance(index, slice) else self.elements[index]

    def __iter__(self) -> Iterator[Reg[T]]:
        return iter(self.elements)

    def __repr__(self) -> str:
        return f"Vec({list(self.elements)!r})"


class Special(Scalars[T]):
    """A special register (`%tid.x`): `mov.u32(tid.x)` reads it; in an operator it is read for you."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: type[T]) -> None:
        self.name = name
        self.type = type

    def operand(self) -> tree.Name:
        return tree.Name(self.name)

    def __repr__(self) -> str:
        return f"Special[{self.type.__name__}]({self.name})"

    def read(self) -> Reg[T]:
        """A register with the special register's current value: one `mov`."""
        builder = current()
        result = builder.register(self.type)
        builder.emit(f"mov.{self.type.__name__}", (result.operand(), self.operand()))
        return result


class Ptr(NotRead, Value, Generic[T]):
    """A 64-bit pointer to elements of `type` in `space`: a register plus a constant byte offset that folds into `[reg+imm]`.

    Arithmetic counts elements, as in C: `p + 4`, `p.at(i)`.
    """

    __slots__ = ("offset", "reg", "seen", "space", "type")

    def __init__(self, reg: Reg[u64], type: type[T], space: str = "global", offset: int = 0) -> None:
        self.seen = -1
        self.reg = reg
        self.type = type
        self.space = space
        self.offset = offset

    def operand(self) -> tree.Address:
        self.seen = self.reg.builder.now
        return tree.Address(self.reg.operand(), self.offset)

    def __repr__(self) -> str:
        return f"Ptr[{self.type.__name__}]({self.reg.name}+{self.offset})"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return max(1, self.type.bits // 8)

    def __add__(self, index: Index | Reg[integer64]) -> Ptr[T]:
        refuse_dropped("p + i")
        if isinstance(index, int):
            self.seen = self.reg.builder.now
            return Ptr(self.reg, self.type, self.space, self.offset + index * self.size)
        return self.at(index)

    def __sub__(self, index: int) -> Ptr[T]:
        if isinstance(index, Value) and not isinstance(index, Scalars):
            raise TraceError(f"`p - q` is no instruction: the distance in elements is `(mov.u64(p) - mov.u64(q)) // {self.size}`")
        return self + -index

    if not TYPE_CHECKING:
        __iadd__, __isub__ = Rebinding("+"), Rebinding("-")

    def at(self, index: Index | Reg[integer64]) -> Ptr[T]:
        """The pointer to element `index`: folded for an int, one mad.wide (32-bit index) or mad.lo (64-bit) for a register."""
        if isinstance(index, int):
            return self + index
        if not isinstance(index, Scalars):
            raise TraceError(f"a pointer is indexed with an int or an integer register, not {index!r}{int_of_numpy(index)}")
        reg: Reg[Any] = _read(index)
        kind, builder = reg._integer("mad"), reg._here()
        builder.own(self.reg)
        self.seen = builder.now
        result = builder.register(u64)
        opcode = f"mad.wide.{kind}" if reg.type.bits == 32 else f"mad.lo.{kind}"
        builder.emit(opcode, (result.operand(), reg.operand(), tree.Integer(self.size), self.reg.operand()))
        note_dropped(builder, opcode, result.operand())
        return Ptr(result, self.type, self.space, self.offset)

    def cast(self, type: type[S]) -> Ptr[S]:
        """The same address as a pointer to elements of another type."""
        self.seen = self.reg.builder.now
        return Ptr(self.reg, type, self.space, self.offset)


Index: TypeAlias = int | Reg[integer32] | Special[integer32]
_Element: TypeAlias = Reg[S] | int | float | Sink
_Side16: TypeAlias = Reg[integer16] | Special[integer16] | int
_Side32: TypeAlias = Reg[integer32] | Special[integer32] | int
_Side64: TypeAlias = Reg[integer64] | Special[integer64] | int
