"""`python -m ptxkit.attention verify`: random problems against float64, with poison around every array, in a process that is watched."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxkit.cli.numbers import count, positive, seconds
from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.measure.watch import Step, alive, watched
from ptxkit.runtime import driver

from .draw import MOST_SCORES, Made, draw

SMALL_SCORES = 30_000       # of a problem on the CPU device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("-n", "--count", type=positive, default=300, help="so many problems (default 300)")
    parser.add_argument("--seed", type=count, default=0, help="the first problem's seed; the others count up")
    parser.add_argument("--device", choices=("gpu", "sim"), default="gpu", help="sim: the CPU device with its checker, small problems")
    parser.add_argument("--seconds", type=seconds, default=300, help="begin no problem after so long (default 300)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when every problem is right."""
    given = {"count": options.count, "seed": options.seed, "device": options.device, "until": time.time() + options.seconds}
    if options.device == "sim":
        return worker(given, Step())
    driver.probe()
    with tempfile.TemporaryDirectory() as folder:
        return watched("ptxkit.attention.tools.verify:worker", given, Path(folder) / "step.json",
                       say=lambda line: print(line, file=sys.stderr))


def worker(options: Mapping[str, Any], step: Step) -> int:
    """The problems, one after another. A wrong one is named by its seed."""
    import torch

    for seed in range(options["seed"], options["seed"] + options["count"]):
        key = f"seed {seed}"
        if step.finished(key) or time.time() > options["until"]:
            continue
        why = step.begin(key) or _one(torch, seed, options["device"])
        if why is not None:
            print(f"WRONG {draw(seed, _most(options['device']))}: {why}", flush=True)
            step.finish(f"wrong {seed}")
        step.finish(key)
    wrong = sum(key.startswith("wrong") for key in step.state["done"])
    total = len(step.state["done"]) - wrong
    print(f"{total} of {options['count']} problems from seed {options['seed']}: {total - wrong} right, {wrong} wrong")
    return int(wrong > 0 or not total)


def _most(device: str) -> int:
    return SMALL_SCORES if device == "sim" else MOST_SCORES


def _one(torch: Any, seed: int, device: str) -> str | None:
    """What is wrong with a problem's results, or None."""
    made = Made(torch, draw(seed, _most(device)), "cpu" if device == "sim" else "cuda")
    if device == "sim":
        return _simulated(torch, made)
    from ..launch.forward import attention

    try:
        attention(made.q, made.k, made.v, out=made.out, **made.arguments())
    except PtxkitError as error:
        return str(error)
    alive(torch)
    first = made.stored()
    attention(made.q, made.k, made.v, out=made.out, **made.arguments())
    alive(torch)
    return made.problem() or (None if made.stored() == first else "a second launch left other bits")


def _simulated(torch: Any, made: Made) -> str | None:
    import numpy as np

    from ..launch.simulate import simulate

    def array(tensor: Any) -> Any:
        return tensor.view(torch.int16).numpy().view(np.uint16)

    more = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in made.arguments().items()}
    try:
        report = simulate(array(made.q), array(made.k), array(made.v), array(made.out), dtype=made.drawn.type, **more)
    except LaunchError as error:
        return str(error)
    return made.problem() or (None if report.verdict == "clean" and report.every_schedule else f"the checker says: {report}")


__all__ = ["add_arguments", "run", "worker"]
