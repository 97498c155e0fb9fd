"""TensorMap, the 128-byte description of an array for tensor copies: as a kernel parameter and as a host object."""

from __future__ import annotations

from typing import Any

from ..errors import TraceError
from ..grammar import tree
from ..types import TYPES, ScalarType
from .descriptor import TensorMapFields
from .reg import Reg, Value


class TensorMap:
    """An explicit tensor map over `array`. `box` has the axis order of the array's shape, slowest first.

    In a kernel's signature it annotates a tensor-map parameter. A launch may pass a plain array instead: the map is then encoded from the
    tile that the kernel copies through it. `swizzle` and `interleave` are in bytes (0: none). `fill` is "zeros" or "nan".

    `shape` and `strides` (in elements) replace the array's own, and the map then begins `offset` bytes after the array's start (negative:
    before it). Copies must touch only memory of the array; other parts of the map may lie outside of it.
    """

    def __init__(self, array: Any, *, box: tuple[int, ...], swizzle: int = 0, interleave: int = 0,
                 element_strides: tuple[int, ...] | None = None, fill: str = "zeros", dtype: ScalarType | str | None = None,
                 shape: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, offset: int = 0) -> None:
        if swizzle not in (0, 32, 64, 128):
            raise TraceError(f"swizzle is 0, 32, 64 or 128 bytes, not {swizzle}")
        if interleave not in (0, 16, 32):
            raise TraceError(f"interleave is 0, 16 or 32 bytes, not {interleave}")
        if fill not in ("zeros", "nan"):
            raise TraceError(f"fill is 'zeros' or 'nan', not {fill!r}")
        self.array = array
        self.box = tuple(box)
        self.swizzle = swizzle
        self.interleave = interleave
        self.element_strides = element_strides
        self.fill = fill
        if (shape is None) != (strides is None) or (shape and strides and len(shape) != len(strides)):
            raise TraceError(f"shape {shape} and strides {strides}: another description than the array's own has both, of one length")
        self.shape, self.strides, self.offset = shape, strides, offset
        self.dtype = TYPES[dtype] if isinstance(dtype, str) else dtype

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for equal descriptions, whatever the array."""
        return (self.box, self.swizzle, self.interleave, self.element_strides, self.fill, self.dtype, self.shape, self.strides,
                self.offset)

    def fields(self, shape: tuple[int, ...], strides: tuple[int, ...], type: ScalarType) -> TensorMapFields:
        """The fields for an array of this shape and these element strides. Raises TraceError if the hardware cannot encode them."""
        type = self.dtype or type
        shape, strides = self.shape or shape, self.strides or strides
        if len(self.box) != len(shape):
            raise TraceError(f"box {self.box} has {len(self.box)} extents, the array has {len(shape)} dimensions")
        return encodable(TensorMapFields(
            type, tuple(reversed(shape)), tuple(s * type.bits // 8 for s in reversed(strides[:-1])), tuple(reversed(self.box)),
            tuple(reversed(self.element_strides)) if self.element_strides else (), self.swizzle, self.interleave, self.fill))


def encodable(fields: TensorMapFields, address: int = 0, what: str = "this tensor map") -> TensorMapFields:
    """Return `fields`. Raises TraceError if the hardware cannot encode such a map."""
    problem = fields.problem(address)
    if problem:
        raise TraceError(f"{what} cannot be encoded: {problem}")
    return fields


class TensorMapParameter(TensorMap, Value):
    """A tensor-map parameter in a trace: the generic address of the map and, after the first copy, its tile."""

    def __init__(self, name: str, reg: Reg[Any]) -> None:
        self.name = name
        self.reg = reg

    def operand(self) -> tree.Address:
        return tree.Address(self.reg.operand())

    def __repr__(self) -> str:
        return f"TensorMap({self.name})"
