"""`gemm.group_gemm_k`: products with groups along K; checks arguments, chooses a configuration, encodes tensor maps and launches."""

from __future__ import annotations

from typing import Any

from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.newest import Newest
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.launcher import Launcher
from ptxkit.runtime.overlap import Spans, refuse_overlap

from ..config.grouped_k import GroupedKConfig
from ..config.parts import L2_FETCH
from ..heuristic.grouped_k import heuristic
from ..kernels.grouped_k import group_gemm_k as kernel
from ..problem.dense import type_name
from ..problem.grouped_k import ArraysAlongK, ProblemAlongK, extents, parts
from ..problem.options import check_kind, flag
from .dense import Maps, card_of, check_out_dtype, compiled
from .grid import places, scalars
from .parts import LOADED, GroupLaunches, check_operands, check_room
from .workspace import Workspaces
from .zeros import Zeros

_workspaces = Workspaces()
_plans: Newest[tuple[Any, ...], Plan] = Newest()
_launches: Newest[Any, tuple[Any, ArrayView]] = Newest()


class Plan:
    """A configuration loaded on a device for arrays of these shapes: everything of a launch except the pointers."""

    __slots__ = ("config", "grid", "launcher", "maps", "ordinal", "problem", "spans", "traced", "workspace", "workspace_bytes")

    def __init__(self, problem: ProblemAlongK, ordinal: int, config: GroupedKConfig | None) -> None:
        card = card_of(ordinal)
        self.problem, self.ordinal, self.spans = problem, ordinal, Spans(())
        self.config = config or heuristic(problem, card)
        made = compiled(kernel, ordinal, **self.config.parameters)
        self.traced = made.traced
        self.launcher: Launcher = made.launcher(pdl=True)
        self.grid = problem.grid(self.config, min(card.sms, made.max_clusters() * self.config.cluster)), 1, 1
        lines = problem.sources(self.config) | {"d": problem.d_lines}
        self.maps = Maps(made.traced.copies.records, lines, L2_FETCH)
        self.workspace, self.workspace_bytes = places(made.traced)["workspace"], problem.workspace_bytes(self.config)


