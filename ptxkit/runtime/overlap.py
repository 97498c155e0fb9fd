"""Whether a launch would write memory that it also reads: arrays as sets of the bytes of their elements."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..errors import LaunchError
from ..types import TYPES
from .arrays import ArrayView

MOST_STEPS = 100_000
"""Places that are tried before two arrays count as disjoint. Of two matrices, or of a batch of matrices and a matrix, none has needed more
than a few; only strides of three and more extents that have no common divisor can."""


class Spans:
    """From the first byte to the last of arrays of some shapes: what a plan keeps, so that arrays at new addresses are judged at once."""

    __slots__ = ("bytes", "written")

    def __init__(self, arrays: Sequence[ArrayView | None], *written: int) -> None:
        self.bytes = tuple(0 if array is None else max(0, _end(array) - array.pointer) for array in arrays)
        self.written = written

    def apart(self, arrays: Sequence[ArrayView | None]) -> bool:
        """Whether no array reaches into a written one. If not, `refuse_overlap` decides."""
        for place in self.written:
            out = arrays[place]
            if out is None:
                continue
            low = out.pointer
            high = low + self.bytes[place]
            for at, (array, size) in enumerate(zip(arrays, self.bytes, strict=False)):
                if at != place and array is not None and array.pointer < high and low < array.pointer + size:
                    return False
        return True


def refuse_overlap(named: Iterable[tuple[str, ArrayView]], written: Container[str] = ("out",), in_place: Container[str] = ()) -> None:
    """Raise LaunchError if one of the `written` arrays shares an element's byte with another array. Arrays whose elements lie between one
    another, as columns of one matrix do, share none. Those named in `in_place` may be exactly a written array: each element is read by the
    thread that writes it. An array at address 0 has no memory yet."""
    arrays = list(named)
    for name, one in arrays:
        if name not in written or not one.pointer:
            continue
        low, high = one.pointer, _end(one)
        for other, array in arrays:
            if array.pointer >= high or low >= _end(array) or other == name or not array.pointer:
                continue
            if not (other in in_place and _same(one, array)) and shares(one, array):
                raise LaunchError(f"{name} and {other} share memory: a launch writes {name} in no fixed order while it reads {other}; give "
                                  f"{name} memory of its own, or pass a copy of {other}")


def refuse_shared_elements(name: str, array: ArrayView) -> None:
    """Raise LaunchError if elements of a written array share memory with one another: what is left there would depend on the order of the
    stores. Each extent must be further apart than all that lies below it reaches."""
    reached = 0
    for stride, extent in sorted((stride, extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
        if 0 not in array.shape and stride <= reached:
            raise LaunchError(f"{name} has shape {array.shape} and strides {array.strides}: its elements must not overlap; pass a "
                              "contiguous array")
        reached += stride * (extent - 1)


def _end(array: ArrayView) -> int:
    """The address behind the last element; at most that of the first one if there is none."""
    last = 0
    for extent, stride in zip(array.shape, array.strides, strict=True):
        last += (extent - 1) * stride
    return array.pointer + (last + 1) * (TYPES[array.dtype].bits >> 3)


def _same(one: ArrayView, other: ArrayView) -> bool:
    return one[:2] == other[:2] and _steps(one) == _steps(other) and TYPES[one.dtype].bits == TYPES[other.dtype].bits


def _steps(array: ArrayView) -> list[int]:
    return [stride for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1]


def shares(one: ArrayView, other: ArrayView) -> bool:
    """Whether two arrays have a byte in common, decided exactly within MOST_STEPS; after so many they count as disjoint."""
    import numpy as np

    if 0 in one.shape or 0 in other.shape:
        return False
    try:
        return bool(np.shares_memory(_bytes(one), _bytes(other), max_work=MOST_STEPS))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


class _Interface:
    """Memory that NumPy compares and never touches."""

    def __init__(self, array: ArrayView) -> None:
        size = TYPES[array.dtype].bits >> 3
        kept = [(extent, stride * size) for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1 and stride]
        self.__array_interface__ = {"version": 3, "typestr": f"|V{size}", "data": (array.pointer, True),
                                    "shape": tuple(extent for extent, _ in kept), "strides": tuple(stride for _, stride in kept)}


def _bytes(array: ArrayView) -> object:
    import numpy as np

    return np.asarray(_Interface(array))


__all__ = ["MOST_STEPS", "Spans", "refuse_overlap", "refuse_shared_elements", "shares"]
