"""Results of grouped products as Markdown: a line for each extent and kind, with balanced and skewed lengths. A baseline's microseconds
come with their ratio to ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .bench.baselines import CEILINGS
from .bench.grouped_cases import DECODE

Row = Mapping[str, Any]
NAMES = {"deep_gemm": "DeepGEMM, contiguous", "deep_gemm_masked": "DeepGEMM, masked", "hpc_ops": "hpc-ops"}
"""How a table calls baselines that have another name there."""


def tables(results: Mapping[str, Any]) -> str:
    """What `bench --grouped` and `grouped --compare` measured: decode, prefill, and prefill under sustained load."""
    rows = [row for row in results["rows"] if "wrong" not in row]
    burst = [row for row in rows if row["regime"] == "burst"]
    parts = [_ceilings(results.get("ceilings", {}))]
    for title, ceiling, chosen in (("Decode: up to 64 tokens a group", "of_read", [row for row in burst if row["tokens"] <= DECODE]),
                                   ("More tokens", "of_wgmma", [row for row in burst if row["tokens"] > DECODE]),
                                   ("Sustained", "of_wgmma", [row for row in rows if row["regime"] == "sustained"])):
        if chosen:
            parts.append(f"**{title}**\n\n{_table(chosen, ceiling)}")
    wrong = [f"{row['case']}: {row['wrong']}" for row in results["rows"] if "wrong" in row]
    return "\n\n".join(part for part in (*parts, *wrong) if part) + "\n"


def _ceilings(ceilings: Mapping[str, Any]) -> str:
    named = ", ".join(f"{name} {seen['value']:,.0f} {seen['unit']}" for name, seen in ceilings.items())
    return f"Ceilings of the run: {named}." if named else ""


def _table(rows: Sequence[Row], ceiling: str) -> str:
    others = list(dict.fromkeys(name for row in rows for name in row["contestants"]
                                if name not in ("ours", *CEILINGS) and not name.startswith("ours,")))
    rate = ("GB/s", "gbs", "of the read") if ceiling == "of_read" else ("TFLOP/s", "tflops", "of wgmma")
    head = ["groups x tokens x N x K", "kind", "us (p10 - p90)", rate[0], rate[2], "skewed us", "skewed / balanced",
            *(NAMES.get(name, name) for name in others)]
    lines = [head]
    skewed = {_key(row): row for row in rows if row["skewed"]}
    balanced = {_key(row): row for row in rows if not row["skewed"]}
    for key in dict.fromkeys(_key(row) for row in rows):
        row, other = balanced.get(key), skewed.get(key)
        cells = ["x".join(f"{key[i]}" for i in range(4)), " ".join((key[4], *["gated"] * key[5], *["quantised"] * key[6]))]
        if row is None:
            cells += [""] * 3
        else:
            ours = row["contestants"]["ours"]
            cells += [f"{ours['us']:.4g} ({ours['p10']:.4g} - {ours['p90']:.4g})", f"{ours[rate[1]]:,.0f}", _share(ours.get(ceiling))]
        cells += [f"{other['contestants']['ours']['us']:.4g}" if other else "",
                  f"{other['contestants']['ours']['us'] / row['contestants']['ours']['us']:.2f}" if row and other else ""]
        seen = row or other
        assert seen is not None
        for name in others:
            there = name in seen["ratios"]
            cells.append(f"{seen['contestants'][name]['us']:.4g} ({seen['ratios'][name]['ratio']:.2f})" if there else "")
        lines.append(cells)
    first, *rest = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join((first, "|" + "---|" * len(head), *rest))


def _key(row: Row) -> tuple[Any, ...]:
    return (*(row[name] for name in ("groups", "tokens", "n", "k", "kind", "gated")), row.get("quantised", False))


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


__all__ = ["tables"]
