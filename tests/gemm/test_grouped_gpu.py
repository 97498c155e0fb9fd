"""Group products on a Hopper GPU: random launches of every layout, replays with other lengths, matrices of their own, the debug check."""

from __future__ import annotations

import pytest

from tests.gemm.groups import made

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_random_launches_are_right():
    from ptxkit.gemm.tools.verify import grouped

    assert not grouped.run(32, 5)["failures"]


def test_lengths_are_checked_on_demand():
    import torch  # pyright: ignore[reportMissingImports]

    from ptxkit import gemm
    from ptxkit.errors import LaunchError

    x, w = torch.zeros((9, 64), device="cuda", dtype=torch.bfloat16), torch.zeros((2, 64, 64), device="cuda", dtype=torch.bfloat16)
    for ends, sentence in (([0, 5, 3], "must not decrease"), ([0, 5, 10], "x has 9 rows")):
        with pytest.raises(LaunchError, match=sentence):
            gemm.group_gemm(x, w, torch.tensor(ends, dtype=torch.int32, device="cuda"), check_lengths=True)
    gemm.group_gemm(x, w, torch.tensor([0, 5, 9], dtype=torch.int32, device="cuda"), check_lengths=True)


def test_lengths_on_the_host_are_refused():
    import torch  # pyright: ignore[reportMissingImports]

    from ptxkit import gemm
    from ptxkit.errors import LaunchError

    x, w = torch.zeros((9, 64), device="cuda", dtype=torch.bfloat16), torch.zeros((2, 64, 64), device="cuda", dtype=torch.bfloat16)
    with pytest.raises(LaunchError, match="cu_seqlens"):
        gemm.group_gemm(x, w, torch.tensor([0, 5, 9], dtype=torch.int32))


def test_a_kernel_of_which_several_fit_an_sm_has_one_there():
    from ptxkit.gemm.config import budget
    from ptxkit.gemm.heuristic.grouped import heuristic
    from ptxkit.gemm.launch.dense import card_of
    from ptxkit.gemm.launch.grouped import GroupPlan
    from ptxkit.gemm.tools.bench.grouped_cases import Case
    from ptxkit.gemm.tools.problems import problem_of
    from ptxkit.runtime import driver

    problem = problem_of(Case(64, 4, 4096, 4096, "fp8-block"))
    config = heuristic(problem, card_of(0))
    assert budget.stage_bytes(config.tile, config.operands.x, config.operands.w) * config.stages < 227 * 1024 // 2
    assert GroupPlan(problem, 0, config).grid == (driver.device(0).multiprocessors, 1, 1)


def test_products_that_follow_each_other_have_waited_for_both_kernels_of_the_one_before():
    """Each multiplies what the one before has written, whose second kernel begins, and may end, while its first still works: the same
    bits as with a pause after each."""
    import torch  # pyright: ignore[reportMissingImports]

    from ptxkit import gemm
    from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, SwapAB
    from ptxkit.gemm.config.parts import Swizzle, Tile

    lengths, size = [512, 24, 0, 384, 20, 640, 7, 16] * 4, 2048
    cu = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device="cuda")
    x = torch.randn((sum(lengths), size), device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn((len(lengths), size, size), device="cuda", dtype=torch.bfloat16) / size**0.5 for _ in range(3)] * 4

    def chain(config: GroupedConfig, pause: bool) -> torch.Tensor:
        y = x
        for w in weights:
            y = gemm.group_gemm(y, w, cu, config=config)
            if pause:
                torch.cuda.synchronize()
        return y

    rows = made({"tile": Tile(128, 256)}, max_groups=32)
    columns = made({"tile": Tile(128, 128), "tokens": SwapAB(16), "scheduler": DynamicGroups(order=Swizzle(size=1))}, max_groups=32)
    times = {rows: rows.cost(32), columns: columns.cost(4)}
    for first, second in ((rows, columns), (columns, rows)):
        config = first.or_(times[first], second, times[second], 0)
        assert all(any(kernel.own(lengths, size, 132)) for kernel in config.kernels)
        exact = chain(config, True)
        assert bool(exact.isfinite().all())
        assert all(torch.equal(chain(config, False), exact) for _ in range(20))
