"""Pictures of shared memory: where the swizzle puts the 16-byte chunks of a tile, and what the plan of a kernel holds."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from .parts import framed, said, table, title

if TYPE_CHECKING:
    from ..layout import Layout
    from ..smem import SharedPlan, Tile, TileView

CHUNK = 16
GROUPS = 8
"""Chunks of 16 bytes in 128 bytes, which are 32 banks."""
LINES = 8
"""The period of the swizzle pattern, in lines."""
MOST = 16
"""Chunks of a line that are drawn."""
HUES = (215, 28, 140, 350, 265, 52, 180, 310)
WIDTH, HEIGHT, LEFT, TOP = 42, 18, 74, 34
PLAN = 640


def colour(group: int) -> str:
    """The colour of four banks."""
    return f"hsla({HUES[group]},75%,50%,.42)"


def layout(made: Layout) -> str:
    """A layout with its picture."""
    return framed(*_layout(made))


def tile(made: Tile[Any]) -> str:
    stages = f"{made.stages} stages of {made.stage_bytes:,} bytes" if made.stages > 1 else "one stage"
    return framed(*_layout(made.layout), said(f"{stages}, from byte {made.offset:,} of the kernel's shared memory"))


def view(made: TileView[Any]) -> str:
    inner, outer = made.box
    where = f"from byte {made.offset:,} of the kernel's shared memory" + (", and what a register adds" if made.dynamic is not None else "")
    return framed(*_layout(made.layout), said(f"a view of {inner} contiguous by {outer} strided elements, {made.bytes:,} bytes, {where}"))


def plan(made: SharedPlan) -> str:
    """The table of a kernel's shared memory, with a bar of its bytes."""
    return framed(*shared(made))


def shared(made: SharedPlan) -> Iterator[str]:
    kind = "dynamic" if made.dynamic else "static"
    yield title(f"{made.total:,} of {made.limit:,} bytes of shared memory, {kind}")
    if made.allocations:
        rows = [(f"{each.offset:,}", f"{each.bytes:,}", made.said(each), each.what) for each in made.allocations]
        yield _bar(made)
        yield table(("offset", "bytes", "name", "what"), rows, numbers=(0, 1))


def _bar(made: SharedPlan) -> str:
    parts = [f'<svg width="{PLAN}" height="20" viewBox="0 0 {PLAN} 20" role="img" aria-label="the bytes of shared memory">']
    scale = (PLAN - 2) / max(made.total, 1)
    for number, each in enumerate(made.allocations):
        wide = max(each.bytes * scale, 1.5)
        words = f"{made.said(each)}: bytes {each.offset:,} to {each.offset + each.bytes - 1:,}, {each.what}"
        parts.append(f'<rect x="{each.offset * scale:.1f}" y="1" width="{wide:.1f}" height="18" fill="{colour(number % GROUPS)}" '
                     f'stroke="currentColor" stroke-opacity=".5" stroke-width=".7"><title>{escape(words)}</title></rect>')
        if 6.2 * len(each.name) + 8 < wide:
            parts.append(f'<text x="{each.offset * scale + 5:.1f}" y="14">{escape(each.name)}</text>')
    return "".join([*parts, "</svg>"])


def _layout(made: Layout) -> Iterator[str]:
    swizzle = f"{made.swizzle}-byte swizzle" if made.swizzle > CHUNK else "no swizzle" if made.swizzle else "plain rows"
    yield title(f"{made.rows} rows x {made.columns} columns of {made.type.__name__}, {made.major}-major, {swizzle}")
    inner, outer = made.box
    yield said(f"{made.bytes:,} bytes at a multiple of {made.alignment:,}; {_plural(made.spans, 'span')} of {made.span_bytes} bytes, each "
               f"filled by a box of {inner} x {outer} elements")
    yield picture(made)
    yield said("A cell is a chunk of 16 bytes of the tile; its number and colour say in which of the 8 groups of 4 banks it lies. Eight "
               "lanes that read a column of cells touch eight groups at once only if the column shows eight colours"
               + (f": this one shows {_groups(made)}." if made.outer >= LINES else "."))


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def cells(made: Layout) -> list[list[int]]:
    """The byte offset of each chunk that is drawn: by line of the tile, and by chunk within the line."""
    wide = CHUNK // made.element_bytes
    lines, chunks = min(made.outer, LINES), min(made.inner_bytes // CHUNK, MOST)
    places = [[(line, chunk * wide) for chunk in range(chunks)] for line in range(lines)]
    return [[made.offset(*(place if made.major == "k" else place[::-1])) for place in row] for row in places]


def _groups(made: Layout) -> int:
    return len({row[0] // CHUNK % GROUPS for row in cells(made)}) if cells(made)[0] else 0


def picture(made: Layout) -> str:
    """The first lines of the tile as cells. The pattern of every swizzle repeats after eight lines."""
    drawn = cells(made)
    chunks, wide = len(drawn[0]), CHUNK // made.element_bytes
    line_word, inner_word = ("row", "columns") if made.major == "k" else ("column", "rows")
    cut = made.inner_bytes // CHUNK > chunks
    width, height = LEFT + chunks * WIDTH + 24 * cut, TOP + len(drawn) * HEIGHT + (16 if made.outer > len(drawn) else 2)
    parts = [f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="where the chunks of the tile '
             f'lie">', f'<text x="0" y="{TOP - 6}" fill-opacity=".7">{inner_word}</text>']
    for chunk in range(chunks):
        first = chunk * wide
        label = f"{first}-{first + wide - 1}" if wide > 1 else f"{first}"
        parts.append(f'<text x="{LEFT + chunk * WIDTH + WIDTH // 2}" y="{TOP - 6}" text-anchor="middle" fill-opacity=".7">{label}</text>')
    for line, row in enumerate(drawn):
        y = TOP + line * HEIGHT
        parts.append(f'<text x="0" y="{y + 13}" fill-opacity=".7">{line_word} {line}</text>')
        for chunk, offset in enumerate(row):
            x, group = LEFT + chunk * WIDTH, offset // CHUNK % GROUPS
            tip = (f"{line_word} {line}, {inner_word} {chunk * wide}-{(chunk + 1) * wide - 1}: byte {offset:,} ({offset:#x}), banks "
                   f"{4 * group}-{4 * group + 3}")
            parts.append(f'<g><title>{escape(tip)}</title><rect x="{x}" y="{y}" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="2" '
                         f'fill="{colour(group)}"/><text x="{x + WIDTH // 2 - 1}" y="{y + 12}" text-anchor="middle">{group}</text></g>')
        if cut:
            parts.append(f'<text x="{LEFT + chunks * WIDTH + 4}" y="{y + 12}">...</text>')
    if made.outer > len(drawn):
        rest = made.outer - len(drawn)
        repeats = f": the colours repeat every {LINES}" if made.swizzle else ""
        parts.append(f'<text x="0" y="{height - 3}" fill-opacity=".7">{rest} more {line_word}s follow{repeats}</text>')
    return "".join([*parts, "</svg>"])
