"""Cards that nobody measured: what is chosen for them can be launched, uses their SMs, and depends on what they can do."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator

import numpy as np
import pytest

from ptxkit.cards import CARDS, H100, H200, Card, Probe, named, of_device, read_probe
from ptxkit.gemm.heuristic import costs, probes, table
from ptxkit.gemm.heuristic.dense import NOT_MEASURED, clocks, heuristic
from ptxkit.gemm.heuristic.grouped import heuristic as grouped
from ptxkit.gemm.launch import dense
from ptxkit.gemm.launch.dense import check_config
from ptxkit.gemm.launch.grid import Grid
from ptxkit.gemm.problem.dense import Problem
from ptxkit.gemm.tools import models, probe
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.bench.grouped_cases import Case
from ptxkit.gemm.tools.bench.shapes import drawn
from ptxkit.gemm.tools.problems import asked, described, problem_of

pytestmark = pytest.mark.pure

PARTS = [of_device(f"NVIDIA H100 80GB HBM3 MIG {profile}", sms) for profile, sms in (
    ("1g.10gb", 16), ("1g.20gb", 26), ("2g.20gb", 32), ("3g.40gb", 60), ("4g.40gb", 64), ("7g.80gb", 132))]
FEW = [H200.with_sms(sms) for sms in (1, 2, 3, 7, 100)]
PEAK = {"h100": 989, "h200": 989, "h100-pcie": 756, "h100-nvl": 835, "h200-nvl": 835, "gh200": 990, "gh200-144g": 990, "h800": 989,
        "h800-pcie": 756, "h20": 148, "h20-3e": 148}
"""TFLOP/s of dense bf16, as published."""


def problems(seed: int, count: int) -> Iterator[Problem]:
    """Of all kinds: sizes, types, layouts, batches, few rows, promoted sums, block scales."""
    source = random.Random(seed)
    for shape in (*drawn(seed, count // 3), *drawn(seed, count // 6, dtypes=["e4m3"]), *drawn(seed, count // 6, dtypes=["f32"])):
        yield described(shape)
    for number in range(count // 3):
        m, n, k = source.choice((1, 8, 16, 33, 64, 128)), 16 * source.randint(1, 600), 16 * source.randint(1, 600)
        how = ({}, {"block": True}, {"fast_accum": False}, {"batches": source.choice((2, 16, 100))})[number % 4]
        eight = "block" in how or "fast_accum" in how
        yield asked(m, n, k, "e4m3" if eight else "bf16", out="bf16", **how)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("card", [*CARDS.values(), *PARTS, *FEW], ids=lambda card: f"{card.name}-{card.sms}")
def test_what_is_chosen_can_be_launched_and_uses_the_card(card: Card) -> None:
    """A grid is as many CTAs as are at work at a time, or as there is work for; those that wait for each other are all at work."""
    for problem in problems(card.sms, 120):
        config = heuristic(problem, card)
        check_config(config, problem)
        clusters = card.resident(config.cluster) // config.cluster
        assert clusters >= 1, (config, problem.key)
        grid = Grid.of(problem, config, clusters)
        rows, columns = config.tiles(problem.m, problem.n)
        tiles = rows * columns * (problem.batches or 1)
        if not config.splits_in_cluster:
            assert config.cluster <= grid.ctas[0] <= max(clusters * config.cluster, config.splits)
        if config.splits_in_workspace:
            assert tiles * config.splits <= 1.02 * card.sms
        if -(-problem.m // 64) * -(-problem.n // 64) * (problem.batches or 1) >= 4 * card.sms and problem.k >= 512:
            assert grid.ctas[0] >= min(card.sms // 3, tiles)


@pytest.mark.parametrize("card", [*(named(word) for word in ("h20", "h100-pcie", "h200-nvl")), *PARTS[::2], *FEW[2:]],
                         ids=lambda card: f"{card.name}-{card.sms}")
def test_what_is_chosen_for_groups_fits_the_card(card: Card) -> None:
    """Every kernel is valid, its clusters are at work, and a grid has a CTA for each SM at most."""
    for number, (_, experts) in enumerate(models.every_grouped()):
        kind, rows = experts.types[number % len(experts.types)], experts.rows[number % len(experts.rows)]
        problem = problem_of(Case(experts.groups, rows, experts.n, experts.k, kind, skewed=bool(number % 2), gated=experts.gated))
        config = grouped(problem, card)
        for each in config.kernels:
            assert card.resident(each.cluster) >= each.cluster
            assert 1 <= problem.grid(each, min(card.sms, card.resident(each.cluster))) <= card.sms


@pytest.mark.parametrize("word", PEAK)
def test_no_card_is_taken_for_a_faster_one(word: str) -> None:
    """By the model a large product takes about what the published rate of the tensor cores allows (at its highest clock: power is no
    constant of a card here), and one of few rows what the memory does, or the tensor cores for the rows that pad its tiles."""
    card = named(word)

    def over(m: int, n: int, k: int, rows: int) -> float:
        problem = asked(m, n, k)
        least_us = max(2 * rows * n * k / PEAK[word] / 1e6, 2 * (m * k + n * k + m * n) / card.memory_gbs / 1e3)
        return clocks(problem, heuristic(problem, card), card) / card.clock_mhz / least_us

    assert 0.9 <= over(8192, 8192, 8192, 8192) <= 1.35
    assert 0.9 <= over(72, 28672, 8192, 80) <= 1.7


def test_the_choice_depends_on_what_a_card_can_do() -> None:
    """An H20 has the SMs of the partition and multiplies a quarter as fast for each: other configurations, more of them by its memory."""
    h20, alike = named("h20"), named("h20").like("as an H100", tensor=1.0)
    some = [problem for problem in problems(3, 150) if problem.m > 64]
    pairs = [(heuristic(problem, h20), heuristic(problem, alike)) for problem in some]
    assert sum(own != other for own, other in pairs) > len(pairs) // 4
    for problem, (own, other) in zip(some, pairs, strict=True):
        assert clocks(problem, own, h20) <= clocks(problem, other, h20) * NOT_MEASURED
    slow = [clocks(problem, own, h20) / clocks(problem, other, alike) for problem, (own, other) in zip(some, pairs, strict=True)]
    assert all(ratio >= 0.999 for ratio in slow)
    assert max(slow) > 3                                                # products bound by the tensor cores
    pcie, sxm = named("h100-pcie"), H100.with_sms(114)
    few = asked(16, 28672, 8192)
    assert clocks(few, heuristic(few, pcie), pcie) / pcie.clock_mhz > 1.3 * clocks(few, heuristic(few, sxm), sxm) / sxm.clock_mhz


def test_constants_follow_from_those_of_the_nearest_measured_card() -> None:
    own = costs.of_card(H100)
    assert costs.following(own, H100, H100) is own
    pcie = costs.of_card(named("h100-pcie"))
    clock = 1755 / 1980
    assert pcie.memory == pytest.approx(own.memory * 2039 / 3350 / clock)       # bytes a clock, of a slower clock
    assert pcie.launch == pytest.approx(own.launch * clock)                     # as long in microseconds
    assert pcie.mma == own.mma
    assert costs.of_card(named("h20")).tensor == 0.25
    assert costs.of_card(named("h200-nvl")).l2_bytes == costs.of_card(H200).l2_bytes
    eighth = costs.of_card(PARTS[0])
    assert eighth.memory == pytest.approx(own.memory / 8)
    assert eighth.l2_bytes == pytest.approx(own.l2_bytes / 8)


# What a driver and a probe say.


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "settings", lambda: type("Settings", (), {"cache_dir": tmp_path})())
    return tmp_path


def test_an_unknown_card_is_what_its_driver_says_and_what_was_probed(cache, caplog) -> None:
    told = {"memory_gbs": 4000.0, "clock_mhz": 1900.0, "l2_mib": 60.0}
    with caplog.at_level(logging.WARNING, "ptxkit"):
        found = probes.card("NVIDIA H30", 100, **told)
    assert (found.sms, found.memory_gbs, found.clock_mhz, found.l2_mib, found.tensor) == (100, 4000.0, 1900.0, 60.0, 1.0)
    assert "ptxkit gemm probe" in caplog.text
    caplog.clear()
    path = probes.probe_path("NVIDIA H30")
    probe.keep(Probe(100 * 1900 * 4096 * 0.5 * 0.83 / 1e6, 3880.0, 1900.0), path, "NVIDIA H30")
    assert [file.name for file in path.parent.iterdir()] == ["h30.json"]
    again = probes.card("NVIDIA H30", 100, **told)
    assert again.tensor == 0.5
    assert again.memory_gbs == pytest.approx(4000, rel=0.01)
    assert caplog.text == ""
    path.write_text("{}")
    assert probes.card("NVIDIA H30", 100, **told) == found
    assert probes.card(H200.name, H200.sms) is H200
    assert "tensor" in probe.told(Probe(400.0, 3700.0, 1900.0), again)


def test_a_probe_counts_launches_that_are_over() -> None:
    class Clock:
        now, queue = 0.0, 0

    clock = Clock()

    def launch() -> None:
        clock.queue += 1

    def wait() -> None:
        clock.now += 0.002 * clock.queue
        clock.queue = 0

    assert probe.rate(launch, wait, 0.4, lambda: clock.now) == pytest.approx(500)


@pytest.mark.parametrize(("share", "step"), [(0.83, 1.0), (0.95, 1.0), (0.21, 0.25), (0.45, 0.5), (0.12, 0.125)])
def test_tensor_cores_come_in_steps(share: float, step: float) -> None:
    assert Probe(share * 132 * 1980 * 4096 / 1e6, 3000.0, 1980.0).tensor(132, 1980.0) == step


def test_what_is_kept_of_a_card_is_read_again(tmp_path) -> None:
    kept = Probe(700.0, 3233.0, 1700.0)
    probe.keep(kept, tmp_path / "deep" / "card.json", "a card")
    assert json.loads((tmp_path / "deep" / "card.json").read_text())["device"] == "a card"
    assert read_probe(tmp_path / "deep" / "card.json") == kept
    assert read_probe(tmp_path / "nowhere") is None
    assert np.isclose(kept.memory_gbs, 3333, rtol=1e-3)
    assert table.file_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb") == "h100-80gb-hbm3-mig-1g-10gb.json"


@pytest.mark.ptxas
def test_a_probe_runs_its_two_kernels_and_keeps_what_it_saw(cache, monkeypatch, capsys) -> None:
    """By a driver that does nothing: the rates are those of nothing, but all that a probe calls is there."""
    monkeypatch.setattr(probe, "SECONDS", 0.005)
    monkeypatch.setattr(probe.rate, "__defaults__", (0.005, probe.time.perf_counter))
    with stub.installed(H200.like("NVIDIA H30", sms=100)) as made:
        assert probe.command(None) == 0
        assert made.calls["cuLibraryLoadData"] == 2
        assert made.calls["cuCtxSynchronize"] >= 6
        kept = read_probe(probes.probe_path("NVIDIA H30"))
        assert kept is not None
        assert dense.card_of(0).memory_gbs == pytest.approx(kept.memory_gbs)
    assert "wgmma alone" in capsys.readouterr().out
    monkeypatch.setattr(probes, "settings", lambda: type("Settings", (), {"cache_dir": None})())
    with stub.installed(), pytest.raises(probe.ProbeError, match="nowhere"):
        probe.command(None)
