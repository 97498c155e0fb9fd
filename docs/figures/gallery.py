"""The kernels of the gallery."""

from __future__ import annotations

import math
from typing import Any

from .records import Figure, block, header, record

GALLERY = "2026-11-26-h100-gallery"
GALLERY_H200 = "2026-11-29-h200-gallery"

def span(rows: list[Any], name: str, spec: str = ".2f") -> str:
    """The least and the largest of a column, where rows have it."""
    found = [f"{value:{spec}}" for value in sorted(row[name] for row in rows if name in row)]
    return " - ".join(dict.fromkeys((found[0], found[-1]))) if found else ""


def gallery_rows() -> str:
    """The speed of softmax, norms, rotary embedding and quantisation over that of a copy."""
    shares = [f"{row['of_copy']:.2f}" for row in record(GALLERY)["rows"]
              if row["kernel"] in ("softmax", "rotary", "quantise") or row["kernel"].endswith("_norm")]
    return f"{min(shares)} to {max(shares)}"


def gallery_table(name: str) -> Figure:
    def of() -> str:
        lines = header("kernel | shapes | rate | copy / ours | read / ours | library / ours | library")
        kernels: dict[str, list[Any]] = {}
        for row in record(name)["rows"]:
            kernels.setdefault(row["kernel"], []).append(row)
        for kernel, rows in kernels.items():
            rate = f"{span(rows, 'tflops', '.1f')} TFLOP/s" if "tflops" in rows[0] else f"{span(rows, 'gbs', '.0f')} GB/s"
            ratios_of = " | ".join(span(rows, f"of_{which}") for which in ("copy", "read", "library"))
            library = next((row["library"] for row in rows if "library" in row), "")
            lines.append(f"| `{kernel}` | {len(rows)} | {rate} | {ratios_of} | {library} |")
        return block(lines)
    return of


def allocation_table() -> str:
    """Shares of a copy's rate of kernels that read rows with and without L1::no_allocate, least and largest of the rows' lengths. The copy
    of 1 GB and more is slow itself."""
    kernels: dict[str, list[Any]] = {}
    for kernel, shape, without, with_l1 in record(GALLERY_H200)["L1::no_allocate"]["rows"]:
        if "add_" not in kernel or math.prod(shape) < 2**27:
            kernels.setdefault(kernel, []).append((without, with_l1))
    lines = header("kernel | with `L1::no_allocate` | without | times as fast")
    for kernel, shares in kernels.items():
        columns = [*zip(*shares, strict=True), [after / before for before, after in shares]]
        lines.append(f"| `{kernel}` | {' | '.join(f'{min(each):.2f} - {max(each):.2f}' for each in columns)} |")
    return block(lines)


FIGURES: dict[str, Figure] = {
    "gallery.allocation": allocation_table,
    "gallery.rows": gallery_rows,
    "gallery.table": gallery_table(GALLERY),
    "gallery.h200.table": gallery_table(GALLERY_H200),
}
