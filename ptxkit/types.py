"""PTX's scalar types as Python classes: `Reg[u32]`, `Vec[f32, 4]`, `smem.tile(bf16, ...)`.

"A bit-size type accepts any type of its width" is subtyping: `u32`, `s32` and `f32` are subclasses of `b32`. For type checkers
there are classes between: `integer32` (`u32`, `s32`) is what integer operands take, `nonfloat32` what a few bit operands take.
`bits32`, which an instruction of type `.b32` returns, is below all of them: bits may be read as anything of their width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias


class _ScalarMeta(type):
    def __repr__(cls) -> str:
        return cls.__name__


class Scalar(metaclass=_ScalarMeta):
    """A scalar type. `bits` is its width; `register` the type its registers are declared with (`.reg .b32`)."""

    bits: ClassVar[int]
    register: ClassVar[str]

    def __class_getitem__(cls, item: Any) -> Any:
        raise TypeError(f"{cls.__name__} is a scalar type; write Reg[{cls.__name__}] or Vec[{cls.__name__}, n]")


class integer(Scalar):
    """What operators work on. Not a type of a register, as none of the classes between the bit sizes and PTX's types is."""


class pred(Scalar):
    bits = 1
    register = "pred"


class b8(Scalar):
    bits = 8
    register = "b16"


class b16(Scalar):
    bits = 16
    register = "b16"


class b32(Scalar):
    bits = 32
    register = "b32"


class b64(Scalar):
    bits = 64
    register = "b64"


class b128(Scalar):
    bits = 128
    register = "b128"


class integer8(b8): ...


class integer16(b16, integer): ...


class nonfloat32(b32): ...


class integer32(nonfloat32, integer): ...


class integer64(b64, integer): ...


class u8(integer8): ...


class s8(integer8): ...


class e4m3(b8): ...


class e5m2(b8): ...


class u16(integer16): ...


class s16(integer16): ...


class f16(b16): ...


class bf16(b16): ...


class u16x2(nonfloat32): ...


class s16x2(nonfloat32): ...


class e4m3x2(b16): ...


class e5m2x2(b16): ...


class u32(integer32): ...


class s32(integer32): ...


class f16x2(nonfloat32): ...


class bf16x2(nonfloat32): ...


class tf32(nonfloat32): ...


class f32(b32):
    register = "f32"


class u64(integer64): ...


class s64(integer64): ...


class f64(b64):
    register = "f64"


if TYPE_CHECKING:

    class bits8(u8, s8, e4m3, e5m2): ...

    class bits16(u16, s16, f16, bf16, e4m3x2, e5m2x2): ...

    class bits32(u32, s32, f16x2, bf16x2, u16x2, s16x2, tf32, f32): ...

    class bits64(u64, s64, f64): ...

else:
    bits8, bits16, bits32, bits64 = b8, b16, b32, b64

ScalarType: TypeAlias = type[Scalar]



def is_scalar(hint: Any) -> bool:
    """Whether it is a scalar type."""
    return isinstance(hint, type) and issubclass(hint, Scalar)


TYPES: dict[str, ScalarType] = {
    t.__name__: t
    for t in (pred, b8, b16, b32, b64, b128, u8, s8, e4m3, e5m2, u16, s16, f16, bf16, u16x2, s16x2, e4m3x2, e5m2x2,
              u32, s32, f16x2, bf16x2, tf32, f32, u64, s64, f64)
}
"""Every scalar type by its PTX name."""


def scalar(name: str) -> ScalarType:
    """The type of a PTX name ("f32"); types that the DSL gives no class of their own stand as the bits of their width."""
    return TYPES.get(name, b32)
