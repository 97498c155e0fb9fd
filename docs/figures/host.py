"""What calls take on the host."""

from __future__ import annotations

from statistics import median

from .records import Figure, block, header, record

HOST = "2026-11-25-host"
HOST_H200 = "2026-11-21-h200-host"

def host_h200(key: str) -> Figure:
    return lambda: f"{record(HOST_H200)['launch'][key]:.1f}"


def host_median(key: str) -> Figure:
    return lambda: f"{median(record(HOST_H200)[key]):.0f}"


def host_table() -> str:
    """What a call takes besides the driver, before calls were known by their arrays and after."""
    lines = header("what | before | after")
    for key, title in (("same_arrays_us", "warm `gemm(a, b, out)`, the same arrays"), ("scales_us", "the same with scales"),
                       ("new_pointers_us", "new pointers"), ("choice_new_kind_ms", "choosing for a kind of operands that is new"),
                       ("choice_new_shape_ms", "choosing for a shape that is new"),
                       ("configuration_ms", "a new configuration out of the cache, with its choice")):
        seen = [median(run[key] for run in record(HOST)["runs"][when]) for when in ("before", "after")]
        lines.append(f"| {title} | {' | '.join(f'{value:.{2 if value < 1 else 1}f} {key[-2:]}' for value in seen)} |")
    return block(lines)


FIGURES: dict[str, Figure] = {
    "host.table": host_table,
    **{f"host.h200.{name}": host_h200(key) for name, key in (("same", "same_tensors_us"), ("new", "new_pointers_us"),
                                                            ("launch", "launch_us"))},
    "host.h200.import": lambda: f"{record(HOST_H200)['host']['import_ms']:.0f}",
    **{f"host.h200.{name}": host_median(key) for name, key in (("first", "first_call_ms"), ("cached", "first_call_cached_ms"))},
}
