"""What the operators refuse, each in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402
from ptxkit.torch import products  # noqa: E402
from tests.torch.test_operators import offs, randn  # noqa: E402

ops = torch.ops.ptxkit


@pytest.mark.parametrize("where", ["real", "meta"])
def test_both_scales_may_not_be_none(device: str, where: str) -> None:
    """`gemm.gemm` multiplies without scales then."""
    q = randn(16, 128, device=device, dtype=torch.float8_e4m3fn).to("meta" if where == "meta" else device)
    for call in (ops.scaled_gemm.default, lambda *given: ops.scaled_gemm.out(*given, out=q.new_empty((16, 16), dtype=torch.bfloat16))):
        with pytest.raises(LaunchError, match=r"^scale_a is None"):
            call(q, q.T, None, None)


@pytest.mark.parametrize("call", [products.gemm, lambda a, b: products.gemm_out(a, b, out=torch.empty(8, 8))])
def test_none_is_named_on_a_gpu_too(call: Any) -> None:
    """What is asked before anything is launched."""
    x = randn(8, 8, device="cpu")
    for name, given in (("a", (None, x)), ("b", (x, None))):
        with pytest.raises(LaunchError, match=f"^{name} is (None|a NoneType)"):
            call(*given)


def test_cpu_tensors_are_refused_outside_of_a_block() -> None:
    a = randn(16, 16, device="cpu")
    with pytest.raises(LaunchError, match=r"with ptxkit\.torch\.cpu_device\(\):"):
        ops.gemm(a, a)
    with pytest.raises(LaunchError, match="cpu_device"):
        ops.gemm(a, a, out=torch.empty_like(a))
    with pytest.raises(LaunchError, match="cpu_device"):
        ops.grouped_gemm(a, a[None], offs("cpu", 16))
    with pytest.raises(LaunchError, match="cpu_device"):
        ops.weight_gradient(a, a, offs("cpu", 0, 16))


SENTENCES: dict[str, tuple[Any, str]] = {
    "sparse": (lambda a: ops.gemm(a.to_sparse(), a), "sparse tensor"),
    "csr": (lambda a: ops.gemm(a, a.to_sparse_csr()), "sparse tensor"),
    "quantised": (lambda a: ops.gemm(torch.quantize_per_tensor(a.float(), 0.1, 0, torch.qint8), a), "quantised tensor"),
    "complex": (lambda a: ops.gemm(a.to(torch.complex64), a.to(torch.complex64)), "complex64"),
    "bias of float64": (lambda a: ops.gemm(a, a, bias=a[0].double()),
                        "bias has elements of float64: convert it to float16, bfloat16, float32, float8_e4m3fn or float8_e5m2$"),
    "residual of whole numbers": (lambda a: ops.gemm(a, a, residual=a.long()), "residual has elements of int64: convert it to float16"),
    "float64": (lambda a: ops.gemm(a.double(), a.double()), "float64"),
    "devices": (lambda a: ops.gemm(a, a.to("meta")), "one is on meta|b is on meta|is on cpu|is on cuda"),
    "meta": (lambda a: ops.gemm(a.to("meta"), a[:8].to("meta")), r"pass a weight w of shape \[N, K\] as w\.T"),
    "depth": (lambda a: ops.gemm(a, a[:8]), r"pass a weight w of shape \[N, K\] as w\.T"),
    "activation": (lambda a: ops.gemm(a, a, activation="tanh"), "relu, gelu, silu"),
    "bias": (lambda a: ops.gemm(a, a, bias=a[0, :5]), r"bias has shape \(5,\)"),
    "residual": (lambda a: ops.gemm(a, a, residual=a[:3]), "residual has shape"),
    "out": (lambda a: ops.gemm(a, a, out_dtype=torch.float16, out=torch.empty_like(a)), "give one of them"),
    "out in grad mode": (lambda a: ops.gemm(a.clone().requires_grad_(), a, out=torch.empty_like(a)),
                         r"import ptxkit\.torch|don't support automatic differentiation"),
    "gradients of fp8": (lambda a: ops.gemm(a.to(torch.float8_e4m3fn).requires_grad_(), a.to(torch.float8_e4m3fn)), "dequantised"),
    "gradients of fp8 results": (lambda a: ops.gemm(a.clone().requires_grad_(), a, out_dtype=torch.float8_e4m3fn).float().sum().backward(),
                                 "gemm has a result of torch.float8_e4m3fn, whose gradient is rounded to 8 bits: take another out_dtype"),
    "fp8 results of groups": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 16), out_dtype=torch.float8_e4m3fn), "take bfloat16"),
    "fp8 results of gates": (lambda a: ops.gated_gemm(a, a, out=a[:, :8].to(torch.float8_e5m2)), "elements of torch.float8_e5m2: results"),
    "types of fake groups along K": (lambda a: ops.weight_gradient(*(a.to("meta", torch.float32),) * 2, offs("meta", 0, 16)),
                                     "both bfloat16 or both float16"),
    "results of fake groups along K": (lambda a: ops.weight_gradient(*(a.to("meta"),) * 2, offs("meta", 0, 16),
                                                                     out_dtype=torch.float8_e4m3fn), "have bfloat16, float16 or float32"),
    "gradients of scaled": (lambda a: ops.scaled_gemm(a.clone().requires_grad_(), a, torch.ones(1), torch.ones(1)), "no gradients"),
    "scales": (lambda a: ops.scaled_gemm(*(a.to(torch.float8_e4m3fn),) * 2, torch.ones(3), torch.ones(2)), "a_scale has shape"),
    "scales of rows": (lambda a: ops.scaled_gemm(*(a.to(torch.float8_e4m3fn),) * 2, torch.ones(16, 1), torch.ones(5)), "[Bb]lock|block"),
    "offs": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 1, 2, 16)), r"for 1 groups it is \(1,\)"),
    "grouped bias": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 16), bias=a[0]), "add it to the result"),
    "gate": (lambda a: ops.gated_gemm(a, a[:, :5]), r"pass a weight w of shape \[2 N, K\] as w\.T"),
    "gate's gradient": (lambda a: ops.gate_gradient(a, a), r"float32 \[M, 2 N\]"),
    "gather": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 2), gather=offs("cpu", 1, 2)[None]), r"gather has shape \(1, 2\)"),
    "back of nothing": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 16), back=offs("cpu", 1)[None]), "give gather as well"),
    "quantised along K": (lambda a: ops.quantized_grouped_gemm(a, a, offs("cpu", 16)), "groups along K are grouped_gemm's"),
    "quantised fp8": (lambda a: ops.quantized_grouped_gemm(a.to(torch.float8_e4m3fn), a[None], offs("cpu", 16)),
                      "are scaled_grouped_gemm's"),
    "rounded": (lambda a: ops.rounded_to_blocks(a, "row"), "1x128 or 128x128"),
    "batches": (lambda a: ops.grouped_gemm(a[None], a[None], offs("cpu", 16)), r"is torch\.ops\.ptxkit\.gemm"),
    "place": (lambda a: ops.combine(a, offs("cpu", 1, 2)), r"place \[T, choices of a row\]"),
    "place in 64 bits": (lambda a: ops.combine(a, offs("cpu", 1, 2)[:, None].long()), "place has elements of s64"),
    "weights": (lambda a: ops.combine(a, offs("cpu", 1, 2)[:, None], torch.ones(2)), "weights has shape"),
    "back": (lambda a: ops.combine(a, offs("cpu", 1)[:, None], back=offs("cpu", 1)), r"it is int32 \[16, choices of a row\]"),
    "sums in 16 bits": (lambda a: ops.weight_gradient_(a[None].clone(), a, a, offs("cpu", 0, 16)), "adds in float32"),
    "sums of another shape": (lambda a: ops.weight_gradient_(a.float()[None], a, a[:, :8], offs("cpu", 0, 16)), r"give \(1, 16, 8\)"),
    "sums in grad mode": (lambda a: ops.weight_gradient_(a.float()[None], a.clone().requires_grad_(), a, offs("cpu", 0, 16)),
                          r"import ptxkit\.torch"),
    "offs in 64 bits": (lambda a: ops.grouped_gemm(a, a[None], offs("cpu", 16).long()), r"pass offs\.int\(\)"),
    "another fp8": (lambda a: ops.gemm(*(a.to(torch.float8_e4m3fnuz),) * 2), "a has elements of torch.float8_e4m3fnuz"),
    "features": (lambda a: ptxkit.torch.MoE(8, 8, 2, 1, dtype=torch.bfloat16)(a), r"it is \[\.\.\., 8\]"),
    "groups of f32": (lambda a: ops.weight_gradient(a.float(), a.float(), offs("cpu", 0, 16)), "both bfloat16 or both float16"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_what_is_refused_is_said_in_one_sentence(name: str) -> None:
    call, sentence = SENTENCES[name]
    with ptxkit.torch.cpu_device(), pytest.raises((LaunchError, RuntimeError), match=sentence) as raised:
        call(randn(16, 16, device="cpu"))
    if name != "out in grad mode":
        assert isinstance(raised.value, LaunchError)
    assert len(str(raised.value).splitlines()) == 1


def test_gemm_itself_refuses_what_requires_grad_under_grad_mode() -> None:
    from ptxkit import gemm

    a = randn(16, 16, device="cpu")
    wanted = a.clone().requires_grad_()
    for call in (lambda: gemm.gemm(wanted, a), lambda: gemm.gemm(a, wanted), lambda: gemm.gemm(a, a, wanted),
                 lambda: gemm.gemm(a, a, bias=wanted), lambda: gemm.group_gemm(wanted, a[None], a), lambda: gemm.group_gemm(a, wanted, a)):
        with pytest.raises(LaunchError, match=r"import ptxkit\.torch"):
            call()
        with torch.no_grad(), pytest.raises(LaunchError, match="on cpu"):       # what is wrong with these tensors otherwise
            call()


@pytest.mark.parametrize("name", ["sparse", "csr", "meta", "cpu", "subclass", "complex", "quantised"])
def test_gemm_itself_says_what_a_tensor_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an earlier call has made torch's types known: a tensor's address is then asked for first."""
    from torch.testing._internal.two_tensor import TwoTensor

    from ptxkit import gemm
    from ptxkit.runtime import arrays

    a = randn(16, 16, device="cpu")
    given, sentence = {"sparse": (a.to_sparse(), "to_dense"), "csr": (a.to_sparse_csr(), "to_dense"), "meta": (a.to("meta"), "no memory"),
                       "cpu": (a, r"\.cuda\(\)"), "subclass": (TwoTensor(a, a), "a TwoTensor, a tensor with operators of its own"),
                       "complex": (a.to(torch.complex64), "complex64"),
                       "quantised": (torch.quantize_per_tensor(a.float(), 0.1, 0, torch.qint8), "qint8")}[name]
    if name not in ("meta", "cpu"):
        monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    for known in (set(), {torch.Tensor, torch.nn.Parameter}):
        monkeypatch.setattr(arrays, "_TENSORS", known)
        for call in (lambda: gemm.gemm(given, a, a), lambda: gemm.gemm(given, a), lambda: gemm.group_gemm(given, a[None], a, out=a)):
            with pytest.raises(LaunchError, match=sentence) as raised:
                call()
            assert len(str(raised.value).splitlines()) == 1
