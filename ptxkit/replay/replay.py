"""A failing launch with the schedule under which it fails: run it again, look at it, keep it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_whole
from .choices import Choices
from .events import LIMIT, Record
from .found import Failure
from .outcome import Outcome, Trial


@dataclass(frozen=True, slots=True)
class Replay:
    """`failure` is what the schedule of these choices shows; `found` is how many there were before it was shortened."""

    trial: Trial
    choices: Choices
    failure: Failure | None = None
    found: int = 0
    told: tuple[str, ...] = ()
    """The choices as sentences, as a run has shown them."""

    def run(self, *, check: bool = True) -> Outcome:
        from .policies import Replaying

        return self.trial.run(Replaying(self.choices), check=check)

    def record(self, *, check: bool = True, limit: int = LIMIT) -> tuple[Outcome, Record]:
        """Run it, and write down what happens."""
        from .policies import Replaying
        from .record import Recorder

        recorder = Recorder(limit)
        policy = Replaying(self.choices, recorder.turned)
        outcome = self.trial.run(policy, check=check, observers=[recorder])
        recorder.close(outcome.report)
        recorder.choices = tuple(policy.words())
        return outcome, recorder

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write the page that shows it."""
        from .page import page

        return _written(path, page(self))

    def trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace for Perfetto."""
        from .trace import trace

        return _written(path, json.dumps(trace(self)))

    def data(self) -> dict[str, Any]:
        return {"kernel": self.trial.launch.name, "failure": None if self.failure is None else self.failure.data(), "found": self.found,
                "choices": self.choices.data()}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON; `Choices.load` reads the choices."""
        return _written(path, json.dumps(self.data(), indent=1))

    def _repr_html_(self) -> str:
        from .page import cell

        return cell(self)

    def __str__(self) -> str:
        said = "" if self.failure is None else f"[{self.failure.rule}] {self.failure.message}\n"
        if not len(self.choices):
            return said + "  in first-come-first-run order"
        words = self.told or tuple(self.choices.words())
        many = "choices that differ" if len(words) > 1 else "choice that differs"
        found = f" (found with {self.found})" if self.found > len(words) else ""
        lines = [f"  with {len(words)} {many} from first-come-first-run order{found}:"]
        lines += [f"  {i}. {each}" for i, each in enumerate(words[:12], 1)]
        return said + "\n".join(lines + ([f"  ... and {len(words) - 12} more"] if len(words) > 12 else []))


def _written(path: str | os.PathLike[str], text: str) -> Path:
    made = Path(path)
    write_whole(made, text.encode())
    return made
