"""Products of groups and of a gate, and their gradients, beside float64 autograd of the same rounded operands."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401
from ptxkit.torch import views  # noqa: E402
from tests.torch.oracle import far, sums, unit  # noqa: E402

ops = torch.ops.ptxkit
SLOPE, BEND = 1.1, 0.51         # the largest magnitudes of silu's first and second derivatives
APPROXIMATE = 4e-6              # of ex2 and rcp, relative


def by_group(of: Any, starts: list[int], rows: int, *arguments: Any) -> Any:
    """Rows of each group by `of(group, first, last)`, zeros elsewhere."""
    found = [of(group, *span) for group, span in enumerate(itertools.pairwise(starts))]
    width = found[0].shape[1]
    return torch.cat([torch.zeros(starts[0], width).double(), *found, torch.zeros(rows - starts[-1], width).double()])


def errors(x: Any, w: Any, dy: Any, found: dict[str, Any], starts: list[int], gated: bool, dtype: Any) -> dict[str, float]:
    """Of y, dx [M, K] and dw [G, N, K], in units of what is allowed. x, w and dy are float64."""
    rows, u = len(x), unit(dtype)
    product = by_group(lambda g, s, e: x[s:e] @ w[g].T, starts, rows)
    z_off = by_group(lambda g, s, e: x[s:e].abs() @ w[g].T.abs(), starts, rows) * sums(x.shape[1], dtype) + 2.0 ** -22 * product.abs()
    inside = by_group(lambda g, s, e: torch.ones(e - s, 1).double(), starts, rows)
    dy = dy * inside
    if gated:
        gate, up = product.chunk(2, dim=1)
        gate_off, up_off = z_off.chunk(2, dim=1)
        s = torch.sigmoid(gate)
        y = s * gate * up
        y_off = SLOPE * gate_off * (up.abs() + up_off) + (s * gate).abs() * up_off + APPROXIMATE * y.abs()
        slope = s * (1 + gate * (1 - s))
        dz = torch.cat([dy * up * slope, dy * s * gate], dim=1)
        gate_dz_off = dy.abs() * (up_off * SLOPE + (up.abs() + up_off) * (BEND * gate_off + APPROXIMATE * (1 + gate.abs())))
        up_dz_off = dy.abs() * (SLOPE * gate_off + APPROXIMATE * (s * gate).abs())
        dz_off = torch.cat([gate_dz_off, up_dz_off], dim=1)
        dz_off = dz_off + 1.01 * u * (dz.abs() + dz_off)
    else:
        y, y_off, dz, dz_off = product, z_off, dy, torch.zeros_like(dy)
    dx = by_group(lambda g, s, e: dz[s:e] @ w[g], starts, rows)
    dx_off = by_group(lambda g, s, e: (dz_off[s:e] + sums(w.shape[1], dtype) * dz[s:e].abs()) @ w[g].abs(), starts, rows)
    spans = list(itertools.pairwise(starts))
    dw = torch.stack([dz[s:e].T @ x[s:e] for s, e in spans])
    dw_off = torch.stack([(dz_off[s:e].T + sums(e - s, dtype) * dz[s:e].T.abs()) @ x[s:e].abs() for s, e in spans])

    def allowed(exact: Any, off: Any) -> Any:
        return off + 1.02 * u * (exact.abs() + off) + 1e-30

    return {"y": far(found["y"].cpu(), y, allowed(y, y_off)), "x": far(found["x"].cpu(), dx, allowed(dx, dx_off)),
            "w": far(found["w"].cpu(), dw, allowed(dw, dw_off))}


def lengths(seed: int, groups: int, rows: int) -> list[int]:
    """Where groups begin and the last one ends: of any length, some of them empty, with rows before and after."""
    chance = random.Random(seed)
    cuts = sorted(chance.choice((0, chance.randrange(rows + 1), rows)) for _ in range(groups + 1))
    return cuts if seed % 2 else [0, *cuts[1:]]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("layout", ["nt", "nn"])
@pytest.mark.parametrize("seed", range(2))
def test_groups(device: str, dtype: Any, gated: bool, layout: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, w = torch.randn(40, 32, generator=generator).to(dtype), (torch.randn(4, 48, 32, generator=generator) / 4).to(dtype)
    dy = torch.randn(40, 24 if gated else 48, generator=generator).to(dtype)
    starts = lengths(seed, 4, 40)
    offs = torch.tensor(starts if starts[0] else starts[1:], dtype=torch.int32, device=device)
    leaves = [each.to(device, copy=True).requires_grad_() for each in (x, w if layout == "nt" else w.mT.contiguous())]
    b = leaves[1].mT if layout == "nt" else leaves[1]
    y = ops.grouped_gemm(leaves[0], b, offs, activation="silu_and_mul" if gated else None, clear_rest=True)
    dx, dw = torch.autograd.grad(y, leaves, dy.to(device))
    found = {"y": y.detach(), "x": dx, "w": dw if layout == "nt" else dw.mT}
    got = errors(x.double(), w.double(), dy.double(), found, starts, gated, dtype)
    assert max(got.values()) <= 1, got


@pytest.mark.parametrize(("k", "n"), [(32, 48), (29, 45)])
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_operands_and_gradients_that_no_kernel_reads_are_copied(device: str, k: int, n: int, gated: bool) -> None:
    """Columns that are no multiples of 8, every other column, transposed matrices: also a fake tensor's result."""
    generator = torch.Generator().manual_seed(6)
    n *= 2 if gated else 1
    x, w = torch.randn(k, 40, generator=generator).to(torch.bfloat16).T, (torch.randn(2, n, k, generator=generator) / 4).to(torch.bfloat16)
    dy = torch.randn(40, n, generator=generator).to(torch.bfloat16)[:, ::2] if gated else torch.randn(n, 40, generator=generator).to(
        torch.bfloat16).T
    leaves = [each.detach().to(device).requires_grad_() for each in (x, w)]
    offs, activation = torch.tensor([0, 13, 40], dtype=torch.int32, device=device), "silu_and_mul" if gated else None
    y = ops.grouped_gemm(leaves[0], leaves[1].mT, offs, activation=activation)
    dx, dw = torch.autograd.grad(y, leaves, dy.to(device))
    got = errors(x.double(), w.double(), dy.double(), {"y": y.detach(), "x": dx, "w": dw}, [0, 13, 40], gated, torch.bfloat16)
    assert max(got.values()) <= 1, got
    there = ops.grouped_gemm(*(each.detach().to("meta") for each in leaves[:1]), leaves[1].detach().to("meta").mT, offs.to("meta"),
                             activation=activation)
    assert (there.shape, there.stride()) == (y.shape, y.stride())


