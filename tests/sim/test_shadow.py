"""The checker's shadows say the same whatever the size of their cells, and whatever is remembered to look at less of them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit.sim.checker import products
from ptxkit.sim.checker.global_shadow import GlobalShadow
from ptxkit.sim.checker.shadow import PAGE, READ, Shadow
from ptxkit.sim.memory import Memory
from ptxkit.sim.tasks import Region

from .mutants.more import MUTANTS
from .mutants.subjects import SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("as_region", [False, True])
def test_reads_are_found_where_they_were(size: int, as_region: bool) -> None:
    memory = Memory(np.zeros(4096, np.uint8), "global")
    shadow = GlobalShadow(256, 4096)
    starts = 256 + np.array([64, 512, 2048])
    region = Region(memory, starts, 32, 32)
    shadow.kinds[READ].add((0, 40), region if as_region else shadow.cells(starts, 32), 7, 3, None, 0)
    shadow.fit(256 + size, size)
    read = []
    for place in range(256, 4096, 16):
        found = shadow.kinds[READ].unknown(shadow.cells(place, 16), lambda _: np.zeros(64, np.int32), None, None)
        if found is not None:
            read.append(place - 256)
    assert read == [64, 80, 512, 528, 2048, 2064]


@pytest.mark.parametrize("seed", range(20))
def test_whole_pages_are_judged_as_their_cells_are(seed: int) -> None:
    """Writes of whole pages and of parts: what is not known of them, and who wrote, cell by cell."""
    draw = np.random.default_rng(seed)
    shadow = Shadow(8 << PAGE, 4)
    agents, clocks = np.zeros(len(shadow.agent), int), np.zeros(len(shadow.agent), int)
    answers = set()
    for _ in range(60):
        first, count = int(draw.integers(0, 8 << PAGE - 4)), int(draw.integers(1, 1 << PAGE - 4))
        if draw.random() < 0.7:
            first, count = first >> PAGE - 4 << PAGE - 4, (count & 1) + 1 << PAGE - 4
        cells = slice(first, min(first + count, len(agents)))
        agent, clock, before = int(draw.integers(0, 4)), int(draw.integers(1, 9)), shadow.version
        shadow.wrote(cells, agent, clock, 5)
        assert shadow.version != before
        agents[cells], clocks[cells] = agent, clock
        known = draw.integers(0, 12, 4)
        asked = slice(*sorted(draw.choice(len(agents), 2, replace=False).tolist()))
        wrong = np.flatnonzero(known[agents[asked]] < clocks[asked])
        found = shadow.writes_unknown(asked, known)
        assert (found is None and not len(wrong)) or np.array_equal(found, wrong)
        answers.add(found is None)
        summary = shadow.written((asked.start, asked.stop), lambda low, high: (np.arange(low, high), low, high - 1))
        assert summary is not None
        assert summary.unwritten == bool((clocks[asked] == 0).any())
        newest = {int(a): int(clocks[asked][agents[asked] == a].max()) for a in np.unique(agents[asked])}
        assert newest.items() <= dict(summary.agents).items()
    assert answers == {True, False}


class Forgetful(products.Reading):
    """A product whose operands every warp looks at anew."""

    @property
    def version(self) -> int:  # type: ignore[override]
        return -2

    @version.setter
    def version(self, _: int) -> None:
        pass


class Anew(products.Quarter):
    """A warp whose wgmmas are each judged anew."""

    @property
    def last(self) -> None:  # type: ignore[override]
        return None

    @last.setter
    def last(self, _: object) -> None:
        pass


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["P5:staged_mma", "P4.half:staged_mma", "W2:tile_gemm", "W5.warp:staged_mma", "W8.step:tile_gemm",
                                  "B22.warp:tile_gemm", "W13:tile_gemm", "staged_mma", "tile_gemm"])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_what_one_warp_has_found_serves_the_others(name: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = SUBJECTS[name.rpartition(":")[2]]
    source = MUTANTS[name].source() if ":" in name else None
    remembered = subject.run(source, schedule=schedule, seed=1)
    monkeypatch.setattr(products, "Reading", Forgetful)
    monkeypatch.setattr(products, "Quarter", Anew)
    assert subject.run(source, schedule=schedule, seed=1) == remembered
