"""What a dense product costs by its causes: copies into shared memory, products, stores, waves of tiles, shared K, memory and launch.

Times are clocks of an SM. `estimate` takes arrays, so that one call judges every configuration of a problem, or a whole record of
measurements. The constants of a card are in `gemm/cards/fits/NAME.json`, which `python -m ptxkit.gemm fit` writes from measurements.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import CARDS, Card, known
from ptxkit.files import WRONG_DATA, read_kept, write_whole
from ptxkit.smem import SHARED_LIMIT

from ..collective.atoms import WARPGROUP
from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig
from ..config.parts import MAX_CLUSTER, ROWS, Pingpong, SplitK, StreamK, Swizzle, shares_columns
from ..problem.dense import Problem
from ..scheduler.stream_k import MIN_STAGES_OF_PART
from .space import SHORT_RINGS, WHOLE, Structure, shared_by
from .table import FOLDER, file_name

Values = Any                    # a number or an array of them
LINE = 128                      # bytes of a line of the L2
RESERVED_BYTES = 1024           # of an SM's shared memory, for each CTA
SM_REGISTERS = 65_536
SPARE_REGISTERS = 48            # of an mma thread besides its sums, where a CTA does not claim all of an SM; 26 to 30 without a fusion
STORES_AT_ONCE = 4              # CTAs of an SM that store as fast as one: a warp of each scheduler issues every few clocks
SWAPPED = " swapped"            # ends the names of structures with A and B swapped
WORKSPACE = "split workspace"   # in the names of structures that add up the sums of a split K through the workspace
WHOLE_WAVES = 6                 # up to which the last wave counts whole: with more, CTAs drift apart and fill half of it


@dataclass(frozen=True, slots=True)
class Costs:
    """The constants of one card. Rates are bytes a clock, the others clocks or shares.

    l2, l2_all: what the L2 gives one SM, and all together; ingest: what an SM takes in. straddle: further lines of 128 bytes that a copied
    row touches if its pitch is no multiple of them. out_of_bounds_m, _n: what copying rows past the end costs. sharpness and overlap: how
    little copies and products, and memory and the rest, add up (an exponent; infinite: the longer one counts). mma: clocks of products over
    those of wgmma alone; narrow: the further clocks of tiles that are narrow for their reads of shared memory. latency: until a copy
    arrives, in_flight: the share of the ring that is on its way; latency_mma: the products that a stage of a short ring also waits for.
    stage_1, stage: a stage besides, with one mma warpgroup and with more. epilogue: a tile's; block, block_direct: storing 64 x 8 of it by
    tensor copies or directly; straddled_store: further clocks of rows that are no whole lines; hand_over: between pingpong warpgroups.
    launch, cluster: until the first stage arrives, and in clusters; tail: the share of a last wave. memory: of all SMs; stores: bytes of D
    over those of operands; l2_bytes, l2_bytes_stream: what the L2 keeps of operands. cluster_sums, workspace_sums, stream_sums: adding
    up sums of a split K: once, and the rate at which they move; stream_reads: the share of the operands that CTAs of stream-K do not find
    in the L2 when they begin at different places of K.
    """

    l2: float = 150.0
    l2_all: float = 9000.0
    ingest: float = 200.0
    straddle: float = 1.0
    out_of_bounds_m: float = 0.02
    out_of_bounds_n: float = 0.02
    sharpness: float = 4.0
    overlap: float = 1.8
    mma: float = 1.05
    narrow: float = 2.5
    latency: float = 1700.0
    latency_mma: float = 1.5
    in_flight: float = 0.5
    stage_1: float = 30.0
    stage: float = 40.0
    epilogue: float = 10.0
    block: float = 40.0
    block_direct: float = 50.0
    straddled_store: float = 0.3
    hand_over: float = 10.0
    launch: float = 5200.0
    cluster: float = 800.0
    tail: float = 0.9
    memory: float = 1500.0
    stores: float = 0.9
    l2_bytes: float = 100e6
    l2_bytes_stream: float = 10e6
    cluster_sums: float = 100.0
    cluster_sums_rate: float = 12.5
    workspace_sums: float = 4000.0
    workspace_sums_rate: float = 10.0
    stream_sums: float = 500.0
    stream_sums_rate: float = 30.0
    stream_reads: float = 0.4
    factors: Mapping[str, float] = field(default_factory=dict)
    """By tile, schedule and scheduler (`structure`): how many times as long a product takes as by the rest of the model."""
    tensor: float = 1.0
    """What an SM multiplies in a clock, over what one of the measured card does."""

    def constants(self) -> dict[str, float]:
        """Those that are fitted, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("factors", "tensor")}


