"""Sums of chosen rows, and the layer of experts: beside plain torch in float64 of the same rounded operands."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

from ptxkit.torch import MoE, cpu_device  # noqa: E402
from ptxkit.torch.moe import by_expert  # noqa: E402
from tests.torch.test_modules import beside, trained  # noqa: E402

ops, nn = torch.ops.ptxkit, torch.nn


def plain_combine(y: Any, place: Any, weights: Any, starts: Any) -> Any:
    """What a combine is, in the type of y."""
    rows = [y[p] if 0 <= p < len(y) else torch.zeros_like(y[0]) for p in place.reshape(-1).tolist()]
    rows = rows if weights is None else [w * row for w, row in zip(weights.reshape(-1), rows, strict=True)]
    begins = starts.tolist() if starts is not None else range(0, place.numel() + 1, place.shape[1])
    return torch.stack([torch.stack([torch.zeros_like(y[0]), *rows[a:b]]).sum(0) for a, b in itertools.pairwise(begins)])


@pytest.mark.parametrize("case", ["plain", "weighted", "ragged", "back"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_combine_and_its_gradients(device: str, case: str, dtype: Any) -> None:
    """Rows that several choices take, or none, and choices of no row."""
    generator, chance = torch.Generator().manual_seed(1), random.Random(case)
    y = torch.randn(9, 24, generator=generator).to(dtype)
    place = torch.tensor([chance.randrange(-2, 11) for _ in range(15)], dtype=torch.int32).view(5, 3)
    weights = torch.randn(5, 3, generator=generator) if case != "plain" else None
    starts = torch.tensor([0, 4, 4, 14], dtype=torch.int32) if case == "ragged" else None
    back = None
    if case == "back":
        taken = [[e for e, p in enumerate(place.reshape(-1).tolist()) if p == row] for row in range(9)]
        back = torch.tensor([(each + [-1] * 15)[:max(map(len, taken))] for each in taken], dtype=torch.int32)
    if starts is not None:
        place, weights = place.reshape(-1), weights.reshape(-1)
    exact = [each.double().requires_grad_() for each in (y, weights) if each is not None]
    leaves = [each.to(device, copy=True).requires_grad_() for each in (y, weights) if each is not None]
    z = plain_combine(exact[0], place, exact[1] if weights is not None else None, starts)
    on = [None if each is None else each.to(device) for each in (place, starts, back)]
    found = ops.combine(leaves[0], on[0], leaves[1] if weights is not None else None, on[1], on[2], torch.float32)
    dz = torch.randn(z.shape, generator=generator)
    pairs = zip((found, *torch.autograd.grad(found, leaves, dz.to(device), retain_graph=True)),
                (z, *torch.autograd.grad(z, exact, dz.double(), retain_graph=True)), strict=True)
    for one, other in pairs:
        assert (one.cpu().double() - other).norm() <= (2.0 ** -8 if dtype is torch.bfloat16 else 2.0 ** -22) * other.norm()


def test_a_second_derivative_of_a_combine(device: str) -> None:
    generator = torch.Generator().manual_seed(2)
    y, weights = torch.randn(6, 16, generator=generator), torch.randn(4, 2, generator=generator)
    place = torch.tensor([[0, 3], [3, 5], [-1, 2], [1, 1]], dtype=torch.int32)
    found = []
    for leaves, call in (([y.to(device), weights.to(device)], lambda y, w: ops.combine(y, place.to(device), w)),
                         ([y.double(), weights.double()], lambda y, w: plain_combine(y, place, w, None))):
        leaves = [each.clone().requires_grad_() for each in leaves]
        first = torch.autograd.grad(call(*leaves).square().sum(), leaves, create_graph=True)
        found.append([each.cpu().double() for each in torch.autograd.grad(sum(each.square().sum() for each in first), leaves)])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


@pytest.mark.parametrize("seed", range(3))
def test_slots_are_those_of_each_expert_in_the_order_of_tokens(device: str, seed: int) -> None:
    chance = random.Random(seed)
    experts = torch.tensor([[chance.randrange(-1, 6) for _ in range(3)] for _ in range(11)])
    routing = by_expert(experts.to(device), 5)
    flat, offs = experts.reshape(-1), routing.offs.tolist()
    for expert in range(5):
        own = routing.choice[offs[expert]:offs[expert + 1]].tolist()
        assert own == [e for e, each in enumerate(flat.tolist()) if each == expert]
    for e, (expert, slot) in enumerate(zip(flat.tolist(), routing.slot.reshape(-1).tolist(), strict=True)):
        assert slot == -1 if expert in (-1, 5) else (int(routing.choice[slot]), int(routing.token[slot])) == (e, e // 3)


class Plain(nn.Module):
    """What a MoE computes, out of torch's operators, in the type of its parameters."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.options = layer.softmax, layer.top_k, layer.normalise
        for name, parameter in layer.named_parameters():
            self.register_parameter(name, nn.Parameter(parameter.detach().double().cpu()))

    def forward(self, x: Any) -> Any:
        (softmax, top_k, normalise), rows = self.options, x.reshape(-1, x.shape[-1])
        logits = rows @ self.router.T
        if softmax == "after":
            chosen, experts = logits.topk(top_k)
            weights = chosen.softmax(-1)
        else:
            weights, experts = logits.softmax(-1).topk(top_k)
            weights = weights / weights.sum(-1, keepdim=True) if normalise else weights
        gates, ups = torch.einsum("tk,enk->ten", rows, self.gate_up).chunk(2, -1)
        given = torch.einsum("teh,ekh->tek", nn.functional.silu(gates) * ups, self.down)
        return (given.gather(1, experts[..., None].expand(-1, -1, x.shape[-1])) * weights[..., None]).sum(1).view(x.shape)


