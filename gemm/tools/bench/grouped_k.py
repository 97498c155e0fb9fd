"""What `benchmarks/weight_gradients.py --sweep` does: random products with groups along K, each in every configuration, for `fit
--grouped-k`.

Launches take their operands in turn from a pool that is far larger than the L2. A configuration's result is compared with torch's for the
first product that has it.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxkit.cards import Card
from ptxkit.errors import PtxkitError
from ptxkit.measure.files import write_json
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.launch import view

from ...config.grouped_k import GroupedKConfig
from ...heuristic.grouped_k import Weighed, heuristic, whole
from ...heuristic.grouped_k_causes import begins, candidates, untaught
from ...launch.dense import card_of
from ...launch.grouped_k import Launch, Plan
from ...problem.grouped_k import ArraysAlongK, ProblemAlongK
from ..assembly import assembled
from ..cold_launches import SpinTimer, normal_values
from ..models import every_grouped
from .grouped_cases import random_lengths
from .run import device, library
from .shapes import BYTES, ShapeError, extent

GROUPS, TOKENS, EXTENTS = (2, 512), (8, 8192), (64, 16_000)
THIN, FEW_GROUPS, ROWS_OF_ONE = (8, 56), (2, 64), (64, 32_768)  # of thin results their rows or columns and groups, and rows of one group
MOST_BYTES, MOST_FLOPS = 3 << 30, 8e11          # of a random product
TOKENS_OF_MODELS, MOST_FLOPS_OF_MODELS = (16, 64, 128, 256, 512, 1024, 2048, 4096), 2.5e12
LENGTHS = 8                     # what lengths are multiples of: torch needs that
POOL_BYTES, COLD_BYTES = 6 << 30, 300 << 20
WORK_US, FEWEST, MOST = 250.0, 2, 12            # of one measurement, and its launches
AGAIN, ROUNDS, BEGUN = 8, 3, 3  # of a product's fastest, so many are measured again so often; of so many every begin of the next kernel
FIRST_SHARED, OTHERS_SHARED = 20, 8     # of a product's candidates whose CTAs share tiles: those that promise most, and drawn ones
FAR = 0.01                      # of the norm of a group, between two results of 16 bits


@dataclass(frozen=True, slots=True)
class AlongK:
    """A product: D [groups, m, n] over `tokens` rows of a group in the mean, whose lengths the seed `drawn` decides. bf16; `accumulates`:
    onto f32 sums."""

    groups: int
    tokens: int
    m: int
    n: int
    drawn: int
    accumulates: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        """Multiples of 8 with about this mean."""
        found = random_lengths(self.groups, self.groups * self.tokens // LENGTHS, self.drawn)
        return tuple(LENGTHS * length for length in found)

    @property
    def rows(self) -> int:
        return self.groups * self.tokens // LENGTHS * LENGTHS

    @property
    def out(self) -> str:
        return "f32" if self.accumulates else "bf16"

    @property
    def bytes(self) -> int:
        """Bytes of A, B and D together."""
        return 2 * self.rows * (self.m + self.n) + self.groups * self.m * self.n * BYTES[self.out]

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.m * self.n

    def arrays(self, a: int = 1 << 40, b: int = 1 << 41, out: int = 1 << 42, lengths: ArrayView | None = None) -> ArraysAlongK:
        """The arrays at these addresses."""
        def at(pointer: int, dtype: str, *shape: int) -> ArrayView:
            return ArrayView(pointer, shape, contiguous_strides(shape), dtype, 0, "torch")

        return ArraysAlongK(at(a, "bf16", self.rows, self.m), at(b, "bf16", self.rows, self.n),
                            lengths or at(1 << 43, "s32", self.groups + 1), at(out, self.out, self.groups, self.m, self.n))

    @property
    def problem(self) -> ProblemAlongK:
        return ProblemAlongK(self.arrays(), self.accumulates)

    def __str__(self) -> str:
        words = [f"{self.groups}x{self.tokens}x{self.m}x{self.n}", f"drawn={self.drawn}", *["accumulates"] * self.accumulates]
        return ":".join(words)


def product(text: str) -> AlongK:
    """What `str` of a product says."""
    extents, *words = text.split(":")
    try:
        groups, tokens, m, n = map(int, extents.split("x"))
        seed, = (int(word.removeprefix("drawn=")) for word in words if word.startswith("drawn="))
    except ValueError:
        raise ShapeError(f"{text!r} is no product of groups along K: write one such as 8x1024x4096x2048:drawn=1") from None
    return AlongK(groups, tokens, m, n, seed, "accumulates" in words)


def drawn(seed: int, count: int) -> Iterator[AlongK]:
    """Random products with log-uniform extents, every other one with M and N that are multiples of 64, every third one accumulating."""
    source, done = random.Random(f"{seed} along k"), 0
    while done < count:
        unit = (8, 64)[done % 2]
        found = AlongK(extent(source, GROUPS, 1), extent(source, TOKENS, 8), extent(source, EXTENTS, unit), extent(source, EXTENTS, unit),
                       source.randrange(1_000_000), done % 3 == 2)
        if found.bytes <= MOST_BYTES and found.flops <= MOST_FLOPS:
            done += 1
            yield found


def drawn_thin(seed: int, count: int) -> Iterator[AlongK]:
    """Random products of which a third have one group, a third a result of fewer than 64 rows or columns, as adapters of low rank have, and
    a third both."""
    source, done = random.Random(f"{seed} thin"), 0
    while done < count:
        short, long = extent(source, THIN if done % 3 else EXTENTS, 8), extent(source, EXTENTS, 8)
        m, n = source.sample((short, long), 2)
        one = done % 3 != 1
        found = AlongK(1 if one else extent(source, FEW_GROUPS, 1), extent(source, ROWS_OF_ONE if one else TOKENS, 8), m, n,
                       source.randrange(1_000_000), done % 4 == 2)
        if found.bytes <= MOST_BYTES and found.flops <= MOST_FLOPS:
            done += 1
            yield found


def of_models(seed: int = 5) -> list[AlongK]:
    """The weights of the experts of models, each with three mean lengths; every third one or so accumulates."""
    source, found = random.Random(seed), list[AlongK]()
    for _, experts in every_grouped():
        for tokens in source.sample(TOKENS_OF_MODELS, 3):
            one = AlongK(experts.groups, tokens, experts.n, experts.k, source.randrange(1_000_000), source.random() < 0.33)
            if one.bytes <= MOST_BYTES and one.flops <= MOST_FLOPS_OF_MODELS:
                found.append(one)
    return list(dict.fromkeys(found))


def asked(text: str) -> list[AlongK]:
    """What a command line asks for: SEED:COUNT random products, SEED:COUNT:thin, or models. Raises ShapeError."""
    if text == "models":
        return of_models()
    numbers, thin = text.removesuffix(":thin"), text.endswith(":thin")
    try:
        return list((drawn_thin if thin else drawn)(*map(int, numbers.split(":", 1))))
    except (TypeError, ValueError):
        raise ShapeError(f"{text!r} names no products: write SEED:COUNT for random ones, such as 31:200, SEED:COUNT:thin for those of one "
                         "group or with thin results, or models") from None


class Pool:
    """Room for operands and results, from which launches take theirs in turn."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.values = normal_values(torch, POOL_BYTES, torch.bfloat16)
        self.results = torch.zeros(POOL_BYTES, device="cuda", dtype=torch.uint8)

    def sets(self, one: AlongK, lengths: ArrayView) -> list[tuple[ArraysAlongK, tuple[Any, Any, Any]]]:
        """As many arrays as leave the L2 cold, and the same as tensors."""
        torch, made = self.torch, []
        a_bytes, b_bytes, d_bytes = (-(-bytes // 1024) * 1024 for bytes in (
            2 * one.rows * one.m, 2 * one.rows * one.n, one.groups * one.m * one.n * BYTES[one.out]))
        count = max(1, min(POOL_BYTES // (a_bytes + b_bytes), POOL_BYTES // d_bytes, MOST, -(-COLD_BYTES // (a_bytes + b_bytes + d_bytes))))
        kind = torch.float32 if one.accumulates else torch.bfloat16
        for turn in range(count):
            place, at = turn * (a_bytes + b_bytes), turn * d_bytes
            a = self.values[place // 2:][:one.rows * one.m].view(one.rows, one.m)
            b = self.values[(place + a_bytes) // 2:][:one.rows * one.n].view(one.rows, one.n)
            d = self.results[at:at + one.groups * one.m * one.n * BYTES[one.out]].view(kind).view(one.groups, one.m, one.n)
            made.append((one.arrays(a.data_ptr(), b.data_ptr(), d.data_ptr(), lengths), (a, b, d)))
        return made


class Bench:
    """The measurements."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.pool = torch, Pool(torch)
        self.stream = torch.cuda.current_stream().cuda_stream
        self.us = SpinTimer(torch).us
        self.checked: dict[GroupedKConfig, str] = {}

    def measured(self, one: AlongK, every: Sequence[GroupedKConfig], source: random.Random, begun: int = BEGUN) -> dict[str, Any]:
        """A row: the times of one product by these configurations in random order; those of the fastest ones again, of the first `begun` of
        them with every begin of the next kernel, and of what is chosen; and those of torch."""
        field, own = Contest(self, one), heuristic(one.problem, card_of(0))
        for config in source.sample(every, len(every)):
            field.take(config)
        first = sorted(field.times, key=lambda config: field.times[config][0])
        later = [other for config in [each for each in first if not each.dynamic][:begun] for other in begins(config)[1:]]
        again, theirs = list(dict.fromkeys([*first[:AGAIN], *later, own])), []
        for _ in range(ROUNDS):
            theirs.append(field.theirs())
            for config in source.sample(again, len(again)):
                field.take(config)
        return {"product": str(one), "chosen": str(own), "torch_us": round(statistics.median(theirs), 3), "wrong": field.wrong,
                "configs": [{"config": str(config), "us": [round(us, 3) for us in found]} for config, found in field.times.items()]}


class Contest:
    """The measurements of one product, ours and torch's. A configuration is compared with torch the first time that it is seen; where it is
    `wrong` it has no times."""

    def __init__(self, bench: Bench, one: AlongK) -> None:
        self.bench, self.one, self.problem = bench, one, one.problem
        torch = bench.torch
        begin = torch.tensor((0, *itertools.accumulate(one.lengths)), device="cuda", dtype=torch.int32)
        self.ends, self.sets = begin[1:].contiguous(), bench.pool.sets(one, view(begin, "cu_seqlens"))
        a, b, _ = self.sets[0][1]
        self.expected = torch._grouped_mm(a.mT, b, offs=self.ends).float()
        self.library = [functools.partial(self._torch, *each) for _, each in self.sets]
        self.count = max(FEWEST, min(MOST, round(WORK_US / max(bench.us(self.library[:2]), 1.0))))
        self.plans: dict[GroupedKConfig, list[Callable[[], Any]] | None] = {}
        self.times: dict[GroupedKConfig, list[float]] = {}
        self.wrong: list[str] = []
        self.turn = itertools.count()

    def _torch(self, a: Any, b: Any, d: Any) -> None:
        found = self.bench.torch._grouped_mm(a.mT, b, offs=self.ends)
        if self.one.accumulates:
            d.add_(found)

    def theirs(self) -> float:
        """Microseconds of torch's."""
        return self.bench.us([self.library[next(self.turn) % len(self.library)] for _ in range(self.count)])

    def take(self, config: GroupedKConfig) -> None:
        """Measure a configuration once more."""
        if config not in self.plans:
            self.plans[config] = self._planned(config)
        if launches := self.plans[config]:
            some = [launches[next(self.turn) % len(launches)] for _ in range(self.count)]
            self.times.setdefault(config, []).append(self.bench.us(some))

    def _planned(self, config: GroupedKConfig) -> list[Callable[[], Any]] | None:
        bench, one, (_, _, d) = self.bench, self.one, self.sets[0][1]
        try:
            plan = Plan(self.problem, 0, config)
            launches: list[Callable[[], Any]] = [functools.partial(Launch(plan, arrays).run, bench.stream) for arrays, _ in self.sets]
            if config not in bench.checked:
                d.fill_(0.0 if one.accumulates else math.nan)
                launches[0]()
                error = off(d, self.expected)
                bench.checked[config] = "" if error < FAR else f"{one} {config}: relative error {error:.3g}"
            why = bench.checked[config]
        except PtxkitError as error:
            why = f"{one} {config}: {str(error).splitlines()[0]}"
        if why:
            self.wrong.append(why)
        return None if why else launches


def every_kernel(products: Sequence[AlongK], card: Card) -> list[GroupedKConfig]:
    """All configurations that a sweep of these products may need on a card."""
    return list(dict.fromkeys(each for one in products for config in candidates(one.problem, card) for each in begins(config)))


def off(found: Any, expected: Any) -> float:
    """The largest relative error of a group [groups, m, n], by the norm; infinite where something is no number, or is not zero in an empty
    group."""
    error, norm = (each.float().flatten(1).norm(dim=1) for each in (found.float() - expected, expected))
    worst = float((error / norm.clamp(min=1e-30)).max())
    return worst if math.isfinite(worst) else math.inf


def every_shared(products: Sequence[AlongK], card: Card, seed: int = 0) -> dict[AlongK, list[GroupedKConfig]]:
    """For each product for which CTAs may share tiles the candidates that promise most, some others, and those with the tile of the choice
    without; and that choice."""
    source, found = random.Random(seed), dict[AlongK, list[GroupedKConfig]]()
    for one in products:
        every = Weighed.of(one.problem, card)
        some = every.shared(one.problem, card)
        if some is None:
            continue
        _, own = every.whole(card)
        configs = [every.shared_config(some, entry) for entry in range(len(some.part))]
        alike = [config for config in configs if own in begins(replace(config, part=0))]
        others = source.sample(configs, min(len(configs), OTHERS_SHARED))
        found[one] = list(dict.fromkeys((own, *configs[:FIRST_SHARED], *alike, *others)))
    return found


def kernels_of(configs: Iterable[GroupedKConfig]) -> list[GroupedKConfig]:
    """A configuration for each of their kernels, which do not depend on how long parts are."""
    return list(dict.fromkeys(replace(config, part=config.tile.BK if config.part else 0) for config in configs))


def sweep_parts(products: Sequence[AlongK], *, seconds: float, path: Path | None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The record of a sweep of candidates whose CTAs share tiles, of products that have some."""
    found = every_shared(products, card_of(0))
    kernels = kernels_of(itertools.chain(*found.values()))
    return _record(tuple(found), kernels, found.__getitem__, 0, seconds, path, say)


def sweep(products: Sequence[AlongK], *, seconds: float, path: Path | None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The record of a sweep: every configuration of each product. It begins no further product after so many seconds."""
    return _record(products, every_kernel(products, card_of(0)), lambda one: candidates(one.problem, card_of(0)), BEGUN, seconds, path, say)


def compare(products: Sequence[AlongK], *, seconds: float, path: Path | None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The record of what is chosen with trees and without, and where CTAs share no tiles, beside torch."""
    choices = heuristic, untaught, whole
    found = {one: [choice(one.problem, card_of(0)) for choice in choices] for one in products}
    kernels = kernels_of(config for each in found.values() for config in each)
    results = _record(products, kernels, lambda one: list(dict.fromkeys(found[one])), 0, seconds, path, say)
    for row, one in zip(results["rows"], products, strict=False):
        row["untaught"], row["whole"] = map(str, found[one][1:])
    if path:
        write_json(path, results)
    return results


def _record(products: Sequence[AlongK], kernels: Sequence[GroupedKConfig], configs: Callable[[AlongK], list[GroupedKConfig]], begun: int,
            seconds: float, path: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    torch = library()
    for config, why in assembled(kernels).items():
        say(f"not assembled: {config}: {why}")
    results: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "device": device(torch), "rows": []}
    field, source, begin = Bench(torch), random.Random(0), time.monotonic()
    for one in products:
        if time.monotonic() - begin > seconds:
            say(f"cut after {len(results['rows'])} of {len(products)} products")
            break
        row = field.measured(one, configs(one), source, begun)
        results["rows"].append(row)
        us = {each["config"]: statistics.median(each["us"][1:] or each["us"]) for each in row["configs"]}
        best = min(us, key=us.__getitem__) if us else ""
        say(f"{one}: chosen {us.get(row['chosen'], math.nan):.1f} us, torch {row['torch_us']:.1f}, best {us.get(best, math.nan):.1f} "
            f"{best}, {len(row['wrong'])} wrong")
    if path:
        write_json(path, results)
    return results


__all__ = [
    "AlongK",
    "asked",
    "compare",
    "drawn",
    "drawn_thin",
    "every_kernel",
    "every_shared",
    "kernels_of",
    "of_models",
    "off",
    "product",
    "sweep",
    "sweep_parts",
]
