"""What a session does is what `simulate` does, however it is stepped: memory, instructions, findings, how often a line is reached."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.debugger.live import LiveSession
from ptxkit.proof.given import launch_of
from ptxkit.proof.launch import Launch
from ptxkit.replay.outcome import Trial
from ptxkit.sim.machine import Machine
from ptxkit.sim.observer import Observer
from ptxkit.sim.storage import storage
from tests.sim.mutants.outcome import refusal
from tests.sim.mutants.subjects import SUBJECTS, Subject

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
SCHEDULES = [("fifo", 0), ("random", 1), ("random", 2), ("lazy", 0), ("adversarial", 2), ("spurious", 1), ("reverse", 0)]
SMALL = ["tile_gemm", "tma_copy", "row_sums", "exchange", "publish", "mail", "gather", "nvcc.add_one", "nvcc.around", "nvcc.staged",
         "nvcc.distributed", "nvcc.last_block", "nvcc.tickets", "nvcc.handoff"]


def launch(subject: Subject) -> Launch:
    if why := refusal(subject):
        pytest.skip(why)
    args, _, how = subject.launch()
    return launch_of(subject.original, how.pop("grid"), args, entry=subject.entry, **how)


def left(launch: Launch) -> dict[str, bytes]:
    return {name: storage(array).tobytes() for name, array in launch.arrays.items()}


class Counts(Observer):
    """How often each instruction is executed, by the engine's own count of basic blocks."""

    machine: Machine

    def begin(self, machine: Machine) -> None:
        self.machine = machine

    def of(self, indices: Sequence[int]) -> int:
        ops = self.machine.program.ops
        return sum(self.machine.counts[ops[index].block] for index in indices)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SMALL)
def test_a_session_is_the_run_of_its_schedule(name: str) -> None:
    for schedule, seed in SCHEDULES[SMALL.index(name) % 3::2]:
        plain, stepped = launch(SUBJECTS[name]), launch(SUBJECTS[name])
        with np.errstate(all="ignore"):
            wanted = plain.run(schedule, seed)
            found = LiveSession(stepped, schedule=schedule, seed=seed).finish()
        assert left(stepped) == left(plain), schedule
        assert (found.stats, found.verdict, found.every_schedule) == (wanted.stats, wanted.verdict, wanted.every_schedule), schedule
        assert [finding.rule for finding in found.findings] == [finding.rule for finding in wanted.findings]


@pytest.mark.parametrize("name", ["tma_copy", "exchange", "publish", "nvcc.around", "nvcc.distributed"])
def test_however_it_is_stepped(name: str) -> None:
    """Steps of all kinds, back and forth, with everything looked at on the way, end as one run does."""
    choice = random.Random(name)
    plain = launch(SUBJECTS[name])
    wanted = plain.run("random", 5)
    stepped = launch(SUBJECTS[name])
    session = LiveSession(stepped, schedule="random", seed=5)
    for _ in range(40):
        if session.report is not None:
            break
        match choice.randrange(6):
            case 0:
                session.step(choice.randint(1, 30))
            case 1:
                session.line()
            case 2:
                session.run_warp()
            case 3:
                session.phase()
            case 4 if session.turns:
                turns = session.turns
                back = choice.randint(1, 12)
                session.back(back)
                assert session.turns == max(turns - back, 0)
            case _:
                looked_at(session)
    if session.report is None:
        session.finish()
    assert session.report is not None
    assert left(stepped) == left(plain)
    assert session.report.stats == wanted.stats
    assert session.executed == wanted.stats.instructions


def looked_at(session: LiveSession) -> None:
    for row in session.warps():
        if row.state != "exited":
            assert session.registers(warp=row.warp, cta=row.cta) is not None
    for rows in (session.barriers(), session.flight(), session.warps()):
        assert repr(rows)
        assert rows._repr_html_().startswith("<")
    session.source()


@pytest.mark.parametrize("name", ["tma_copy", "row_sums", "exchange", "mail", "nvcc.add_one", "nvcc.around", "nvcc.last_block"])
def test_a_break_at_a_line_stops_as_often_as_it_is_reached(name: str) -> None:
    subject = SUBJECTS[name]
    for schedule, seed in (("fifo", 0), ("random", 3)):
        counts = Counts()
        Trial.of(launch(subject)).launch.run(schedule, seed, observers=[counts])
        session = LiveSession(launch(subject), schedule=schedule, seed=seed)
        lines = list(session.lines)
        assert {index for line in lines if line.file == "ptx" for index in line.ops} == set(range(len(counts.machine.program.ops)))
        points = {session.break_at(str(line)).number: line for line in lines}
        stops: Counter[int] = Counter()
        while session.report is None:
            stop = session.go()
            if stop.reason == "break":
                assert stop.number is not None
                stops[stop.number] += 1
        hits = {point.number: point.hits for point in session.breaks}
        assert hits == {number: counts.of(sorted(line.ops)) for number, line in points.items()}
        assert sum(stops.values()) == counts.machine.executed       # every instruction has a PTX line, so each is a stop


def test_the_law_of_lines_sees_a_stop_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = LiveSession(launch(SUBJECTS["exchange"]))
    point = session.break_at("ptx:1")
    monkeypatch.setattr(LiveSession, "_at_line", lambda self, points: None)
    session.go()
    assert point.hits == 0
    assert session.report is not None


