"""Attention decode over a paged cache as an operator of torch, without gradients."""

from __future__ import annotations

from typing import Any

from ptxkit.attention.launch.decode import attention_decode as launch
from ptxkit.attention.problem.decode import DecodeArrays, DecodeProblem
from ptxkit.errors import LaunchError

from . import cpu
from .framework import torch
from .views import refuse_missing, views

ARGUMENTS = "Tensor q, Tensor k_cache, Tensor v_cache, Tensor page_table, Tensor lengths, float? scale=None, int? splits=None"
NAMES = ("q", "k_cache", "v_cache", "page_table", "lengths")


def define(library: Any) -> None:
    """Define `attention_decode`, and `attention_decode_lse`, which also returns the log-sum-exp."""
    for name, result, run in (("attention_decode", "Tensor", _result), ("attention_decode_lse", "(Tensor, Tensor)", _both)):
        library.define(f"{name}({ARGUMENTS}) -> {result}", tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, run(_on_gpu), "CUDA")
        library.impl(name, run(_on_cpu), "CPU")
        torch.library.register_fake(f"ptxkit::{name}", run(_fake), lib=library)
        torch.library.register_autograd(f"ptxkit::{name}", _refuse, setup_context=_refuse, lib=library)


def _result(run: Any) -> Any:
    return lambda *given, **named: run(False, *given, **named)[0]


def _both(run: Any) -> Any:
    return lambda *given, **named: run(True, *given, **named)


def _empty(with_lse: bool, q: Any) -> tuple[Any, Any]:
    refuse_missing(q, "q")
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(q.shape[:-1], dtype=torch.float32) if with_lse else None


def _on_gpu(with_lse: bool, *given: Any, scale: float | None = None, splits: int | None = None) -> tuple[Any, Any]:
    arrays, scale, splits = _split(given, scale, splits)
    out, lse = _empty(with_lse, arrays[0])
    launch(*arrays, scale=scale, splits=splits, out=out, lse=lse)
    return out, lse


def _on_cpu(with_lse: bool, *given: Any, scale: float | None = None, splits: int | None = None) -> tuple[Any, Any]:
    cpu.require("q")
    arrays, scale, splits = _split(given, scale, splits)
    out, lse = _empty(with_lse, arrays[0])
    cpu.decoded(dict(zip(NAMES, arrays, strict=True)), out, lse=lse, scale=scale, splits=splits)
    return out, lse


def _fake(with_lse: bool, *given: Any, scale: float | None = None, splits: int | None = None) -> tuple[Any, Any]:
    arrays, scale, _ = _split(given, scale, splits)
    out, lse = _empty(with_lse, arrays[0])
    for name, tensor in zip(NAMES, arrays, strict=True):
        refuse_missing(tensor, name)
    seen = views({**dict(zip(NAMES, arrays, strict=True)), "out": out})
    if seen is not None:
        DecodeProblem.of(DecodeArrays(**seen), scale)
    return out, lse


def _split(given: tuple[Any, ...], scale: float | None, splits: int | None) -> tuple[tuple[Any, ...], float | None, int | None]:
    """The arrays, scale and splits of a call, of which torch passes the options by place or by name."""
    options = (*given[len(NAMES):], None, None)
    return given[:len(NAMES)], options[0] if scale is None else scale, options[1] if splits is None else splits


def _refuse(*_: Any, **__: Any) -> Any:
    raise LaunchError("q, k_cache or v_cache requires grad, and attention_decode has no gradient: call it under torch.no_grad()")


__all__ = ["define"]
