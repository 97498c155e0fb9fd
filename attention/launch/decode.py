"""The device adapter of decode: checks arguments, chooses the number of splits and launches one or two kernels."""

from __future__ import annotations

from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.dense import compiled
from ptxkit.gemm.launch.grid import scalars
from ptxkit.newest import Newest
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.overlap import refuse_overlap

from ..kernels.decode import combine, decode
from ..problem.decode import DecodeArrays, DecodeProblem, workspace_elements
from ..problem.refusals import check_scale, flag
from .decode_grid import DecodeGrid, whole

_launches: Newest[tuple[Any, ...], Launch] = Newest()
_plans: Newest[tuple[Any, ...], Plan] = Newest()


class Plan:
    """The kernels of a problem loaded on a device: everything of a launch except the pointers."""

    __slots__ = ("grid", "kernels", "launchers")

    def __init__(self, problem: DecodeProblem, ordinal: int, splits: int | None) -> None:
        self.grid = DecodeGrid(problem, driver.device(ordinal).multiprocessors, splits)
        config = self.grid.config
        self.kernels = [compiled(decode, ordinal, **config.parameters)]
        if config.split:
            self.kernels.append(compiled(combine, ordinal, **config.combining))
        self.launchers = [kernel.launcher(pdl=True) for kernel in self.kernels]


class Launch:
    """A plan with pointers: all that a repeated call needs."""

    __slots__ = ("allocated", "like", "steps")

    def __init__(self, plan: Plan, arrays: DecodeArrays, workspace: int, allocated: Any = None) -> None:
        self.like = arrays.q                    # whose library is asked for its stream
        self.allocated = allocated              # a workspace of this call alone: it lives until the launch, which is not kept
        pointers = {name: array.pointer for name, array in arrays.named()}
        named = plan.grid.arguments(lambda name: pointers.get(name, 0), plan.grid.parts(workspace))
        self.steps = [(launcher, grid, scalars(kernel.traced, given)) for launcher, kernel, grid, given in
                      zip(plan.launchers, plan.kernels, plan.grid.ctas, named, strict=False)]

    def run(self, stream: int) -> None:
        """Launch on a stream. Allocates nothing and waits for nothing."""
        for launcher, grid, given in self.steps:
            launcher(stream, grid, given, ())


def attention_decode(q: Any, k_cache: Any, v_cache: Any, page_table: Any, lengths: Any, *, scale: float | None = None,
                     return_lse: bool = False, out: Any = None, lse: Any = None, splits: int | None = None, workspace: Any = None,
                     stream: Any = None) -> Any:
    """softmax(scale q k^T) v of one query for each sequence and head, over a paged cache. Returns out, or (out, lse) with `return_lse`.

    q [B, H, D], k_cache and v_cache [pages, page size, H_kv, D], all bf16 or all f16. D is 64, 128 or 256, the page size a multiple of 16.
    H is a multiple of H_kv: query head h reads cache head h // (H / H_kv). D is contiguous; the other strides and the addresses are
    multiples of 16 bytes. `scale` is positive (None: 1 / sqrt(D)).

    `page_table`: int32 [B, max pages]; key i of sequence b is row i % page size of page page_table[b, i // page size]. `lengths`: int32
    [B], the keys of each sequence. Both stay on the device. A length past the table is taken as the table's, one below 0 as 0, a page that
    the cache has not as its last page: nothing outside the arrays is read. Keys past a length may hold anything. A sequence without keys
    gives zeros and -inf.

    `lse`: f32 [B, H], the logarithm of the sum of the exponentials of the scaled scores. `splits`: the CTAs that share the keys of a
    sequence; None chooses from max pages, B, H_kv and the SMs. With more than one a second launch combines their parts in a fixed order.
    `workspace` holds the parts: f32, contiguous, at a multiple of 16 bytes, at least splits x B x H x (D + 2) elements. `out`, `lse` and
    `workspace` None are allocated with the library of q. `stream` None is that library's current stream; on another one give `workspace`.

    With `out`, `workspace`, and `lse` where it is asked for, a repeated call allocates nothing and waits for nothing.
    """
    refuse_gradients(("q", q), ("k_cache", k_cache), ("v_cache", v_cache), ("out", out), ("lse", lse))
    return_lse = return_lse if return_lse is False else flag("return_lse", return_lse)
    if scale is not None and type(scale) is not float:
        check_scale(scale)
    if splits is not None and type(splits) is not int:
        splits = whole(splits)
    seen = None
    if out is None:
        seen = view(q, "q")
        out = empty_like_owner(seen, seen.shape, seen.dtype)
    if return_lse and lse is None:
        seen = seen or view(q, "q")
        lse = empty_like_owner(seen, seen.shape[:-1], "f32")
    given = (q, k_cache, v_cache, page_table, lengths, out, lse)
    key = marks(*given, workspace)
    launch = _launches.get((key, scale, splits)) if key is not None else None
    if launch is None:
        launch = _prepare(given, scale, splits, workspace, stream)
        if launch is not None and key is not None and launch.allocated is None:
            _launches[key, scale, splits] = launch
    if launch is not None:
        launch.run(raw_stream(stream, launch.like))
    return (out, lse) if return_lse else out


def _prepare(given: tuple[Any, ...], scale: float | None, splits: int | None, workspace: Any, stream: Any) -> Launch | None:
    arrays = DecodeArrays(*(None if array is None and name in DecodeArrays._field_defaults else view(array, name)  # type: ignore[arg-type]
                            for name, array in zip(DecodeArrays._fields, given, strict=True)))
    of_parts = None if workspace is None else view(workspace, "workspace")
    ordinal = same_device([*arrays.named(), *([] if of_parts is None else [("workspace", of_parts)])])
    problem = DecodeProblem.of(arrays, scale)
    refuse_overlap(arrays.named(), ("out", "lse"), in_place=("q",))
    if problem.empty:
        return None
    key = problem, ordinal, splits
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = Plan(problem, ordinal, splits)
    needed = workspace_elements(problem, plan.grid.splits)
    allocated = None
    if of_parts is None and needed:
        if stream is not None:
            raise LaunchError(f"a call with stream= that splits the keys takes workspace=, f32 [n] with at least {needed:,} elements: one "
                              "that is allocated here would be freed in the order of another stream")
        allocated = empty_like_owner(arrays.q, (needed,), "f32")
        of_parts = view(allocated, "workspace")
    if of_parts is not None:
        _check_workspace(of_parts, needed)
    if of_parts is not None and needed:
        refuse_overlap([*arrays.named(), ("workspace", of_parts)], ("workspace",))
    return Launch(plan, arrays, 0 if of_parts is None else of_parts.pointer, allocated)


def _check_workspace(workspace: ArrayView, needed: int) -> None:
    if workspace.dtype != "f32" or len(workspace.shape) != 1 or workspace.shape[0] < needed or workspace.strides != (1,) \
            or workspace.pointer % 16:
        raise LaunchError(f"workspace is {workspace.dtype} of shape {workspace.shape} and begins at address {workspace.pointer:#x}: it is "
                          f"f32 [n], contiguous, at a multiple of 16 bytes, with at least {needed:,} elements")


__all__ = ["Launch", "Plan", "attention_decode"]
