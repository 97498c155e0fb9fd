"""The launch of whatever kernel is given: ptxkit's, PTX, or another compiler's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from ..cli.files import read_ptx
from ..dsl.traced import Traceable, Traced
from ..grammar import tree
from ..sim import SimulationError
from .launch import Launch, launch_of


def given(kernel: Any, grid: Any, args: Sequence[Any], shape: Mapping[str, Any], config: Mapping[str, Any]) -> Launch:
    """`shape` has entry, block, cluster and dynamic_smem, or None: they are for PTX. Compilers know them of their own kernels."""
    if isinstance(kernel, os.PathLike) or (isinstance(kernel, str) and kernel.endswith(".ptx") and "\n" not in kernel):
        kernel = read_ptx(os.fspath(kernel))
    if isinstance(kernel, str | tree.Module | Traced | Traceable):
        return launch_of(kernel, grid, args, **shape, config=config)
    from ..adapters import adapter_of

    adapter = adapter_of(kernel)
    if adapter is None:
        raise SimulationError(f"{kernel!r} is no kernel that ptxkit knows: pass a ptxkit kernel, PTX text, the path of a PTX file, or a "
                              "kernel of Triton, Gluon, CuTe DSL or TileLang")
    if said := [name for name, value in shape.items() if value is not None]:
        raise SimulationError(f"{', '.join(said)}: the compiler of this kernel says so itself")
    if grid is not None and not _is_grid(grid):
        grid, args = None, (grid, *args)
    return adapter(kernel, grid, args, config)


def _is_grid(value: Any) -> bool:
    """Whether the argument after the kernel is a grid. An array there is the first argument of the kernel."""
    return not any(hasattr(value, name) for name in ("dtype", "__dlpack__", "__cuda_array_interface__")) or isinstance(value, Integral)
