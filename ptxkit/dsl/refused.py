"""What Python's syntax offers and a kernel has not: each is an error that says what is written instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import TraceError

_FLOAT = {"add": "add.rn", "sub": "sub.rn", "mul.lo": "mul.rn"}
_BITS = {"f16": "b16", "bf16": "b16", "e4m3": "b8", "e5m2": "b8", "b128": "b128"}


def integers_only(reg: Any, mnemonic: str) -> TraceError:
    """The error of an operator on a register that holds no integer."""
    kind = reg.type.__name__
    if kind == "pred":
        instead = "combine predicates with &, | and ~"
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


class NoItems:
    """Values that no item is assigned to. Type checkers know it without these methods."""

    __slots__ = ()

    if not TYPE_CHECKING:

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

        def __abs__(self) -> NoReturn:
            kind = self.type.__name__
            raise TraceError(f"Python's `abs` emits nothing: write `abs.{kind.replace('u', 's')}(x)`, with `abs` of ptxkit.ptx")


__all__ = ["NoItems", "NoQuotient", "NotRead", "integers_only"]
