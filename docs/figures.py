"""Measured figures of the pages, from the records in benchmarks/results: `make docs` writes them, `--check` of docs/generate.py compares.

A page has `<!-- figure: NAME -->` before a figure and `<!-- /figure -->` after it; what stands between is made here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RANDOM, BURST, BURST_F16 = "2026-11-27-h100-random", "2026-11-23-h200-burst", "2026-11-22-h200-burst-f16"
EARLIER = "2026-11-25-h200-h100-random"
SUSTAINED, FP8, ROWS, GROUPED = ("2026-11-21-h200-sustained", "2026-11-22-h200-fp8", "2026-11-26-h100-fp8-rows", "2026-11-24-h200-grouped")
ATTENTION, ATTENTION_LADDER, DECODE = "2026-11-26-h100-attention", "2026-11-26-h100-attention-ladder", "2026-11-26-h100-decode"
TUNER, MARKS, STATIC, SIMULATOR = "2026-11-26-h100-tuner", "2026-11-26-h100-marks", "static", "2026-11-25-simulator"
WEIGHTS = "2026-11-26-h100-weight-gradients"
GALLERY = "2026-11-26-h100-gallery"
SAMPLE = "2026-11-26-h100-sample"
MOE = "2026-11-27-h100-moe"
SHIFTS, GROUPED_RANDOM = "2026-11-26-h100-shifts", "2026-11-26-h100-grouped-random"
DEEP_GEMM = "2026-11-27-h100-deepgemm"
BEFORE_AFTER, HOST, HOST_H200 = "2026-11-24-h200-before-and-after", "2026-11-25-host", "2026-11-21-h200-host"
PLOT = ROOT / "docs" / "random.svg"

MARK = re.compile(r"(<!-- figure: (?P<name>[\w.-]+) -->)(?P<text>.*?)(<!-- /figure -->)", re.S)
Figure = Callable[[], str]


@cache
def record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------------------- random products

KINDS = {
    "aligned": ("random:6501:150:aligned", "N, K multiples of 64", "#3a7d00"),
    "any8": ("random:6502:150:any8", "N, K multiples of 8", "#1f6fb4"),
    "batched": ("random:6503:100 and 6703:150:any8:batched", "the same, batches of 2 to 128", "#7a5aa6"),
    "e4m3": ("random:6604:150 --dtype e4m3", "e4m3, one scale, multiples of 16", "#c96a00"),
    "tf32": ("random:6605:150 --dtype f32", "tf32, multiples of 4", "#b04a5a"),
    "any": ("random:6606:150:any", "any N, K and base address", "#555555"),
}
"""The run, what its products are, and their colour in the plot."""
H200 = "NVIDIA H200"


def ratios(run: str, column: int = 3) -> list[float]:
    """How much longer the better library takes (column 2: cuBLAS), product by product."""
    return [row[column] for row in record(RANDOM)["runs"][run] if row[column] is not None]


def percentile(values: Iterable[float], share: float) -> float:
    """Between the two nearest values, by their distances."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def random_table() -> str:
    lines = header("products | n | better library: geometric mean | 5th percentile | least | below 0.95 | "
                   "cuBLAS, or torch._scaled_mm: geometric mean")
    for run, title in [*((run, title) for run, title, _ in KINDS.values()), ("burst", f"the {count_of(BURST)()} shapes below"),
                       ("models", "shapes of models"), ("sustained", "large shapes under sustained load")]:
        best, cublas = ratios(run), [] if run == "models" else ratios(run, 2)     # e4m3, among others
        lines.append(f"| {title} | {len(best)} | {geometric_mean(best):.3f} | {percentile(best, 0.05):.3f} | {min(best):.3f} | "
                     f"{sum(ratio < 0.95 for ratio in best)} | {f'{geometric_mean(cublas):.3f} ' if cublas else ''}|")
    return block(lines)


