"""The 128 bytes of a tensor map as Hopper has them, as far as CuTe DSL's host code writes them.

The encoding is not published. It was read off from maps of ten element types, five ranks and four swizzles that CuTe DSL 4.8 encodes
itself (`tests/foreign/test_cute.py` does so again). Bits that no such map sets are refused.

| word of 64 bits | bits | what |
|---|---|---|
| 0 | all | address |
| 1 | 4-6, 7-10, 13-14, 16 | rank - 1, element type as `tensormap.replace` numbers it, swizzle, f32 rounded to tf32 |
| 1 | 32-63; words 2, 3 | strides / 16 of the dimensions 1 to 4, 32 bits each; word 3 from bit 32 on has four more bits of each |
| 4, 5, 6 | 32 each | extents - 1 |
| 6 | 56-63; word 7 | box - 1, 8 bits each |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..sim.tensormap import TYPES

BYTES = 128
_KNOWN = 0x2 | 0x70 | 0x780 | 0x6000 | 1 << 16 | 3 << 18 | 1 << 21
"""Bits of word 1 that are known. Of them the L2 promotion and whether the array is small do not matter to what is copied."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor map; the contiguous dimension is first, strides count bytes."""

    address: int
    type: str
    swizzle: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


def decoded(data: bytes) -> Encoded | None:
    """The map that 128 bytes are; None where they have bits that are not known."""
    words = struct.unpack("<8Q", data[:64])
    low = words[1] & 0xFFFFFFFF
    rank, kind = (low >> 4 & 7) + 1, low >> 7 & 15
    if low & ~_KNOWN or not low & 2 or rank > 5 or kind >= len(TYPES) or words[6] >> 32 & 0xFFFFFF:
        return None
    high = words[3] >> 32
    steps = (words[1] >> 32, words[2] & 0xFFFFFFFF, words[2] >> 32, words[3] & 0xFFFFFFFF)
    strides = tuple((step | (high >> 4 * axis & 15) << 32) * 16 for axis, step in enumerate(steps))
    dims = (*(word >> shift & 0xFFFFFFFF for word in words[4:6] for shift in (0, 32)), words[6] & 0xFFFFFFFF)
    box = (words[6] >> 56, *(words[7] >> 8 * axis & 255 for axis in range(4)))
    type_ = "tf32" if low >> 16 & 1 else TYPES[kind].partition(".")[0]
    return Encoded(words[0], type_, (0, 32, 64, 128)[low >> 13 & 3], tuple(dim + 1 for dim in dims[:rank]), strides[:rank - 1],
                   tuple(extent + 1 for extent in box[:rank]))
