"""Operands and results of any address and stride, on the CPU device with its checker, against float64; poison around results stays."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.collective import pipeline
from ptxkit.gemm.collective.epilogue_ops import PLAIN_SUM, Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import (
    AsyncCopies,
    ClusterShape,
    ConfigError,
    Cooperative,
    CopiedLoads,
    Direct,
    Dynamic,
    ElementCopies,
    Loads,
    OperandCopies,
    Pingpong,
    Rows,
    ShiftedCopies,
    SplitK,
    Static,
    StreamK,
    TensorCopies,
    Tile,
)
from ptxkit.gemm.heuristic import copied
from ptxkit.gemm.heuristic.dense import candidates, heuristic
from ptxkit.gemm.heuristic.tuned import knobs, revive
from ptxkit.gemm.kernels.align_lines import align_lines
from ptxkit.gemm.launch import dense
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.lines import operand
from ptxkit.gemm.tools import reference
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.problems import asked
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import bf16, e4m3, f16, f32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}
CARD = H200.with_sms(2)


def matrix(rng: np.random.Generator, word: str, outer: tuple[int, ...], rows: int, columns: int, letter: str = "n", pad: int = 0,
           offset: int = 0, values: bool = True) -> tuple[Array, Array]:
    """A matrix, or a batch, `offset` elements into a buffer of NaN and with `pad` elements between its lines; and the buffer."""
    lines, inner = (rows, columns) if letter == "n" else (columns, rows)
    count = int(np.prod(outer, dtype=int)) * lines * (inner + pad)
    whole = np.full(offset + count + 7, np.nan, np.float32).astype(NUMPY[word])
    seen = whole[offset:offset + count].reshape(*outer, lines, inner + pad)[..., :inner]
    if values:
        seen[...] = rng.standard_normal(seen.shape).astype(NUMPY[word])
    return (seen if letter == "n" else np.swapaxes(seen, -1, -2)), whole


def check(m: int, n: int, k: int, a: str = "bf16", out: str = "", layout: str = "nt", batches: int = 0, pads: tuple[int, ...] = (0,) * 4,
          offsets: tuple[int, ...] = (0,) * 4, seed: int = 0, fused: str = "", **more: Any) -> None:
    """One product: right, certified, and nothing written outside of D."""
    rng, outer = np.random.default_rng(seed), (batches,) if batches else ()
    out = out or ("bf16" if a == "e4m3" else a)
    x, _ = matrix(rng, a, outer, m, k, layout[0], pads[0], offsets[0])
    y, _ = matrix(rng, a, outer, k, n, layout[1], pads[1], offsets[1])
    d, whole = matrix(rng, out, outer, m, n, "n", pads[2], offsets[2], values=False)
    exact, magnitude = x.astype(np.float64) @ y.astype(np.float64), np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64))
    if fused in ("c", "residual"):
        more[fused], _ = matrix(rng, "f16", outer, m, n, "n", pads[3], offsets[3])
        exact = exact + more[fused].astype(np.float64) * (0.5 if fused == "c" else 1.0)
        more |= {"beta": 0.5} if fused == "c" else {}
    if fused in ("bias", "rows"):
        bias, _ = matrix(rng, "bf16", (), 1, n if fused == "bias" else m, offset=offsets[3])
        more["bias"] = bias[0] if fused == "bias" else bias.T
        exact = exact + (bias if fused == "bias" else bias.T).astype(np.float64)
    report = simulate(x, y, d, card=CARD, seed=seed, **more)
    loss = reference.accumulation(k, a) + (2.0**-9 if a == "f32" else 0.0)
    error = np.abs(d.astype(np.float64) - exact)
    assert (error <= magnitude * loss + np.abs(exact) * reference.HALF_ULP[out] * 1.01 + 1e-5).all(), float(np.nanmax(error))
    d[...] = np.nan
    assert np.isnan(whole.astype(np.float32)).all(), "written outside of D"
    streams = isinstance(getattr(more.get("config"), "scheduler", None), SplitK | StreamK)
    assert report.verdict in (("clean", "incomplete") if streams else ("clean",)), str(report)
    assert report.findings == report.reasons, str(report)


def drawn(number: int) -> dict[str, Any]:
    """A random small product."""
    rng, gaps = random.Random(number), (0, 0, 1, 2, 4, 8)
    a = rng.choice(("bf16", "bf16", "f16", "f32", "e4m3"))
    return {"m": rng.randint(1, 140), "n": rng.randint(1, 140), "k": rng.randint(1, 200), "a": a,
            "out": rng.choice(("", "", "f32")), "layout": rng.choice(("nt", "nn", "tn", "tt")), "batches": rng.choice((0, 0, 0, 2)),
            "pads": tuple(rng.choice(gaps) for _ in range(4)), "offsets": tuple(rng.choice(gaps) for _ in range(4)),
            "seed": number, "fused": rng.choice(("", "", "c", "residual", "bias", "rows"))}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("number", range(8))
def test_random_products(number: int) -> None:
    check(**drawn(number))


def test_one_column_of_any_length() -> None:
    """One line of B has no next one, so its length is no multiple of anything."""
    check(75, 1, 42, "f16", "f32", pads=(2, 1, 1, 0), offsets=(4, 8, 4, 4), fused="c")


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_many_random_products() -> None:
    for number in range(1000, 1400):
        check(**drawn(number))


BOTH = CopiedLoads(AsyncCopies(4), AsyncCopies(4))
SHIFTED = CopiedLoads(ShiftedCopies(2), ShiftedCopies(2))
STRUCTURES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"tile": Tile(64, 64), "loads": BOTH}, {"k": 330}),                                                        # once round the ring
    ({"tile": Tile(64, 64), "loads": BOTH, "stages": 2, "schedule": Pingpong()}, {"m": 140}),
    ({"tile": Tile(128, 64), "loads": CopiedLoads(ElementCopies())}, {}),
    ({"tile": Tile(128, 64), "loads": CopiedLoads(TensorCopies())}, {"pads": (2, 0, 0, 0)}),
    ({"tile": Tile(64, 64), "loads": CopiedLoads(ElementCopies(True), TensorCopies())}, {"pads": (0, 2, 0, 0)}),
    ({"tile": Tile(64, 64, 128), "loads": BOTH}, {"k": 330}),                                                   # two spans a stage
    ({"tile": Tile(64, 64), "loads": BOTH, "scheduler": SplitK(2)}, {"k": 330}),
    ({"tile": Tile(64, 64), "loads": BOTH, "scheduler": SplitK(2, "cluster")}, {"k": 330}),
    ({"tile": Tile(64, 64), "loads": CopiedLoads(TensorCopies()), "scheduler": Static(cluster=ClusterShape(1, 2))},
     {"pads": (6, 0, 0, 0), "k": 330}),
    ({"tile": Tile(64, 128), "loads": BOTH, "scheduler": StreamK()}, {"m": 60, "k": 1100}),
    ({"tile": Tile(64, 128), "store": Rows(), "schedule": Pingpong()}, {"m": 140, "k": 104, "n": 131}),         # rows begin within words
    ({"tile": Tile(128, 64), "store": Rows()}, {"k": 104, "n": 131, "pads": (0, 0, 1, 0), "offsets": (0, 0, 1, 0), "fused": "residual"}),
    ({"tile": Tile(64, 32), "store": Rows(), "operands": Operands(out=f32)}, {"out": "f32", "k": 104, "n": 37}),
    ({"tile": Tile(64, 32), "store": Rows()}, {"k": 104, "n": 37, "offsets": (0, 0, 1, 0)}),                    # two rows at a time
    ({"tile": Tile(64, 16), "store": Rows()}, {"k": 104, "n": 37}),                                             # four
    ({"tile": Tile(64, 64), "loads": SHIFTED}, {"k": 331, "offsets": (3, 5, 0, 0)}),                            # once round the ring
    ({"tile": Tile(64, 64), "loads": SHIFTED, "stages": 2, "schedule": Pingpong(), "operands": Operands(batched=True)},
     {"m": 140, "k": 201, "batches": 2}),
    ({"tile": Tile(64, 64), "loads": CopiedLoads(ShiftedCopies(4), ShiftedCopies(4)), "scheduler": SplitK(2, "cluster")},
     {"k": 331, "pads": (1, 3, 0, 0)}),
    ({"tile": Tile(64, 96), "loads": CopiedLoads(TensorCopies(), ShiftedCopies(5))}, {"k": 200, "offsets": (0, 1, 0, 0)}),
    ({"tile": Tile(64, 64, 128), "loads": SHIFTED, "operands": Operands(a_major="mn", b_major="mn")},
     {"m": 150, "k": 331, "layout": "tn", "offsets": (1, 7, 0, 0)}),
    ({"tile": Tile(64, 64), "loads": SHIFTED, "operands": Operands(f32, f32, f32)}, {"a": "f32", "k": 133, "offsets": (1, 2, 0, 0)}),
    ({"tile": Tile(64, 64), "loads": SHIFTED, "operands": Operands(e4m3, e4m3)}, {"a": "e4m3", "k": 401, "offsets": (9, 2, 0, 0)}),
)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("number", range(len(STRUCTURES)))
def test_structures(number: int) -> None:
    config, product = STRUCTURES[number]
    fusion = Fusion(residual=f16) if product.get("fused") else PLAIN_SUM
    made = DenseConfig(**{"operands": Operands(), "store": Direct(1), "fusion": fusion, **config})
    check(**{"m": 70, "n": 67, "k": 102, "config": made, **product})


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("align", "word", "layout", "more"), [
    ("ab", "bf16", "nt", {}), ("ab", "f16", "tt", {"offsets": (1, 3, 0, 0)}), ("b", "bf16", "nn", {"pads": (2, 0, 0, 0)}),
    ("ab", "f32", "nn", {}), ("ab", "e4m3", "tn", {"k": 131}), ("ab", "bf16", "nt", {"batches": 2})])
def test_operands_that_are_copied_before(align: Any, word: str, layout: str, more: dict[str, Any]) -> None:
    kind = {"bf16": bf16, "f16": f16, "f32": f32, "e4m3": e4m3}[word]
    majors = [("k" if kind.bits != 16 or letter == major else "mn") for letter, major in zip(layout, "nt", strict=True)]
    operands = Operands(kind, kind, bf16 if word == "e4m3" else kind, f32, majors[0], majors[1], "batches" in more)  # type: ignore[arg-type]
    check(70, 67, a=word, layout=layout, config=DenseConfig(operands, Tile(64, 64), loads=Loads(align=align), store=Direct(1)),
          **{"k": 102, **more})


def test_what_is_chosen_copies_small_operands_before_and_large_ones_never() -> None:
    for k, word in ((2001, "bf16"), (16_001, "f16")):
        for layout in ("nt", "nn", "tn", "tt"):
            problem = asked(6001, 5003, k, word, layout=layout)
            config = heuristic(problem, H200)
            large = 6001 * k * 2 > H200.l2_mib * (1 << 20)
            assert (config.loads.align == "") == large, (k, layout)
            assert revive(knobs(config, problem), problem) == config
            dense.check_config(config, problem)
            assert config in itertools.islice(candidates(problem, H200), 1)
            assert large == (isinstance(config.loads, CopiedLoads) and config.loads.ahead > 0)
    small = heuristic(asked(70, 67, 104), H200)                # only D is misaligned
    assert not small.by_threads
    assert small.loads.align == ""
    assert small.store in (Rows(), Direct(1))


def test_a_copy_that_is_not_needed_or_not_enough_is_refused() -> None:
    problem = asked(70, 67, 101)
    config = DenseConfig(Operands(), Tile(64, 64), loads=Loads(align="ab"), store=Rows())
    dense.check_config(config, problem)
    loads = Loads(align="a")
    with pytest.raises(LaunchError, match="loads b by TensorCopies"):
        dense.check_config(replace(config, loads=loads), problem)
    with pytest.raises(LaunchError, match="stores by Direct"):
        dense.check_config(replace(config, store=Direct(2)), problem)


def test_without_the_readers_fence_the_checker_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of threads go through the generic proxy, wgmma reads through the async proxy."""
    config = DenseConfig(Operands(), Tile(64, 72), store=Direct(1), loads=BOTH)             # which no other test traces
    monkeypatch.setattr(pipeline.ConsumerSide, "wait", lambda self, stage, parity: pipeline.wait(self.pipeline.full[stage], parity))
    with pytest.raises(AssertionError, match="proxy-fence"):
        check(70, 67, 102, config=config)


