"""What Python's syntax offers and a kernel has not: each is an error that says what is written instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Never, NoReturn

from ..errors import TraceError

_FLOAT = {"add": "add.rn", "sub": "sub.rn", "mul.lo": "mul.rn"}
_BITS = {"f16": "b16", "bf16": "b16", "e4m3": "b8", "e5m2": "b8", "b128": "b128"}


def integers_only(reg: Any, mnemonic: str) -> TraceError:
    """The error of an operator on a register that holds no integer."""
    kind = reg.type.__name__
    if kind == "pred":
        instead = "combine predicates with `&`, `|`, `^` and `~`"
    elif mnemonic.startswith("setp."):
        instead = f"compare with `{mnemonic}.{kind}(a, b)`"
    elif mnemonic == "neg":
        instead = f"write `neg.{kind}(a)`"
    elif mnemonic == "mad":
        return TraceError(f"a pointer is indexed with an int or an integer register, not {reg!r}")
    else:
        called = f"{_FLOAT[mnemonic]}.{kind}(a, b)" if mnemonic in _FLOAT else f"fma.rn.{kind}(a, b, c)"
        instead = f"say the instruction and its rounding, as in `{called}`"
    return TraceError(f"operators work on integer registers, and {reg!r} is not one: {instead}")


class NoAttributeError(TraceError, AttributeError):
    """A name that a register, a loop or a tile does not have."""


_LOOP_ALONE = ("break_", "break_if", "continue_", "continue_if", "repeat_if")
"""What a `loop` has and loops that count have not."""


def not_of_a_count(name: str, what: str) -> str | None:
    """Why `what`, which a loop that counts gives, has not a method of `loop`, and the way out. None for other names."""
    if name not in _LOOP_ALONE:
        return None
    if name.startswith("continue"):
        return (f"{what} has no `{name}`: in a loop that counts the rest of the body stands under `with if_(~p):`, and is skipped where "
                "`p` holds")
    return (f"{what} has no `{name}`, since a loop that counts ends at its end: one that ends early is `with loop() as l:`, after "
            "`i = mov.u32(0)`, with `l.break_if(i >= n)` first in its body and `add.u32(i, i, 1)` last")


def nothing_carried(name: str, loop: type) -> TraceError:
    """The error of `l.total = x` where the loop carries nothing."""
    return TraceError(f"`{name}` is the loop's own and is not assigned" if hasattr(loop, name) else
                      f"the loop carries nothing, so that `l.{name} = ...` emits nothing: give the value a place where the loop begins, "
                      f"`with loop({name}=zero) as l:`")


def not_of_a_register(name: str, reg: Any) -> str | None:
    """Why a register has not a name that loops have, and the way out. None for other names."""
    if name in ("index", "stage", "parity"):
        return (f"{reg!r} is a register and has no `{name}`: a loop that carries no value gives its numbers themselves, "
                "`with for_range(n) as i:` and `with ring(STAGES, n) as (k, stage, parity):`")
    return not_of_a_count(name, f"{reg!r} is a register and") if name in _LOOP_ALONE else None


class InPlace:
    """`x += y`, which always raises TraceError."""

    def __init__(self, sign: str, mnemonic: str) -> None:
        self.sign = sign
        self.mnemonic = mnemonic

    def __get__(self, reg: Any, owner: Any) -> Callable[[Never], NoReturn]:
        return partial(self.refuse, reg)

    def refuse(self, reg: Any, other: object) -> NoReturn:
        mnemonic, kind = self.mnemonic, reg.type.__name__
        if mnemonic in ("and_", "or_", "xor", "shl"):
            kind = "pred" if kind == "pred" else f"b{reg.type.bits}"
        elif reg.type.register in ("f32", "f64"):
            mnemonic = f"{mnemonic.partition('.')[0]}.rn"
        elif reg.type.__name__[0] not in "us":
            kind = f"u{reg.type.bits}"
        raise TraceError(
            f"`x {self.sign}= y` would silently bind the Python name to a new register; to write in place say "
            f"`{mnemonic}.{kind}(x, x, y)`, for a new value `z = x {self.sign} y`"
        )


def int_of_numpy(value: Any) -> str:
    """What a message adds where an int is due and the value is a number of numpy."""
    whole = type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u") and not value.ndim
    return "; a number of numpy becomes one of Python with `int(i)`" if whole else ""


_NONE = ("@", "**", "divmod", "abs")
"""What makes no instruction of registers either."""


def _instead(value: Any, sign: str) -> str:
    """What is written instead of an operator on what is no register."""
    kind = type(value).__name__
    compares = sign in ("==", "!=", "<", "<=", ">", ">=")
    if kind == "Vec":
        word = "setp.eq.u32(x, y)" if compares else "add.u32(x, y)"
        return f"take its registers one by one, as `[{word} for x, y in zip(a, b)]`"
    if kind == "Negated":
        return "combine predicates with `&`, `|`, `^` and `~`"
    if kind == "Ptr":
        way = "mov.u64(p)" if sign in _NONE else f"mov.u64(p) {sign} mov.u64(q)"
        return f"compute with the address in a register, `{way}`; `p + i` and `p.at(i)` are the places of elements"
    if "Tile" in kind:
        return f"its parts are `t[stage].at(row, column)`; an address in a register is `t[stage].at(0, 0).register()`{_numbers(sign)}"
    return f"compute with the address in a register, `place.register()`{_numbers(sign)}"


def _numbers(sign: str) -> str:
    return "" if sign in _NONE else f", as in `a.register() {sign} b.register()`"


def _boxed(value: Any) -> Any:
    """An array of numpy without dimensions that holds the value."""
    import numpy as np

    box = np.empty((), object)
    box[()] = value
    return box


class _Refused:
    """An operator that a value has not: one error for each."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    def __get__(self, value: Any, owner: Any) -> Any:
        return self if value is None else partial(self.refuse, value)

    def refuse(self, value: Any, *_: Any) -> NoReturn:
        raise TraceError(f"`{self.sign}` is no instruction on a {type(value).__name__}: {_instead(value, self.sign)}")


