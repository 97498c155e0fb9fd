"""`python -m ptxkit.gemm sample`: times of many configurations on random products of one card, for `fit`.

The configurations come from a generator that knows nothing of the heuristic: every tile with every schedule, cluster and way to share out
the work. Operands lie one after another in a pool that is far larger than the L2, so that each launch finds its own in memory. Every
configuration's first product is compared with the library's.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptxkit.cards import H100
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, seconds
from ptxkit.cli.paths import output_path
from ptxkit.errors import PtxkitError
from ptxkit.measure.watch import GiveUp, Step, alive, watched
from ptxkit.runtime import driver, images
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import view

from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig
from ..config.parts import ConfigError
from ..heuristic.costs import of_card, structure
from ..heuristic.dense import judged
from ..heuristic.overlaps import other_begins
from ..heuristic.space import LEAST_OF_A_SPLIT, ONE_BLOCK, of_problem
from ..heuristic.tuned import knobs
from ..launch import grid
from ..launch.dense import Launch, Plan, card_of
from ..problem.dense import PLAIN, Arrays
from ..problem.dense import Problem as Asked
from . import tune
from .bench import run as bench
from .bench.operands import ERROR, TORCH_NAMES
from .bench.shapes import BYTES, Problem, drawn, extent
from .cold_launches import SpinTimer, normal_values
from .problems import described

POOL_BYTES = 4 << 30
COLD_BYTES = 400 << 20          # of operands between two uses of the same ones: several times the L2
WORK_US = 250.0                 # of one measurement
FEWEST, MOST = 3, 16            # launches of one measurement
AHEAD = 40                      # products of a part whose configurations are assembled while others are measured
AGAIN, ROUNDS = 8, 3             # of a shape's fastest, so many are measured again so often
OTHERS = 6                      # one of those that the model does not put first for so many that it does
MOST_SPLIT_TILES = 600          # work tiles of a split K that are worth a measurement


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of product, and its share of the time. `rows`: the M that are drawn up to 64, since each multiple of 8 can have kernels of
    its own there; without any, M is larger. `kind`: "few": M is one of `rows` alone; "batched": batches of 2 to 128 products; "long": at
    most a wave of 128 x 128 tiles with a long K, the products that are lost most often; "large": weights of large models, every other one
    with an M of `rows`."""

    dtype: str
    layout: str
    share: float
    rows: tuple[int, ...] = ()
    kind: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.dtype, self.layout, self.kind)))


FEW = tuple(range(16, ONE_BLOCK + 1, 8))
ONE_WAVE, LONG = H100.sms, 1536     # tiles, and K, of a long product; the same products on every card
PARTS = (Part("bf16", "nt", 0.14), Part("bf16", "nn", 0.12), Part("bf16", "tn", 0.10), Part("bf16", "tt", 0.10),
         Part("e4m3", "nt", 0.08), Part("f32", "nt", 0.06),
         *(Part("bf16", layout, 0.07, FEW, "batched") for layout in ("nt", "nn", "tn", "tt")),
         *(Part("bf16", layout, 0.04, FEW, "few") for layout in ("nt", "nn", "tn", "tt")),
         *(Part("bf16", layout, 0.04, kind="long") for layout in ("nt", "nn", "tn", "tt")),
         Part("bf16", "nt", 0.05, FEW, "large"), Part("e4m3", "nt", 0.03, FEW, "large"), Part("f32", "nt", 0.03, FEW, "large"),
         *(Part("bf16", layout, 0.02, FEW, "large") for layout in ("nn", "tn", "tt")))
LARGE_ROWS, LARGE_N, LARGE_K = (65, 16_384), (4096, 131_072), (1024, 16_384)
LARGE_BYTES, LARGE_FLOPS = (50 << 20, 3 << 30), 3e12        # of a large product: more than most others have, and less than the pool


