"""Random problems as plain data. This module imports nothing from the library, so that two versions of the library draw the same ones.

A problem with a `force` asks for a configuration other than the heuristic's, in neutral words; the adapter translates them. Words may
contradict each other: the library then refuses the problem, and the next one is drawn. Rows, columns and depths obey the library's rules
of alignment.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

Words = Mapping[str, Any]
EIGHT = ("e4m3", "e5m2")
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "e4m3": 1, "e5m2": 1}
WEIGHTS = ((576, 7168), (2112, 7168), (4096, 7168), (7168, 2048), (7168, 16384), (24576, 1536), (32768, 512), (4096, 4096), (4096, 1024))
"""N and K of layers of language models."""
SQUARES = (512, 1024, 2048, 4096, 6144, 8192, 16384)


@dataclass(frozen=True)
class Fused:
    """What the epilogue does besides rounding: numbers, and types of what it reads."""

    alpha: float = 1.0
    beta: float = 0.0
    c: str = ""
    bias: str = ""
    along: str = "column"
    activation: str = ""
    residual: str = ""


@dataclass(frozen=True)
class Dense:
    """D[m, n] = A[m, k] B[k, n]. `batch` 0 is a single product. `layout` is BLAS's: A then B, n row-major and t column-major.

    `scales` is none, one, block (A's contiguous along M, B's along K) or rows (block scales, both row-major). `pads` are units of 16 bytes
    between the lines of A, B, D and C.
    """

    m: int
    n: int
    k: int
    a: str = "bf16"
    b: str = "bf16"
    out: str = "bf16"
    layout: str = "nt"
    batch: int = 0
    accumulate: str = "f32"
    fast: bool | None = None
    scales: str = "none"
    fused: Fused = Fused()
    pads: tuple[int, ...] = (0, 0, 0, 0)
    force: Words = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The problem as one canonical line."""
        return f"dense {self.m}x{self.n}x{self.k} {self.a}*{self.b}>{self.out} {self.layout}{_rest(self)}"


