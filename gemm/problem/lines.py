"""How arrays lie in memory: the lines of an operand or a result, and by which copies and stores a kernel can reach them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptxkit.errors import LaunchError
from ptxkit.layout import Major
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.overlap import refuse_shared_elements
from ptxkit.types import TYPES

from ..config.parts import AsyncCopies, ElementCopies, OperandCopies, ShiftedCopies, TensorCopies

UNIT = 16                   # bytes: tensor copies need lines, and batches, that begin at multiples of it
ALIGNED = 128               # bytes, of which lines of a copy of an operand begin at multiples
MOST_STRIDE = 1 << 32       # elements from line to line


@dataclass(frozen=True, slots=True)
class Lines:
    """An array as a tensor map sees it: extents contiguous first, byte strides of the others."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """How an operand is read: the major of its tiles, its lines for a tensor map, the widest `copies` that it allows, and its strides in
    elements from line to line of a tile, along a line, and from batch to batch."""

    major: Major
    lines: Lines
    copies: OperandCopies
    strides: tuple[int, int, int]


NO_OPERAND = Operand("k", Lines((), ()), TensorCopies(), (0, 0, 0))


def operand(name: str, array: ArrayView, *, rows_are_mn: bool) -> Operand:
    """How an operand is read, from its address and its strides. Where an extent of 1 leaves a choice, the widest copies decide."""
    (rows, columns), (row_stride, column_stride) = array.shape[-2:], array.strides[-2:]
    check_forwards(name, array)
    size = TYPES[array.dtype].bits // 8
    choices = []
    if column_stride == 1 or columns == 1:
        choices.append((columns, rows, row_stride, rows_are_mn))
    if row_stride == 1 or rows == 1:
        choices.append((rows, columns, column_stride, not rows_are_mn))
    found = [_along(array, size, *choice) for choice in choices if choice[3] or size == 2]
    best = max(found, key=lambda one: _width(one.copies, size)) if found else _elsewhere(array, size, rows_are_mn)
    if not isinstance(best.copies, TensorCopies) and max(best.strides[:2]) >= MOST_STRIDE:
        raise LaunchError(f"{name} has strides {array.strides}: lines that are not multiples of {UNIT} bytes apart must be less than 2^32 "
                          "elements apart; pass a contiguous copy")
    return best


def _along(array: ArrayView, size: int, inner: int, outer: int, stride: int, is_k: bool) -> Operand:
    """An operand whose lines of `inner` elements are contiguous."""
    batches, apart = (array.shape[0], array.strides[0]) if len(array.shape) == 3 else (1, 0)
    alone = -(-inner * size // UNIT) * UNIT // size
    stride, apart = stride if outer > 1 else alone, apart if batches > 1 else 0
    unit = math.gcd(UNIT, array.pointer, stride * size, apart * size)
    copies: OperandCopies = TensorCopies()
    if unit < UNIT:
        unit = math.gcd(unit, inner * size)
        copies = AsyncCopies(unit) if unit >= 4 else ElementCopies()  # type: ignore[arg-type]
    dims: tuple[int, ...] = (inner, outer)
    strides: tuple[int, ...] = (size * stride,)
    if len(array.shape) == 3:
        dims, strides = (*dims, batches), (*strides, size * (apart if batches > 1 else alone * outer))
    return Operand("k" if is_k else "mn", Lines(dims, strides), copies, (stride, 1, apart))


def _elsewhere(array: ArrayView, size: int, rows_are_mn: bool) -> Operand:
    """An operand whose lines are contiguous nowhere, or along M or N though wgmma does not transpose its type: element by element."""
    (rows, columns), (row_stride, column_stride) = array.shape[-2:], array.strides[-2:]
    apart = array.strides[0] if len(array.shape) == 3 and array.shape[0] > 1 else 0
    mn, k = ((rows, row_stride), (columns, column_stride))[::1 if rows_are_mn else -1]
    dims, strides = (k[0], mn[0]), (size * max(mn[1], k[1]),)
    if len(array.shape) == 3:
        dims, strides = (*dims, array.shape[0]), (*strides, size * apart)  # type: ignore[assignment]
    return Operand("k", Lines(dims, strides), ElementCopies(across=True), (mn[1], k[1], apart))


def aligned(one: Operand, size: int) -> Operand:
    """The operand after a copy to lines that begin at multiples of 128 bytes, so that no box of a tensor copy straddles lines of the L2."""
    inner, outer, *batches = one.lines.dims
    pitch = -(-inner * size // ALIGNED) * ALIGNED
    apart = pitch * outer if one.strides[2] else 0
    strides = (pitch, *(apart for _ in batches))
    return Operand(one.major, Lines(one.lines.dims, strides), TensorCopies(), (pitch // size, 1, apart // size))


def copied_batches(one: Operand) -> int:
    """The batches of an operand that a copy of it has: one where all have the same."""
    return one.lines.dims[2] if len(one.lines.dims) > 2 and one.strides[2] else 1


def copied_bytes(one: Operand, size: int) -> int:
    """The bytes of such a copy."""
    return aligned(one, size).lines.strides[0] * one.lines.dims[1] * copied_batches(one)


def _width(copies: OperandCopies, size: int) -> int:
    if isinstance(copies, TensorCopies):
        return 2 * UNIT
    return copies.bytes if isinstance(copies, AsyncCopies) else size


def allows(best: OperandCopies, given: OperandCopies) -> bool:
    """Whether an operand that allows the copies `best` can be read by `given`."""
    if isinstance(given, TensorCopies):
        return isinstance(best, TensorCopies)
    if isinstance(given, ShiftedCopies):
        return not (isinstance(best, ElementCopies) and best.across)
    if isinstance(given, ElementCopies):
        return given.across or not (isinstance(best, ElementCopies) and best.across)
    return isinstance(best, AsyncCopies) and given.bytes <= best.bytes


def check_forwards(name: str, array: ArrayView) -> None:
    """Raise LaunchError if lines or batches go backwards in memory, as a flipped array's do."""
    if any(stride < 0 and extent > 1 for stride, extent in zip(array.strides, array.shape, strict=True)):
        raise LaunchError(f"{name} has strides {array.strides}: gemm takes arrays whose strides are not negative; pass a copy of a flipped "
                          "array")


