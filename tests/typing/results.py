"""What the CPU device, proofs, replays and the debugger give: mypy and basedpyright infer these types, and none of them is Any."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

from ptxkit import Ptr, Traced, device_array, kernel, prove, sim
from ptxkit.cards import Card
from ptxkit.check.found import Findings
from ptxkit.debugger import Breakpoint, Matrix, Session, Stop, debug
from ptxkit.debugger.rows import BarrierRow, BreakRow, FlightRow, RegisterRow, WarpRow
from ptxkit.debugger.tables import Rows
from ptxkit.errors import Finding, Position
from ptxkit.export.one import Exported
from ptxkit.measure.bench import Benchmark
from ptxkit.proof.launch import Launch
from ptxkit.proof.result import Difference, Proof, Run
from ptxkit.proof.schedules import Schedule
from ptxkit.replay import Choices, Failure, Outcome, Record, Replay, Search, Trial, search
from ptxkit.replay.events import Event, Flight, Mark, Phase
from ptxkit.runtime.arrays import DeviceArray
from ptxkit.runtime.compiled import Compiled
from ptxkit.runtime.toolchain import Assembly
from ptxkit.sim.report import Report, Stats, Verdict
from ptxkit.sim.values import Array
from ptxkit.sim.written import Buffer, Written
from ptxkit.timeline import Timeline
from ptxkit.tuning.tune import Tuned
from ptxkit.types import f32


@kernel(target="sm_90a", block=32)
def nothing(out: Ptr[f32]) -> None: ...


def stepped(out: Any) -> None:
    session = nothing.debug(1, out, schedule="random", seed=3)
    assert_type(session, Session)
    assert_type(debug("", 1, out), Session)
    assert_type([session.step(2), session.line(), session.run_warp(), session.phase("full"), session.go(), session.back()], list[Stop])
    assert_type(session.switch(1), Stop)
    assert_type(session.stop.position, Position | None)
    assert_type(session.finish(), Report)
    assert_type(session.report, Report | None)
    assert_type(session.break_at("file.py:12", when="k == 3"), Breakpoint)
    assert_type(session.breakpoints(), Rows[BreakRow])
    assert_type(session.warps(), Rows[WarpRow])
    assert_type(session.barriers()[0], BarrierRow)
    assert_type(session.flight(), Rows[FlightRow])
    assert_type(session.registers("k")[0].value, str)
    assert_type(session.registers(), Rows[RegisterRow])
    assert_type(session.tile("A", 1), Matrix)
    assert_type(session.shared("+16"), Matrix)
    assert_type(session.array("out"), Array)
    assert_type(session.findings, tuple[Finding, ...])
    assert_type(session.choices, Choices)
    assert_type(session.replay(), Replay)
    assert_type(session.save("schedule.json"), Path)
    assert_type((session.turns, session.executed), tuple[int, int])


def proven(out: Any, card: Card) -> None:
    proof = prove(nothing, 1, out, schedules=[("random", 7), "lazy"], card=card)
    assert_type(proof, Proof)
    assert_type(proof.verdict, Verdict)
    assert_type(proof.runs, tuple[Run, ...])
    assert_type(proof.runs[0].schedule, Schedule)
    assert_type(proof.difference, Difference | None)
    assert_type(proof.failing, Run | None)
    assert_type(proof.launch, Launch)
    assert_type(proof.launch.run("lazy"), Report)
    assert_type(proof.search(), Search)
    assert_type(search(nothing, 1, out).replay, Replay | None)
    assert_type(proof.search().replays[0].failure, Failure | None)
    replay = proof.replay()
    assert_type(replay, Replay)
    assert_type(replay.trial, Trial)
    assert_type(replay.run(), Outcome)
    outcome, record = replay.record()
    assert_type(outcome.report, Report)
    assert_type(record, Record)
    assert_type(list(record.events), list[Event])
    assert_type(record.phases["full[0]"][0], Phase)
    assert_type(list(record.flights), list[Flight])
    assert_type(record.marks, list[Mark])
    assert_type(record.writer("out", out, (0,)), Event | None)
    assert_type(record.events[0].op.opcode if record.events[0].op is not None else "", str)


def simulated(out: Any) -> None:
    report = sim.run(nothing, grid=1, args=[out], schedule="adversarial", seed=1, limits=sim.Limits(ctas=4))
    assert_type(report, Report)
    assert_type(nothing.simulate(1, out), Report)
    assert_type(report.verdict, Verdict)
    assert_type(report.findings, tuple[Finding, ...])
    assert_type(report.stats, Stats)
    assert_type(report.written, Written | None)
    if report.written is not None:
        assert_type(report.written.buffers, tuple[Buffer, ...])
    assert_type(report.partly_written, tuple[str, ...])
    assert_type(report.timeline, Timeline | None)
    assert_type(sim.SCHEDULES, tuple[str, ...])


def others(out: Any) -> None:
    assert_type(nothing.trace(), Traced)
    assert_type(nothing.check(), Findings)
    assert_type(nothing.assemble(), Assembly)
    assert_type(nothing.compile(), Compiled)
    assert_type(nothing.timeline(1, out), Timeline)
    assert_type(nothing.export("folder"), Exported)
    assert_type(nothing.bench(grid=1, args=[out]), Benchmark)
    assert_type(nothing.tune({"BM": [64]}, grid=1, args=[out]), Tuned)
    assert_type(device_array(out), DeviceArray)
