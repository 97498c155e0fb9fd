"""Arrays, on the GPU unless `on` says otherwise, that lie among bytes 0xFF, which are NaN in every type of results, and the check that
these bytes stay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..bench.operands import TORCH_NAMES
from ..bench.shapes import BYTES

POISON = 0xFF
_PLACE: ContextVar[str] = ContextVar("place", default="cuda")


@contextmanager
def on(place: str) -> Iterator[None]:
    """Arrays are made on this device of torch."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


def array(torch: Any, shape: Sequence[int], word: str, *, pad: int = 0, offset: int = 0, values: Any = None, loose: bool = False) -> Any:
    """Values, or poison, in lines with `pad` 16-byte units between them, `offset` bytes into a buffer. Everything around them is poison.
    `loose`: pad and offset count elements."""
    size, kind = BYTES[word], getattr(torch, TORCH_NAMES[word])
    *outer, rows, columns = shape
    stride, offset = columns + (pad if loose else pad * (16 // size)), offset * size if loose else offset
    lines = math.prod(outer) * rows
    whole = torch.full((offset + lines * stride * size + 64,), POISON, dtype=torch.uint8, device=_PLACE.get())
    bits = whole[offset:offset + lines * stride * size].view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size])
    seen = bits.view(*outer, rows, stride)[..., :columns]
    if values is not None:
        seen.copy_(values.to(kind).view(seen.dtype))
    return seen.view(kind)


def normal(torch: Any, shape: Sequence[int], word: str, *, pad: int = 0, offset: int = 0, loose: bool = False) -> Any:
    """An array of normally distributed values. They have 10 bits of fraction, which tf32 has too."""
    values = torch.randn(tuple(shape), device=_PLACE.get()).half().float()
    return array(torch, shape, word, pad=pad, offset=offset, loose=loose, values=values)


def scales(torch: Any, *shape: int) -> Any:
    """Scale factors from 0.5 to 1.5."""
    return torch.rand(shape, device=_PLACE.get()) + 0.5


def memory(torch: Any, array: Any) -> Any:
    """All bytes of the buffer that an array lies in."""
    return torch.empty(0, dtype=torch.uint8, device=array.device).set_(array.untyped_storage())


def overwritten(torch: Any, array: Any, results: Sequence[Any], what: str) -> str | None:
    """A sentence when bytes of the array's buffer outside of `results`, which are views of it, are no longer poison."""
    size, whole = array.element_size(), memory(torch, array)
    outside = torch.ones_like(whole, dtype=torch.bool)
    for result in results:
        strides = (*(stride * size for stride in result.stride()), 1)
        torch.as_strided(outside, (*result.shape, size), strides, result.storage_offset() * size).fill_(False)
    wrong = int((whole[outside] != POISON).sum())
    return f"{wrong} bytes outside of {what} were written" if wrong else None
