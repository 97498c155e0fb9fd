"""Batch invariance: which configurations add up the products of a row in an order that K and the layout alone decide.

The order of such a configuration: one CTA has the whole K of a tile. Its tensor cores add up instruction after instruction from the first
element of K to the last, in stages of 128 bytes, with zeros past the end. Promoted sums leave the tensor cores after each stage and are
added in that order, each times the product of its two scales. Tile, ring, schedule, cluster, order of tiles and store do not change it.
"""

from __future__ import annotations

from .budget import STAGE_BYTES
from .dense import DenseConfig
from .grouped import GroupedConfig
from .parts import SplitK, StreamK


def varies(config: DenseConfig | GroupedConfig) -> str | None:
    """Why a row's sums have another order than that of batch invariance; None if they have it."""
    bits = config.operands.a.bits if isinstance(config, DenseConfig) else config.operands.x.bits
    if isinstance(config.scheduler, SplitK):
        return f"its {config.scheduler.splits} CTAs share the K of a tile"
    if isinstance(config.scheduler, StreamK):
        return "with stream-K the number of tiles decides where K is cut"
    if isinstance(config, GroupedConfig) and config.streams:
        return "with stream-K the lengths of all groups decide where K is cut"
    if config.tile.BK * bits // 8 != STAGE_BYTES:
        return f"its stages are {config.tile.BK * bits // 8} bytes of K, not {STAGE_BYTES}"
    if isinstance(config, GroupedConfig) and config.swap_ab:
        return "it multiplies weights by tokens, not tokens by weights"
    if isinstance(config, DenseConfig) and config.swap_ab:
        return "it multiplies B^T by A^T, not A by B"
    return None


__all__ = ["varies"]