def settled_strides(array: ArrayView) -> tuple[int, ...]:
    """The strides of an array. An extent of 1 gets the stride 0, and an array without elements the strides of a contiguous one: what an
    array has in these places means nothing, and differs between NumPy and torch."""
    strides = contiguous_strides(array.shape) if 0 in array.shape else array.strides
    return tuple(0 if extent == 1 else stride for extent, stride in zip(array.shape, strides, strict=True))


def check_rows(name: str, array: ArrayView) -> None:
    """Raise LaunchError unless an array is row-major: D, or what is added to it. Rows and batches of what is only read may share memory."""
    check_forwards(name, array)
    check_columns(name, array)
    if array.shape[-2] > 1 and array.strides[-2] >= MOST_STRIDE:
        raise LaunchError(f"the rows of {name} are {array.strides[-2]} elements apart: it must be less than 2^32; pass a copy whose rows "
                          "are nearer")


def check_columns(name: str, array: ArrayView) -> None:
    """Raise LaunchError unless the last extent of a row-major array is contiguous."""
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        wanted = ("rows or columns must be contiguous; pass a contiguous one" if name == "out" else
                  f"rows must be contiguous; pass {name}.contiguous(), a row-major copy")
        raise LaunchError(f"{name} has strides {array.strides}: its {wanted}")


def result(name: str, out: ArrayView) -> Lines:
    """A row-major result. Batches and rows may alternate in memory, as heads and tokens of [B, S, H, D] do."""
    (m, n), row_stride = out.shape[-2:], out.strides[-2]
    size = TYPES[out.dtype].bits // 8
    check_rows(name, out)
    refuse_shared_elements(name, out)
    dims: tuple[int, ...] = (n, m)
    strides: tuple[int, ...] = (size * (row_stride if m > 1 else n),)
    if len(out.shape) == 3:
        dims, strides = (*dims, out.shape[0]), (*strides, size * (out.strides[0] if out.shape[0] > 1 else n * m))
    return Lines(dims, strides)


def _apart(array: ArrayView) -> int:
    """The largest number of bytes that divides the address of a result and the distances of its rows and batches."""
    size = TYPES[array.dtype].bits // 8
    outer = zip(array.shape[:-1], array.strides[:-1], strict=True)
    return math.gcd(array.pointer, *(stride * size for extent, stride in outer if extent > 1))


def mapped(array: ArrayView) -> bool:
    """Whether tensor copies can store the array. They write whole units, also where the last one of a row is not all inside."""
    return not math.gcd(_apart(array), array.shape[-1] * TYPES[array.dtype].bits // 8) % UNIT


def pairwise(array: ArrayView) -> bool:
    """Whether two neighbours can be read or written at a time."""
    return not _apart(array) % (TYPES[array.dtype].bits // 4)


def row_strides(array: ArrayView | None) -> tuple[int, int]:
    """Elements from row to row and from batch to batch."""
    if array is None:
        return 0, 0
    return array.strides[-2], (array.strides[0] if len(array.shape) == 3 else 0)


__all__ = ["NO_OPERAND", "Lines", "Operand", "aligned", "allows", "check_columns", "check_forwards", "check_rows", "copied_batches",
           "copied_bytes", "mapped", "operand", "pairwise", "result", "row_strides", "settled_strides"]