def structure(config: DenseConfig | Structure) -> str:
    """What a factor belongs to: "128x256 cooperative 2x1", "64x128 cooperative split cluster", "128x192 cooperative split workspace
    2x1", "256x144 cooperative 1x1 swapped"."""
    tile, scheduler, cluster = config.tile, config.scheduler, shared_by(config.scheduler)
    how = "pingpong" if isinstance(config.schedule, Pingpong) else "by columns" if shares_columns(config.schedule) else "cooperative"
    words = [f"{tile.BM}x{tile.BN}", how]
    if isinstance(scheduler, SplitK):
        words += ["split", scheduler.reduce] + [f"{cluster.m}x{cluster.n}"] * (cluster.size > 1)
    else:
        words += [f"{cluster.m}x{cluster.n}"] + ["stream"] * isinstance(scheduler, StreamK)
        words += ["short ring"] * (tile.BM * tile.BN <= 64 * 64 and 0 < config.stages <= max(SHORT_RINGS) and not config.swap_ab)
    return " ".join(words) + SWAPPED * config.swap_ab


def factor(factors: Mapping[str, float], name: str) -> float:
    """The factor of a structure. One with A and B swapped that no fit has seen has that of the upright one, one that splits K among
    clusters that of the same among CTAs, and one of a width that no fit has seen the mean of the next narrower and wider ones."""
    own = _alike(factors, name)
    beside = [] if own is not None else [found for one in _beside(name) if (found := _alike(factors, one)) is not None]
    return own or (math.exp(sum(map(math.log, beside)) / len(beside)) if beside else 1.0)


def _alike(factors: Mapping[str, float], name: str) -> float | None:
    """The factor of a structure of just this tile."""
    upright = name.removesuffix(SWAPPED)
    alone = upright[:upright.index(WORKSPACE) + len(WORKSPACE)] if WORKSPACE in upright else upright
    return factors.get(name, factors.get(upright, factors.get(alone)))