@pytest.mark.parametrize(("k", "n"), [(0, 8), (8, 0)])
def test_a_gate_of_nothing(device: str, k: int, n: int) -> None:
    x, w = (torch.ones(shape, dtype=torch.bfloat16, device=device, requires_grad=True) for shape in ((3, k), (2 * n, k)))
    y = ops.gated_gemm(x, w.T)
    assert torch.equal(y, torch.zeros_like(y))
    assert [each.shape for each in torch.autograd.grad(y.sum(), (x, w))] == [x.shape, w.shape]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(24, 32), (2, 3, 32)], ids=str)
def test_a_gate(device: str, dtype: Any, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(4)
    x, w = torch.randn(shape, generator=generator).to(dtype), (torch.randn(48, 32, generator=generator) / 4).to(dtype)
    dy = torch.randn(*shape[:-1], 24, generator=generator).to(dtype)
    leaves = [each.to(device, copy=True).requires_grad_() for each in (x, w)]
    y = ops.gated_gemm(leaves[0], leaves[1].T)
    dx, dw = torch.autograd.grad(y, leaves, dy.to(device))
    assert (dx.shape, dw.shape, y.shape) == (x.shape, w.shape, dy.shape)
    rows = x.reshape(-1, 32)
    found = {"y": y.detach().reshape(-1, 24), "x": dx.reshape(-1, 32), "w": dw[None]}
    got = errors(rows.double(), w.double()[None], dy.reshape(-1, 24).double(), found, [0, len(rows)], True, dtype)
    assert max(got.values()) <= 1, got


def test_groups_along_k_and_their_gradients(device: str) -> None:
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(40, n, generator=generator).to(torch.bfloat16) for n in (24, 16))
    g = torch.randn(3, 24, 16, generator=generator).to(torch.bfloat16)
    starts = [0, 7, 7, 33]
    for name in ("weight_gradient", "grouped_gemm"):
        leaves = [each.to(device, copy=True).requires_grad_() for each in (a, b)]
        if name == "weight_gradient":
            y = ops.weight_gradient(*leaves, torch.tensor(starts, dtype=torch.int32, device=device))
        else:
            y = ops.grouped_gemm(leaves[0].mT, leaves[1], torch.tensor(starts[1:], dtype=torch.int32, device=device))
        found = torch.autograd.grad(y, leaves, g.to(device))
        exact = [each.double().requires_grad_() for each in (a, b)]
        z = torch.stack([exact[0][s:e].T @ exact[1][s:e] for s, e in itertools.pairwise(starts)])
        for one, other in zip((y, *found), (z, *torch.autograd.grad(z, exact, g.double())), strict=True):
            assert (one.detach().cpu().double() - other).norm() <= 2.0 ** -8 * other.norm()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("extents", [(16, 24), (13, 24), (7, 9)], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_groups_along_k_of_any_length(device: str, seed: int, extents: tuple[int, int], dtype: Any) -> None:
    """Into new memory, into out of any strides, and added to what is there; rows of no group are NaN."""
    generator = torch.Generator().manual_seed(seed)
    starts = lengths(seed, 5, 50)
    inside = torch.arange(50)[:, None]
    inside = (inside >= starts[0]) & (inside < starts[-1])
    a, b = (torch.where(inside, torch.randn(50, n, generator=generator), torch.nan).to(dtype) for n in extents)
    on_device, offs = (a.to(device), b.to(device)), torch.tensor(starts, dtype=torch.int32, device=device)
    before = torch.randn(5, *extents, generator=generator)
    added, apart = before.to(device, copy=True), torch.empty(5, *extents[::-1], device=device).mT
    ops.weight_gradient_(added, *on_device, offs)
    ops.weight_gradient(*on_device, offs, out_dtype=torch.float32, out=apart)
    other = before.mT.contiguous().mT.to(device)                # which the kernel cannot add to
    ops.weight_gradient_(other, *on_device, offs)
    got = ops.weight_gradient(*on_device, offs)
    assert got.dtype is dtype
    for group, (start, end) in enumerate(itertools.pairwise(starts)):
        exact, size = a[start:end].double().T @ b[start:end].double(), a[start:end].double().T.abs() @ b[start:end].double().abs()
        sum_ = sums(end - start, dtype) * size + 1e-30
        assert far(got[group].cpu(), exact, 1.02 * unit(dtype) * exact.abs() + sum_) <= 1
        assert far(apart[group].cpu(), exact, 1.02 * unit(torch.float32) * exact.abs() + sum_) <= 1
        for result in (added, other):
            total = exact + before[group].double()
            assert far(result[group].cpu(), total, 2 * unit(torch.float32) * (total.abs() + exact.abs()) + sum_) <= 1


def test_a_copy_for_groups_along_k_is_said_once_a_shape(device: str, caplog: pytest.LogCaptureFixture) -> None:
    views._said.clear()
    a, offs = torch.ones(16, 24, dtype=torch.bfloat16, device=device), torch.tensor([0, 16], dtype=torch.int32, device=device)
    for _ in range(2):
        assert torch.equal(ops.weight_gradient(a, a, offs), ops.weight_gradient(a.mT.contiguous().mT, a, offs))
    assert [record.message for record in caplog.records] == [
        "weight_gradient copies a of shape (16, 24) with strides (1, 16): its kernel reads rows that are contiguous and begin at multiples "
        "of 8 elements"]


def test_what_is_wrong_in_a_group_is_seen() -> None:
    x, w, dy = (torch.randn(shape, generator=torch.Generator().manual_seed(6)).double() for shape in ((8, 16), (2, 4, 16), (8, 4)))
    starts = [0, 3, 8]
    found = {"y": by_group(lambda g, s, e: x[s:e] @ w[g].T, starts, 8), "x": by_group(lambda g, s, e: dy[s:e] @ w[g], starts, 8),
             "w": torch.stack([dy[s:e].T @ x[s:e] for s, e in itertools.pairwise(starts)])}
    assert max(errors(x, w, dy, found, starts, False, torch.bfloat16).values()) <= 1
    for name in found:
        broken = {**found, name: found[name] * 1.01}
        assert errors(x, w, dy, broken, starts, False, torch.bfloat16)[name] > 1
