"""Grouped products on the GPU: random lengths, types, layouts and configurations against float64, with poisoned results."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from ptxkit.errors import LaunchError

from ..config.grouped import CONTIGUOUS_ROWS, GroupedConfig, GroupLoads, StagedGroups
from ..config.parts import ConfigError, Direct, Pingpong
from ..heuristic.group_tile import in_this_order
from ..heuristic.grouped import heuristic
from ..heuristic.grouped_tiles import PAIR
from ..launch.grouped import group_gemm, group_gemm_contiguous, group_gemm_masked
from ..launch.ptr_array import group_gemm_pointers
from ..problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ..scheduler.group_table import Layout
from ..scheduler.grouped import Order
from .assembly import assemble
from .grouped_settings import from_defaults
from .problems import array, scales_by_rows
from .reference import HALF_TINY, HALF_ULP, accumulation


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
            scales = x_scale, array("f32", groups, -(-self.lines // 128), depth)
        elif self.scales != "none":
            scales = array("f32", 1), array("f32", 1 if self.scales == "one" else groups)
        arrays = GroupArrays(array(word, *shape, self.k), array(word, groups, self.lines, self.k), array("s32", count),
                             array(self.out, *shape, self.n), *scales)
        return GroupProblem(arrays, GroupOptions(self.layout, self.gated, self.mean, self.fast))

    def config(self) -> GroupedConfig | None:
        """What it is launched with: the heuristic's configuration, with this trial's changes where they go together."""
        problem = self.problem()
        if problem.empty:
            return None
        found = heuristic(problem)
        if self.pairs:
            with contextlib.suppress(ConfigError):
                found = PAIR.config(problem.operands, problem.sums, GroupLoads(), False)
        if self.order:
            with contextlib.suppress(ConfigError):
                found = replace(found, scheduler=in_this_order(found.scheduler, self.order))
        if self.ends != "ragged" and found.staged:
            with contextlib.suppress(ConfigError):
                found = replace(found, store=Direct() if self.ends == "direct" else StagedGroups(found.buffers, "tensormap"))
        if self.waves is not None:
            with contextlib.suppress(ConfigError):
                other = from_defaults(problem, {"tile.BM": 128, "tile.BN": 64, **({} if problem.promote else {"schedule": Pingpong()})})
                found = found.alone.or_(found.cost(self.waves[0]), other, other.cost(self.waves[1]), self.between)
        return found


def trials(count: int, seed: int, of_each: int = 8) -> list[Trial]:
    """Random trials: few and many groups; lengths 0, 1, 7, near those of tiles, and all rows in one group; several lengths of each kind."""
    rng = random.Random(seed)
    found: list[Trial] = []
    while len(found) < count:
        groups = rng.choice((1, 2, 3, 5, 8, 31, 33, 64, 200, 256, 300, 1000))
        dtype = rng.choice(("bf16", "f16", "e4m3", "e5m2", "e4m3"))
        fp8 = dtype in ("e4m3", "e5m2")
        scales = rng.choice(("none", "one", "group", "block", "block")) if fp8 else rng.choice(("none", "none", "group"))
        gated = rng.random() < 0.25
        layout: Layout = rng.choice(("cu_seqlens", "cu_seqlens", "cu_seqlens", "masked", "contiguous")) if groups < 64 else "cu_seqlens"
        out, mean = rng.choice(("bf16", "f16", "f32")), rng.choice((1.0, 16.0, 40.0, 128.0, 1000.0))
        fast = rng.choice((None, False, True)) if fp8 and scales != "block" else None
        ways: dict[str, Any] = {"order": rng.choice((None, None, "search", "across", "dynamic", "dynamic")),
                                "ends": rng.choice(("ragged", "ragged", "direct", "tensormap")),
                                "waves": rng.choice((None, None, (2, 1), (1, 1))), "between": rng.choice((None, 0)),
                                "pairs": rng.random() < 0.2}
        for _ in range(min(of_each, count - len(found))):
            n = 8 * rng.randint(1, 60) if groups < 64 else 8 * rng.randint(1, 20)
            if gated and scales == "block":
                n = 128 * rng.randint(1, 4)
            k = 512 * rng.randint(1, 3) if scales == "block" and rng.random() < 0.5 else (16 if fp8 else 8) * rng.randint(1, 64)
            found.append(Trial(_lengths(rng, groups), n, k, dtype, scales, out, gated, layout, mean, fast, rng.choice((0, 0, 3, 130)),
                               **ways))
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
    """A sentence when this launch is wrong."""
    groups, rows, starts, lines = len(trial.lengths), trial.rows, trial.starts, trial.lines
    masked, longest = trial.layout == "masked", rows // max(1, groups)
    if rows == 0:
        return None
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[trial.dtype]
    result = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[trial.out]
    x, w = torch.randn((rows, trial.k), device="cuda").to(kind), torch.randn((groups, lines, trial.k), device="cuda").to(kind)
    out = torch.empty((rows, trial.n), device="cuda", dtype=result)
    bits = out.view(torch.int32 if trial.out == "f32" else torch.int16)
    poison = 0x7FC0_1234 if trial.out == "f32" else 0x7FE5
    bits.fill_(poison)
    x_scale = w_scale = None
    depth = -(-trial.k // 128)
    if trial.scales == "block":
        x_scale = (torch.rand((depth, -(-rows // 4) * 4), device="cuda") + 0.5).T[:rows]
        x_scale = x_scale if trial.copied else x_scale.contiguous()
        w_scale = torch.rand((groups, -(-lines // 128), depth), device="cuda") + 0.5
    elif trial.scales != "none":
        x_scale = torch.rand((1,), device="cuda") + 0.5
        w_scale = torch.rand((1 if trial.scales == "one" else groups,), device="cuda") + 0.5
    how: dict[str, Any] = {"w_scale": w_scale, "activation": "silu_and_mul" if trial.gated else None, "mean_tokens": trial.mean,
                           "fast_accum": trial.fast, "config": config or trial.config()}
    try:
        if masked:
            per_group = x_scale
            if x_scale is not None and trial.scales == "block":
                per_group = x_scale.view(groups, longest, depth)
            group_gemm_masked(x.view(groups, longest, trial.k), w, torch.tensor(trial.lengths, dtype=torch.int32, device="cuda"),
                              x_scale=per_group, out=out.view(groups, longest, trial.n), **how)
        elif trial.layout == "contiguous":
            of_row = torch.full((rows,), -1, dtype=torch.int32)
            for group, (start, length) in enumerate(zip(starts, trial.lengths, strict=True)):
                of_row[start:start + length] = group
            how.pop("mean_tokens")
            group_gemm_contiguous(x, w, of_row.cuda(), x_scale=x_scale, out=out, **how)
        else:
            ends = torch.tensor((0, *itertools.accumulate(trial.lengths)), dtype=torch.int32, device="cuda")
            group_gemm(x, w, ends, x_scale=x_scale, out=out, **how)
    except LaunchError as error:
        return f"refused: {error}"
    torch.cuda.synchronize()
    inside = torch.zeros((rows, 1), dtype=torch.bool, device="cuda")
    for start, length, taken in zip(starts, trial.lengths, trial.taken, strict=True):
        inside[start:start + (taken if trial.layout == "contiguous" else length)] = True
    if not bool(((bits == poison) | inside).all()):
        return f"{int(((bits != poison) & ~inside).sum())} elements outside the groups were written"
    return _compare(torch, trial, x, w, x_scale, w_scale, out, starts)


def _compare(torch: Any, trial: Trial, x: Any, w: Any, x_scale: Any, w_scale: Any, out: Any, starts: list[int]) -> str | None:
    loss = accumulation(trial.k, trial.dtype, promoted=trial.scales == "block" or trial.fast is False)
    worst, where = 0.0, 0
    for group, (start, length) in enumerate(zip(starts, trial.lengths, strict=True)):
        if not length:
            continue
        a, b = x[start:start + length].float().double(), w[group].float().double()
        if trial.scales == "block":
            a *= x_scale[start:start + length].double().repeat_interleave(128, 1)[:, :trial.k]
            b *= w_scale[group].double().repeat_interleave(128, 0)[:b.shape[0]].repeat_interleave(128, 1)[:, :trial.k]
        elif trial.scales != "none":
            b *= (w_scale[group if w_scale.numel() > 1 else 0] * x_scale).double()
        exact, magnitude = a @ b.T, a.abs() @ b.abs().T
        allowed = magnitude * loss + HALF_TINY[trial.out]
        if trial.gated:
            gate, up = exact[:, :trial.n], exact[:, trial.n:]
            error_gate, error_up = allowed[:, :trial.n], allowed[:, trial.n:]
            exact = torch.nn.functional.silu(gate) * up
            allowed = 1.1 * error_gate * up.abs() + (torch.nn.functional.silu(gate).abs() + error_gate) * error_up + 1e-5 * exact.abs()
        allowed = allowed + exact.abs() * HALF_ULP[trial.out] * 1.01 + HALF_TINY[trial.out]
        actual = out[start:start + length].double()
        if trial.out == "f16":
            finite = exact.abs() < 60000
            actual, exact, allowed = actual[finite], exact[finite], allowed[finite]
        if not bool(torch.isfinite(actual).all()):
            return f"group {group}: {int((~torch.isfinite(actual)).sum())} elements are not finite or were not written"
        share = float(((actual - exact).abs() / allowed).max()) if actual.numel() else 0.0
        worst, where = max((worst, where), (share, group))
    return None if worst <= 1 else f"group {where}: an error is {worst:.3g} times what is allowed"


def replay(torch: Any, seed: int) -> str | None:
    """One captured launch replayed with other lengths."""
    groups, rows, n, k = 9, 700, 264, 192
    rng = random.Random(seed)
    x, w = torch.randn((rows, k), device="cuda").bfloat16(), torch.randn((groups, n, k), device="cuda").bfloat16()
    ends = torch.zeros(groups + 1, dtype=torch.int32, device="cuda")
    out = torch.zeros((rows, n), device="cuda", dtype=torch.bfloat16)
    group_gemm(x, w, ends, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        group_gemm(x, w, ends, out=out)
    for _ in range(8):
        cuts = [0, *sorted(rng.randint(0, rows) for _ in range(groups))]
        ends.copy_(torch.tensor(cuts, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        exact = torch.cat([x[cuts[g]:cuts[g + 1]].float() @ w[g].float().T for g in range(groups)])
        if cuts[-1] and not bool(((out[:cuts[-1]].float() - exact).abs() <= 0.02 * exact.abs() + 0.05).all()):
            return f"a replay with {cuts} is wrong"
        if bool((~out[cuts[-1]:].isnan()).any()):
            return f"a replay with {cuts} wrote rows after the groups"
    return None


POINTERS = 24


def pointers(torch: Any, seed: int) -> str | None:
    """Groups with matrices of their own, poisoned after each result."""
    rng = random.Random(seed)
    word, fp8 = ("e4m3", True) if seed % 2 else ("bf16", False)
    kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
    out = rng.choice(("bf16", "bf16", "f32"))
    xs, ws, ys = [], [], []
    for _ in range(rng.choice((1, 7, 40))):
        m, n, k = rng.choice((0, 1, 7, 64, 127, 130, 300)), 8 * rng.randint(1, 60), 16 * rng.randint(1, 40)
        xs.append(torch.randn((m, k), device="cuda").to(kind))
        ws.append(torch.randn((n, k), device="cuda").to(kind))
        ys.append(torch.full((m + 3, n), float("nan"), device="cuda", dtype=torch.float32 if out == "f32" else torch.bfloat16))
    sizes = torch.tensor([(*x.shape, len(w)) for x, w in zip(xs, ws, strict=True)], dtype=torch.int32)[:, [0, 2, 1]].contiguous().cuda()
    at = [torch.tensor([array.data_ptr() for array in arrays], dtype=torch.int64, device="cuda") for arrays in (xs, ws, ys)]
    scales: dict[str, Any] = {}
    if fp8:
        scales = {"x_scale": torch.full((1,), 0.75, device="cuda"), "w_scale": torch.rand(len(xs), device="cuda") + 0.5}
    mean = rng.choice((4, 16, 48, 128, 192, 400, 1000, 5000))
    group_gemm_pointers(at[0], at[1], at[2], sizes, dtype=word, out_dtype=out, mean_tokens=mean, **scales)
    torch.cuda.synchronize()
    for group, (x, w, y) in enumerate(zip(xs, ws, ys, strict=True)):
        if not bool(y[len(x):].isnan().all()):
            return f"pointers, seed {seed}: rows after group {group} were written, {mean} expected"
        a, b = x.float().double(), w.float().double()
        b = b * (0.75 * scales["w_scale"][group].double()) if fp8 else b
        exact, magnitude = a @ b.T, a.abs() @ b.abs().T
        allowed = magnitude * accumulation(x.shape[1], word) + exact.abs() * HALF_ULP[out] * 1.01 + HALF_TINY[out]
        if not bool(((y[:len(x)].double() - exact).abs() <= allowed).all()):
            return f"pointers, seed {seed}: group {group} of {len(xs)}, {tuple(x.shape)} by {tuple(w.shape)}, {mean} expected, is wrong"
    return None


QUANTISED = 6


def quantised(torch: Any, seed: int) -> str | None:
    """Results in e4m3 with scales of their own: scales of the largest magnitudes, and nothing further off than a rounding."""
    rng = random.Random(seed)
    word, gated = rng.choice(("bf16", "e4m3")), rng.random() < 0.7
    kind = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[word]
    lengths, n, k = _lengths(rng, rng.choice((1, 7, 40))), 128 * rng.randint(1, 6), 128 * rng.randint(1, 8)
    lines, rows, depth = (2 * n if gated else n), sum(lengths) + 3, k // 128
    x, w = torch.randn((rows, k), device="cuda").to(kind), torch.randn((len(lengths), lines, k), device="cuda").to(kind)
    out = torch.empty((rows, n), device="cuda", dtype=torch.float8_e4m3fn)
    out_scale = torch.full((n // 128, rows + 1), -1.0, device="cuda")
    out.view(torch.uint8).fill_(0x7F)
    scales: dict[str, Any] = {}
    if word == "e4m3":
        scales = {"x_scale": (torch.rand((depth, -(-rows // 4) * 4), device="cuda") + 0.5).T[:rows],
                  "w_scale": torch.rand((len(lengths), lines // 128, depth), device="cuda") + 0.5}
    ends = torch.tensor((0, *itertools.accumulate(lengths)), dtype=torch.int32, device="cuda")
    group_gemm(x, w, ends, **scales, out=out, out_scale=out_scale.T[:rows], activation="silu_and_mul" if gated else None)
    torch.cuda.synchronize()
    where = f"quantised, seed {seed}: {word}, {'gated, ' if gated else ''}{len(lengths)} groups, N {n}, K {k}"
    if not bool((out.view(torch.uint8)[ends[-1]:] == 0x7F).all()) or not bool((out_scale[:, ends[-1]:] == -1).all()):
        return f"{where}: rows after the groups were written"
    for group, (start, length) in enumerate(zip(itertools.accumulate((0, *lengths)), lengths, strict=False)):
        own = slice(start, start + length)
        if not length:
            continue
        a, b = x[own].float().double(), w[group].float().double()
        if scales:
            a = a * scales["x_scale"][own].double().repeat_interleave(128, 1)
            b = b * scales["w_scale"][group].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        exact, loss = a @ b.T, (a.abs() @ b.abs().T) * accumulation(k, word, bool(scales))
        if gated:
            gate, up = exact[:, :n], exact[:, n:]
            exact = torch.nn.functional.silu(gate) * up
            loss = 1.1 * loss[:, :n] * up.abs() + (gate.abs() + loss[:, :n]) * loss[:, n:] + 1e-5 * exact.abs()
        factors = out_scale.T[own].double().repeat_interleave(128, 1)
        largest = exact.abs().view(length, -1, 128).amax(2).repeat_interleave(128, 1)
        room = loss.view(length, -1, 128).amax(2).repeat_interleave(128, 1) + 1e-6 * largest + 1e-12
        values = out[own].float().double()
        rounding = factors * torch.clamp(values.abs() / 16, min=2.0**-10) * 1.001
        if not bool(((factors * 448 - largest).abs() <= room).all()):
            return f"{where}: scales of group {group} are wrong"
        if not bool(((values * factors - exact).abs() <= loss + rounding).all()):
            return f"{where}: values of group {group} are wrong"
    return None


def run(count: int, seed: int) -> dict[str, Any]:
    """Check `count` random launches and the replay; {"trials", "failures", ...}."""
    import torch  # pyright: ignore[reportMissingImports]

    failures = []
    chosen = trials(count, seed)
    assemble([config for config in (trial.config() for trial in chosen) if config is not None], print)
    for trial in chosen:
        sentence = check(torch, trial)
        if sentence:
            failures.append({**asdict(trial), "lengths": list(trial.lengths)[:40], "why": sentence})
    for sentence in (replay(torch, seed), *(pointers(torch, seed + each) for each in range(POINTERS)),
                     *(quantised(torch, seed + each) for each in range(QUANTISED))):
        if sentence:
            failures.append({"why": sentence})
    return {"trials": count + 8 + POINTERS + QUANTISED, "seed": seed, "failures": failures, "device": torch.cuda.get_device_name()}


__all__ = ["Trial", "check", "pointers", "quantised", "replay", "run", "trials"]