class Rebinding(_Refused):
    """`x += y` of a value that has `+` and is no register: the name would silently stand for another value."""

    def refuse(self, value: Any, *_: Any) -> NoReturn:
        word = {"&": "and_", "|": "or_", "^": "xor"}.get(self.sign)
        way = "in a loop index it, `p.at(i)`, or carry it, `with for_range(n, p=p) as loop:` and `loop.p = loop.p + 1`" \
            if type(value).__name__ == "Ptr" else "in a loop index it by a register, `a.at(i)`" if word is None else \
            f"to write in place begin with a register, `x = not_.pred(p)`, and then `{word}.pred(x, x, y)`"
        raise TraceError(f"`x {self.sign}= y` of a {type(value).__name__} would silently bind the Python name to another one: for a new "
                         f"one write `z = x {self.sign} y`; {way}")


class _Equality(_Refused):
    """`==` or `!=` of what is no register: it is that of identity only with itself and None."""

    def refuse(self, value: Any, *other: Any) -> Any:
        if other and (other[0] is value or other[0] is None):
            return (other[0] is value) == (self.sign == "==")
        return super().refuse(value)


class _Extended(_Refused):
    """`+` on the right of a list: `words += ld.v4(...)` appends the registers of a Vec, as `tiles += tile` does the stages of a tile.
    Python appends them itself once the value has no answer."""

    def refuse(self, value: Any, *other: Any) -> Any:
        if other and isinstance(other[0], list) and isinstance(value, Iterable):
            return NotImplemented
        return super().refuse(value)


class NoItems:
    """Values that no item is assigned to, and without operators but for those that a class has. Type checkers know it without these."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
            """Of an array of registers each element's operator. numpy cannot compute with a register itself."""
            if any(hasattr(each, "dtype") and each.dtype.hasobject for each in inputs) and method == "__call__":
                return ufunc(*[_boxed(each) if isinstance(each, NoItems) else each for each in inputs], **given)
            raise TraceError(f"numpy's `{ufunc.__name__}` computes while tracing, and {self!r} has no value then: call an instruction of "
                             "ptxkit.ptx, as `ex2.approx.f32(x)`; a number of numpy becomes one of Python with `int(i)` or `float(x)`")

        __hash__ = object.__hash__
        __eq__, __ne__ = _Equality("=="), _Equality("!=")
        __lt__, __le__, __gt__, __ge__ = _Refused("<"), _Refused("<="), _Refused(">"), _Refused(">=")
        __add__ = __iadd__ = _Refused("+")
        __radd__ = _Extended("+")
        __sub__ = __rsub__ = __isub__ = _Refused("-")
        __mul__ = __rmul__ = __imul__ = _Refused("*")
        __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _Refused("//")
        __mod__ = __rmod__ = _Refused("%")
        __and__ = __rand__ = _Refused("&")
        __or__ = __ror__ = _Refused("|")
        __xor__ = __rxor__ = _Refused("^")
        __lshift__ = __rlshift__ = _Refused("<<")
        __rshift__ = __rrshift__ = _Refused(">>")
        __matmul__ = __rmatmul__ = _Refused("@")
        __pow__ = __rpow__ = _Refused("**")
        __divmod__ = __rdivmod__ = _Refused("divmod")
        __neg__, __pos__, __invert__, __abs__ = _Refused("-"), _Refused("+"), _Refused("~"), _Refused("abs")

        def __setitem__(self, index: Any, value: Any) -> NoReturn:
            kind = type(self).__name__
            held = getattr(self, "type", None) or getattr(getattr(self, "layout", None), "type", None)
            word = _BITS.get(held.__name__, held.__name__) if held is not None else "b32"
            if kind == "Vec":
                way = "write a register of it in place, as `mov.b32(v[0], x)`"
            elif kind == "Ptr":
                way = f"store it, `st.{self.space}{'_' * (self.space == 'global')}.{word}(p.at(i), x)`"
            else:
                way = f"store it, `st.shared.{word}({'t[stage].at(row, column)' if 'Tile' in kind else 'a.at(i)'}, x)`"
            raise TraceError(f"an assignment to an item of a {kind} emits nothing: {way}")


