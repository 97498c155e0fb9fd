"""A swizzled tile drawn: which 16-byte chunk of which row lies where, and in which banks."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PtxkitError
from ..layout import swizzled

LINE = 128
"""Bytes of 32 banks."""
CHUNK = 16
SPANS = {"128B": 128, "64B": 64, "32B": 32, "none": 16}
MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class Drawing:
    """`lines[l][c]` is the (row, chunk) that lies in chunk `c` (banks 4c to 4c+3) of the l-th 128 bytes; None where the tile ends before.

    `column` is how many times eight neighbouring rows' chunk 0 meet in the same banks (`plain`: without the swizzle).
    """

    span: int
    rows: int
    lines: tuple[tuple[tuple[int, int] | None, ...], ...]
    column: int
    plain: int


def span_of(word: str) -> int:
    """Bytes of the span that a word names: 128B, 64, 32b, none, 0, 16."""
    bare = word.strip().lower().removesuffix("b")
    if bare in ("none", "0", "16"):
        return 16
    if bare in ("128", "64", "32"):
        return int(bare)
    raise PtxkitError(f"--swizzle is 128B, 64B, 32B or none, not {word}")


def draw(span: int, rows: int) -> Drawing:
    """Rows of one span each, from an address that the pattern starts at. A span of 16 is wgmma's "no swizzle"."""
    if not 1 <= rows <= MOST_ROWS:
        raise PtxkitError(f"--rows is 1 to {MOST_ROWS}, not {rows}")
    places = {place(row, chunk, span): (row, chunk) for row in range(rows) for chunk in range(span // CHUNK)}
    count = -(-(max(places) + CHUNK) // LINE)
    lines = tuple(tuple(places.get(line * LINE + at * CHUNK) for at in range(LINE // CHUNK)) for line in range(count))
    group = range(min(rows, 8))
    return Drawing(span, rows, lines, _ways([place(row, 0, span) for row in group]), _ways([row * span for row in group]))


def place(row: int, chunk: int, span: int) -> int:
    """Where the chunk lies: bytes from the start of the pattern."""
    return swizzled(row * span + chunk * CHUNK, span)


def _ways(places: list[int]) -> int:
    """How many chunks at most lie in the same banks."""
    banks = [at % LINE for at in places]
    return max(banks.count(bank) for bank in banks)


def text(drawing: Drawing) -> str:
    """The drawing as text; `3.5` in it is row 3, chunk 5."""
    span, chunks = drawing.span, drawing.span // CHUNK
    name = "no swizzle" if span == CHUNK else f"{span}-byte swizzle"
    width = max(7, len(f"{drawing.rows - 1}.{chunks - 1}") + 2)
    banks = "".join(f"{f'{4 * at}-{4 * at + 3}':>{width}}" for at in range(LINE // CHUNK))
    each = f"{chunks} chunks" if chunks > 1 else "one chunk"
    lines = [f"{name}: {drawing.rows} rows of {span} bytes, each {each} of 16; `1.0` is row 1, chunk 0", "",
             f"{'address':>9}  {banks}   <- banks of 4 bytes"]
    for number, line in enumerate(drawing.lines):
        cells = (f"{cell[0]}.{cell[1]}" if cell is not None else "." for cell in line)
        lines.append(f"{number * LINE:>#9x}  " + "".join(f"{cell:>{width}}" for cell in cells))
    mask = max(span // CHUNK - 1, 0)
    if mask:
        lines += ["", f"address ^= (address >> 7 & {mask}) << 4",
                  f"the pattern repeats every {(mask + 1) * LINE:,} bytes: a tile starts at a multiple of them"]
    else:
        lines += ["", "address unchanged: a core matrix of 8 rows is 128 contiguous bytes"]
    group = min(drawing.rows, 8)
    if group > 1:
        said = f"{drawing.column}-way conflict" if drawing.column > 1 else "no conflict"
        lines.append(f"one chunk of {group} neighbouring rows, as ldmatrix reads it: {said}"
                     + (f" ({drawing.plain}-way without the swizzle)" if mask else ""))
    return "\n".join(lines) + "\n"
