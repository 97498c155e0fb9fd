"""What the rows of dense and of grouped products share: who is prepared, how they are timed, and the loop that keeps each row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ptxkit.errors import PtxkitError

from .baselines import NotImplementedHere
from .figures import spread
from .grouped_cases import Case
from .power import Sampler
from .regimes import Captured, Regime, Timed, measure
from .report import write_json
from .shapes import Problem
from .watch import alive

Job = TypeVar("Job")
Maker = TypeVar("Maker")


def prepared(torch: Any, makers: Mapping[str, Maker], prepare: Callable[[Maker], Captured],
             skipped: Callable[[str], str | None] = lambda name: None) -> tuple[list[Captured], dict[str, str]]:
    """The graphs of those that can run and are right, and why each of the others is left out."""
    graphs: list[Captured] = []
    left_out: dict[str, str] = {}
    for name, make in makers.items():
        why = skipped(name)
        if why is not None:
            left_out[name] = why
            continue
        try:
            graphs.append(prepare(make))
        except (NotImplementedHere, PtxkitError) as error:
            alive(torch)
            left_out[name] = str(error)
        except Exception as error:                          # whatever others raise for a product that they do not have
            alive(torch)
            left_out[name] = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
    return graphs, left_out


def sampled(torch: Any, graphs: Sequence[Captured], regime: Regime, rounds: int, sensors: Any,
            seed: int = 0) -> tuple[list[Timed], Sampler]:
    """The times of all in turn, and the samples of the sensors meanwhile."""
    with Sampler(sensors) as sampler:
        timed = measure(torch, graphs, regime, rounds, seed)
    return timed, sampler


def rates(work: Problem | Case, us: float) -> dict[str, float]:
    """The time of a product as rates."""
    return {"tflops": 1e-6 * work.flops / us, "gbs": 1e-3 * work.bytes / us}


def contestants(work: Problem | Case, timed: Sequence[Timed], more: Callable[[Timed], Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The spread and the rates of each, and `more`."""
    return {one.captured.entry.name: {**spread(one.us), **rates(work, one.median), **more(one)} for one in timed}


def times_of(timed: Sequence[Timed]) -> dict[str, list[float]]:
    """The times of each by its name."""
    return {one.captured.entry.name: one.us for one in timed}


def header(**what: Any) -> dict[str, Any]:
    """Results without rows."""
    return {"date": time.strftime("%Y-%m-%d"), **what, "rows": []}


def each(torch: Any, results: dict[str, Any], jobs: Sequence[Job], row: Callable[[int, Job], dict[str, Any]],
         line: Callable[[dict[str, Any]], str], *, path: Path | None, say: Callable[[str], None],
         cut: Callable[[int, Job], Any] = lambda done, job: None,
         summary: Callable[[Sequence[dict[str, Any]]], dict[str, Any]] | None = None) -> dict[str, Any]:
    """Measures a row for each job that has none yet. After each, the results are written to `path` and its line is given to `say`.

    What `cut` returns before a job ends the loop, and is kept, unless it is None.
    """
    rows = results["rows"]
    for done, job in enumerate(jobs):
        if done < len(rows):
            continue
        why = cut(done, job)
        if why is not None:
            results["cut"] = why
            break
        rows.append(row(done, job))
        if summary is not None:
            results["summary"] = summary(rows)
        if path is not None:
            write_json(path, results)
        say(line(rows[-1]))
        torch.cuda.empty_cache()
    if path is not None:
        write_json(path, results)
    return results


__all__ = ["contestants", "each", "header", "prepared", "rates", "sampled", "times_of"]
