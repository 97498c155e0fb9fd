"""Group products beside torch, DeepGEMM and hpc-ops; weight gradients; layers of experts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import Any

from .records import MEANS, Figure, block, ceilings, count_of, digits, header, percentile, record

GROUPED = "2026-11-24-h200-grouped"
GROUPED_RANDOM, RANDOM_H200 = "2026-11-26-h100-grouped-random", "2026-11-29-h200-grouped-random"
FEW = "2026-11-30-h200-grouped-few"
SHARING, NARROW = "2026-11-29-h200-grouped-stream-k", "2026-11-30-h200-grouped-narrow"
DEEP_GEMM, DEEP_GEMM_H200 = "2026-11-27-h100-deepgemm", "2026-11-30-h200-deepgemm"
WEIGHTS, WEIGHTS_H200 = "2026-11-26-h100-weight-gradients", "2026-12-01-h200-weight-gradients"
MOE, MOE_H200 = "2026-11-27-h100-moe", "2026-11-28-h200-moe"

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


def grouped_case(case: str) -> Figure:
    """The same of one case."""
    def of() -> str:
        (row,) = (row for row in record(GROUPED)["rows"] if row["case"] == case)
        seen = row["contestants"]
        return f"{min(seen[peer]['us'] for peer in PEERS if peer in seen) / seen['ours']['us']:.2f}"
    return of


RANDOM: dict[str, Callable[[], list[float]]] = {
    "grouped-random": lambda: [row[2] for row in record(GROUPED_RANDOM)["random"]["rows"]],
    "grouped-random.fresh": lambda: [row[2] for row in record(GROUPED_RANDOM)["random"]["fresh rows"]],
    **{f"grouped-random.h200.{seed}": functools.partial(lambda name, seed: list[float](record(name)[f"random:{seed}:160:any8"]), name, seed)
       for name, seeds in ((RANDOM_H200, (8871, 8891, 8911, 8931, 8941, 9172)), (FEW, (8951, 8961))) for seed in seeds},
}
"""How much longer torch takes, of group products with random lengths, by the title of their figures."""


def grouped_random(of: Callable[[list[float]], str], ratios: Callable[[], list[float]]) -> Figure:
    return lambda: of(ratios())


def tiles_table() -> str:
    """What trees choose of measured tiles: products whose rows straddle lines."""
    found = record(RANDOM_H200)["tiles"]
    lines = header("what is chosen | " + " | ".join(found["columns"]))
    for what in ("without trees", "trees that have not seen the product", "the best tile"):
        lines.append(f"| {what} | {' | '.join(f'{value:.3f}' for value in found[what])} |")
    return block(lines)


def sharing_table() -> str:
    """What shared K gains in products for which it is chosen."""
    found = record(SHARING)["summary"]
    lines = header("products | " + " | ".join(found["columns"]))
    lines += [f"| {what} | {' | '.join(str(value) if isinstance(value, int) else f'{value:.3f}' for value in row)} |"
              for what, row in found.items() if what != "columns"]
    return block(lines)


BESIDE = "time beside before: mean | least | most | more than 3 % slower"
"""The titles of the cells of `beside_before`, after the number of products."""


def kind_of(case: str) -> str:
    """The type of a case, and whether it has a gate."""
    return case.split(":")[1] + ", gate" * (":gated" in case)


def beside_before(times: Sequence[float]) -> str:
    """The cells of a row of a table. `times` are ratios: the time of a choice over that of the choice before."""
    return (f"{len(times)} | {geometric_mean(times):.3f} | {min(times):.3f} | {max(times):.3f} | "
            f"{sum(time > 1.03 for time in times)}")


def few_table() -> str:
    """What trees gain for groups of few tokens, where they choose another tile."""
    lines = header(f"products | other tile | {BESIDE} | torch / ours before | now")
    kinds: dict[str, Callable[[int, int], bool]] = {
        "all": lambda tokens, k: True, "up to 16 tokens": lambda tokens, k: tokens <= 16, "17 to 64": lambda tokens, k: 16 < tokens <= 64,
        "65 to 128": lambda tokens, k: tokens > 64, "K up to 256": lambda tokens, k: k <= 256, "K over 1,024": lambda tokens, k: k > 1024}
    for title, wanted in kinds.items():
        found = [row for row in record(FEW)["rows"] if wanted(int(row[0].split("x")[1]), int(row[0].split(":")[0].split("x")[3]))]
        now, before = ([row[3] / row[place] for row in found] for place in (1, 2))
        times = beside_before([row[1] / row[2] for row in found])
        lines.append(f"| {title} | {times} | {geometric_mean(before):.2f} | {geometric_mean(now):.2f} |")
    return block(lines)


def narrow_table() -> str:
    """What narrower tiles gain where the choice takes them, by how products were drawn and their type."""
    lines = header(f"drawn as | type | other tile | {BESIDE}")
    times: dict[tuple[str, str], list[float]] = {}
    for drawn, case, before, now, *_ in record(NARROW)["rows"]:
        times.setdefault((drawn, kind_of(case)), []).append(now / before)
    return block([*lines, *(f"| {drawn} | {kind} | {beside_before(found)} |" for (drawn, kind), found in sorted(times.items()))])


DEEP_GEMM_LAYOUTS = (("`group_gemm` | contiguous", "ours", "deep_gemm"),
                     ("`group_gemm_contiguous` | contiguous", "ours_contiguous", "deep_gemm"),
                     ("`group_gemm_masked` | masked", "ours_masked", "deep_gemm_masked"))
"""Our function and DeepGEMM's layout, then what a record calls both."""


