"""torch.ops.ptxkit.attention_decode beside torch's own attention: results, fake tensors, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401

ops: Any = torch.ops.ptxkit


def operands(device: str) -> list[Any]:
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(shape, generator=generator).to(device, torch.bfloat16) for shape in ((1, 4, 64), (3, 16, 2, 64), (3, 16, 2, 64)))
    return [q, k, v, *(torch.tensor(x, dtype=torch.int32, device=device) for x in ([[2, 0]], [20]))]


def test_it_is_torchs_attention_over_the_gathered_pages(device: str) -> None:
    q, k, v, table, lengths = operands(device)
    keys, values = (x[table[0].long()].flatten(0, 1)[:20].transpose(0, 1)[None].float() for x in (k, v))
    wanted_ = torch.nn.functional.scaled_dot_product_attention(q[:, :, None].float(), keys, values, scale=0.2, enable_gqa=True)[:, :, 0]
    out, lse = ops.attention_decode_lse(q, k, v, table, lengths, scale=0.2, splits=2)
    assert torch.allclose(out.float(), wanted_, atol=0.02, rtol=0.02)
    scores = 0.2 * q[:, :, None].float() @ keys.repeat_interleave(2, 1).transpose(-1, -2)
    assert torch.allclose(lse, scores.logsumexp(-1)[..., 0], atol=1e-4)
    assert torch.equal(ops.attention_decode(q, k, v, table, lengths, 0.2, 2), out)


def test_what_requires_grad_is_refused(device: str) -> None:
    q, *others = operands(device)
    with pytest.raises(LaunchError, match="no gradient"):
        ops.attention_decode(q.requires_grad_(), *others)


def test_fake_tensors_have_the_shape_and_the_refusals() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, cache = torch.empty(2, 8, 128, dtype=torch.float16), torch.empty(9, 64, 2, 128, dtype=torch.float16)
        table, lengths = torch.empty(2, 4, dtype=torch.int32), torch.empty(2, dtype=torch.int32)
        out, lse = ops.attention_decode_lse(q, cache, cache, table, lengths)
        assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, q.dtype, (2, 8), torch.float32)
        with pytest.raises(LaunchError, match="lengths is s64"):
            ops.attention_decode(q, cache, cache, table, lengths.long())


def test_outside_of_the_cpu_device_tensors_of_the_cpu_are_refused() -> None:
    with pytest.raises(LaunchError, match="cpu_device"):
        ops.attention_decode(*operands("cpu"))
