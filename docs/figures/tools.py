"""The tuner, marks, static rules and the CPU device."""

from __future__ import annotations

from statistics import median

from .records import Figure, block, header, record

TUNER = "2026-11-26-h100-tuner"
MARKS = "2026-11-26-h100-marks"
STATIC = "static"
SIMULATOR = "2026-11-25-simulator"

def tuner_seconds(part: str) -> Figure:
    return lambda: f"{median(run['seconds'] for run in record(TUNER)['parts'][part]):.1f}"


def marks_overhead(which: str) -> Figure:
    return lambda: f"{100 * record(MARKS)['marks'][which]['overhead']['part']:.1f} %"


def marks_table() -> str:
    """What marks cost, a row for each kernel: parts of the time without them."""
    found = record(MARKS)
    product = {name: each["overhead"]["part"] for name, each in found["marks"].items()}
    rows = [("the product", product["tile"], product["stage"], None, product["all"])]
    for head, masks in found["attention"]["head dims"].items():
        rows += [(f"attention, head dim {head}{', causal' * (mask == 'causal')}", *(each[name]["part"] for name in
                                                                                   ("tile", "block", "wait,load", "all")))
                 for mask, each in masks.items()]
    lines = header(" | a span a tile | a span a stage, or a block of keys | waits and loads | all marks")
    for name, *parts in rows:
        lines.append(f"| {name} | {' | '.join('' if part is None else f'{100 * part:.1f} %' for part in parts)} |")
    return block(lines)


def marks_most() -> str:
    """Of a span a tile of attention."""
    each = [found["tile"]["part"] for masks in record(MARKS)["attention"]["head dims"].values() for found in masks.values()]
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
    "tuner.tune": tuner_seconds("tune"),
    "tuner.all": tuner_seconds("all"),
    **{f"marks.{which}": marks_overhead(which) for which in ("tile", "stage", "all")},
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
