"""One layout object per tile. The tensor map's box, the shared-memory allocation and the wgmma descriptor follow from it.

A tile has `rows` (along M or N) x `columns` (along K) elements. "k" major: each row is contiguous. "mn" major: each column is contiguous.
The contiguous extent is cut into spans of the swizzle's width. Memory holds span 0 of all lines, then span 1 of all lines, and so on. Each
box of one span lands there as a whole, and a matrix descriptor walks in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import TraceError
from .types import ScalarType

Major = Literal["k", "mn"]
SWIZZLES = (128, 64, 32, 16, 0)
"""Bytes of a swizzle span. 16 is wgmma's "no swizzle": columns of 16 bytes, one box each. 0 means plain rows, for copies only."""


@dataclass(frozen=True)
class Layout:
    """A tile in shared memory: `rows` along M or N, `columns` along K. `swizzle` is the span in bytes, one of `SWIZZLES`.

    `major` "k": each row is contiguous. "mn": each column is contiguous, so that a tile of V[keys, depth] in memory has `rows` = depth and
    `columns` = keys.
    """

    type: ScalarType
    rows: int
    columns: int
    major: Major = "k"
    swizzle: int = 128

    @classmethod
    def of(cls, type: ScalarType, rows: int, columns: int, *, major: Major = "k", swizzle: int | None = None) -> Layout:
        """The layout with the given swizzle; by default the widest one whose span divides the contiguous extent."""
        inner = (columns if major == "k" else rows) * type.bits // 8
        if swizzle is None:
            swizzle = next((s for s in (128, 64, 32, 16) if inner % s == 0), 0)
        layout = cls(type, rows, columns, major, swizzle)
        layout._validate()
        return layout

    def _validate(self) -> None:
        what = f"a tile of {self.rows}x{self.columns} {self.type.__name__}"
        if self.swizzle not in SWIZZLES:
            raise TraceError(f"{what}: swizzle is one of {', '.join(map(str, SWIZZLES))} bytes, not {self.swizzle}")
        if self.major not in ("k", "mn"):
            raise TraceError(f"{what}: major is 'k' or 'mn', not {self.major!r}")
        if self.rows < 1 or self.columns < 1:
            raise TraceError(f"{what} has no elements")
        if self.inner_bytes % max(self.swizzle, 16):
            span = max(self.swizzle, 16)
            raise TraceError(
                f"{what}: its contiguous extent is {self.inner_bytes} bytes, not a multiple of the {span}-byte span; "
                "take a narrower swizzle or a wider tile"
            )

    @property
    def element_bytes(self) -> int:
        return self.type.bits // 8

    @property
    def inner(self) -> int:
        """Elements along the contiguous direction."""
        return self.columns if self.major == "k" else self.rows

    @property
    def outer(self) -> int:
        """Elements along the strided direction."""
        return self.rows if self.major == "k" else self.columns

    @property
    def inner_bytes(self) -> int:
        return self.inner * self.type.bits // 8

    @property
    def span_bytes(self) -> int:
        """Bytes of one line of a span: the swizzle's width, or the whole line when there is none."""
        return self.swizzle or self.inner_bytes

    @property
    def span(self) -> int:
        """Elements of one line of a span."""
        return self.span_bytes // self.element_bytes

    @property
    def spans(self) -> int:
        """The number of spans in the contiguous extent, and of boxes that fill the tile."""
        return self.inner // self.span

    @property
    def span_stride(self) -> int:
        """Bytes from one span to the next."""
        return self.outer * self.span_bytes

    @property
    def bytes(self) -> int:
        return self.inner_bytes * self.outer

    @property
    def alignment(self) -> int:
        """The alignment in bytes: the swizzle pattern repeats every 8 lines, and a tensor copy needs 128 bytes."""
        return max(128, 8 * self.swizzle)

    @property
    def box(self) -> tuple[int, int]:
        """(contiguous, strided) elements of the box that fills one span."""
        return self.span, self.outer

    def _repr_html_(self) -> str:
        from .html.layouts import layout

        return layout(self)

    def offset(self, row: int, column: int) -> int:
        """The byte offset of an element from the tile's start, with the swizzle. The start is aligned to `alignment`."""
        inner, outer = (column, row) if self.major == "k" else (row, column)
        span, within = divmod(inner, self.span)
        linear = span * self.span_stride + outer * self.span_bytes + within * self.element_bytes
        return swizzled(linear, self.swizzle)


def swizzled(address: int, span_bytes: int) -> int:
    """A byte address with the swizzle: bits from 7 are XORed into bits from 4; 3, 2 or 1 bits for spans of 128, 64 or 32 bytes."""
    mask = max(span_bytes // 16 - 1, 0)
    return address ^ (((address >> 7) & mask) << 4)
