"""Ways to share out the work among CTAs that depend on who comes when: tickets. On the CPU device, in every order it knows."""

from __future__ import annotations

import pytest

from gemm.config import Config
from gemm.samples import name
from ptxkit.sim.policy import SCHEDULES
from ptxkit.types import bf16, e4m3

from .test_products import run_config

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("config", [
    Config(bf16, bf16, BM=64, BN=64, STAGES=2, TICKET=True, BATCHED=True),
    Config(e4m3, bf16, BM=64, BN=32, STAGES=3, TICKET=True, PINGPONG=True),
    Config(e4m3, bf16, BM=64, BN=64, STAGES=2, TICKET=True, PROMOTE=True, BLOCK_SCALES=True)], ids=name)
def test_each_ticket_is_drawn_once(config: Config, schedule: str) -> None:
    """Warpgroups that share tiles and that take turns, batches, scales that another warp copies; more and fewer tiles than CTAs."""
    run_config(config, 130, 80, 3 * config.BK - 16, sms=3, schedule=schedule)
    run_config(config, 60, 80, config.BK, sms=3, schedule=schedule)
