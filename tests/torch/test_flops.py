"""torch's counter counts the operators as it counts its own for the same layers, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count  # noqa: E402

from ptxkit.torch import GatedMLP, swap_linear  # noqa: E402
from ptxkit.torch.flops import FORMULAS  # noqa: E402
from tests.torch.test_operators import calls, detached, offs, ops, randn  # noqa: E402


def counted(run: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def test_layers_count_as_torchs_own(device: str) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 16)).to(device, torch.bfloat16)
    ours = copy.deepcopy(theirs)
    swap_linear(ours)
    x = randn(2, 8, 32, device=device, grad=True)
    found, wanted = (counted(lambda model=model: model(x).float().sum().backward()) for model in (ours, theirs))
    assert found == wanted == 3 * 2 * 16 * (32 * 48 + 48 * 16)
    mlp = GatedMLP(32, 16, device=device, dtype=torch.bfloat16)
    assert counted(lambda: mlp(x.detach())) == 2 * 16 * (32 * 32 + 16 * 32)


def test_attention_counts_as_torchs_own(device: str) -> None:
    q, k = randn(1, 4, 16, 64, device=device), randn(1, 2, 32, 64, device=device)
    wide = (1, 4, 32, 64)
    wanted = sdpa_flop_count(q.shape, wide, wide)
    assert counted(lambda: ops.attention(q, k, k, enable_gqa=True)) == wanted == 4 * 4 * 16 * 32 * 64


@pytest.mark.parametrize(("name", "flops"), [
    ("scaled_gemm, fp8", 2 * 16 * 24 * 128), ("grouped_gemm", 2 * 16 * 32 * 48), ("grouped_gemm, gathered", 2 * 15 * 32 * 48),
    ("grouped_gemm, gated", 2 * 16 * 32 * 48), ("grouped_gemm, along K", 2 * 16 * 32 * 24), ("scaled_grouped_gemm", 2 * 16 * 128 * 16),
    ("weight_gradient", 2 * 16 * 32 * 24)])
@pytest.mark.parametrize("into", [False, True])
def test_each_operator_and_its_out_variant(device: str, name: str, flops: int, into: bool) -> None:
    operator, given, named, _ = detached(*calls(device)[name])
    out = {"out": getattr(ops, operator)(*given, **named)} if into else {}
    assert counted(lambda: getattr(ops, operator)(*given, **named, **out)) == flops


def test_sums_in_place(device: str) -> None:
    a, out = randn(16, 32, device=device), torch.zeros(1, 32, 32, device=device)
    assert counted(lambda: ops.weight_gradient_(out, a, a, offs(device, 0, 16))) == 2 * 16 * 32 * 32


def test_every_product_has_a_formula() -> None:
    from ptxkit.torch.operators import IN_PLACE, OPERATORS

    no_products = {"rounded_to_blocks", "gate_gradient", "combine", "row_products"}
    assert {operator.name for operator in (*OPERATORS, *IN_PLACE)} - no_products == FORMULAS.keys() - {"attention", "attention_lse"}
