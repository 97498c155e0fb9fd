"""What products on the CPU device have in common: NumPy arrays as the device adapter would see them, and the report of several launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.dsl.arguments import native, whole
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.overlap import refuse_overlap
from ptxkit.types import TYPES

from ..problem.dense import Lines

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]
WORDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_INTEGERS = {"int32": "s32", "uint32": "u32"}


def check_numpy(name: str, array: Any) -> None:
    """Raise LaunchError for what is no array of the CPU device: of whole elements in the order of bytes that kernels read."""
    if not isinstance(array, np.ndarray | np.generic):
        raise LaunchError(f"{name} is a {type(array).__name__}, not an array of NumPy, as the CPU device takes them")
    native(name, array.dtype)
    whole(name, array)


def check_card(card: Any) -> None:
    """Raise LaunchError for what is no card."""
    if not isinstance(card, Card):
        raise LaunchError(f"card is a {type(card).__name__}: it is a Card of ptxkit.cards, as ptxkit.cards.H200")


def view_of(name: str, array: Array, word: str | None) -> ArrayView:
    """The array as a launch sees it; `word` is the type of which unsigned integers have the bits."""
    check_numpy(name, array)
    known = WORDS.get(array.dtype.name)
    if known is None and array.dtype.kind == "u" and word is not None and TYPES[word].bits == 8 * array.dtype.itemsize:
        known = word
    if known is None:
        *others, last = WORDS
        bits = "; dtype= says which of these unsigned integers are the bits of" if array.dtype.kind == "u" else ""
        raise LaunchError(f"{name} has elements of {array.dtype}: convert it to {', '.join(others)} or {last}{bits}")
    size = array.dtype.itemsize
    return ArrayView(place(array), array.shape, tuple(s // size for s in array.strides), known, 0, name)


def check_overlap(given: Mapping[str, Array | None], written: Sequence[str] = ("out",), in_place: Sequence[str] = ()) -> None:
    """Raise the LaunchError that a launch would if a written array shares memory with another one, or LaunchError if it is read-only."""
    for name, array in given.items():
        if array is not None:
            check_numpy(name, array)
            if name in written and not array.flags.writeable:
                raise LaunchError(f"{name} is read-only, and a launch writes it: pass a copy, {name}.copy()")
    seen = [(name, ArrayView(array.__array_interface__["data"][0], array.shape, tuple(s // array.itemsize for s in array.strides),
                             f"u{8 * array.itemsize}", 0, name)) for name, array in given.items() if array is not None]
    refuse_overlap(seen, written, in_place)


def place(array: Array) -> int:
    """The address of an array modulo 256: the CPU device places the memory that it is a part of at a multiple of that."""
    whole, base = array, array.base
    while base is not None:                     # NumPy's as_strided leaves an object between two arrays that is none
        whole, base = (base if isinstance(base, np.ndarray) else whole), getattr(base, "base", None)
    return int(array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) % 256


def strided(array: Array, seen: ArrayView) -> Array:
    """The same memory with the shape and strides of this view."""
    strides = tuple(stride * array.itemsize for stride in seen.strides)
    return np.lib.stride_tricks.as_strided(bits_of(array), seen.shape, strides).view(array.dtype)


def part_of(array: Array | None, whole: ArrayView, seen: ArrayView) -> Array:
    """What a view of a part of an array shows of it."""
    assert array is not None
    skipped = (seen.pointer - whole.pointer) // array.itemsize
    first = bits_of(array)[tuple(slice(1) for _ in array.shape)].reshape(-1) if array.ndim else bits_of(array).reshape(1)
    flat = np.lib.stride_tricks.as_strided(first, (skipped + 1,), (array.itemsize,))
    strides = tuple(stride * array.itemsize for stride in seen.strides)
    return np.lib.stride_tricks.as_strided(flat[skipped:], seen.shape, strides).view(array.dtype)


def bytes_of(array: Array) -> Array:
    """The memory from an array's first element to its last, as an array of bytes that shares it."""
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
    first = bits_of(array)[tuple(slice(1) for _ in array.shape)].reshape(-1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (extent,), (1,))


def bits_of(array: Array) -> Array:
    """The same memory as unsigned integers: NumPy can change strides only of its own types."""
    return array.view(np.dtype(f"u{array.itemsize}"))


def lines_of(array: Array, columns_are_contiguous: bool) -> Array:
    """The array with its contiguous axis last. The stride of an extent of 1 has no meaning, so it is replaced by one that a tensor map
    accepts."""
    array = array if columns_are_contiguous else np.swapaxes(array, -1, -2)
    strides = list(array.strides)
    if array.shape[-1] == 1:
        strides[-1] = array.itemsize
    for axis in range(array.ndim - 2, -1, -1):
        if array.shape[axis] == 1:
            strides[axis] = -(-array.shape[axis + 1] * max(strides[axis + 1], array.itemsize) // 16) * 16
    if tuple(strides) == array.strides:
        return array
    return np.lib.stride_tricks.as_strided(bits_of(array), strides=strides).view(array.dtype)


def map_of(array: Array, record: Any, lines: Lines, offset: int = 0) -> TensorMap:
    """The map of an array as the device adapter encodes it, with the box that the kernel copies."""
    strides = tuple(stride // array.itemsize for stride in reversed(lines.strides))
    return TensorMap(array, box=tuple(reversed(record.box)), swizzle=record.swizzle, shape=lines.dims[::-1], strides=(*strides, 1),
                     offset=offset)


def integer(array: Array) -> str:
    """The type of an array of lengths or row numbers."""
    return _INTEGERS.get(array.dtype.name, "s64")


def worst(reports: Sequence[Report]) -> Report:
    return next((report for report in reports if report.verdict != "clean"), reports[0])


__all__ = ["WORDS", "Array", "bytes_of", "check_card", "check_numpy", "check_overlap", "integer", "lines_of", "map_of", "part_of",
           "place", "strided", "view_of", "worst"]