@dataclass(frozen=True)
class Grouped:
    """Groups of rows of x[rows, k], each times its weights w[n, k]. `n` counts columns of the result; a gate doubles the weights' rows.

    `layout` is offsets, masked, rows or pointers. `scales` is none, one, group, block (x's contiguous along the rows, w's along K) or rows
    (block scales, x's contiguous along K). `mean` is the expected number of rows of a group where the caller says it.
    """

    groups: int
    rows: int
    n: int
    k: int
    x: str = "bf16"
    w: str = "bf16"
    out: str = "bf16"
    layout: str = "offsets"
    gated: bool = False
    quantised: bool = False
    scales: str = "none"
    fast: bool | None = None
    mean: float | None = None
    order: str = ""
    force: Words = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The problem as one canonical line."""
        return f"grouped {self.groups}:{self.rows}x{self.n}x{self.k} {self.x}*{self.w}>{self.out} {self.layout}{_rest(self)}"


Problem = Dense | Grouped
_HEAD = ("m", "n", "k", "a", "b", "x", "w", "out", "layout", "groups", "rows", "force", "fused")


def _rest(problem: Problem) -> str:
    """The fields that differ from their defaults, sorted by declaration; the forced words, sorted by name, come last."""
    words = [f"{each.name}={_value(value)}" for part in (problem, getattr(problem, "fused", None)) if part is not None
             for each in fields(part) if each.name not in _HEAD or part is not problem
             if (value := getattr(part, each.name)) != each.default]
    forced = [f"{name}={_value(value)}" for name, value in sorted(problem.force.items())]
    return "".join(f" {word}" for word in [*words, *(["|", *forced] if forced else [])])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={_value(each)}" for name, each in sorted(value.items())) + "}"
    if isinstance(value, tuple):
        return "x".join(map(_value, value))
    return str(int(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def draw(kind: str, seed: int, number: int) -> Problem:
    """Problem `number` of this kind ("dense" or "grouped"), whatever was drawn before it."""
    rng = random.Random(f"{seed} {kind} {number}")
    return _dense(rng) if kind == "dense" else _grouped(rng)


def _some(rng: random.Random, share: float, word: str, *values: Any) -> dict[str, Any]:
    """With this probability the word and one of the values."""
    return {word: rng.choice(values)} if rng.random() < share else {}


# ---------------------------------------------------------------------------------------------------------------------- dense

def _dense(rng: random.Random) -> Dense:
    a = rng.choices(("bf16", "f16", "f32", "e4m3", "e5m2"), (30, 20, 15, 25, 10))[0]
    fp8 = a in EIGHT
    b = rng.choice((*EIGHT, "e4m3")) if fp8 else a
    out = rng.choices(("bf16", "f16", "f32", "e4m3", "e5m2"), (40, 20, 25, 10, 5))[0]
    layout = rng.choice(("nt", "nn", "tn", "tt", "nt")) if BYTES[a] == 2 else "nt"
    scales = rng.choice(("none", "one", "block", "block", "rows")) if fp8 else "none"
    blocks = scales in ("block", "rows")
    batch = rng.randint(1, 6) if not blocks and rng.random() < 0.2 else 0
    fused = _fused(rng) if rng.random() < 0.5 else Fused()
    m, n, k = _extents(rng)
    if layout[0] == "t":
        m = _whole(m, 16 // BYTES[a])
    n = _whole(n, max(8, 16 // BYTES[b], 16 // BYTES[out]))
    k = _whole(k, 16 // BYTES[a])
    pads = tuple(rng.choice((0, 1, 5)) for _ in range(4)) if rng.random() < 0.15 else (0, 0, 0, 0)
    problem = Dense(m, n, k, a, b, out, layout, batch, "f16" if a == "f16" and rng.random() < 0.3 else "f32",
                    rng.choice((None, False)) if fp8 and not blocks else None, scales, fused, pads)
    if rng.random() < 0.35:
        return problem
    return Dense(**{**vars(problem), "force": _dense_force(rng, problem)})


def _fused(rng: random.Random) -> Fused:
    types = ("bf16", "f16", "f32")
    c = rng.choice(types) if rng.random() < 0.4 else ""
    bias = rng.choice(types) if rng.random() < 0.5 else ""
    return Fused(rng.choice((1.0, -0.5, 0.25)), 2.0 if c else 0.0, c, bias, rng.choice(("column", "row")) if bias else "column",
                 rng.choice(("", "", "relu", "gelu", "silu", "square")), rng.choice(("", "", *types)))


def _extents(rng: random.Random) -> tuple[int, int, int]:
    size = rng.choices(("tiny", "few", "ragged", "layer", "square", "wide", "tall", "deep", "large"), (10, 15, 15, 15, 8, 8, 8, 11, 10))[0]
    if size == "few":
        return rng.choice((1, 7, 8, 16, 20, 33, 48, 56, 64, 100, 128)), *rng.choice(WEIGHTS)
    if size == "layer":
        return rng.choice((1, 16, 64, 128, 300, 1024, 4096, 5000)), *rng.choice(WEIGHTS)
    if size == "square":
        side = rng.choice(SQUARES)
        return side, side, side
    if size == "wide":
        return rng.randint(1, 64), rng.randint(1000, 9000), rng.randint(1, 600)
    if size == "tall":
        return rng.randint(1000, 9000), rng.randint(1, 64), rng.randint(1, 600)
    if size == "deep":
        return rng.randint(1, 300), rng.randint(1, 300), rng.randint(2000, 20000)
    top = {"tiny": 130, "ragged": 900, "large": 9000}[size]
    return rng.randint(1, top), rng.randint(1, top), rng.randint(1, top)


def _whole(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit


def _dense_force(rng: random.Random, problem: Dense) -> Words:
    """A configuration. Everything that is not said is the library's default."""
    promoted = problem.scales in ("block", "rows") or problem.fast is False
    promoted |= problem.accumulate == "f32" and rng.random() < 0.12
    force: dict[str, Any] = {"tile": _tile(rng, promoted, problem.layout[1] == "n")}
    if promoted:
        force["promotion"] = rng.choice(("plain", "overlap", "stagger"))
        force |= _some(rng, 0.3, "sfa", "threads") if problem.scales == "block" else {}
        force |= _some(rng, 0.3, "sfb", "threads") if problem.scales == "block" else {}
    rows = force["tile"][0]
    work = rng.choices(("plain", "cluster", "split", "split_in_cluster", "dynamic", "stream_k"), (22, 26, 14, 12, 12, 14))[0]
    if not promoted and rows <= 128 and not work.startswith("split") and rng.random() < 0.4:
        force["schedule"] = "pingpong"
    elif rng.random() < 0.3:
        force["warpgroups"] = rng.choice([count for count in (1, 2, 3) if rows // 64 % count == 0])
    if rows == 64 and problem.layout[0] == "n" and problem.m <= 56 and rng.random() < 0.6:
        force["a_rows"] = _whole(problem.m, 8)
    if work == "cluster" or (work == "stream_k" and rng.random() < 0.3):
        force["cluster"] = rng.choice(((2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4)))
    if work == "split":
        force |= {"splits": rng.choice((2, 3, 4, 5, 7, 8, 16)), "reduce": "workspace"}
    if work == "split_in_cluster":
        force |= {"splits": rng.choice((2, 4, 8, 3)), "reduce": "cluster"}
    if work in ("dynamic", "stream_k"):
        force["tiles"] = work
    return {**force, **_order(rng), **_memory(rng, promoted)}


def _tile(rng: random.Random, promoted: bool, b_is_mn: bool) -> tuple[int, int]:
    rows = rng.choices((64, 128, 192, 256), (28, 42, 10, 20))[0]
    most = (256 * 128 if promoted else 256 * 192) // rows // 8 * 8
    step = 64 if b_is_mn else 8
    if b_is_mn or rng.random() < 0.3:
        return rows, min(most // step * step, step * rng.randint(1, 256 // step))
    return rows, min(most, rng.choice((64, 128, 128, 192, 256)))


def _order(rng: random.Random) -> dict[str, Any]:
    """The order of tiles."""
    if rng.random() < 0.12:
        return {"raster": "hilbert"}
    return {**_some(rng, 0.3, "raster", "along_n"), **_some(rng, 0.3, "serpentine", True), **_some(rng, 0.3, "swizzle", 1, 2, 3, 4, 16)}


def _memory(rng: random.Random, promoted: bool) -> dict[str, Any]:
    """The ring, the stores, and hints of the L2."""
    return {**_some(rng, 0.2, "store", "direct", "staged"), **_some(rng, 0.25, "stages", 2, 3, 4, 5, 6),
            **_some(rng, 0.2, "buffers", 1, 2, 3, 4), **({} if promoted else _some(rng, 0.1, "stage_bytes", 256)),
            **_some(rng, 0.25, "evict_first", True), **_some(rng, 0.25, "prefetch", 1, 4), **_some(rng, 0.2, "l2_bytes", 64, 128)}


# -------------------------------------------------------------------------------------------------------------------- grouped

def _grouped(rng: random.Random) -> Grouped:
    layout = rng.choices(("offsets", "masked", "rows", "pointers"), (48, 20, 16, 16))[0]
    x = rng.choices(("bf16", "f16", "e4m3", "e5m2"), (35, 12, 40, 13))[0]
    fp8, pointers = x in EIGHT, layout == "pointers"
    w = rng.choice((*EIGHT, "e4m3")) if fp8 else x
    groups = rng.choice((1, 2, 3, 5, 8, 8, 16, 31, 32, 33, 64, 96, 128, 256, 257, 300, 1024))
    kinds = ("none", "one", "group", "block", "block", "block", "rows") if fp8 else ("none", "none", "none", "one", "group")
    scales = rng.choice(kinds[:3] if pointers and fp8 else kinds)
    gated = not pointers and rng.random() < 0.25
    quantised = not pointers and rng.random() < 0.15
    out = "e4m3" if quantised else rng.choice(("bf16", "bf16", "f16", "f32"))
    tokens = rng.choice((1, 2, 4, 5, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 800, 1024, 2048, 4096, 8192))
    rows = min(1 << 19, max(1, groups * tokens + rng.choice((0, 0, 3, -1))))
    rows = rows // groups * groups or groups if layout == "masked" else _whole(rows, 128) if layout == "rows" else rows
    blocks = scales in ("block", "rows")
    n, k = rng.choice((*WEIGHTS, (1536, 4096), (4096, 2048), (6144, 7168), (8 * rng.randint(1, 400), 16 * rng.randint(1, 400))))
    if (gated and blocks) or quantised:
        n = _whole(n, 128)
    said = pointers or (layout != "rows" and rng.random() < 0.15)
    mean = float(rng.choice((1, 4, 8, 16, 40, 64, 100, 128, 200, 400, 1000, 5000))) if said else None
    fast = rng.choice((None, None, False)) if fp8 and not blocks else None
    order = rng.choice(("linear", "search", "across", "ticket")) if not pointers and rng.random() < 0.1 else ""
    problem = Grouped(groups, rows, n, k, x, w, out, layout, gated, quantised, scales, fast, mean, order)
    if rng.random() < 0.45:
        return problem
    return Grouped(**{**vars(problem), "force": _grouped_force(rng, problem)})


def _grouped_force(rng: random.Random, problem: Grouped) -> Words:
    """A configuration. Everything that is not said is the library's default."""
    blocks = problem.scales in ("block", "rows")
    promoted = blocks or problem.fast is False
    force = _swapped(rng, promoted, problem) if not problem.quantised and rng.random() < 0.35 else _upright(rng, promoted, problem)
    if blocks and not force.get("swap_ab") and force.get("schedule") != "pingpong":
        force |= _some(rng, 0.8, "shared_scales", True)
        force |= {**_some(rng, 0.3, "sfa", "threads"), **_some(rng, 0.3, "sfb", "threads")} if not problem.gated else {}
    if not problem.order:
        orders = ("linear", "search", "dynamic", "dynamic")
        force["order"] = rng.choice(orders if problem.layout == "pointers" else (*orders, "across"))
    counted, alone = problem.layout in ("offsets", "masked"), "cluster" not in force
    if counted and not (force.get("swap_ab") or problem.gated or problem.quantised) and rng.random() < 0.3:
        force["tails"] = "maps"                                 # the lengths are then read by the kernel that makes the maps
    elif counted or problem.layout == "pointers":
        force |= _some(rng, 0.35, "longest_first", True)
    if force.get("order") == "dynamic":
        force |= _some(rng, 0.3, "from_end", 8, 16, 48)
    if problem.layout != "rows":
        force |= _some(rng, 0.5, "partial_boxes", True)
        if force.get("partial_boxes") and not force.get("swap_ab"):
            force |= _some(rng, 0.4, "tail_rows", 8, 16, 32)
    if counted and alone and "tails" not in force and rng.random() < 0.3:
        force["second"] = {"tile": (128, 64) if promoted or rng.random() < 0.5 else (128, 128),
                           **({} if promoted else _some(rng, 0.5, "schedule", "pingpong")),
                           "costs": rng.choice(((2, 1), (1, 1), (3, 2))), **_some(rng, 0.5, "between", 0, 5000)}
    memory = _memory(rng, promoted)
    if not (counted and alone):
        memory.pop("prefetch", None)
    return {**force, **memory, **_some(rng, 0.3, "swizzle", 1, 4, 16), **_some(rng, 0.2, "serpentine", True),
            **_some(rng, 0.2, "raster", "along_n")}


def _upright(rng: random.Random, promoted: bool, problem: Grouped) -> dict[str, Any]:
    """Tokens are rows of a tile."""
    rows = rng.choice((64, 128, 128, 192, 256)) if problem.layout != "rows" else rng.choice((64, 128))
    columns = rng.choice((64, 112, 128, 128, 160, 192, 256))
    if problem.quantised:
        columns = rng.choice((128, 128, 256)) if not problem.gated else rng.choice((128, 256))
    most = 256 * (128 if promoted else 192) // rows
    force: dict[str, Any] = {"tile": (rows, min(columns, max(64, most // 64 * 64)))}
    if promoted:
        force["promotion"] = rng.choice(("plain", "overlap", "stagger"))
    elif rows <= 128 and rng.random() < 0.35:
        force["schedule"] = "pingpong"
    if problem.layout in ("offsets", "masked") and rng.random() < 0.3:
        force["cluster"] = rng.choice(((1, 2), (2, 1), (1, 2), (2, 2)))
    return force


def _swapped(rng: random.Random, promoted: bool, problem: Grouped) -> dict[str, Any]:
    """Tokens are columns of a tile."""
    rows = rng.choice((64, 128, 128, 256) if not problem.gated else (128, 256))
    force: dict[str, Any] = {"swap_ab": True, "tile": (rows, rng.choice((16, 32, 48, 64, 96, 128, 192))), "swizzle": 1}
    if promoted:
        force["promotion"] = "plain"
        force["tile"] = rows, min(128, force["tile"][1])
    elif problem.layout != "rows" and rng.random() < 0.6:
        force["n_granularity"] = rng.choice([step for step in (8, 16, 32, 64) if force["tile"][1] % step == 0])
    if rows == 128 and rng.random() < 0.4:
        force["warpgroups"] = 1
    return force


__all__ = ["Dense", "Fused", "Grouped", "Problem", "draw"]
