"""Correctness of `gemm.gemm` on the GPU: every type, layout, fusion, kind of scale and structure of configuration against float64, on
odd shapes with padded strides, with poison around operands and results, each launched twice."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.ptx import mul
from ptxkit.runtime import driver
from ptxkit.runtime.launch import view
from ptxkit.types import TYPES, bf16, f32

from ...collective.epilogue_ops import Fusion, ScaleKind
from ...config import budget
from ...config.dense import DenseConfig, Operands
from ...config.parts import BlockScaled, Dynamic, Scheduler, SplitK, Static, StreamK, Tile
from ...launch.adapter import Adapter
from ...launch.dense import check_config, configuration, gemm, hgemm
from ...problem.dense import Arrays, Options, Problem
from ...scheduler.stream_k import MIN_STAGES_OF_PART
from ..assembly import assembled
from ..bench.shapes import BYTES, LAYOUTS
from ..fingerprint.draw import Fused
from ..reference import EIGHT_BITS, accumulation
from ..samples import distinct, name, pairwise, shipped, small
from . import guarded, trials
from .trials import Checked, blockwise, launched, wrong

LOOSE = 0.4                 # of random kinds: extents, addresses and strides that are multiples of nothing
VECTORS = ("row", "column", "row_column")
"""Scales, of which each row of a has one, each column of b, or both."""
SCALES: dict[ScaleKind | None, str] = {None: "none", "whole": "one", "row": "row", "column": "column", "row_column": "row_column"}
"""The scales of a case, by what its configuration fuses."""
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def _square(x: Any) -> Any:
    return mul.rn.f32(x, x)


FUSIONS = (Fused(), Fused(alpha=-0.5, beta=2.0, c="bf16"), Fused(bias="f32"), Fused(bias="f16", along="row", activation="relu"),
           Fused(activation="gelu", residual="f16"), Fused(bias="bf16", activation="silu"), Fused(alpha=0.125, activation="square"),
           Fused(alpha=0.25, beta=-1.0, c="f32", bias="bf16", activation="relu", residual="bf16"))


@dataclass(frozen=True)
class Case:
    """One product. `pads` are 16-byte units between the lines of a, b, out and what is added, `offset` bytes before every array; `size`
    is the class of extents, within which cases of one kind share a configuration. `batches` 0 is no batch. `loose`: any extents, and pads
    and offset count elements."""

    m: int
    n: int
    k: int
    a: str = "bf16"
    b: str = "bf16"
    out: str = "bf16"
    layout: str = "nt"
    batches: int = 0
    accumulate: str = "f32"
    scales: str = "none"
    fast: bool | None = None
    fused: Fused = Fused()
    pads: tuple[int, ...] = (0, 0, 0, 0)
    offset: int = 0
    size: str = ""
    loose: bool = False

    @property
    def kind(self) -> Case:
        """The case without its extents and strides."""
        return replace(self, m=0, n=0, k=0, batches=min(self.batches, 1), pads=(), offset=0)

    @property
    def outer(self) -> tuple[int, ...]:
        """The extents before those of a matrix."""
        return (self.batches,) if self.batches else ()


FIXED = ((1, 8, 8), (1, 8, 1 << 14), (1, 1 << 14, 8), (16, 16, 16), (64, 64, 64), (128, 256, 64), (129, 264, 72), (127, 248, 56),
         (256, 256, 8), (1, 4096, 4096), (20, 4096, 7168), (4096, 8, 4096), (8, 4096, 64), (3000, 1000, 520), (512, 512, 512),
         (2048, 2048, 2048),
         (65536, 8, 64), (8, 65536, 64), (200, 136, 65536), (385, 776, 200), (640, 256, 1032))


LOOSE_FIXED = ((1, 1, 1), (1, 7, 9), (129, 131, 133), (64, 4097, 999), (1000, 1001, 1003), (65537, 3, 65), (3, 70001, 65), (130, 66, 20001),
               (8191, 4095, 7001))


def cases(count: int, seed: int, of_each: int = 8) -> Iterator[Case]:
    """The fixed shapes in one layout each, those of no multiples in all, every fusion with and without batches and with scales of rows and
    columns, then random kinds, `of_each` products of each."""
    rng = random.Random(seed)
    made = 0
    for number, (m, n, k) in enumerate(FIXED):
        yield legal(rng, Case(m, n, k, layout=LAYOUTS[number % 4]))
        made += 1
    for (m, n, k), layout in itertools.product(LOOSE_FIXED, LAYOUTS):
        yield legal(rng, Case(m, n, k, layout=layout, loose=True))
        made += 1
    for fused in FUSIONS:
        for batches in (0, 1):
            yield legal(rng, Case(150, 200, 136, out="f32", fused=fused, batches=batches, size="fusions"))
            made += 1
        yield legal(rng, Case(150, 200, 136, "e4m3", "e4m3", fused=fused, scales="row_column", size="fusions"))
        made += 1
    while made < count:
        drawn = kind(rng)
        for _ in range(min(of_each, count - made)):
            made += 1
            yield legal(rng, replace(drawn, **_extents(rng, drawn.size)))


def kind(rng: random.Random) -> Case:
    """A random kind of product, without extents."""
    a = rng.choice(("f16", "bf16", "f32", *EIGHT_BITS))
    fp8 = a in EIGHT_BITS
    out = rng.choice(("f16", "bf16", "f32", "f32", *EIGHT_BITS))
    scales = rng.choice(("none", "one", "block", *VECTORS)) if fp8 else "none"
    fused = rng.choice((Fused(), Fused(), *FUSIONS))
    if out not in ("f32", "bf16") and fused.activation == "square":
        fused = Fused()                                                       # whose squares are more than f16 holds
    loose = scales != "block" and rng.random() < LOOSE
    return Case(0, 0, 0, a, rng.choice(EIGHT_BITS) if fp8 else a, out, rng.choice(LAYOUTS) if loose or a in ("f16", "bf16") else "nt",
                0 if scales in ("block", *VECTORS) else rng.choice((0, 0, 1)), rng.choice(("f32", "f16")) if a == "f16" else "f32", scales,
                rng.choice((None, False)) if fp8 and scales != "block" else None, fused,
                size=rng.choice(("small", "ragged", "ragged", "wide", "tall", "deep", "large")), loose=loose)


def _extents(rng: random.Random, size: str) -> dict[str, Any]:
    top = {"small": 130, "ragged": 900, "wide": 64, "tall": 64, "deep": 300, "large": 2600}[size]
    m, n, k = (rng.randint(1, top) for _ in range(3))
    if size == "wide":
        n, k = rng.randint(1000, 9000), rng.randint(1, 600)
    if size == "tall":
        m, k = rng.randint(1000, 9000), rng.randint(1, 600)
    if size == "deep":
        k = rng.randint(2000, 9000)
    return {"m": m, "n": n, "k": k}


def legal(rng: random.Random, case: Case) -> Case:
    """The case with contiguous extents rounded up to 16 bytes, unless it is loose, and random strides."""
    def whole(extent: int, *types: str) -> int:
        unit = max(8, *(16 // BYTES[word] for word in types))
        return -(-extent // unit) * unit

    if case.loose:
        return replace(case, batches=case.batches and rng.randint(1, 5), pads=tuple(rng.choice((0, 0, 0, 1, 2, 5)) for _ in range(4)),
                       offset=rng.choice((0, 0, 1, 2, 4, 7)))
    m = whole(case.m, case.a) if case.layout[0] == "t" else case.m
    return replace(case, m=m, n=whole(case.n, case.b, case.out), k=whole(case.k, case.a, case.b),
                   batches=case.batches and rng.randint(1, 5), pads=tuple(rng.choice((0, 0, 1, 5)) for _ in range(4)),
                   offset=rng.choice((0, 0, 16, 112)))


def of_config(config: DenseConfig, m: int, n: int, k: int) -> Case:
    """A product that this configuration is for."""
    operands, scaled = config.operands, isinstance(config.sums, BlockScaled)
    layout = ("n" if operands.a_major == "k" else "t") + ("t" if operands.b_major == "k" else "n")
    exact = operands.a.bits == 8 and budget.promoted(config.sums) and not scaled
    scales = "block" if scaled else SCALES[config.fusion.scale]
    return Case(m, n, k, operands.a.__name__, operands.b.__name__, operands.out.__name__, layout, int(operands.batched),
                operands.accumulator.__name__, scales, False if exact else None)


def odd(config: DenseConfig) -> list[tuple[int, int, int]]:
    """Shapes for a configuration: less than a tile, a tile for each CTA of a cluster, several tiles and rests."""
    tile = config.tile
    depth = max(config.splits + 1, 3 * MIN_STAGES_OF_PART if isinstance(config.scheduler, StreamK) else 0) * tile.BK
    m, n = config.loads.a_rows or 3 * tile.BM + 8, 5 * tile.BN // 16 * 16 + 16
    return [(8, 16, depth - 16), small(config), (n - 3, m, 3 * depth) if config.swap_ab else (m, n, 3 * depth)]


def operands(torch: Any, case: Case) -> dict[str, Any]:
    """The arguments of `gemm.gemm` for a case, all but `out`."""
    def normal(rows: int, columns: int, word: str, pad: int) -> Any:
        return guarded.normal(torch, (*case.outer, rows, columns), word, pad=case.pads[pad], offset=case.offset, loose=case.loose)

    def operand(rows: int, columns: int, word: str, letter: str, pad: int) -> Any:
        return normal(rows, columns, word, pad) if letter == "n" else normal(columns, rows, word, pad).transpose(-1, -2)

    fused = case.fused
    more: dict[str, Any] = {word: normal(case.m, case.n, kind, 3) for word, kind in (("c", fused.c), ("residual", fused.residual)) if kind}
    if fused.bias:
        bias = guarded.normal(torch, (case.m, 1) if fused.along == "row" else (1, case.n), fused.bias, offset=case.offset * case.loose,
                              loose=case.loose)
        more["bias"] = bias if fused.along == "row" else bias[0]
    if case.scales == "one":
        more["a_scale"], more["b_scale"] = guarded.scales(torch), guarded.scales(torch, 1)
    if case.scales in VECTORS:
        one = () if case.pads[3] else (1,)
        more["a_scale"] = guarded.scales(torch, case.m if "row" in case.scales else 1, *one)
        more["b_scale"] = guarded.scales(torch, *one, case.n if "column" in case.scales else 1)
    if case.scales == "block":
        depth, columns = -(-case.k // 128), -(-case.n // 128)
        a_scale, b_scale = guarded.scales(torch, case.m, depth), guarded.scales(torch, depth, columns)
        more["a_scale"], more["b_scale"] = (a_scale, b_scale) if case.pads[3] else (a_scale.T.contiguous().T, b_scale.T.contiguous().T)
    return {"a": operand(case.m, case.k, case.a, case.layout[0], 0), "b": operand(case.k, case.n, case.b, case.layout[1], 1),
            "alpha": fused.alpha, "beta": fused.beta, "activation": _square if fused.activation == "square" else fused.activation or None,
            "accumulate": case.accumulate, "fast_accum": case.fast, **more}


def result(torch: Any, case: Case) -> Any:
    """A poisoned `out`."""
    return guarded.array(torch, (*case.outer, case.m, case.n), case.out, pad=case.pads[2], offset=case.offset, loose=case.loose)


def chosen(torch: Any, case: Case, given: DenseConfig | None = None) -> DenseConfig:
    """The configuration that a case gets, or `given` where it is for the case."""
    arguments = {"out": result(torch, case), **operands(torch, case)}
    arrays = Arrays(**{word: view(arguments[word], word) for word in Arrays._fields if word in arguments})
    problem = Problem(arrays, Options(**{word: arguments[word] for word in ("alpha", "beta", "activation", "accumulate", "fast_accum")}))
    if given is not None:
        with contextlib.suppress(LaunchError):
            check_config(given, problem)
            return given
    return configuration(problem, driver.current_device())


def check(torch: Any, case: Case, config: DenseConfig | None = None) -> str | None:
    """A sentence when the product of this case is wrong, or not the same in a second run."""
    arguments = operands(torch, case)
    out, sentence = launched(torch, lambda out: gemm(out=out, config=config, **arguments), lambda: result(torch, case), lambda out: [out],
                             "D")
    return sentence or wrong(torch, out, *expected(torch, case, arguments), case.out)


def expected(torch: Any, case: Case, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The product in float64, and how far D may be from it before it is rounded."""
    a, b = (arguments[word].float().double() for word in "ab")
    if case.scales == "block":
        a, b = blockwise(arguments["a"], arguments["a_scale"], 1, 128), blockwise(arguments["b"], arguments["b_scale"], 128, 128)
    promoted = case.scales == "block" or case.fast is False
    loss = accumulation(case.k, case.a, promoted) + (2.0**-11 * (4 + case.k**0.5) if case.accumulate == "f16" else 0.0)
    factor = arguments["alpha"]
    if case.scales == "one":
        factor = factor * float(arguments["a_scale"].reshape(())) * float(arguments["b_scale"].reshape(()))
    if case.scales in VECTORS:
        loss += 2.0**-22
        factor = factor * arguments["a_scale"].double().reshape(-1, 1) * arguments["b_scale"].double().reshape(1, -1)
    tiny = case.k * 2.0**-25 if case.accumulate == "f16" else 0.0             # half of f16's smallest step, for each sum
    x, error = a @ b * factor, (a.abs() @ b.abs() * loss + tiny) * abs(factor) + 1e-30
    for word, scale in (("c", arguments["beta"]), ("bias", 1.0)):
        if arguments.get(word) is not None:
            added = arguments[word].double() * scale
            x = x + added
            error = error + (x.abs() + added.abs()) * 2.0**-22
    match case.fused.activation:
        case "relu":
            x = x.clamp(min=0)
        case "gelu":
            x, error = torch.nn.functional.gelu(x), 1.13 * error + 2e-6 * x.abs() + 1e-6
        case "silu":
            x, error = torch.nn.functional.silu(x), 1.1 * error + 2e-6 * x.abs() + 1e-6
        case "square":
            x, error = x * x, 2 * x.abs() * error + error * error + x * x * 2.0**-23
    if arguments.get("residual") is not None:
        x = x + arguments["residual"].double()
        error = error + (x.abs() + arguments["residual"].double().abs()) * 2.0**-22
    if case.out in LARGEST:
        x = x.clamp(-LARGEST[case.out], LARGEST[case.out])
    return x, error


