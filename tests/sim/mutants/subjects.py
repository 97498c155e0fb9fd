"""What is mutated: kernels with a launch of each and the NumPy result that it must leave."""

from __future__ import annotations

import functools
import unittest.mock
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from examples import cluster_multicast, tile_gemm, tma_copy, vector_add, warp_reduction
from ptxkit import TensorMap, grammar, sim
from ptxkit.cards import H200
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Cooperative, Pingpong, Promoted, SplitK, Static, Tile
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from . import kernels, pipelines
from .edit import Edit, written

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / "corpus"
NUMPY = {bf16: ml_dtypes.bfloat16, f16: np.float16, f32: np.float32, e4m3: ml_dtypes.float8_e4m3fn, e5m2: ml_dtypes.float8_e5m2}
MAX_STEPS = 400_000
"""Warp instructions, several times what any subject needs: a mutant that never ends is stopped."""

Launch = Callable[[], tuple[list[Any], Callable[[], bool], dict[str, Any]]]
"""Fresh arguments, the comparison of the result with NumPy's, the rest of the launch (`grid`, `block`, ...)."""


@dataclass(frozen=True)
class Subject:
    """A kernel that is right. `source` makes its tree or trace (kept, so that it is decoded once); `launch` the arguments of a run."""

    name: str
    source: Callable[[], Any]
    launch: Launch
    entry: str | None = None
    compiled: bool = field(default=False)
    """Whether nvcc made it."""
    polls: bool = field(default=False)
    """Whether its control depends on a flag or an atomic's result, so that the verdict is "incomplete"."""

    @property
    def right(self) -> tuple[str, ...]:
        """The verdicts that the kernel may earn as it is."""
        return ("clean", "review", "incomplete") if self.polls else ("clean", "review")

    @functools.cached_property
    def original(self) -> Any:
        return self.source()

    def run(self, source: Any = None, *, schedule: str = "fifo", seed: int = 0, check: bool = True) -> tuple[sim.Report, bool]:
        """The report, and whether the numbers are right."""
        args, right, how = self.launch()
        with np.errstate(all="ignore"):
            report = sim.run(self.original if source is None else source, self.entry, args=args, schedule=schedule, seed=seed, check=check,
                             max_steps=MAX_STEPS, **how)
            return report, right()


SUBJECTS: dict[str, Subject] = {}


def subject(name: str, source: Callable[[], Any], *, entry: str | None = None, compiled: bool = False,
            polls: bool = False) -> Callable[[Launch], Launch]:
    def register(launch: Launch) -> Launch:
        SUBJECTS[name] = Subject(name, source, launch, entry, compiled, polls)
        return launch

    return register


