"""A session: one launch on the CPU device that stands between two instructions, until it is told to go on."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..grammar.errors import Finding
    from ..layout import Layout
    from ..proof.launch import Launch
    from ..replay.choices import Choices
    from ..replay.replay import Replay
    from ..replay.sources import Excerpt
    from ..sim.report import Report
    from ..sim.values import Array
    from .breaks import Breakpoint, Stop
    from .rows import BarrierRow, BreakRow, FlightRow, RegisterRow, WarpRow
    from .tables import Rows
    from .values import Matrix


class Session(ABC):
    """A launch that stands before an instruction. `step`, `line`, `run_warp`, `phase`, `go` and `finish` let it go on; each but the last
    returns the `Stop` where it stands then. `break_at`, `break_phase` and `break_finding` say where `go` stops. `report` is what `simulate`
    returns, once the run has ended, and None before.

    Left alone, the order is that of the schedule. `switch`, `land` and `late` change it; `save` writes what was chosen as a replay.
    """

    launch: Launch
    stop: Stop
    """Where the run stands, and why."""
    report: Report | None
    turns: int
    """Turns of one instruction so far."""

    # ------------------------------------------------------------------------------------------- going on

    @abstractmethod
    def step(self, count: int = 1) -> Stop:
        """So many turns of one instruction, each of the warp whose turn it is; one that has to wait lets others go on."""

    @abstractmethod
    def line(self) -> Stop:
        """Let the warp go on until it comes to another line, or stops."""

    @abstractmethod
    def run_warp(self) -> Stop:
        """Let the warp go on until it waits, exits, or lets others go on."""

    @abstractmethod
    def phase(self, barrier: str = "") -> Stop:
        """Let all go on until a barrier completes a phase: one of this name (`full[0]`, `full`, `barrier 1`, `cluster`), or any."""

    @abstractmethod
    def go(self) -> Stop:
        """Let all go on until a breakpoint, or the end."""

    @abstractmethod
    def finish(self) -> Report:
        """Let all go on to the end, past breakpoints."""

    @abstractmethod
    def interrupt(self) -> None:
        """Stand after the current turn: for another thread, or a signal, while a run goes on."""

    @abstractmethod
    def back(self, count: int = 1) -> Stop:
        """Go back by so many turns: begin again and do the same, which every run does alike."""

    @abstractmethod
    def restart(self) -> Stop:
        """Begin again; breakpoints stay, what was done to the schedule is forgotten."""

    # ------------------------------------------------------------------------------------------- the schedule

    @abstractmethod
    def switch(self, warp: int, cta: int | None = None, lane: int | None = None) -> Stop:
        """Let this warp execute the next instruction; of one whose lanes are apart, those with the lane."""

    @abstractmethod
    def late(self, late: bool = True) -> None:
        """Keep asynchronous operations that are issued from now on in flight, until `land` or until nobody can go on."""

    @abstractmethod
    def land(self, number: int, warp: int | None = None, cta: int | None = None) -> None:
        """Land an operation in flight: the n-th of its warp, as `flight` shows it."""

    @property
    @abstractmethod
    def choices(self) -> Choices:
        """The schedule so far."""

    @abstractmethod
    def replay(self) -> Replay:
        """The launch, from its memory at the start, with the schedule so far."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the schedule so far, for `--replay`."""

    # ------------------------------------------------------------------------------------------- breakpoints

    @abstractmethod
    def break_at(self, line: str | int, *, warp: int | None = None, cta: int | None = None, when: str = "", skip: int = 0) -> Breakpoint:
        """Stop before a line: `12` (of the kernel's file), `"file.py:12"` or `"ptx:40"`; where a register compares so in any lane
        (`when="k == 3"`), and passed over `skip` times.
        """

    @abstractmethod
    def break_phase(self, barrier: str = "", *, phase: int | None = None, cta: int | None = None, skip: int = 0) -> Breakpoint:
        """Stop when a barrier of this name completes a phase: `full[0]`, `full` (any of them), `barrier 1`, `cluster`, or any at all."""

    @abstractmethod
    def break_finding(self) -> Breakpoint:
        """Stop when the checker has found something."""

    @abstractmethod
    def delete(self, number: int) -> None:
        """Forget a breakpoint."""

    @abstractmethod
    def breakpoints(self) -> Rows[BreakRow]:
        """All breakpoints, with how often each was reached."""

    # ------------------------------------------------------------------------------------------- looking

    @abstractmethod
    def warps(self) -> Rows[WarpRow]:
        """Where each warp stands, and what it waits for."""

    @abstractmethod
    def barriers(self) -> Rows[BarrierRow]:
        """The mbarriers and barriers, with the phase under way: who has arrived, what is missing, who waits."""

    @abstractmethod
    def flight(self) -> Rows[FlightRow]:
        """Copies, and groups of wgmma, that were issued and have not landed."""

    @abstractmethod
    def registers(self, *names: str, warp: int | None = None, cta: int | None = None, lane: int | None = None,
                  every: bool = False) -> Rows[RegisterRow]:
        """Those of a warp that have been written and are read later (`every`: all), or those of these names, the author's or PTX's."""

    @abstractmethod
    def tile(self, name: str, stage: int = 0, *, cta: int | None = None, layout: Layout | None = None) -> Matrix:
        """A tile in shared memory as (rows, columns), without its swizzle: one of the kernel's by name, the box that a tensor copy has left
        at a place, or whatever lies there in a layout.
        """

    @abstractmethod
    def shared(self, place: str, count: int = 8, type: str = "u32", *, cta: int | None = None) -> Matrix:
        """Elements of shared memory as they lie, from `name`, `name+16` (bytes) or `+0x400` on."""

    @abstractmethod
    def array(self, name: str) -> Array:
        """An array among the arguments, as global memory has it now."""

    @property
    @abstractmethod
    def findings(self) -> tuple[Finding, ...]:
        """What the checker has found so far, and what ended the run."""

    @abstractmethod
    def source(self) -> list[Excerpt]:
        """The lines around the next instruction, of the author's file and of the PTX."""

    @property
    @abstractmethod
    def executed(self) -> int:
        """Warp instructions so far."""
