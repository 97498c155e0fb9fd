"""A configuration as C launches it: its kernel, where each of the kernel's arguments comes from, and what its grid follows from."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ptxkit.dsl.arguments import FORMATS
from ptxkit.dsl.parameters import Parameter
from ptxkit.export.kernel import Argument, Entry, ExportError, entry
from ptxkit.runtime.launcher import fetch_modes
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..config.parts import BlockScaled, Direct, Dynamic, Hilbert, SplitK, StreamK, Swizzle
from ..launch.grid import kernel_of
from .choices import Layer

MAPS = {"a": "PX_MAP_A", "b": "PX_MAP_B", "d": "PX_MAP_D", "sfa_map": "PX_MAP_A_SCALE"}
SOURCES = {
    "shape_m": "PX_M", "shape_n": "PX_N", "shape_m_tiles": "PX_M_TILES", "shape_n_tiles": "PX_N_TILES", "shape_k_tiles": "PX_K_TILES",
    "divmod_line": "PX_LINE", "divmod_panel": "PX_PANEL", "divmod_batch": "PX_BATCH", "out_pointer": "PX_D", "out_row": "PX_LDD",
    "curve": "PX_CURVE", "counters": "PX_COUNTERS", "workspace": "PX_SUMS", "fused_a_scale": "PX_A_SCALE", "fused_b_scale": "PX_B_SCALE",
    "sfa_pointer": "PX_A_SCALE", "sfb_pointer": "PX_B_SCALE"}
"""Where C takes the arguments of dense kernels from, by the names of PTX parameters."""
BLOCK_SOURCES = {"sfa_k_stride": "PX_A_SCALE_LD", "sfb_mn_stride": "PX_B_SCALE_LD"}
CONSTANTS = {"shape_batches": 1, "out_batch": 0, "fused_alpha": 1.0, "fused_beta": 0.0, "fused_c_pointer": 0, "fused_c_row": 0,
             "fused_c_batch": 0, "fused_bias": 0, "fused_residual_pointer": 0, "fused_residual_row": 0, "fused_residual_batch": 0,
             "sfa_mn_stride": 0, "sfa_k_stride": 0, "sfb_mn_stride": 0, "sfb_k_stride": 0}
BLOCK_CONSTANTS = {"sfa_mn_stride": 1, "sfb_k_stride": 1}
UNIT = 16               # bytes, at multiples of which lines of tensor copies begin


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration in C. `values` are the kernel's arguments: an enumerator of gemm.c, and the constant where it is one."""

    config: DenseConfig
    entry: Entry
    values: tuple[tuple[str, int], ...]
    maps: dict[str, Argument]
    promotion: int
    scheduler: str
    panel: int
    along_m: bool
    hilbert: bool
    d_unit: int
    scale_unit: int


def plan(config: DenseConfig, layer: Layer) -> Plan:
    """The plan of a configuration that was chosen for a layer. Raises ExportError for what only Python launches."""
    order = config.scheduler.order
    if config.by_threads or config.loads.align:
        raise ExportError(f"{layer}: rows do not begin at multiples of {UNIT} bytes, so the choice copies operands by threads ({config}), "
                          "which only Python launches: pad N and K, or export a product whose rows are such multiples")
    traced = kernel_of(config).trace(**config.parameters)
    assembly = assemble(traced.ptx(locs=True), traced.module.target[0], lines=traced.positions())
    sums = config.sums
    block = isinstance(sums, BlockScaled)
    read = [parameter for parameter in traced.parameters if parameter.kind != "tensormap" or parameter.name in traced.copies.records]
    made = entry(traced, assembly, parameters=read)
    maps = {argument.parameter.name: argument for argument in made.arguments if argument.box is not None}
    swizzle = order if isinstance(order, Swizzle) else Swizzle()
    return Plan(config, made, tuple(_value(parameter, maps, block) for parameter in traced.parameters), maps,
                fetch_modes(0, config.loads.l2_fetch)[1], _scheduler(config), swizzle.size, swizzle.raster == "along_m",
                isinstance(order, Hilbert), _d_unit(config, layer), UNIT if isinstance(sums, BlockScaled) and sums.load != "warp" else 4)


def _value(parameter: Parameter, maps: dict[str, Argument], block: bool) -> tuple[str, int]:
    name = parameter.name
    if parameter.kind == "tensormap":
        return (MAPS[name] if name in maps else "PX_NO_MAP"), 0
    if block and name in BLOCK_SOURCES:
        return BLOCK_SOURCES[name], 0
    if name in SOURCES:
        return SOURCES[name], 0
    given = {**CONSTANTS, **(BLOCK_CONSTANTS if block else {})}
    if name not in given:
        raise ExportError(f"an export does not know the argument `{name}` of this kernel")
    return "PX_CONSTANT", _bits(parameter, given[name])


def _bits(parameter: Parameter, value: Any) -> int:
    word = "u64" if parameter.kind == "pointer" or parameter.type is None else parameter.type.__name__
    return int.from_bytes(struct.pack("<" + FORMATS[word], value), "little")


def _scheduler(config: DenseConfig) -> str:
    scheduler = config.scheduler
    if isinstance(scheduler, SplitK):
        return "PX_SPLIT_IN_CLUSTER" if scheduler.reduce == "cluster" else "PX_SPLIT_IN_WORKSPACE"
    return "PX_STREAM_K" if isinstance(scheduler, StreamK) else "PX_DYNAMIC" if isinstance(scheduler, Dynamic) else "PX_STATIC"


def _d_unit(config: DenseConfig, layer: Layer) -> int:
    """The bytes at multiples of which D and its rows must begin."""
    size = TYPES[layer.out].bits // 8
    if config.staged:
        return UNIT
    return size * config.store.elements if isinstance(config.store, Direct) else size


__all__ = ["Plan", "plan"]
