"""Random products beside cuBLAS and cuBLASLt, and the plot of docs/random.svg."""

from __future__ import annotations

import math
import re
from statistics import geometric_mean
from typing import Any

from .records import Figure, block, count_of, header, percentile, record, shape_of

RANDOM = {"h100": "2026-11-27-h100-random", "h200": "2026-11-30-h200-random"}
SAMPLE, SAMPLE_H200 = "2026-11-26-h100-sample", "2026-11-28-h200-sample"
TILES = "2026-11-29-h200-tiles"
GAINED = 0.97                   # of the time before, up to which a product is in the table of tiles
BURST = "2026-11-23-h200-burst"

KINDS = {
    "aligned": ("random:6501:150:aligned", "random:7911:150:aligned", "N, K multiples of 64", "#3a7d00"),
    "any8": ("random:6502:150:any8", "random:7912:150:any8", "N, K multiples of 8", "#1f6fb4"),
    "batched": ("random:6503:100 and 6703:150:any8:batched", "random:8013:150:any8:batched", "the same, batches of 2 to 128",
                "#7a5aa6"),
    "e4m3": ("random:6604:150 --dtype e4m3", "random:7604:150 --dtype e4m3", "e4m3, one scale, multiples of 16", "#c96a00"),
    "tf32": ("random:6605:150 --dtype f32", "random:7605:150 --dtype f32", "tf32, multiples of 4", "#b04a5a"),
    "any": ("random:6606:150:any", "random:7606:150:any", "any N, K and base address", "#555555"),
}
"""The run on an H100, that on an H200, what their products are, and their colour in the plot."""

OTHERS = {"burst": f"the {count_of(BURST)()} shapes below", "models": "shapes of models",
          "sustained": "large shapes under sustained load"}


def run_of(kind: str, card: str) -> str:
    return KINDS[kind][list(RANDOM).index(card)] if kind in KINDS else kind


def rows_of(kind: str, card: str) -> list[Any]:
    """The products of a kind whose libraries were timed."""
    return [row for row in record(RANDOM[card])["runs"][run_of(kind, card)] if row[3] is not None]


def ratios(kind: str, card: str = "h100", column: int = 3) -> list[float]:
    """How much longer the better library takes (column 2: cuBLAS), product by product."""
    return [row[column] for row in rows_of(kind, card) if row[column] is not None]


def random_table(card: str) -> Figure:
    def of() -> str:
        lines = header("products | n | better library: geometric mean | 5th percentile | least | below 0.95 | "
                       "cuBLAS, or torch._scaled_mm: geometric mean")
        for kind, title in {**{kind: title for kind, (*_, title, _) in KINDS.items()}, **OTHERS}.items():
            best, cublas = ratios(kind, card), [] if kind == "models" else ratios(kind, card, 2)     # e4m3, among others
            lines.append(f"| {title} | {len(best)} | {geometric_mean(best):.3f} | {percentile(best, 0.05):.3f} | {min(best):.3f} | "
                         f"{sum(ratio < 0.95 for ratio in best)} | {f'{geometric_mean(cublas):.3f} ' if cublas else ''}|")
        return block(lines)
    return of


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


def transfer_table() -> str:
    """The regret on an H200 by what the choice knows: geometric mean and 95th percentile, as the record writes them."""
    lines = header("what the choice knows | M over 64 | batches | 16 to 64 rows | all beside cuBLAS: geometric mean, 5th percentile, least")
    beside = record(SAMPLE_H200)["speed over cuBLAS of all products: geometric mean, 5th percentile, least"]
    for known, told in record(SAMPLE_H200)["regret"].items():
        means = [", ".join(re.findall(r"(?:mean|percentile) ([\d.]+)", line))
                 for kind in ("0 us and more", "batched", "few rows") for line in told if line.startswith(f"{kind}:")]
        lines.append(f"| {known} | {' | '.join(means)} | {', '.join(f'{ratio:.3f}' for ratio in beside.get(known, ()))} |")
    *_, (best, speeds) = beside.items()
    lines.append(f"| {best} | | | | {', '.join(f'{ratio:.3f}' for ratio in speeds)} |")
    return block(lines)


def sample_table(which: str) -> Figure:
    """The regret on an H200 of products of a later sample, by what the choice knows."""
    titles = {"M > 64": "M over 64", "batched": "batches", "few rows": "16 to 64 rows", "long": "long K", "large": "large",
              "e4m3": "e4m3, large", "f32": "tf32"}

    def of() -> str:
        found = record(SAMPLE_H200)[which]["by what the choice knows"]
        kinds = [kind for kind in titles if all(kind in told for told in found.values())]
        lines = header(" | ".join(["what the choice knows", *(titles[kind] for kind in kinds), "all beside cuBLAS"]))
        for known, told in found.items():
            means = ["" if known.startswith("the best") else f"{told[kind][1]:.3f}, {told[kind][2]:.3f}" for kind in kinds]
            lines.append(f"| {known} | {' | '.join(means)} | {', '.join(f'{ratio:.3f}' for ratio in told['all'][4:])} |")
        return block(lines)
    return of


