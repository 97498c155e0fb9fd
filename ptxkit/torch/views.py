"""Tensors as a product sees them before anything runs: fake and meta tensors, too. What is wrong with one is said in one sentence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ptxkit.dsl.arguments import WORDS
from ptxkit.errors import LaunchError
from ptxkit.runtime import overlap
from ptxkit.runtime.arrays import NUMPY_NAMES, ArrayView

from .framework import torch

_log = logging.getLogger("ptxkit")
_said: set[tuple[Any, ...]] = set()
_TYPES: dict[Any, str] = {getattr(torch, name): word for name, word in WORDS.items() if hasattr(torch, name)}

FACTORS = ("f16", "bf16", "f32", "e4m3", "e5m2")


def dtype_of(word: str) -> Any:
    """The torch type of ptxkit's name of a type."""
    return getattr(torch, NUMPY_NAMES[word])


def word_of(dtype: Any, name: str) -> str:
    """ptxkit's name of a torch type. Raises LaunchError for a type that no kernel has."""
    word = _TYPES.get(dtype)
    if word is None:
        raise _unknown(dtype, name)
    return word


def refuse_factor(tensor: Any, name: str) -> None:
    """Raise LaunchError for a factor of a type that is not multiplied."""
    if _TYPES.get(tensor.dtype) not in FACTORS:
        raise _unknown(tensor.dtype, name)


def _unknown(dtype: Any, name: str) -> LaunchError:
    return LaunchError(f"{name} has elements of {dtype}: the operators take float16, bfloat16, float32, float8_e4m3fn and float8_e5m2")


def known(*sizes: Any) -> bool:
    """Whether each of these sizes is a number, or has an example: a size that depends on data has none."""
    return all(isinstance(size, int) or size.node.has_hint() for size in sizes)


def numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes as numbers; of a dynamic size its example, so that looking at it adds no guard."""
    return tuple(size if isinstance(size, int) else int(size.node.hint) for size in sizes)


def view(tensor: Any, name: str) -> ArrayView:
    """What a launch would see of this tensor, but for its address."""
    refuse_layout(tensor, name)
    return ArrayView(0, numbers(tensor.shape), numbers(tensor.stride()), word_of(tensor.dtype, name), tensor.device.index or 0, "torch")


def views(named: dict[str, Any]) -> dict[str, ArrayView] | None:
    """The views of those that are there; None if a size is not known yet."""
    there = {name: tensor for name, tensor in named.items() if tensor is not None}
    same_device(there)
    for name, tensor in there.items():
        refuse_layout(tensor, name)
    if not all(known(*tensor.shape, *tensor.stride()) for tensor in there.values()):
        return None
    return {name: view(tensor, name) for name, tensor in there.items()}


def with_contiguous_rows(tensor: Any) -> Any:
    """The tensor, or a copy of it if the elements of its rows lie apart."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def refuse_missing(tensor: Any, name: str) -> None:
    """Raise LaunchError for an operand that is None: torch passes it on to an operator that takes a tensor."""
    if tensor is None:
        raise LaunchError(f"{name} is None: it is a tensor")


OF_NONE = AttributeError, KeyError, TypeError
"""What an operator fails of, where an operand is None."""


def tensors_of(overload: Any) -> dict[str, int]:
    """The operands that an operator must have, and their places."""
    return {argument.name: place for place, argument in enumerate(overload._schema.arguments) if str(argument.type) == "Tensor"}


def refuse_none(operands: dict[str, int], given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise LaunchError for an operand of a call that is None."""
    for name, place in operands.items():
        refuse_missing(given[place] if place < len(given) else named[name], name)


def naming_none(overload: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an operator, which names an operand that is None. It looks for one after it has failed: that costs no other call."""
    operands = tensors_of(overload)

    def run(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except OF_NONE:
            refuse_none(operands, given, named)
            raise

    return run


def say_copy(operator: str, name: str, tensor: Any, reads: str) -> None:
    """Log that an operator copies an operand, once for each shape. `reads` says what its kernels read."""
    kind = operator, name, tuple(tensor.shape), tensor.stride(), tensor.dtype
    if kind not in _said:
        _said.add(kind)
        _log.warning("%s copies %s of shape %s with strides %s: %s", *kind[:4], reads)


def refuse_layout(tensor: Any, name: str) -> None:
    """Raise LaunchError for a tensor that is no plain array."""
    refuse_missing(tensor, name)
    if tensor.layout is not torch.strided:
        raise LaunchError(f"{name} is a sparse tensor ({tensor.layout}): a product takes dense ones; pass {name}.to_dense()")
    if tensor.is_quantized:
        raise LaunchError(f"{name} is a quantised tensor ({tensor.dtype}): a product takes plain ones; pass {name}.dequantize()")


def refuse_back(rows: Any, back: Any) -> None:
    """Raise LaunchError unless `back` may say which choices take each of these rows."""
    if back.ndim != 2 or back.dtype is not torch.int32 or back.shape[0] != rows.shape[0]:
        raise LaunchError(f"back is {back.dtype} {tuple(back.shape)}: it is int32 [{rows.shape[0]}, choices of a row], the numbers of the "
                          "choices that take each row, -1 for none")


def refuse_overlap(out: Any, **read: Any) -> None:
    """Raise LaunchError if `out` shares memory with a tensor that is read after `out` is cleared."""
    def seen(tensor: Any) -> ArrayView:
        return ArrayView(tensor.data_ptr(), tensor.shape, tensor.stride(), f"b{8 * tensor.itemsize}", 0, "torch")

    overlap.refuse_overlap([("out", seen(out)), *((name, seen(tensor)) for name, tensor in read.items() if torch.is_tensor(tensor))])


def same_device(named: dict[str, Any]) -> None:
    """Raise LaunchError unless all tensors are on one device."""
    (first, one), *others = named.items()
    for name, tensor in others:
        if tensor.device != one.device:
            raise LaunchError(f"{name} is on {tensor.device} and {first} on {one.device}: a product has one device; move one of them")


__all__ = ["FACTORS", "OF_NONE", "dtype_of", "known", "naming_none", "numbers", "refuse_back", "refuse_factor", "refuse_layout",
           "refuse_missing", "refuse_none", "refuse_overlap", "same_device", "say_copy", "tensors_of", "view", "views",
           "with_contiguous_rows", "word_of"]
