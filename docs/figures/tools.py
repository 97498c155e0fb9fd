"""The tuner, marks, static rules and the CPU device."""

from __future__ import annotations

from statistics import median

from .records import Figure, block, header, record

TUNER, TUNER_H200 = "2026-11-26-h100-tuner", "2026-11-29-h200-tuner"
MARKS, MARKS_H200 = "2026-11-26-h100-marks", "2026-11-29-h200-marks"
STATIC = "static"
SIMULATOR = "2026-11-25-simulator"

def tuner_seconds(part: str) -> Figure:
    return lambda: f"{median(run['seconds'] for run in record(TUNER)['parts'][part]):.1f}"


def marks_overhead(name: str, which: str) -> Figure:
    return lambda: f"{100 * record(name)['marks'][which]['overhead']['part']:.1f} %"


def marks_table() -> str:
    """What marks cost, a row for each kernel: parts of the time without them."""
    rows = []
    for name, card in ((MARKS, "H100"), (MARKS_H200, "H200")):
        found = record(name)
        product = {which: each["overhead"]["part"] for which, each in found["marks"].items()}
        rows.append((f"{card}, the product", product["tile"], product["stage"], None, product["all"]))
        for head, masks in found["attention"]["head dims"].items():
            rows += [(f"{card}, attention, head dim {head}{', causal' * (mask == 'causal')}",
                      *(each[which]["part"] for which in ("tile", "block", "wait,load", "all"))) for mask, each in masks.items()]
    lines = header(" | a span a tile | a span a stage, or a block of keys | waits and loads | all marks")
    for name, *parts in rows:
        lines.append(f"| {name} | {' | '.join('' if part is None else f'{100 * part:.1f} %' for part in parts)} |")
    return block(lines)


def marks_most() -> str:
    """Of a span a tile of attention."""
    each = [found["tile"]["part"] for name in (MARKS, MARKS_H200) for masks in record(name)["attention"]["head dims"].values()
            for found in masks.values()]
    return f"{100 * max(each):.1f} %"


def marks_count() -> str:
    return f"{sum(span['count'] for span in record(MARKS)['marks']['all']['spans']) / 1e6:.1f} million"


def static(part: str, key: str) -> Figure:
    return lambda: str(record(STATIC)[part][key])


def empty_ctas() -> str:
    found = record(SIMULATOR)["once, now"]["65,536 empty CTAs"]["now"]
    return f"{found['median']:.1f} s and {found['megabytes']} MB"


FIGURES: dict[str, Figure] = {
    "tuner.ratio": lambda: f"{record(TUNER)['ratio']:.2f}",
    "tuner.h200.ratio": lambda: f"{record(TUNER_H200)['ratio']:.2f}",
    "tuner.tune": tuner_seconds("tune"),
    "tuner.all": tuner_seconds("all"),
    **{f"marks.{prefix}{which}": marks_overhead(name, which) for prefix, name in (("", MARKS), ("h200.", MARKS_H200))
       for which in ("tile", "stage", "all")},
    "marks.us": lambda: f"{record(MARKS)['marks']['all']['overhead']['us']:,.0f}",
    "marks.count": marks_count,
    "marks.table": marks_table,
    "marks.most": marks_most,
    **{f"static.{name}": static(part, key) for name, part, key in (
        *((each, "of", each) for each in ("mutants", "deletions")),
        *((f"{each}.caught", "caught", each) for each in ("mutants", "deletions")),
        *((f"{each}.errors", "caught", f"{each} with an error") for each in ("mutants", "deletions")))},
    "simulator.empty": empty_ctas,
}
