"""The command `ptxkit simulate`: a kernel on the CPU device, with arrays that the command line describes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import output
from .errors import UsageError
from .launches import ARRAYS, from_file, launch_arguments, spec_of, writable, write_files
from .numbers import positive
from .paths import named

if TYPE_CHECKING:
    from ..proof.result import Proof, Run
    from ..proof.spec import Spec
    from ..replay.replay import Replay

_EXIT = """\
Exit status: 0 the verdict is clean or review; 1 it is error or incomplete, schedules leave different memory, or another failure;
2 usage, or a launch that does not fit the kernel. With --no-check, 0 when nothing faults."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's source and options."""
    parser.epilog, parser.formatter_class = f"{ARRAYS}\n\n{_EXIT}", argparse.RawDescriptionHelpFormatter
    launch_arguments(parser)
    add = parser.add_argument
    add("--schedules", type=positive, metavar="N", help="run N different schedules and compare what they leave")
    add("--keep", type=named, metavar="F.json", help="write the shortest schedule that is found for a failure, for --replay")
    add("--page", type=named, metavar="F.html",
        help="write a page that shows the failure under that schedule, or the first run where nothing fails")
    add("--trace", type=named, metavar="F.json", help="write the same as a trace for Perfetto")
    add("--search-seconds", type=positive, default=30, metavar="N", help="look for a short schedule for at most so long (30)")
    add("--strict", action="store_true", help="exit 1 on findings to review, too")


def run(options: argparse.Namespace) -> int:
    """Runs the schedules and prints what they found."""
    from ..errors import TraceError
    from ..proof.proving import proof_of
    from ..proof.spec import SpecError
    from ..sim import SimulationError
    from .replays import kept, repeated

    if options.replay and (options.schedules is not None or options.schedule or options.seed is not None):
        raise UsageError("--replay has the schedule: leave out --schedules, --schedule and --seed")
    try:
        spec, source, text = spec_of(options, from_file(options))
    except (SimulationError, SpecError) as error:
        raise UsageError(str(error)) from None
    try:
        launch = replace(spec.launch(source), text=text)
        order = _order(spec)
        writable(options, launch.arrays, [options.keep, options.page, options.trace])
        before = {name: array.copy() for name, array in launch.arrays.items()}
        if options.replay:
            proof = repeated(launch, options.replay, check=not options.no_check, max_steps=spec.max_steps)
        else:
            proof = proof_of(launch, order, check=not options.no_check, max_steps=spec.max_steps)
    except (SimulationError, SpecError, TraceError) as error:               # a TraceError is of a tensor map: the kernel is traced
        raise UsageError(getattr(error, "message", str(error))) from None
    write_files(options, spec, launch.arrays)
    replay = kept(proof, options) if options.keep or options.page or options.trace else None
    _show(options, spec, proof, before, replay)
    good = ("clean", "review") if not options.strict else ("clean",)
    if options.no_check:
        return int(any(run.report.verdict == "error" for run in proof.runs) or proof.difference is not None)
    return int(proof.verdict not in good)


def _order(spec: Spec) -> Any:
    from ..proof.schedules import schedules_of

    return schedules_of(spec.schedules if spec.schedules is not None else [(spec.schedule, spec.seed)])


# ------------------------------------------------------------------------------------------------------ what is written


def _show(options: argparse.Namespace, spec: Spec, proof: Proof, before: Mapping[str, Any], replay: Replay | None) -> None:
    rows = [_row(name, before[name], array) for name, array in proof.launch.arrays.items()]
    if options.json:
        output.show_json({
            "source": spec.source, "entry": proof.launch.name, "grid": proof.launch.grid, "verdict": proof.verdict, "proven": proof.proven,
            "difference": None if proof.difference is None else _difference(proof), "runs": [_run(run) for run in proof.runs],
            "findings": [{**output.finding_row(finding), "schedules": [str(each) for each in schedules]}
                         for finding, schedules in proof.findings()],
            "arrays": rows, "replay": None if replay is None else {**replay.data(), "choices": len(replay.choices)}})
        return
    for run in proof.runs[:1]:
        sys.stdout.write(run.report.output)
    if len(proof.runs) == 1:
        print(f"{proof.launch.name}: {proof.runs[0].report}")
    else:
        print(proof)
    if replay is not None and replay.failure is not None:
        print(f"shortest failure: {replay}")
    output.table(("array", "type", "shape", "changed", "not finite"), [tuple(row.values()) for row in rows])


def _row(name: str, before: Any, after: Any) -> dict[str, Any]:
    """How much of an array the first schedule changed, and how many elements are infinite or no numbers."""
    import numpy as np

    item = after.dtype.itemsize
    bits = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, item) for array in (before, after)]
    kind = after.dtype.kind
    numbers = after if kind in "fc" else after.astype(np.float64) if after.dtype.names is None and kind == "V" else np.zeros(0)
    odd = int((~np.isfinite(numbers)).sum())
    return {"array": name, "type": str(after.dtype), "shape": "x".join(map(str, after.shape)),
            "changed": int((bits[0] != bits[1]).any(axis=1).sum()), "not_finite": odd}


def _difference(proof: Proof) -> dict[str, Any]:
    found = proof.difference
    assert found is not None
    return {"array": found.array, "index": found.index, "values": [str(value) for value in found.values],
            "schedules": [str(each) for each in found.schedules]}


def _run(run: Run) -> dict[str, Any]:
    return {"schedule": run.schedule.name, "seed": run.schedule.seed, "verdict": run.report.verdict,
            "every_schedule": run.report.every_schedule, "provided": run.report.provided,
            "checked": run.report.checked, "instructions": run.report.stats.instructions,
            "findings": len(run.report.findings), "output": run.report.output}
