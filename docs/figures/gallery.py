"""The kernels of the gallery."""

from __future__ import annotations

from typing import Any

from .records import Figure, block, header, record

GALLERY = "2026-11-26-h100-gallery"
GALLERY_H200 = "2026-11-28-h200-gallery"

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


FIGURES: dict[str, Figure] = {
    "gallery.rows": gallery_rows,
    "gallery.table": gallery_table(GALLERY),
    "gallery.h200.table": gallery_table(GALLERY_H200),
}
