"""`python -m ptxkit.gemm tune`: the fastest configuration of a shape, found by measuring all that are legal and kept in a table.

Each configuration is first checked against a float32 product, twice, bit for bit. Then all are measured in turn in random order, the
slower half is dropped, and the rest measured twice as long, until a few are left. The best two are tried with every other way to load
a tile and to share out the work, and in other orders of tiles; the few that are left then are measured against cuBLAS.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from ptxkit.cards import H200, Card
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, positive, seconds
from ptxkit.errors import PtxkitError
from ptxkit.measure import power, regimes
from ptxkit.measure.regimes import Captured, Entry, Regime
from ptxkit.measure.timer import TorchTimer
from ptxkit.measure.watch import Step, alive, watched
from ptxkit.runtime import driver
from ptxkit.tuning.assembly import Progress
from ptxkit.tuning.search import halving, score

from ..config.dense import DenseConfig
from ..config.invariant import varies
from ..config.parts import (
    L2_FETCH,
    ClusterShape,
    ConfigError,
    CopiedLoads,
    Dynamic,
    Hilbert,
    Loads,
    Raster,
    Scheduler,
    SplitK,
    Staged,
    Static,
    StreamK,
    Swizzle,
)
from ..heuristic.dense import candidates, clocks, heuristic
from ..heuristic.overlaps import other_begins
from ..heuristic.space import CLUSTERS_OF_EIGHT
from ..heuristic.table import also_read, forget, keep, kept_at
from ..heuristic.tuned import kind, knobs, tuned
from ..launch.dense import card_of
from ..problem.dense import LINE, PREFETCH_STAGES
from ..problem.dense import Problem as Asked
from . import models, quick
from . import options as shared
from .assembly import assembled
from .bench import baselines, operands
from .bench import run as bench
from .bench.shapes import LAYOUTS, OPERAND_TYPES, Problem, ShapeError, of_layers, parse
from .problems import described

MOST = 64
FEWER_STAGES = (1, 2)       # that a ring gives up: with fewer copies under way the L2 keeps more of what CTAs share
BOTH_REGIMES_FROM_US = 50.0
"""A product as long as this is also measured under sustained load, where another configuration may win."""


class TuneError(PtxkitError, ValueError):
    """Nothing to tune, or nowhere to keep it."""


def configurations(asked: Asked, card: Card = H200, most: int | None = None) -> list[DenseConfig]:
    """Legal configurations for a problem: the one of the heuristic, then the others, each also as stream-K where the last wave is not
    full, the fastest by its model first."""
    found = list(candidates(asked, card))
    for config in tuple(found) if not asked.invariant else ():
        tiles = math.prod(config.tiles(asked.m, asked.n)) * (asked.batches or 1)
        if not isinstance(config.scheduler, SplitK) and tiles % card.sms and 2 * tiles > card.sms:
            found += changed(config, StreamK(config.scheduler.order, config.multicast), config.loads)
    ranked = sorted(found, key=lambda config: clocks(asked, config, card))
    return list(dict.fromkeys([heuristic(asked, card), *ranked]))[:most]


class Field:
    """The configurations of one problem that are right, as launches on its operands, and their graphs."""

    def __init__(self, torch: Any, problem: Problem, step: Step, batch_invariant: bool = False) -> None:
        self.torch, self.timer = torch, TorchTimer(torch)
        self.problem, self.asked, self.step = problem, described(problem, batch_invariant), step
        self.card = card_of(driver.current_device())
        self.sets = operands.make(torch, problem, operands.sets_for(problem.bytes))
        self.entries: dict[DenseConfig, Entry] = {}
        self.wrong: dict[DenseConfig, str] = {}
        self.graphs: dict[tuple[str, DenseConfig], Captured] = {}

    def admit(self, found: Sequence[DenseConfig]) -> list[DenseConfig]:
        """Those whose product is right and the same twice, and batch-invariant if that is asked for; `wrong` says why others are not."""
        found = [config for config in found if not (self.asked.invariant and varies(config))]
        new = [config for config in found if config not in self.entries and config not in self.wrong]
        self.wrong.update(assembled(new))
        progress = Progress(len(new), f"{self.problem} checking")
        for config in new:
            sentence = self.wrong.get(config) or self.step.begin(f"{self.problem} {config}")
            sentence = sentence or self._fault(baselines.our_launch(self.problem, self.sets[0], config))
            progress.step()
            if sentence is None:
                self.entries[config] = Entry(str(config), [baselines.our_launch(self.problem, data, config) for data in self.sets])
            else:
                self.wrong[config] = sentence
        progress.close()
        return [config for config in found if config in self.entries]

    def _fault(self, launch: Callable[[], Any]) -> str | None:
        """A sentence when the product is not right, or two runs differ in a bit."""
        data = self.sets[0]
        try:
            sentence = operands.fault(self.torch, data.d, launch, lambda returned: operands.wrong(self.torch, self.problem, data))
            first = data.d.clone()
            data.d.fill_(math.nan)
            launch()
        except (PtxkitError, RuntimeError) as error:
            alive(self.torch)
            return str(error).splitlines()[0]
        return sentence or (None if self.torch.equal(first, data.d) else "two runs differ")

    def times(self, regime: Regime) -> Callable[[Sequence[DenseConfig], int], list[float]]:
        """Medians of some configurations over so many rounds, in graphs shorter than the bench's."""
        def medians(some: Sequence[DenseConfig], rounds: int) -> list[float]:
            progress = Progress(len(some), f"{self.problem} {regime.name}, {rounds} rounds")
            for config in some:
                if (regime.name, config) not in self.graphs:
                    shorter = regime.graph_ms * (0.5 if regime.pause else 0.3)
                    self.graphs[regime.name, config] = regimes.capture(self.timer, self.entries[config], regime, shorter)
                progress.step()
            self.step.touch()
            here = [self.graphs[regime.name, config] for config in some]
            timed = regimes.measure(self.timer, here, regime, rounds, settle_s=0.2)
            progress.close()
            return [one.median for one in timed]

        return medians

    def final(self, regime: Regime, finalists: Sequence[DenseConfig], rounds: int) -> tuple[list[float], dict[str, Any]]:
        """(microseconds of the finalists, those of the baselines with MHz and W), in the bench's own graphs."""
        entries = [self.entries[config] for config in finalists]
        for make in (baselines.cublas, baselines.scaled_mm):
            with contextlib.suppress(baselines.NotImplementedHere):
                entries += make(self.torch, self.problem, self.sets)
        graphs = [regimes.capture(self.timer, entry, regime) for entry in entries]
        with power.Sampler(bench.reader(self.torch)) as sampler:
            timed = regimes.measure(self.timer, graphs, regime, rounds)
        own = len(finalists)
        baselines_us = {f"{one.captured.entry.name}_us": one.median for one in timed[own:]}
        return [one.median for one in timed[:own]], {**baselines_us, **sampler.within()}


