"""torch.library.opcheck of every type and layout that an operator takes: schema, autograd, fake tensors and dynamic shapes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401
from tests.torch.test_operators import WITHOUT_SCHEMA, offs, ops, randn  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SHAPES = {"16x24x32": ((16, 32), (32, 24)), "odd": ((7, 13), (13, 5)), "one": ((1, 1), (1, 1)), "no rows": ((0, 32), (32, 24)),
          "no K": ((16, 0), (0, 24)), "vector": ((32,), (32, 24)), "by a vector": ((16, 32), (32,)),
          "broadcast": ((2, 1, 8, 16), (3, 16, 8))}


def lying(tensor: Any, letter: str) -> Any:
    """A leaf with these values whose lines run along the last extent ("n") or the one before ("t")."""
    return tensor if letter == "n" else tensor.detach().mT.contiguous().mT.requires_grad_(tensor.requires_grad)


def passes(operator: Any, *given: Any, **named: Any) -> None:
    fp8 = any(isinstance(each, torch.Tensor) and each.dtype in FP8.values() for each in given)
    tests = {"test_utils": WITHOUT_SCHEMA} if fp8 else {}           # whose comparison fp8 has not
    assert set(torch.library.opcheck(operator.default, given, named, **tests).values()) == {"SUCCESS"}


@pytest.mark.sweep
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(("shape", "layout"), [*((shape, "nn") for shape in SHAPES), *(("16x24x32", each) for each in ("nt", "tn", "tt"))])
def test_products(device: str, type_: str, shape: str, layout: str) -> None:
    a, b = (lying(randn(*extents, device=device, dtype=TYPES[type_], grad=True), letter)
            for extents, letter in zip(SHAPES[shape], layout, strict=True))
    passes(ops.gemm, a, b)


@pytest.mark.sweep
@pytest.mark.parametrize("type_", ["bf16", "f16"])
@pytest.mark.parametrize("k", [32, 13])
@pytest.mark.parametrize("letter", ["n", "t"])
@pytest.mark.parametrize("activation", [None, "silu_and_mul"])
def test_groups(device: str, type_: str, k: int, letter: str, activation: str | None) -> None:
    made = {"device": device, "dtype": TYPES[type_], "grad": True}
    passes(ops.grouped_gemm, randn(16, k, **made), lying(randn(3, k, 24, **made), letter), offs(device, 4, 4, 16), activation=activation,
           clear_rest=True)
    passes(ops.weight_gradient, randn(16, k, **made), randn(16, 7, **made), offs(device, 0, 4, 16))
    if activation is not None:
        passes(ops.gated_gemm, randn(16, k, **made), lying(randn(k, 24, **made), letter))


@pytest.mark.sweep
@pytest.mark.parametrize("types", itertools.product(FP8, repeat=2), ids="-".join)
@pytest.mark.parametrize("out", TYPES)
def test_scales(device: str, types: tuple[str, str], out: str) -> None:
    a, b = (randn(rows, 128, device=device, dtype=FP8[type_]) for rows, type_ in zip((16, 24), types, strict=True))
    passes(ops.scaled_gemm, a, b.T, torch.rand(16, 1, device=device), torch.rand(1, 24, device=device), out_dtype=TYPES[out])
