"""Products on a Hopper GPU whose arrays lie between pages that are not mapped: what touches a byte beside an array faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from ptxkit import attention, gemm
from ptxkit.gemm.config.grouped_k import DynamicDepths, GroupedKConfig, OperandsAlongK, StaticDepths
from ptxkit.gemm.config.parts import ClusterShape, Cooperative, Pingpong, Swizzle, Tile
from ptxkit.runtime import driver

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
GAP = 32 << 20                  # unmapped bytes on each side: more than a tile's rows
Place = Callable[..., Any]


class _Mapping:
    """Device memory between unmapped pages, as an array of bytes that torch can see. `at_end`: it ends where the mapping ends."""

    def __init__(self, bytes: int, at_end: bool) -> None:
        api = driver.bindings()
        kind = api.CUmemAllocationProp()
        kind.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        kind.location.type, kind.location.id = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
        page = int(driver.call("cuMemGetAllocationGranularity", kind,
                               api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        self.size = -(-bytes // page) * page
        self.memory = driver.call("cuMemCreate", self.size, kind, 0)
        self.reserved = int(driver.call("cuMemAddressReserve", self.size + 2 * GAP, 0, 0, 0))
        driver.call("cuMemMap", self.reserved + GAP, self.size, 0, self.memory, 0)
        access = api.CUmemAccessDesc()
        access.location, access.flags = kind.location, api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        driver.call("cuMemSetAccess", self.reserved + GAP, self.size, [access], 1)
        pointer = self.reserved + GAP + ((self.size - bytes) // 16 * 16 if at_end else 0)
        self.__cuda_array_interface__ = {"shape": (bytes,), "typestr": "|u1", "data": (pointer, False), "version": 3}

    def close(self) -> None:
        """Give the memory back."""
        driver.call("cuMemUnmap", self.reserved + GAP, self.size)
        driver.call("cuMemRelease", self.memory)
        driver.call("cuMemAddressFree", self.reserved, self.size + 2 * GAP)


@pytest.fixture(params=[False, True], ids=["at the start", "at the end"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Makes a tensor of random numbers, or of `values`, between unmapped pages."""
    made = []

    def made_of(*shape: int, dtype: Any = torch.bfloat16, values: Any = None) -> Any:
        bytes = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
        mapping = _Mapping(bytes, request.param)
        made.append(mapping)
        tensor = torch.as_tensor(mapping, device="cuda").view(dtype).view(shape)
        tensor.copy_(torch.randn(shape, device="cuda") if values is None else values)
        return tensor

    torch.zeros(1, device="cuda")
    yield made_of
    torch.cuda.synchronize()
    for each in made:
        each.close()


def near(out: Any, expected: Any) -> None:
    """Two results, one of them rounded."""
    torch.cuda.synchronize()
    assert float((out.float() - expected).norm() / expected.norm()) < 0.01


@pytest.mark.parametrize(("m", "n", "k"), [(1024, 1024, 1024), (200, 264, 72), (129, 131, 133)], ids=str)
@pytest.mark.parametrize("majors", ["kn", "nk", "mn"])
def test_products(place: Place, majors: str, m: int, n: int, k: int) -> None:
    """a [M, K] and b [K, N]; "kn": both as they are, "nk": b is a transposed view, "mn": a is one."""
    a = place(k, m).T if majors == "mn" else place(m, k)
    b = place(n, k).T if majors == "nk" else place(k, n)
    out = place(m, n)
    gemm.gemm(a, b, out)
    near(out, a.float() @ b.float())


