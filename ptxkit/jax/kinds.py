"""What XLA calls, by kind: its results, what is wrong with its arrays, its run on the CPU device, and its launches on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ptxkit.attention.launch.steps import of_attention
from ptxkit.attention.problem.forward import Arrays as AttentionArrays
from ptxkit.attention.problem.forward import Options as AttentionOptions
from ptxkit.attention.problem.forward import Problem as AttentionProblem
from ptxkit.attention.problem.forward import lse_shape
from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.combine import CombineProblem, choices, matrix
from ptxkit.gemm.launch.dense import as_one
from ptxkit.gemm.launch.steps import Steps, of_combine, of_dense, of_groups, of_groups_along_k
from ptxkit.gemm.problem.dense import Arrays, Options, Problem
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.problem.grouped_k import ArraysAlongK, ProblemAlongK
from ptxkit.gemm.problem.matmul import products, result_shape
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

Name = Literal["dense", "groups", "groups_along_k", "combine", "attention"]
Views = dict[str, ArrayView]
"""Arrays as a launch sees them, by the names that `ptxkit.gemm` and `ptxkit.attention` have for them."""


class Kind(NamedTuple):
    """`results` gives the results of operands, options and ptxkit's name of a type. `check` raises the LaunchError that a launch would, and
    says whether there is anything to compute. `simulate` runs NumPy arrays on the CPU device. `steps` gives the launches, with a workspace
    at an address."""

    results: Callable[[Views, Mapping[str, Any], str], Views]
    check: Callable[[Views, Mapping[str, Any]], bool]
    simulate: Callable[..., Any]
    steps: Callable[[Views, Mapping[str, Any], int], Steps]


def _plain(shape: tuple[int, ...], word: str) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape), word, 0, "jax")


# -------------------------------------------------------------------------------------------------------------- dense


def _of_dense(given: Views, options: Mapping[str, Any], word: str) -> Views:
    return {"out": _plain(result_shape(given["a"], given["b"]), word)}


def _check_dense(seen: Views, options: Mapping[str, Any]) -> bool:
    depth = 0
    for part in products(Arrays(**seen)):
        depth = Problem(as_one(part, None), Options(**options)).k
    return bool(depth and math.prod(seen["out"].shape))


def _simulate_dense(arrays: Mapping[str, Any], **options: Any) -> Any:
    from ptxkit.gemm.launch.simulate import simulate

    return simulate(**arrays, **options)


def _launch_dense(seen: Views, options: Mapping[str, Any], workspace: int) -> Steps:
    return of_dense(Arrays(**seen), Options(**options), workspace)


# ------------------------------------------------------------------------------------------------------------- groups


def _of_groups(given: Views, options: Mapping[str, Any], word: str) -> Views:
    rows = given.get("gather", given["x"]).shape[0]
    return {"out": _plain((rows, given["w"].shape[1] // (2 if options.get("gated") else 1)), word)}


def _check_groups(seen: Views, options: Mapping[str, Any]) -> bool:
    problem = GroupProblem(GroupArrays(**seen), GroupOptions("cu_seqlens", **options))
    return bool(problem.k and math.prod(seen["out"].shape))


def _simulate_groups(arrays: Mapping[str, Any], **options: Any) -> Any:
    from ptxkit.gemm.launch.simulate_grouped import simulate

    return simulate(**arrays, **options)


def _launch_groups(seen: Views, options: Mapping[str, Any], workspace: int) -> Steps:
    return of_groups(GroupArrays(**seen), GroupOptions("cu_seqlens", **options), workspace)


def _of_groups_along_k(given: Views, options: Mapping[str, Any], word: str) -> Views:
    return {"out": _plain((given["lengths"].shape[0] - 1, given["a"].shape[1], given["b"].shape[1]), word)}


def _check_groups_along_k(seen: Views, options: Mapping[str, Any]) -> bool:
    return bool(ProblemAlongK(ArraysAlongK(**seen)).rows and math.prod(seen["out"].shape))


def _simulate_groups_along_k(arrays: Mapping[str, Any], **options: Any) -> Any:
    from ptxkit.gemm.launch.simulate_grouped_k import simulate

    return simulate(**arrays, **options)


def _launch_groups_along_k(seen: Views, options: Mapping[str, Any], workspace: int) -> Steps:
    return of_groups_along_k(ArraysAlongK(**seen), workspace)


# ------------------------------------------------------------------------------------------------------ sums of rows


def _of_combine(given: Views, options: Mapping[str, Any], word: str) -> Views:
    count, _ = choices(given["place"], given.get("weights"), given.get("starts"))
    return {"out": _plain((count, matrix("y", given["y"])[1]), word)}


def _combined(seen: Views) -> CombineProblem:
    return CombineProblem(seen["y"], seen["place"], seen.get("weights"), seen.get("starts"), seen["out"])


def _check_combine(seen: Views, options: Mapping[str, Any]) -> bool:
    return not _combined(seen).empty


def _simulate_combine(arrays: Mapping[str, Any], **options: Any) -> Any:
    from ptxkit.gemm.launch.combine import simulate

    return simulate(**arrays, **options)


def _launch_combine(seen: Views, options: Mapping[str, Any], workspace: int) -> Steps:
    return of_combine(_combined(seen), seen)


# ---------------------------------------------------------------------------------------------------------- attention


def _of_attention(given: Views, options: Mapping[str, Any], word: str) -> Views:
    q = given["q"]
    packed = "cu_seqlens" in given
    if len(q.shape) != (3 if packed else 4):
        raise LaunchError(f"q has shape {q.shape}: attention takes [B, S, H, D], or [T, H, D] with cu_seqlens")
    found = {"out": q._replace(dtype=word)}
    return found | {"lse": _plain(lse_shape(q, packed), "f32")} if options["return_lse"] else found


def _asked(seen: Views, options: Mapping[str, Any]) -> tuple[AttentionArrays, AttentionOptions]:
    return AttentionArrays(**seen), AttentionOptions(options["is_causal"], options["scale"], True)


def _check_attention(seen: Views, options: Mapping[str, Any]) -> bool:
    problem = AttentionProblem.of(*_asked(seen, options))
    return bool(not problem.empty and problem.keys)


def _simulate_attention(arrays: Mapping[str, Any], *, return_lse: bool, **options: Any) -> Any:
    from ptxkit.attention.launch.simulate import simulate

    return simulate(**arrays, enable_gqa=True, **options)


def _launch_attention(seen: Views, options: Mapping[str, Any], workspace: int) -> Steps:
    return of_attention(*_asked(seen, options))


KINDS: dict[Name, Kind] = {
    "dense": Kind(_of_dense, _check_dense, _simulate_dense, _launch_dense),
    "groups": Kind(_of_groups, _check_groups, _simulate_groups, _launch_groups),
    "groups_along_k": Kind(_of_groups_along_k, _check_groups_along_k, _simulate_groups_along_k, _launch_groups_along_k),
    "combine": Kind(_of_combine, _check_combine, _simulate_combine, _launch_combine),
    "attention": Kind(_of_attention, _check_attention, _simulate_attention, _launch_attention),
}

__all__ = ["KINDS", "Kind", "Name", "Views"]
