"""Many configurations brought into the cache of cubins at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ptxkit.tuning import assembly
from ptxkit.tuning.assembly import Progress

from ..config.dense import DenseConfig
from ..config.grouped import GroupedConfig
from ..config.grouped_k import GroupedKConfig
from ..kernels.grouped_k import group_gemm_k
from ..launch import grid, group_kernels

C = TypeVar("C", DenseConfig, GroupedConfig, GroupedKConfig)


def _assemble(config: DenseConfig | GroupedConfig | GroupedKConfig) -> None:
    """Brings the configuration's kernel into the cache of cubins."""
    if isinstance(config, GroupedKConfig):
        kernel = group_gemm_k
    else:
        kernel = grid.kernel_of(config) if isinstance(config, DenseConfig) else group_kernels.kernel_of(config)
    kernel.assemble(**config.parameters)


def assembled(found: Sequence[C], jobs: int | None = None) -> dict[C, str]:
    """Brings all of them into the cache of cubins; why some could not be. See `ptxkit.tuning.assembly`."""
    return {config: str(error) for config, error in assembly.assembled(found, _assemble, jobs).items()}


def assemble(configs: Sequence[GroupedConfig], say: Callable[[str], None]) -> None:
    """Brings the kernels of all of them into the cache of cubins, each once, and says which ones could not be."""
    kernels = list(dict.fromkeys(kernel for config in configs for kernel in config.kernels))
    for kernel, why in assembled(kernels).items():
        say(f"not assembled: {kernel}: {why}")


__all__ = ["Progress", "assemble", "assembled"]