def products(part: Part, seed: int) -> Iterator[Problem]:
    """Random products of a part without end, every other one with N and K that are multiples of 64."""
    source = random.Random(seed)
    for turn in itertools.count():
        kind = ("any8", "aligned")[turn % 2]
        if part.kind == "large":
            yield _large(part, source, 64 if kind == "aligned" else 16)
            continue
        found, = drawn(source.getrandbits(30), 1, kind, [part.dtype], part.layout, part.kind == "batched")
        if part.kind == "few":
            found = replace(found, m=source.choice(part.rows))
        elif found.m <= ONE_BLOCK and part.rows:
            found = replace(found, m=min(part.rows, key=lambda rows, m=found.m: abs(math.log(rows / m))))  # type: ignore[misc]
        long = -(-found.m // 128) * -(-found.n // 128) <= ONE_WAVE and found.k >= LONG
        if (found.m > ONE_BLOCK or part.rows) and (long or part.kind != "long"):
            yield found


def _large(part: Part, source: random.Random, unit: int) -> Problem:
    while True:
        m = source.choice(part.rows) if source.random() < 0.5 else extent(source, LARGE_ROWS, 1 if part.layout[0] == "n" else 8)
        found = Problem(m, extent(source, LARGE_N, unit), extent(source, LARGE_K, unit), part.dtype, part.layout)
        if LARGE_BYTES[0] <= found.bytes <= LARGE_BYTES[1] and found.flops <= LARGE_FLOPS:
            return found


def generated(asked: Asked) -> list[DenseConfig]:
    """Every configuration of a product. Those that leave four fifths of a tile or more empty are left out, as are splits that give a CTA
    fewer than two stages."""
    found: list[DenseConfig] = []
    depth = max(1, -(-asked.k * asked.a.bits // (8 * STAGE_BYTES)))
    for config in of_problem(asked):
        tile, splits = config.tile, config.splits
        rows, columns = config.tiles(asked.m, asked.n)
        tiles = rows * columns * (asked.batches or 1)
        mostly_empty = asked.m * asked.n < 0.2 * rows * tile.BM * columns * tile.BN
        if not mostly_empty and (splits == 1 or (LEAST_OF_A_SPLIT * splits <= depth and tiles * splits <= MOST_SPLIT_TILES)):
            found.append(config)
    return found


@dataclass(frozen=True, slots=True)
class Draw:
    """A product with the candidates that it is measured with, and the ways of the first ones that no model judges by themselves."""

    problem: Problem
    candidates: list[DenseConfig]
    ways: list[DenseConfig]

    @property
    def configs(self) -> list[DenseConfig]:
        return [*self.candidates, *self.ways]


class Drawn:
    """Random products of a part without end, each with `most` candidates (0: all), the ways of the first `ways` and the overlaps of the
    first `overlaps`. They are drawn once, however often they are gone through."""

    def __init__(self, part: Part, seed: int, most: int, ways: int = 0, overlaps: int = 0) -> None:
        self._known: list[Draw] = []
        self._further = self._drawn(part, seed, most, ways, overlaps)

    def __iter__(self) -> Iterator[Draw]:
        for place in itertools.count():
            if place == len(self._known):
                self._known.append(next(self._further))
            yield self._known[place]

    def _drawn(self, part: Part, seed: int, most: int, ways: int, overlaps: int) -> Iterator[Draw]:
        source = random.Random(seed + 1)
        for problem in products(part, seed):
            found = near(described(problem), most, source)
            further = dict.fromkeys(way for config in found[:ways] for way in tune.ways(config))
            further |= dict.fromkeys(way for config in found[:overlaps] for way in other_begins(config))
            yield Draw(problem, found, [way for way in further if way not in found])


def near(asked: Asked, most: int, source: random.Random) -> list[DenseConfig]:
    """Those that the card's model puts first with what corrects it. Besides a sixth as many that no fit has seen, in the model's order, and
    a sixth as many of all others."""
    if not most:
        return generated(asked)
    card = card_of(driver.current_device())
    found = judged(asked, card, untried=True).without_overlaps()      # whose times are measured besides
    order = found.clocks.argsort(kind="stable").tolist()
    first, others = order[:most], order[most:]
    factors = of_card(card).factors
    unseen = itertools.islice((place for place in others if structure(found.every[found.places[place]]) not in factors), most // OTHERS)
    configs: list[DenseConfig] = []
    for place in dict.fromkeys([*first, *unseen, *source.sample(others, min(most // OTHERS, len(others)))]):
        with suppress(ConfigError):
            configs.append(found.config(place))
    return configs


class Pool:
    """Operands of one type and room for results, from which products take theirs in turn."""

    def __init__(self, torch: Any, dtype: str) -> None:
        self.torch, self.size = torch, BYTES[dtype]
        self.kind = getattr(torch, TORCH_NAMES[dtype])
        self.values = normal_values(torch, POOL_BYTES, self.kind)
        self.results = torch.empty(POOL_BYTES, device="cuda", dtype=torch.uint8)
        self.scale = torch.ones((), device="cuda")
        self.one = view(self.scale)

    def sets(self, problem: Problem) -> Iterator[Arrays]:
        """The arrays of one product after another, without end."""
        m, n, k, size, outer = problem.m, problem.n, problem.k, self.size, problem.outer
        out_size = BYTES[problem.out]
        a_bytes, b_bytes, d_bytes = (-(-problem.count * bytes // 1024) * 1024 for bytes in (m * k * size, n * k * size, m * n * out_size))
        turns = max(1, min(POOL_BYTES // (a_bytes + b_bytes), POOL_BYTES // d_bytes, -(-COLD_BYTES // (a_bytes + b_bytes + d_bytes))))
        a_strides = (k, 1) if problem.layout[0] == "n" else (1, m)
        b_strides = (n, 1) if problem.layout[1] == "n" else (1, k)
        apart = [(size,) if outer else () for size in (m * k, n * k, m * n)]
        base, results = self.values.data_ptr(), self.results.data_ptr()
        for turn in itertools.count():
            place = turn % turns
            a = base + place * (a_bytes + b_bytes)
            scales = (self.one, self.one) if size == 1 else (None, None)
            yield Arrays(ArrayView(a, (*outer, m, k), (*apart[0], *a_strides), problem.dtype, 0, "torch"),
                         ArrayView(a + a_bytes, (*outer, k, n), (*apart[1], *b_strides), problem.dtype, 0, "torch"),
                         ArrayView(results + place * d_bytes, (*outer, m, n), (*apart[2], n, 1), problem.out, 0, "torch"),
                         None, None, None, *scales)

    def tensors(self, problem: Problem, arrays: Arrays) -> tuple[Any, Any, Any]:
        """The same arrays as tensors."""
        out = self.results.view(getattr(self.torch, TORCH_NAMES[problem.out]))
        places = [(array.pointer - whole.data_ptr()) // whole.element_size()
                  for array, whole in ((arrays.a, self.values), (arrays.b, self.values), (arrays.out, out))]
        return (self.torch.as_strided(self.values, arrays.a.shape, arrays.a.strides, places[0]),
                self.torch.as_strided(self.values, arrays.b.shape, arrays.b.strides, places[1]),
                self.torch.as_strided(out, arrays.out.shape, arrays.out.strides, places[2]))


class Bench:
    """The measurements of one part."""

    def __init__(self, torch: Any, part: Part, step: Step) -> None:
        self.torch, self.part, self.step, self.pool = torch, part, step, Pool(torch, part.dtype)
        self.stream = torch.cuda.current_stream().cuda_stream
        self.checked: dict[DenseConfig, str | None] = {}
        self.us = SpinTimer(torch).us

    def library(self, problem: Problem, arrays: Arrays) -> Any:
        """One product by cuBLAS, as a function."""
        torch = self.torch
        a, b, d = self.pool.tensors(problem, arrays)
        if BYTES[problem.dtype] == 1:
            kind, one = d.dtype, self.pool.scale
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=kind, use_fast_accum=True, out=d)
        return lambda: torch.matmul(a, b, out=d)

    def ours(self, problem: Problem, plan: Plan, arrays: Arrays) -> Any:
        launch = Launch(plan, arrays, PLAIN)
        return lambda: launch.run(self.stream)

    def fault(self, problem: Problem, plan: Plan, arrays: Arrays) -> str | None:
        """Whether the first product of a configuration differs from the library's; the sentence, once for each."""
        if plan.config not in self.checked:
            torch = self.torch
            why = self.step.begin(f"{self.part.name} {plan.config}")
            if why is not None:
                self.checked[plan.config] = f"{problem} {plan.config}: {why}"
                return self.checked[plan.config]
            a, b, d = self.pool.tensors(problem, arrays)
            d.fill_(math.nan)
            Launch(plan, arrays, PLAIN).run(self.stream)
            torch.cuda.synchronize()
            exact = a.float() @ b.float()
            error = float((d.float() - exact).norm() / exact.norm())
            right = error <= ERROR[problem.dtype]
            self.checked[plan.config] = None if right else f"{problem} {plan.config}: relative error {error:.3g}"
        return self.checked[plan.config]

    def shape(self, problem: Problem, configs: Sequence[DenseConfig], source: random.Random, until: float) -> dict[str, Any]:
        """The times of one product by its configurations in random order until some time, and the fastest ones again."""
        asked, sets = described(problem), self.pool.sets(problem)
        library = [self.library(problem, next(sets)) for _ in range(2)]
        for launch in library:
            launch()
        guess = self.us(library)
        count = max(FEWEST, min(MOST, round(WORK_US / max(guess, 1.0)))) if guess < 1500 else 2
        plans: dict[DenseConfig, Plan] = {}
        times: dict[DenseConfig, list[float]] = {}
        wrong: list[str] = []

        def measured(config: DenseConfig, times_more: int = 1) -> None:
            launches = [self.ours(problem, plans[config], next(sets)) for _ in range(count * times_more)]
            times.setdefault(config, []).append(self.us(launches))

        theirs: list[float] = []
        for config in source.sample(list(configs), len(configs)):
            if time.perf_counter() > until:
                break
            try:
                plans[config] = Plan(asked, 0, config)
                sentence = self.fault(problem, plans[config], next(sets))
            except PtxkitError as error:
                sentence = str(error).splitlines()[0]
            if sentence:
                wrong.append(sentence)
                continue
            if not times:
                self.ours(problem, plans[config], next(sets))()
            measured(config)
        for _ in range(ROUNDS):
            theirs.append(self.us([self.library(problem, next(sets)) for _ in range(count)]))
            best = sorted(times, key=lambda config: statistics.median(times[config]))[:AGAIN]
            for config in source.sample(best, len(best)):
                measured(config)
        return {"times": times, "cublas": statistics.median(theirs) if theirs else None, "wrong": wrong}


class Assembly:
    """Brings configurations into the cache of cubins, in processes of its own, while others are measured."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 2), get_context("spawn"))
        self.begun: dict[DenseConfig, Future[str]] = {}

    def __enter__(self) -> Assembly:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, configs: Iterable[DenseConfig]) -> None:
        for config in configs:
            if config not in self.begun:
                self.begun[config] = self.pool.submit(_assemble, config)

    def wait(self, configs: Sequence[DenseConfig], step: Step) -> None:
        """Until all of these are there."""
        self.begin(configs)
        for config in configs:
            while not self.begun[config].done():
                wait([self.begun[config]], 5.0)
                step.touch()


def _assemble(config: DenseConfig) -> str:
    """Brings a configuration into the cache; why it could not be."""
    kernel, parameters = grid.kernel_of(config), config.parameters
    try:
        traced = kernel.trace(**parameters)
        images.keep(kernel, parameters, traced)
    except PtxkitError as error:
        return str(error)
    return ""


def run(seed: int, seconds: float, path: Path, parts: Sequence[Part] = PARTS, per_shape_s: float = 2.0,
        step: Step | None = None, say: Callable[[str], None] = print, most: int = 0, ways: int = 0, overlaps: int = 0) -> dict[str, Any]:
    """Measures until the time is over; the record, which is also written after each part. A run that is restarted goes on with it. `most`:
    only so many configurations of a product that the model puts first, and a sixth as many others; 0: every one. `ways`: of so many of
    them the other ways of `tune`, too; `overlaps`: of so many the other begins of the next kernel."""
    torch = bench.library()
    torch.backends.cuda.matmul.allow_tf32 = True
    step = step or Step()
    begin = time.perf_counter()
    record: dict[str, Any] = {"device": bench.device(torch), "seed": seed, "date": time.strftime("%Y-%m-%d"), "parts": []}
    if step.restarted and path.is_file():
        record = json.loads(gzip.decompress(path.read_bytes()))
        begin -= record["seconds"]
    drawn = [Drawn(part, seed + place, most, ways, overlaps) for place, part in enumerate(parts)]
    with Assembly() as assembly:
        for place, part in enumerate(parts):
            until = begin + seconds * sum(one.share for one in parts[:place + 1]) / sum(one.share for one in parts)
            if step.finished(part.name) or time.perf_counter() > until:
                continue
            for at in range(place, min(place + 2, len(parts))):         # this one, and the next one behind it
                for one in itertools.islice(drawn[at], AHEAD):
                    assembly.begin(one.configs)
                    step.touch()
            kept: dict[str, Any] = {"part": part.name, "configs": [], "rows": [], "wrong": []}
            record["parts"].append(kept)
            try:
                _measure(Bench(torch, part, step), kept, seed + place, until, per_shape_s, assembly, drawn[place])
            except RuntimeError as error:
                alive(torch)
                raise GiveUp(str(error).splitlines()[0]) from None
            finally:
                record["seconds"] = time.perf_counter() - begin
                path.write_bytes(gzip.compress(json.dumps(record, separators=(",", ":")).encode()))
            step.finish(part.name)
            pairs = sum(len(row["us"]) for row in kept["rows"])
            say(f"{part.name}: {len(kept['rows'])} products, {len(kept['configs'])} configurations, {pairs} pairs, "
                f"{len(kept['wrong'])} wrong, {time.perf_counter() - begin:.0f} s")
            torch.cuda.empty_cache()
    return record


def _measure(field: Bench, kept: dict[str, Any], seed: int, until: float, per_shape_s: float, assembly: Assembly, drawn: Drawn) -> None:
    """The rows of one part. A configuration that is no candidate of its product is kept as a way."""
    source = random.Random(seed)
    known: dict[tuple[DenseConfig, bool], int] = {}
    for one in drawn:
        if time.perf_counter() > until:
            return
        problem, asked = one.problem, described(one.problem)
        assembly.wait(one.configs, field.step)
        found = field.shape(problem, one.configs, source, min(until, time.perf_counter() + per_shape_s))
        times = {(config, config in one.ways): seen for config, seen in found["times"].items()}
        for config, way in times:
            if (config, way) not in known:
                known[config, way] = len(kept["configs"])
                kept["configs"].append({**knobs(config, asked), "m": problem.m, **({"way": True} if way else {})})
        if times:
            kept["rows"].append({"shape": str(problem), "cublas_us": found["cublas"],
                                 "us": [[known[place], *(round(value, 3) for value in seen)] for place, seen in times.items()]})
        kept["wrong"] = sorted({*kept["wrong"], *found["wrong"]})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("--seed", type=count, default=1)
    parser.add_argument("--seconds", type=seconds, default=300.0, metavar="S", help="of all measurements together (default 300)")
    parser.add_argument("--part", dest="parts", action="append", choices=[part.name for part in PARTS],
                        help="only this kind of product; again for more")
    parser.add_argument("--most", type=count, default=0, metavar="N",
                        help="only N configurations of a product that the model puts first, and a sixth as many others (default 0: all)")
    parser.add_argument("--ways", type=count, default=0, metavar="N",
                        help="with --most: of the first N besides what else `tune` tries with the same tile: loads, schedulers, other "
                        "clusters, shorter rings, other begins of the next kernel (default 0)")
    parser.add_argument("--overlaps", type=count, default=0, metavar="N",
                        help="with --most: of the first N besides the other begins of the next kernel, for `fit --overlaps` "
                        "(default 0)")
    parser.add_argument("--output", type=output_path, required=True, metavar="FILE", help="the record, JSON compressed by gzip")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: measured."""
    if (options.ways or options.overlaps) and not options.most:
        raise UsageError("--ways and --overlaps are for the first configurations of --most: give that, too")
    driver.probe()
    wishes = {"seed": options.seed, "seconds": options.seconds, "path": str(options.output), "parts": options.parts,
              "most": options.most, "ways": options.ways, "overlaps": options.overlaps}
    with TemporaryDirectory() as folder:
        return watched("ptxkit.gemm.tools.sample:work", wishes, Path(folder, "note"), say=lambda text: print(text, flush=True))


def work(wishes: Mapping[str, Any], step: Step) -> int:
    """What the worker does: measures, and keeps the record at the path that it is told."""
    wanted = wishes["parts"] or [part.name for part in PARTS]
    record = run(wishes["seed"], wishes["seconds"], Path(wishes["path"]), [part for part in PARTS if part.name in wanted], step=step,
                 say=lambda text: print(text, flush=True), most=wishes["most"], ways=wishes["ways"], overlaps=wishes["overlaps"])
    for part in record["parts"]:
        for sentence in part["wrong"]:
            print(sentence, file=sys.stderr)
    return 0


__all__ = ["PARTS", "Part", "add_arguments", "command", "generated", "products", "run", "work"]