ELEMENTS = CopiedLoads(ElementCopies(), ElementCopies())


@pytest.mark.thinned(3)
@pytest.mark.ptxas
@pytest.mark.parametrize("config", [
    DenseConfig(Operands(), Tile(128, 256), loads=ELEMENTS, store=Rows()),
    DenseConfig(Operands(a_major="mn", b_major="mn"), Tile(256, 128), loads=ELEMENTS, store=Rows()),
    DenseConfig(Operands(f32, f32, f32), Tile(128, 256), loads=CopiedLoads(AsyncCopies(4), ElementCopies(True)), store=Rows()),
    DenseConfig(Operands(e4m3, e4m3), Tile(128, 128), loads=ELEMENTS, store=Direct(1), scheduler=SplitK(4)),
    DenseConfig(Operands(), Tile(192, 128), loads=ELEMENTS, store=Rows()),
    DenseConfig(Operands(a_major="mn"), Tile(192, 128), loads=CopiedLoads(), store=Rows()),
    DenseConfig(Operands(), Tile(64, 256), store=Rows()),
    DenseConfig(Operands(a_major="mn"), Tile(128, 192), loads=SHIFTED, store=Rows()),
    DenseConfig(Operands(), Tile(64, 176), loads=CopiedLoads(ShiftedCopies(4), ShiftedCopies(4)), store=Direct(1), scheduler=SplitK(2))],
    ids=str)
