"""The operators as torch's own tools see them: opcheck, torch.compile, autocast, checkpoints, out variants; and what they refuse."""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
from typing import Any

import pytest

from ptxkit.errors import Finding, LaunchError
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402
from ptxkit.torch import views  # noqa: E402
from ptxkit.torch.operators import OPERATORS  # noqa: E402

ops = torch.ops.ptxkit
WITHOUT_SCHEMA = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
"""torch's own test of schemas compares arguments by a function that fp8 has not."""


def randn(*shape: int, device: str, dtype: Any = torch.bfloat16, grad: bool = False) -> Any:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).to(device)
    return made.requires_grad_(grad)


def offs(device: str, *ends: int) -> Any:
    return torch.tensor(ends, dtype=torch.int32, device=device)


def calls(device: str) -> dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Any]]:
    """By name: an operator, arguments by position and by name, and the shape of the result."""
    e4m3 = torch.float8_e4m3fn
    a, w = randn(16, 32, device=device, grad=True), randn(24, 32, device=device, grad=True)
    bias, c = randn(24, device=device, dtype=torch.float32, grad=True), randn(16, 24, device=device, grad=True)
    x, experts = randn(16, 32, device=device, grad=True), randn(3, 48, 32, device=device, grad=True)
    q, qw, qe = randn(16, 128, device=device, dtype=e4m3), randn(24, 128, device=device, dtype=e4m3), \
        randn(3, 16, 128, device=device, dtype=e4m3)
    one, ends, starts = torch.tensor([0.5], device=device), offs(device, 4, 4, 16), offs(device, 0, 4, 4, 16)
    rows, blocks = torch.rand(16, 1, device=device), torch.rand(1, 1, device=device)
    place = offs(device, *(15, 3, -1, 0, 3, 16, 7, 7, 7, 1, 2, 9, 4, 5, 6)).view(5, 3)
    return {
        "gemm": ("gemm", (a, w.T), {}, (16, 24)),
        "gemm, all fused": ("gemm", (a, w.T), {"bias": bias, "residual": c, "c": c, "beta": 0.5, "activation": "silu",
                                               "out_dtype": torch.float32}, (16, 24)),
        "gemm, batches": ("gemm", (randn(2, 8, 16, device=device, grad=True), randn(16, 8, device=device, grad=True)), {}, (2, 8, 8)),
        "scaled_gemm": ("scaled_gemm", (randn(16, 32, device=device), randn(24, 32, device=device).T, one, one), {}, (16, 24)),
        "scaled_gemm, fp8": ("scaled_gemm", (q, qw.T, one, one), {"bias": bias.detach(), "use_fast_accum": True}, (16, 24)),
        "scaled_gemm, rows and columns": ("scaled_gemm", (q, qw.T, rows, torch.rand(1, 24, device=device)), {}, (16, 24)),
        "scaled_gemm, blocks": ("scaled_gemm", (q, qw.T, rows, blocks), {"out_dtype": torch.float32}, (16, 24)),
        "gated_gemm": ("gated_gemm", (randn(2, 8, 32, device=device, grad=True), experts[0].T), {}, (2, 8, 24)),
        "gate_gradient": ("gate_gradient", (randn(16, 24, device=device), randn(16, 48, device=device, dtype=torch.float32)), {}, (16, 48)),
        "grouped_gemm": ("grouped_gemm", (x, experts.mT, ends), {"clear_rest": True}, (16, 48)),
        "grouped_gemm, gathered": ("grouped_gemm", (x, experts.mT, ends), {"gather": place.view(-1), "clear_rest": True}, (15, 48)),
        "grouped_gemm, gated": ("grouped_gemm", (x, experts.mT, starts), {"activation": "silu_and_mul"}, (16, 24)),
        "grouped_gemm, along K": ("grouped_gemm", (randn(16, 32, device=device, grad=True).mT, randn(16, 24, device=device, grad=True),
                                                   ends), {}, (3, 32, 24)),
        "scaled_grouped_gemm": ("scaled_grouped_gemm", (q, qe.mT, one, torch.rand(3, device=device), ends), {}, (16, 16)),
        "scaled_grouped_gemm, rows and columns": ("scaled_grouped_gemm", (q, qe.mT, rows, torch.rand(3, 16, device=device), ends), {},
                                                  (16, 16)),
        "scaled_grouped_gemm, blocks": ("scaled_grouped_gemm", (q, qe.mT, rows, torch.rand(3, 1, 1, device=device), starts), {}, (16, 16)),
        "weight_gradient": ("weight_gradient", (x, randn(16, 24, device=device, grad=True), starts), {}, (3, 32, 24)),
        "combine": ("combine", (x, place, randn(5, 3, device=device, dtype=torch.float32, grad=True)), {}, (5, 32)),
        "combine, of rows of any number": ("combine", (x, place.view(-1)), {"starts": starts, "out_dtype": torch.float32}, (3, 32)),
        "quantized_grouped_gemm": ("quantized_grouped_gemm", (x, experts[:1].mT, offs(device, 0, 16)), {}, (16, 48)),
        "rounded_to_blocks": ("rounded_to_blocks", (randn(2, 8, 32, device=device, grad=True), "1x128"), {}, (2, 8, 32)),
        "row_products": ("row_products", (x.detach(), place.view(-1), a.detach(), place.view(-1)), {}, (15,)),
    }


