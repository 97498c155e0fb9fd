"""wgmma matrix descriptors and tensor maps: every field by its name."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from .layouts import colour
from .parts import code, framed, said, table, title

if TYPE_CHECKING:
    from ..dsl.descriptor import TensorMapFields

Field = tuple[int, int, str, int, str]
"""First bit, bits, name, number, and what that means."""
WIDTH, HEIGHT = 10, 22


def matrix(bits: int, fields: Sequence[Field], notes: Sequence[Sequence[str]], remarks: Sequence[str]) -> str:
    """64 bits with their fields. `notes` say what leading and stride offset are for an operand of either major."""
    rows = [(f"{first}-{first + width - 1}", name, f"{number:#x}", words) for first, width, name, number, words in fields]
    return framed(
        title(f"matrix descriptor {bits:#018x}"), _bits(bits, fields), table(("bits", "field", "encoded", "value"), rows, numbers=(0, 2)),
        table(("read as", "leading offset", "stride offset"), notes),
        said("The major is not in the descriptor: wgmma's imm-trans says it."),
        *(f'<div class="f review"><p><b>look out</b>: {code(remark)}</p></div>' for remark in remarks))


def _bits(bits: int, fields: Sequence[Field]) -> str:
    """The bits in a row, the highest at the left, those of a field in one colour."""
    owner = {bit: number for number, (first, width, *_) in enumerate(fields) for bit in range(first, first + width)}
    parts = [f'<svg width="{64 * WIDTH}" height="{HEIGHT + 14}" viewBox="0 0 {64 * WIDTH} {HEIGHT + 14}" role="img" '
             'aria-label="the 64 bits">']
    for bit in range(64):
        x, name = (63 - bit) * WIDTH, fields[owner[bit]][2] if bit in owner else "no field"
        fill = colour(owner[bit]) if bit in owner else "none"
        parts.append(f'<g><title>{escape(f"bit {bit}: {name}")}</title><rect x="{x}" y="0" width="{WIDTH - 1}" height="{HEIGHT}" '
                     f'fill="{fill}" stroke="currentColor" stroke-opacity=".25" stroke-width=".5"/><text x="{x + WIDTH / 2 - .5}" y="15" '
                     f'text-anchor="middle">{bits >> bit & 1}</text></g>')
        if bit % 16 == 0 or bit == 63:
            parts.append(f'<text x="{x + WIDTH / 2}" y="{HEIGHT + 11}" text-anchor="middle" fill-opacity=".7">{bit}</text>')
    return "".join([*parts, "</svg>"])


def tensormap(fields: TensorMapFields, problem: str | None) -> str:
    """The fields of a tensor map, extents in PTX's order: the contiguous dimension first."""
    rows = [("type", fields.type.__name__), ("dims", _listed(fields.dims, "elements")), ("strides", _listed(fields.strides, "bytes")),
            ("box", _listed(fields.box, "elements")), ("element_strides", _listed(fields.element_strides, "elements")),
            ("swizzle", f"{fields.swizzle} bytes" if fields.swizzle else "0 (none)"),
            ("interleave", f"{fields.interleave} bytes" if fields.interleave else "0 (none)"), ("fill", fields.fill),
            ("l2_promotion", f"{fields.l2_promotion} bytes")]
    wrong = [] if problem is None else [f'<div class="f error"><p><b>the hardware cannot have it</b>: {code(problem)}</p></div>']
    return framed(title("tensor map, the contiguous dimension first"), table(("field", "value"), rows), *wrong)


def _listed(extents: Sequence[int], unit: str) -> str:
    return f"{' x '.join(map(str, extents))} {unit}" if extents else "none"
