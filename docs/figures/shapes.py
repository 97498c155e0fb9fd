"""Shapes that were tuned for: bursts, sustained load and fp8; quantisers."""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean

from .records import Figure, block, ceilings, count_of, digits, extents, header, percentile, record, shape_of, summed

BURST = "2026-11-23-h200-burst"
BURST_F16 = "2026-11-22-h200-burst-f16"
SUSTAINED = "2026-11-21-h200-sustained"
FP8 = "2026-11-30-h200-fp8"
ROWS, ROWS_H200 = "2026-11-26-h100-fp8-rows", "2026-11-29-h200-fp8-rows"
OPERATORS_H200 = "2026-11-29-h200-operators"

def burst_table() -> str:
    lines = header("M x N x K | us | TFLOP/s | GB/s | cuBLAS us | cuBLASLt us | best / ours | read / ours")
    for row in record(BURST)["rows"]:
        seen, found = row["contestants"], row["ratios"]
        ours = seen["ours"]
        read = f"{found['read']['ratio']:.3f}" if "read" in found else ""
        lines.append(f"| {extents(row)} | {digits(ours['us'])} ({digits(ours['p10'])} - {digits(ours['p90'])}) | "
                     f"{digits(ours['tflops'])} | {digits(ours['gbs'])} | {digits(seen['cublas']['us'])} | "
                     f"{digits(seen['cublaslt']['us'])} | {found['best']['ratio']:.3f} | {read} |")
    return block(lines)


def sustained_table() -> str:
    lines = header("M x N x K | TFLOP/s | cuBLAS | cuBLAS / ours | wgmma / ours | MHz | W")
    for row in record(SUSTAINED)["rows"]:
        ours, found, work = row["contestants"]["ours"], row["ratios"], 2 * row["m"] * row["n"] * row["k"] / 1e6
        lines.append(f"| {extents(row)} | {ours['tflops']:.1f} | {work / row['contestants']['cublas']['us']:.1f} | "
                     f"{found['cublas']['ratio']:.3f} | {found['wgmma']['ratio']:.3f} | {row['mhz']} | {row['watts']:.0f} |")
    return block(lines)


def fp8_table() -> str:
    lines = header("M x N x K | scales | TFLOP/s | torch._scaled_mm | ratio | of wgmma alone")
    for row in record(FP8)["rows"]:
        seen, found = row["contestants"], row["ratios"]
        work = 2 * row["m"] * row["n"] * row["k"] / 1e6
        beside = f"{work / seen['scaled_mm']['us']:.0f} | {found['scaled_mm']['ratio']:.3f}" if "scaled_mm" in seen else " | "
        lines.append(f"| {extents(row)} | {'blocks' if row['block'] else 'one'} | {seen['ours']['tflops']:.0f} | "
                     f"{beside} | {found['wgmma']['ratio']:.3f} |")
    return block(lines)


def rows_figure(name: str, of: Callable[[list[float]], float]) -> Figure:
    return lambda: f"{of([row[3] for row in record(name)['rows']]):.3f}"


def rows_worst(name: str) -> Figure:
    return lambda: shape_of(min(record(name)["rows"], key=lambda row: float(row[3]))[0]).rpartition(" ")[0]


def host_us(call: str) -> Figure:
    return lambda: f"{record(OPERATORS_H200)['host_us'][call]:.1f}"


SCALES = {"tensor": "tensor", "row": "row", "1x128": "1 x 128", "128x128": "128 x 128", "1x128T": "1 x 128 of the transposed matrix"}


def quantise_table() -> str:
    lines = header("scales | share of a copy's rate, H100 | H200")
    for kind, title in SCALES.items():
        found = [[row["ratio"] for row in record(name)["quantisers"]["rows"] if row["kind"] == kind] for name in (ROWS, ROWS_H200)]
        lines.append(f"| {title} | {' | '.join(f'{min(shares):.2f} to {max(shares):.2f}' for shares in found)} |")
    return block(lines)


FIGURES: dict[str, Figure] = {
    "burst.table": burst_table,
    "burst.count": count_of(BURST),
    "sustained.count": count_of(SUSTAINED),
    "fp8-rows.count": count_of(ROWS),
    "burst.mean": summed(BURST, "burst bf16", "best", "geometric_mean"),
    "burst.least": summed(BURST, "burst bf16", "best", "least"),
    "burst-f16.mean": summed(BURST_F16, "burst f16", "best", "geometric_mean"),
    "burst-f16.least": summed(BURST_F16, "burst f16", "best", "least"),
    "sustained.table": sustained_table,
    "sustained.mean": summed(SUSTAINED, "sustained bf16", "cublas", "geometric_mean"),
    "fp8.table": fp8_table,
    **{f"burst.read.{size}.{name}": summed(BURST, "burst bf16", f"read, weights over {size} MB", which) for size in (25, 100)
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "burst.ceilings": ceilings(BURST, "wgmma bf16 burst", "wgmma e4m3 burst", "read 8 GiB"),
    **{f"{title}.{which}": figure for title, name in (("fp8-rows", ROWS), ("fp8-rows.h200", ROWS_H200))
       for which, figure in {"mean": rows_figure(name, geometric_mean), "p5": rows_figure(name, lambda ratios: percentile(ratios, 0.05)),
                             "least": rows_figure(name, min), "worst": rows_worst(name)}.items()},
    "quantise.table": quantise_table,
    "operators.h200.count": count_of(OPERATORS_H200),
    "operators.h200.mean": rows_figure(OPERATORS_H200, geometric_mean),
    "operators.h200.least": rows_figure(OPERATORS_H200, min),
    "operators.h200.worst": rows_worst(OPERATORS_H200),
    "operators.h200.host": lambda: f"{geometric_mean([row[4] / row[5] for row in record(OPERATORS_H200)['rows']]):.2f}",
    **{f"operators.h200.{which}": host_us(call) for which, call in (
        ("gemm", "gemm.gemm(a, b, out)"), ("out", "ops.gemm.out over gemm.gemm"), ("plain", "ops.gemm.plain_out over gemm.gemm"))},
}