LAYERS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "two of four": ({"experts": 4, "top_k": 2}, (19, 16)),
    "one": ({"experts": 3, "top_k": 1, "softmax": "before"}, (2, 5, 16)),
    "all": ({"experts": 3, "top_k": 3, "softmax": "before"}, (7, 16)),
    "copied": ({"experts": 4, "top_k": 2, "gather": False}, (19, 16)),
    "before": ({"experts": 5, "top_k": 3, "softmax": "before", "normalise": True}, (9, 16)),
    "one token": ({"experts": 8, "top_k": 2}, (16,)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_that_of_torch(device: str, name: str) -> None:
    """Forward, and the gradients of x and of every parameter. Some experts have no token."""
    options, shape = LAYERS[name]
    torch.manual_seed(3)
    layer = MoE(16, 24, **options, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.router.mul_(4)
        if options["top_k"] < options["experts"]:
            layer.router[-1] = 0                                    # its logit is 0, below that of others
            layer.router[0] = -layer.router[1]
    x, gradient = (torch.randn(shape).to(torch.bfloat16) for _ in range(2))
    found = trained(layer, x.to(device), gradient.to(device))
    beside(found, trained(Plain(layer), x.double(), gradient.double()), 2.0 ** -6.5)


@pytest.mark.parametrize("options", [{}, {"softmax": "before"}, {"softmax": "before", "normalise": True}], ids=str)
def test_the_kernel_routes_as_torchs_operators_do(device: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which route where the kernel does not: the same experts, and weights and gradients that are near."""
    torch.manual_seed(10)
    layer, rows, found = MoE(16, 8, 9, 3, **options, device=device, dtype=torch.bfloat16), torch.randn(7, 16).bfloat16().to(device), []
    gradient = torch.randn(7, 3).to(device)
    for takes in (True, False):
        monkeypatch.setattr("ptxkit.torch.moe.takes", lambda *_, takes=takes: takes)
        weights, experts = layer.route(rows)
        assert experts.dtype is (torch.int32 if takes else torch.int64)
        found.append((experts.long(), weights, *torch.autograd.grad(weights, layer.router, gradient)))
    (experts, *kernel), (right, *plain) = found
    assert torch.equal(experts, right)
    for one, other in zip(kernel, plain, strict=True):
        assert (one - other).norm() <= 2.0 ** -8 * other.norm()
    assert (kernel[0] - plain[0]).abs().max() <= 2.0 ** -20


def test_the_same_bits_each_time_and_for_a_token_alone(device: str) -> None:
    torch.manual_seed(4)
    layer, x = MoE(16, 24, 4, 2, device=device, dtype=torch.bfloat16), torch.randn(12, 16).to(device, torch.bfloat16)
    first = trained(layer, x, torch.ones_like(x))
    layer.zero_grad()
    second = trained(layer, x, torch.ones_like(x))
    assert all(torch.equal(one, second[name]) for name, one in first.items())
    assert torch.equal(layer(x[:0]), x[:0])


def test_a_compiled_layer_is_the_eager_one(device: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(5)
    layer = MoE(16, 24, 4, 2, device=device)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        for tokens in (6, 11):
            x = torch.randn(tokens, 16, device=device)
            found = []
            for call in (layer, compiled):
                layer.zero_grad()
                y = call(x)
                y.square().sum().backward()
                found.append({"y": y.detach(), **{name: each.grad for name, each in layer.named_parameters()}})
            beside(found[1], {name: each.double() for name, each in found[0].items()}, 2.0 ** -7)


@pytest.mark.parametrize("gather", [True, False])
def test_rows_that_lie_along_tokens(device: str, gather: bool) -> None:
    """Transposed tokens give the result of contiguous ones. So do the gradients, where that of the result is transposed."""
    torch.manual_seed(5)
    layer = MoE(16, 8, 3, 2, gather=gather, device=device, dtype=torch.bfloat16)
    x, dy = (torch.randn(16, 6, device=device).to(torch.bfloat16).T for _ in range(2))
    found = []
    for tokens, gradient in ((x, dy), (x.contiguous(), dy.contiguous())):
        tokens = tokens.detach().requires_grad_()
        y = layer(tokens)
        found.append((y, *torch.autograd.grad(y, [tokens, *layer.parameters()], gradient)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_gathered_product_has_gradients_of_rows_along_tokens(device: str) -> None:
    x = torch.randn(16, 6, device=device).to(torch.bfloat16).T.requires_grad_()
    w = torch.randn(2, 8, 16, device=device).to(torch.bfloat16).requires_grad_()
    offs, gather = torch.tensor([2, 4], dtype=torch.int32, device=device), torch.tensor([5, 0, 0, 3], dtype=torch.int32, device=device)
    for rows in (x, x.contiguous()):
        found = torch.autograd.grad(ops.grouped_gemm(rows, w.mT, offs, gather=gather).float().sum(), (x, w))
        wanted_w = torch.stack([x[[5, 0]].float().sum(0), x[[0, 3]].float().sum(0)])[:, None].expand(2, 8, 16)
        assert torch.allclose(found[1].float(), wanted_w, atol=0.05)
    with pytest.raises(LaunchError, match="activation='silu': it is 'silu_and_mul' or None"):
        ops.grouped_gemm(x, w.mT, offs, activation="silu", gather=gather)


def test_gathered_rows_are_copied_ones(device: str) -> None:
    """The same bits as of a product of rows that were copied first, forward and backward; with `back` and without."""
    generator = torch.Generator().manual_seed(7)
    x, w, dy = ((torch.randn(shape, generator=generator) / 2).to(device, torch.bfloat16) for shape in ((9, 32), (3, 48, 32), (20, 24)))
    gather = torch.randint(-1, 10, (20,), generator=generator, dtype=torch.int32)
    offs, back = torch.tensor([4, 4, 18], dtype=torch.int32, device=device), torch.full((9, 20), -1, dtype=torch.int32)
    for row in range(9):
        own = (gather == row).nonzero().view(-1)
        back[row, :len(own)] = own.int()
    gather, back, found = gather.to(device), back.to(device), []
    for how in (None, back, "copied"):
        leaves = [each.clone().requires_grad_() for each in (x, w)]
        rows, more = leaves[0], {"gather": gather, "back": None if how is None else back}
        if how == "copied":
            rows, more = ops.combine(rows, gather[:, None]), {}
        y = ops.grouped_gemm(rows, leaves[1].mT, offs, activation="silu_and_mul", clear_rest=True, **more)
        found.append((y.detach(), *torch.autograd.grad(y, leaves, dy)))
    for one, other, copied in zip(*found, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, copied)


def test_choices_of_no_expert_add_nothing(device: str) -> None:
    """A subclass may drop some, and then no row that nothing wrote is read."""
    class Dropping(MoE):
        def route(self, rows: Any) -> tuple[Any, Any]:
            weights, experts = super().route(rows)
            return weights, torch.where(torch.arange(len(rows), device=rows.device)[:, None] % 2 == 0, experts, -1)

    torch.manual_seed(6)
    layer, x = Dropping(16, 24, 3, 2, device=device, dtype=torch.bfloat16), torch.randn(8, 16).to(device, torch.bfloat16)
    found = trained(layer, x, torch.ones_like(x))
    layer.__class__ = MoE
    layer.zero_grad()
    kept = trained(layer, x[::2], torch.ones_like(x[::2]))
    assert torch.equal(found["y"][::2], kept["y"])
    assert found["y"][1::2].abs().max() == 0
    for name in ("gate_up", "down"):
        assert torch.equal(found[name], kept[name])


def test_a_layer_of_given_weights() -> None:
    gate, up, down, router = (torch.randn(*shape) for shape in ((3, 24, 16), (3, 24, 16), (3, 16, 24), (3, 16)))
    layer = MoE.of(router, gate, list(up), down, 2, softmax="before")
    assert torch.equal(layer.gate_up[1], torch.cat([gate[1], up[1]]))
    assert list(layer.state_dict()) == ["router", "gate_up", "down"]
    assert MoE(16, 24, 3, 2).load_state_dict(layer.state_dict()).missing_keys == []
    assert str(layer) == "MoE(features=16, hidden=24, experts=3, top_k=2, softmax='before')"
    for call, sentence in ((lambda: MoE.of(router, gate, up, up, 2), "they are"), (lambda: MoE(16, 24, 3, 4), "at most all"),
                           (lambda: MoE(16, 24, 3, 2, softmax="never"), "before"),
                           (lambda: MoE(16, 24, 3, 2, normalise=True), "has the sum 1")):
        with pytest.raises(LaunchError, match=sentence):
            call()


def dequantised(x: Any, tall: int) -> Any:
    """A matrix quantised to e4m3 in blocks of `tall` x 128 by torch, in float64."""
    rows, columns = x.shape
    padded = nn.functional.pad(x.float(), (0, -columns % 128, 0, -rows % tall))
    parts = padded.unflatten(1, (-1, 128)).unflatten(0, (-1, tall))
    scale = parts.abs().amax((1, 3), keepdim=True) / 448
    scale = torch.where(scale == 0, 1.0, scale)
    return ((parts / scale).to(torch.float8_e4m3fn).double() * scale.double()).flatten(2, 3).flatten(0, 1)[:rows, :columns]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("gated", [False, True])
def test_quantised_products_are_those_of_dequantised_operands(device: str, gated: bool) -> None:
    """Forward and backward. The weights of a group have blocks of their own, also where its rows are no multiple of 128."""
    generator = torch.Generator().manual_seed(8)
    x, w, dy = ((torch.randn(shape, generator=generator) / 4).to(torch.bfloat16) for shape in ((20, 144), (2, 32, 144),
                                                                                               (20, 16 if gated else 32)))
    offs, leaves = torch.tensor([0, 7, 20], dtype=torch.int32, device=device), [x.to(device, copy=True), w.to(device, copy=True)]
    for leaf in leaves:
        leaf.requires_grad_()
    y = ops.quantized_grouped_gemm(leaves[0], leaves[1].mT, offs, activation="silu_and_mul" if gated else None)
    exact = [dequantised(x, 1).requires_grad_(), torch.stack([dequantised(each, 128) for each in w]).requires_grad_()]
    z = torch.cat([exact[0][a:b] @ exact[1][g].T for g, (a, b) in enumerate(((0, 7), (7, 20)))])
    if gated:
        gates, ups = z.chunk(2, -1)
        z = nn.functional.silu(gates) * ups
    found = (y, *torch.autograd.grad(y, leaves, dy.to(device)))
    for one, other in zip(found, (z, *torch.autograd.grad(z, exact, dy.double())), strict=True):
        assert one.dtype is torch.bfloat16
        assert (one.detach().cpu().double() - other).norm() <= 2.0 ** -7 * other.norm()


@pytest.mark.parametrize("kind", ["1x128", "128x128"])
def test_the_default_type_of_torch_is_not_that_of_scales(device: str, kind: str) -> None:
    """Programs set it to that of their weights."""
    x = torch.randn(5, 144, generator=torch.Generator().manual_seed(10)).to(device, torch.bfloat16)
    wanted, usual = ops.rounded_to_blocks(x, kind), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(ops.rounded_to_blocks(x, kind), wanted)
    finally:
        torch.set_default_dtype(usual)


def test_a_quantised_layer_is_near_the_one_that_is_not(device: str) -> None:
    torch.manual_seed(9)
    layer, x = MoE(64, 32, 2, 1, softmax="before", quantize="blocks", device=device), torch.randn(6, 64, device=device)
    assert str(layer) == "MoE(features=64, hidden=32, experts=2, top_k=1, softmax='before', quantize='blocks')"
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast(device, torch.bfloat16):
        found = trained(compiled, x, torch.ones_like(x))
    exact = trained(Plain(layer), x.double().cpu(), torch.ones_like(x).double().cpu())
    exact = {name: exact[name.removeprefix("_orig_mod.")] for name in found}
    beside(found, exact, 0.1)
    with pytest.raises(AssertionError):
        beside(found, exact, 2.0 ** -7)                            # it was quantised
    for features, hidden in ((136, 64), (64, 72)):
        with pytest.raises(LaunchError, match="they are multiples of 16, at which rows of e4m3 begin"):
            MoE(features, hidden, 4, 2, quantize="blocks")
    with pytest.raises(LaunchError, match="1 x 128 and 128 x 128"):
        MoE(128, 64, 3, 2, quantize="rows")


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda logits: ops.choose_experts(logits, -1), "top is -1: of 4 experts a kernel chooses 1 to 4"),
    (lambda logits: ops.choose_experts(logits, 0), "top is 0: of 4 experts a kernel chooses 1 to 4"),
    (lambda logits: ops.choose_experts(logits, 5), "top is 5: of 4 experts a kernel chooses 1 to 4"),
    (lambda logits: ops.choose_experts(logits[:, :0], 1), "logits has no experts"),
    (lambda logits: ops.sort_choices(torch.zeros(3, 2, dtype=torch.int32), -1), "count is -1: it is how many experts there are"),
])
def test_numbers_of_experts_that_cannot_be(call: Any, sentence: str) -> None:
    with cpu_device(), pytest.raises(LaunchError, match=sentence):
        call(torch.randn(3, 4))
