"""`python -m ptxkit.gemm tune`: the fastest configuration of a shape, found by measuring all that are valid and kept in a table.

Each configuration is first checked against a float32 product, twice, bit for bit. Then all are measured in turn in random order, the
slower half is dropped, and the rest measured twice as long, until a few are left. The best two are tried with every other way to load
a tile and to share out the work, and in other orders of tiles; the few that are left then are measured beside cuBLAS.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from ptxkit.errors import NoToolError, PtxkitError
from ptxkit.runtime import driver

from ..config.dense import AHEAD, L2_PROMOTION, LINE, Config, ConfigError
from ..heuristic.dense import candidates, clocks, heuristic
from ..heuristic.table import Table, file_name, forget, user_path
from ..heuristic.tuned import kind, knobs, tuned
from ..problem.dense import Problem as Asked
from ..scheduler.static import Raster
from .bench.shapes import BYTES, LAYOUTS, OPERAND_TYPES, Problem, ShapeError, parse
from .samples import asked

if TYPE_CHECKING:
    from .bench.baselines import Entry
    from .bench.regimes import Captured, Regime
    from .bench.watch import Step

T = TypeVar("T")
FINALISTS = 4
MOST = 64
BOTH_REGIMES_FROM_US = 50.0
"""A product as long as this is also measured under sustained load, where another configuration may win."""


class TuneError(PtxkitError, ValueError):
    """Nothing to tune, or nowhere to keep it."""


def described(problem: Problem) -> Asked:
    """The problem as this package's kernels see it: arrays without memory."""
    return asked(problem.m, problem.n, problem.k, problem.dtype, out=problem.out, layout=problem.layout, block=problem.block,
                 scaled=not problem.block and BYTES[problem.dtype] == 1)


