"""The kernel of a grouped configuration, and the boxes of the maps that the kernel does not record itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptxkit.dsl.kernel import Kernel

from ..config.grouped import GroupedConfig, StagedGroups, StaticGroups
from ..config.parts import BlockScaled, ThreadScaled
from ..kernels.grouped import group_gemm
from ..kernels.grouped_blockscaled import group_gemm_blockscaled
from ..kernels.grouped_gathered import group_gemm_gathered
from ..kernels.grouped_ptr_array import group_gemm_ptr_array
from ..kernels.grouped_scattered import group_gemm_scattered
from ..kernels.grouped_swap_ab import group_gemm_swap_ab


def kernel_of(config: GroupedConfig) -> Kernel[...]:
    """The kernel that a configuration specialises."""
    if config.operands.layout == "ptr_array":
        return group_gemm_ptr_array
    if config.operands.gathered:
        return group_gemm_gathered
    if config.operands.scatter:
        return group_gemm_scattered
    if config.swap_ab:
        return group_gemm_swap_ab
    return group_gemm_blockscaled if isinstance(config.sums, BlockScaled | ThreadScaled) else group_gemm


def records_of_templates(config: GroupedConfig) -> Mapping[str, Any]:
    """The boxes of the maps that this configuration's kernel reads from global memory. No parameter records them, so they are taken from
    the kernel of the same tile with maps of the host."""
    store = replace(config.store, ends="ragged") if isinstance(config.store, StagedGroups) else config.store
    scheduler = StaticGroups(order=config.scheduler.order, cluster=config.scheduler.cluster)
    same = replace(config, operands=replace(config.operands, layout="cu_seqlens"), store=store, scheduler=scheduler, plan=None, second=None)
    return kernel_of(same).trace(**same.parameters).copies.records


__all__ = ["kernel_of", "records_of_templates"]
