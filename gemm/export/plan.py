"""A configuration as C launches it: its kernel, where each of the kernel's arguments comes from, and what its grid follows from."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptxkit.dsl.arguments import FORMATS
from ptxkit.dsl.parameters import Parameter
from ptxkit.export.exported import Argument, Entry, ExportError
from ptxkit.export.kernel import entry
from ptxkit.runtime.launcher import fetch_modes
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..config.parts import AsyncCopies, BlockScaled, Direct, Dynamic, Hilbert, SplitK, StreamK, Swizzle, TensorCopies
from ..kernels.align_lines import align_lines
from ..launch.aligning import copies
from ..launch.grid import kernel_of
from .choices import Layer

if TYPE_CHECKING:
    from ptxkit.dsl.traced import Traced
    from ptxkit.runtime.toolchain import Assembly

MAPS = {"a": "PX_MAP_A", "b": "PX_MAP_B", "d": "PX_MAP_D", "sfa_map": "PX_MAP_A_SCALE"}
SOURCES = {
    "a_source_pointer": "PX_A", "a_source_line": "PX_A_LINE", "a_source_inner": "PX_A_INNER", "b_source_pointer": "PX_B",
    "b_source_line": "PX_B_LINE", "b_source_inner": "PX_B_INNER", "k": "PX_K", "shape_m": "PX_M", "shape_n": "PX_N",
    "shape_m_tiles": "PX_M_TILES", "shape_n_tiles": "PX_N_TILES", "shape_k_tiles": "PX_K_TILES", "divmod_line": "PX_LINE",
    "divmod_panel": "PX_PANEL", "divmod_batch": "PX_BATCH", "out_pointer": "PX_D", "out_row": "PX_LDD", "curve": "PX_CURVE",
    "counters": "PX_COUNTERS", "workspace": "PX_SUMS", "fused_a_scale": "PX_A_SCALE", "fused_b_scale": "PX_B_SCALE",
    "sfa_pointer": "PX_A_SCALE", "sfb_pointer": "PX_B_SCALE"}
"""Where C takes the arguments of dense kernels from, by the names of PTX parameters."""
BLOCK_SOURCES = {"sfa_k_stride": "PX_A_SCALE_LD", "sfa_mn_stride": "PX_A_SCALE_MN", "sfb_mn_stride": "PX_B_SCALE_LD",
                 "sfb_k_stride": "PX_B_SCALE_K"}
CONSTANTS = {
    "a_source_batch": 0, "b_source_batch": 0, "shape_batches": 1, "out_batch": 0, "fused_alpha": 1.0, "fused_beta": 0.0,
    "fused_c_pointer": 0, "fused_c_row": 0, "fused_c_batch": 0, "fused_bias": 0, "fused_residual_pointer": 0, "fused_residual_row": 0,
    "fused_residual_batch": 0, "sfa_mn_stride": 0, "sfa_k_stride": 0, "sfb_mn_stride": 0, "sfb_k_stride": 0}
SWAPPED = {"a": "b", "b": "a", "shape_m": "shape_n", "shape_n": "shape_m"}
"""Which argument of the product a kernel of D^T = B^T A^T has under a name. Its tiles are counted for it."""
SWAPPED_SCALES = {"fused_a_scale": "fused_b_scale", "fused_b_scale": "fused_a_scale"}
MOST_ARGUMENTS = 64     # PX_MOST_ARGUMENTS of gemm.c
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
    units: tuple[int, int]
    d_unit: int
    scale_unit: int
    copies: tuple[Before, ...] = ()


@dataclass(frozen=True, slots=True)
class Before:
    """The kernel that copies an operand before a product: its arguments as those of a plan, the bytes of the copy and of its lines."""

    entry: Entry
    values: tuple[tuple[str, int], ...]
    of_b: bool
    bytes: int
    pitch: int
    ctas: int


def plan(config: DenseConfig, layer: Layer, m: int = 0) -> Plan:
    """The plan of a configuration that was chosen for a layer; `m` rows where it is for these alone. Raises ExportError for what only
    Python launches."""
    order = config.scheduler.order
    if config.loads.align and not m:
        raise ExportError(f"{layer}: the choice copies operands before the product ({config}), which an export does for one M: give -m, -n "
                          "and -k")
    traced = kernel_of(config).trace(**config.parameters)
    assembly = assembled(traced)
    sums = config.sums
    block = isinstance(sums, BlockScaled)
    read = [parameter for parameter in traced.parameters if parameter.kind != "tensormap" or parameter.name in traced.copies.records]
    made = entry(traced, assembly, parameters=read)
    names = SWAPPED | (SWAPPED_SCALES if config.fusion.scale != "whole" else {}) if config.swap_ab else {}
    mapped = [argument for argument in made.arguments if argument.box is not None]
    maps = {names.get(argument.parameter.name, argument.parameter.name): argument for argument in mapped}
    swizzle = order if isinstance(order, Swizzle) else Swizzle()
    return Plan(config, made, tuple(_value(parameter, names, block) for parameter in traced.parameters), maps,
                fetch_modes(0, config.loads.l2_fetch)[1], _scheduler(config), swizzle.size, swizzle.raster == "along_m",
                isinstance(order, Hilbert), _units(config), _d_unit(config, layer),
                UNIT if isinstance(sums, BlockScaled) and sums.load != "warp" else 4, _before(config, layer, m))


def assembled(traced: Traced) -> Assembly:
    """The cubin of a kernel. Raises ExportError where it has more arguments than C has room for."""
    if len(traced.parameters) > MOST_ARGUMENTS:
        raise ExportError(f"kernel `{traced.name}` has {len(traced.parameters)} parameters: an export has room for {MOST_ARGUMENTS}")
    return assemble(traced.ptx(locs=True), traced.module.target[0], lines=traced.positions(), exact_lines=True)


def _units(config: DenseConfig) -> tuple[int, int]:
    """The bytes at multiples of which A, B and their lines must begin."""
    size = config.operands.a.bits // 8
    found = [UNIT if isinstance(copies, TensorCopies) else copies.bytes if isinstance(copies, AsyncCopies) else size
             for copies in (config.loads.a, config.loads.b)]
    return (size if "a" in config.loads.align else found[0]), (size if "b" in config.loads.align else found[1])


def _before(config: DenseConfig, layer: Layer, m: int) -> tuple[Before, ...]:
    """The kernels that copy operands before a product with `m` rows."""
    found = []
    for copy in copies(layer.problem(m), config.loads.align, 0) if config.loads.align else ():
        traced = align_lines.trace(**copy.parameters)
        given = {f"source_{name}": f"PX_{copy.name.upper()}{suffix}" for name, suffix in (
            ("pointer", ""), ("line", "_LINE"), ("inner", "_INNER"))}
        values = [(given[parameter.name], 0) if parameter.name in given else ("PX_COPY", 0) if parameter.name == "to"
                  else ("PX_CONSTANT", {"source_batch": 0, **copy.sizes}[parameter.name]) for parameter in traced.parameters]
        found.append(Before(entry(traced, assembled(traced)), tuple(values), copy.name == "b", copy.bytes, copy.sizes["pitch"], copy.ctas))
    return tuple(found)


def _value(parameter: Parameter, names: dict[str, str], block: bool) -> tuple[str, int]:
    name = names.get(parameter.name, parameter.name)
    if parameter.kind == "tensormap":
        return MAPS[name], 0
    if block and name in BLOCK_SOURCES:
        return BLOCK_SOURCES[name], 0
    if name in SOURCES:
        return SOURCES[name], 0
    if name not in CONSTANTS:
        raise ExportError(f"an export does not know the argument `{name}` of this kernel")
    return "PX_CONSTANT", _bits(parameter, CONSTANTS[name])


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
    if config.staged or config.swap_ab:
        return UNIT
    return size * config.store.elements if isinstance(config.store, Direct) else size


__all__ = ["Before", "Plan", "assembled", "plan"]