class NotRead(NoItems):
    """Places, which are no values: a pointer."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getitem__(self, index: Any) -> NoReturn:
            word = _BITS.get(self.type.__name__, self.type.__name__)
            space = f"{self.space}{'_' * (self.space == 'global')}"
            raise TraceError(f"a pointer has no items: `p.at(i)` is the place of an element, and `ld.{space}.{word}(p.at(i))` reads it")


class NoQuotient:
    """Registers: `/`, `**`, `abs`, a number on the left of `//` and `%`, `for` and `with` make no instruction of them."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __truediv__(self, other: Any) -> NoReturn:
            kind = self.type.__name__
            way = ({"f32": "`div.full.f32(a, b)`, or a reciprocal `rcp.approx.f32(a)`", "f64": "`div.rn.f64(a, b)`"}.get(kind)
                   or f"integers divide with `a // b`; for a float convert first, `cvt.rn.f32.{kind}(a)`")
            raise TraceError(f"`/` is no instruction: {way}")

        __rtruediv__ = __truediv__

        def __rfloordiv__(self, other: Any) -> NoReturn:
            kind = self.type.__name__
            raise TraceError(f"// and % take a register on their left: write `div.{kind}({other}, x)` or `rem.{kind}({other}, x)`")

        __rmod__ = __rfloordiv__

        def __rlshift__(self, other: Any) -> NoReturn:
            raise self._shifts("<<", f"shl.b32({other}, ")

        def __rrshift__(self, other: Any) -> NoReturn:
            raise self._shifts(">>", f"shr.{'s' if isinstance(other, int) and other < 0 else 'u'}32({other}, ")

        def _shifts(self, sign: str, call: str) -> TraceError:
            kind = self.type.__name__
            if kind == "pred" or self.type.register in ("f32", "f64"):
                return integers_only(self, "shift")
            amount = f"mov.{kind}({self.name[1:]})" if self.name.startswith("%") and not hasattr(self, "builder") else "x"
            amount = amount if self.type.bits == 32 else f"cvt.u32.u{self.type.bits}({amount})"
            return TraceError(f"`{sign}` takes a register on its left: write `{call}{amount})`, and `64` in place of `32` for 64 bits")

        def __pow__(self, other: Any) -> NoReturn:
            raise TraceError("`**` is no instruction: multiply, or `ex2.approx.f32(mul.rn.f32(y, lg2.approx.f32(x)))`")

        __rpow__ = __pow__

        def __iter__(self) -> NoReturn:
            raise TraceError(f"{self!r} is one value and no sequence: `with for_range(n) as i:` counts on the GPU, `for i in range(4)` "
                             "unrolls while tracing")

        def __enter__(self) -> NoReturn:
            way = "`with if_(p):` runs its body where a predicate holds" if self.type.__name__ == "pred" else \
                "`with for_range(n) as i:` counts up to a register, `with if_(n > 0):` runs its body where a predicate holds"
            raise TraceError(f"`with` takes no register: {way}")

        def __exit__(self, *_: object) -> None: ...

        def __getitem__(self, index: Any) -> NoReturn:
            raise TraceError(f"{self!r} is one value and has no items: `(x >> 8) & 0xFF` is a byte of it; `ld.global_.v4.u32(p)` gives "
                             "four registers")

        def __len__(self) -> NoReturn:
            raise TraceError(f"{self!r} is one value and has no length: `ld.global_.v4.u32(p)` gives four registers")

        def __pos__(self) -> NoReturn:
            raise TraceError("`+x` emits nothing: write `x`, or `abs.s32(x)` for the magnitude")

        def __divmod__(self, other: Any) -> NoReturn:
            raise TraceError("Python's `divmod` is no instruction: write `x // y` and `x % y`; `ptxkit.idioms.fast_div(x, 10)` divides "
                             "by a constant")

        __rdivmod__ = __divmod__

        def __matmul__(self, other: Any) -> NoReturn:
            raise TraceError("`@` is no instruction: products of matrices are `mma` and `wgmma`")

        __rmatmul__ = __matmul__

        def __round__(self, digits: Any = None) -> NoReturn:
            kind = self.type.__name__
            raise TraceError(f"Python's `round` emits nothing: write `cvt.rni.s32.{kind}(x)` for an integer, "
                             f"`cvt.rni.{kind}.{kind}(x)` for a float")

        def __format__(self, spec: str) -> str:
            if spec:
                raise TraceError(f"{self!r} has no value while the kernel is being traced, so that Python cannot format it: "
                                 "`debug.print(\"x is %u\", x)` prints on the GPU")
            return repr(self)

        def __abs__(self) -> NoReturn:
            kind = self.type.__name__
            raise TraceError(f"Python's `abs` emits nothing: write `abs.{kind.replace('u', 's')}(x)`, with `abs` of ptxkit.ptx")


__all__ = ["InPlace", "NoAttributeError", "NoItems", "NoQuotient", "NotRead", "Rebinding", "int_of_numpy", "integers_only",
           "not_of_a_count", "not_of_a_register", "nothing_carried"]