def trees_table() -> str:
    """The regret of the choice without and with trees: geometric mean and 95th percentile, as the record writes them."""
    without, learned = record(SAMPLE)["regret of the model"], record(SAMPLE)["regret with trees, of products that they have not seen"]
    lines = header("products that take | without trees: regret, 95th percentile | with trees")
    for name, title in (("0 to 8 us", "less than 8 us"), ("8 to 20 us", "8 to 20 us"), ("20 to 60 us", "20 to 60 us"),
                        ("60 us and more", "60 us and more"), ("0 us and more", "all with M over 64"), ("few rows", "16 to 64 rows")):
        means = [", ".join(re.findall(r"(?:mean|percentile) ([\d.]+)", line))
                 for line in (*without, *learned) if line.startswith(f"{name}:")]
        lines.append(f"| {title} | {' | '.join(means)} |")
    return block(lines)


def earlier(card: str) -> dict[str, list[tuple[int, float]]]:
    """Random products with the kernels before, by kind: the operations of each, and how much longer the better library takes."""
    found: dict[str, list[tuple[int, float]]] = {"aligned": [], "any8": []}
    for shape, us, _, *libraries, _ in record(EARLIER)["cards"][card]["rows"]:
        lengths = [int(length) for length in shape.partition(":")[0].split("x")]
        kind = "aligned" if all(length % 64 == 0 for length in lengths[-2:]) else "any8"
        found[kind].append((2 * math.prod(lengths), min(libraries) / us))
    return found


def earlier_table() -> str:
    lines = header("products | n | better library: geometric mean | 5th percentile | least | below 0.95 | "
                   "an H100 in the same week (M over 64)")
    same_week = earlier("NVIDIA H100 80GB HBM3")
    for kind, points in earlier(H200).items():
        best, other = [ratio for _, ratio in points], [ratio for _, ratio in same_week[kind]]
        lines.append(f"| {KINDS[kind][1]} | {len(best)} | {geometric_mean(best):.3f} | {percentile(best, 0.05):.3f} | {min(best):.3f} | "
                     f"{sum(ratio < 0.95 for ratio in best)} | {geometric_mean(other):.3f} (n = {len(other)}) |")
    return block(lines)


def earlier_mean(kind: str) -> Figure:
    return lambda: f"{geometric_mean(ratio for _, ratio in earlier(H200)[kind]):.2f}"


def random_mean(kind: str) -> Figure:
    return lambda: f"{geometric_mean(ratios(KINDS[kind][0])):.2f}"


def random_least(kind: str) -> Figure:
    return lambda: f"{min(ratios(KINDS[kind][0])):.2f}"


def shape_of(product: str) -> str:
    """`24x11008x8832:bf16:tt` as a page writes it."""
    lengths, *_, layout = product.split(":")
    return f"{lengths.replace('x', ' x ')} {layout}"


def random_worst(kind: str) -> Figure:
    return lambda: shape_of(min(record(RANDOM)["runs"][KINDS[kind][0]], key=lambda row: float(row[3]))[0])