NAMES = tuple(calls("cpu"))
SIMULATED_LONG = ("quantized_grouped_gemm", "rounded_to_blocks")


@pytest.mark.thinned(10)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.sweep) if name in SIMULATED_LONG else name for name in NAMES])
def test_opcheck(device: str, name: str) -> None:
    operator, given, named, _ = calls(device)[name]
    fp8 = any(isinstance(each, torch.Tensor) and each.dtype is torch.float8_e4m3fn for each in given)
    tests = {"test_utils": WITHOUT_SCHEMA} if fp8 else {}
    found = torch.library.opcheck(getattr(ops, operator).default, given, named, **tests)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", ["gemm, all fused", "scaled_gemm", "grouped_gemm", "weight_gradient"])
def test_opcheck_of_the_out_variants(device: str, name: str) -> None:
    operator, given, named, shape = detached(*calls(device)[name])
    out = torch.empty(shape, dtype=named.get("out_dtype", torch.bfloat16), device=device)
    found = torch.library.opcheck(getattr(ops, operator).out, given, {**named, "out": out})
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("columns", [24, 13])
def test_opcheck_of_a_gradient_that_is_added(device: str, columns: int) -> None:
    a, b, out = randn(16, 32, device=device), randn(16, columns, device=device), torch.ones(3, 32, columns, device=device)
    found = torch.library.opcheck(ops.weight_gradient_.default, (out, a, b, offs(device, 0, 4, 4, 16)))
    assert set(found.values()) == {"SUCCESS"}


