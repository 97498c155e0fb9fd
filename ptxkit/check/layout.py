"""How tiles lie in shared memory: what wgmma descriptors say against the tensor maps that fill the tiles, and against each other."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..grammar.errors import Finding
from .analysis import Analysis
from .memory import Matrix
from .names import names_in
from .program import Site

RULES = {
    "layout": "a wgmma descriptor that does not fit the tensor map that fills its tile, or the other products of that tile",
    "descriptor-start": "a wgmma descriptor that starts inside the swizzle pattern, or in a variable that is aligned to less than it",
}

SPANS = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a swizzle span by the descriptor's mode; 16 is no swizzle."""
LINES = 8
"""Lines of one span before the swizzle pattern starts again."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """One shared operand of a product. `low` is as `Memory.low` has it, `stride` the descriptor's stride byte offset, `rows` the
    extent along M or N.
    """

    site: Site
    name: str
    matrix: Matrix
    low: int
    span: int
    stride: int
    based: bool
    transposed: bool
    rows: int

    @property
    def pattern(self) -> int:
        return LINES * self.span

    def __str__(self) -> str:
        return f"{'no' if self.span == 16 else f'{self.span}-byte'} swizzle and a stride of {self.stride} bytes"


def findings(analysis: Analysis) -> Iterator[Finding]:
    products = [operand for site in analysis.sites if "wgmma.issue" in site.sync for operand in _operands(analysis, site)]
    starts: set[object] = set()
    for operand in products:
        yield from _start(analysis, operand, starts)
    said: set[object] = set()
    for operand in products:
        yield from _filled(analysis, operand, said)
    yield from _alike(analysis, products, said)


def _operands(analysis: Analysis, site: Site) -> Iterator[_Operand]:
    shape = re.search(r"\.m64n(\d+)k", site.opcode)
    for name, transposing in (("a_desc", "imm_trans_a"), ("b_desc", "imm_trans_b")):
        matrix = analysis.memory.matrix(site, name) if site.value(name) is not None else None
        if matrix is not None and matrix.bits is not None and shape is not None:
            bits = matrix.bits
            transposed = site.value(transposing) is not None and analysis.constant(site, transposing) == 1
            yield _Operand(site, name[0], matrix, analysis.memory.low(site, matrix.address), SPANS[bits >> 62 & 3],
                           (bits >> 32 & 0x3FFF) << 4, bool(bits >> 49 & 7), transposed, 64 if name == "a_desc" else int(shape[1]))


# ------------------------------------------------------------------------------------------------ one descriptor


def _start(analysis: Analysis, operand: _Operand, said: set[object]) -> Iterator[Finding]:
    """With base offset 0 the pattern starts where the tile does: a multiple of 8 spans; steps of K stay in the first line."""
    address = operand.matrix.address
    if operand.span == 16 or operand.based or address.symbol is None:
        return
    variable = analysis.routine.variables.get(address.symbol)
    aligned, external = analysis.aligned(address.symbol), variable is not None and variable.linkage == "extern"
    if aligned % operand.pattern and not external and address.symbol not in said:
        said.add(address.symbol)
        yield analysis.report(
            "descriptor-start", operand.site, f"operand {operand.name} of `{operand.site.name}` is in `{address.symbol}`, which is aligned "
            f"to {aligned} bytes; the pattern of a {operand.span}-byte swizzle starts at multiples of {operand.pattern}",
            f".align {operand.pattern}, or the descriptor's base offset", kind="advice")
    stepped = all(factor % operand.pattern == 0 for _, factor in address.terms)
    inside = address.offset % operand.pattern
    if stepped and not aligned % operand.pattern and inside >= operand.span and (operand.site.block, operand.name) not in said:
        said.add((operand.site.block, operand.name))
        yield analysis.report(
            "descriptor-start", operand.site, f"the descriptor of operand {operand.name} of `{operand.site.name}` starts {inside} bytes "
            f"into the {operand.pattern} bytes of the pattern of its {operand.span}-byte swizzle, with base offset 0",
            f"start at a multiple of {operand.pattern} bytes, plus a step along K inside the {operand.span} bytes of a line", kind="advice")


# ------------------------------------------------------------------------------------------------ against the tensor map


def _filled(analysis: Analysis, operand: _Operand, said: set[object]) -> Iterator[Finding]:
    """The copies of a trace have known boxes and swizzles: those that fill what the operand reads, if nothing else writes that tile."""
    traced, address = analysis.traced, operand.matrix.address
    if traced is None or address.symbol != traced.shared.symbol:
        return
    tiles = [allocation.offset for allocation in traced.shared.allocations]
    found = []
    for site in analysis.sites:
        for access in analysis.memory.of(site):
            if access.symbol != address.symbol or access.mode == "r" or bisect_right(tiles, access.low) != bisect_right(tiles, operand.low):
                continue
            tensormap = analysis.tensormap(site)
            record = traced.copies.records.get(tensormap.symbol or "") if tensormap is not None else None
            if record is None:
                return
            if access.low <= operand.low < access.low + (analysis.bytes(site) or 0):
                found.append((site, record))
    if not found or (operand.site.block, operand.name) in said:
        return
    site, record = found[0]
    if all((record.swizzle or 16) != operand.span for _, record in found):
        said.add((operand.site.block, operand.name))
        yield analysis.report(
            "layout", operand.site, f"the descriptor of operand {operand.name} of `{operand.site.name}` says {operand}, and the copy at "
            f"{site.place} fills its tile through a tensor map with {record}",
            "one layout for the tensor map and the descriptor: .desc() of the tile that the copy names", kind="advice")
    elif (record.swizzle and record.box[0] * record.type.bits // 8 == record.swizzle and operand.stride != operand.pattern
          and (operand.rows > LINES or operand.transposed)):
        said.add((operand.site.block, operand.name))
        yield analysis.report(
            "layout", operand.site, f"the descriptor of operand {operand.name} of `{operand.site.name}` says {operand}; 8 lines of the box "
            f"that the copy at {site.place} fills ({record}) take {operand.pattern}",
            f"a stride byte offset of {operand.pattern}", kind="advice")


# ------------------------------------------------------------------------------------------------ products of one accumulator


def _alike(analysis: Analysis, products: list[_Operand], said: set[object]) -> Iterator[Finding]:
    """Products of one block that add to the same accumulator walk along K: through one tile, with one layout."""
    chains: dict[object, list[_Operand]] = {}
    for operand in products:
        address = operand.matrix.address
        accumulator = tuple(names_in(operand.site.value("d")))
        chains.setdefault((operand.site.block, operand.name, accumulator, address.symbol, address.terms), []).append(operand)
    for chain in chains.values():
        odd = _odd(chain)
        key = (chain[0].site.block, chain[0].name)
        if odd is None or key in said:
            continue
        said.add(key)
        one, other, why = odd
        yield analysis.report(
            "layout", one.site, f"operand {one.name} of `{one.site.name}` and that of {other.site.place} belong to one accumulator and one "
            f"tile, and {why}", "one layout for all steps along K of a tile", kind="advice")


def _odd(chain: list[_Operand]) -> tuple[_Operand, _Operand, str] | None:
    """The product that does not fit the others of its chain, one of these, and what is wrong."""
    near = [operand for operand in chain if abs(operand.low - chain[0].low) < operand.rows * operand.span]
    said = [(operand.span, operand.stride, operand.transposed) for operand in near]
    usual = max(said, key=said.count)
    for operand, layout in zip(near, said, strict=True):
        if layout != usual and said.count(usual) > 1:
            other = near[said.index(usual)]
            if operand.transposed == other.transposed or operand.span != other.span:
                return operand, other, f"this one says {operand}, the other {other}"
            return operand, other, "only one of them is transposed"
    first = near[0]
    for operand in near[1:]:
        step = abs(operand.low - first.low)
        if operand.span > 16 and operand.transposed and step % operand.pattern:
            return operand, first, f"it is MN-major: {step} bytes further is a step along M or N, not along K"
        if operand.span > 16 and not operand.transposed and operand.span <= step:
            return operand, first, f"it is K-major: {step} bytes further are other rows of M or N, not a step along K"
    return None
