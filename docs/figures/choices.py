"""How much faster random products are with the configurations that are chosen today than with those chosen before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from .grouped import BESIDE, beside_before, kind_of
from .records import Figure, block, header, percentile, record

CHOICES, KINDS = "2026-11-30-h200-choices", "2026-11-30-h200-grouped-kinds"


def rows(section: str) -> list[Any]:
    found: list[Any] = record(CHOICES)[section]["rows"]
    return found


def over(times: Sequence[float]) -> str:
    """The mean and the largest. `times` are ratios: the time of a choice over that of the fastest configuration."""
    return f"{geometric_mean(times):.3f} ({max(times):.2f})"


def groups_table() -> str:
    """Few tiles whose rows are gathered, scattered or quantised: products with another tile, and how far all are from the fastest."""
    lines = header(f"rows | type | products | other tile | {BESIDE} | over the fastest measured: before (most) | now")
    kinds: dict[tuple[str, str], list[Any]] = {}
    for row in rows("groups"):
        kinds.setdefault((row[0], kind_of(row[1])), []).append(row)
    for (what, kind), found in sorted(kinds.items()):
        changed = [row[3] / row[2] for row in found if row[5]]
        before, now = (over([row[place] / row[4] for row in found]) for place in (2, 3))
        lines.append(f"| {what} | {kind} | {len(found)} | {beside_before(changed)} | {before} | {now} |")
    return block(lines)


def along_k_table() -> str:
    """Weight gradients."""
    lines = header("lengths | products | over the fastest measured: before (most) | now | torch / ours before (least) | now")
    for lengths, title in (("even", "alike"), ("skewed", "like 1, 1/2, 1/3")):
        found = [row for row in rows("along k") if row[1] == lengths]
        cells = [over([row[place] / row[4] for row in found]) for place in (2, 3)]
        for place in (2, 3):
            ratios = [row[5] / row[place] for row in found]
            cells.append(f"{geometric_mean(ratios):.3f} ({min(ratios):.2f})")
        lines.append(f"| {title} | {len(found)} | {' | '.join(cells)} |")
    return block(lines)


def scales_table() -> str:
    """Dense products with block scales: random ones, and large ones."""
    lines = header(f"drawn as | products | other configuration | {BESIDE} | over the fastest measured: before (most) | now")
    for title, found in (("any", rows("block scales")), ("large", rows("large block scales"))):
        changed = [row[2] / row[1] for row in found if row[2] != row[1]]
        before, now = (over([row[place] / row[3] for row in found]) for place in (1, 2))
        lines.append(f"| {title} | {len(found)} | {beside_before(changed)} | {before} | {now} |")
    return block(lines)


def contiguous_table() -> str:
    """Contiguous groups: products with another configuration."""
    lines = header(f"type | other configuration | {BESIDE} | over the fastest measured: before (most) | now")
    kinds: dict[str, list[Any]] = {}
    for row in rows("contiguous"):
        kinds.setdefault(kind_of(row[0]), []).append(row)
    for kind, found in sorted(kinds.items()):
        before, now = (over([row[place] / row[3] for row in found]) for place in (1, 2))
        lines.append(f"| {kind} | {beside_before([row[2] / row[1] for row in found])} | {before} | {now} |")
    return block(lines)


def far(times: Sequence[float]) -> str:
    """The mean, the 95th percentile and the largest of such ratios."""
    return f"{geometric_mean(times):.3f} ({percentile(times, 0.95):.2f}, {max(times):.2f})"


def kinds_table(section: str, *, beside: bool = True) -> str:
    """Groups of other kinds, each chosen for by trees that have not seen it."""
    title = ("products | n | over the fastest measured, without trees: mean (95th percentile, most) | with trees | "
             "more than 3 % slower than without")
    lines = header(title + " | DeepGEMM / ours without trees: mean (least) | with trees" * beside)
    learned: dict[str, list[Any]] = record(KINDS)[section]
    for kind, found in sorted(learned.items()):
        slower = sum(row[2] > 1.03 * row[1] for row in found)
        cells = [str(len(found)), *(far([row[place] for row in found]) for place in (1, 2)), str(slower)]
        theirs = [row for row in found if len(row) > 3]
        for place in (1, 2) if beside else ():
            ratios = [row[3] / row[place] for row in theirs]
            cells.append(f"{geometric_mean(ratios):.3f} ({min(ratios):.3f})" if ratios else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return block(lines)


def fresh_table() -> str:
    """Products that were fresh for the trees of one time: how far the choice was from the fastest tile."""
    lines = header("products | n | over the fastest measured, without trees: mean (most) | with trees | more than 3 % slower than "
                   "without | most, beside that")
    found = record(KINDS)["fresh"]
    for what in ("contiguous", "lengths read by the kernel"):
        count, before, most, now, most_now, slower, worst = found[what]
        lines.append(f"| {what} | {count} | {before:.3f} ({most:.2f}) | {now:.3f} ({most_now:.2f}) | {slower} | {worst:.2f} |")
    return block(lines)


def fresh_few_table() -> str:
    """Products of up to 128 tokens that were fresh for the trees and have another tile."""
    lines = header(f"products | other tile | {BESIDE}")
    kinds: dict[str, list[float]] = {}
    for product, before, now in record(KINDS)["fresh few tokens"]["rows"]:
        kinds.setdefault(product.partition(":")[2].replace(":", " "), []).append(now / before)
    lines += [f"| {kind} | {beside_before(ratios)} |" for kind, ratios in sorted(kinds.items())]
    return block(lines)


def fresh_blocks(name: str, form: str = "") -> Figure:
    """A number about the contiguous groups that were fresh for the trees."""
    return lambda: format(record(KINDS)["fresh blocks"][name], form)


def columns_table() -> str:
    """Products of few columns that have another configuration."""
    lines = header(f"columns | other configuration | {BESIDE} | cuBLAS / ours before | now")
    for title, least, most in (("8", 8, 8), ("16, 24", 16, 24), ("32 to 64", 32, 64)):
        found = [row for row in rows("few columns") if least <= int(row[0].split("x")[1]) <= most]
        before, now = (geometric_mean(row[3] / row[place] for row in found) for place in (1, 2))
        lines.append(f"| {title} | {beside_before([row[2] / row[1] for row in found])} | {before:.2f} | {now:.2f} |")
    return block(lines)


FIGURES: dict[str, Figure] = {"choices.groups": groups_table, "choices.along-k": along_k_table, "choices.block-scales": scales_table,
                              "choices.contiguous": contiguous_table, "choices.columns": columns_table,
                              "kinds.table": lambda: kinds_table("learned"),
                              "kinds.few.table": lambda: kinds_table("few tokens", beside=False), "kinds.fresh": fresh_table,
                              "kinds.fresh.few": fresh_few_table,
                              "kinds.contiguous": lambda: str(record(KINDS)["pairs"]["contiguous products"]),
                              "kinds.pairs": lambda: str(record(KINDS)["pairs"]["fastest"]),
                              "kinds.blocks.count": fresh_blocks("products"), "kinds.blocks.before": fresh_blocks("before", ".3f"),
                              "kinds.blocks.now": fresh_blocks("now", ".3f"), "kinds.blocks.most": fresh_blocks("most", ".2f"),
                              "kinds.blocks.slower": fresh_blocks("slower")}
