"""wgmma matrix descriptors and tensor-map fields, as the hardware encodes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar import tree
from ..types import ScalarType
from .reg import Reg, Value

if TYPE_CHECKING:
    from ..layout import Layout

_WGMMA_SWIZZLE = {128: 1, 64: 2, 32: 3, 16: 0}


class Descriptor(Value):
    """A 64-bit wgmma matrix descriptor in a register. It is not a `u64`: only wgmma takes it.

    `layout` is the tile's layout. `rows` and `columns` are the tile's extents from the descriptor's row and depth to its end (None: the row
    is a run-time value). `within` is the offset in the span, in bytes.
    """

    __slots__ = ("columns", "layout", "reg", "rows", "within")

    def __init__(self, reg: Reg[Any], layout: Layout, rows: int | None, columns: int, within: int) -> None:
        self.reg = reg
        self.layout = layout
        self.rows = rows
        self.columns = columns
        self.within = within

    def operand(self) -> tree.Operand:
        return self.reg.operand()

    def _repr_html_(self) -> str:
        from ..explain.matrix import decode

        return decode(template(self.layout))._repr_html_()

    @property
    def transposed(self) -> bool:
        """Whether the operand is MN-major: wgmma's imm-trans."""
        return self.layout.major == "mn"

    def problem(self, rows: int, type: ScalarType, bytes: int = 32) -> str | None:
        """The reason if an instruction cannot read `rows` rows of `bytes`, with elements of `type`, from here; else None."""
        layout = self.layout
        depth = 8 * bytes // type.bits
        if layout.type.__name__ not in (type.__name__, f"b{type.bits}", {"tf32": "f32"}.get(type.__name__)):
            return f"reads {type.__name__}, the tile has {layout.type.__name__}"
        if (self.rows is not None and rows > self.rows) or depth > self.columns:
            have = "any" if self.rows is None else str(max(self.rows, 0))
            return f"reads {rows} rows x {depth} of depth, the tile has {have} x {max(self.columns, 0)} from there on"
        inner = (depth if layout.major == "k" else rows) * layout.element_bytes
        if layout.swizzle > 16 and (self.within or layout.major == "k") and self.within + inner > layout.span_bytes:
            return (f"reads {inner} contiguous bytes from byte {self.within} of a {layout.span_bytes}-byte span, and would go on in the "
                    f"wrong one: start at a multiple of {layout.span if layout.major == 'mn' else depth} elements")
        return None


def template(layout: Layout) -> int:
    """The descriptor's bits for a tile at address 0: the leading and the stride byte offset, and the swizzle mode.

    K-major with swizzle: the stride offset leads to the next 8 rows, and the leading offset is ignored (1). MN-major with swizzle: the
    leading offset leads to the next span along MN, the stride offset to the next 8 of K. Without swizzle the two offsets have each other's
    meaning in K-major and MN-major tiles.
    """
    if layout.swizzle not in _WGMMA_SWIZZLE:
        raise TraceError(
            f"a tile of plain {layout.inner_bytes}-byte rows has no wgmma descriptor: give it swizzle=128, 64, 32 or 16 (no swizzle)"
        )
    if layout.major == "mn" and layout.type.bits != 16:
        raise TraceError(f"wgmma reads MN-major operands of 16-bit types only, not {layout.type.__name__}; store the tile K-major")
    lines = 8 * layout.span_bytes
    if layout.swizzle == 16:
        leading, stride = (layout.span_stride, lines) if layout.major == "k" else (lines, layout.span_stride)
    elif layout.major == "k":
        leading, stride = 16, lines
    else:
        leading, stride = layout.span_stride, lines
    for name, value in (("leading", leading), ("stride", stride)):
        if value >> 4 >= 1 << 14:
            raise TraceError(f"the descriptor's {name} byte offset {value} does not fit its 14 bits of 16 bytes")
    return leading >> 4 << 16 | stride >> 4 << 32 | _WGMMA_SWIZZLE[layout.swizzle] << 62


def step(layout: Layout, mn: int, k: int) -> int:
    """The bytes from the tile's start to row `mn` and depth `k`, without swizzle.

    `mn` is a multiple of 8 (K-major) or of a span (MN-major). `k` is a multiple of 16 bytes (K-major) or of 8 elements (MN-major).
    """
    inner, outer = (k, mn) if layout.major == "k" else (mn, k)
    span, within = divmod(inner, layout.span)
    if outer % 8 or (within * layout.element_bytes) % 16:
        raise TraceError(f"no descriptor starts at row {mn}, depth {k} of a {layout.major}-major tile of {layout.span_bytes}-byte spans")
    return span * layout.span_stride + outer * layout.span_bytes + within * layout.element_bytes


@dataclass(frozen=True, slots=True)
class TensorMapFields:
    """The fields of a tiled tensor map. Extents count elements, the contiguous dimension first. `strides` are the bytes of dimensions 1 to
    rank - 1.

    `swizzle` and `interleave` are in bytes (0: none). `fill` is "zeros" or "nan". `l2_promotion` is the number of bytes that the L2 fetches
    at once.
    """

    type: ScalarType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    fill: str = "zeros"
    l2_promotion: int = 128

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))

    def problem(self, address: int = 0) -> str | None:
        """The reason if the hardware cannot encode this map, else None."""
        rank = len(self.dims)
        size = self.type.bits // 8
        if not 1 <= rank <= 5 or len(self.box) != rank or len(self.strides) != rank - 1 or len(self.element_strides) != rank:
            return ("a tensor map has 1 to 5 dimensions with as many box extents and one stride less, "
                    f"not dims {self.dims}, box {self.box}, strides {self.strides}")
        if address % (32 if self.interleave == 32 else 16):
            return f"the base address {address:#x} is not a multiple of {32 if self.interleave == 32 else 16} bytes"
        for axis, extent in enumerate(self.dims):
            if not 1 <= extent <= 1 << 32:
                return f"extent {extent} of dimension {axis} is not between 1 and 2^32"
        for axis, stride in enumerate(self.strides, 1):
            if stride % 16 or not 0 <= stride < 1 << 40:
                return (f"the stride of dimension {axis} is {stride} bytes: it must be a multiple of 16 below 2^40 "
                        "(pad the rows to 16 bytes)")
        for axis, extent in enumerate(self.box):
            if not 1 <= extent <= 256:
                return f"box extent {extent} of dimension {axis} is not between 1 and 256: load the tile in several boxes"
        if any(not 1 <= s <= 8 for s in self.element_strides):
            return f"element strides {self.element_strides} are not between 1 and 8"
        if self.fill == "nan" and self.type.__name__ not in ("f16", "bf16", "f32", "tf32", "f64"):
            return f"elements of {self.type.__name__} cannot be filled with NaN: the fill is for floating-point types of 16 bits and more"
        inner = self.box[0] * size
        if inner % 16:
            return f"the box is {inner} bytes wide: the contiguous extent must be a multiple of 16 bytes"
        if self.swizzle and inner > self.swizzle:
            return (f"the box is {inner} bytes wide, more than the {self.swizzle}-byte swizzle span: load it in "
                    f"{-(-inner // self.swizzle)} boxes or widen the swizzle")
        return None

    def _repr_html_(self) -> str:
        from ..html.descriptors import tensormap

        return tensormap(self, self.problem())

    def with_box(self, *box: int) -> TensorMapFields:
        return replace(self, box=box)
