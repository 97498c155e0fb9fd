"""An `out` that shares memory with what the operator reads is refused, on a GPU and on the CPU device; one that lies between it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401
from tests.torch.test_operators import calls, detached, ops  # noqa: E402

CASES = [name for name in calls("cpu") if name.split(",")[0] not in ("gate_gradient", "row_products", "rounded_to_blocks")]


def into(operand: Any, shape: Any, dtype: Any) -> tuple[Any, Any]:
    """An operand, moved, and a result of this shape that begins in the memory of its last element, at a multiple of 16 bytes."""
    count, size = torch.Size(shape).numel(), torch.empty((), dtype=dtype).element_size()
    own = operand.untyped_storage().nbytes()
    room = torch.zeros(own + 256 + count * size, dtype=torch.uint8, device=operand.device)
    room[:own].copy_(torch.empty(0, dtype=torch.uint8, device=operand.device).set_(operand.untyped_storage()))
    moved = torch.empty(0, dtype=operand.dtype, device=operand.device).set_(room.untyped_storage(), operand.storage_offset(), operand.shape,
                                                                            operand.stride())
    last = moved.storage_offset() + sum((extent - 1) * stride for extent, stride in zip(moved.shape, moved.stride(), strict=True))
    begin = last * moved.element_size() // 16 * 16 // size
    return moved, torch.empty(0, dtype=dtype, device=operand.device).set_(room.untyped_storage(), begin, shape)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CASES)
def test_no_operand_may_share_memory_with_the_result(device: str, name: str) -> None:
    """Every tensor that an operator reads, in turn. Where a copy is read instead, the result is that of memory of its own."""
    operator, given, named, shape = detached(*calls(device)[name])
    call: Callable[..., Any] = getattr(ops, operator).out
    wanted = getattr(ops, operator)(*given, **named)
    refused = []
    for place, each in (*enumerate(given), *named.items()):
        if not isinstance(each, torch.Tensor):
            continue
        moved, out = into(each, shape, wanted.dtype)
        positions = [moved if at == place else one for at, one in enumerate(given)]
        try:
            call(*positions, **{**named, place: moved} if isinstance(place, str) else named, out=out)
        except LaunchError as error:
            refused.append(place)
            sentence = str(error)
        else:
            sentence = "" if torch.equal(out, wanted) else "another result"
        assert not sentence or "share memory: a launch writes out" in sentence
    assert operator == "quantized_grouped_gemm" or {0, 1} <= set(refused)       # of which quantised copies are multiplied


def test_columns_between_columns_share_nothing(device: str) -> None:
    """`out` is half of a matrix whose other half, or every second row of it, is a; and out may be c or the residual, but not a part."""
    generator = torch.Generator().manual_seed(1)
    whole, b = (torch.randn(16, extent, generator=generator).bfloat16().to(device) for extent in (64, 32))
    for a, out in ((whole[:, :16], whole[:, 32:]), (whole[::2, :16], whole[1::2, :32])):
        wanted = ops.gemm(a.clone(), b[:16])
        ops.gemm(a, b[:16], out=out)
        assert torch.equal(out, wanted)
    a, c = torch.randn(16, 16, generator=generator).bfloat16().to(device), torch.randn(16, 32, generator=generator).bfloat16().to(device)
    for named in ({"c": c, "beta": 1.0}, {"residual": c}):
        wanted, before = ops.gemm(a, b, **named), c.clone()
        ops.gemm(a, b, **named, out=c)
        assert torch.equal(c, wanted)
        c.copy_(before)
    room = torch.zeros(17, 32, dtype=torch.bfloat16, device=device)
    with pytest.raises(LaunchError, match="out and residual share memory"):
        ops.gemm(a, b, residual=room[:16], out=room[1:])


def test_an_out_that_overlaps_itself_is_refused(device: str) -> None:
    a, b = torch.ones(16, 16, dtype=torch.bfloat16, device=device), torch.ones(16, 32, dtype=torch.bfloat16, device=device)
    with pytest.raises(LaunchError, match="not overlap"):
        ops.gemm(a, b, out=torch.zeros(1, 32, dtype=torch.bfloat16, device=device).expand(16, 32))
    with pytest.raises(LaunchError, match="not overlap"):
        ops.gemm(a.expand(3, 16, 16), b, out=torch.zeros(1, 16, 32, dtype=torch.bfloat16, device=device).expand(3, 16, 32))
