"""`python -m gemm tune`: the fastest configuration of a shape, found by measuring all that are valid and kept in a table.

Each configuration is first checked against a float32 product, twice, bit for bit. Then all are measured in turn in random order, the
slower half is dropped, and the rest measured twice as long, until a few are left; those are measured beside cuBLAS.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ptxkit import driver
from ptxkit.errors import PtxkitError
from ptxkit.layout import Major
from ptxkit.types import TYPES, Scalar

from . import config as configs
from .bench.shapes import LAYOUTS, OPERAND_TYPES, Problem, parse
from .config import Config
from .tables import Table, file_name, forget, user_path

T = TypeVar("T")
OF_THE_PROBLEM = ("dtype", "out", "a_major", "b_major")
"""Fields of a configuration that the operands decide; the others are its knobs."""
FINALISTS = 4
BOTH_REGIMES_FROM_US = 50.0
"""A product as long as this is also measured under sustained load, where another configuration may win."""


class TuneError(PtxkitError, ValueError):
    """Nothing to tune, or nowhere to keep it."""


# The configurations, as this package's own config module has them.


def majors(layout: str) -> tuple[Major, Major]:
    """Which extent of A and of B is contiguous."""
    return ("k" if layout[0] == "n" else "mn"), ("mn" if layout[1] == "n" else "k")


def knobs(config: Config) -> dict[str, Any]:
    """What a table keeps of a configuration: everything but what the operands decide; types by name."""
    found = {}
    for field in dataclasses.fields(config):
        if field.name not in OF_THE_PROBLEM and field.init:
            value = getattr(config, field.name)
            found[field.name] = value.__name__ if isinstance(value, type) else value
    return found


def revive(kept: dict[str, Any], problem: Problem) -> Config:
    """The configuration of these knobs for a problem. Raises ConfigError when it is not valid, TypeError for an unknown knob."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}
    a_major, b_major = majors(problem.layout)
    return Config(TYPES[problem.dtype], TYPES[problem.out], a_major, b_major, **values)


def candidates(problem: Problem, sms: int) -> list[Config]:
    """Every valid configuration of this package for a problem, the one that it would choose first."""
    first = chosen(problem, sms)
    enumerate_ = getattr(configs, "candidates", None)
    how = (TYPES[problem.dtype], TYPES[problem.out], *majors(problem.layout))
    if enumerate_ is not None:
        found: Iterable[Config] = enumerate_(problem.m, problem.n, problem.k, *how, sms=sms)
    else:
        found = _valid(*how)
    return list(dict.fromkeys([*([first] if first is not None else []), *found]))


def _valid(dtype: type[Scalar], out: type[Scalar], a_major: Major, b_major: Major) -> Iterator[Config]:
    for BN in (256, 128, 64):
        for CLUSTER in (1, 2):
            for GROUP in (4, 8, 16):
                try:
                    yield Config(dtype, out, a_major, b_major, BN, CLUSTER=CLUSTER, GROUP=GROUP)
                except configs.ConfigError:
                    continue


def chosen(problem: Problem, sms: int | None = None) -> Config | None:
    """The configuration that the package chooses for a problem by itself; None where it has no product for it."""
    if sms is None:
        sms = driver.device(driver.current_device()).multiprocessors if driver.available() else 132
    how = (TYPES[problem.dtype], TYPES[problem.out], *majors(problem.layout))
    try:
        return configs.heuristic(problem.m, problem.n, problem.k, *how, sms=sms)
    except PtxkitError:
        return None


def assemble(config: Config) -> None:
    """Brings the configuration's kernel into the cache of cubins."""
    from .hgemm import hgemm as kernel

    kernel.assemble(**config.parameters)


# The search.