def prepared(torch: Any, count: int, seed: int) -> list[tuple[Case, DenseConfig]]:
    """Every case with its configuration; cases of one kind and size share one where it fits."""
    known: dict[Case, DenseConfig] = {}
    found = []
    for case in cases(count, seed):
        config = chosen(torch, case, known.get(case.kind) if case.size else None)
        known.setdefault(case.kind, config)
        found.append((case, config))
    return found


def structures() -> list[tuple[Case, DenseConfig]]:
    """Odd shapes for each structure in the shipped tables and for each pair of choices of a configuration; every fusion and kind of scales
    of whole rows and columns with A and B swapped."""
    rng = random.Random(1)
    plain = [(of_config(config, *shape), config) for config in (*distinct(shipped()), *pairwise()) for shape in odd(config)]
    return [(legal(rng, case), config) for case, config in (*plain, *_swapped())]


def _swapped() -> Iterator[tuple[Case, DenseConfig]]:
    taken = [fused for fused in FUSIONS if not (fused.c or fused.residual)]
    for fused, (scale, kind), BN in itertools.product(taken, SCALES.items(), (48, 104)):
        word = "bf16" if kind == "none" else "e4m3"
        activation = _square if fused.activation == "square" else fused.activation or None
        fusion = Fusion(fused.alpha != 1.0, scale, None, TYPES[fused.bias] if fused.bias else None,
                        "row" if fused.along == "row" else "column", activation)
        config = DenseConfig(Operands(TYPES[word], TYPES[word], bf16), Tile(128, BN), fusion=fusion, swap_ab=True)
        yield Case(151, 200, 136, word, word, "bf16", scales=kind, fused=fused), config


