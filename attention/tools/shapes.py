"""What the benchmarks of attention share: their options, and their shapes one after another in a process that is watched."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxkit.cli.numbers import positive, whole
from ptxkit.cli.paths import output_path
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES
from ptxkit.measure.watch import Step, watched
from ptxkit.runtime import driver

Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser, count: int) -> None:
    """The options that all benchmarks have. `count` is the number of shapes of this one."""
    parser.add_argument("--shapes", type=_indices, metavar="I,J", help=f"which of the {count} shapes, from 0")
    parser.add_argument("--rounds", type=positive, default=12, help="rounds of every contestant (default 12)")
    parser.add_argument("--regime", choices=tuple(REGIMES), default="burst", help="how time is taken (default burst)")
    parser.add_argument("-o", "--json", type=output_path, metavar="FILE", help="write the results there, after each shape")


def _indices(text: str) -> list[int]:
    try:
        return [whole(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} are no numbers of shapes from 0 on, as 0,3") from None


def numbers(options: argparse.Namespace, count: int) -> Sequence[int] | None:
    """The shapes that are asked for; None if there is another number among them."""
    asked: Sequence[int] = range(count) if options.shapes is None else options.shapes
    return asked if all(0 <= index < count for index in asked) else None


def watch(worker: str, options: argparse.Namespace, shapes: Sequence[int], **more: Any) -> int:
    """Start the worker, "module:function", with these options. Returns its status."""
    driver.probe()
    with tempfile.TemporaryDirectory() as folder:
        given = {"shapes": list(shapes), "rounds": options.rounds, "regime": options.regime, **more,
                 "json": str(options.json.absolute()) if options.json else "", "rows": str(Path(folder) / "rows.json")}
        return watched(worker, given, Path(folder) / "step.json", say=lambda line: print(line, file=sys.stderr))


def measure_each(torch: Any, options: Mapping[str, Any], step: Step, row: Callable[[int], Row], said: Callable[[Row], str],
                 results: Callable[[list[Row]], dict[str, Any]]) -> list[Row]:
    """The rows of all shapes. A worker that was started again keeps the rows of the one before. Each row is printed as it comes, and
    `results` of the rows so far are written."""
    kept = Path(options["rows"])
    rows: list[Row] = json.loads(kept.read_text()) if kept.exists() else []
    for index in options["shapes"]:
        key = f"shape {index}"
        if step.finished(key):
            continue
        why = step.begin(key)
        rows.append({"shape": index, "left_out": why} if why else row(index))
        print(said(rows[-1]), flush=True)
        kept.write_text(json.dumps(rows))
        step.finish(key)
        torch.cuda.empty_cache()
        if options["json"]:
            write_json(Path(options["json"]), results(rows))
    return rows


def status(rows: Sequence[Row]) -> int:
    """0 when something was measured, all of it is right, and nothing was left out."""
    return int(not rows or any(row.get("wrong") or "left_out" in row for row in rows))


__all__ = ["add_options", "measure_each", "numbers", "status", "watch"]
