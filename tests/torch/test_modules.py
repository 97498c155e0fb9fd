"""Layers beside those of torch in float64, and what `swap_linear` does to a model."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ptxkit.errors import LaunchError
from tests.torch import wanted

torch = wanted(__name__)

from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from ptxkit.torch import GatedMLP, Linear, swap_linear  # noqa: E402

nn = torch.nn


def trained(model: Any, x: Any, gradient: Any) -> dict[str, Any]:
    """The result and all gradients of a step."""
    x = x.detach().requires_grad_()
    y = model(x)
    y.backward(gradient)
    return {"y": y.detach(), "x": x.grad, **{name: parameter.grad for name, parameter in model.named_parameters()}}


def beside(found: dict[str, Any], exact: dict[str, Any], error: float) -> None:
    assert found.keys() == exact.keys()
    for name, one in found.items():
        assert one.shape == exact[name].shape
        off = (one.cpu().double() - exact[name].cpu().double()).norm() / exact[name].double().norm()
        assert off <= error, (name, float(off))


@pytest.mark.parametrize("shape", [(16,), (40, 16), (2, 3, 16), (0, 16)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_that_of_torch(device: str, shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    theirs = nn.Linear(16, 24, bias=bias, device=device, dtype=torch.bfloat16)
    ours = Linear(16, 24, bias=bias, device=device, dtype=torch.bfloat16)
    assert ours.load_state_dict(theirs.state_dict()).missing_keys == []
    assert str(ours) == str(theirs)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    gradient = torch.randn(*shape[:-1], 24, device=device, dtype=torch.bfloat16)
    if 0 in shape:
        assert trained(ours, x, gradient)["weight"].abs().max() == 0
        return
    beside(trained(ours, x, gradient), trained(copy.deepcopy(theirs).double(), x.double(), gradient.double()), 2.0 ** -8)


class Plain(nn.Module):
    """What a GatedMLP computes, of three linear layers."""

    def __init__(self, features: int, hidden: int, **more: Any) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(features, hidden, bias=False, **more) for _ in range(2))
        self.down = nn.Linear(hidden, features, bias=False, **more)

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("shape", [(40, 16), (2, 3, 16)], ids=str)
def test_a_gated_mlp_is_that_of_three_layers(device: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    plain = Plain(16, 24, device=device, dtype=torch.bfloat16)
    mlp = GatedMLP.of(plain.gate, plain.up, plain.down)
    x, gradient = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(2))
    found = trained(mlp, x, gradient)
    exact = trained(plain.double(), x.double(), gradient.double())
    exact["gate_up"] = torch.cat([exact.pop("gate.weight"), exact.pop("up.weight")])
    exact["down"] = exact.pop("down.weight")
    beside(found, exact, 2.0 ** -7)


def test_a_gated_mlp_refuses_layers_that_do_not_fit() -> None:
    with pytest.raises(LaunchError, match="gate has a bias"):
        GatedMLP.of(nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16))
    plain = Plain(16, 24)
    with pytest.raises(LaunchError, match="they are"):
        GatedMLP.of(plain.gate, plain.up, plain.up)
    assert str(GatedMLP(16, 24)) == "GatedMLP(features=16, hidden=24)"


def test_swap_linear_says_what_it_did_and_left(device: str) -> None:
    class Own(nn.Linear):
        pass

    torch.manual_seed(3)
    model = nn.ModuleDict({"first": nn.Linear(16, 24), "own": Own(16, 24), "odd": nn.Linear(16, 5), "patched": nn.Linear(16, 24),
                           "whole": nn.Linear(16, 24, dtype=torch.float64), "head": nn.Linear(24, 16)}).to(device)
    model["head"].weight.requires_grad_(False)
    for name in ("first", "own", "odd", "patched", "head"):
        model[name].to(torch.bfloat16)
    model["patched"].forward = lambda x: x
    kept, state = model["first"], {name: value.clone() for name, value in model.state_dict().items()}
    done = swap_linear(model, wanted=lambda name, layer: name != "head")
    assert done.replaced == ("first",)
    assert done.left.keys() == {"own", "odd", "patched", "whole", "head"}
    assert str(done).splitlines()[0] == "replaced 1 of 6 linear layers"
    for name, sentence in (("own", "it is a Own"), ("odd", "16 by 5 features"), ("patched", "was replaced"), ("whole", "float64"),
                           ("head", "not wanted")):
        assert sentence in done.left[name]
    assert model["first"] is kept
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert swap_linear(model, wanted=lambda name, layer: name == "head").replaced == ("head",)
    x = torch.randn(8, 16, device=device, dtype=torch.bfloat16)
    assert "ptxkit_gemm" in model["first"](x).grad_fn.name().lower()


def test_swap_linear_takes_float32_for_autocast(device: str) -> None:
    model = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)).to(device)
    assert "tf32" in swap_linear(model).left["0"]
    assert swap_linear(model, float32=True).replaced == ("0", "2")
    with torch.autocast(device, torch.bfloat16):
        assert model(torch.randn(8, 16, device=device)).dtype is torch.bfloat16


def test_swap_linear_leaves_what_the_products_do_not_compute(device: str) -> None:
    """What was left still gives what nn.Linear gives; what was replaced gives the same."""
    biases = {"expanded": torch.ones(1).expand(16), "apart": torch.ones(32)[::2], "number": torch.tensor(1.0), "one": torch.ones(1),
              "plain": torch.ones(16)}
    model = nn.ModuleDict({name: nn.Linear(16, 16) for name in biases} | {"nothing": nn.Linear(16, 16), "pruned": nn.Linear(16, 24)})
    for name, bias in biases.items():
        model[name].bias = nn.Parameter(bias)
    model["nothing"].weight = nn.Parameter(torch.empty(16, 0))
    model["pruned"].weight, model["pruned"].bias = nn.Parameter(torch.ones(5, 16)), None
    model.to(device)
    for name, layer in model.items():                           # casting would lay the elements of a bias next to each other
        for parameter in layer.parameters():
            parameter.data = parameter.data.bfloat16() if name not in ("expanded", "apart") or parameter.ndim > 1 else (
                parameter.data.bfloat16()[:1].expand(16) if name == "expanded" else torch.ones(32, device=device).bfloat16()[::2])
    given = {name: torch.randn(4, layer.weight.shape[1], device=device, dtype=torch.bfloat16) for name, layer in model.items()}
    expected = {name: layer(given[name]) for name, layer in model.items()}
    done = swap_linear(model)
    assert done.replaced == ("plain",)
    for name, sentence in (("expanded", r"its bias has shape (16,) and strides (0,), and the products take one of shape (16,) whose"),
                           ("apart", "strides (2,)"), ("number", "shape () and strides ()"), ("one", "shape (1,)"),
                           ("nothing", "its result is its bias"), ("pruned", "16 by 5 features, and rows that")):
        assert sentence in done.left[name]
    for name, layer in model.items():
        assert torch.allclose(layer(given[name]).float(), expected[name].float(), atol=0.05), name


def test_swap_linear_says_which_rows_of_float32_are_meant() -> None:
    model = nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 20, dtype=torch.bfloat16), nn.Linear(24, 16))
    done = swap_linear(model, float32=True)
    assert done.replaced == ("2",)
    slower = "rows that are no multiples of 16 bytes are slower"
    assert done.left == {"0": f"it has 20 by 16 features, and {slower}: under torch.autocast an element has 2",
                         "1": f"it has 16 by 20 features, and {slower}"}


def test_what_is_no_module_is_not_swapped() -> None:
    with pytest.raises(LaunchError, match=r"model is a list, not a torch.nn.Module: pass a torch.nn.ModuleList of several"):
        swap_linear([torch.nn.Linear(8, 8)])


def test_swap_linear_leaves_weights_that_the_products_refuse(device: str) -> None:
    model = nn.ModuleDict({name: nn.Linear(16, 16) for name in ("class", "sparse", "none", "bias", "plain")}).to(device, torch.bfloat16)
    weight, bias = model["plain"].weight.detach(), model["plain"].bias.detach()
    model["class"].weight = nn.Parameter(TwoTensor(weight, weight))             # a class with operators of its own, as quantisers have
    model["bias"].bias = nn.Parameter(TwoTensor(bias, bias))
    model["sparse"].weight = nn.Parameter(weight.to_sparse())
    model["none"].weight = None
    done = swap_linear(model)
    assert done.replaced == ("plain",)
    assert [done.left[name].split(",")[0] for name in ("class", "sparse", "none", "bias")] == [
        "its weight is a TwoTensor", "its weight is a tensor of the layout torch.sparse_coo", "it has no weight", "its bias is a TwoTensor"]