def deep_gemm_table(name: str = DEEP_GEMM) -> str:
    """How much longer DeepGEMM takes, by type and layout."""
    lines = header("type | ours | DeepGEMM's layout | n | geometric mean | 5th percentile | least | the least is of")
    columns = record(name)["columns"]
    for kind in ("bf16", "fp8-block"):
        for layout, ours, theirs in DEEP_GEMM_LAYOUTS:
            if ours not in columns:
                continue
            found = {row[0]: row[columns.index(theirs)] / row[columns.index(ours)] for row in record(name)["rows"]
                     if f":{kind}:" in row[0] and row[columns.index(theirs)] and row[columns.index(ours)]}
            least, all_ = min(found, key=found.__getitem__), list(found.values())
            lines.append(f"| {kind} | {layout} | {len(all_)} | {geometric_mean(all_):.3f} | {percentile(all_, 0.05):.3f} | "
                         f"{found[least]:.3f} | {least.partition(':')[0]} |")
    return block(lines)


def against_commit(which: str, name: str = GROUPED_RANDOM) -> Figure:
    """The time at an earlier commit over that now, the cases of the tables."""
    return lambda: f"{MEANS[which]([before / after for _, before, after in record(name)['before and after']['rows']]):.3f}"


def weights_ratio(row: Any) -> float:
    """torch's time over that of the configuration that is chosen, a weight gradient. Some rows have the times of others, too."""
    return float(row["ratio"][row["choice"]] if "choice" in row else row["ratio"])


def weights_table() -> str:
    """Each weight gradient: what it reaches, and over torch's."""
    found = header("groups x mean length x M x N | lengths | tile, cluster | TFLOP/s | times as fast as torch")
    for row in record(WEIGHTS)["rows"]:
        shape, choice = [row[name] for name in ("groups", "mean", "m", "n")], row["choice"]
        found.append(f"| {' x '.join(map(str, shape))} | {row['lengths']} | {', '.join(choice.split()[:2])} | "
                     f"{2e-6 * math.prod(shape) / row['us'][choice]:.0f} | {weights_ratio(row):.2f} |")
    return block(found)


def weights_chosen() -> str:
    """Weight gradients: what trees change, and then what parts of long groups do, in random products and in extents of models."""
    lines = header(f"products | n | by | other configuration | {BESIDE} | torch / ours before (5th percentile, least) | now")
    titles = {"random": "random, seed 66", "models": "extents of models", "thin": "one group or thin results, seed 72"}
    for section, title in titles.items():
        found = record(WEIGHTS_H200)[section]["rows"]
        steps = [[(row[0], row[1]) for row in found], [(row[1], row[3] if len(row) > 3 else row[1]) for row in found]]
        for by, times in zip(("trees", "parts"), steps, strict=True):
            changed = [now / before for before, now in times if now != before]
            ratios = ([row[2] / time[place] for row, time in zip(found, times, strict=True)] for place in range(2))
            cells = [f"{geometric_mean(each):.2f} ({percentile(each, 0.05):.2f}, {min(each):.2f})" for each in ratios]
            if changed:
                lines.append(f"| {title} | {len(found)} | {by} | {beside_before(changed)} | {' | '.join(cells)} |")
    return block(lines)


