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


def kinds_table(section: str) -> str:
    """Groups of other kinds, each chosen for by trees that have not seen it."""
    lines = header("products | n | over the fastest measured tile, without trees: mean (95th percentile, most) | with trees | "
                   "with the begin of the next kernel, too | more than 3 % slower than without trees")
    learned: dict[str, list[Any]] = record(KINDS)[section]
    for kind, found in sorted(learned.items()):
        slower = sum(row[3] > 1.03 * row[1] for row in found)
        cells = [str(len(found)), *(far([row[place] for row in found]) for place in (1, 2, 3)), str(slower)]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return block(lines)


def fresh_table() -> str:
    """Products that no trees have seen: where the choice has changed, its time over that of the choice before."""
    lines = header(f"seed | products | n | other tile or begin | {BESIDE}")
    found = record(KINDS)["fresh"]
    for seed in ("131", "141"):
        lines += [f"| {seed} | {kind} | {one['products']} | {beside_before(one['changed'])} |"
                  for kind, one in found[seed].items() if isinstance(one, dict) and one["changed"]]
    return block(lines)


def begins_table() -> str:
    """Two tiles of some products by the begin of the next kernel."""
    lines = header("product | layout | DeepGEMM | tile | start | loads | end")
    for product, layout, theirs, tiles in record(KINDS)["begins"]["rows"]:
        for name, *us in tiles:
            lines.append(f"| {product} | {layout} | {theirs:.1f} | {name} | {' | '.join(f'{each:.1f}' for each in us)} |")
    return block(lines)


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
                              "kinds.table": lambda: kinds_table("learned"), "kinds.few.table": lambda: kinds_table("few tokens"),
                              "kinds.fresh": fresh_table, "kinds.begins": begins_table,
                              "kinds.contiguous": lambda: str(record(KINDS)["pairs"]["contiguous products"]),
                              "kinds.pairs": lambda: str(record(KINDS)["pairs"]["fastest"])}