def lost() -> list[list[Any]]:
    """The products that cuBLAS did faster than any tile before."""
    found: list[list[Any]] = record(TILES)["lost"]
    return found


def tiles_table() -> str:
    """What the further tiles gain most in, in us."""
    lines = header("product | cuBLAS | best tile before | best tile now | which")
    lines += [f"| {shape_of(product)} | {cublas:.1f} | {before:.1f} | {now:.1f} | {tile} |"
              for product, cublas, before, now, tile in lost() if now <= GAINED * before]
    return block(lines)


def tiles_sample_table() -> str:
    """What the further tiles gain in random products, each with the best of what was measured."""
    lines = header("products | n | in the mean | most | 5th percentile beside cuBLAS, without and with them | least, without and with")
    for kind, (count, mean, most, low, now, least, least_now) in record(TILES)["sample"].items():
        lines.append(f"| {kind} | {count} | {mean:.4f} | {most:.3f} | {low:.3f}, {now:.3f} | {least:.3f}, {least_now:.3f} |")
    return block(lines)


def random_mean(kind: str, card: str) -> Figure:
    return lambda: f"{geometric_mean(ratios(kind, card)):.2f}"


def random_least(kind: str, card: str) -> Figure:
    return lambda: f"{min(ratios(kind, card)):.2f}"


def random_worst(kind: str, card: str) -> Figure:
    return lambda: shape_of(min(rows_of(kind, card), key=lambda row: float(row[3]))[0])


def points_of(card: str) -> list[tuple[int, float, str]]:
    """Each random product: its operations, how much longer the better library takes, and its colour."""
    return [(2 * math.prod(map(int, row[0].partition(":")[0].split("x"))), row[3], colour)
            for kind, (*_, colour) in KINDS.items() for row in rows_of(kind, card)]


def random_plot() -> str:
    """Each random product as a dot, or as a ring: how many operations it has, and how much longer the better library takes."""
    points, rings = points_of("h100"), points_of("h200")
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
    for place, (*_, title, colour) in enumerate(KINDS.values()):
        across, down = left + 215 * (place % 3), 12 + 16 * (place // 3)
        parts.append(f'<circle cx="{across}" cy="{down}" r="4" fill="{colour}"/><text x="{across + 8}" y="{down + 4}">{title}</text>')
    middle = top + height / 2
    parts.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
                 "time of the better library over that of ptxkit</text>")
    told = {card: f"{record(name)['device']['name']}, {record(name)['date']}" for card, name in RANDOM.items()}
    captions = ("operations of a product (2 M N K)", f"dots: {len(points)} random products on an {told['h100']}",
                f"rings: {len(rings)} others on an {told['h200']}")
    for line, caption in enumerate(captions):
        parts.append(f'<text x="{left + width / 2}" y="{top + height + 34 + 18 * line}" text-anchor="middle" '
                     f'fill="{"#555" if line else "#000"}">{caption}</text>')
    parts.append("</svg>")
    return "".join(parts) + "\n"


def fresh_aligned() -> list[float]:
    """The ratios of products whose extents are multiples of 64, by the choice that ships."""
    return next(list(ratios) for name, ratios in record(RANDOM["h200"]).items() if name.startswith("random:9203"))


FIGURES: dict[str, Figure] = {
    "random.table": random_table("h100"),
    "random.h200.table": random_table("h200"),
    "random.dots": lambda: str(len(points_of("h100"))),
    "random.rings": lambda: str(len(points_of("h200"))),
    "tiles.table": tiles_table,
    "tiles.sample.table": tiles_sample_table,
    "tiles.products": lambda: str(record(TILES)["products"]),
    "tiles.lost": lambda: str(len(lost())),
    "tiles.won": lambda: str(sum(now <= cublas for _, cublas, _, now, _ in lost())),
    **{f"tiles.lost.{name}": lambda place=place: f"{geometric_mean(row[1] / row[place] for row in lost()):.3f}"     # type: ignore[misc]
       for name, place in (("before", 2), ("now", 3))},
    "trees.table": trees_table,
    "trees.h200.table": transfer_table,
    **{f"trees.{which}.table": sample_table(which) for which in ("second", "third", "fourth")},
    **{f"{name}.{kind}{which}": of(kind, card) for card, name in (("h100", "random"), ("h200", "random.h200"))
       for kind in (*KINDS, *OTHERS) for which, of in (("", random_mean), (".least", random_least), (".worst", random_worst))},
    **{f"{name}.e4m3.alone.{which}": lambda card=card, of=of: f"{of(ratios('e4m3', card, 2)):.3f}"     # type: ignore[misc]
       for card, name in (("h100", "random"), ("h200", "random.h200"))
       for which, of in (("low", lambda found: percentile(found, 0.05)), ("least", min))},
    **{f"random.h200.9203.{which}": lambda of=of: f"{of(fresh_aligned()):.3f}"     # type: ignore[misc]
       for which, of in (("mean", geometric_mean), ("low", lambda found: percentile(found, 0.05)), ("least", min))},
}