def random_plot() -> str:
    """Each random product as a dot, or as a ring: how many operations it has, and how much longer the better library takes."""
    points = [(2 * math.prod(map(int, row[0].partition(":")[0].split("x"))), row[3], colour)
              for run, _, colour in KINDS.values() for row in record(RANDOM)["runs"][run]]
    rings = [(work, ratio, KINDS[kind][2]) for kind, found in earlier(H200).items() for work, ratio in found]
    left, top, width, height = 62, 40, 640, 300
    works = [math.log10(work) for work, *_ in (*points, *rings)]
    smallest, largest = min(works), max(works)
    low, high = math.log2(0.4), math.log2(4)

    def x(work: float) -> float:
        return left + width * (math.log10(work) - smallest) / (largest - smallest)

    def y(ratio: float) -> float:
        return top + height * (high - math.log2(min(max(ratio, 0.4), 4))) / (high - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 18} {top + height + 80}" font-family="sans-serif" '
             'font-size="12"><rect width="100%" height="100%" fill="#fff"/>']
    for ratio in (0.4, 0.5, 0.7, 1, 1.4, 2, 2.8, 4):
        parts.append(f'<path d="M{left} {y(ratio):.0f}h{width}" stroke="{"#222" if ratio == 1 else "#ddd"}"/>'
                     f'<text x="{left - 6}" y="{y(ratio) + 4:.0f}" text-anchor="end">{"≥ " * (ratio == 4)}{ratio}x</text>')
    for power in range(math.ceil(smallest), math.floor(largest) + 1):
        parts.append(f'<path d="M{x(10 ** power):.0f} {top}v{height}" stroke="#eee"/>'
                     f'<text x="{x(10 ** power):.0f}" y="{top + height + 16}" text-anchor="middle">10^{power}</text>')
    for colour in dict.fromkeys(colour for *_, colour in points):
        dots = "".join(f"M{x(work):.0f} {y(ratio):.0f}h0" for work, ratio, own in points if own == colour)
        parts.append(f'<path d="{dots}" stroke="{colour}" stroke-width="5" stroke-linecap="round" opacity=".75"/>')
    for work, ratio, colour in rings:
        parts.append(f'<circle cx="{x(work):.0f}" cy="{y(ratio):.0f}" r="3" fill="none" stroke="{colour}"/>')
    for place, (_, title, colour) in enumerate(KINDS.values()):
        across, down = left + 215 * (place % 3), 12 + 16 * (place // 3)
        parts.append(f'<circle cx="{across}" cy="{down}" r="4" fill="{colour}"/><text x="{across + 8}" y="{down + 4}">{title}</text>')
    middle = top + height / 2
    parts.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
                 "time of the better library over that of ptxkit</text>")
    captions = ("operations of a product (2 M N K)",
                f"dots: {len(points)} random products on an {record(RANDOM)['device']['name']}, {record(RANDOM)['date']}",
                f"rings: {len(rings)} on an {H200}, {record(EARLIER)['date']}, with older kernels")
    for line, caption in enumerate(captions):
        parts.append(f'<text x="{left + width / 2}" y="{top + height + 34 + 18 * line}" text-anchor="middle" '
                     f'fill="{"#555" if line else "#000"}">{caption}</text>')
    parts.append("</svg>")
    return "".join(parts) + "\n"


# --------------------------------------------------------------------------------------------------- shapes that were tuned for