class Launch:
    """A plan with pointers: all that a repeated call needs."""

    __slots__ = ("maps", "passed", "placed", "plan")

    def __init__(self, plan: Plan, arrays: ArraysAlongK) -> None:
        def pointer(name: str) -> int:
            return getattr(arrays, name).pointer if name != "workspace" else 0

        self.plan = plan
        self.maps = plan.maps.at(arrays.a.pointer, arrays.b.pointer, arrays.out.pointer)
        self.passed = scalars(plan.traced, plan.problem.arguments(plan.config, pointer))
        self.placed: tuple[int, tuple[Any, ...]] = (-1, ())

    def run(self, stream: int) -> None:
        """Launch on a stream."""
        if self.placed[0] != stream:
            bytes = self.workspace_bytes
            self.placed = stream, self.placed_in(_workspaces.of(self.plan.ordinal, stream, bytes) if bytes else 0)
        self.plan.launcher(stream, self.plan.grid, self.placed[1], self.maps)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a workspace, whose counters are zeros between launches."""
        return self.plan.workspace_bytes

    def placed_in(self, place: int) -> tuple[Any, ...]:
        """The arguments with a workspace."""
        at = self.plan.workspace
        return (*self.passed[:at], place, *self.passed[at + 1:])


def group_gemm_k(a: Any, b: Any, cu_seqlens: Any, *, out: Any = None, out_dtype: Any = None, accumulate: bool = False,
                 config: GroupedKConfig | None = None, stream: Any = None) -> Any:
    """out[g] = a[cu[g]:cu[g + 1]].T @ b[cu[g]:cu[g + 1]] for every group, in one launch. Returns `out`, [G, M, N].

    It is the gradient of grouped weights: with a = dY [rows, N] and b = X [rows, K] it gives those of w [G, N, K].

    Operands: a [rows, M] and b [rows, N], both bf16 or both f16, with contiguous rows that begin at multiples of 16 bytes. cu_seqlens is
    int32 [G + 1] on the device. Only the kernel reads it, nothing is copied to the host, and a captured launch may be replayed with other
    lengths. A group may have any length; that of an empty one is zeros. Rows outside of all groups are not multiplied: they may be NaN.
    Of more than 1024 groups each launch has up to 1024. Lengths that decrease or exceed `rows` give a wrong result, but nothing outside of
    `out` is written.

    out is bf16, f16 or f32 (default: the type of a), with rows of multiples of 16 bytes. With `accumulate=True` the products are added to
    `out`, which is f32 and must be given: out += products. Groups without rows are left as they are. Every element gets one addition in
    f32, so the same arrays give the same bits. Subnormal numbers count as zeros in this addition.

    CTAs may share the tiles of a group that is much longer than others. The sums of its parts are added up in a fixed order, in a workspace
    that is kept for the stream: nothing is allocated in a repeated call.

    A torch tensor that requires grad is refused while gradients are recorded: ptxkit.torch has operators with them.
    """
    refuse_gradients(("a", a), ("b", b), ("out", out))
    accumulate = flag("accumulate", accumulate)
    check_kind(config, GroupedKConfig)
    key: Any = marks(a, b, cu_seqlens, out) if out is not None and out_dtype is None else None
    key = None if key is None else (key, accumulate, config)
    found = _launches.get(key) if key is not None else None
    if found is None:
        seen_a, seen_b, lengths = view(a, "a"), view(b, "b"), view(cu_seqlens, "cu_seqlens")
        out = _out(seen_a, seen_b, lengths, out, out_dtype, accumulate)
        arrays = ArraysAlongK(seen_a, seen_b, lengths, view(out, "out"))
        key = (arrays, accumulate, config) if key is None else key
        found = _launches.get(key)
        if found is None:
            found = _launches[key] = prepare(arrays, accumulate, config), seen_a
    launch, like = found
    if launch is not None:
        launch.run(raw_stream(stream, like))
    return out


def can_implement(a: Any, b: Any, cu_seqlens: Any, out: Any, *, accumulate: bool = False,
                  config: GroupedKConfig | None = None) -> str | None:
    """None, or the reason if `group_gemm_k` does not take these arrays. Needs no GPU."""
    try:
        arrays = ArraysAlongK(view(a, "a"), view(b, "b"), view(cu_seqlens, "cu_seqlens"), view(out, "out"))
        problem = ProblemAlongK(arrays, flag("accumulate", accumulate))
        check_kind(config, GroupedKConfig)
        if config is not None:
            check_config(config, problem)
    except PtxkitError as error:
        return str(error)
    return None


def _out(a: ArrayView, b: ArrayView, lengths: ArrayView, out: Any, out_dtype: Any, accumulate: bool) -> Any:
    """The given result, or a new one."""
    if out is not None:
        check_out_dtype(out, out_dtype)
        return out
    if accumulate:
        raise LaunchError("accumulate=True adds to out, and there is none: give out, float32 [groups, M, N]")
    groups, _, m, n = extents(a, b, lengths)
    return empty_like_owner(a, (groups, m, n), type_name(out_dtype) or a.dtype)


def prepare(arrays: ArraysAlongK, accumulate: bool, config: GroupedKConfig | None) -> Any:
    """The launch of these arrays; None if nothing changes."""
    apart = tuple([array.pointer % LOADED > 0 for array in (arrays.a, arrays.b, arrays.out)])
    shapes = tuple([array[1:5] for array in arrays]), apart, accumulate, config
    plan = _plans.get(shapes)
    if plan is None:
        named = arrays.named()
        ordinal = same_device(named)
        problem = ProblemAlongK(arrays, accumulate)
        if problem.empty or (not problem.rows and accumulate):
            return None
        refuse_overlap(named)
        if not problem.rows:
            return Zeros(arrays.out)
        if problem.in_parts:
            launches = [prepare(part, accumulate, config) for part in parts(arrays, problem.groups)]
            return GroupLaunches([launch for launch in launches if launch is not None])
        if config is not None:
            check_config(config, problem)
        plan = _plans[shapes] = Plan(problem, ordinal, config)
        plan.spans = Spans(arrays, ArraysAlongK._fields.index("out"))
    elif not plan.spans.apart(arrays):
        refuse_overlap(arrays.named())
    return Launch(plan, arrays)


def check_config(config: GroupedKConfig, problem: ProblemAlongK) -> None:
    """Raise LaunchError unless the caller's configuration fits the problem."""
    check_operands(config.operands, problem.operands)
    problem.workspace_bytes(config)
    if not problem.in_parts:
        check_room(config.operands.max_groups, "cu_seqlens", problem.groups)


__all__ = ["Launch", "Plan", "can_implement", "check_config", "group_gemm_k", "prepare"]