def configurations(asked: Asked, sms: int, most: int | None = None) -> list[Config]:
    """Valid configurations for a problem: the one of the heuristic, then the others, each also as stream-K where the last wave is not
    full, the fastest by its model first."""
    found = list(candidates(asked, sms))
    for config in tuple(found):
        tiles = -(-asked.m // config.BM) * -(-asked.n // config.BN) * (asked.batches or 1)
        if config.SPLITS == 1 and tiles % sms and 2 * tiles > sms:
            found += changed(config, STREAM_K=True, TICKET=False)
    ranked = sorted(found, key=lambda config: clocks(asked, config, sms))
    return list(dict.fromkeys([heuristic(asked, sms), *ranked]))[:most]


def chosen(problem: Problem, device: str, sms: int) -> Config | None:
    """The configuration that the package chooses for a problem by itself; None where it has no product for it."""
    try:
        asked = described(problem)
        return tuned(asked, device) or heuristic(asked, sms)
    except PtxkitError:
        return None


def assemble(config: Config) -> None:
    """Brings the configuration's kernel into the cache of cubins."""
    from ..kernels.dense import gemm as kernel

    kernel.assemble(**config.parameters)


def halving(entries: Sequence[T], times_of: Callable[[Sequence[T], int], Sequence[float]], *, keep: int = FINALISTS,
            rounds: int = 2) -> list[tuple[float, T]]:
    """(time, entry) of the `keep` fastest, fastest first: measured over `rounds`, the slower half dropped, over twice as many, and on."""
    rest = list(entries)
    while True:
        ranked = sorted(zip(times_of(rest, rounds), range(len(rest)), strict=True))
        if len(rest) <= keep:
            return [(time_, rest[place]) for time_, place in ranked]
        rest = [rest[place] for _, place in ranked[:max(keep, len(rest) // 2)]]
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


class Field:
    """The configurations of one problem that are right, as launches on its operands, and their graphs."""

    def __init__(self, torch: Any, problem: Problem, step: Step) -> None:
        from .bench import operands

        self.torch, self.problem, self.asked, self.step = torch, problem, described(problem), step
        self.device = driver.device(driver.current_device())
        self.sets = operands.make(torch, problem, operands.sets_that_are_cold(problem.bytes, self.device.l2_bytes))
        self.entries: dict[Config, Entry] = {}
        self.wrong: dict[Config, str] = {}
        self.graphs: dict[tuple[str, Config], Captured] = {}

    def admit(self, found: Sequence[Config]) -> list[Config]:
        """Those whose product is right and the same twice; `wrong` says why the others are not."""
        from .bench.baselines import Entry, our_launch

        new = [config for config in found if config not in self.entries and config not in self.wrong]
        self.wrong.update(assembled(new))
        progress = Progress(len(new), f"{self.problem} checking")
        for config in new:
            sentence = self.wrong.get(config) or self.step.begin(f"{self.problem} {config}")
            sentence = sentence or self._fault(our_launch(self.problem, self.sets[0], config))
            progress.step()
            if sentence is None:
                self.entries[config] = Entry(str(config), [our_launch(self.problem, data, config) for data in self.sets])
            else:
                self.wrong[config] = sentence
        progress.close()
        return [config for config in found if config in self.entries]

    def _fault(self, launch: Callable[[], Any]) -> str | None:
        """A sentence when the product is not right, or two runs differ in a bit."""
        from .bench.operands import wrong
        from .bench.watch import alive

        data = self.sets[0]
        try:
            data.d.fill_(math.nan)
            launch()
            sentence = wrong(self.torch, self.problem, data)
            first = data.d.clone()
            data.d.fill_(math.nan)
            launch()
        except (PtxkitError, RuntimeError) as error:
            alive(self.torch)
            return str(error).splitlines()[0]
        return sentence or (None if self.torch.equal(first, data.d) else "two runs differ")

    def times(self, regime: Regime) -> Callable[[Sequence[Config], int], list[float]]:
        """Medians of some configurations over so many rounds, in graphs shorter than the bench's."""
        from .bench.regimes import capture, measure

        def medians(some: Sequence[Config], rounds: int) -> list[float]:
            progress = Progress(len(some), f"{self.problem} {regime.name}, {rounds} rounds")
            for config in some:
                if (regime.name, config) not in self.graphs:
                    shorter = regime.graph_ms * (0.5 if regime.pause else 0.3)
                    self.graphs[regime.name, config] = capture(self.torch, self.entries[config], regime, shorter)
                progress.step()
            self.step.touch()
            here = [self.graphs[regime.name, config] for config in some]
            timed = measure(self.torch, here, regime, rounds, settle_s=0.2)
            progress.close()
            return [one.median for one in timed]

        return medians

    def final(self, regime: Regime, finalists: Sequence[Config], rounds: int) -> tuple[list[float], dict[str, Any]]:
        """(microseconds of the finalists, those of the peers with MHz and W), in the bench's own graphs."""
        from .bench.baselines import NotImplementedHere, cublas, scaled_mm
        from .bench.power import Sampler
        from .bench.regimes import capture, measure
        from .bench.run import reader

        entries = [self.entries[config] for config in finalists]
        for make in (cublas, scaled_mm):
            with contextlib.suppress(NotImplementedHere):
                entries += make(self.torch, self.problem, self.sets)
        graphs = [capture(self.torch, entry, regime) for entry in entries]
        with Sampler(reader(self.torch)) as sampler:
            timed = measure(self.torch, graphs, regime, rounds)
        own = len(finalists)
        beside = {f"{one.captured.entry.name}_us": one.median for one in timed[own:]}
        return [one.median for one in timed[:own]], {**beside, **sampler.within()}


def rasters(config: Config) -> list[Config]:
    """The same tile in other orders of tiles."""
    found = []
    ways: tuple[Raster, ...] = ("along_m", "along_n")
    for group, raster, serpentine in itertools.product((1, 4, 8, 16), ways, (False, True)):
        with contextlib.suppress(ConfigError):
            found.append(replace(config, GROUP=group, RASTER=raster, SERPENTINE=serpentine))
    return [*found, replace(config, GROUP=8, RASTER="hilbert", SERPENTINE=False)]


def changed(config: Config, **changes: Any) -> list[Config]:
    """The configuration with changes and the deepest ring that they leave room for, if there is one."""
    try:
        return [config.with_(CONSUMERS=config.CONSUMERS, STORE=config.STORE, **changes)]
    except ConfigError:
        return []


def ways(config: Config) -> list[Config]:
    """The same tile with each other way to load it and to share out the work."""
    ahead = {"AHEAD": 0, "L2_PROMOTION": L2_PROMOTION} if config.AHEAD else {"AHEAD": AHEAD, "L2_PROMOTION": LINE}
    return [*changed(config, **ahead), *changed(config, TICKET=not config.TICKET), *changed(config, STREAM_K=True, TICKET=False),
            *changed(config, MULTICAST="leader"), *changed(config, A_REGISTERS=True)]


def tune(torch: Any, problem: Problem, regime_names: Sequence[str], *, step: Step, most: int | None = None,
         rounds: int = 12) -> dict[str, Any]:
    """The entry of one problem: the best configuration's knobs and how it was measured beside the heuristic's and cuBLAS."""
    from .bench.regimes import REGIMES

    regimes = [REGIMES[name] for name in regime_names]
    field = Field(torch, problem, step)
    usual = heuristic(field.asked, field.device.multiprocessors)
    right = field.admit(configurations(field.asked, field.device.multiprocessors, most))
    why = step.begin(f"{problem} in turn")
    if why is not None:
        raise TuneError(why)
    if not right:
        raise TuneError(f"no configuration is right: {next(iter(field.wrong.values()))}")
    finalists: dict[Config, None] = {usual: None} if usual in right else {}
    for regime in regimes:
        best = [config for _, config in halving(right, field.times(regime))]
        again = [*best, *(config for one in best[:2] for config in ways(one))]
        if -(-problem.m // best[0].BM) * -(-problem.n // best[0].BN) > field.device.multiprocessors:
            again += [config for one in best[:2] for config in rasters(one)]
        best = [config for _, config in halving(field.admit(list(dict.fromkeys(again))), field.times(regime))]
        finalists.update(dict.fromkeys(best))
    final = {regime.name: field.final(regime, list(finalists), rounds) for regime in regimes}
    place = score(list(zip(*(times for times, _ in final.values()), strict=True)))
    measured = {name: {"us": times[place], **({"heuristic_us": times[0]} if usual in finalists else {}), **beside}
                for name, (times, beside) in final.items()}
    return {"config": knobs(list(finalists)[place], field.asked), "measured": measured, "of": len(field.entries), "wrong": len(field.wrong)}


def assembled(found: Sequence[Config], jobs: int | None = None) -> dict[Config, str]:
    """Brings all of them into the cache of cubins, several at a time (the assembler runs in its own process); why some could not be.

    Without an assembler nothing is done: the driver assembles what is launched.
    """
    refused: dict[Config, str] = {}
    progress = Progress(len(found), "assembling")

    def one(config: Config) -> None:
        try:
            assemble(config)
        except NoToolError:
            pass
        except PtxkitError as error:
            refused[config] = str(error)

    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(one, found):
            progress.step()
    progress.close()
    return refused


def run(problems: Sequence[Problem], path: Path, *, regime: str = "auto", seconds: float | None = None, most: int | None = None,
        step: Step, say: Callable[[str], None] = print) -> Table:
    """Tunes the problems in turn, writing the table after each; begins no further one after `seconds`."""
    from .bench.run import library

    torch = library()
    table = Table(driver.device(driver.current_device()).name)
    if path.is_file():
        table.merge(Table.read(path))
    begin = time.perf_counter()
    for done, problem in enumerate(problems):
        if step.finished(str(problem)):
            continue
        if seconds is not None and time.perf_counter() - begin > seconds:
            say(f"cut after {done} of {len(problems)} problems: --seconds {seconds:g}")
            break
        started = time.perf_counter()
        try:
            entry = tune(torch, problem, regimes_of(problem, regime), step=step, most=most)
        except PtxkitError as error:
            say(f"{problem}: {error}")
            step.finish(str(problem))
            continue
        table.put(kind(described(problem)), (problem.m, problem.n, problem.k), _short(entry))
        table.write(path)
        say(f"{problem}: {line(entry)}  ({time.perf_counter() - started:.1f} s)")
        step.finish(str(problem))
        torch.cuda.empty_cache()
    forget()
    return table


def regimes_of(problem: Problem, wish: str) -> tuple[str, ...]:
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
    parser.add_argument("--most", type=int, default=MOST, metavar="N", help=f"at most N configurations a problem (default {MOST})")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the table to add to (default: this device's in the cache directory)")
    parser.add_argument("--prepare", action="store_true", help="only assemble every configuration into the cache: needs no GPU")
    parser.add_argument("--sms", type=int, default=132, metavar="N", help="of --prepare: SMs of the device (default 132)")
    parser.set_defaults(run=command)


def _asked(options: argparse.Namespace) -> tuple[Problem, ...]:
    given = [getattr(options, name) for name in "mnk"]
    if options.shapes is not None and any(value is not None for value in given):
        raise TuneError("give -m -n -k or --shapes, not both")
    if options.shapes is None and None in given:
        raise TuneError("give -m, -n and -k, or --shapes")
    spec = options.shapes if options.shapes is not None else "x".join(map(str, given))
    return parse(spec, options.dtype or (), options.layout)


def command(options: argparse.Namespace) -> int:
    """0: tuned, or all prepared; 1: the assembler refused a configuration; 2: options that say nothing."""
    try:
        problems = _asked(options)
    except (TuneError, ShapeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.prepare:
        wanted = [configurations(described(problem), options.sms, options.most) for problem in problems]
        found = list(dict.fromkeys(itertools.chain.from_iterable(wanted)))
        begin = time.perf_counter()
        refused = assembled(found)
        print(f"{len(found) - len(refused)} configurations assembled in {time.perf_counter() - begin:.0f} s")
        for config, sentence in refused.items():
            print(f"{config}: {sentence}", file=sys.stderr)
        return int(bool(refused))
    driver.probe()
    device = driver.device(driver.current_device()).name
    path = options.output or user_path(device)
    if path is None:
        raise TuneError("the cache is off (PTXKIT_CACHE_DIR): say with --output where to keep the table")
    from .bench.watch import watched

    wishes = {name: getattr(options, name) for name in ("m", "n", "k", "shapes", "dtype", "layout", "regime", "seconds", "most")}
    with TemporaryDirectory() as folder:
        status = watched("tune", {**wishes, "path": str(path)}, Path(folder, "note"), say=lambda text: print(text, flush=True))
    print(f"{path} ({file_name(device)} of {device})", file=sys.stderr)
    return status


def work(wishes: Mapping[str, Any], step: Step) -> int:
    """What the worker does: tunes, and keeps the table at the path that it is told."""
    options = argparse.Namespace(**wishes)
    run(_asked(options), Path(options.path), regime=options.regime, seconds=options.seconds, most=options.most, step=step,
        say=lambda text: print(text, flush=True))
    return 0


__all__ = ["add_arguments", "chosen", "configurations", "described", "halving", "run", "score", "tune", "work"]