def test_a_gradient_is_added_in_a_graph_and_under_autocast(device: str) -> None:
    torch._dynamo.reset()
    a, b, starts = randn(16, 32, device=device), randn(16, 24, device=device), offs(device, 0, 4, 4, 16)
    product, out = ops.weight_gradient(a, b, starts, out_dtype=torch.float32), torch.ones(3, 32, 24, device=device)

    def call(out: Any, a: Any, b: Any) -> Any:
        ops.weight_gradient_(out, a, b, starts)
        return out * 2

    assert torch.equal(torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")(out, a, b), (product + 1) * 2)
    assert torch.equal(out, product + 1)
    with torch.autocast(device, torch.bfloat16):
        ops.weight_gradient_(out, a.float(), b.float(), starts)
    assert torch.equal(out, product + 1 + product)


def test_scales_are_those_of_rows_columns_and_blocks(device: str) -> None:
    """In every shape that torch gives them, of a and of weights [K, N] and [G, K, N]."""
    q, qw, qe = (randn(*shape, device=device, dtype=torch.float8_e4m3fn) for shape in ((16, 256), (24, 256), (2, 24, 256)))
    ends, a, w, experts = offs(device, 5, 16), q.cpu().double(), qw.cpu().double(), qe.cpu().double()
    generator = torch.Generator().manual_seed(9)
    for of_a, of_b, of_groups in (((1,), (1,), (2,)), ((16, 1), (1, 24), (2, 24)), ((16,), (24,), (2, 1, 24)),
                                  ((16, 2), (2, 1), (2, 2, 1))):
        s, t, u = (torch.rand(shape, generator=generator) for shape in (of_a, of_b, of_groups))
        blocks = of_a == (16, 2)
        scaled_a = a * (s.double().repeat_interleave(128, 1) if blocks else s.double().reshape(-1, 1))
        exact = scaled_a @ (w * (t.double().T.repeat_interleave(128, 1) if blocks else t.double().reshape(-1, 1))).T
        near = ops.scaled_gemm(q, qw.T, s.to(device), t.to(device), out_dtype=torch.float32).cpu().double()
        assert (near - exact).norm() <= 2.0 ** -11 * exact.norm(), of_a
        weights = experts * (u.double().mT.repeat_interleave(128, 2) if blocks else u.double().reshape(2, -1, 1))
        exact = torch.cat([scaled_a[:5] @ weights[0].T, scaled_a[5:] @ weights[1].T])
        near = ops.scaled_grouped_gemm(q, qe.mT, s.to(device), u.to(device), ends, out_dtype=torch.float32).cpu().double()
        assert (near - exact).norm() <= 2.0 ** -11 * exact.norm(), of_groups


@pytest.mark.parametrize(("k", "lying"), [(256, "row-major b"), (256, "column-major a"), (200, "lines of 200"), (256, "an odd address"),
                                          (256, "as they are read")])
def test_matrices_with_block_scales_may_lie_anyhow(device: str, caplog: pytest.LogCaptureFixture, k: int, lying: str) -> None:
    """Those that the kernels do not read as they lie are copied, with the bits of the same product; the log says it once a shape."""
    views._said.clear()
    a, w = randn(16, k, device=device, dtype=torch.float8_e4m3fn), randn(24, k, device=device, dtype=torch.float8_e4m3fn)
    scales = torch.rand(16, 2, device=device), torch.rand(2, 1, device=device)
    wide = [torch.zeros(x.shape[0], 256, device=device, dtype=x.dtype) for x in (a, w)]
    for whole, part in zip(wide, (a, w), strict=True):
        whole[:, :k].copy_(part)
    exact = ops.scaled_gemm(wide[0], wide[1].T, *scales)
    if lying == "row-major b":
        w = w.T.contiguous().T
    elif lying == "column-major a":
        a = a.T.contiguous().T
    elif lying == "an odd address":
        a = torch.cat([a.flatten()[:1], a.flatten()])[1:].view(16, k)
    given, out = (a, w.T, *scales), torch.empty(16, 24, device=device, dtype=torch.bfloat16)
    for _ in range(2):
        ops.scaled_gemm.out(*given, out=out)
        assert torch.equal(ops.scaled_gemm(*given), exact)
        assert torch.equal(out, exact)
    assert [record.message for record in caplog.records] == [
        f"scaled_gemm copies {name} of shape {tuple(each.shape)} with strides {each.stride()}: with block scales its kernels read "
        "operands that are contiguous along K, with lines that begin at multiples of 16 bytes"
        for name, each in (("a", a), ("b", w.T))
        if name in {"row-major b": "b", "column-major a": "a", "lines of 200": "ab", "an odd address": "a"}.get(lying, "")]
    torch.library.opcheck(ops.scaled_gemm.default, given, test_utils=("test_faketensor",))


@pytest.mark.parametrize("lying", ["as they are read", "column-major a", "batches apart", "row-major b", "lines of 200"])
@pytest.mark.parametrize("outer", [(3,), (2, 3)])
def test_batches_with_block_scales_may_lie_anyhow(device: str, outer: tuple[int, ...], lying: str) -> None:
    """A batch with one b has the bits of the product of all its rows."""
    k, rows = 200 if lying == "lines of 200" else 256, 4 * math.prod(outer)
    a, w = randn(*outer, 4, k, device=device, dtype=torch.float8_e4m3fn), randn(24, k, device=device, dtype=torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(*outer, 4, 2, device=device), torch.rand(2, 1, device=device)
    exact = ops.scaled_gemm(a.reshape(rows, k), w.T, scale_a.reshape(rows, 2), scale_b)
    if lying == "row-major b":
        w = w.T.contiguous().T
    elif lying == "column-major a":
        a = a.mT.contiguous().mT
    elif lying == "batches apart":
        a = torch.cat([a, a], -2)[..., :4, :]
    given = a, w.T, scale_a, scale_b
    assert torch.equal(ops.scaled_gemm(*given).reshape(rows, 24), exact)
    torch.library.opcheck(ops.scaled_gemm.default, given, test_utils=("test_faketensor",))


def detached(operator: str, given: tuple[Any, ...], named: dict[str, Any], shape: Any) -> Any:
    def one(each: Any) -> Any:
        return each.detach() if isinstance(each, torch.Tensor) else each

    return operator, tuple(map(one, given)), {name: one(each) for name, each in named.items()}, shape


def test_every_operator_has_a_case() -> None:
    assert {operator for operator, *_ in calls("cpu").values()} == {operator.name for operator in OPERATORS}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", NAMES)
def test_shapes_without_memory_are_those_with_memory(device: str, name: str) -> None:
    operator, given, named, shape = detached(*calls(device)[name])

    def meta(each: Any) -> Any:
        return each.to("meta") if isinstance(each, torch.Tensor) else each

    real = getattr(ops, operator)(*given, **named)
    fake = getattr(ops, operator)(*map(meta, given), **{key: meta(value) for key, value in named.items()})
    assert (tuple(real.shape), real.dtype, real.stride()) == (shape, fake.dtype, fake.stride())
    assert fake.shape == real.shape
    if operator not in ("gate_gradient", "row_products", "rounded_to_blocks"):
        out = torch.empty_like(real)
        getattr(ops, operator)(*given, **named, out=out)
        assert torch.equal(out, real)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(randn(*shape, device="cpu", dtype=torch.float32))
                                   for shape in ((24, 16), (8, 24)))
        self.bias = torch.nn.Parameter(randn(24, device="cpu", dtype=torch.float32))

    def forward(self, x: Any) -> Any:
        return ops.gemm(ops.gemm(x, self.first.T, self.bias, activation="gelu"), self.second.T)


@pytest.mark.parametrize("mode", ["eager", "no_grad", "inference", "autocast", "meta", "out"])
def test_an_operand_that_is_none_is_named(device: str, mode: str) -> None:
    """Torch passes None on to an operator that takes a tensor."""
    x, starts = randn(16, 32, device=device), offs(device, 0, 4, 16)
    added = "weight_gradient_", (torch.zeros(2, 32, 32, device=device), x, x, starts), {}, ()
    contexts = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "autocast": lambda: torch.autocast(device, torch.bfloat16)}
    where = "meta" if mode == "meta" else device
    for case in (*calls(device).values(), added):
        name, given, named, shape = case if mode == "eager" else detached(*case)
        given, named = ([one.to(where) if torch.is_tensor(one) else one for one in some] for some in (given, named.values()))
        named = dict(zip(case[2], named, strict=True)) | ({"out": torch.empty(shape, device=device)} if mode == "out" else {})
        operator = getattr(getattr(ops, name), "out" if mode == "out" and "out" in getattr(ops, name).overloads() else "default")
        taken = [argument.name for argument in operator._schema.arguments if str(argument.type) == "Tensor" and not argument.kwarg_only]
        for word in taken if len(taken) > 1 and operator._overloadname == ("out" if mode == "out" else "default") else ():
            place = [argument.name for argument in operator._schema.arguments].index(word)
            with contexts.get(mode, contextlib.nullcontext)(), pytest.raises(
                    LaunchError, match=rf"^({word} is (None|a NoneType)|[axbw]_scale is missing)"):
                operator(*given[:place], None, *given[place + 1:], **named)


