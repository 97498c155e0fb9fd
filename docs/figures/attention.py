"""Attention, its ladder and decode."""

from __future__ import annotations

from .records import Figure, block, count_of, header, record

ATTENTION = "2026-11-26-h100-attention"
ATTENTION_LADDER = "2026-11-26-h100-attention-ladder"
DECODE = "2026-11-26-h100-decode"

def attention_table() -> str:
    """Each shape in TFLOP/s, and its speed over that of each backend of torch."""
    lines = header("head dim | mask | length | batches | TFLOP/s | cuDNN | flash | ours / cuDNN | ours / flash")
    for row in record(ATTENTION)["rows"]:
        rates, of = row["tflops"], row["of"]
        lines.append(f"| {row['head']} | {'causal' if row['causal'] else 'full'} | {row['length']} | {row['batches']} | "
                     f"{rates['ours']:.0f} | {rates['cudnn']:.0f} | {rates['flash']:.0f} | {of['cudnn']:.3f} | {of['flash']:.3f} |")
    return block(lines)


def attention_summed(against: str, which: str) -> Figure:
    return lambda: f"{record(ATTENTION)['summary'][against][which]:.3f}"


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


def decode_table() -> str:
    """Each shape beside a streaming read of the same bytes."""
    lines = header("sequences | keys | page | us | read, us | GB/s | of the read")
    for row in sorted(record(DECODE)["rows"], key=lambda row: (row["batches"], row["length"], row["page"])):
        ours, read = row["us"]["ours"], row["us"]["read"]
        lines.append(f"| {row['batches']} | {row['length']} | {row['page']} | {ours:.1f} | {read:.1f} | {1e-3 * row['bytes'] / ours:.0f} | "
                     f"{row['of_read']:.3f} |")
    return block(lines)


FIGURES: dict[str, Figure] = {
    "attention.table": attention_table,
    "attention.count": count_of(ATTENTION),
    **{f"attention.{against}.{name}": attention_summed(against, which) for against in ("cudnn", "flash")
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "attention.ladder.table": attention_ladder_table,
    "attention.decode.table": decode_table,
}
