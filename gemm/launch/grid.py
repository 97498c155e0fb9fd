"""How many CTAs a launch has, and the numbers that the kernel is given; the same for a GPU and for the CPU device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..collective.stream_k import LEAST
from ..config.dense import Config, ConfigError
from ..problem.dense import Arrays, Options, Problem
from ..scheduler.hilbert import MOST
from ..scheduler.static import Inverses

_WORKSPACE = slice(9, 11)   # of the scalars: workspace, counters
OUT = 6                     # of the scalars: the pointer of D
COUNTER_BYTES = 64 << 10    # at the start of a workspace, always zeros between launches: no partial sums of any launch lie there


@dataclass(frozen=True, slots=True)
class Grid:
    """Persistent: as many clusters as there are units of work, or as the device holds at once."""

    ctas: tuple[int, int, int]
    tiles: tuple[int, int, int]                 # along M, N and stages along K
    workspace_bytes: int                        # counters, then partial sums
    inverses: Inverses                          # of what places are found by
    curve: tuple[int, int] | None = None        # rows and columns of the units that are taken along a Hilbert curve

    @classmethod
    def of(cls, problem: Problem, config: Config, clusters: int) -> Grid:
        """For a device that holds `clusters` clusters at once."""
        tiles = -(-problem.m // config.BM), -(-problem.n // config.BN), -(-problem.k // config.BK)
        places = -(-tiles[0] // config.CLUSTER_M), -(-tiles[1] // config.CLUSTER_N)
        units = places[0] * places[1] * (problem.batches or 1)
        in_cluster = config.SPLITS > 1 and config.REDUCE == "cluster"
        shared = config.SPLITS > 1 and not in_cluster
        count = units * (config.SPLITS if shared else 1)
        resident = count if in_cluster else min(count, max(clusters, config.SPLITS if shared else 1))
        if shared and units * config.CONSUMERS * 4 > COUNTER_BYTES:
            raise ConfigError(f"{units} tiles are too many to split their depth: a workspace has {COUNTER_BYTES // 4} counters, "
                              f"{config.CONSUMERS} a tile; take SPLITS=1")
        if config.STREAM_K:
            resident = max(1, min(clusters, max(units, units * tiles[2] // LEAST)))
        if config.STREAM_K and resident * config.cluster * config.CONSUMERS * 4 > COUNTER_BYTES:
            raise ConfigError(f"{resident * config.cluster} CTAs are too many for the flags of a workspace: take STREAM_K=False")
        bytes = COUNTER_BYTES if shared or config.TICKET or config.STREAM_K else 0
        sums = units * config.SPLITS if shared else resident * config.cluster if config.STREAM_K else 0
        bytes += sums * config.BM * config.BN * 4
        if config.RASTER == "hilbert" and max(places) > MOST:
            raise ConfigError(f"a curve goes through at most {MOST:,} rows and columns of tiles, not {max(places):,}: "
                              "take RASTER=\"along_m\"")
        inverses = Inverses.of(*places, config.GROUP, config.RASTER)
        return cls((resident * config.cluster, 1, 1), tiles, bytes, inverses, places if config.RASTER == "hilbert" else None)

    def scalars(self, problem: Problem, arrays: Arrays, options: Options, pointers: Any = None, *, order: int = 0) -> tuple[Any, ...]:
        """The kernel's arguments besides tensor maps. `pointers` maps the name of an array to what stands for its pointer; `order` is
        where the table of a curve lies."""
        def pointer(name: str) -> Any:
            if pointers is not None:
                return pointers(name)
            array = getattr(arrays, name)
            return 0 if array is None else array.pointer

        (out_row, out_batch), (c_row, c_batch), (residual_row, residual_batch) = problem.strides
        a_scale, b_scale = (None if s is None or not problem.block_scales else s.strides for s in (arrays.a_scale, arrays.b_scale))
        a_strides, b_strides = a_scale or (0, 0), b_scale or (0, 0)
        return (problem.m, problem.n, *self.tiles, problem.batches or 1, pointer("out"), out_row, out_batch,
                pointer("workspace") if pointers else 0, pointer("counters") if pointers else 0,
                options.alpha, options.beta, pointer("c"), c_row, c_batch, pointer("bias"), pointer("residual"), residual_row,
                residual_batch, pointer("a_scale"), a_strides[0], a_strides[1], pointer("b_scale"), b_strides[1], b_strides[0],
                order if pointers is None else pointer("order"), *self.inverses)

    @staticmethod
    def with_workspace(scalars: tuple[Any, ...], workspace: int) -> tuple[Any, ...]:
        """The arguments with the workspace in place: counters first, partial sums behind them."""
        return (*scalars[:_WORKSPACE.start], workspace + COUNTER_BYTES, workspace, *scalars[_WORKSPACE.stop:])


__all__ = ["COUNTER_BYTES", "Grid"]