def gradients(model: Any, call: Any, x: Any) -> list[Any]:
    model.zero_grad()
    y = call(x)
    y.square().sum().backward()
    return [y.detach(), *(parameter.grad for parameter in model.parameters())]


def test_compiled_for_dynamic_shapes_as_eager(device: str) -> None:
    """One graph, without a break, serves every number of rows."""
    torch._dynamo.reset()
    model = Layers().to(device)
    counter = importlib.import_module("torch._dynamo.testing").CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for rows in (32, 8, 48):
        x = randn(rows, 16, device=device, dtype=torch.float32)
        for eager, fast in zip(gradients(model, model, x), gradients(model, compiled, x), strict=True):
            assert torch.equal(eager, fast)
    assert counter.frame_count == 1


def test_compiled_groups_as_eager(device: str) -> None:
    torch._dynamo.reset()
    x, w = randn(16, 32, device=device, grad=True), randn(3, 48, 32, device=device, grad=True)

    def loss(x: Any, w: Any, ends: Any) -> Any:
        return ops.grouped_gemm(x, w.mT, ends, activation="silu_and_mul").float().square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for ends in (offs(device, 4, 4, 16), offs(device, 0, 9, 16)):
        eager = torch.autograd.grad(loss(x, w, ends), (x, w))
        fast = torch.autograd.grad(compiled(x, w, ends), (x, w))
        for one, other in zip(eager, fast, strict=True):            # silu's gradient is decomposed in a graph
            assert (one.double() - other.double()).norm() <= 2.0 ** -8 * one.double().norm()


