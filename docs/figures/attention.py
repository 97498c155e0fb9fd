"""Attention, its ladder and decode."""

from __future__ import annotations

from .records import Figure, block, count_of, header, record

ATTENTION = "2026-11-26-h100-attention"
ATTENTION_H200 = "2026-11-28-h200-attention"
ATTENTION_LADDER = "2026-11-26-h100-attention-ladder"
DECODE = "2026-11-26-h100-decode"
DECODE_H200 = "2026-11-28-h200-decode"

def attention_table(name: str, **titles: str) -> Figure:
    """Each shape in TFLOP/s, and its speed over that of each backend of torch."""
    def of() -> str:
        lines = header(" | ".join(["head dim | mask | length | batches | TFLOP/s", *titles.values(),
                                   *(f"ours / {title}" for title in titles.values())]))
        for row in record(name)["rows"]:
            rates = " | ".join(f"{row['tflops'][which]:.0f}" for which in ("ours", *titles))
            over = " | ".join(f"{row['of'][which]:.3f}" for which in titles)
            lines.append(f"| {row['head']} | {'causal' if row['causal'] else 'full'} | {row['length']} | {row['batches']} | "
                         f"{rates} | {over} |")
        return block(lines)
    return of


def attention_summed(name: str, against: str, which: str) -> Figure:
    return lambda: f"{record(name)['summary'][against][which]:.3f}"


def attention_ladder_table() -> str:
    """Each step with both masks: TFLOP/s, the gain over the step before, and the speed over that of cuDNN."""
    full, causal = (mask["results"] for mask in record(ATTENTION_LADDER)["masks"])
    lines = header("step | full: TFLOP/s | gain | of cuDNN | causal: TFLOP/s | gain | of cuDNN")
    names = ["loop", *(name for name in full if name not in ("loop", "cudnn", "flash")), "cudnn", "flash"]
    for name in names:
        cells = []
        for seen in (full[name], causal[name]):
            gain, of = seen.get("gain"), seen["of"].get("cudnn")
            cells += [f"{seen['tflops']:.1f}", f"{gain['ratio']:.3f}" if gain else "", f"{of['ratio']:.3f}" if of else ""]
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    return block(lines)


def decode_table(name: str) -> Figure:
    """Each shape beside a streaming read of the same bytes."""
    def of() -> str:
        lines = header("sequences | keys | page | us | read, us | GB/s | of the read")
        for row in sorted(record(name)["rows"], key=lambda row: (row["batches"], row["length"], row["page"])):
            ours, read = row["us"]["ours"], row["us"]["read"]
            lines.append(f"| {row['batches']} | {row['length']} | {row['page']} | {ours:.1f} | {read:.1f} | "
                         f"{1e-3 * row['bytes'] / ours:.0f} | {row['of_read']:.3f} |")
        return block(lines)
    return of


FIGURES: dict[str, Figure] = {
    "attention.table": attention_table(ATTENTION, cudnn="cuDNN", flash="flash"),
    "attention.h200.table": attention_table(ATTENTION_H200, cudnn="cuDNN"),
    "attention.count": count_of(ATTENTION),
    **{f"attention.{against}.{name}": attention_summed(ATTENTION, against, which) for against in ("cudnn", "flash")
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "attention.ladder.table": attention_ladder_table,
    **{f"attention.h200.{name}": attention_summed(ATTENTION_H200, "cudnn", which)
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "attention.decode.table": decode_table(DECODE),
    "attention.decode.h200.table": decode_table(DECODE_H200),
}
