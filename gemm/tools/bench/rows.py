"""What the rows of dense and of grouped products share: their rates, and the loop that keeps each row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ptxkit.measure import contest
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import Timed

from .grouped_cases import Case
from .shapes import Problem

Job = TypeVar("Job")


def rates(work: Problem | Case, us: float) -> dict[str, float]:
    """The time of a product as rates."""
    return {"tflops": 1e-6 * work.flops / us, "gbs": 1e-3 * work.bytes / us}


def contestants(work: Problem | Case, timed: Sequence[Timed], more: Callable[[Timed], Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The spread and the rates of each, and `more`."""
    return contest.contestants(timed, lambda one: {**rates(work, one.median), **more(one)})


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


__all__ = ["contestants", "each", "header", "rates"]