def orders(config: DenseConfig) -> list[DenseConfig]:
    """The same tile in other orders of tiles."""
    rasters: tuple[Raster, ...] = get_args(Raster)
    found = []
    for size, raster, serpentine in itertools.product((1, 4, 8, 16), rasters, (False, True)):
        found.append(replace(config, scheduler=replace(config.scheduler, order=Swizzle(raster, size, serpentine))))
    along = replace(config.scheduler, order=Hilbert())
    return [*found, replace(config, scheduler=along, loads=_possible(config.loads, along))]


def ways(config: DenseConfig) -> list[DenseConfig]:
    """The same tile with each other way to load it and to share out the work, in clusters of eight, and with a shorter ring."""
    scheduler, loads = config.scheduler, config.loads
    found = [*_shorter(config)]
    if isinstance(loads, Loads):
        other = replace(loads, l2_prefetch_stages=0, l2_fetch=L2_FETCH) if loads.l2_fetch == LINE else \
            replace(loads, l2_prefetch_stages=PREFETCH_STAGES, l2_fetch=LINE)
        found += changed(config, scheduler, other)
    if not isinstance(scheduler, SplitK):
        found += changed(config, StreamK(scheduler.order, config.multicast), loads)
    if isinstance(scheduler, Dynamic):
        found += changed(config, Static(scheduler.order), loads)
    if isinstance(scheduler, Static) and config.cluster == 1:
        found += changed(config, Dynamic(scheduler.order), loads)
    if isinstance(scheduler, Static):
        alone = replace(scheduler, cluster=ClusterShape())
        clusters = [alone, *(replace(scheduler, cluster=shape) for shape in CLUSTERS_OF_EIGHT)]
        found += [way for one in clusters if one != scheduler for way in changed(config, one, loads)]
        found += [way for one in dict.fromkeys((scheduler, alone)) for same in changed(config, one, loads) for way in other_begins(same)]
    return found


def _shorter(config: DenseConfig) -> Iterator[DenseConfig]:
    for fewer in FEWER_STAGES:
        if config.stages > fewer:               # no stages are as many as fit
            with contextlib.suppress(ConfigError):
                yield replace(config, stages=config.stages - fewer)


def changed(config: DenseConfig, scheduler: Scheduler, loads: Loads | CopiedLoads) -> list[DenseConfig]:
    """The configuration with another scheduler and other loads, and the deepest ring that they leave room for, if there is one."""
    store = Staged() if config.staged else config.store
    try:
        return [DenseConfig(config.operands, config.tile, 0, config.schedule, scheduler, store, _possible(loads, scheduler), config.fusion,
                            config.swap_ab)]
    except ConfigError:
        return []


