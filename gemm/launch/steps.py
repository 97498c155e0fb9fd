"""What a call would launch, as values: kernels with their arguments, and fills. For programs that launch them without Python.

A workspace is given with each call: its counters are cleared first, since nobody keeps it between calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import same_device
from ptxkit.runtime.launcher import EncodedTensorMap, Extent, Launcher

from ..collective.tensormaps import COUNTERS_WORDS
from ..problem.dense import Arrays, Options, Problem
from ..problem.grouped import GroupArrays, GroupOptions
from ..problem.grouped_k import COUNTERS_BYTES, ArraysAlongK
from ..problem.matmul import products
from . import grouped, grouped_k
from .combine import CombineProblem, Sums
from .dense import Launch, Plan, as_one, card_of, launches
from .grid import COUNTER_BYTES, scalars
from .parts import GroupLaunches
from .slabs import slabs
from .tuning import first_use
from .zeros import Zeros


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A launch of a kernel."""

    launcher: Launcher
    grid: Extent
    scalars: tuple[Any, ...]
    maps: tuple[EncodedTensorMap, ...]


@dataclass(frozen=True, slots=True)
class FillStep:
    """`height` lines of `width` bytes that are cleared, each `pitch` bytes after the one before."""

    start: int
    pitch: int
    width: int
    height: int


Step = KernelStep | FillStep


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a call, one after another in a stream, with a workspace of `workspace_bytes`."""

    steps: tuple[Step, ...]
    workspace_bytes: int


def _parts(arrays: Arrays, options: Options, ordinal: int) -> list[Arrays]:
    """The products of a call, one launch each."""
    return [slab for part in products(arrays) for slab in slabs(part, options, lambda: card_of(ordinal))]


def tune_dense(arrays: Arrays, options: Options, stream: int) -> None:
    """Tune the products of `gemm.gemm` on these arrays, where that is wished, so that `of_dense` takes what was found. What the arrays
    hold is read."""
    ordinal = same_device(arrays.named())
    for part in _parts(arrays, options, ordinal):
        problem = Problem(as_one(part, None), options)
        if not problem.empty and problem.k:
            first_use(problem, part, ordinal, stream, card_of(ordinal), launches(problem, options, ordinal))


def of_dense(arrays: Arrays, options: Options, workspace: int) -> Steps:
    """The steps of `gemm.gemm` on these arrays with a workspace at this address. Nothing is tuned."""
    ordinal = same_device(arrays.named())
    found: list[Step] = []
    bytes = 0
    for part in _parts(arrays, options, ordinal):
        problem = Problem(as_one(part, None), options)
        if problem.empty:
            continue
        if not problem.k:
            found += [FillStep(*fill) for fill in Zeros(part.out).fills()]
            continue
        launch = Launch(Plan(problem, ordinal), part, options)
        bytes = max(bytes, launch.workspace_bytes)
        found += _of_launch(launch, workspace)
    return _cleared(found, workspace, bytes, COUNTER_BYTES)


def _of_launch(launch: Launch, workspace: int) -> Iterator[Step]:
    """Copies of operands, then the product."""
    if not launch.workspace_bytes:
        yield KernelStep(launch.launcher, launch.grid, launch.scalars, launch.maps)
        return
    for aligner in launch.aligners:
        named = aligner.copy.arguments(launch.pointers[aligner.copy.name], workspace + aligner.copy.offset)
        yield KernelStep(aligner.launcher, aligner.grid, scalars(aligner.compiled.traced, named), ())
    copies = {aligner.copy.name: workspace + aligner.copy.offset for aligner in launch.aligners}
    maps = launch.plan.maps.at(*(launch.pointers | copies).values()) if copies else launch.maps
    yield KernelStep(launch.launcher, launch.grid, launch.placed_in(workspace), maps)


def of_groups(arrays: GroupArrays, options: GroupOptions, workspace: int) -> Steps:
    """The steps of `gemm.group_gemm` on these arrays with a workspace at this address."""
    launch = grouped.prepare(arrays, options, None)
    launches = launch.launches if isinstance(launch, GroupLaunches) else [] if launch is None else [launch]
    found: list[Step] = []
    bytes = 0
    for each in launches:
        if isinstance(each, grouped.ClearedGroups):
            found.append(KernelStep(each.launcher, each.grid, each.scalars, ()))
            continue
        configs = [plan.config for plan in each.plan.kernels if plan.config.needs_workspace]
        bytes = max([bytes, *(config.workspace_bytes(each.plan.grid[0]) for config in configs)])
        found += [KernelStep(*placed) for placed in each.placed_in(lambda _: workspace)]
    return _cleared(found, workspace, bytes, 4 * COUNTERS_WORDS)


def of_groups_along_k(arrays: ArraysAlongK, workspace: int) -> Steps:
    """The steps of `gemm.group_gemm_k` on these arrays with a workspace at this address."""
    launch = grouped_k.prepare(arrays, False, None)
    found: list[Step] = []
    bytes = 0
    for each in launch.launches if isinstance(launch, GroupLaunches) else [launch]:
        if isinstance(each, Zeros):
            found += [FillStep(*fill) for fill in each.fills()]
        elif each is not None:
            bytes = max(bytes, each.workspace_bytes)
            place = workspace if each.workspace_bytes else 0
            found.append(KernelStep(each.plan.launcher, each.plan.grid, each.placed_in(place), each.maps))
    return _cleared(found, workspace, bytes, COUNTERS_BYTES)


def of_combine(problem: CombineProblem, arrays: Mapping[str, ArrayView]) -> Steps:
    """The steps of `gemm.combine` on these arrays, by name. There is no workspace."""
    launch = Sums(problem, dict(arrays), same_device(list(arrays.items())), arrays["y"]).launch
    return Steps(() if launch is None else (KernelStep(*launch, ()),), 0)


def _cleared(found: list[Step], workspace: int, bytes: int, counters: int) -> Steps:
    """The steps after the workspace's counters are cleared."""
    first = [FillStep(workspace, counters, min(counters, bytes), 1)] if bytes else []
    return Steps((*first, *found), bytes)


__all__ = ["FillStep", "KernelStep", "Step", "Steps", "of_combine", "of_dense", "of_groups", "of_groups_along_k"]
