"""Layer 3: the producer of a grouped product. It loads tiles of tokens, which may be partial, and tiles of a group's weights."""

from __future__ import annotations

from typing import Any

from ptxkit import Reg, Ring, TensorMap
from ptxkit.ptx import createpolicy, mov
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile
from ptxkit.types import pred

from ..config.grouped import GroupedConfig
from ..scheduler.grouped import GroupWorkTile
from .atoms import ROWS
from .cluster import Cluster
from .gated import GatedCopy
from .pipeline import Pipeline
from .producer import Producer
from .tiled import Multicast, PartialBoxes, TiledCopy
from .warpgroups import loaded


def weights_copy(config: GroupedConfig, w: Any, tile: Tile[Any], multicast: Multicast, hint: Any = None, hinted: Any = None) -> TiledCopy:
    """The copy of a tile of weights; with a gate, of both projections."""
    if not config.operands.gated:
        return TiledCopy(w, tile, multicast, hint, hinted)
    return GatedCopy(w, tile, multicast, hint, hinted, box_rows=ROWS if config.swap_ab else tile.layout.rows // 2)


class GroupProducer:
    """The producer's thread: loads the operands of each work tile.

    `x` and `w` are tensor maps; with "ptr_array" they are functions that return registers for the addresses of each group's maps.
    """

    def __init__(self, config: GroupedConfig, pipeline: Pipeline, cluster: Cluster, x: Any, w: Any, x_tail: TensorMap, a_tile: Tile[Any],
                 b_tile: Tile[Any]) -> None:
        self.config = config
        first = config.loads.weights_evict_first
        hint = createpolicy.fractional.L2__evict_first.b64() if first else None
        self.hinted: Reg[pred] | None = mov.pred(False) if first else None
        of_a, of_b = cluster.of_a(), cluster.of_b()
        self.x, self.w = x() if callable(x) else x, w() if callable(w) else w
        self.boxes = PartialBoxes(mov.u32(0), config.box_rows, config.tail_rows, x_tail) if config.box_rows else None
        if config.swap_ab:
            a: TiledCopy = weights_copy(config, self.w, a_tile, of_a, hint, self.hinted)
            b = TiledCopy(self.x, b_tile, of_b, boxes=self.boxes)
        else:
            a = TiledCopy(self.x, a_tile, of_a, boxes=self.boxes)
            b = weights_copy(config, self.w, b_tile, of_b, hint, self.hinted)
        self.producer = Producer(pipeline, a, b, Ring(config.stages))

    def begin(self, work: GroupWorkTile) -> None:
        """Begin a work tile. Weights that a second tile of tokens reads too get no evict_first hint."""
        if self.hinted is not None:
            mov.pred(self.hinted, work.end - work.start <= self.config.tile_tokens * self.config.along_tokens)
        if self.boxes is not None:
            mov.u32(self.boxes.count, work.until - min_.u32(work.row, work.until))

    def tail(self) -> None:
        """Before the producer exits."""
        loaded(self.config.scheduler.overlap)
        self.producer.tail()


__all__ = ["GroupProducer", "weights_copy"]
