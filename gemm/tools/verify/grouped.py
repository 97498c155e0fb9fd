"""Grouped products on the GPU: random lengths, types, layouts and configurations against float64, with poisoned results."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from ptxkit.cards import H200, Card

from ...config.grouped import CONTIGUOUS_ROWS, GroupedConfig, GroupLoads, StagedGroups, StaticGroups, StreamGroups
from ...config.parts import ConfigError, Direct, Overlap, Pingpong
from ...heuristic.group_tile import in_this_order
from ...heuristic.grouped import heuristic
from ...heuristic.grouped_overlaps import at_the_start
from ...heuristic.grouped_tiles import PAIR
from ...launch.grouped import group_gemm, group_gemm_contiguous, group_gemm_masked
from ...launch.ptr_array import group_gemm_pointers
from ...problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ...scheduler.group_table import Layout
from ...scheduler.grouped import Order
from ..assembly import assemble
from ..grouped_example import padded_to
from ..grouped_settings import from_defaults
from ..options import card as card_of
from ..problems import array, scales_by_rows
from ..reference import EIGHT_BITS, accumulation, silu_and_mul
from . import guarded
from .trials import Checked, blockwise, launched, wrong
from .trials import run as run_checks

VECTORS = ("row", "column", "row_column")
"""Scales, of which each row of x has one, each feature of a group, or both."""


@dataclass(frozen=True)
class Trial:
    """One launch. `lengths` are the groups'; `pad` rows follow the last one."""

    lengths: tuple[int, ...]
    n: int
    k: int
    dtype: str
    scales: str
    out: str
    gated: bool
    layout: Layout
    mean: float | None
    fast: bool | None
    pad: int
    order: Order | None = None
    ends: str = "ragged"                        # how stores end with the group: also "direct"
    waves: tuple[int, int] | None = None        # the costs of two tiles, where a second kernel may have some groups or all
    between: int | None = None                  # the time between the two kernels, where they may share the groups
    pairs: bool = False                         # whether pairs of CTAs share the tokens
    most: int = 0                               # how many CTAs share the K of a tile, where they can
    overlap: Overlap = "start"                  # when the next kernel begins, where CTAs know their tiles
    apart: bool = False                         # whether block scales of masked groups lie as DeepGEMM lays them out

    @property
    def lines(self) -> int:
        """Rows of a group's weights."""
        return self.n * (2 if self.gated else 1)

    @property
    def copied(self) -> bool:
        """Whether the block scales of x lie as the producer can copy them."""
        return self.pad > 0 and self.layout != "masked"

    @property
    def taken(self) -> list[int]:
        """Rows that each group takes up."""
        if self.layout == "masked":
            return [max((1, *self.lengths)) + self.pad] * len(self.lengths)
        unit = CONTIGUOUS_ROWS if self.layout == "contiguous" else 1
        return [-(-length // unit) * unit for length in self.lengths]

    @property
    def rows(self) -> int:
        """Rows of x."""
        return sum(self.taken) + {"masked": 0, "contiguous": CONTIGUOUS_ROWS}.get(self.layout, self.pad)

    @property
    def starts(self) -> list[int]:
        """First row of each group."""
        return [0, *itertools.accumulate(self.taken)][:len(self.lengths)]

    def problem(self) -> GroupProblem:
        """The problem, of arrays without memory."""
        word, groups, depth = self.dtype, len(self.lengths), -(-self.k // 128)
        shape = (groups, self.rows // max(1, groups)) if self.layout == "masked" else (self.rows,)
        count = {"masked": groups, "contiguous": self.rows, "cu_seqlens": groups + 1}[self.layout]
        scales: tuple[Any, Any] = (None, None)
        if self.scales == "block":
            x_scale = scales_by_rows(self.rows, depth) if self.copied else array("f32", *shape, depth)
            if self.apart:
                room = -(-shape[-1] // 4) * 4
                x_scale = x_scale._replace(strides=(depth * room, 1, room))
            scales = x_scale, array("f32", groups, -(-self.lines // 128), depth)
        elif self.scales in VECTORS:
            scales = (array("f32", *shape) if "row" in self.scales else array("f32", 1),
                      array("f32", groups, self.lines) if "column" in self.scales else array("f32", groups))
        elif self.scales != "none":
            scales = array("f32", 1), array("f32", 1 if self.scales == "one" else groups)
        arrays = GroupArrays(array(word, *shape, self.k), array(word, groups, self.lines, self.k), array("s32", count),
                             array(self.out, *shape, self.n), *scales)
        return GroupProblem(arrays, GroupOptions(self.layout, self.gated, self.mean, self.fast))

    def config(self, card: Card = H200) -> GroupedConfig | None:
        """What it is launched with on a card: the heuristic's configuration, with this trial's changes where they go together."""
        problem = self.problem()
        if problem.empty:
            return None
        found = heuristic(problem, card)
        if self.pairs and not problem.by_element:
            with contextlib.suppress(ConfigError):
                found = PAIR.config(problem.operands, problem.sums, GroupLoads(), False)
        if self.order:
            with contextlib.suppress(ConfigError):
                found = replace(found, scheduler=in_this_order(found.scheduler, self.order))
        if self.most:
            with contextlib.suppress(ConfigError):
                changes = {"tile.BM": 64, "tile.BN": 128 if self.gated else 64, "scheduler": StreamGroups(most=self.most)}
                return from_defaults(problem, changes | ({"store": Direct(1)} if problem.by_element else {}))
        if problem.by_element:
            return found
        if self.ends != "ragged" and found.staged:
            with contextlib.suppress(ConfigError):
                found = replace(found, store=Direct() if self.ends == "direct" else StagedGroups(found.buffers, "tensormap"))
        if self.waves is not None:
            found = at_the_start(found)
            with contextlib.suppress(ConfigError):
                other = from_defaults(problem, {"tile.BM": 128, "tile.BN": 64, **({} if problem.promote else {"schedule": Pingpong()})})
                found = found.alone.or_(found.cost(self.waves[0]), other, other.cost(self.waves[1]), self.between)
        if isinstance(found.scheduler, StaticGroups) and found.plan is None:
            found = replace(found, scheduler=replace(found.scheduler, overlap=self.overlap))
        return found


def trials(count: int, seed: int, of_each: int = 8) -> list[Trial]:
    """Random trials: few and many groups; lengths 0, 1, 7, near those of tiles, and all rows in one group; several lengths of each kind."""
    rng, sharing, beginning = random.Random(seed), random.Random(f"{seed} sharing"), random.Random(f"{seed} beginning")
    found: list[Trial] = []
    while len(found) < count:
        groups = rng.choice((1, 2, 3, 5, 8, 31, 33, 64, 200, 256, 300, 1000, 1100))
        dtype = rng.choice(("bf16", "f16", "e4m3", "e5m2", "e4m3"))
        fp8 = dtype in EIGHT_BITS
        scales = rng.choice(("none", "one", "group", "block", "block", *VECTORS)) if fp8 else rng.choice(("none", "none", "group"))
        gated = rng.random() < 0.25
        layout: Layout = rng.choice(("cu_seqlens", "cu_seqlens", "cu_seqlens", "masked", "contiguous")) if groups < 64 else "cu_seqlens"
        out, mean = rng.choice(("bf16", "f16", "f32")), rng.choice((1.0, 16.0, 40.0, 128.0, 1000.0))
        fast = rng.choice((None, False, True)) if fp8 and scales != "block" else None
        ways: dict[str, Any] = {"order": rng.choice((None, None, "search", "across", "dynamic", "dynamic")),
                                "ends": rng.choice(("ragged", "ragged", "direct", "tensormap")),
                                "waves": rng.choice((None, None, (2, 1), (1, 1))), "between": rng.choice((None, 0)),
                                "pairs": rng.random() < 0.2, "overlap": beginning.choice(get_args(Overlap))}
        most = sharing.choice((0, 0, 0, 0, 2, 4, 8))
        for _ in range(min(of_each, count - len(found))):
            n = 8 * rng.randint(1, 60) if groups < 64 else 8 * rng.randint(1, 20)
            if gated and scales == "block":
                n = rng.choice((8, 64, 128)) * rng.randint(1, 4)
            elif rng.random() < 0.2:
                n = rng.randint(1, 200)
            k = 512 * rng.randint(1, 3) if scales == "block" and rng.random() < 0.5 else (16 if fp8 else 8) * rng.randint(1, 64)
            k = k * sharing.choice((1, 4, 8)) if most else k
            apart = layout == "masked" and scales == "block" and rng.random() < 0.5
            found.append(Trial(_lengths(rng, groups), n, k, dtype, scales, out, gated, layout, mean, fast, rng.choice((0, 0, 3, 130)),
                               **ways, apart=apart, most=most))
    return found


def _lengths(rng: random.Random, groups: int) -> tuple[int, ...]:
    top = max(1, 3000 // groups)
    near = (0, 0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129)
    found = [rng.choice((*near, rng.randint(0, top), rng.randint(0, top))) if groups < 64 else rng.choice((0, 0, 1, 3, rng.randint(0, 20)))
             for _ in range(groups)]
    if rng.random() < 0.15:
        whole, found = sum(found) + 1, [0] * groups
        found[rng.randrange(groups)] = whole
    return tuple(found)


def check(torch: Any, trial: Trial, config: GroupedConfig | None = None) -> str | None:
    """A sentence when this launch is wrong, or not the same in a second run."""
    groups, rows, depth = len(trial.lengths), trial.rows, -(-trial.k // 128)
    if rows == 0:
        return None
    x, w = guarded.normal(torch, (rows, trial.k), trial.dtype), guarded.normal(torch, (groups, trial.lines, trial.k), trial.dtype)
    if trial.scales == "block":
        x_scale = _x_scale(torch, rows, depth)
        x_scale = x_scale if trial.copied else x_scale.contiguous()
        masked_scale = x_scale.view(groups, -1, depth) if trial.layout == "masked" else None
        if trial.apart:
            of_group = rows // groups
            masked_scale = guarded.scales(torch, groups, depth, -(-of_group // 4) * 4).transpose(1, 2)[:, :of_group]
            x_scale = masked_scale.reshape(rows, depth)
        w_scale = guarded.scales(torch, groups, -(-trial.lines // 128), depth)
    elif trial.scales in VECTORS:
        x_scale = guarded.scales(torch, rows if "row" in trial.scales else 1)
        masked_scale = x_scale.view(groups, -1) if "row" in trial.scales and trial.layout == "masked" else x_scale
        w_scale = guarded.scales(torch, groups, trial.lines) if "column" in trial.scales else guarded.scales(torch, groups)
    elif trial.scales != "none":
        x_scale, w_scale = guarded.scales(torch, 1), guarded.scales(torch, 1 if trial.scales == "one" else groups)
        masked_scale = x_scale
    else:
        x_scale = w_scale = masked_scale = None
    how: dict[str, Any] = {"w_scale": w_scale, "activation": "silu_and_mul" if trial.gated else None, "fast_accum": trial.fast,
                           "config": config or trial.config(card_of(None))}

    def launch(out: Any) -> None:
        if trial.layout == "contiguous":
            of_row = torch.full((rows,), -1, dtype=torch.int32)
            for group, (start, length) in enumerate(zip(trial.starts, trial.lengths, strict=True)):
                of_row[start:start + length] = group
            group_gemm_contiguous(x, w, of_row.cuda(), x_scale=x_scale, out=out, **how)
        elif trial.layout == "masked":
            shape = groups, rows // groups, -1
            group_gemm_masked(x.view(shape), w, torch.tensor(trial.lengths, dtype=torch.int32, device="cuda"), out=out.view(shape),
                              x_scale=masked_scale, mean_tokens=trial.mean, **how)
        else:
            group_gemm(x, w, _ends(torch, trial.lengths), x_scale=x_scale, out=out, mean_tokens=trial.mean, **how)

    unit = padded_to(how["config"]) if trial.layout == "contiguous" else 1
    owned = [-(-length // unit) * unit for length in trial.lengths]
    out, sentence = launched(torch, launch, lambda: guarded.array(torch, (rows, trial.n), trial.out), lambda out: [
        out[start:start + length] for start, length in zip(trial.starts, owned, strict=True)], "the groups")
    promoted = trial.scales == "block" or trial.fast is False
    for group, (start, length) in enumerate(zip(trial.starts, owned, strict=True)):     # padding may be multiplied, too
        if length and not sentence:
            own = slice(start, start + length)
            of_rows = trial.scales == "block" or (trial.scales in VECTORS and len(x_scale) == rows)
            scales = () if w_scale is None else (x_scale[own] if of_rows else x_scale, w_scale[group % len(w_scale)])
            why = wrong(torch, out[own], *_expected(torch, x[own], w[group], trial.dtype, scales, promoted, trial.gated), trial.out)
            sentence = why and f"group {group}: {why}"
    return sentence


def _ends(torch: Any, lengths: tuple[int, ...]) -> Any:
    return torch.tensor((0, *itertools.accumulate(lengths)), dtype=torch.int32, device="cuda")


def _x_scale(torch: Any, rows: int, depth: int) -> Any:
    """Block scales of x, those of all rows next to each other, on lines of 16 bytes."""
    return guarded.scales(torch, depth, -(-rows // 4) * 4).T[:rows]


def _expected(torch: Any, x: Any, w: Any, word: str, scales: tuple[Any, ...] = (), promoted: bool = False,
              gated: bool = False) -> tuple[Any, Any]:
    """A group's product in float64, and the error of its sums. `scales` are those of x and w: one number, one of each row, or one of each
    block."""
    a, b = x.float().double(), w.float().double()
    if scales and scales[0].dim() == 2:
        a, b = blockwise(x, scales[0], 1, 128), blockwise(w, scales[1], 128, 128)
    elif scales:
        a, b = (values * each.double().reshape(-1, 1) for values, each in zip((a, b), scales, strict=True))
    exact, error = a @ b.T, a.abs() @ b.abs().T * accumulation(x.shape[1], word, promoted)
    return silu_and_mul(exact, error, torch.nn.functional.silu) if gated else (exact, error)


def replay(torch: Any, seed: int) -> Iterator[str | None]:
    """One captured launch replayed with other lengths."""
    groups, rows, n, k = 9, 700, 264, 192
    rng = random.Random(seed)
    x, w = guarded.normal(torch, (rows, k), "bf16"), guarded.normal(torch, (groups, n, k), "bf16")
    ends = torch.zeros(groups + 1, dtype=torch.int32, device="cuda")
    out = guarded.array(torch, (rows, n), "bf16")
    group_gemm(x, w, ends, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        group_gemm(x, w, ends, out=out)
    for _ in range(8):
        cuts = [0, *sorted(rng.randint(0, rows) for _ in range(groups))]
        ends.copy_(torch.tensor(cuts, dtype=torch.int32))
        guarded.memory(torch, out).fill_(guarded.POISON)
        graph.replay()
        torch.cuda.synchronize()
        sentence = guarded.overwritten(torch, out, [out[:cuts[-1]]], "the groups")
        for group, own in enumerate(map(slice, cuts, cuts[1:])):
            sentence = sentence or wrong(torch, out[own], *_expected(torch, x[own], w[group], "bf16"), "bf16")
        yield sentence and f"a replay with {cuts}: {sentence}"


def pointers(torch: Any, seed: int) -> str | None:
    """Groups with matrices of their own, poisoned after each result."""
    rng = random.Random(seed)
    word, fp8 = ("e4m3", True) if seed % 2 else ("bf16", False)
    out = rng.choice(("bf16", "bf16", "f32"))
    xs, ws, ys = [], [], []
    for _ in range(rng.choice((1, 7, 40))):
        m, n, k = rng.choice((0, 1, 7, 64, 127, 130, 300)), 8 * rng.randint(1, 60), 16 * rng.randint(1, 40)
        xs.append(guarded.normal(torch, (m, k), word))
        ws.append(guarded.normal(torch, (n, k), word))
        ys.append(guarded.array(torch, (m + 3, n), out))
    sizes = torch.tensor([(*x.shape, len(w)) for x, w in zip(xs, ws, strict=True)], dtype=torch.int32)[:, [0, 2, 1]].contiguous().cuda()
    at = [torch.tensor([array.data_ptr() for array in arrays], dtype=torch.int64, device="cuda") for arrays in (xs, ws, ys)]
    scales = {"x_scale": torch.full((1,), 0.75, device="cuda"), "w_scale": guarded.scales(torch, len(xs))} if fp8 else {}
    mean = rng.choice((4, 16, 48, 128, 192, 400, 1000, 5000))
    group_gemm_pointers(at[0], at[1], at[2], sizes, dtype=word, out_dtype=out, mean_tokens=mean, **scales)
    torch.cuda.synchronize()
    for group, (x, w, y) in enumerate(zip(xs, ws, ys, strict=True)):
        own = (scales["x_scale"], scales["w_scale"][group]) if fp8 else ()
        sentence = guarded.overwritten(torch, y, [y[:len(x)]], "the result") \
            or wrong(torch, y[:len(x)], *_expected(torch, x, w, word, own), out)
        if sentence:
            return f"pointers, seed {seed}: group {group} of {len(xs)}, {tuple(x.shape)} by {tuple(w.shape)}, {mean} expected: {sentence}"
    return None


def quantised(torch: Any, seed: int) -> str | None:
    """Results in e4m3 with scales of their own: scales of the largest magnitudes, and nothing further off than a rounding."""
    rng = random.Random(seed)
    word, gated = rng.choice(("bf16", "e4m3")), rng.random() < 0.7
    lengths, n, k = _lengths(rng, rng.choice((1, 7, 40))), 128 * rng.randint(1, 6), 128 * rng.randint(1, 8)
    lines, rows, depth = (2 * n if gated else n), sum(lengths) + 3, k // 128
    x, w = guarded.normal(torch, (rows, k), word), guarded.normal(torch, (len(lengths), lines, k), word)
    out, out_scale = guarded.array(torch, (rows, n), "e4m3"), guarded.array(torch, (n // 128, rows), "f32", pad=1).T
    scales: dict[str, Any] = {}
    if word == "e4m3":
        scales = {"x_scale": _x_scale(torch, rows, depth), "w_scale": guarded.scales(torch, len(lengths), lines // 128, depth)}
    group_gemm(x, w, _ends(torch, lengths), **scales, out=out, out_scale=out_scale, activation="silu_and_mul" if gated else None)
    torch.cuda.synchronize()
    where, end = f"quantised, seed {seed}: {word}, {'gated, ' if gated else ''}{len(lengths)} groups, N {n}, K {k}", sum(lengths)
    if sentence := guarded.overwritten(torch, out, [out[:end]], "the groups") \
            or guarded.overwritten(torch, out_scale, [out_scale[:end]], "the groups' scales"):
        return f"{where}: {sentence}"
    for group, (start, length) in enumerate(zip(itertools.accumulate((0, *lengths)), lengths, strict=False)):
        own = slice(start, start + length)
        if not length:
            continue
        of_group = (scales["x_scale"][own], scales["w_scale"][group]) if scales else ()
        exact, loss = _expected(torch, x[own], w[group], word, of_group, bool(scales), gated)
        factors = out_scale[own].double().repeat_interleave(128, 1)
        largest = exact.abs().view(length, -1, 128).amax(2).repeat_interleave(128, 1)
        room = loss.view(length, -1, 128).amax(2).repeat_interleave(128, 1) + 1e-6 * largest + 1e-12
        values = out[own].float().double()
        allowed = loss + factors * torch.clamp(values.abs() / 16, min=2.0**-10) * 1.001
        if sentence := wrong(torch, factors * 448, largest, room):
            return f"{where}: scales of group {group}: {sentence}"
        if sentence := wrong(torch, values * factors, exact, allowed):
            return f"{where}: values of group {group}: {sentence}"
    return None


def gathered(torch: Any, seed: int) -> str | None:
    """Rows of x anywhere, among rows of NaN that no number names; some numbers are of no row."""
    rng = random.Random(seed)
    word, gated = rng.choice(("bf16", "f16", "e4m3")), rng.random() < 0.5
    lengths, n, k = _lengths(rng, rng.choice((1, 7, 40, 300))), 8 * rng.randint(1, 60), 16 * rng.randint(1, 60)
    rows, total, mean = sum(lengths) + 3, 2 * sum(lengths) + 8, rng.choice((None, 4.0, 40.0, 192.0, 1000.0))
    x, w = guarded.normal(torch, (total, k), word), guarded.normal(torch, (len(lengths), n * (1 + gated), k), word)
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randperm(total, generator=generator)[:rows]
    unnamed = torch.ones(total, dtype=torch.bool)
    unnamed[numbers] = False
    x.view(torch.uint8)[unnamed.cuda()] = 0xFF
    numbers[torch.rand(rows, generator=generator) < 0.125] = -1
    numbers = numbers.int().cuda()
    given = torch.where((numbers < 0)[:, None], 0, x.float()[numbers.clamp(min=0).long()])
    out, sentence = launched(torch, lambda out: group_gemm(x, w, _ends(torch, lengths), gather=numbers, out=out, mean_tokens=mean,
                                                           activation="silu_and_mul" if gated else None),
                             lambda: guarded.array(torch, (rows, n), "bf16"), lambda out: [out[:sum(lengths)]], "the groups")
    for group, (start, length) in enumerate(zip(itertools.accumulate((0, *lengths)), lengths, strict=False)):
        if length and not sentence:
            own = slice(start, start + length)
            sentence = wrong(torch, out[own], *_expected(torch, given[own], w[group], word, gated=gated), "bf16")
    return sentence and f"gathered, seed {seed}: {word}, {'gated, ' if gated else ''}{len(lengths)} groups, N {n}, K {k}: {sentence}"


def run(count: int, seed: int) -> dict[str, Any]:
    """Check `count` random launches, replays, groups with matrices of their own, gathered rows and quantised results; {"trials",
    "failures", ...}."""
    def checks(torch: Any) -> Iterator[Checked]:
        chosen, card = trials(count, seed), card_of(None)
        assemble([config for config in (trial.config(card) for trial in chosen) if config is not None], print)
        for trial in chosen:
            yield {**asdict(trial), "lengths": list(trial.lengths)[:40]}, check(torch, trial)
        yield from (({}, sentence) for sentence in replay(torch, seed))
        yield from (({}, pointers(torch, seed + each)) for each in range(24))
        yield from (({}, quantised(torch, seed + each)) for each in range(6))
        yield from (({}, gathered(torch, seed + each)) for each in range(12))

    return run_checks(seed, "trials", checks)


__all__ = ["Trial", "check", "gathered", "pointers", "quantised", "replay", "run", "trials"]