def test_copies_and_stores_by_threads_spill_nothing(config: DenseConfig) -> None:
    (used,) = kernel_of(config).assemble(**config.parameters).resources.values()
    assert (used.spills, used.stack) == (0, 0)
    assert used.registers <= 65_536 // config.threads


def test_an_operand_is_loaded_as_widely_as_it_allows() -> None:
    def best(shape: tuple[int, ...], strides: tuple[int, ...], word: str = "bf16", pointer: int = 0) -> OperandCopies:
        return operand("a", ArrayView(pointer, shape, strides, word, 0, "other"), rows_are_mn=True).copies

    assert best((64, 99), (104, 1)) == TensorCopies()                                        # the extent does not matter, the lines do
    assert best((64, 100), (100, 1)) == AsyncCopies(8)
    assert best((64, 98), (98, 1)) == AsyncCopies(4)
    assert best((64, 99), (99, 1)) == ElementCopies() == best((64, 96), (96, 1), pointer=2)
    assert best((64, 96), (96, 1), pointer=8) == AsyncCopies(8)
    assert best((64, 99), (100, 1)) == ElementCopies()                                       # half a word would be left over
    assert best((64, 96), (200, 2)) == ElementCopies(True) == best((64, 96), (1, 64), "f32")
    assert best((64, 99), (99, 1), "f32") == AsyncCopies(4)
    assert best((1, 96), (5, 1)) == TensorCopies()                                           # one line has no next one
    assert best((3, 64, 96), (6145, 96, 1)) == ElementCopies()
    assert best((3, 64, 96), (0, 96, 1)) == TensorCopies()


