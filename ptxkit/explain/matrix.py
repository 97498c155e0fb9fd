"""wgmma matrix descriptors taken apart, and put together again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MODES = {0: 0, 1: 128, 2: 64, 3: 32}
"""Bytes of the swizzle's span by the two highest bits; 0 is no swizzle."""
FIELDS = ((0, 14, "start address"), (16, 14, "leading byte offset"), (32, 14, "stride byte offset"), (49, 3, "base offset"),
          (62, 2, "swizzle"))
"""First bit, bits, name. All other bits are zero."""
USED = sum(((1 << bits) - 1) << first for first, bits, _ in FIELDS)

Major = Literal["k", "mn"]
READ: dict[Major, str] = {"k": "K-major", "mn": "MN-major (16-bit types)"}


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """The fields in bytes (`base_offset` as it is encoded). `swizzle` is the span in bytes, 0 for none; `other` bits should be zero."""

    address: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int
    other: int = 0

    @property
    def bits(self) -> int:
        """The 64 bits."""
        mode = next(code for code, span in MODES.items() if span == self.swizzle)
        return (self.address >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.base_offset << 49 | mode << 62) | self.other

    def _repr_html_(self) -> str:
        from ..html.descriptors import matrix

        notes = [(words, *(f"{size:,} bytes {does}" for size, does in zip((self.leading, self.stride), meaning(self, major), strict=True)))
                 for major, words in READ.items()]
        return matrix(self.bits, rows(self), notes, remarks(self))

    @property
    def span(self) -> int:
        """Bytes of contiguous elements in one line: the swizzle's width, 16 without."""
        return self.swizzle or 16


def decode(bits: int) -> MatrixDescriptor:
    """The fields of 64 bits."""
    values = [bits >> first & (1 << width) - 1 for first, width, _ in FIELDS]
    return MatrixDescriptor(values[0] << 4, values[1] << 4, values[2] << 4, values[3], MODES[values[4]], bits & ~USED)


def meaning(descriptor: MatrixDescriptor, major: Major) -> tuple[str, str]:
    """What the leading and the stride offset step over in a layout of that major."""
    if major == "k":
        leading = "to the next 16 bytes along K" if not descriptor.swizzle else "not used"
        return leading, "to the next 8 rows of M or N"
    if descriptor.swizzle:
        return f"to the next {descriptor.swizzle} bytes along M or N", "to the next 8 of K"
    return "to the next 8 of K", "to the next 16 bytes along M or N"


def remarks(descriptor: MatrixDescriptor) -> tuple[str, ...]:
    """What is wrong with the bits, or unusual."""
    found = []
    if descriptor.other:
        places = [str(bit) for bit in range(64) if descriptor.other >> bit & 1]
        found.append(f"bit {', '.join(places)} should be zero: an address was perhaps not masked with 0x3FFFF before it was shifted by 4")
    atom = 8 * descriptor.swizzle
    if descriptor.swizzle:
        if not descriptor.base_offset and descriptor.address % atom >= 128:
            found.append(f"the address is {descriptor.address % atom} bytes behind a multiple of {atom} (8 lines of {descriptor.swizzle} "
                         f"bytes), and the base offset is 0: right only if the pattern starts at {descriptor.address // atom * atom:#x}")
        if descriptor.stride % atom:
            found.append(f"a stride of {descriptor.stride} bytes is not a multiple of {atom}: the pattern would start anew inside "
                         "a tile")
    elif descriptor.base_offset:
        found.append("the base offset has no meaning without a swizzle")
    if not descriptor.stride:
        found.append("a stride of 0: every 8 rows (K-major) read the same memory")
    return tuple(found)


def rows(descriptor: MatrixDescriptor) -> list[tuple[int, int, str, int, str]]:
    """Each field: its first bit, its bits, its name, the number in them, and what that means."""
    values = (f"{descriptor.address:#x} = {descriptor.address:,} bytes into the shared window", f"{descriptor.leading:,} bytes",
              f"{descriptor.stride:,} bytes", f"{descriptor.base_offset}", f"{descriptor.swizzle} bytes" if descriptor.swizzle else "none")
    return [(first, width, name, descriptor.bits >> first & (1 << width) - 1, value)
            for (first, width, name), value in zip(FIELDS, values, strict=True)]


def text(bits: int) -> str:
    """The descriptor as a page of text."""
    made = decode(bits)
    lines = [f"matrix descriptor {bits:#018x}", ""]
    for first, width, name, field, value in rows(made):
        lines.append(f"  bits {first:>2}-{first + width - 1:<2}  {name:<20}{field:#6x}  {value}")
    for major, letters in READ.items():
        leading, stride = meaning(made, major)
        lines += ["", f"read as {letters}", f"  leading  {made.leading:>6,} bytes  {leading}",
                  f"  stride   {made.stride:>6,} bytes  {stride}"]
    lines += ["", "the major is not in the descriptor: wgmma's imm-trans says it (1 is MN-major); 8-bit types and tf32 are K-major"]
    lines += [f"look out: {said}" for said in remarks(made)]
    return "\n".join(lines) + "\n"