def integers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """Small integers: their products and sums are exact in every order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def same(found: Any, expected: Any) -> bool:
    return bool(np.array_equal(found, expected.astype(found.dtype)))


# The products: two tiles for every CTA where they are persistent, so that what is carried from tile to tile is exercised; k steps beyond
# the ring.


class Recorder:
    """Stands for `sim.run` in the simulation of a product, and notes the launch instead of executing it."""

    def __call__(self, traced: Any, *, grid: Any, args: Any, **_: Any) -> sim.Report:
        self.grid, self.args = grid, args
        return sim.Report()


def recorded(a: Any, b: Any, d: Any, config: DenseConfig, sms: int) -> Recorder:
    """The launch of a product on a card with so many SMs."""
    recorder = Recorder()
    with unittest.mock.patch.object(sim, "run", recorder):
        simulate(a, b, d, config=config, card=H200.with_sms(sms))
    return recorder


def _product(config: DenseConfig, m: int, n: int, k: int, ctas: int) -> Launch:
    operands = config.operands

    def launch() -> tuple[list[Any], Callable[[], bool], dict[str, Any]]:
        a, b = integers((m, k), NUMPY[operands.a], 1), integers((k, n), NUMPY[operands.a], 2)
        d = np.full((m, n), 77, NUMPY[operands.out])
        expected = a.astype(np.float32) @ b.astype(np.float32)
        made = recorded(a if operands.a_major == "k" else np.asfortranarray(a), np.asfortranarray(b) if operands.b_major == "k" else b, d,
                        config, ctas)
        return list(made.args), lambda: same(d, expected), {"grid": made.grid}

    return launch


OVER_M = Static(cluster=ClusterShape(2, 1))
PRODUCTS = {
    "hgemm": (DenseConfig(Operands(), Tile(128, 64), 3, scheduler=OVER_M), 512, 64, 320, 2),
    "hgemm.alone": (DenseConfig(Operands(f16, f16, f16), Tile(128, 128), 2), 256, 136, 200, 2),
    "hgemm.f32": (DenseConfig(Operands(out=f32), Tile(128, 64), 2), 256, 64, 192, 1),
    "hgemm.mn": (DenseConfig(Operands(a_major="mn", b_major="mn"), Tile(128, 128), 2, scheduler=OVER_M), 512, 128, 192, 2),
}
FORMS = {
    "gemm.pingpong": (DenseConfig(Operands(), Tile(64, 64), 3, Pingpong()), 320, 64, 256, 1),
    "gemm.shared": (DenseConfig(Operands(), Tile(128, 64), 2, scheduler=Static(cluster=ClusterShape(2, 2))), 512, 128, 192, 4),
    "gemm.spread": (DenseConfig(Operands(out=f32), Tile(128, 64), 2, scheduler=SplitK(2, "cluster")), 128, 64, 384, 2),
    "gemm.fp8": (DenseConfig(Operands(e4m3, e4m3, bf16), Tile(128, 64), 2, Cooperative(sums=Promoted())), 256, 64, 640, 1),
    # 640: around the ring, and a stage by itself
}
"""Other forms of the kernel: pingpong warpgroups, clusters in both directions, sums through distributed shared memory, promoted sums."""
SPLIT = {"gemm.split": (DenseConfig(Operands(out=f32), Tile(128, 64), 2, scheduler=SplitK(2)), 128, 64, 384, 2)}
"""Sums through global memory and counters."""
for _name, (_config, *_shape) in {**PRODUCTS, **FORMS, **SPLIT}.items():
    subject(_name, functools.partial(kernel_of(_config).trace, **_config.parameters), polls=_name in SPLIT)(_product(_config, *_shape))


# The examples.


@subject("tile_gemm", tile_gemm.tile_gemm.trace)
def _tile_gemm():
    a, b = integers((64, 384), ml_dtypes.bfloat16, 1), integers((256, 384), ml_dtypes.bfloat16, 2)
    c = np.full((64, 256), np.nan, np.float32)
    return [a, b, c, 6], lambda: same(c, a.astype(np.float32) @ b.astype(np.float32).T), {"grid": 1}


@subject("cluster_multicast", cluster_multicast.broadcast.trace)
def _cluster_multicast():
    source = np.random.default_rng(0).integers(0, 2**32, (2, cluster_multicast.BLOCK), dtype=np.uint32)
    target = np.zeros((2 * cluster_multicast.CLUSTER, cluster_multicast.BLOCK), np.uint32)
    return [source, target], lambda: same(target, np.repeat(source, cluster_multicast.CLUSTER, axis=0)), {"grid": 8}


@subject("tma_copy", tma_copy.tma_copy.trace)
def _tma_copy():
    source = np.random.default_rng(0).standard_normal((150, 68), dtype=np.float32)
    target = np.full((150, 68), np.nan, np.float32)
    return [source, target], lambda: same(target, source), {"grid": (3, 3)}


@subject("vector_add", vector_add.vector_add.trace)
def _vector_add():
    a, b = np.random.default_rng(0).standard_normal((2, 600), dtype=np.float32)
    a, b, c = a.copy(), b.copy(), np.full(600, np.nan, np.float32)
    return [a, b, c, 600], lambda: same(c, a + b), {"grid": 3}


@subject("row_sums", warp_reduction.row_sums.trace)
def _row_sums():
    matrix = integers((20, 77), np.float32)
    sums = np.full(20, np.nan, np.float32)
    return [matrix, sums, 20, 77], lambda: same(sums, matrix.sum(axis=1)), {"grid": 3}


# Kernels of `kernels.py`.


@subject("staged_mma", kernels.staged_mma.trace)
def _staged_mma():
    a, b = integers((64, 192), ml_dtypes.bfloat16, 1), integers((64, 192), ml_dtypes.bfloat16, 2)
    c = np.full((64, 64), np.nan, np.float32)
    return [a, b, c, 3], lambda: same(c, a.astype(np.float32) @ b.astype(np.float32).T), {"grid": 1}


@subject("exchange", kernels.exchange.trace)
def _exchange():
    source = np.arange(128, dtype=np.uint32)
    target = np.zeros(128, np.uint32)
    expected = source.reshape(2, 2, 32)[:, ::-1].reshape(-1) + 3
    return [source, target], lambda: same(target, expected), {"grid": 4}


@subject("named", kernels.named.trace)
def _named():
    source = np.arange(256, dtype=np.uint32)
    target = np.zeros(256, np.uint32)
    return [source, target, 4], lambda: same(target, source.reshape(4, 64)[:, ::-1].reshape(-1)), {"grid": 1}


@subject("publish", kernels.publish.trace)
def _publish():
    source = np.arange(160, dtype=np.uint32)
    target = np.zeros(160, np.uint32)
    return [source, target, 5], lambda: same(target, source.reshape(-1, 2)[:, ::-1].reshape(-1)), {"grid": 1}


def _retargeted() -> Any:
    """The trace copies through its parameter; here it copies through the edited map in global memory."""
    edit = Edit(kernels.retarget.trace())
    (maps,) = {written(s).partition(" ")[2].partition(",")[0] for s in edit.find(r"ld\.param\.u64 .*\[maps\]")}  # type: ignore[arg-type]
    return edit.text(r"cp\.async\.bulk\.tensor", r"\[%rd\d+, \{", f"[{maps}, {{").done()


@subject("retarget", _retargeted)
def _retarget():
    source = np.zeros((32, 32), np.float32)
    other, target = integers((96, 32), np.float32), np.full((96, 32), np.nan, np.float32)
    template = _encoded(source)
    maps = np.zeros(64, np.uint32)
    return [source, template, maps, other, target, 3], lambda: same(target, other), {"grid": 1}


# Kernels of `pipelines.py`.


@subject("pingpong", pipelines.pingpong.trace)
def _pingpong():
    a, b = integers((320, 256), ml_dtypes.bfloat16, 1), integers((64, 256), ml_dtypes.bfloat16, 2)
    d = np.full((320, 64), 77, ml_dtypes.bfloat16)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    return [a, b, d, 5, 4], lambda: same(d, expected), {"grid": 1}


@subject("bulk_sum", pipelines.bulk_sum.trace)
def _bulk_sum():
    source = np.arange(5 * 128, dtype=np.uint32)
    target = np.zeros(128, np.uint32)
    return [source, target, 5], lambda: same(target, source.reshape(5, 128).sum(axis=0) + 5), {"grid": 1}


@subject("mail", pipelines.mail.trace)
def _mail():
    source = np.arange(128, dtype=np.uint32)
    target = np.zeros(128, np.uint32)
    expected = source.reshape(2, 2, 32).astype(np.int64)
    for _ in range(3):
        sent = expected[:, ::-1]
        expected = sent + sent.reshape(2, 2, 16, 2)[..., ::-1].reshape(2, 2, 32)
    return [source, target], lambda: same(target, expected.reshape(-1)), {"grid": 4}


def _through_the_edited_map() -> Any:
    edit = Edit(pipelines.outputs.trace())
    (maps,) = {written(s).partition(" ")[2].partition(",")[0] for s in edit.find(r"ld\.param\.u64 .*\[maps\]")}  # type: ignore[arg-type]
    return edit.text(r"cp\.async\.bulk\.tensor", r"\[%rd\d+, \{", f"[{maps}, {{").done()


@subject("outputs", _through_the_edited_map)
def _outputs():
    source, other = integers((96, 32), np.float32), np.full((96, 32), np.nan, np.float32)
    template = np.zeros((32, 32), np.float32)
    return [template, _encoded(template), np.zeros(64, np.uint32), source, other, 3], lambda: same(other, source), {"grid": 1}


@subject("gather", pipelines.gather.trace)
def _gather():
    source = np.arange(256, dtype=np.uint32)
    target = np.zeros(256, np.uint32)
    blocks = source.reshape(2, 2, 64)
    return [source, target], lambda: same(target, (blocks + blocks[:, ::-1, ::-1]).reshape(-1)), {"grid": 4}


def _encoded(array: Any) -> Any:
    """The 128 bytes of the tensor map of 32 x 32 floats, as the simulator encodes it."""
    from ptxkit.sim.tensormap import of_fields
    from ptxkit.types import f32 as word

    fields = TensorMap(array, box=(32, 32)).fields(array.shape, (32, 1), word)
    return np.frombuffer(of_fields(fields, 0).encode(), np.uint32).copy()


@subject("pool", kernels.pool.trace)
def _pool():
    target = np.zeros(256, np.uint32)
    return [target], lambda: same(target, np.arange(128, 384)), {"grid": 1}


@subject("transpose", kernels.transpose.trace)
def _transpose():
    source = np.arange(1024, dtype=np.uint32).reshape(32, 32)
    target = np.zeros((32, 32), np.uint32)
    return [source, target], lambda: same(target, source.T), {"grid": 1}


# What nvcc makes of the CUDA sources here and of two kernels of the corpus.


def _text(path: Path) -> Callable[[], Any]:
    return lambda: grammar.parse(path.read_text())


@subject("nvcc.matmul", _text(HERE / "matmul.ptx"), compiled=True)
def _nvcc_matmul():
    a, b = integers((64, 320), ml_dtypes.bfloat16, 1), integers((64, 320), ml_dtypes.bfloat16, 2)
    c = np.full((64, 64), np.nan, np.float32)
    maps = [TensorMap(x, box=(64, 64), swizzle=128) for x in (a, b)]
    return [*maps, c, 5], lambda: same(c, a.astype(np.float32) @ b.astype(np.float32).T), {"grid": 1, "block": 256}


@subject("nvcc.add_one", _text(HERE / "pipeline.ptx"), compiled=True)
def _nvcc_add_one():
    source = np.arange(5 * 512, dtype=np.uint32)
    target = np.zeros(5 * 512, np.uint32)
    return [source, target, 5], lambda: same(target, source + 1), {"grid": 1, "block": 128}


@subject("nvcc.around", _text(HERE / "neighbours.ptx"), entry="around", compiled=True)
def _nvcc_around():
    source = np.arange(512, dtype=np.uint32)
    target = np.zeros(512, np.uint32)
    swapped = source.reshape(2, 4, 32, 2).astype(np.int64) + 6
    return [source, target], lambda: same(target, swapped.reshape(-1)), {"grid": 8, "block": 64}


@subject("nvcc.total", _text(HERE / "neighbours.ptx"), entry="total", compiled=True)
def _nvcc_total():
    source = np.arange(3 * 300, dtype=np.uint32)
    target = np.zeros(3, np.uint32)
    return [source, target, 300], lambda: same(target, source.reshape(3, 300).sum(axis=1)), {"grid": 3, "block": 128}


@subject("nvcc.staged", _text(CORPUS / "clusters.ptx"), entry="staged", compiled=True)
def _nvcc_staged():
    source = np.arange(5 * 128 * 4, dtype=np.float32).reshape(5, 128, 4)
    target = np.zeros((4, 128, 4), np.float32)
    expected = source[:4].reshape(4, 64, 2, 4)[:, :, ::-1].reshape(4, 128, 4)
    return [source, target, 5], lambda: same(target, expected), {"grid": 1, "block": 128}


@subject("nvcc.distributed", _text(CORPUS / "clusters.ptx"), entry="distributed", compiled=True)
def _nvcc_distributed():
    source = np.random.default_rng(0).integers(0, 512, 128, dtype=np.int32)
    target = np.full(512, -1, np.int32)

    def right() -> bool:
        bins = np.zeros((4, 128), np.int64)
        np.add.at(bins, (source & 3, source >> 2 & 127), 4)
        return same(target, (bins + (source & 3)).reshape(-1))

    return [source, target], right, {"grid": 4, "block": 128}


@subject("nvcc.last_block", _text(HERE / "flags.ptx"), entry="last_block", compiled=True, polls=True)
def _nvcc_last_block():
    source = integers((1000,), np.float32)
    partial, count, out = np.full(4, np.nan, np.float32), np.zeros(1, np.uint32), np.full(1, np.nan, np.float32)
    return [source, partial, count, out, 1000], lambda: same(out, source.sum(keepdims=True)), {"grid": 4, "block": 128}


@subject("nvcc.split", _text(HERE / "flags.ptx"), entry="split", compiled=True, polls=True)
def _nvcc_split():
    source = np.arange(256, dtype=np.uint32)
    workspace, flags, out = np.zeros(128, np.uint32), np.zeros(2, np.uint32), np.zeros(128, np.uint32)
    halves = source.reshape(2, 64, 2) * 3
    return [source, workspace, flags, out], lambda: same(out, (halves[0] + halves[1][:, ::-1]).reshape(-1)), {"grid": 4, "block": 64}


@subject("nvcc.tickets", _text(HERE / "flags.ptx"), entry="tickets", compiled=True, polls=True)
def _nvcc_tickets():
    source = np.arange(7 * 64, dtype=np.uint32)
    counter, out = np.zeros(1, np.uint32), np.zeros(7 * 64, np.uint32)
    return [source, counter, out, 7], lambda: same(out, source + np.repeat(np.arange(7), 64)), {"grid": 3, "block": 64}


@subject("nvcc.multistage", _text(HERE / "flags.ptx"), entry="multistage", compiled=True)
def _nvcc_multistage():
    a, b = integers((64, 160), ml_dtypes.bfloat16, 1), integers((64, 160), ml_dtypes.bfloat16, 2)
    c = np.full((64, 64), np.nan, np.float32)
    return [a, b, c, 5], lambda: same(c, a.astype(np.float32) @ b.astype(np.float32).T), {"grid": 1, "block": 128}


@subject("nvcc.handoff", _text(HERE / "flags.ptx"), entry="handoff", compiled=True)
def _nvcc_handoff():
    source = np.arange(5 * 128, dtype=np.uint32)
    target = np.zeros(5 * 128, np.uint32)
    swapped = source.reshape(5, 32, 4)[:, np.arange(32) ^ 5]
    return [source, target, 5], lambda: same(target, swapped.reshape(-1)), {"grid": 1, "block": 64}


@subject("nvcc.after", _text(HERE / "flags.ptx"), entry="after", compiled=True)
def _nvcc_after():
    source = np.arange(128, dtype=np.uint32)
    target = np.zeros(128, np.uint32)
    return [source, target], lambda: same(target, source * 2), {"grid": 2, "block": 64}


__all__ = ["MAX_STEPS", "NUMPY", "PRODUCTS", "SUBJECTS", "Subject", "integers", "same"]
