"""The grid of a dense product and the arguments of its kernel by name, for a GPU and for the CPU device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.traced import Traced
from ptxkit.runtime.images import Image

from ..config.dense import DenseConfig
from ..config.parts import BlockScaled, ConfigError, Dynamic, Hilbert, SplitK, StreamK, Swizzle
from ..kernels.dense import gemm
from ..kernels.dense_blockscaled import gemm_blockscaled
from ..kernels.dense_copied import gemm_copied
from ..kernels.dense_split_k import gemm_split_k
from ..problem.dense import MOST_TILES, Options, Problem
from ..problem.lines import Operand
from ..scheduler.hilbert import MAX_PLACES
from ..scheduler.stream_k import MIN_STAGES_OF_PART
from ..scheduler.work import TileDivmod
from .aligning import Copy, copies

COUNTER_BYTES = 64 << 10    # counters at the start of a workspace; they are zeros between launches, and no partial sums lie there


def kernel_of(config: DenseConfig) -> Kernel[...]:
    """The kernel that a configuration specialises."""
    if config.by_threads:
        return gemm_copied
    if isinstance(config.scheduler, SplitK | StreamK):
        return gemm_split_k
    return gemm_blockscaled if isinstance(config.sums, BlockScaled) else gemm


@dataclass(frozen=True, slots=True)
class Grid:
    """A persistent grid: one cluster for each work tile, but at most as many as the device holds at once."""

    ctas: tuple[int, int, int]
    tiles: tuple[int, int, int]                 # tiles along M and N, stages along K
    workspace_bytes: int                        # counters, then partial sums
    divmod: TileDivmod
    curve: tuple[int, int] | None = None        # rows and columns of cluster tiles, for a Hilbert order
    copies: tuple[Copy, ...] = ()               # of operands, in the workspace
    swap_ab: bool = False                       # whether the kernel multiplies D^T = B^T A^T

    @classmethod
    def of(cls, problem: Problem, config: DenseConfig, clusters: int) -> Grid:
        """The grid for a device that holds `clusters` clusters at once."""
        tile, cluster, order = config.tile, config.multicast, config.scheduler.order
        tiles = *config.tiles(problem.m, problem.n), -(-problem.k // tile.BK)
        places = -(-tiles[0] // cluster.m), -(-tiles[1] // cluster.n)
        whole = places[0] * places[1] * (problem.batches or 1)
        spread, streams = config.splits_in_workspace, isinstance(config.scheduler, StreamK)
        count = whole * (config.splits if spread else 1)
        resident = count if config.splits_in_cluster else min(count, max(clusters, config.splits if spread else 1))
        if count >= MOST_TILES:
            raise ConfigError(f"{count:,} work tiles are too many for their 32-bit numbers: launch parts of the batch")
        shared = whole * cluster.size                           # tiles whose K is split, of whole clusters
        if spread and shared * config.warpgroups * 4 > COUNTER_BYTES:
            raise ConfigError(f"{shared} tiles are too many to split their K: a workspace has {COUNTER_BYTES // 4} counters, "
                              f"{config.warpgroups} a tile; take another scheduler than SplitK")
        if streams:
            resident = max(1, min(clusters, max(whole, whole * tiles[2] // MIN_STAGES_OF_PART)))
        if streams and resident * config.cluster * config.warpgroups * 4 > COUNTER_BYTES:
            raise ConfigError(f"{resident * config.cluster} CTAs are too many for the flags of a workspace: take another scheduler than "
                              "StreamK")
        bytes = COUNTER_BYTES if spread or streams or isinstance(config.scheduler, Dynamic) else 0
        bytes += (shared * config.splits if spread else resident * config.cluster if streams else 0) * tile.BM * tile.BN * 4
        if isinstance(order, Hilbert) and max(places) > MAX_PLACES:
            raise ConfigError(f"a curve goes through at most {MAX_PLACES:,} rows and columns of tiles, not {max(places):,}: take Swizzle()")
        made = copies(problem, config.loads.align, max(bytes, COUNTER_BYTES))
        bytes = made[-1].offset + made[-1].bytes if made else bytes
        swizzle = order if isinstance(order, Swizzle) else Swizzle()
        divmod = TileDivmod.of(*places, swizzle.size, swizzle.raster == "along_m")
        return cls((resident * config.cluster, 1, 1), tiles, bytes, divmod, places if isinstance(order, Hilbert) else None, made,
                   config.swap_ab)

    def arguments(self, problem: Problem, options: Options, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The arguments of any dense kernel by name, without tensor maps. `pointer` maps a name to an address: the name of an array,
        "workspace", "counters" or "curve"."""
        if self.swap_ab:
            problem = problem.swapped
        # With scales of rows or columns those of the kernel's A are the caller's of B. Two scales are multiplied in the caller's order.
        vectors = self.swap_ab and problem.fusion.scale != "whole"
        a_scale, b_scale = ("b_scale", "a_scale") if vectors else ("a_scale", "b_scale")

        def strided(name: str, strides: tuple[int, int]) -> dict[str, Any]:
            return {"pointer": pointer(name), "row": strides[0], "batch": strides[1]}

        def scales(name: str, mn: int, k: int) -> dict[str, Any]:
            return {"pointer": pointer(name), "mn_stride": mn, "k_stride": k}

        def source(name: str, operand: Operand) -> dict[str, Any]:
            line, inner, batch = operand.strides
            return {"pointer": pointer(name), "line": line, "inner": inner, "batch": batch}

        (out, c, residual), (sfa, sfb) = problem.strides, problem.s_strides
        m_tiles, n_tiles, k_tiles = self.tiles
        return {"shape": {"m": problem.m, "n": problem.n, "m_tiles": m_tiles, "n_tiles": n_tiles, "k_tiles": k_tiles,
                          "batches": problem.batches or 1},
                "k": problem.k, "a_source": source("a", problem.of_a), "b_source": source("b", problem.of_b),
                "out": strided("out", out), "workspace": pointer("workspace"), "counters": pointer("counters"),
                "fused": {"alpha": options.alpha, "beta": options.beta, "c": strided("c", c), "bias": pointer("bias"),
                          "residual": strided("residual", residual), "a_scale": pointer(a_scale), "b_scale": pointer(b_scale)},
                "sfa": scales("a_scale", *sfa), "sfb": scales("b_scale", *reversed(sfb)), "curve": pointer("curve"), "divmod": self.divmod}


def scalars(traced: Traced | Image, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The launch arguments besides tensor maps, in the kernel's order, from arguments by name: numbers, and records of them."""
    found = dict(_flat("", named))
    return tuple(found[parameter.name] for parameter in traced.parameters if parameter.name in found)


def _flat(prefix: str, given: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a record, or of a mapping of them, by the names of their PTX parameters."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield from _flat(f"{prefix}_{name}" if prefix else name, value)
    elif is_dataclass(given) and not isinstance(given, type):
        for field in fields(given):
            yield from _flat(f"{prefix}_{field.name}", getattr(given, field.name))
    else:
        yield prefix, given


def places(traced: Traced | Image) -> dict[str, int]:
    """The place of each of `scalars`, by the name of its PTX parameter."""
    names = [parameter.name for parameter in traced.parameters if parameter.kind != "tensormap"]
    return {name: place for place, name in enumerate(names)}


__all__ = ["COUNTER_BYTES", "Grid", "kernel_of", "places", "scalars"]
