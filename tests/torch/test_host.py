"""What an operator does on the host before a launch, by a driver that does nothing: laws of the warm path, without a clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench import stub
from ptxkit.runtime import arrays, launch
from tests.gemm.test_host import entered
from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402
from ptxkit.torch import operators, products  # noqa: E402

pytestmark = pytest.mark.ptxas
ops = torch.ops.ptxkit


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A card without memory or work. Tensors of the CPU say that they are on it, and their products take the way of the GPU."""
    monkeypatch.setattr(arrays, "_TENSORS", set())
    monkeypatch.setattr(arrays, "_TORCH", {})               # the two are filled together
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    monkeypatch.setitem(launch.STREAMS, "torch", lambda device: 1)
    arrays.view(torch.empty(1))
    with stub.installed() as made:
        yield made


@pytest.fixture
def device_is_open() -> Iterator[None]:
    """Tensors of the CPU are multiplied on the CPU device."""
    with ptxkit.torch.cpu_device():
        yield


def randn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(shape).to(dtype)


def test_a_warm_operator_enters_no_more_functions_than_a_warm_call(card: Any) -> None:
    from ptxkit import gemm

    a, b, out, bias = randn(128, 64), randn(128, 64).T, randn(128, 128), randn(128)
    for rest, named in (((), {}), ((bias,), {"bias": bias})):
        products.gemm_out(a, b, *rest, out=out)
        gemm.gemm(a, b, out, **named)
        card.calls.clear()
        plain = entered(lambda named=named: gemm.gemm(a, b, out, **named))
        ours = entered(lambda rest=rest: products.gemm_out(a, b, *rest, out=out))
        assert sum(ours.values()) - sum(plain.values()) <= 2 * len(rest)        # a plain product enters one function instead of three
        assert not ours.keys() & {"view", "_prepare", "check_out", *(() if rest else ("gemm", "_run"))}
        assert card.calls == {}


