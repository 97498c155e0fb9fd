"""What a launch asks of its arguments, on a GPU and on the CPU device alike. A LaunchError names the parameter and what it needs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import LaunchError, TraceError
from ..types import TYPES, ScalarType
from .descriptor import TensorMapFields
from .parameters import Parameter
from .tensormap import TensorMap, encodable

# ptxkit's types by their names in NumPy and ml_dtypes, which CuPy and JAX use too. A type that NumPy lacks has the name of its bits.
WORDS = {"uint8": "u8", "int8": "s8", "bool": "u8", "uint16": "u16", "int16": "s16", "uint32": "u32", "int32": "s32", "uint64": "u64",
         "int64": "s64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "e4m3",
         "float8_e5m2": "e5m2"}

NO_NUMPY = ("bf16", "e4m3", "e5m2")
"""Types that NumPy lacks: without ml_dtypes their bits are passed as unsigned integers."""

FORMATS = {"u8": "B", "s8": "b", "b8": "B", "u16": "H", "s16": "h", "b16": "H", "f16": "e", "bf16": "H",
           "u32": "I", "s32": "i", "b32": "I", "f32": "f", "u64": "Q", "s64": "q", "b64": "Q", "f64": "d"}
"""How `struct` writes a scalar. What it cannot write (bf16) is the integer of its bits."""


class Seen(Protocol):
    """The properties of an array; strides count elements, `dtype` is ptxkit's name of the element type."""

    @property
    def pointer(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


class HostArray(NamedTuple):
    """The properties of an array in host memory, as `Seen` has them."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def host(name: str, array: Any, pointer: int) -> HostArray:
    """The properties of a NumPy array that a kernel finds at `pointer`. Raises LaunchError for elements that no PTX type stands for."""
    word = WORDS.get(array.dtype.name)
    if word is None:
        raise LaunchError(f"`{name}` has elements of {array.dtype}, which no PTX type stands for: convert it to one of {', '.join(WORDS)}")
    whole(name, array)
    item = array.dtype.itemsize
    return HostArray(pointer, array.shape, tuple(stride // item for stride in array.strides), word)


def counted(kernel: str, needs: Sequence[tuple[str, str]], given: int) -> None:
    """Raise LaunchError unless there are as many arguments as parameters. `needs` are their names and what each needs, in words."""
    if given == len(needs):
        return
    names = ", ".join(name for name, _ in needs) or "none"
    missing = "; ".join(f"`{name}` needs {words}" for name, words in needs[given:given + 3])
    takes, were = f"{len(needs)} argument{'s' * (len(needs) != 1)}", "was" if given == 1 else "were"
    raise LaunchError(f"kernel `{kernel}` takes {takes} ({names}), {given} {were} given" + (f": {missing}" if missing else ""))


def needed(parameter: Parameter) -> tuple[str, str]:
    """The parameter's name, and what it needs."""
    kind = "" if parameter.type is None else parameter.type.__name__
    words = {"pointer": f"an array of {kind}" if kind else "an array", "tensormap": "an array, or TensorMap(array, box=...)",
             "scalar": f"a number ({kind})"}
    return parameter.name, words.get(parameter.kind, "bytes")


def whole(name: str, array: Any) -> None:
    """Raise LaunchError for a NumPy array whose elements are not a whole number of elements apart."""
    item = array.dtype.itemsize
    if any(stride % item for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
        raise LaunchError(f"`{name}` has strides of {array.strides} bytes, which are no whole elements of {array.dtype}: pass a copy")


def native(name: str, dtype: Any) -> None:
    """Raise LaunchError for a NumPy type whose bytes are in the other order."""
    if not dtype.isnative:
        raise LaunchError(f"`{name}` has elements of {dtype.str!r}, whose bytes are in the order of another machine: pass "
                          "array.astype(array.dtype.newbyteorder('='))")


def number(name: str, word: str, value: Any) -> Any:
    """The number that `struct` writes for a scalar parameter."""
    if word not in FORMATS:
        raise LaunchError(f"`{name}` is a {word}: such a parameter cannot be passed, only {', '.join(FORMATS)}, arrays and tensor maps")
    item = getattr(value, "item", None)
    value = item() if callable(item) and getattr(value, "ndim", 0) == 0 else value
    if not isinstance(value, int | float):
        raise LaunchError(f"`{name}` is a {word}: pass a number, not {_shown(value)}")
    if isinstance(value, float) and word[0] != "f":
        if word in ("b32", "b64"):
            return struct.unpack("<" + FORMATS[word], packed(name, f"f{word[1:]}", value))[0]
        raise LaunchError(f"`{name}` is a {word}: pass an int, not {value!r}" + (", the integer of its bits" if word == "bf16" else ""))
    return value


def packed(name: str, word: str, value: Any, *, signed: bool = False) -> bytes:
    """The bytes of a scalar. With `signed`, an unsigned integer may be given as a negative number, as compilers declare all integers."""
    value = number(name, word, value)
    bits = TYPES[word].bits
    if signed and word[0] in "ub" and isinstance(value, int) and -(1 << bits - 1) <= value < 0:
        value += 1 << bits
    try:
        return struct.pack("<" + FORMATS[word], value)
    except (struct.error, OverflowError):
        raise LaunchError(misfit(name, word, value)) from None


def misfit(name: str, word: str, value: Any) -> str:
    """What is said of a number that its type cannot hold."""
    if word[0] == "f":
        return f"`{name}`: {value!r} is beyond the largest {word}"
    bits = TYPES[word].bits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if word[0] == "s" else (0, (1 << bits) - 1)
    return f"`{name}`: {value!r} does not fit its {bits} bits ({word}: {low:,} to {high:,})"


def stands_for(word: str, type_: ScalarType) -> bool:
    """Whether a kernel may read elements of `word` as its own type. It may if the two are the same. A type of bits, b16 say, takes any
    type of its width. A type that NumPy lacks takes the unsigned integers that hold its bits, and tf32 takes f32."""
    name, bits = type_.__name__, type_.bits
    return word == name or (TYPES[word].bits == bits and (
        name == f"b{bits}" or (name in NO_NUMPY and word == f"u{bits}") or (name, word) == ("tf32", "f32")))


def pointed(parameter: Parameter, seen: Seen) -> None:
    """Raise LaunchError unless the array is what a pointer parameter points to: type, alignment, memory in the order of rows."""
    name = parameter.name
    if parameter.type is not None:
        if not stands_for(seen.dtype, parameter.type):
            raise LaunchError(f"`{name}` points to {parameter.type.__name__}, the array has elements of {seen.dtype}")
        alignment = max(1, parameter.type.bits // 8)
        if seen.pointer % alignment:
            raise LaunchError(f"`{name}` starts at address {seen.pointer:#x}, which is not a multiple of {alignment} bytes: a slice may "
                              "begin inside an aligned block; pass a copy, or slice at an aligned element")
    step = 1
    for extent, stride in zip(reversed(seen.shape), reversed(seen.strides), strict=True):
        if extent == 1 or 0 in seen.shape:
            continue
        if stride < step or (step == 1 and stride != 1):
            raise LaunchError(f"`{name}` has strides {seen.strides} for shape {seen.shape}: a pointer names memory row after row, without "
                              "gaps in a row; pass a copy, or of a transposed array its transpose, which is the same memory")
        step = stride * extent


def map_fields(kernel: str, record: Any, name: str, seen: Seen, explicit: TensorMap | None) -> TensorMapFields:
    """The fields of an argument's tensor map: from the tile that the kernel copies (`record`), or from an explicit map. If there are
    both, they must agree.
    """
    try:
        return _map_fields(kernel, record, name, seen, explicit)
    except TraceError as error:
        raise LaunchError(error.message) from None


def _map_fields(kernel: str, record: Any, name: str, seen: Seen, explicit: TensorMap | None) -> TensorMapFields:
    if explicit is not None:
        type_ = explicit.dtype or TYPES[seen.dtype]
        if type_.bits != TYPES[seen.dtype].bits:
            raise LaunchError(f"`{name}`: the tensor map's {type_.__name__} has {type_.bits} bits, the array's {seen.dtype} "
                              f"{TYPES[seen.dtype].bits}")
        fields = encodable(explicit.fields(seen.shape, seen.strides, TYPES[seen.dtype]), seen.pointer + explicit.offset,
                           f"the tensor map of `{name}`")
        same = record is None or ((fields.box, fields.swizzle) == (record.box, record.swizzle)
                                  and stands_for(fields.type.__name__, record.type))
        if not same:
            given = f"box {'x'.join(map(str, fields.box))} {fields.type.__name__}, swizzle {fields.swizzle or 'none'}"
            raise LaunchError(f"the tensor map given for `{name}` ({given}) differs from the tile that the kernel copies: {record}; "
                              "pass the plain array and it is encoded to fit")
        return fields
    if record is None:
        raise LaunchError(f"kernel `{kernel}` copies no tile through `{name}`, so its box is unknown: pass TensorMap(array, box=...)")
    if len(seen.shape) != len(record.box):
        raise LaunchError(f"`{name}` has {len(seen.shape)} dimensions, the kernel copies boxes of {len(record.box)}")
    if seen.strides[-1] != 1:
        raise LaunchError(f"`{name}` has strides {seen.strides}: a tensor map needs the last dimension contiguous")
    if not stands_for(seen.dtype, record.type):
        raise LaunchError(f"`{name}` has elements of {seen.dtype}, the kernel copies {record.type.__name__}")
    strides = tuple(s * record.type.bits // 8 for s in reversed(seen.strides[:-1]))
    return encodable(record.fields(tuple(reversed(seen.shape)), strides), seen.pointer, f"the tensor map of `{name}`")


def _shown(value: Any) -> str:
    kind = type(value)
    if hasattr(value, "shape"):
        return f"an array of shape {tuple(value.shape)}"
    if kind.__module__ == "builtins" and len(repr(value)) < 60:
        return repr(value)
    return f"a {kind.__module__.partition('.')[0]} {kind.__name__}"
