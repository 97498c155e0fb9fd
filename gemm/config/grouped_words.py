"""The configuration of a grouped kernel in words: what reports, records and exports say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grouped_parts import DynamicGroups, StagedGroups
from .parts import L2_FETCH, BlockScaled, Pingpong, ThreadScaled

if TYPE_CHECKING:
    from .grouped import GroupedConfig


def in_words(config: GroupedConfig) -> str:
    """The tile, then what differs from the usual."""
    tile, scheduler, loads, sums, cluster = config.tile, config.scheduler, config.loads, config.sums, config.scheduler.cluster
    pingpong = isinstance(config.schedule, Pingpong)
    order = scheduler.order
    words = [f"{tile.BM}x{tile.BN}x{tile.BK}", f"{config.stages} stages",
             "pingpong" if pingpong else f"{config.warpgroups} mma warpgroup{'s' if config.warpgroups > 1 else ''}",
             f"cluster {cluster.m}x{cluster.n}" if cluster.size > 1 else "",
             f"{order.raster.replace('_', ' ')} by {order.size}" + (" serpentine" if order.serpentine else ""),
             {"overlap": "overlapped promotion", "stagger": "staggered promotion"}.get(getattr(sums, "how", ""), ""),
             "staggered promotion" if isinstance(sums, ThreadScaled) and sums.stagger else "",
             f"{loads.l2_prefetch_stages} stages prefetched" if loads.l2_prefetch_stages else "",
             f"L2 by {loads.l2_fetch} bytes" if loads.l2_fetch != L2_FETCH else "", "" if config.staged else "direct stores",
             "swap AB" if config.swap_ab else "", "dynamic" if config.dynamic else getattr(scheduler, "find", "").replace("linear", ""),
             f"stream-K by up to {scheduler.most}" if config.streams else "",
             f"next kernel after the {scheduler.overlap}" if scheduler.overlap != "start" else "",
             "gathered" if config.operands.gathered else "", "gated" if config.operands.gated else "",
             "quantised" if config.operands.quantised else "", {"rows": "scattered", "add": "added"}.get(config.operands.scatter, ""),
             "weights evict first" if loads.weights_evict_first else "",
             "scales through shared memory" if isinstance(sums, BlockScaled) else "",
             "partial boxes" if config.tokens.partial_boxes else "",
             f"tail rows by {config.tail_rows}" if config.tail_rows else "",
             f"columns by {config.n_granularity}" if config.n_granularity else "",
             "longest groups first" if scheduler.longest_first else "",
             f"{scheduler.from_tail} from the tail" if isinstance(scheduler, DynamicGroups) and scheduler.from_tail else "",
             "a map of each group" if isinstance(config.store, StagedGroups) and config.store.ends == "tensormap" else ""]
    said = ", ".join(word for word in words if word)
    return said if config.second is None else f"{said}; or by the lengths {config.second}"


__all__ = ["in_words"]
