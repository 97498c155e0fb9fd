"""Grouped products on the CPU device: runs the same kernels and configuration as on a GPU, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit import Ptr, kernel
from ptxkit.cards import H200, Card
from ptxkit.dsl.parameters import values
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.ptx import st
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import u8, u64

from ..collective.tensormaps import COUNTER_WORDS, warps, workspace_bytes
from ..config.grouped import GroupedConfig
from ..heuristic.grouped import heuristic
from ..kernels.clear_groups import clear_groups
from ..kernels.update_tensormaps import update_tensormaps
from ..problem.group_parts import spans
from ..problem.grouped import GroupArrays, GroupOptions, GroupProblem, settled
from ..problem.options import check_kind, group_options
from ..scheduler.group_table import Layout
from .group_kernels import kernel_of, records_of_templates
from .grouped import WRITTEN, check_config
from .on_cpu import WORDS, Array, bytes_of, check_card, check_numpy, check_overlap, integer, lines_of, map_of, view_of, worst
from .ptr_array import PointerArrays, PointerProblem

if TYPE_CHECKING:
    from ptxkit.sim import Report


def simulate(x: Array, w: Array, lengths: Array, out: Array, *, x_scale: Array | None = None, w_scale: Array | None = None,
             out_scale: Array | None = None, layout: Layout = "cu_seqlens", gated: bool = False, mean_tokens: float | None = None,
             fast_accum: bool | None = None, batch_invariant: bool = False, dtype: str | None = None, out_dtype: str | None = None,
             gather: Array | None = None, weights: Array | None = None, scatter: Array | None = None, add: bool = False,
             config: GroupedConfig | None = None, card: Card = H200, schedule: str = "fifo", seed: int = 0, check: bool = True) -> Report:
    """`gemm.group_gemm` with the configuration for `card`, executed on the CPU.

    Arrays are float16, float32, ml_dtypes' bfloat16 and float8, or unsigned integers with the bits of `dtype` (x, w) and `out_dtype`
    (out). A card with fewer SMs (`card.with_sms`) gives each CTA more tiles. `schedule`, `seed` and `check` are passed to
    `ptxkit.sim.run`.
    """
    from ptxkit.sim import Report

    options = group_options(layout, gated, mean_tokens, fast_accum, None, batch_invariant, weights is not None, add)
    x_scale = x_scale if weights is None else weights
    given: dict[str, Array | None] = {"x": x, "w": w, "lengths": lengths, "out": out, "x_scale": x_scale, "w_scale": w_scale,
                                     "out_scale": out_scale, "gather": gather, "scatter": scatter}
    for name in ("x", "w", "lengths", "out"):
        check_numpy(name, given[name])
    check_kind(config, GroupedConfig)
    check_card(card)
    check_overlap(given, WRITTEN)
    arrays = _views(given, dtype, out_dtype)
    problem = GroupProblem(arrays, options)
    if problem.empty:
        if not problem.clears:
            return Report(checked=False)
        numbers: dict[str, Any] = problem.clear_arguments(arrays.out)
        return clear_groups.simulate(problem.rows, lengths=lengths.view(np.uint32), out=bytes_of(out), **numbers, layout=layout,
                                     schedule=schedule, seed=seed, check=check)
    if problem.in_parts:
        more: dict[str, Any] = {"layout": layout, "gated": gated, "mean_tokens": problem.mean, "fast_accum": fast_accum, "config": config,
                                "batch_invariant": batch_invariant, "dtype": dtype, "out_dtype": out_dtype, "card": card,
                                "schedule": schedule, "seed": seed, "check": check, "add": add}
        of_parts = [_part(given, first, count, layout) for first, count in spans(problem.groups)]
        if weights is not None:
            of_parts = [{**part, "x_scale": None, "weights": weights} for part in of_parts]
        return worst([simulate(**part, **more) for part in of_parts])
    for each in config.kernels if config is not None else ():
        check_config(each, problem)
    config = config or heuristic(problem, card)
    ctas = problem.grid(config, card.sms)
    how: dict[str, Any] = {"schedule": schedule, "seed": seed, "check": check}
    reports = [_kernel(problem, arrays, given, gated, each, config, ctas, how) for each in config.kernels]
    return worst(reports)


def _part(given: dict[str, Array | None], first: int, count: int, layout: Layout) -> dict[str, Any]:
    """The arrays of one of several launches, as `group_parts.parts` takes them."""
    of_groups = given.keys() if layout == "masked" else ("w", "w_scale", "lengths")
    w = given["w"]
    assert w is not None
    found: dict[str, Any] = {}
    for name, array in given.items():
        whole = array is None or name not in of_groups or array.shape[:1] not in ((len(w),), (len(w) + 1,))
        found[name] = array if whole or array is None else array[first:first + count + (name == "lengths" and layout == "cu_seqlens")]
    return found


def _kernel(problem: GroupProblem, arrays: GroupArrays, given: dict[str, Array | None], gated: bool, config: GroupedConfig,
            first: GroupedConfig, ctas: int, how: dict[str, Any]) -> Report:
    """Run one kernel of a launch, the `first` or the second, after the kernel that makes its maps."""
    from ptxkit.sim import run
    from ptxkit.sim.limits import UNLIMITED

    x, w, out, x_scale, w_scale = (given[name] for name in ("x", "w", "out", "x_scale", "w_scale"))
    assert x is not None
    assert w is not None
    assert out is not None
    x = x if x.size else np.zeros((1, *x.shape[1:]), x.dtype)       # of which nothing is read
    product, operands = kernel_of(config), config.operands
    traced = product.trace(**config.parameters)
    records = traced.copies.records
    workspace = np.zeros(max(1, config.workspace_bytes(ctas) // 4), np.uint32)
    flat_x, flat_out = (array.reshape(-1, array.shape[-1]) for array in (x, out))
    previous = None if first is config else _first_kernel(problem, first, given["lengths"], flat_out, workspace, ctas)
    seen = lines_of(flat_out, True)

    def pointer(name: str) -> Any:
        array = given.get(name)
        if name in ("lengths", "gather", "scatter"):
            assert array is not None
            return array.view(np.uint32)
        if name == "x":
            return bytes_of(x)
        if name.endswith("_scale"):
            return np.zeros(1, np.float32) if array is None else bytes_of(array).view(array.dtype)
        if name == "workspace":
            return workspace
        if name == "none":
            return np.zeros(1, np.uint64)
        return bytes_of(out)

    halves = w.reshape(w.shape[0], 2, w.shape[1] // 2, w.shape[2]) if gated else w
    # A kernel with direct stores reads no map of y. A kernel with a map for each group must find Y where `update_tensormaps` found it.
    other = TensorMap(seen, box=(1, 16 // out.itemsize)) if config.updates_maps else TensorMap(flat_x[0, :16 // x.itemsize],
                                                                                                    box=(16 // x.itemsize,))
    nothing = TensorMap(flat_x[0, :16 // x.itemsize], box=(16 // x.itemsize,))
    maps: dict[str, Any] = {"x": lines_of(flat_x, True), "w": lines_of(halves, problem.w_major == "k"), "y": other,
                            "sfa_map": nothing, "sfb_map": nothing, "x_tail": nothing}
    if "y" in records:
        lines, y_offset = problem.stored(config)
        maps["y"] = map_of(flat_out, records["y"], lines, -y_offset)
    if "sfa_map" in records and x_scale is not None:
        maps["sfa_map"] = map_of(bytes_of(x_scale).view(x_scale.dtype), records["sfa_map"], problem.s_lines)
    if "sfb_map" in records and w_scale is not None:
        maps["sfb_map"] = map_of(bytes_of(w_scale).view(w_scale.dtype), records["sfb_map"], problem.w_s_lines)
    if "x_tail" in records:
        maps["x_tail"] = maps["x"]
    if config.updates_maps:
        templates = records_of_templates(config)
        updating: dict[str, Any] = {}
        for name, array in (("x", maps["x"]), ("w", maps["w"]), ("y", seen)):
            record = templates[name]
            updating[name] = TensorMap(array, box=tuple(reversed(record.box[:array.ndim])), swizzle=record.swizzle)
        updated = update_tensormaps.simulate(warps(problem.groups, operands.layout), **updating, **problem.update_arguments(pointer), **how,
                                             **config.update)
        if updated.verdict == "error":
            return updated
    named = {**maps, **problem.arguments(arrays, config, pointer)}
    return run(traced, grid=ctas, args=values(traced.signature, (), named), previous=previous,
               max_steps=UNLIMITED, **how)


def _first_kernel(problem: GroupProblem, first: GroupedConfig, lengths: Any, flat_out: Array, workspace: Array,
                  ctas: int) -> dict[str, list[Array]]:
    """What the first kernel of a plan still uses while the second one runs: the rows of its own groups, and its counter. (What it reads
    nobody writes.)
    """
    found = lengths.astype(np.int64)
    starts, ends = (found[:-1], found[1:]) if problem.options.layout == "cu_seqlens" else (np.arange(len(found)) * problem.pitch,) * 2
    ends = ends if problem.options.layout == "cu_seqlens" else starts + found
    counts = np.maximum(np.minimum(ends, problem.rows) - starts, 0).tolist()
    own = first.own(counts, problem.n, ctas)
    rows = [flat_out[start:start + count] for start, count, mine in zip(starts.tolist(), counts, own, strict=True) if mine]
    return {"writes": [*rows, *([workspace[:COUNTER_WORDS]] if first.dynamic else [])]}


def described(x: Array, w: Array, lengths: Array, out: Array, x_scale: Array | None, w_scale: Array | None,
              options: GroupOptions, gather: Array | None = None) -> GroupProblem:
    """The problem of these arrays."""
    given: dict[str, Array | None] = {"x": x, "w": w, "lengths": lengths, "out": out, "x_scale": x_scale, "w_scale": w_scale,
                                     "gather": gather}
    return GroupProblem(_views(given, None, None), options)


def _views(given: dict[str, Array | None], dtype: str | None, out_dtype: str | None) -> GroupArrays:
    """The arrays as the device adapter would see them."""
    words = {"x": dtype, "w": dtype}
    views = {name: view_of(name, array, words.get(name, out_dtype or dtype)) for name, array in given.items()
             if array is not None and name not in _NUMBERS}
    for name in _NUMBERS:
        array = given.get(name)
        if array is not None:
            views[name] = views["x"]._replace(shape=array.shape, strides=(1,), dtype=integer(array))
    return settled(GroupArrays(**views))


_NUMBERS = ("lengths", "gather", "scatter")


def simulate_pointers(matrices: Sequence[tuple[Array, Array, Array]], *, config: GroupedConfig | None = None, mean_tokens: float = 128,
                      fast_accum: bool | None = None, batch_invariant: bool = False, ctas: int = 4, schedule: str = "fifo", seed: int = 0,
                      check: bool = True) -> Report:
    """`group_gemm_pointers` for groups (x, w, out), executed on the CPU: `update_tensormaps`, then the product.

    All arrays are copied into one buffer. Every matrix begins at a multiple of 256 bytes, and nothing may write the bytes between them.
    """
    from ptxkit.sim import run
    from ptxkit.sim.limits import UNLIMITED

    places, at = [], 256
    for group in matrices:
        for array in group:
            places.append(at)
            at += -(-array.nbytes // 256) * 256 + 256
    memory = np.full(at, 0xA5, np.uint8)
    flat = [array for group in matrices for array in group]
    for place, array in zip(places, flat, strict=True):
        memory[place:place + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    original = memory.copy()
    sizes = np.array([(len(x), len(w), x.shape[1]) for x, w, _ in matrices], np.uint32)
    addresses = [np.array([_first_address() + place for place in places[i::3]], np.uint64) for i in range(3)]
    words = [WORDS[array.dtype.name] for array in matrices[0]]
    one = ArrayView(0, (len(matrices),), (1,), "s64", 0, "numpy")
    arrays = PointerArrays(one, one, one, ArrayView(0, sizes.shape, (3, 1), "s32", 0, "numpy"))
    problem = PointerProblem(arrays, words[0], words[1], words[2], mean_tokens, fast_accum, batch_invariant)
    if config is not None:
        problem.check(config)
    chosen = problem.config() if config is None else config
    named = {"sizes": sizes.reshape(-1), "x": addresses[0], "w": addresses[1], "out": addresses[2],
             "workspace": np.zeros(workspace_bytes(chosen.operands.max_groups, "ptr_array") // 4, np.uint32),
             "x_scale": np.zeros(1, np.float32), "w_scale": np.zeros(1, np.float32), "none": np.zeros(1, np.uint8)}
    x, w, y = (array.dtype for array in matrices[0])
    y = y if chosen.staged else x                               # direct stores use no map of Y: its template is that of X
    maps = [TensorMap(memory[:16].view(dtype).reshape(1, -1), box=tuple(reversed(fields.box)), swizzle=fields.swizzle)
            for dtype, fields in zip((x, w, y), problem.templates(chosen), strict=True)]
    how: dict[str, Any] = {"schedule": schedule, "seed": seed, "check": check}
    report = update_tensormaps.simulate(warps(len(matrices), "ptr_array"), *maps, **problem.update_arguments(named.__getitem__), **how,
                                        **chosen.update)
    if report.verdict != "error":
        named["out"] = addresses[2].view(np.uint8)
        traced = kernel_of(chosen).trace(**chosen.parameters)
        report = run(traced, grid=ctas, args=values(traced.signature, maps, problem.arguments(named.__getitem__)),
                     max_steps=UNLIMITED, **how)
    for number, (place, array) in enumerate(zip(places, flat, strict=True)):
        if number % 3 == 2:
            array[...] = memory[place:place + array.nbytes].view(array.dtype).reshape(array.shape)
            original[place:place + array.nbytes] = memory[place:place + array.nbytes]
    assert (memory == original).all(), "bytes outside of the results were written"
    return report


@kernel(target="sm_90a", block=32)
def _where(first: Ptr[u8], address: Ptr[u64]) -> None:
    """Stores the address at which the CPU device puts a kernel's first array."""
    st.global_.u64(address, first.reg)


def _first_address() -> int:
    found = np.zeros(1, np.uint64)
    _where.simulate(1, np.zeros(16, np.uint8), found, check=False)
    return int(found[0])


__all__ = ["described", "simulate", "simulate_pointers"]
