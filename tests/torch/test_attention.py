"""torch.ops.ptxkit.attention beside torch's own attention: results, gradients, fake tensors, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402

ops: Any = torch.ops.ptxkit
sdpa = torch.nn.functional.scaled_dot_product_attention


def operands(device: str, heads: int = 2, kv_heads: int = 2, rows: int = 40, keys: int = 40, *, grad: bool = False) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    shapes = (1, heads, rows, 64), (1, kv_heads, keys, 64), (1, kv_heads, keys, 64)
    return [torch.randn(shape, generator=generator).to(device, torch.bfloat16).requires_grad_(grad) for shape in shapes]


def close(ours: Any, right: Any) -> bool:
    return bool(torch.allclose(ours.float().cpu(), right.float().cpu(), atol=0.02, rtol=0.02))


def test_it_is_torchs_attention(device: str) -> None:
    q, k, v = operands(device, 4, 2, 50, 33)
    found = ops.attention(q, k, v, scale=0.2, enable_gqa=True)
    wide = [x.float().repeat_interleave(2, 1) for x in (k, v)]
    assert close(found, sdpa(q.float(), *wide, scale=0.2))
    out, lse = ops.attention_lse(q, k, v, scale=0.2, enable_gqa=True)
    assert torch.equal(out, found)
    assert close(lse, (0.2 * q.float() @ wide[0].mT).logsumexp(-1))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_gradients_are_those_of_torch(device: str, kv_heads: int) -> None:
    ours, theirs = (operands(device, 2, kv_heads, grad=True) for _ in range(2))
    weight = torch.randn(1, 2, 40, 64, generator=torch.Generator().manual_seed(4)).to(device)
    (ops.attention(*ours, is_causal=True, enable_gqa=kv_heads == 1).float() * weight).sum().backward()
    q, k, v = theirs
    wide = [x.float().repeat_interleave(2 // kv_heads, 1) for x in (k, v)]
    (sdpa(q.float(), *wide, is_causal=True) * weight).sum().backward()
    for own, right in zip(ours, theirs, strict=True):
        assert own.grad is not None
        assert float((own.grad - right.grad).abs().max()) <= 0.03 * float(right.grad.abs().max())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("type", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "keys", "kv_heads", "causal", "scale"), [
    ((2, 4, 20, 64), 33, 2, False, None), ((1, 2, 40, 64), 1, 2, False, 0.5), ((1, 1, 1, 64), 40, 1, False, None),
    ((1, 4, 33, 128), 33, 1, True, None), ((1, 2, 20, 256), 30, 1, False, None), ((1, 1, 1, 64), 1, 1, True, None),
    ((1, 2, 10, 64), 0, 2, False, None), ((1, 2, 0, 64), 10, 2, False, None), ((0, 2, 10, 64), 10, 2, False, None)])
def test_gradients_are_near_those_of_float64(device: str, shape: tuple[int, ...], keys: int, kv_heads: int, causal: bool,
                                             scale: float | None, type: Any) -> None:
    """Rows before heads in memory. What is left out of a kernel, no keys or no queries, has gradients of zeros."""
    generator = torch.Generator().manual_seed(5)
    (batches, heads, rows, head), gqa = shape, kv_heads != shape[1]
    ours = [torch.randn(batches, count, h, head, generator=generator).to(device, type).transpose(1, 2).requires_grad_()
            for h, count in ((heads, rows), (kv_heads, keys), (kv_heads, keys))]
    theirs = [x.detach().cpu().double().requires_grad_() for x in ours]
    weight = torch.randn(shape, generator=generator)
    (ops.attention(*ours, causal, scale, gqa).float() * weight.to(device)).sum().backward()
    q, *wide = theirs[0], *(x.repeat_interleave(heads // kv_heads, 1) for x in theirs[1:])
    (sdpa(q, *wide, is_causal=causal, scale=scale) * weight.double()).sum().backward()
    for own, right in zip(ours, theirs, strict=True):
        assert own.grad is not None
        assert own.grad.shape == right.grad.shape
        if own.numel():
            assert float((own.grad.cpu().double() - right.grad).abs().max()) <= 0.01 * max(1.0, float(right.grad.abs().max()))


def test_no_heads_have_gradients_without_elements(device: str) -> None:
    ours = operands(device, heads=0, kv_heads=0, grad=True)
    ops.attention(*ours).sum().backward()
    assert [x.grad.shape for x in ours] == [x.shape for x in ours]


@pytest.mark.parametrize("name", ["attention", "attention_lse", "attention_decode", "attention_decode_lse"])
@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_an_operand_that_is_none_is_named(name: str, where: str) -> None:
    """Torch passes None on to an operator that takes a tensor."""
    operator = getattr(ops, name)
    taken = [argument.name for argument in operator.default._schema.arguments if str(argument.type) == "Tensor"]
    heads = torch.zeros(2, 16, 2, 64, dtype=torch.float16, device=where)
    with ptxkit.torch.cpu_device():
        for missing in taken:
            given = [None if each == missing else heads for each in taken]
            with pytest.raises(LaunchError, match=rf"^{missing} is (None|a NoneType)"):
                operator(*given)


def test_autocast_and_func(device: str) -> None:
    q, k, v = (x.float() for x in operands(device))
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(ops.attention(q, k, v), ops.attention(*(x.bfloat16() for x in (q, k, v))))
    q, k, v = operands(device, grad=True)
    expected = torch.autograd.grad(ops.attention(q, k, v).float().square().sum(), q)[0]
    q, k, v = (x.detach() for x in (q, k, v))
    assert torch.equal(torch.func.grad(lambda q: ops.attention(q, k, v).float().square().sum())(q), expected)
    for operator in (ops.attention, lambda *of: ops.attention_lse(*of)[0]):
        with pytest.raises(LaunchError, match="no forward mode"):
            torch.func.jvp(lambda q, operator=operator: operator(q, k, v), (q,), (q,))


def test_what_has_no_gradient_is_one_sentence(device: str) -> None:
    q, k, v = operands(device, keys=30, grad=True)
    with pytest.raises(LaunchError, match="as many queries as keys"):
        ops.attention(q, k, v, is_causal=True)
    packed = [x[0].transpose(0, 1) for x in operands(device, grad=True)]
    starts = torch.tensor([0, 40], dtype=torch.int32, device=device)
    with pytest.raises(LaunchError, match="packed sequences have no gradient"):
        ops.attention(*packed, cu_seqlens=starts)
    with torch.no_grad():
        assert close(ops.attention(*packed, cu_seqlens=starts).transpose(0, 1), sdpa(*(x.float() for x in operands(device)))[0])


def test_fake_tensors_have_the_shape_and_the_refusals() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k = torch.empty(2, 4, 100, 128, dtype=torch.float16), torch.empty(2, 2, 70, 128, dtype=torch.float16)
        out, lse = ops.attention_lse(q, k, k, enable_gqa=True)
        assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, q.dtype, (2, 4, 100), torch.float32)
        with pytest.raises(LaunchError, match="enable_gqa=True"):
            ops.attention(q, k, k)


def test_outside_of_the_cpu_device_tensors_of_the_cpu_are_refused() -> None:
    with pytest.raises(LaunchError, match="cpu_device"):
        ops.attention(*operands("cpu"))