@pytest.mark.parametrize(("changes", "word"), [
    ({"scheduler": Dynamic()}, r"Static\(\), SplitK\(\) or StreamK"), ({"tile": Tile(256, 160)}, "registers"),
    ({"tile": Tile(64, 72), "loads": CopiedLoads(b=AsyncCopies(16))}, "16 lines of B"),
    ({"loads": CopiedLoads(ElementCopies(True)), "tile": Tile(64, 64, 96)}, "BK"),
    ({"loads": CopiedLoads(ShiftedCopies(16), ShiftedCopies(16))}, "fit, take a smaller tile")])
def test_what_threads_cannot_copy(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        DenseConfig(**{"operands": Operands(bf16, bf16, f32), "tile": Tile(64, 64), "schedule": Cooperative(), "scheduler": Static(),
                       "loads": BOTH, **changes})


def test_a_table_keeps_what_is_shifted() -> None:
    problem = asked(40, 9001, 4001)
    for config in itertools.islice((one for _, one in copied.timed(problem, H200) if one.loads != problem.loads(Static())), 5):
        assert knobs(config, problem)["ahead"] > 1
        assert revive(knobs(config, problem), problem) == config


def test_what_is_shifted_goes_with_its_like() -> None:
    for given in ((ShiftedCopies(), ElementCopies()), (AsyncCopies(), ShiftedCopies()), (ShiftedCopies(2), ShiftedCopies(3))):
        with pytest.raises(ConfigError, match="its like"):
            CopiedLoads(*given)
    with pytest.raises(ConfigError, match="ahead=1"):
        ShiftedCopies(1)


def test_what_is_shifted_ends_where_its_memory_ends() -> None:
    """The last unit of the last line is not all there."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((lines, 75)).astype(np.float16) for lines in (5, 13))
    d = np.zeros((5, 13), np.float16)
    report = simulate(x, y.T, d, config=DenseConfig(Operands(f16, f16, f16), Tile(64, 16), loads=SHIFTED, store=Direct(1)), card=CARD)
    assert report.verdict == "clean", str(report)
    assert np.allclose(d, x.astype(np.float32) @ y.T.astype(np.float32), atol=0.05)


@pytest.mark.ptxas
def test_a_repeated_launch_takes_the_new_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operands that threads copy the kernel gets the address itself, not in a tensor map."""
    with stub.installed():
        monkeypatch.setattr(dense, "configuration", lambda problem, ordinal: copied.fastest(problem)[0])
        for k in (101, 100):
            a, b, out = stub.array("bf16", 70, k), stub.array("bf16", k, 67), stub.array("bf16", 70, 67)
            gemm.gemm(a, b, out)
            other, third = stub.array("bf16", 70, k), stub.array("bf16", 70, 67)
            gemm.gemm(other, b, third)
            launch, plan = next(reversed(dense._launches.values())), next(reversed(dense._plans.values()))
            assert isinstance(launch, dense.Launch)
            names = ("a_source_pointer", "b_source_pointer", "out_pointer")
            assert [launch.scalars[plan.places[name]] for name in names] == [array.pointer for array in (other, b, third)]


@pytest.mark.ptxas
def test_copies_of_operands_are_launched_before_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the stream's workspace, from the arrays of this call; the tensor maps point at the copies."""
    launched: list[Any] = []
    with stub.installed():
        monkeypatch.setattr(dense.Aligner, "run", lambda self, stream, operand, place: launched.append((self.copy, operand, place)))
        a, b, out = stub.array("bf16", 70, 101), stub.array("bf16", 101, 67), stub.array("bf16", 70, 67)
        config = DenseConfig(Operands(b_major="mn"), Tile(64, 64), loads=Loads(align="ab"), store=Direct(1))
        for first in (a, stub.array("bf16", 70, 101)):
            gemm.gemm(first, b, out, config=config)
            launch = next(reversed(dense._launches.values()))
            assert isinstance(launch, dense.Launch)
            (one, from_a, place), (two, from_b, _) = launched
            assert (from_a, from_b) == (first.pointer, b.pointer)
            assert (one.name, two.name) == ("a", "b")
            assert one.offset + one.bytes <= two.offset
            assert two.offset + two.bytes <= launch.workspace_bytes
            assert [seen.fields.strides[0] for seen in launch.maps[:2]] == [256, 256]
            assert launch.aligned == place
            launched.clear()


@pytest.mark.ptxas
@pytest.mark.parametrize(("size", "across"), [(1, False), (2, False), (4, False), (1, True), (2, True), (4, True)])
def test_the_copying_kernel_spills_nothing(size: int, across: bool) -> None:
    (used,) = align_lines.assemble(size=size, across=across).resources.values()
    assert (used.spills, used.stack) == (0, 0)


@pytest.mark.parametrize("n", [4, 20])
def test_rows_of_f32_that_end_within_a_block_of_columns(n: int) -> None:
    """Tensor copies can store such a result, and direct stores only by element: none is in pairs, which would write the next row."""
    check(70, n, 512, out="f32", config=None)
    problem = asked(70, n, 512, "bf16", out="f32")
    every = list(candidates(problem, CARD))
    assert any(isinstance(each.store, Direct) for each in every)
    assert all(each.store != Direct(2) for each in every)
    with pytest.raises(LaunchError, match="do not allow"):
        dense.check_config(replace(every[0], store=Direct(2)), problem)
