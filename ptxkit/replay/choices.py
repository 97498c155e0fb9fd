"""A schedule as its choices.

A choice names what it is about by warp, not by a number in the run, so that it still means something when other choices are left
out: a task is the n-th asynchronous operation that a warp has issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..files import read_json
from ..sim.asked import PolicyBase
from ..sim.errors import SimulationError
from ..sim.milestones import DONE

Place = tuple[int, ...]
"""A warp and a number: (CTA, warp, n)."""
FORMAT = "ptxkit schedule 1"


@dataclass(frozen=True, slots=True)
class Run:
    """The fragment of this warp that has this lane runs for at most so many basic blocks (instructions, in `stepwise` choices)."""

    cta: int
    warp: int
    lane: int
    blocks: int

    def __str__(self) -> str:
        blocks = "" if self.blocks >= PolicyBase.quantum else f" {self.blocks} basic block{'s' * (self.blocks > 1)}"
        return f"CTA {self.cta} warp {self.warp} runs{blocks}"


@dataclass(frozen=True, slots=True)
class Land:
    """The n-th asynchronous operation of this warp goes on to the milestone (1: its sources are read, 2: it is done)."""

    cta: int
    warp: int
    number: int
    milestone: int

    def __str__(self) -> str:
        did = "is done" if self.milestone == DONE else "has read its sources"
        return f"asynchronous operation {self.number} of CTA {self.cta} warp {self.warp} {did}"


@dataclass(frozen=True, slots=True)
class Help:
    """Nobody can go on: of the operations in flight these land."""

    tasks: tuple[Place, ...]

    def __str__(self) -> str:
        which = ", ".join(f"{number} of CTA {cta} warp {warp}" for cta, warp, number in self.tasks)
        return f"everybody waits, and of the asynchronous operations in flight {which} is done"


Step = Run | Land | Help


@dataclass(frozen=True, slots=True)
class Choices:
    """A recorded schedule: where it leaves the first-come-first-run order of "fifo". With none it is "fifo" itself.

    `late`: operations that do not land at issue: (CTA, warp, n-th of that warp), (CTA, warp, -n) for the n-th group of wgmma that the warp
    completes, counted from 1, or (CTA, warp, 0) for all of that warp. `elections`: (CTA, warp, n) to the lane picked. `spurious`: (CTA,
    warp, lane, n) of try_waits that say no although their phase is complete. `last`: the warps that, after the steps, go on only when all
    others wait (or poll). `stepwise`: the steps count instructions, so that others may come between any two of them.
    """

    steps: tuple[Step, ...] = ()
    late: frozenset[Place] = frozenset()
    elections: tuple[tuple[Place, int], ...] = ()
    spurious: frozenset[Place] = frozenset()
    last: frozenset[Place] = frozenset()
    name: str = "fifo"
    seed: int = 0
    stepwise: bool = False

    def __len__(self) -> int:
        """How many choices differ from "fifo"."""
        return len(self.steps) + len(self.late) + len(self.elections) + len(self.spurious) + len(self.last)

    @property
    def switches(self) -> int:
        """How often the next step runs another warp."""
        runs = [(step.cta, step.warp) for step in self.steps if isinstance(step, Run)]
        return sum(a != b for a, b in pairwise(runs))

    def words(self, operations: Mapping[Place, str] | None = None, ends: Mapping[int, str] | None = None) -> Iterator[str]:
        """The choices as sentences, in order. After a run it is known what the late operations are, and where the turns of steps end."""
        operations, ends = operations or {}, ends or {}
        for cta, warp, number in sorted(self.late):
            of = f" ({operations[cta, warp, number]})" if (cta, warp, number) in operations else ""
            if not number:
                yield f"all asynchronous operations of CTA {cta} warp {warp} land late"
                continue
            yield (f"wgmma group {-number} of CTA {cta} warp {warp} runs late" if number < 0
                   else f"asynchronous operation {number} of CTA {cta} warp {warp}{of} lands late")
        for (cta, warp, number), lane in self.elections:
            yield f"election {number} of CTA {cta} warp {warp} picks lane {lane}"
        for cta, warp, lane, number in sorted(self.spurious):
            yield f"try_wait {number} of CTA {cta} warp {warp} (lane {lane}) says no although its phase is complete"
        for cta, warp in sorted(self.last):
            yield f"CTA {cta} warp {warp} goes on only when all others wait"
        for i, step in enumerate(self.steps):
            words = str(step).replace("basic block", "instruction") if self.stepwise else str(step)
            yield f"{words}{', ' if step.blocks < PolicyBase.quantum else ' '}{ends[i]}" if isinstance(step, Run) and i in ends else words

    # ------------------------------------------------------------------------------------------- as JSON

    def data(self) -> dict[str, Any]:
        return {"format": FORMAT, "from": self.name, "seed": self.seed, "steps": [_row(step) for step in self.steps],
                "late": sorted(map(list, self.late)), "elections": [[*place, lane] for place, lane in self.elections],
                "spurious": sorted(map(list, self.spurious)), "last": sorted(map(list, self.last)), "stepwise": self.stepwise}

    @classmethod
    def of_data(cls, data: Any, where: str = "the schedule") -> Choices:
        """From what `data` gave, perhaps within a replay's file; SimulationError says what is wrong with anything else."""
        if isinstance(data, Mapping) and isinstance(data.get("choices"), Mapping):
            data = data["choices"]
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise SimulationError(f"{where} is no schedule: its `format` is not {FORMAT!r}")
        try:
            return cls(tuple(_step(row) for row in data["steps"]), frozenset(_place(row, 3) for row in data["late"]),
                       tuple((_place(row[:3], 3), _natural(row[3])) for row in data["elections"]),
                       frozenset(_place(row, 4) for row in data["spurious"]), frozenset(_place(row, 2) for row in data["last"]),
                       str(data["from"]), int(data["seed"]), bool(data.get("stepwise", False)))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise SimulationError(f"{where} is damaged: {type(error).__name__}: {error}") from None

    @classmethod
    def load(cls, path: Any) -> Choices:
        try:
            data = read_json(path)
        except OSError as error:
            raise SimulationError(f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise SimulationError(f"{path} is no JSON: {error}") from None
        return cls.of_data(data, str(path))


def _row(step: Step) -> list[Any]:
    match step:
        case Run():
            return ["run", step.cta, step.warp, step.lane, step.blocks]
        case Land():
            return ["land", step.cta, step.warp, step.number, step.milestone]
        case Help():
            return ["help", *map(list, step.tasks)]


def _step(row: Any) -> Step:
    match row:
        case ["run", *rest]:
            return Run(*_place(rest, 4))
        case ["land", *rest]:
            return Land(*_place(rest, 4))
        case ["help", *rest]:
            return Help(tuple(_place(task, 3) for task in rest))
    raise ValueError(f"{row!r} is no step")


def _place(row: Any, count: int) -> Place:
    found = tuple(int(part) for part in row)
    if len(found) != count:
        raise ValueError(f"{row!r} does not have {count} numbers")
    return found


def _natural(value: Any) -> int:
    return int(value)


def joined(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps, with runs of one fragment that follow each other made one."""
    made: list[Step] = []
    for step in steps:
        last = made[-1] if made else None
        if isinstance(step, Run) and isinstance(last, Run) and (step.cta, step.warp, step.lane) == (last.cta, last.warp, last.lane):
            made[-1] = replace(last, blocks=last.blocks + step.blocks)
        else:
            made.append(step)
    return tuple(made)