def digits(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def extents(row: Any) -> str:
    return f"{row['m']} x {row['n']} x {row['k']}"


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
    lines = header("M x N x K | scales | TFLOP/s | torch._scaled_mm (fast accumulation) | ratio | of wgmma alone")
    for row in record(FP8)["rows"]:
        seen, found = row["contestants"], row["ratios"]
        work = 2 * row["m"] * row["n"] * row["k"] / 1e6
        beside = f"{work / seen['scaled_mm']['us']:.0f} | {found['scaled_mm']['ratio']:.3f}" if "scaled_mm" in seen else " | "
        lines.append(f"| {extents(row)} | {'blocks' if row['block'] else 'one'} | {seen['ours']['tflops']:.0f} | "
                     f"{beside} | {found['wgmma']['ratio']:.3f} |")
    return block(lines)


def ceilings(name: str, *limits: str) -> Figure:
    """What the card could do at most in a record's run."""
    return lambda: ", ".join(f"{limit} {found['value']:,.0f} {found['unit']}" for limit in limits
                             for found in (record(name)["ceilings"][limit],))


def count_of(name: str) -> Figure:
    """How many shapes a record has."""
    return lambda: str(len(record(name)["rows"]))


def summed(name: str, kind: str, against: str, which: str) -> Figure:
    """A figure of a record's own summary."""
    return lambda: f"{record(name)['summary'][kind][against][which]:.3f}"


# --------------------------------------------------------------------------------------------------- group products

PEERS = ("deep_gemm", "deep_gemm_masked", "hpc_ops")


def grouped_mean(*kinds: str, skewed: bool | None = None, without: str = "") -> Figure:
    """The geometric mean of the better of DeepGEMM and hpc-ops, over ours, of cases of these kinds."""
    def of() -> str:
        found = [min(row["contestants"][peer]["us"] for peer in PEERS if peer in row["contestants"]) / row["contestants"]["ours"]["us"]
                 for row in record(GROUPED)["rows"] if (not kinds or row["kind"] in kinds) and row["kind"] != without
                 and (skewed is None or row["skewed"] == skewed) and any(peer in row["contestants"] for peer in PEERS)]
        return f"{geometric_mean(found):.2f}"
    return of


def grouped_torch(which: str) -> Figure:
    return lambda: f"{record(GROUPED)['summary']['bf16']['of torch._grouped_mm'][which]:.2f}"


def weights_ratio(row: Any) -> float:
    """torch's time over that of the configuration that is chosen, a weight gradient."""
    return float(row["ratio"][row["choice"]])


def weights_table() -> str:
    """Each weight gradient: what it reaches, and over torch's."""
    found = header("groups x mean length x M x N | lengths | tile, cluster | TFLOP/s | times as fast as torch")
    for row in record(WEIGHTS)["rows"]:
        shape, choice = [row[name] for name in ("groups", "mean", "m", "n")], row["choice"]
        found.append(f"| {' x '.join(map(str, shape))} | {row['lengths']} | {', '.join(choice.split()[:2])} | "
                     f"{2e-6 * math.prod(shape) / row['us'][choice]:.0f} | {weights_ratio(row):.2f} |")
    return block(found)


def weights(lengths: str) -> Figure:
    """The mean over long groups."""
    def of() -> str:
        rows = [row for row in record(WEIGHTS)["rows"] if row["lengths"] == lengths and row["mean"] >= 4096]
        return f"{geometric_mean(map(weights_ratio, rows)):.2f}"
    return of


def grouped_case(case: str) -> Figure:
    """The same of one case."""
    def of() -> str:
        (row,) = (row for row in record(GROUPED)["rows"] if row["case"] == case)
        seen = row["contestants"]
        return f"{min(seen[peer]['us'] for peer in PEERS if peer in seen) / seen['ours']['us']:.2f}"
    return of


def rows_figure(of: Callable[[list[float]], float]) -> Figure:
    return lambda: f"{of([row[3] for row in record(ROWS)['rows']]):.3f}"


def rows_worst() -> str:
    return shape_of(min(record(ROWS)["rows"], key=lambda row: float(row[3]))[0]).rpartition(" ")[0]


SCALES = {"tensor": "tensor", "row": "row", "1x128": "1 x 128", "128x128": "128 x 128", "1x128T": "1 x 128 of the transposed matrix"}


def quantise_table() -> str:
    lines = header("scales | share of a copy's rate")
    for kind, title in SCALES.items():
        shares = [row["ratio"] for row in record(ROWS)["quantisers"]["rows"] if row["kind"] == kind]
        lines.append(f"| {title} | {min(shares):.2f} to {max(shares):.2f} |")
    return block(lines)


# --------------------------------------------------------------------------------------------------- tools

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


# --------------------------------------------------------------------------------------------------- attention


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


# --------------------------------------------------------------------------------------------------- the gallery


def span(rows: list[Any], name: str, spec: str = ".2f") -> str:
    """The least and the largest of a column, where rows have it."""
    found = [f"{value:{spec}}" for value in sorted(row[name] for row in rows if name in row)]
    return " - ".join(dict.fromkeys((found[0], found[-1]))) if found else ""


def gallery_rows() -> str:
    """The speed of softmax, norms, rotary embedding and quantisation over that of a copy."""
    shares = [f"{row['of_copy']:.2f}" for row in record(GALLERY)["rows"]
              if row["kernel"] in ("softmax", "rotary", "quantise") or row["kernel"].endswith("_norm")]
    return f"{min(shares)} to {max(shares)}"


def gallery_table() -> str:
    lines = header("kernel | shapes | rate | copy / ours | read / ours | library / ours | library")
    kernels: dict[str, list[Any]] = {}
    for row in record(GALLERY)["rows"]:
        kernels.setdefault(row["kernel"], []).append(row)
    for kernel, rows in kernels.items():
        rate = f"{span(rows, 'tflops', '.1f')} TFLOP/s" if "tflops" in rows[0] else f"{span(rows, 'gbs', '.0f')} GB/s"
        ratios_of = " | ".join(span(rows, f"of_{which}") for which in ("copy", "read", "library"))
        library = next((row["library"] for row in rows if "library" in row), "")
        lines.append(f"| `{kernel}` | {len(rows)} | {rate} | {ratios_of} | {library} |")
    return block(lines)


# --------------------------------------------------------------------------------------------------- layers of experts


def moe_table() -> str:
    lines = header("layer | experts x tokens of one | us | over its products | copied | separate")
    for row in record(MOE)["rows"]:
        us, name = row["us"], row["name"].replace(" gate_up", "").replace(",", "")
        lines.append(f"| {name} | {row['experts']} x {row['mean']:,} | {digits(us['layer'])} | {row['over_products']:.3f} | "
                     + " | ".join(f"{us[other] / us['experts']:.3f}" for other in ("copied", "separate")) + " |")
    return block(lines)


def moe(key: str, of: Callable[[list[float]], float], places: int = 2) -> Figure:
    return lambda: f"{of([row[key] for row in record(MOE)['rows']]):.{places}f}"


# --------------------------------------------------------------------------------------------------- gains, prices and the host


def few_rows_table() -> str:
    """The time before over that after, products of few rows by operands: geometric mean, least and most."""
    lines = header("rows | bf16, nt | bf16, nn | e4m3, one scale | e4m3, blocks")
    cases = record(BEFORE_AFTER)["few rows"]["cases"]
    for rows in (1, 16, 64, 128):
        cells = []
        for operands in ("bf16:nt", "bf16:nn", "e4m3:nt", "e4m3-block:nt"):
            gains = [before / after for name, (before, after) in cases.items()
                     if name.startswith(f"{rows}x") and name.partition(":")[2] == operands]
            cells.append(f"{geometric_mean(gains):.3f} ({min(gains):.3f} - {max(gains):.3f})")
        lines.append(f"| {rows} | {' | '.join(cells)} |")
    return block(lines)


GAINS = {"block-scales": ("block scales", ""), "gate": ("gate", ""), "wide": ("wide", ":quantised"), "few-tokens": ("few tokens", ""),
         "own": ("own matrices", ""), "few-tokens-again": ("few tokens again", ""), "other": ("other results", "")}
"""By the name of a figure: the part of the record, and what the names of its cases have."""


MEANS: dict[str, Callable[[list[float]], float]] = {"mean": geometric_mean, "least": min, "most": max}


def pairs(cases: Any, name: str = "") -> Iterable[tuple[str, list[float]]]:
    """The cases of a part by name, which may be nested."""
    for key, found in cases.items():
        yield from pairs(found, name + key) if isinstance(found, dict) else [(name + key, found)]


def gain(figure: str, which: str) -> Figure:
    """How many times as fast the products of a part are after its change: the geometric mean, the least or the most."""
    def of() -> str:
        name, having = GAINS[figure]
        part = record(BEFORE_AFTER)[name]
        if "all" in part:
            return f"{part['all'][which]:.3f}"
        found = [before / after for case, (before, after, *_) in pairs(part["cases"]) if having in case]
        return f"{MEANS[which](found):.3f}"
    return of


def gain_count(figure: str) -> Figure:
    name, having = GAINS[figure]
    return lambda: str(record(BEFORE_AFTER)[name].get("all", {}).get("cases") or sum(
        having in case for case, _ in pairs(record(BEFORE_AFTER)[name]["cases"])))


def shifted() -> list[float]:
    """How much longer cuBLAS takes, products of at most 64 rows in 16 bits that are loaded by shifts."""
    return [row["cublas"] / row["ours"] for name, row in record(SHIFTS)["rows"].items()
            if int(name.partition("x")[0]) <= 64 and "by shifts" in row["configuration"] and "f16" in name]


def prices() -> dict[str, float]:
    """What a fixed order along K costs: the time with it over that without, product by product."""
    return {name: us["invariant"] / us["ours"] for name, us in record(GROUPED_RANDOM)["batch invariance"]}


def price_of(product: str) -> Figure:
    return lambda: f"{next(price for name, price in prices().items() if name.startswith(product + ':')):.1f}"


def price_of_others() -> str:
    """The least and the most of products whose price is below two."""
    found = [price for price in prices().values() if price < 2]
    return f"{min(found):.2f} to {max(found):.1f}"


def grouped_random(of: Callable[[list[float]], str], rows: str = "rows") -> Figure:
    """A figure of how much longer torch takes, group products with random lengths."""
    return lambda: of([row[2] for row in record(GROUPED_RANDOM)["random"][rows]])


def deep_gemm_table() -> str:
    """How much longer DeepGEMM takes, by type and layout."""
    lines = header("type | layout | n | geometric mean | 5th percentile | least | the least is of")
    columns = record(DEEP_GEMM)["columns"]
    for kind in ("bf16", "fp8-block"):
        for layout, ours, theirs in (("contiguous", "ours", "deep_gemm"), ("masked", "ours_masked", "deep_gemm_masked")):
            found = {row[0]: row[columns.index(theirs)] / row[columns.index(ours)] for row in record(DEEP_GEMM)["rows"]
                     if f":{kind}:" in row[0]}
            least, all_ = min(found, key=found.__getitem__), list(found.values())
            lines.append(f"| {kind} | {layout} | {len(all_)} | {geometric_mean(all_):.3f} | {percentile(all_, 0.05):.3f} | "
                         f"{found[least]:.3f} | {least.partition(':')[0]} |")
    return block(lines)


def against_commit(which: str) -> Figure:
    """The time at an earlier commit over that now, the cases of the tables."""
    return lambda: f"{MEANS[which]([before / after for _, before, after in record(GROUPED_RANDOM)['before and after']['rows']]):.3f}"


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


def header(titles: str) -> list[str]:
    """The first two lines of a table."""
    return [f"| {titles} |", "|---" * (titles.count("|") + 1) + "|"]


def block(lines: Iterable[str]) -> str:
    return "\n\n" + "\n".join(lines) + "\n\n"


FIGURES: dict[str, Figure] = {
    "random.table": random_table,
    "random.dots": lambda: str(sum(len(ratios(run)) for run, *_ in KINDS.values())),
    "random.rings": lambda: str(sum(map(len, earlier(H200).values()))),
    "random.sustained": lambda: f"{geometric_mean(ratios('sustained')):.2f}",
    "random.sustained.least": lambda: f"{min(ratios('sustained')):.2f}",
    "random.h200.table": earlier_table,
    "trees.table": trees_table,
    **{f"random.h200.{kind}": earlier_mean(kind) for kind in ("aligned", "any8")},
    **{f"random.{kind}": random_mean(kind) for kind in KINDS},
    **{f"random.{kind}.least": random_least(kind) for kind in KINDS},
    "random.e4m3.alone.low": lambda: f"{percentile(ratios(KINDS['e4m3'][0], 2), 0.05):.3f}",
    "random.e4m3.alone.least": lambda: f"{min(ratios(KINDS['e4m3'][0], 2)):.3f}",
    "burst.table": burst_table,
    **{f"{name}.count": count_of(each) for name, each in (("burst", BURST), ("sustained", SUSTAINED), ("grouped", GROUPED),
                                                          ("attention", ATTENTION), ("fp8-rows", ROWS))},
    "burst.mean": summed(BURST, "burst bf16", "best", "geometric_mean"),
    "burst.least": summed(BURST, "burst bf16", "best", "least"),
    "burst-f16.mean": summed(BURST_F16, "burst f16", "best", "geometric_mean"),
    "burst-f16.least": summed(BURST_F16, "burst f16", "best", "least"),
    "sustained.table": sustained_table,
    "sustained.mean": summed(SUSTAINED, "sustained bf16", "cublas", "geometric_mean"),
    "fp8.table": fp8_table,
    **{f"random.{kind}.worst": random_worst(kind) for kind in KINDS},
    **{f"burst.read.{size}.{name}": summed(BURST, "burst bf16", f"read, weights over {size} MB", which) for size in (25, 100)
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "burst.ceilings": ceilings(BURST, "wgmma bf16 burst", "wgmma e4m3 burst", "read 8 GiB"),
    "fp8-rows.mean": rows_figure(geometric_mean),
    "fp8-rows.p5": rows_figure(lambda ratios: percentile(ratios, 0.05)),
    "fp8-rows.least": rows_figure(min),
    "fp8-rows.worst": rows_worst,
    "quantise.table": quantise_table,
    "gallery.rows": gallery_rows,
    "gallery.table": gallery_table,
    "weights.table": weights_table,
    **{f"weights.{lengths}": weights(lengths) for lengths in ("even", "skewed")},
    "grouped.mean": grouped_mean(),
    "grouped.deepgemm": deep_gemm_table,
    "grouped.without-fp8": grouped_mean(without="fp8"),
    **{f"grouped.{kind}.{name}": grouped_mean(kind, skewed=skewed) for kind in ("bf16", "fp8", "fp8-block")
       for name, skewed in (("alike", False), ("skewed", True))},
    "grouped.ceilings": ceilings(GROUPED, "wgmma bf16 burst", "wgmma bf16 sustained", "wgmma e4m3 burst", "wgmma e4m3 sustained",
                                 "read 8 GiB"),
    "grouped.slower.alike": grouped_case("8x128x4096x7168:fp8-block"),
    "grouped.slower.skewed": grouped_case("8x128x4096x7168:fp8-block:skewed"),
    "grouped.torch": grouped_torch("mean"),
    "grouped.torch.least": grouped_torch("least"),
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
    "attention.table": attention_table,
    **{f"attention.{against}.{name}": attention_summed(against, which) for against in ("cudnn", "flash")
       for name, which in (("mean", "geometric_mean"), ("least", "least"))},
    "attention.ladder.table": attention_ladder_table,
    "attention.decode.table": decode_table,
    "few-rows.table": few_rows_table,
    **{f"gain.{figure}.{which}": gain(figure, which) for figure in GAINS for which in MEANS},
    **{f"gain.{figure}.count": gain_count(figure) for figure in GAINS},
    "shifts.span": lambda: f"{min(shifted()):.2f} to {max(shifted()):.1f}",
    "shifts.count": lambda: str(len(shifted())),
    "order.count": lambda: str(len(prices())),
    "order.mean": lambda: f"{geometric_mean(prices().values()):.2f}",
    "order.others": price_of_others,
    **{f"order.{product}": price_of(product) for product in ("152x224x9496", "56x824x15752", "40x3392x15984")},
    **{f"grouped-random.{name}{figure}": grouped_random(of, rows)
       for name, rows in (("", "rows"), ("fresh.", "fresh rows"))
       for figure, of in {"count": lambda ratios: str(len(ratios)), "mean": lambda ratios: f"{geometric_mean(ratios):.3f}",
                          "p5": lambda ratios: f"{percentile(ratios, 0.05):.3f}", "least": lambda ratios: f"{min(ratios):.3f}"}.items()},
    **{f"grouped-random.against.{which}": against_commit(which) for which in MEANS},
    "host.table": host_table,
    **{f"host.h200.{name}": host_h200(key) for name, key in (("same", "same_tensors_us"), ("new", "new_pointers_us"),
                                                            ("launch", "launch_us"))},
    "host.h200.import": lambda: f"{record(HOST_H200)['host']['import_ms']:.0f}",
    **{f"host.h200.{name}": host_median(key) for name, key in (("first", "first_call_ms"), ("cached", "first_call_cached_ms"))},
    "moe.table": moe_table,
    "moe.rows": lambda: str(len(record(MOE)["rows"])),
    "moe.mean": moe("over_products", geometric_mean),
    "moe.most": moe("over_products", max),
    "moe.separate": moe("separate_over", geometric_mean),
    "moe.separate.least": moe("separate_over", min),
}


def filled(text: str, place: str = "a page") -> str:
    """A page with its figures as the records have them. Raises ValueError for a name that is no figure."""
    def figure(found: re.Match[str]) -> str:
        if found["name"] not in FIGURES:
            raise ValueError(f"{place}: `{found['name']}` is no figure of docs/figures.py; figures are {', '.join(FIGURES)}")
        return f"{found[1]}{FIGURES[found['name']]()}{found[4]}"
    return MARK.sub(figure, text)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