def test_a_warm_product_into_new_memory_asks_its_tensors_alone(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gemm.gemm(a, b)` has its result's shape and type from the first call, and the launch from the addresses."""
    from ptxkit import gemm
    from ptxkit.gemm.launch import dense

    a, b, outs = randn(128, 64), randn(128, 64).T, [randn(128, 128), torch.empty(128, 128)]
    monkeypatch.setattr(dense, "empty_like_owner", lambda like, shape, dtype: torch.empty(shape, dtype=outs[dtype == "f32"].dtype))
    for out, dtype in zip(outs, (None, torch.float32), strict=True):
        made = gemm.gemm(a, b, out_dtype=dtype)
        assert (made.shape, made.stride(), made.dtype) == (out.shape, out.stride(), out.dtype)
        again = gemm.gemm(a, b, out_dtype=dtype)
        assert (again.shape, again.stride(), again.dtype) == (out.shape, out.stride(), out.dtype)
        gemm.gemm(a, b, out)
        monkeypatch.setitem(dense._results, (a.shape, b.shape, a.dtype, dtype), lambda device, out=out: out)
        seen = entered(lambda dtype=dtype: gemm.gemm(a, b, out_dtype=dtype))
        assert not seen.keys() & {"view", "_prepare", "_empty", "result_shape"}
        assert gemm.gemm(a, b, out_dtype=dtype) is out
    with pytest.raises(LaunchError, match=r"a is \[M, K\] and b \[K, N\]"):
        gemm.gemm(a, a)


def looking_on() -> tuple[Any, list[Any]]:
    """A mode of torch's dispatcher that changes nothing, and the functions that it sees."""
    from torch.utils._python_dispatch import TorchDispatchMode

    saw: list[Any] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            saw.append(func)
            return func(*args, **(kwargs or {}))

    return Mode, saw


def test_an_operator_is_dispatched_once_unless_a_mode_looks_on(device_is_open: Any) -> None:
    """With and without gradients. A mode, a fake tensor and a view that is negated go through the dispatcher to what they need."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    Mode, saw = looking_on()
    a, b = randn(16, 32), randn(24, 32).T
    wanted = ops.gemm(a, b)
    for leaf in (a, a.clone().requires_grad_()):
        seen = entered(lambda leaf=leaf: ops.gemm.default(leaf, b))
        assert seen["run"] >= 1
        assert seen["dispatched"] == 0
        with Mode():
            found = ops.gemm.default(leaf, b)
        assert torch.equal(found, wanted)
        assert ops.gemm.default in saw
        saw.clear()
    with FakeTensorMode() as mode:
        fake = ops.gemm.default(mode.from_tensor(a), mode.from_tensor(b))
    assert (type(fake).__name__, fake.shape) == ("FakeTensor", wanted.shape)
    assert torch.equal(ops.gemm.default(torch._neg_view(-a), b), wanted)


def test_a_repeated_call_is_the_launch_that_gemm_would_make(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The out variant on known arrays and on new ones, on arrays that have nothing to multiply, and on those that require grad."""
    from ptxkit import gemm
    from ptxkit.gemm.launch import dense

    ran: list[Any] = []
    run = dense.Launch.run
    monkeypatch.setattr(dense.Launch, "run", lambda launch, stream, *more: ran.append((launch, stream)) or run(launch, stream, *more))
    a, b, out, other = randn(128, 64), randn(128, 64).T, randn(128, 128), randn(128, 128)
    for into in (out, other):
        products.gemm_out(a, b, out=into)
        gemm.gemm(a, b, into)
        assert not entered(lambda into=into: products.gemm_out(a, b, out=into)).keys() & {"_run", "marks_of_three"}
    assert [ran[0]] * 3 + [ran[3]] * 3 == ran
    assert ran[0][0].pointers["out"] == out.data_ptr()
    assert ran[3][0].pointers["out"] == other.data_ptr()
    for _ in range(2):
        products.gemm_out(a[:0], b, out=out[:0])
    assert len(ran) == 6
    for given in ((a.clone().requires_grad_(), b, out), (a, b.clone().requires_grad_(), out), (a, b, out.clone().requires_grad_())):
        with torch.no_grad():
            products.gemm_out(given[0], given[1], out=given[2])
        with pytest.raises(LaunchError, match="requires grad"):
            products.gemm_out(given[0], given[1], out=given[2])


def test_a_call_with_a_bias_is_repeated_as_one_without(card: Any) -> None:
    from ptxkit import gemm

    a, b, out, biases = randn(128, 64), randn(128, 64).T, randn(128, 128), [randn(128), randn(128, dtype=torch.float32)]
    for bias in biases:
        gemm.gemm(a, b, out, bias=bias)
        assert not entered(lambda bias=bias: products.gemm_out(a, b, bias, out=out)).keys() & {"_run", "marks", "view"}
        with pytest.raises(LaunchError, match="bias requires grad"):
            products.gemm_out(a, b, bias.clone().requires_grad_(), out=out)
    with pytest.raises(LaunchError, match="bias"):
        products.gemm_out(a, b, randn(64), out=out)


def test_a_negated_view_is_refused(card: Any) -> None:
    """A launch would read its memory, which has the other sign. An operator of torch gets memory of its own."""
    from ptxkit import gemm

    a, b, out = torch.randn(128, 64, dtype=torch.complex64).conj().imag, randn(64, 128, dtype=torch.float32), torch.empty(128, 128)
    with pytest.raises(LaunchError, match="resolve_neg"):
        gemm.gemm(a, b, out)
    gemm.gemm(a.resolve_neg(), b, out)


@pytest.mark.parametrize("given", [0, 1])
def test_the_variant_of_fewer_arguments(device_is_open: Any, given: int) -> None:
    """torch takes it where it fits, what it writes is the same, and the variant that torch finds for the operator has all arguments."""
    a, b, *bias = randn(16, 32), randn(32, 24), *(randn(24) for _ in range(given))
    outs = [torch.empty(16, 24, dtype=torch.bfloat16) for _ in range(3)]
    Mode, saw = looking_on()
    with Mode():
        ops.gemm(a, b, *bias, out=outs[0])
        ops.gemm(a, b, *bias, out=outs[1], activation="relu")
    assert saw == [ops.gemm.plain_out, ops.gemm.out]
    ops.gemm.out(a, b, *bias, out=outs[2])
    assert torch.equal(outs[0], outs[2])
    assert torch.equal(outs[0].relu(), outs[1])
    assert set(torch.library.opcheck(ops.gemm.plain_out, (a, b, *bias), {"out": outs[0]}).values()) == {"SUCCESS"}
    with pytest.raises(LaunchError, match="requires grad"):
        ops.gemm.plain_out(a.requires_grad_(), b, *bias, out=outs[0])


def test_a_gradient_is_by_the_kernel_unless_something_looks_on(device_is_open: Any) -> None:
    """The same gradients past the dispatcher, through it, and where they are recorded; of a negated view too."""
    Mode, saw = looking_on()
    for shape, layout in (((16, 32), "rows"), ((2, 8, 32), "rows"), ((16, 32), "columns"), ((32,), "rows")):
        x, w = randn(*shape), randn(24, 32)
        leaf = (x if layout == "rows" else x.T.contiguous().T).requires_grad_()
        weight = w.requires_grad_()
        y = ops.gemm(leaf, weight.T)
        gradient = randn(*y.shape)
        found: list[Any] = []
        seen = entered(lambda y=y, leaf=leaf, weight=weight, gradient=gradient, found=found:
                       found.extend(torch.autograd.grad(y, (leaf, weight), gradient, retain_graph=True)))
        assert (seen["_by_kernel"], seen["dispatched"], seen["call"]) == (1, 0, 0)
        with Mode():
            looked = torch.autograd.grad(y, (leaf, weight), gradient, retain_graph=True)
        assert saw.count(ops.gemm.default) == 2
        saw.clear()
        again = torch.autograd.grad(y, (leaf, weight), gradient, retain_graph=True, create_graph=True)
        negated = torch.autograd.grad(y, (leaf, weight), torch._neg_view(-gradient))
        assert all(one.requires_grad for one in again)
        for one, *others in zip(found, looked, again, negated, strict=True):
            assert (one.shape, one.stride()) == (others[0].shape, others[0].stride())
            assert all(torch.equal(one, other) for other in others)


def test_what_is_written_is_told_to_autograd(device_is_open: Any) -> None:
    """A backward pass that needs what `out` held is refused, as by torch's own operators."""
    a, b, factor = randn(16, 32), randn(16, 32).T, randn(16, 16).requires_grad_()
    offs = torch.tensor([0, 16], dtype=torch.int32)
    calls = {"gemm": lambda out: ops.gemm.out(a, b, out=out), "gemm with bias": lambda out: ops.gemm.out(a, b, randn(16), out=out),
             "gemm, plain": lambda out: ops.gemm.plain_out(a, b, out=out),
             "scaled_gemm": lambda out: ops.scaled_gemm.out(a, b, torch.ones(1), torch.ones(1), out=out),
             "grouped_gemm": lambda out: ops.grouped_gemm.out(a, b[None], offs, out=out),
             "combine": lambda out: ops.combine.out(randn(4, 16), torch.zeros(16, 1, dtype=torch.int32), out=out)}
    for call in calls.values():
        out = randn(16, 16)
        loss = (factor * out).sum()
        call(out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    sums = torch.zeros(1, 32, 32)
    loss = (factor[0, 0] * sums).sum()
    ops.weight_gradient_(sums, a, a, offs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        ops.gemm.out(a, b, out=randn(16, 16))
        kept = randn(16, 16)
    ops.gemm.out(a, b, out=kept)


def test_a_route_into_memory_of_another_number_is_refused(card: Any) -> None:
    """Also after a call with the right number of the same arrays."""
    from ptxkit import gemm
    from ptxkit.gemm.launch.route import Sorted

    logits, numbers = randn(5, 8, dtype=torch.float32), torch.zeros(5, 2, dtype=torch.int32)
    weights, sorted_ = torch.zeros(5, 2), Sorted(*(torch.zeros(shape, dtype=torch.int32) for shape in (9, 10, (5, 2), 10)))
    gemm.choose_experts(logits, 2, out=(weights, numbers))
    gemm.sort_choices(numbers, 8, out=sorted_)
    with pytest.raises(LaunchError, match="weights has shape"):
        gemm.choose_experts(logits, 3, out=(weights, numbers))
    with pytest.raises(LaunchError, match="offs has shape"):
        gemm.sort_choices(numbers, 7, out=sorted_)
    with pytest.raises(LaunchError, match="count is -1"):
        gemm.sort_choices(numbers, -1)


def test_every_operator_launches_on_a_card(card: Any) -> None:
    """The functions of the GPU take what the operators pass."""
    e4m3, offs = torch.float8_e4m3fn, torch.tensor([3, 16], dtype=torch.int32)
    a, w, x, experts = randn(16, 32), randn(48, 32), randn(16, 32), randn(2, 48, 32)
    q, qw, qe, one = randn(16, 128, dtype=e4m3), randn(24, 128, dtype=e4m3), randn(2, 16, 128, dtype=e4m3), torch.ones(1)
    calls = {"gemm": (a, w.T, randn(48), None, None, 1.0, 0.0, "silu"), "scaled_gemm": (q, qw.T, one, one), "gated_gemm": (a, w.T),
             "grouped_gemm": (x, experts.mT, offs), "scaled_grouped_gemm": (q, qe.mT, one, one, offs),
             "gate_gradient": (randn(16, 24), randn(16, 48, dtype=torch.float32)), "combine": (x, offs[:, None], torch.ones(2, 1)),
             "quantized_grouped_gemm": (randn(16, 128), randn(2, 128, 128).mT, offs, None, "silu_and_mul"),
             "rounded_to_blocks": (randn(16, 128), "1x128"), "row_products": (x, offs, x, offs),
             "weight_gradient": (x, a, offs)}
    by_name = {operator.name: operator for operator in operators.OPERATORS}
    assert by_name.keys() == calls.keys()
    for name, given in calls.items():
        made = by_name[name].gpu(*given)
        into = by_name[name].gpu_out
        assert (into is None) == (name in ("gate_gradient", "row_products", "rounded_to_blocks"))
        if into is not None:
            into(*given, out=made)
    sums = torch.zeros(1, 32, 32)
    for operator in operators.IN_PLACE:
        assert operator.gpu(sums, x, a, offs) is None