LENGTHS = {"even": [512] * 8, "loose": [0, 77, 1000, 0, 63, 64, 1, 0]}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("n", "k"), [(2048, 1024), (136, 200)], ids=str)
def test_groups(place: Place, n: int, k: int, lengths: str) -> None:
    ends = torch.tensor([0, *LENGTHS[lengths]]).cumsum(0)
    groups, rows = len(ends) - 1, int(ends[-1])
    x, w, out = place(rows, k), place(groups, n, k), place(rows, n)
    gemm.group_gemm(x, w, place(len(ends), dtype=torch.int32, values=ends), out=out)
    near(out, torch.cat([x[s:e].float() @ w[g].float().T for g, (s, e) in enumerate(pairwise(ends.tolist()))]))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("tile", "cluster", "pingpong"), [
    (Tile(128, 256), ClusterShape(), False), (Tile(128, 256), ClusterShape(2, 1), False), (Tile(256, 128), ClusterShape(1, 2), False),
    (Tile(192, 128), ClusterShape(), False), (Tile(64, 64), ClusterShape(), False), (Tile(64, 64), ClusterShape(2, 1), True),
    (Tile(128, 192), ClusterShape(1, 2), True), (Tile(192, 128), ClusterShape(), True)], ids=str)
@pytest.mark.parametrize(("m", "n", "part"), [(7168, 2048, 0), (136, 200, 0), (136, 200, 64), (1032, 520, 128)], ids=str)
def test_groups_along_k(place: Place, m: int, n: int, tile: Tile, cluster: ClusterShape, pingpong: bool, lengths: str, part: int) -> None:
    """The maps of both operands begin before them, where no memory is. With parts the same rows give the same bits."""
    ends = torch.tensor([0, *LENGTHS[lengths]]).cumsum(0)
    groups, rows = len(ends) - 1, int(ends[-1])
    a, b, out = place(rows, m), place(rows, n), place(groups, m, n)
    begins = place(len(ends), dtype=torch.int32, values=ends)
    expected, found = torch.stack([a[s:e].float().T @ b[s:e].float() for s, e in pairwise(ends.tolist())]), []
    for scheduler in (DynamicDepths(Swizzle(), cluster), StaticDepths(Swizzle(), cluster, "loads")):
        config = GroupedKConfig(OperandsAlongK(max_groups=32), tile, schedule=Pingpong() if pingpong else Cooperative(),
                                scheduler=scheduler, part=part)
        for _ in range(3):
            out.fill_(math.nan)
            gemm.group_gemm_k(a, b, begins, out=out, config=config)
            found.append(out.clone())
        near(out, expected)
    assert all(torch.equal(each, found[0]) for each in found)


def test_groups_along_k_of_one_shape_after_another() -> None:
    """Arrays of other shapes at addresses that were used before, on two streams and in a graph."""
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for turn, (m, n) in enumerate([(1024, 512), (512, 1024), (768, 768), (1024, 512)]):
        ends = torch.tensor([0, 130, 130, 1000, 2048 + turn], dtype=torch.int32, device="cuda")
        a, b = (torch.randn(2048 + turn, columns, device="cuda", dtype=torch.bfloat16) for columns in (m, n))
        out = torch.zeros(4, m, n, device="cuda", dtype=torch.bfloat16)
        expected = torch.stack([a[s:e].float().T @ b[s:e].float() for s, e in pairwise(ends.tolist())])
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                gemm.group_gemm_k(a, b, ends, out=out)
            near(out, expected)
        out.zero_()
        with torch.cuda.graph(graph):
            for _ in range(3):
                gemm.group_gemm_k(a, b, ends, out=out)
        graph.replay()
        near(out, expected)
        del a, b, out, expected, graph
        torch.cuda.empty_cache()


@pytest.mark.parametrize("kind", ["tensor", "row", "1x128", "128x128"])
@pytest.mark.parametrize(("m", "k"), [(256, 512), (77, 200)], ids=str)
def test_quantisers(place: Place, kind: Any, m: int, k: int) -> None:
    x = place(m, k)
    q, scale = gemm.quantize(x, kind)
    assert q.shape == x.shape
    if kind in ("tensor", "row"):
        torch.cuda.synchronize()
        assert float((q.float() * scale - x.float()).norm() / x.float().norm()) < 0.05


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(place: Place, depth: int, causal: bool) -> None:
    q, k, v, out = (place(2, 4, 321, depth) for _ in range(4))
    attention.attention(q, k, v, causal, out=out)
    near(out, torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal))