def _possible(loads: Loads | CopiedLoads, scheduler: Scheduler) -> Loads | CopiedLoads:
    """Without a prefetch of B where a CTA does not know its first tile ahead."""
    if isinstance(loads, Loads) and (isinstance(scheduler, StreamK) or isinstance(scheduler.order, Hilbert)):
        return replace(loads, l2_prefetch_stages=0)
    return loads


def tune(torch: Any, problem: Problem, regime_names: Sequence[str], *, step: Step, most: int | None = None,
         rounds: int = 12, batch_invariant: bool = False) -> dict[str, Any]:
    """The entry of one problem: the best configuration's knobs, its times and those of the heuristic's choice and of cuBLAS. What a table
    has for the problem is among those that are measured last: it stays the entry if it is still the best."""
    wanted = [regimes.REGIMES[name] for name in regime_names]
    field = Field(torch, problem, step, batch_invariant)
    usual, known = heuristic(field.asked, field.card), tuned(field.asked, field.card, exact=True)
    right = field.admit(list(dict.fromkeys([*configurations(field.asked, field.card, most), *([known] if known is not None else [])])))
    why = step.begin(f"{problem} in turn")
    if why is not None:
        raise TuneError(why)
    if not right:
        raise TuneError(f"no configuration is right: {next(iter(field.wrong.values()))}")
    finalists = dict.fromkeys(config for config in (usual, known) if config is not None and config in right)
    for regime in wanted:
        best = [config for _, config in halving(right, field.times(regime))]
        again = [*best, *(config for one in best[:2] for config in ways(one))]
        if problem.count * math.prod(best[0].tiles(problem.m, problem.n)) > field.card.sms:
            again += [config for one in best[:2] for config in orders(one)]
        best = [config for _, config in halving(field.admit(list(dict.fromkeys(again))), field.times(regime))]
        finalists.update(dict.fromkeys(best))
    final = {regime.name: field.final(regime, list(finalists), rounds) for regime in wanted}
    place = score(list(zip(*(times for times, _ in final.values()), strict=True)))
    measured = {name: {"us": times[place], **({"heuristic_us": times[0]} if usual in finalists else {}), **others}
                for name, (times, others) in final.items()}
    return {"config": knobs(list(finalists)[place], field.asked), "measured": measured, "of": len(field.entries), "wrong": len(field.wrong)}


def run(problems: Sequence[Problem], path: Path, *, regime: str = "auto", seconds: float | None = None, most: int | None = None,
        batch_invariant: bool = False, step: Step, say: Callable[[str], None] = print) -> None:
    """Tunes the problems in turn, adding each to the table; begins no further one after `seconds`."""
    also_read(path)
    torch = bench.library()
    card = card_of(driver.current_device())
    begin = time.perf_counter()
    for done, problem in enumerate(problems):
        if step.finished(str(problem)):
            continue
        if seconds is not None and time.perf_counter() - begin > seconds:
            say(f"cut after {done} of {len(problems)} problems: --seconds {seconds:g}")
            break
        started = time.perf_counter()
        try:
            entry = tune(torch, problem, regimes_of(problem, regime), step=step, most=most, batch_invariant=batch_invariant)
        except PtxkitError as error:
            say(f"{problem}: {error}")
            step.finish(str(problem))
            continue
        keep(card, kind(described(problem, batch_invariant)), (*problem.outer, problem.m, problem.n, problem.k), _short(entry), path)
        say(f"{problem}: {line(entry)}  ({time.perf_counter() - started:.1f} s)")
        step.finish(str(problem))
        torch.cuda.empty_cache()
    forget()


def regimes_of(problem: Problem, wish: str) -> tuple[str, ...]:
    """The regimes to tune in; `auto` adds sustained load for products that take long."""
    if wish == "both":
        return "burst", "sustained"
    if wish != "auto":
        return (wish,)
    optimistic_us = problem.flops / (card_of(driver.current_device()).sms * 6e6)
    return ("burst", "sustained") if optimistic_us >= BOTH_REGIMES_FROM_US else ("burst",)


