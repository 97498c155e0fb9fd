"""Gradients of every layout and fusion beside float64 autograd of the same rounded operands."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401
from tests.torch.oracle import Case, check  # noqa: E402

ops = torch.ops.ptxkit
TYPES = (torch.bfloat16, torch.float16, torch.float32)
FUSIONS: tuple[dict[str, Any], ...] = (
    {}, {"bias": "column"}, {"bias": "row"}, {"bias": "line"}, {"alpha": -0.5}, {"beta": 0.75}, {"residual": torch.float32},
    {"activation": "relu"}, {"activation": "gelu"}, {"activation": "silu"}, {"out_dtype": torch.float32},
    {"bias": "column", "activation": "gelu", "residual": torch.bfloat16, "alpha": 1.5, "beta": -0.5, "out_dtype": torch.float16})
SHAPES = (((5, 24), (24, 16)), ((3, 8, 32), (3, 32, 16)), ((2, 3, 8, 16), (16, 24)), ((3, 1, 8, 16), (2, 16, 8)), ((16,), (16, 8)),
          ((8, 16), (16,)), ((40, 8), (2, 8, 16)))
"""Matrices, batches, a batch by one matrix, batches that are broadcast, vectors."""


def operand(generator: Any, shape: tuple[int, ...], dtype: Any, device: str, turned: bool = False) -> tuple[Any, Any]:
    """A tensor that requires grad, contiguous along its rows or its columns, and the same in float64."""
    values = torch.randn(shape, generator=generator).to(dtype)
    if turned and len(shape) > 1:
        values = values.mT.contiguous().mT
    return values.to(device, copy=True).requires_grad_(), values.double().requires_grad_()


def made(seed: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: Any, device: str, layout: str,
         fusion: dict[str, Any]) -> tuple[Case, Case]:
    """A case, and the same in float64."""
    generator = torch.Generator().manual_seed(seed)
    fusion = dict(fusion)
    a = operand(generator, shapes[0], dtype, device, layout[0] == "t")
    b = operand(generator, shapes[1], dtype, device, layout[1] == "t")
    shape = (a[1] @ b[1]).shape
    more: dict[str, tuple[Any, Any]] = {}
    if "bias" in fusion:
        kind = {"column": shape[-1:], "row": (shape[-2], 1), "line": (1, shape[-1])}[fusion.pop("bias")]
        more["bias"] = operand(generator, kind, torch.float32, device)
    if "residual" in fusion:
        more["residual"] = operand(generator, shape, fusion.pop("residual"), device)
    if "beta" in fusion:
        more["c"] = operand(generator, shape, dtype, device)
    found = [Case(a[i], b[i], **{name: pair[i] for name, pair in more.items()}, **fusion) for i in range(2)]
    return found[0], found[1]


def law(device: str, seed: int, shapes: Any, dtype: Any, layout: str, fusion: dict[str, Any]) -> None:
    case, exact = made(seed, shapes, dtype, device, layout, fusion)
    y = case.call(ops.gemm)
    assert y.dtype is (case.out_dtype or dtype)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 1)).to(y.dtype)
    y.backward(gradient.to(device))
    for name in ("a", "b", "bias", "residual", "c"):
        leaf = getattr(case, name)
        if leaf is not None:
            assert (leaf.grad.dtype, leaf.grad.shape) == (leaf.dtype, leaf.shape)
            assert leaf.grad.device == leaf.device
    errors = check(torch, case, exact, gradient, y.detach().cpu())
    assert max(errors.values()) <= 1, errors


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout(device: str, dtype: Any, layout: str) -> None:
    law(device, 1, ((40, 24), (24, 48)), dtype, layout, {})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
def test_every_fusion(device: str, fusion: dict[str, Any]) -> None:
    law(device, 2, ((40, 24), (24, 48)), torch.bfloat16, "nt", fusion)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_every_shape(device: str, shapes: Any) -> None:
    law(device, 3, shapes, torch.float16, "nt", {})


@pytest.mark.parametrize("shapes", [((16,), (16, 8)), ((8, 16), (16,)), ((16,), (16,))], ids=str)
def test_a_bias_of_a_vectors_product(device: str, shapes: Any) -> None:
    """Of the columns and, where the result is one column, of its rows."""
    (*m, _), (_, *n) = shapes
    for kind in ((n[0] if n else 1,), (m[0], 1) if m else (1, 1)):
        a, b, bias = (torch.rand(shape, device=device, requires_grad=True) for shape in (*shapes, kind))      # nothing cancels
        found = torch.autograd.grad(ops.gemm(a, b, bias).square().sum(), (a, b, bias))
        exact = [each.detach().cpu().double().requires_grad_() for each in (a, b, bias)]
        y = (exact[0] if m else exact[0][None]) @ (exact[1] if n else exact[1][:, None]) + exact[2]
        for one, other in zip(found, torch.autograd.grad(y.square().sum(), exact), strict=True):
            assert (one.cpu().double() - other).norm() <= 2.0 ** -7 * other.norm()


def drawn(seed: int) -> dict[str, Any]:
    """A case at random."""
    chance = random.Random(seed)
    shapes = chance.choice(SHAPES)
    matrix = len(shapes[0]) > 1 and len(shapes[1]) > 1
    single = len(shapes[0]) == len(shapes[1]) == 2
    possible = [fusion for fusion in FUSIONS if matrix or fusion.get("bias") in (None, "column")]
    fusion: dict[str, Any] = {}
    for each in chance.sample(possible[1:], 2):
        fusion |= each
    if not single:
        fusion.pop("bias", None)
    return {"shapes": shapes, "dtype": chance.choice(TYPES), "layout": chance.choice(("nn", "nt", "tn", "tt")), "fusion": fusion}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("seed", range(8))
def test_cases_at_random(device: str, seed: int) -> None:
    law(device, 100 + seed, **drawn(seed))


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(8, 408, 50))
def test_more_cases_at_random(device: str, first: int) -> None:
    for seed in range(first, first + 50):
        law(device, 100 + seed, **drawn(seed))


def test_a_gradient_that_is_wrong_is_seen(device: str) -> None:
    case, exact = made(5, ((40, 24), (24, 48)), torch.bfloat16, device, "nt", {"activation": "silu"})
    y = case.call(ops.gemm)
    gradient = torch.ones_like(y)
    y.backward(gradient)
    case.b.grad[3, 5] *= 1.05
    errors = check(torch, case, exact, gradient.cpu(), y.detach().cpu())
    assert errors["a"] <= 1
    assert errors["b"] > 1


def test_a_second_derivative(device: str) -> None:
    """The gradient of a gradient: of a fused activation against float64."""
    case, exact = made(6, ((8, 16), (16, 24)), torch.float32, device, "nn", {"activation": "silu"})
    found = []
    for one, call in ((case, lambda: case.call(ops.gemm)), (exact, lambda: exact.exact(torch)[1])):
        (first,) = torch.autograd.grad(call().square().sum(), one.a, create_graph=True)
        first.square().sum().backward()
        found.append(one.b.grad.cpu().double())
    assert (found[0] - found[1]).norm() <= 0.02 * found[1].norm()