def sort_table() -> str:
    """What sorting the table of groups takes, by two ways."""
    lines = header("groups | `group_gemm_k`: counted, us | sorted, us | `group_gemm`, longest groups first: counted, us | sorted, us")
    return block([*lines, *(f"| {' | '.join(map(digits, row))} |" for row in record(WEIGHTS_H200)["sort"]["rows"] if row[0] > 64)])


def weights(name: str, lengths: str) -> Figure:
    """The mean over long groups."""
    def of() -> str:
        rows = [row for row in record(name)["rows"] if row["lengths"] == lengths and row["mean"] >= 4096]
        return f"{geometric_mean(map(weights_ratio, rows)):.2f}"
    return of


def prices() -> dict[str, float]:
    """What a fixed order along K costs: the time with it over that without, product by product."""
    return {name: us["invariant"] / us["ours"] for name, us in record(GROUPED_RANDOM)["batch invariance"]}


def price_of(product: str) -> Figure:
    return lambda: f"{next(price for name, price in prices().items() if name.startswith(product + ':')):.1f}"


def price_of_others() -> str:
    """The least and the most of products whose price is below two."""
    found = [price for price in prices().values() if price < 2]
    return f"{min(found):.2f} to {max(found):.1f}"


def moe_table() -> str:
    lines = header("layer | experts x tokens of one | us | over its products | copied | separate")
    for row in record(MOE)["rows"]:
        us, name = row["us"], row["name"].replace(" gate_up", "").replace(",", "")
        lines.append(f"| {name} | {row['experts']} x {row['mean']:,} | {digits(us['layer'])} | {row['over_products']:.3f} | "
                     + " | ".join(f"{us[other] / us['experts']:.3f}" for other in ("copied", "separate")) + " |")
    return block(lines)


def moe(name: str, key: str, of: Callable[[list[float]], float], places: int = 2) -> Figure:
    return lambda: f"{of([row[key] for row in record(name)['rows']]):.{places}f}"


FIGURES: dict[str, Figure] = {
    "weights.table": weights_table,
    "weights.chosen": weights_chosen,
    "weights.sort": sort_table,
    **{f"{title}.{lengths}": weights(name, lengths) for title, name in (("weights", WEIGHTS), ("weights.h200", WEIGHTS_H200))
       for lengths in ("even", "skewed")},
    "grouped.count": count_of(GROUPED),
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
    "order.count": lambda: str(len(prices())),
    "order.mean": lambda: f"{geometric_mean(prices().values()):.2f}",
    "order.others": price_of_others,
    **{f"order.{product}": price_of(product) for product in ("152x224x9496", "56x824x15752", "40x3392x15984")},
    **{f"{title}.{figure}": grouped_random(of, ratios) for title, ratios in RANDOM.items()
       for figure, of in {"count": lambda ratios: str(len(ratios)), "mean": lambda ratios: f"{geometric_mean(ratios):.3f}",
                          "p5": lambda ratios: f"{percentile(ratios, 0.05):.3f}", "least": lambda ratios: f"{min(ratios):.3f}"}.items()},
    **{f"grouped-random.{card}against.{which}": against_commit(which, name) for which in MEANS
       for card, name in (("", GROUPED_RANDOM), ("h200.", RANDOM_H200))},
    "grouped.tiles": tiles_table,
    "grouped.sharing": sharing_table,
    "grouped.narrow": narrow_table,
    "grouped.deepgemm.h200": lambda: deep_gemm_table(DEEP_GEMM_H200),
    "grouped.few": few_table,
    "grouped.few.cases": lambda: str(record(FEW)["cases"]),
    "moe.table": moe_table,
    "moe.rows": lambda: str(len(record(MOE)["rows"])),
    **{f"{title}.{which}": figure for title, name in (("moe", MOE), ("moe.h200", MOE_H200))
       for which, figure in {"mean": moe(name, "over_products", geometric_mean), "most": moe(name, "over_products", max),
                             "separate": moe(name, "separate_over", geometric_mean),
                             "separate.least": moe(name, "separate_over", min)}.items()},
}
