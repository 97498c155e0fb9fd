"""gemm on a Hopper GPU, a sample; the recorded sweep is `python -m ptxkit.gemm verify`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, SplitK, Static, Tile
from ptxkit.gemm.tools.assembly import assembled
from ptxkit.gemm.tools.run import Product, on_gpu
from ptxkit.gemm.tools.verify import dense
from ptxkit.types import f32

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def test_products_of_every_kind() -> None:
    results = dense.run(110, 7, configs=False)
    assert results["failures"] == []
    assert results["cases"] > 110


@pytest.mark.parametrize("scales", dense.VECTORS)
@pytest.mark.parametrize(("m", "n", "k", "loose"), [(1, 4096, 512, False), (300, 776, 1040, False), (2048, 4096, 4096, False),
                                                    (129, 131, 133, True), (64, 64, 16384, False)])
def test_scales_of_rows_and_columns(scales: str, m: int, n: int, k: int, loose: bool) -> None:
    for fused in (dense.Fused(), dense.FUSIONS[-1]):
        for pads in ((0, 0, 0, 0), (1, 0, 5, 1)):
            case = dense.Case(m, n, k, "e4m3", "e4m3", "bf16", scales=scales, fused=fused, pads=pads, loose=loose)
            assert dense.check(torch, case) is None, case


def test_structures_of_configurations() -> None:
    torch.manual_seed(0)
    trials = dense.structures()[::11]
    assert assembled([config for _, config in trials]) == {}
    assert {f"{config}: {case}": sentence for case, config in trials if (sentence := dense.check(torch, case, config))} == {}


def test_a_and_b_swapped() -> None:
    """Every fusion and kind of scales, and the choices that go with it."""
    torch.manual_seed(0)
    trials = [(case, config) for case, config in dense.structures() if config.swap_ab][::3]
    assert len(trials) > 40
    assert assembled([config for _, config in trials]) == {}
    assert {f"{config}: {case}": sentence for case, config in trials if (sentence := dense.check(torch, case, config))} == {}


@pytest.mark.parametrize("wrong", ["a factor", "one element", "outside", "not written"])
def test_a_wrong_kernel_is_caught(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    def product(a: Any, b: Any, out: Any, **_: Any) -> None:
        if wrong == "not written":
            return
        out.copy_((a.float() @ b.float() * (1.001 if wrong == "a factor" else 1.0)).to(out.dtype))
        if wrong == "one element":
            out[5, 7] += 0.1
        if wrong == "outside":
            torch.as_strided(out, (1,), (1,), out.storage_offset() - 1).fill_(0)

    monkeypatch.setattr(dense, "gemm", product)
    assert dense.check(torch, dense.Case(64, 64, 64, "f16", "f16", "f32", offset=16)) is not None


def test_two_runs_that_differ_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(a: Any, b: Any, out: Any, **_: Any) -> None:
        out.copy_((a.float() @ b.float() * (1 + 1e-4 * torch.rand((), device="cuda"))).to(out.dtype))

    monkeypatch.setattr(dense, "gemm", product)
    assert dense.check(torch, dense.Case(64, 64, 64, "f16", "f16", "f32")) == "two runs differ"


def test_a_graph_replays_with_the_values_of_that_time() -> None:
    a, b = (torch.randn((256, 256), device="cuda", dtype=torch.float16) for _ in range(2))
    d = torch.empty((256, 256), device="cuda", dtype=torch.float16)
    gemm.hgemm(a, b, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm.hgemm(a, b, d)
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.testing.assert_close(d.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)


def test_out_is_allocated_on_the_current_stream_and_deterministic() -> None:
    a, b = (torch.randn((300, 304), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    with torch.cuda.stream(torch.cuda.Stream()):
        first = gemm.hgemm(a[:, :296], b[:296], out_dtype=f32)
        assert first.dtype is torch.float32
        assert all(torch.equal(first, gemm.hgemm(a[:, :296], b[:296], out_dtype="f32")) for _ in range(20))
    assert gemm.gemm(a.to(torch.float8_e4m3fn), b[:296].to(torch.float8_e4m3fn).T).dtype is torch.bfloat16


def test_an_adapter_has_memory_of_its_own_and_refuses_too_little() -> None:
    a, b = torch.randn((100, 640), device="cuda").bfloat16(), torch.randn((640, 72), device="cuda").bfloat16()
    out = torch.full((100, 72), float("nan"), device="cuda")
    product = gemm.Adapter(a, b, out, config=DenseConfig(Operands(out=f32, b_major="mn"), Tile(64, 64), scheduler=SplitK(3)))
    with pytest.raises(LaunchError, match="workspace_size"):
        product.initialize(torch.empty(1000, device="cuda"))
    product.initialize()
    for _ in range(5):
        product.run()
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


def test_a_cluster_that_no_device_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.runtime.compiled import Compiled

    monkeypatch.setattr(Compiled, "max_clusters", lambda self: 0)
    a = torch.randn((264, 264), device="cuda").bfloat16()
    with pytest.raises(LaunchError, match="holds no cluster of 4 CTAs"):
        gemm.gemm(a, a.T, config=DenseConfig(Operands(), Tile(128, 128), scheduler=Static(cluster=ClusterShape(2, 2))))


def test_only_numpy() -> None:
    from ptxkit import device_array

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    d = gemm.hgemm(device_array(a), device_array(b), out_dtype=f32)
    np.testing.assert_allclose(d.numpy(), a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("product", [
    Product(512, 512, 512), Product(512, 512, 512, "f16", "f32", "tn"), Product(200, 256, 384, "e4m3", batch=3),
    Product(96, 128, 256, "e5m2", "f16", b="e4m3"), Product(300, 256, 128, "f32")], ids=str)
def test_the_command(product: Product) -> None:
    report = on_gpu(product, check=True, repeat=3)
    assert report["wrong"] == 0
    assert report["executed"]