def test_conditions_and_skips() -> None:
    session = LiveSession(launch(SUBJECTS["nvcc.around"]))
    ops = sorted(session.lines.ptx)
    session.break_at(f"ptx:{ops[3]}", warp=1, cta=2)
    stop = session.go()
    assert (stop.cta, stop.warp, stop.reason) == (2, 1, "break")
    assert session.go().reason == "end"
    other = LiveSession(launch(SUBJECTS["nvcc.around"]))
    point = other.break_at(f"ptx:{ops[3]}", skip=3)
    other.go()
    assert point.hits == 4
    other.delete(point.number)
    assert other.go().reason == "end"


# ----------------------------------------------------------------------------------------------------- schedules by hand


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["exchange", "mail", "tma_copy", "publish", "nvcc.around", "nvcc.last_block"])
def test_a_schedule_by_hand_is_saved_and_repeated(name: str, tmp_path: Any) -> None:
    """The replay executes the same instructions in the same order."""
    from ptxkit.replay.choices import Choices
    from ptxkit.replay.policies import Replaying

    choice = random.Random(name)
    first = launch(SUBJECTS[name])
    session = LiveSession(first)
    session.late()
    order = turns_of(session)
    told = 0
    while session.report is None:
        ready = [row for row in session.warps() if row.state == "ready"]
        if ready and choice.random() < 0.3:
            row = choice.choice(ready)
            session.switch(row.warp, row.cta, int(row.lanes.partition(",")[0].partition("-")[0] or 0))
            told += 1
        flying = session.flight()
        if len(flying) and choice.random() < 0.1 and flying[0].of_task is not None:
            session.land(int(flying[0].number), int(flying[0].warp), flying[0].cta)
        session.step()
    assert told > 3
    path = session.save(tmp_path / "s.json")
    choices = Choices.load(path)
    assert choices.stepwise
    again = launch(SUBJECTS[name])
    policy = Replaying(choices)
    report = again.run(policy)
    assert policy.missed == 0
    assert left(again) == left(first)
    assert report.stats.instructions == session.executed
    third = LiveSession(launch(SUBJECTS[name]), schedule=Replaying(choices))
    repeated = turns_of(third)
    third.finish()
    assert repeated == order


def turns_of(session: LiveSession) -> list[tuple[Any, ...]]:
    """A list that gets each turn: who has it, at which instruction."""
    order: list[tuple[Any, ...]] = []
    turn = session._turn

    def told() -> Any:
        f = session.chosen
        if f is not None:
            order.append((f.cta.index, f.warp.index, f.mask, f.block))
        return turn()

    session._turn = told  # type: ignore[method-assign]
    return order


RACE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry race(.param .u64 out)
.reqntid 64
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bra FIRST;
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd1], %r2;
    ret;
FIRST:
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""


def test_by_hand_between_two_instructions_of_a_basic_block() -> None:
    """An update is lost only where the other warp comes between a load and its store: no schedule of basic blocks shows it."""
    assert [int(run_race(schedule)[0]) for schedule in ("fifo", "reverse", "lazy")] == [2, 2, 2]
    out = np.zeros(1, np.uint32)
    session = LiveSession(launch_of(RACE, 1, [out]), check=False)
    session.break_at("ptx:20", warp=0)                       # the add: the load is done
    session.go()
    session.switch(1)
    session.run_warp()
    session.finish()
    assert out[0] == 1
    replay = session.replay()
    assert replay.run(check=False).launch.arrays["out"][0] == 1


def run_race(schedule: str) -> Any:
    out = np.zeros(1, np.uint32)
    sim.run(RACE, grid=1, args=[out], schedule=schedule, check=False)
    return out


def test_a_break_at_a_finding() -> None:
    session = LiveSession(launch_of(RACE, 1, [np.zeros(1, np.uint32)]))
    session.break_finding()
    stop = session.go()
    assert stop.reason == "finding"
    assert [finding.rule for finding in stop.findings] == ["global-race"]
    assert session.report is None
    before = session.turns
    session.back(1)
    assert session.findings == ()
    assert session.go().reason == "finding"
    assert session.turns == before


UNDEFINED = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry undefined(.param .u64 out)
.reqntid 32
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 16;
    @%p1 bra LOW;
    bra END;
LOW:
    shfl.sync.bfly.b32 %r2, %r1, 16, 31, 0xffff;
    add.u32 %r3, %r2, 1;
    st.global.u32 [%rd1], %r3;
END:
    ret;
}
"""


def test_a_run_that_begins_again_stands_where_it_stood() -> None:
    """The checker asks for another run once a value turns out to be undefined: the session comes back to the same turn."""
    wanted = sim.run(UNDEFINED, grid=1, args=[np.zeros(32, np.uint32)])
    session = LiveSession(launch_of(UNDEFINED, 1, [np.zeros(32, np.uint32)]))
    machines = {id(session.machine): session.machine}
    points = [session.break_at(f"ptx:{line}") for line in (10, 16, 17, 18)]
    while session.report is None:
        session.go()
        machines[id(session.machine)] = session.machine
    assert len(machines) == 2
    assert [point.hits for point in points] == [1, 1, 1, 1]
    assert [finding.rule for finding in session.report.findings] == [finding.rule for finding in wanted.findings]
    assert session.report.stats == wanted.stats