SCHEDULERS: tuple[Scheduler, ...] = (Static(), Static(overlap="loads"), Static(overlap="end"), SplitK(3), Dynamic(), StreamK())
"""Those that need no workspace, and those that do."""


def specials(torch: Any) -> Iterator[tuple[str, str | None]]:
    """What is not a case: no depth; an adapter on other arrays, and in a graph; shared work in a graph of a stream of its own."""
    d = torch.full((33, 64), float("nan"), device="cuda", dtype=torch.float16)
    hgemm(torch.empty((33, 0), device="cuda", dtype=torch.float16), torch.empty((0, 64), device="cuda", dtype=torch.float16), d)
    yield "K = 0", None if bool((d == 0).all()) else "did not give zeros"
    for scheduler in SCHEDULERS:
        config = DenseConfig(Operands(out=f32, b_major="mn"), Tile(64, 64), scheduler=scheduler)
        sets = [tuple(torch.randn(shape, device="cuda").bfloat16() for shape in ((100, 520), (520, 136))) for _ in range(2)]
        (a, b), second = sets
        outs = [torch.full((100, 136), float("nan"), device="cuda") for _ in range(2)]
        product = Adapter(a, b, outs[0], config=config, pdl=isinstance(scheduler, Static))
        size = product.workspace_size
        product.initialize(torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda") if size else None)
        product.run()
        product.update(a=second[0], b=second[1], out=outs[1])
        product.run()
        yield f"an adapter, {config}", _near(torch, sets, outs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            product.run()
            gemm(a, b, outs[0], config=config)
        for pair, out in zip(sets, outs, strict=True):
            pair[0].normal_()
            out.fill_(float("nan"))
        for _ in range(3):
            graph.replay()
        yield f"a graph, {config}", _near(torch, sets, outs)
        outs[0].fill_(float("nan"))
        stream.wait_stream(torch.cuda.current_stream())
        gemm(a, b, outs[0], config=config, stream=stream)
        stream.synchronize()
        yield f"the stream of a graph, {config}", _near(torch, sets[:1], outs[:1])


def _near(torch: Any, sets: Sequence[Any], outs: Sequence[Any]) -> str | None:
    torch.cuda.synchronize()
    for (a, b), out in zip(sets, outs, strict=True):
        a, b = a.double(), b.double()
        if sentence := wrong(torch, out, a @ b, a.abs() @ b.abs() * accumulation(a.shape[1]), "f32"):
            return sentence
    return None


def run(count: int, seed: int, *, configs: bool = True) -> dict[str, Any]:
    """Check `count` cases, the structures of configurations and what is special; {"cases", "kernels", "failures": [{..., "why"}], ...}."""
    kernels: dict[DenseConfig, None] = {}

    def checks(torch: Any) -> Iterator[Checked]:
        found = [*prepared(torch, count, seed), *(structures() if configs else ())]
        kernels.update(dict.fromkeys(config for _, config in found))
        refused = assembled(list(kernels))
        for case, config in found:
            yield {**asdict(case), "config": name(config)}, refused.get(config) or check(torch, case, config)
        yield from (({"special": word}, why) for word, why in specials(torch))

    return {**trials.run(seed, "cases", checks), "kernels": len(kernels)}


__all__ = ["FUSIONS", "Case", "Fused", "cases", "check", "chosen", "odd", "of_config", "prepared", "run", "specials", "structures"]
