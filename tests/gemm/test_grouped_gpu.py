"""Group products on a Hopper GPU: random launches of every layout, replays with other lengths, matrices of their own, the debug check."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_random_launches_are_right():
    from gemm.group import verify

    assert not verify.run(32, 5)["failures"]


def test_lengths_are_checked_on_demand():
    import torch  # pyright: ignore[reportMissingImports]

    import gemm
    from ptxkit.errors import LaunchError

    x, w = torch.zeros((9, 64), device="cuda", dtype=torch.bfloat16), torch.zeros((2, 64, 64), device="cuda", dtype=torch.bfloat16)
    for ends, sentence in (([0, 5, 3], "must not decrease"), ([0, 5, 10], "x has 9 rows")):
        with pytest.raises(LaunchError, match=sentence):
            gemm.group_gemm(x, w, torch.tensor(ends, dtype=torch.int32, device="cuda"), check_lengths=True)
    gemm.group_gemm(x, w, torch.tensor([0, 5, 9], dtype=torch.int32, device="cuda"), check_lengths=True)


def test_lengths_on_the_host_are_refused():
    import torch  # pyright: ignore[reportMissingImports]

    import gemm
    from ptxkit.errors import LaunchError

    x, w = torch.zeros((9, 64), device="cuda", dtype=torch.bfloat16), torch.zeros((2, 64, 64), device="cuda", dtype=torch.bfloat16)
    with pytest.raises(LaunchError, match="cu_seqlens"):
        gemm.group_gemm(x, w, torch.tensor([0, 5, 9], dtype=torch.int32))


def test_a_kernel_of_which_several_fit_an_sm_has_one_there():
    from gemm.group.bench import problem_of
    from gemm.group.cases import Case
    from gemm.group.device import GroupPlan
    from gemm.group.heuristic import heuristic
    from ptxkit import driver

    problem = problem_of(Case(64, 4, 4096, 4096, "fp8-block"))
    config = heuristic(problem)
    assert config.tile.stage_bytes * config.tile.STAGES < 227 * 1024 // 2
    assert GroupPlan(problem, 0, config).grid == (driver.device(0).multiprocessors, 1, 1)
