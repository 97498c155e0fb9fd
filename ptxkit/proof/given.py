"""The launch of whatever kernel is given: ptxkit's, PTX, or another compiler's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from ..cli.files import read_ptx
from ..dsl.parameters import values
from ..dsl.traced import Traceable, Traced
from ..grammar import parse, tree
from ..sim import SimulationError
from ..sim.asked import Dim
from ..sim.program import entry_of
from .launch import Launch, arrays_of, own


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


def launch_of(kernel: Any, grid: Any, args: Sequence[Any], *, entry: str | None = None, block: Dim | None = None,
              cluster: Dim | None = None, dynamic_smem: int | None = None, config: Mapping[str, Any] | None = None) -> Launch:
    """The launch of a ptxkit kernel, of a trace, of PTX text or of a tree. `config` has compile-time parameters and arguments by name."""
    config = config or {}
    if isinstance(kernel, Traceable):
        named = {name: value for name, value in config.items() if name in kernel.arguments}
        traced = kernel.trace(**{name: value for name, value in config.items() if name not in named})
        source: tree.Module | Traced = traced
        args = values(traced.signature, args, named)
    elif isinstance(kernel, str | tree.Module | Traced):
        if config:
            raise SimulationError(f"{', '.join(config)}: compile-time parameters are for kernels, and this is PTX")
        source = parse(kernel) if isinstance(kernel, str) else kernel
    else:
        raise SimulationError(f"{kernel!r} is neither a kernel nor PTX text")
    module = source.module if isinstance(source, Traced) else source
    function = entry_of(module, entry or (source.name if isinstance(source, Traced) else None))
    if grid is None:
        raise SimulationError(f"`{function.name}` does not say its grid: give the number of CTAs")
    args = tuple(map(own, args))
    names = tuple(parameter.name for parameter in function.parameters)
    return Launch(function.name, source, grid, args, block or most_threads(function), cluster, dynamic_smem, arrays_of(names, args),
                  text=kernel if isinstance(kernel, str) else "")


def most_threads(function: tree.Function) -> tuple[int, ...] | None:
    """The block of an entry that says only how many threads it has at most, as nvcc writes __launch_bounds__; None for others."""
    said = {directive.name: directive.arguments for directive in function.directives}
    if "reqntid" in said or "maxntid" not in said:
        return None
    return tuple(extent for extent in said["maxntid"] if isinstance(extent, int))


def _is_grid(value: Any) -> bool:
    """Whether the argument after the kernel is a grid. An array there is the first argument of the kernel."""
    return not any(hasattr(value, name) for name in ("dtype", "__dlpack__", "__cuda_array_interface__")) or isinstance(value, Integral)