def test_out_variants_are_compiled(device: str) -> None:
    torch._dynamo.reset()
    a, b, out = randn(16, 32, device=device), randn(32, 24, device=device), torch.zeros(16, 24, dtype=torch.bfloat16, device=device)

    def call(out: Any) -> Any:
        ops.gemm(a, b, out=out)
        return out + 1

    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(out), ops.gemm(a, b) + 1)
    assert torch.equal(out, ops.gemm(a, b))


def test_activation_checkpointing(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = Layers().to(device), randn(16, 16, device=device, dtype=torch.float32, grad=True)
    expected = gradients(model, model, x)
    for one, other in zip(expected, gradients(model, lambda x: checkpoint(model, x, use_reentrant=False), x), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(device: str, dtype: Any) -> None:
    """Operands are cast, and gradients come back in the types of the parameters; what is added after the product keeps its type."""
    model, x = Layers().to(device), randn(16, 16, device=device, dtype=torch.float32)
    cast = copy.deepcopy(model)
    for name in ("first", "second"):
        setattr(cast, name, torch.nn.Parameter(getattr(model, name).detach().to(dtype)))
    with torch.autocast(device, dtype):
        found = gradients(model, model, x)
    assert [each.dtype for each in found] == [dtype, *(torch.float32,) * 3]
    for one, other in zip(found, gradients(cast, cast, x.to(dtype)), strict=True):
        assert torch.equal(one.to(other.dtype), other)
    with torch.autocast(device, dtype):
        assert ops.grouped_gemm(x, torch.ones(1, 16, 8, device=device).mT.contiguous().mT, offs(device, 16)).dtype is dtype
        assert ops.weight_gradient(x, x, offs(device, 0, 16)).dtype is dtype


def test_a_copy_of_grouped_weights_is_said_once_a_shape(device: str, caplog: pytest.LogCaptureFixture) -> None:
    views._said.clear()
    a, w, ends = randn(16, 32, device=device), randn(2, 48, 32, device=device), offs(device, 5, 16)
    read, copied = w.mT, w.mT.contiguous()
    for _ in range(2):
        one, other = (ops.grouped_gemm(a, weights, ends, activation="silu_and_mul") for weights in (read, copied))
        assert torch.equal(one, other)
    assert [record.message for record in caplog.records] == [
        "grouped_gemm copies b of shape (2, 32, 48) with strides (1536, 48, 1): its kernels read weights that are contiguous along K, such "
        "as w.mT of w [G, N, K]"]


def test_weights_that_are_contiguous_along_n_are_read_as_they_lie(device: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those of the gradient of tokens, too; but not rows that begin at no multiple of 16 bytes."""
    views._said.clear()
    a, ends = randn(16, 32, device=device, grad=True), offs(device, 5, 16)
    for features in (48, 44):
        w = randn(2, features, 32, device=device)
        along_n = w.mT.contiguous()
        assert torch.equal(ops.grouped_gemm(a, w.mT, ends), ops.grouped_gemm(a, along_n, ends))
        if features == 48:
            found = [torch.autograd.grad(ops.grouped_gemm(a, weights, ends).sum(), a)[0] for weights in (w.mT, along_n)]
            assert torch.equal(*found)
        assert len(caplog.records) == (features == 44)


def test_what_is_not_a_number_stays_so(device: str) -> None:
    """As in torch's own activations: a row with a NaN has NaNs, in each of them."""
    a, b = randn(4, 32, device=device), randn(32, 16, device=device)
    a[1, 3] = float("nan")
    for activation in (None, "relu", "gelu", "silu"):
        assert torch.equal(ops.gemm(a, b, activation=activation).isnan().all(1), torch.arange(4, device=device) == 1)
    assert torch.equal(ops.gated_gemm(a, b).isnan().all(1), torch.arange(4, device=device) == 1)


def test_an_inference_graph_and_vmap(device: str) -> None:
    a, w = randn(3, 8, 16, device=device), randn(16, 8, device=device)
    with torch.inference_mode():
        expected = ops.gemm(a, w)
    assert torch.equal(torch.vmap(lambda each: ops.gemm(each, w))(a), expected)


def test_the_transforms_of_func_go_through(device: str) -> None:
    """Gradients for each row, and gradients of gradients; a tangent, which would be lost, is refused."""
    x, w = randn(3, 8, 16, device=device), randn(16, 8, device=device)

    def loss(w: Any, x: Any) -> Any:
        return ops.gemm(x, w, activation="silu").float().square().sum()

    leaf = w.clone().requires_grad_()
    expected = torch.stack([torch.autograd.grad(loss(leaf, each), leaf)[0] for each in x])
    assert torch.equal(torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x), expected)
    once = torch.autograd.grad(loss(leaf, x[0]), leaf, create_graph=True)[0]
    again = torch.func.grad(lambda w: torch.func.grad(loss)(w, x[0]).float().square().sum())(w)
    assert torch.equal(again, torch.autograd.grad(once.float().square().sum(), leaf)[0])
    for operator, operand in ((lambda w: ops.gemm(x, w), w), (lambda x: ops.choose_experts(x, 2)[0], randn(4, 8, device=device).float())):
        with pytest.raises(LaunchError, match="has a tangent, and the operators have no forward mode"):
            torch.func.jvp(operator, (operand,), (operand,))


def test_the_cpu_device_sees_memory_that_two_arguments_share() -> None:
    a, b, c = randn(32, 64, device="cpu"), randn(64, 16, device="cpu"), randn(32, 16, device="cpu")
    wide = torch.cat([a, randn(32, 32, device="cpu")], 1)
    rest = wide.clone()
    with ptxkit.torch.cpu_device():
        expected, plain, out = ops.gemm(a, b, c=c, beta=1.0), ops.gemm(a, b), c.clone()
        ops.gemm(a, b, c=out, beta=1.0, out=out)
        ops.gemm(wide[:, :64], b, out=wide[:, 70:86])
    assert torch.equal(out, expected)
    rest[:, 70:86] = plain
    assert torch.equal(wide, rest)


def test_the_cpu_device_runs_the_kernels_under_its_checker() -> None:
    """The bits are those of the simulated kernel, and a mistake in a kernel comes out."""
    from ptxkit.gemm.launch import simulate as simulated
    from ptxkit.torch import cpu, cpu_device

    a, b = randn(16, 200, device="cpu"), randn(200, 24, device="cpu")
    with cpu_device(check=True):
        y = ops.gemm(a, b, activation="silu")
    own = torch.empty_like(y)
    report = simulated.simulate(cpu.array(a, "a"), cpu.array(b, "b"), cpu.array(own, "out"), activation="silu")
    assert report.verdict == "clean"
    assert torch.equal(y, own)
    with pytest.raises(LaunchError, match="failed on the CPU device"):
        cpu.judge(report.__class__(findings=[Finding("data-race", "two warps write one word", "add a barrier")]))