def _beside(name: str) -> tuple[str, str]:
    """The structures of the next narrower and the next wider tile: those whose columns are multiples of 16."""
    tile, _, rest = name.partition(" ")
    BM, BN = map(int, tile.split("x"))
    narrower = (BN - 1) // 16 * 16
    return f"{BM}x{narrower} {rest}", f"{BM}x{BN // 16 * 16 + 16} {rest}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """A problem as the model sees it; arrays where there are several. Pitches are the bytes from line to line of A and of B. `a_shared` and
    `b_shared`: all products of a batch have the same operand."""

    m: Values
    n: Values
    k: Values
    batches: Values
    size: Values                                # bytes of an element of A and of B
    out_size: Values
    a_pitch: Values
    b_pitch: Values
    added: Values = 0.0                         # bytes of what is added to an element of D
    a_shared: Values = False
    b_shared: Values = False

    @classmethod
    def of(cls, problem: Problem) -> Sizes:
        fusion = problem.fusion
        added = sum(kind.bits // 8 for kind in (fusion.c, fusion.residual) if kind is not None)
        shared = ((problem.batches or 1) > 1 and not lines.strides[-1] for lines in (problem.a_lines, problem.b_lines))
        return cls(problem.m, problem.n, problem.k, problem.batches or 1, problem.a.bits / 8, problem.out.bits / 8,
                   problem.a_lines.strides[0], problem.b_lines.strides[0], added, *shared)

    @classmethod
    def of_all(cls, problems: Sequence[Problem]) -> Sizes:
        """The sizes of several problems: each field is an array with an entry for each problem."""
        sizes = [cls.of(problem) for problem in problems]
        return cls(*(np.array([float(getattr(one, field.name)) for one in sizes]) for field in fields(cls)))

    def multiplied(self, swapped: Values) -> Sizes:
        """The problem of D^T = B^T A^T where A and B are swapped."""
        if not np.any(swapped):
            return self
        swaps = swapped > 0
        changed: dict[str, Any] = {}
        for one, other in (("m", "n"), ("a_pitch", "b_pitch"), ("a_shared", "b_shared")):
            own = getattr(self, one), getattr(self, other)
            if any(isinstance(each, np.ndarray) for each in own) or own[0] != own[1]:
                changed |= {name: np.where(swaps, *pair) for name, pair in ((one, own[::-1]), (other, own))}
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Columns:
    """Configurations as the model sees them, an array for each property."""

    BM: Values
    BN: Values
    warpgroups: Values
    blocks: Values                              # of 64 rows by all columns that one warpgroup stores; a fraction if they share columns
    pingpong: Values
    cluster_m: Values
    cluster_n: Values
    splits: Values
    in_cluster: Values
    stream: Values
    stages: Values
    staged: Values
    along_n: Values
    panel: Values
    a_rows: Values
    resident: Values                            # CTAs at work at a time
    swapped: Values                             # whether A and B are
    factor: Values
    held: Values                                # columns of B in a stage
    ctas: Values = 1.0                          # of an SM at a time

    @classmethod
    def of(cls, configs: Sequence[DenseConfig], card: Card, costs: Costs) -> Columns:
        """Those of configurations."""
        seen = cls._of([(config, config.stages, config.staged, config.loads.a_rows) for config in configs], card, costs)
        return seen.sharing_sms(np.array([config.smem_bytes for config in configs]))

    @classmethod
    def of_structures(cls, found: Sequence[Structure], card: Card, costs: Costs) -> Columns:
        """Those of structures, still without their rings, which depend on the operands; for more rows than a copy of A can leave out."""
        return cls._of([(one, 0, False, 0) for one in found], card, costs)

    @classmethod
    def of_rings(cls, found: Sequence[tuple[Structure, int]], card: Card, costs: Costs) -> Columns:
        """Those of structures with rings of so many stages, which store by tensor copies."""
        return cls._of([(one, stages, True, 0) for one, stages in found], card, costs)

    @classmethod
    def _of(cls, seen: Sequence[tuple[DenseConfig | Structure, int, bool, int]], card: Card, costs: Costs) -> Columns:
        rows, resident = [], [max(1, card.resident(size)) for size in range(MAX_CLUSTER + 1)]
        for one, stages, staged, a_rows in seen:
            tile, scheduler, warpgroups = one.tile, one.scheduler, one.warpgroups
            swizzle = scheduler.order if isinstance(scheduler.order, Swizzle) and scheduler.order != WHOLE else Swizzle()
            cluster, split = shared_by(scheduler), scheduler if isinstance(scheduler, SplitK) else None
            pingpong = isinstance(one.schedule, Pingpong)
            rows.append((tile.BM, tile.BN, warpgroups, tile.BM / ROWS / (1 if pingpong else warpgroups), pingpong, cluster.m, cluster.n,
                         split.splits if split else 1, split is not None and split.reduce == "cluster", isinstance(scheduler, StreamK),
                         stages, staged, swizzle.raster == "along_n", swizzle.size, a_rows, resident[one.cluster],
                         one.swap_ab, factor(costs.factors, structure(one)), one.spanned.BN if isinstance(one, DenseConfig) else tile.BN))
        return cls(*np.array(rows, dtype=np.float64).T)

    def sharing_sms(self, smem_bytes: Any) -> Columns:
        """With as many CTAs on an SM as their shared memory and registers allow, where one mma warpgroup works for itself."""
        registers = np.ceil((self.blocks * self.BN / 2 + SPARE_REGISTERS) / 8) * 8
        fit = np.minimum((SHARED_LIMIT + RESERVED_BYTES) // (smem_bytes + RESERVED_BYTES), SM_REGISTERS // (registers * 2 * WARPGROUP))
        ctas = np.where((self.warpgroups == 1) & (self.cluster_m * self.cluster_n == 1) & (self.in_cluster == 0), np.maximum(fit, 1.0), 1.0)
        return replace(self, ctas=ctas, resident=self.resident * ctas)


def remainder(values: Values, of: Values) -> Values:
    """What whole numbers leave over, in a tenth of the time of `np.mod`."""
    return values - np.floor(values / of) * of


def _lines(pitch: Values, straddle: float) -> Values:
    """Lines of the L2 that 128 bytes of a row touch, in the mean over rows at this pitch."""
    return 1.0 + straddle * (1.0 - np.gcd(np.asarray(pitch, dtype=np.int64), LINE) / LINE)


@dataclass(frozen=True, slots=True)
class Parts:
    """What an estimate is made of, in clocks: arrays over the configurations."""

    total: Values
    waves: Values
    steps: Values                               # stages of a work tile
    copy: Values                                # of a stage
    multiply: Values
    stage: Values                               # both, and what a stage costs besides
    store: Values                               # a tile's epilogue
    tiles: Values                               # all stages and epilogues of a CTA
    reduction: Values
    memory: Values
    bytes: Values                               # read from memory
    cluster: Values                             # until the CTAs of a cluster have begun
    factor: Values                              # how many times as long such structures take as by these causes


def estimate(costs: Costs, asked: Sizes, seen: Columns) -> Parts:
    """The clocks of one launch, by configuration."""
    c, row_bytes = costs, asked.n * asked.out_size
    a_lines, b_lines = _lines(asked.a_pitch, c.straddle), _lines(asked.b_pitch, c.straddle)
    upright, asked = asked, asked.multiplied(seen.swapped)
    if asked is not upright:
        a_lines, b_lines = (np.where(seen.swapped > 0, *pair) for pair in ((b_lines, a_lines), (a_lines, b_lines)))
    depth = np.maximum(1.0, np.ceil(asked.k * asked.size / STAGE_BYTES))
    rows, columns = np.ceil(asked.m / seen.BM), np.ceil(asked.n / seen.BN)
    size = seen.cluster_m * seen.cluster_n
    clusters = np.ceil(rows / seen.cluster_m) * np.ceil(columns / seen.cluster_n) * asked.batches
    tiles = clusters * size
    units = tiles * seen.splits
    split, stream = seen.splits > 1, seen.stream > 0
    full = np.floor(units / seen.resident + 1e-9)
    last = units - full * seen.resident
    steps = np.ceil(depth / seen.splits)

    # One stage: what is copied, and what it waits for.
    a_rows = np.minimum(seen.BM, np.ceil(asked.m / 8) * 8)
    if np.any(seen.a_rows):
        a_rows = np.where(seen.a_rows > 0, seen.a_rows, a_rows)
    b_rows = np.minimum(seen.held, np.ceil(asked.n / 8) * 8)
    batched = asked.batches > 1                 # products have few tiles, of which many are partly beyond their ends
    a_there, b_there = a_rows, b_rows
    if np.any(batched):
        a_there = np.where(batched, np.minimum(a_rows, asked.m / rows), a_rows)
        b_there = np.where(batched, np.minimum(b_rows, asked.n / columns * seen.held / seen.BN), b_rows)
    touched = LINE * (a_there * a_lines / seen.cluster_n + b_there * b_lines / seen.cluster_m)
    beyond = (1.0 + c.out_of_bounds_m * (1 - asked.m / (rows * seen.BM)) * rows
              + c.out_of_bounds_n * (1 - asked.n / (columns * seen.BN)) * columns)
    shared = 1.0 + c.narrow * np.maximum(0.0, (64 + 4096 / seen.BN) / LINE - 1)        # reads of shared memory, which do not wait for wgmma
    multiply = c.mma * seen.BM / 64 * seen.BN * 2 * np.maximum(1 / c.tensor, shared)
    besides = np.where(seen.warpgroups == 1, c.stage_1, c.stage)
    ingested, products = LINE * (a_rows + b_rows) / c.ingest, multiply ** c.sharpness
    waited = (c.latency + c.latency_mma * multiply) / seen.stages

    def copied(active: Values) -> Values:
        return np.maximum(ingested, touched * (1 / c.l2 + active / c.l2_all)) * beyond

    def together(copies: Values) -> Values:
        return (products + copies ** c.sharpness) ** (1 / c.sharpness)

    runs = np.minimum(seen.resident, np.maximum(tiles, np.floor(tiles * depth / MIN_STAGES_OF_PART)))     # of stream-K
    copy = copied(np.minimum(units, seen.resident) / seen.ctas)
    both = together(np.where(stream, copied(runs), copy))
    busy = np.maximum(both, waited) + besides
    rest = np.maximum(together(copied(last / seen.ctas)), waited) + besides

    # Work tiles, in waves.
    straddled = 1.0 + c.straddled_store * (1.0 - np.gcd(np.asarray(row_bytes, dtype=np.int64), LINE) / LINE)
    store = c.epilogue + np.where(seen.staged > 0, c.block, c.block_direct) * seen.blocks * seen.BN / 8 * asked.out_size / 2 * straddled
    pingpong = seen.pingpong > 0

    def tile(each: Values, count: Values) -> Values:
        alone = np.where(pingpong, np.maximum(count * each + c.hand_over, (count * each + store) / 2), count * each + store)
        shared_by_all = seen.ctas * (count * both + store / STORES_AT_ONCE)
        return np.where(seen.ctas > 1, np.maximum(alone, shared_by_all), alone)

    partly = np.where(last > 0.5, np.where(full > WHOLE_WAVES, 0.5, 1.0), 0.0) * c.tail
    waves = full + partly
    work = full * tile(busy, steps) + partly * tile(rest, steps) + np.where(pingpong, store, 0.0)

    # Stream-K: equal runs of stages, and the sums of tiles that several runs share.
    run = tiles * depth / runs
    sums = seen.BM * seen.BN * 4.0
    whole = np.ceil(np.maximum(1.0, tiles / runs))
    runs_of_tile = np.minimum(np.maximum(np.ceil(runs / tiles), 1), 64)
    fix = np.where(remainder(tiles, runs) > 0.5, c.stream_sums + sums / c.stream_sums_rate * runs_of_tile, 0.0)
    stages = run * busy
    streamed = np.where(pingpong, np.maximum(stages + whole * c.hand_over, (stages + whole * store) / 2) + store, stages + whole * store)
    work = np.where(stream, streamed, work)
    reduction = np.where(stream, fix, np.where(split, np.where(seen.in_cluster > 0, c.cluster_sums + waves * sums / c.cluster_sums_rate,
                                                               c.workspace_sums + waves * sums / c.workspace_sums_rate), 0.0))
    grouped = np.where(seen.in_cluster > 0, seen.splits, size) > 1

    # Memory: operands once, and again what the L2 does not keep from wave to wave or between CTAs that are at different places of K.
    read = _read(c, upright, seen, rows, columns, tiles)
    results = upright.m * upright.n * asked.batches * (asked.out_size * c.stores * straddled + asked.added)
    ring = seen.stages * np.where(batched, a_there + b_there, seen.BM + seen.BN) * LINE
    rate = np.minimum(c.memory, np.where(stream, runs, np.minimum(units, seen.resident)) * ring / c.latency * c.in_flight)
    memory = (read + results) / rate
    cluster = np.where(grouped, c.cluster, 0.0)
    total = work + reduction + cluster
    total = (c.launch + (total ** c.overlap + memory ** c.overlap) ** (1 / c.overlap)) * seen.factor
    steps = np.where(stream, run, steps)
    return Parts(total, waves, steps, copy, multiply, busy, store, work, reduction, memory, read, cluster, seen.factor)


def _read(c: Costs, asked: Sizes, seen: Columns, rows: Values, columns: Values, tiles: Values) -> Values:
    """Bytes of A and B that come from memory. The tiles of one product of a batch follow one another, so that its operands are read as if
    it were alone; of what all share, each further product reads again only what the L2 does not keep while one passes by. `asked` is the
    problem as it is given: swapping A and B changes none of its bytes."""
    each = (asked.m + asked.n) * asked.k * asked.size
    saved = (asked.m * asked.a_shared + asked.n * asked.b_shared) * asked.k * asked.size * (asked.batches - 1)
    operands = each * asked.batches - saved
    of_each = tiles / asked.batches
    at_once = np.minimum(of_each, seen.resident)
    in_panel = seen.panel * np.where(seen.along_n > 0, seen.cluster_n, seen.cluster_m)
    high = np.where(seen.along_n > 0, np.minimum(np.ceil(at_once / np.minimum(in_panel, columns)), rows), np.minimum(in_panel, rows))
    wide = np.minimum(np.ceil(at_once / high), columns)
    line = asked.k * asked.size
    waves = np.ceil(of_each / np.maximum(1.0, high * wide)) * (high * seen.BM + wide * seen.BN) * line
    lost = np.maximum(0.0, (each - c.l2_bytes) / each)
    by_waves = (each + np.maximum(0.0, waves - each) * lost) * asked.batches - saved * (1 - lost)
    split = np.minimum(tiles, np.where(tiles > 2 * seen.resident, remainder(tiles, seen.resident) + seen.resident, tiles))
    size = seen.cluster_m * seen.cluster_n
    apart = split / size * (seen.BM * seen.cluster_m + seen.BN * seen.cluster_n) * line * c.stream_reads
    alone = np.maximum(0.0, (operands - c.l2_bytes_stream) / operands)
    streamed = operands + (apart - operands * np.minimum(1.0, 2 * seen.resident / tiles)) * alone
    return np.where(seen.stream > 0, np.maximum(by_waves, streamed), by_waves)


class CostsError(ValueError):
    """A file that has no constants."""


def taken(record: Any, places: Any) -> Any:
    """Some entries of a record whose fields are arrays; what is no array stays."""
    values = [getattr(record, name) for name in record.__slots__]
    return type(record)(*(value[places] if isinstance(value, np.ndarray) and value.ndim else value for value in values))


def fit_path(name: str) -> Path:
    """Where the constants of a card of this name are kept."""
    return FOLDER / "fits" / file_name(name)


def read(path: Path) -> Costs:
    """The constants in a file. Raises CostsError."""
    try:
        data = read_kept(path)
        return Costs(**{name: float(value) for name, value in data["constants"].items()},
                     factors={name: float(value) for name, value in data["factors"].items()})
    except WRONG_DATA as error:
        raise CostsError(f"{path} has no constants of the cost model: {error!r}") from None


def write(path: Path, costs: Costs, about: Mapping[str, Any]) -> None:
    """Keeps the constants, and what is to be said about them."""
    kept = asdict(costs)
    del kept["tensor"]
    factors = {name: float(f"{value:.3f}") for name, value in sorted(kept.pop("factors").items())}
    constants = {name: float(f"{value:.4g}") for name, value in kept.items()}
    lines = [f'"{name}": {json.dumps(value)}' for name, value in about.items()]
    lines += [f'"constants": {json.dumps(constants)}', '"factors": {\n  ' + ",\n  ".join(
        f"{json.dumps(name)}: {value}" for name, value in factors.items()) + "\n }"]
    write_whole(path, ("{\n " + ",\n ".join(lines) + "\n}\n").encode())


def fitted_as(card: Card) -> Card:
    """The card whose constants a card has: its own, else those of the measured card whose memory is nearest in speed."""
    if fit_path(card.name).is_file():
        return known(card.name) or card
    measured = [other for other in CARDS.values() if fit_path(other.name).is_file()]
    return min(measured, key=lambda other: abs(math.log(other.memory_gbs / card.memory_gbs)))


@functools.lru_cache(16)
def of_card(card: Card) -> Costs:
    """The constants of a card: its own, else what follows from those of `fitted_as`."""
    measured = fitted_as(card)
    return following(read(fit_path(measured.name)), measured, card)


def following(costs: Costs, measured: Card, card: Card) -> Costs:
    """The constants of a card that is like a measured one but for its numbers: bytes of its memory and L2 in a clock of its SMs, its tensor
    cores, and times that do not depend on the clock."""
    if card == measured:
        return costs
    clock, l2 = card.clock_mhz / measured.clock_mhz, card.l2_mib / measured.l2_mib
    return replace(costs, memory=costs.memory * card.memory_gbs / measured.memory_gbs / clock, l2_all=costs.l2_all * min(1.0, l2) / clock,
                   l2_bytes=costs.l2_bytes * l2, l2_bytes_stream=costs.l2_bytes_stream * l2, launch=costs.launch * clock,
                   latency=costs.latency * clock, tensor=card.tensor / measured.tensor)


__all__ = ["SWAPPED", "Columns", "Costs", "CostsError", "Parts", "Sizes", "estimate", "factor", "fit_path", "fitted_as",
           "following", "of_card", "read", "remainder", "structure", "taken", "write"]
