"""What the tuner is asked for by keyword, and what it has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from ..errors import PtxkitError
from ..measure.asked import Where
from .space import Point, words

Kind = Literal["condition", "trace", "assembler", "launch", "wrong", "hang"]
KINDS: Mapping[Kind, str] = {
    "condition": "left out by a condition", "trace": "not traced", "assembler": "refused by the assembler", "launch": "not launched",
    "wrong": "wrong", "hang": "hung or fell before"}


class TuneError(PtxkitError, RuntimeError):
    """No point is legal and right, or the card was lost."""


class Options(TypedDict, total=False):
    """`key`: names of the arguments that the result depends on, or a function of them. `regime`: "burst", as usual, "warm" or "sustained".
    `rounds`: of the finalists. `seconds`: after which no further turn begins. `jobs`: assemblers at a time. `again`: measure although a
    result is kept. `results`: the file or folder to keep it in. `tolerance`: of references. `patience_s`: after which a launch hangs.
    `device`: "gpu", or "cpu", where nothing is kept."""

    key: Any
    regime: str
    rounds: int
    seconds: float
    jobs: int
    again: bool
    results: str | Path
    tolerance: float
    patience_s: float
    device: Where
    seed: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A point that is not measured, and why."""

    point: Point
    kind: Kind
    why: str


@dataclass(frozen=True)
class Tuned:
    """The fastest point: `config` for `launch(..., **config)`, its `time` and that of the default configuration, if that is a point.

    `times`: of every right point, from the last turn it took part in. `sensors`: MHz, W and degrees while the finalists ran. `kept`: it was
    found earlier, and nothing was measured.
    """

    kernel: str
    card: str
    config: Mapping[str, Any]
    time: float
    default: float | None = None
    unit: str = "us"
    regime: str = ""
    times: tuple[tuple[Point, float], ...] = ()
    skipped: tuple[Skipped, ...] = ()
    sensors: Mapping[str, float] = field(default_factory=dict)
    kept: bool = False
    seconds: float = 0.0
    path: Path | None = None

    @property
    def counts(self) -> dict[Kind, int]:
        """How many points were skipped, by kind."""
        counted = Counter(one.kind for one in self.skipped)
        return {kind: counted[kind] for kind in KINDS if counted[kind]}

    def __str__(self) -> str:
        text = f"{self.kernel} on {self.card}: {words(tuple(self.config.items()))}, {_amount(self.time, self.unit)}"
        if self.default is not None:
            text += f" (the default takes {self.default / self.time:.3f} times as long)"
        if self.kept:
            return f"{text}; kept from before"
        measured = f"{len(self.times) + len(self.skipped)} points: {len(self.times)} measured"
        lines = [text, ", ".join([measured, *(f"{count} {KINDS[kind]}" for kind, count in self.counts.items())])]
        return "\n".join([*lines, *reasons(self.skipped)])

    def _repr_html_(self) -> str:
        from ..html.measures import tuned

        longest = max((time for _, time in self.times), default=1.0)
        return tuned(self, [(words(point), _amount(time, self.unit), time / longest) for point, time in self.times],
                     list(reasons(self.skipped)))


def _amount(time: float, unit: str) -> str:
    return f"{time:.2f} us" if unit == "us" else f"{time:,.0f} {unit}"


def reasons(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Each reason once, with the first point that it holds for and how many there are. Wrong points are all named."""
    groups: dict[tuple[Kind, str], list[Skipped]] = {}
    for one in skipped:
        groups.setdefault((one.kind, words(one.point) if one.kind == "wrong" else one.why), []).append(one)
    for (kind, _), ones in groups.items():
        more = f" and {len(ones) - 1} more" if len(ones) > 1 else ""
        yield f"  {KINDS[kind]}: {words(ones[0].point)}{more}: {ones[0].why}"