def line(entry: dict[str, Any]) -> str:
    """An entry as text."""
    parts = [json.dumps(entry["config"])]
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
        parser.add_argument(f"-{name}", type=positive, help=f"{name.upper()} of one problem")
    parser.add_argument("--batch", type=positive, metavar="L", help="so many products in one launch")
    parser.add_argument("--shapes", metavar="SPEC", help="instead: a preset of the bench, a file, or MxNxK and LxMxNxK with commas")
    parser.add_argument("--model", metavar="NAME", help=f"instead: the dense layers of a model: {', '.join(models.MODELS)}")
    parser.add_argument("--tp", type=positive, metavar="CARDS", help="with --model, so many cards share its layers (default: as listed)")
    parser.add_argument("--dtype", action="append", choices=OPERAND_TYPES, help="type of A and B; again for more (default bf16)")
    parser.add_argument("--layout", choices=LAYOUTS, help="A then B, n row-major and t column-major (default: the shapes' own, nt)")
    parser.add_argument("--batch-invariant", action="store_true", help="among configurations whose sums depend on K and the layout alone")
    parser.add_argument("--regime", choices=("auto", "burst", "warm", "sustained", "both"), default="auto",
                        help="auto (default): burst, and sustained too for products that take long")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="begin no further problem after that long")
    parser.add_argument("--each", type=seconds, metavar="S",
                        help="tune as on first use, S seconds a shape, without torch: for many shapes; those that are tuned are left alone")
    parser.add_argument("--most", type=count, default=MOST, metavar="N", help=f"at most N configurations a problem (default {MOST})")
    parser.add_argument("--table", "--output", dest="table", type=Path, metavar="FILE",
                        help="the table to add to, or a folder with one for each card (default: that of PTXKIT_TUNE, or this card's in the "
                             "cache directory); PTXKIT_TABLE uses it")
    parser.add_argument("--prepare", action="store_true", help="only assemble every configuration into the cache: needs no GPU")
    shared.add_card(parser, "with --prepare, ")
    parser.set_defaults(run=command)


def _asked(options: argparse.Namespace) -> tuple[Problem, ...]:
    given = [getattr(options, name) for name in "mnk"]
    one = any(value is not None for value in (*given, options.batch))
    if options.batch is not None and given == [None] * 3:
        raise TuneError("--batch is of -m, -n and -k: a shape says its own, as 16x4096x4096x1024 for 16 products")
    if one + (options.shapes is not None) + (options.model is not None) > 1:
        raise TuneError("give -m -n -k, --shapes or --model, not two of them")
    if options.model is None and options.tp is not None:
        raise TuneError("--tp is the number of cards of a --model")
    if options.model is not None:
        found = of_layers(models.dense(options.model, options.tp))
        if not found:
            raise TuneError(f"{options.model} is listed with its experts alone, and group products have no table")
        return tuple(each for each in found if not options.dtype or each.dtype in options.dtype)
    if options.shapes is None and None in given:
        raise TuneError("give -m, -n and -k, or --shapes, or --model")
    outer = () if options.batch is None else (options.batch,)
    spec = options.shapes if options.shapes is not None else "x".join(map(str, (*outer, *given)))
    return parse(spec, options.dtype or (), options.layout)


WISHES = ("m", "n", "k", "batch", "shapes", "model", "tp", "dtype", "layout", "regime", "seconds", "most", "batch_invariant")


def command(options: argparse.Namespace) -> int:
    """0: tuned, or all prepared; 1: the assembler refused a configuration; 2: options that say nothing."""
    if options.card is not None and not options.prepare:
        raise UsageError("--card is of --prepare: what is measured is this machine's card")
    try:
        problems = _asked(options)
    except (TuneError, ShapeError, models.ModelError) as error:
        raise UsageError(str(error)) from None
    if options.prepare:
        card = shared.card(options.card)
        wanted = [configurations(described(problem, options.batch_invariant), card, options.most) for problem in problems]
        found = list(dict.fromkeys(itertools.chain.from_iterable(wanted)))
        begin = time.perf_counter()
        refused = assembled(found)
        print(f"{len(found) - len(refused)} configurations assembled in {time.perf_counter() - begin:.0f} s")
        for config, sentence in refused.items():
            print(f"{config}: {sentence}", file=sys.stderr)
        return int(bool(refused))
    driver.probe()
    card = card_of(driver.current_device())
    path = kept_at(card, None if options.table is None else options.table.absolute())
    if path is None:
        raise TuneError("the cache is off (PTXKIT_CACHE_DIR): say with --table where to keep the table")
    if options.each is not None:
        quick.run(problems, path, options.each, seconds=options.seconds, say=lambda text: print(text, flush=True))
        print(f"{path} (of {card.name})", file=sys.stderr)
        return 0
    wishes = {name: getattr(options, name) for name in WISHES}
    with TemporaryDirectory() as folder:
        status = watched("ptxkit.gemm.tools.tune:work", {**wishes, "path": str(path)}, Path(folder, "note"),
                         say=lambda text: print(text, flush=True))
    print(f"{path} (of {card.name})", file=sys.stderr)
    return status


def work(wishes: Mapping[str, Any], step: Step) -> int:
    """What the worker does: tunes, and keeps the table at the path that it is told."""
    options = argparse.Namespace(**wishes)
    run(_asked(options), Path(options.path), regime=options.regime, seconds=options.seconds, most=options.most,
        batch_invariant=options.batch_invariant, step=step, say=lambda text: print(text, flush=True))
    return 0


__all__ = ["add_arguments", "configurations", "halving", "orders", "run", "score", "tune", "ways", "work"]