def halving(entries: Sequence[T], seconds_of: Callable[[Sequence[T], int], Sequence[float]], *, keep: int = FINALISTS, rounds: int = 2,
            always: T | None = None) -> list[tuple[float, T]]:
    """(time, entry) of the `keep` fastest, fastest first: measured over `rounds`, the slower half dropped, over twice as many, and so on.

    `always` stays to the end, so that its time is comparable.
    """
    rest = list(entries)
    while True:
        ranked = sorted(zip(seconds_of(rest, rounds), range(len(rest)), strict=True))
        if len(rest) <= keep:
            return [(time_, rest[place]) for time_, place in ranked]
        survivors = [rest[place] for _, place in ranked[:max(keep, len(rest) // 2)]]
        if always is not None and always in rest and always not in survivors:
            survivors[-1] = always
        rest = survivors
        rounds *= 2


def score(times: Sequence[Sequence[float]]) -> int:
    """Of entries with a time in each regime, the place of the best: the least geometric mean of the times over the regimes' least."""
    least = [min(column) for column in zip(*times, strict=True)]
    means = [math.prod(own / best for own, best in zip(row, least, strict=True)) for row in times]
    return means.index(min(means))


class Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty()
        self.total, self.what, self.done = total, what, 0

    def step(self, note: str = "") -> None:
        self.done += 1
        if self.shown:
            filled = 30 * self.done // max(1, self.total)
            self.stream.write(f"\r\x1b[K{self.what} [{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} {note}")
            self.stream.flush()

    def close(self) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def tune(torch: Any, problem: Problem, regimes: Sequence[str], *, most: int | None = None, rounds: int = 12) -> dict[str, Any]:
    """The entry of one problem: the best configuration's knobs, how it was measured, and the finalists."""
    from .bench import operands
    from .bench.contestants import Entry, NotImplementedHere, cublas, our_launch, scaled_mm
    from .bench.power import Sampler
    from .bench.regimes import REGIMES, Captured, capture, measure
    from .bench.run import reader

    this = driver.device(driver.current_device())
    found = candidates(problem, this.multiprocessors)[:most]
    if not found:
        raise TuneError(f"{problem}: this package has no configuration for it")
    sets = operands.make(torch, problem, operands.sets_that_are_cold(problem, this.l2_bytes))
    assembled(found)
    right, wrong = checked(torch, problem, found, sets[0])
    if not right:
        raise TuneError(f"{problem}: no configuration is right: {next(iter(wrong.values()))}")
    entries = {config: Entry(str(config), [our_launch(problem, data, config) for data in sets]) for config in right}
    graphs: dict[tuple[str, Config], Captured] = {}
    powers: dict[str, dict[str, float]] = {}
    progress = Progress(0, str(problem))

    def times(regime: str) -> Callable[[Sequence[Config], int], list[float]]:
        def seconds_of(some: Sequence[Config], count: int) -> list[float]:
            for config in some:
                if (regime, config) not in graphs:
                    graphs[regime, config] = capture(torch, entries[config], REGIMES[regime], 0.5 if REGIMES[regime].pause else 8.0)
            progress.total += 1
            progress.step(f"{len(some)} configurations {count} times, {regime}")
            here = [graphs[regime, config] for config in some]
            return [timed.median for timed in measure(torch, here, REGIMES[regime], count, settle_s=0.2)]
        return seconds_of

    finalists: list[Config] = []
    for regime in regimes:
        for _, config in halving(right, times(regime), always=right[0]):
            if config not in finalists:
                finalists.append(config)
    peers = []
    for make in (cublas, scaled_mm):
        try:
            peers += make(torch, problem, sets)
        except NotImplementedHere:
            continue
    columns, beside = [], {}
    for regime in regimes:
        with Sampler(reader(torch)) as sampler:
            final = [capture(torch, entry, REGIMES[regime]) for entry in [*(entries[config] for config in finalists), *peers]]
            timed = measure(torch, final, REGIMES[regime], rounds)
        columns.append([one.median for one in timed[:len(finalists)]])
        beside[regime] = {one.captured.entry.name: one.median for one in timed[len(finalists):]}
        powers[regime] = sampler.within()
    progress.close()
    best = score(list(zip(*columns, strict=True)))
    return {"config": knobs(finalists[best]),
            "measured": {regime: {"us": column[best], "heuristic_us": column[finalists.index(right[0])] if right[0] in finalists else None,
                                  **{f"{name}_us": us for name, us in beside[regime].items()}, **powers[regime]}
                         for regime, column in zip(regimes, columns, strict=True)},
            "of": len(right), "wrong": len(wrong)}


def assembled(found: Sequence[Config], jobs: int | None = None) -> None:
    """All of them in the cache of cubins, several at a time; the assembler runs in its own process."""
    progress = Progress(len(found), "assembling")
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(assemble, found):
            progress.step()
    progress.close()


def checked(torch: Any, problem: Problem, found: Sequence[Config], data: Any) -> tuple[list[Config], dict[Config, str]]:
    """The configurations whose product is right and the same twice, and why the others are not."""
    from .bench.contestants import our_launch
    from .bench.operands import wrong as sentence_of

    right, wrong = [], {}
    progress = Progress(len(found), "checking")
    for config in found:
        launch = our_launch(problem, data, config)
        try:
            data.d.fill_(math.nan)
            launch()
            sentence = sentence_of(torch, problem, data)
            first = data.d.clone()
            data.d.fill_(math.nan)
            launch()
            if sentence is None and not torch.equal(first, data.d):
                sentence = "two runs differ"
        except PtxkitError as error:
            sentence = str(error)
        progress.step()
        if sentence is None:
            right.append(config)
        else:
            wrong[config] = sentence
    progress.close()
    return right, wrong


def run(problems: Sequence[Problem], path: Path, *, regime: str = "auto", seconds: float | None = None, most: int | None = None,
        say: Callable[[str], None] = print) -> Table:
    """Tunes the problems in turn, writing the table after each; begins no further one after `seconds`."""
    from .bench.run import library

    torch = library()
    table = Table(driver.device(driver.current_device()).name)
    if path.is_file():
        table.merge(Table.read(path))
    begin = time.perf_counter()
    for done, problem in enumerate(problems):
        if seconds is not None and time.perf_counter() - begin > seconds:
            say(f"cut after {done} of {len(problems)} problems: --seconds {seconds:g}")
            break
        started = time.perf_counter()
        try:
            entry = tune(torch, problem, regimes_of(torch, problem, regime), most=most)
        except TuneError as error:
            say(str(error))
            continue
        table.put(f"{problem.dtype}/{problem.out}/{problem.layout}", (problem.m, problem.n, problem.k), _short(entry))
        table.write(path)
        say(f"{problem}: {line(entry)}  ({time.perf_counter() - started:.1f} s)")
        torch.cuda.empty_cache()
    forget()
    return table


def regimes_of(torch: Any, problem: Problem, wish: str) -> tuple[str, ...]:
    """The regimes to tune in; `auto` adds sustained load for products that take long."""
    if wish == "both":
        return "burst", "sustained"
    if wish != "auto":
        return (wish,)
    optimistic_us = problem.flops / (driver.device(driver.current_device()).multiprocessors * 6e6)
    return ("burst", "sustained") if optimistic_us >= BOTH_REGIMES_FROM_US else ("burst",)


def line(entry: dict[str, Any]) -> str:
    """An entry as text."""
    parts = [", ".join(f"{name} {value}" for name, value in entry["config"].items())]
    for regime, seen in entry["measured"].items():
        others = ", ".join(f"{name.removesuffix('_us')} {us:.2f}" for name, us in seen.items() if name.endswith("_us") and us is not None)
        parts.append(f"{regime} {seen['us']:.2f} us ({others})")
    return "; ".join(parts) + f"; {entry['of']} right, {entry['wrong']} wrong"


def _short(value: Any) -> Any:
    """Numbers to four digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return {name: _short(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    for name in "mnk":
        parser.add_argument(f"-{name}", type=int, help=f"{name.upper()} of one problem")
    parser.add_argument("--shapes", metavar="SPEC", help="instead: a preset of the bench, a file, or MxNxK with commas")
    parser.add_argument("--dtype", action="append", choices=OPERAND_TYPES, help="type of A and B; again for more (default bf16)")
    parser.add_argument("--layout", choices=LAYOUTS, help="A then B, n row-major and t column-major (default: the shapes' own, nt)")
    parser.add_argument("--regime", choices=("auto", "burst", "warm", "sustained", "both"), default="auto",
                        help="auto (default): burst, and sustained too for products that take long")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no further problem after that long")
    parser.add_argument("--most", type=int, metavar="N", help="at most N configurations a problem")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the table to add to (default: this device's in the cache directory)")
    parser.add_argument("--prepare", action="store_true", help="only assemble every configuration into the cache: needs no GPU")
    parser.add_argument("--sms", type=int, default=132, metavar="N", help="of --prepare: SMs of the device (default 132)")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: tuned, or prepared."""
    given = [getattr(options, name) for name in "mnk"]
    if options.shapes is not None and any(value is not None for value in given):
        raise TuneError("give -m -n -k or --shapes, not both")
    if options.shapes is None and None in given:
        raise TuneError("give -m, -n and -k, or --shapes")
    spec = options.shapes if options.shapes is not None else "x".join(map(str, given))
    problems = parse(spec, options.dtype or (), options.layout)
    if options.prepare:
        found = list(dict.fromkeys(config for problem in problems for config in candidates(problem, options.sms)[:options.most]))
        begin = time.perf_counter()
        assembled(found)
        print(f"{len(found)} configurations assembled in {time.perf_counter() - begin:.0f} s")
        return 0
    driver.probe()
    device = driver.device(driver.current_device()).name
    path = options.output or user_path(device)
    if path is None:
        raise TuneError("the cache is off (PTXKIT_CACHE_DIR): say with --output where to keep the table")
    run(problems, path, regime=options.regime, seconds=options.seconds, most=options.most, say=lambda text: print(text, flush=True))
    print(f"{path} ({file_name(device)} of {device})", file=sys.stderr)
    return 0


__all__ = ["add_arguments", "candidates", "chosen", "halving", "knobs", "revive", "run", "score", "tune"]
