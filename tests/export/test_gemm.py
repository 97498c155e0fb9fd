"""`ptxkit export gemm`: C launches what `gemm.gemm` launches, with the same grid, arguments, tensor maps and workspace."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import Dynamic, Hilbert, SplitK, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.export import choices
from ptxkit.gemm.export.choices import Layer
from ptxkit.gemm.export.export import Exported, product
from ptxkit.gemm.launch import dense
from ptxkit.gemm.launch.grid import Grid
from ptxkit.gemm.problem.dense import Problem
from ptxkit.gemm.scheduler.hilbert import hilbert
from ptxkit.gemm.tools.bench import stub

from .recorder import CC, STRICT, Launched, Recorder, compiled, driver_library, loaded, said

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(120)]
STREAM = 0x5000
CURVE = -4              # its place among the parameters of a dense kernel


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver_library(tmp_path_factory.mktemp("driver"))


def long(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.pointer)


def matrix(dtype: str, rows: int, columns: int, letter: str, gap: int = 0) -> tuple[Any, int]:
    """An array [rows, columns] whose lines are contiguous along columns ("n") or rows ("t"), and its leading dimension."""
    inner, outer = (columns, rows) if letter == "n" else (rows, columns)
    made = stub.array(dtype, outer, inner + gap)
    made.shape = rows, columns
    made.strides = (inner + gap, 1) if letter == "n" else (1, inner + gap)
    return made, inner + gap


def operands(layer: Layer, m: int, gaps: tuple[int, int, int] = (0, 0, 0), scale_gap: int = 0) -> tuple[list[Any], list[int], list[Any]]:
    """A, B and D with their leading dimensions, and the scales."""
    found = [matrix(layer.dtype, m, layer.k, layer.layout[0], gaps[0]), matrix(layer.b_dtype, layer.k, layer.n, layer.layout[1], gaps[1]),
             matrix(layer.out, m, layer.n, "n", gaps[2])]
    scales: list[Any] = []
    if layer.scales == "tensor":
        scales = [stub.array("f32", 1), stub.array("f32", 1)]
    elif layer.scales == "row":
        scales = [stub.array("f32", m), stub.array("f32", layer.n)]
    elif layer.scales == "block":
        depth = -(-layer.k // 128)
        line = (-(-m // 4) * 4 if layer.padded else m) + scale_gap
        scales = [matrix("f32", m, depth, "t", line - m)[0], matrix("f32", depth, -(-layer.n // 128), "t")[0]]
    return [array for array, _ in found], [line for _, line in found], scales


def curveless(launched: Launched) -> Launched:
    """Without the address of the table of a curve, which each side has its own of."""
    return launched._replace(parameters=(*launched.parameters[:CURVE], b"", *launched.parameters[CURVE + 1:]))


def by_python(recorder: Recorder, arrays: list[Any], scales: list[Any], config: DenseConfig | None) -> tuple[list[Launched], int]:
    """What gemm.gemm launches, and the workspace that it has. `config` None: its own choice."""
    before = len(recorder.launches)
    gemm.gemm(*arrays, **dict(zip(("a_scale", "b_scale"), scales, strict=False)), stream=STREAM, config=config)
    launched = recorder.launches[before:]
    bytes = next(reversed(dense._launches.values())).workspace_bytes        # type: ignore[union-attr]
    return launched, dense._workspaces.of(0, STREAM, bytes) if bytes else 0


def by_c(library: ctypes.CDLL, exported: Exported, arrays: list[Any], lines: list[int], scales: list[Any], scale_line: int | None,
         workspace: int) -> int:
    """The status of the C function. The workspace has as many bytes as it asks for."""
    bytes = ctypes.c_uint64(0)
    assert getattr(library, f"{exported.name}_workspace")(ctypes.byref(bytes)) == 0, said(library, exported.name)
    assert bool(bytes.value) == bool(workspace)
    scaled = [at(scales[0]), *([] if scale_line is None else [long(scale_line)]), at(scales[1])] if scales else []
    flat = [each for pair in zip(map(at, arrays), map(long, lines), strict=True) for each in pair]
    return int(getattr(library, f"{exported.name}_gemm")(*flat, *scaled, ctypes.c_void_p(workspace), bytes, ctypes.c_void_p(STREAM)))


BLOCK = ("fp8-block", "e4m3", "e4m3", "bf16")
CASES = {
    "large": (Layer("bf16", 7168, 2048), 4096, Static, (0, 0, 0)),
    "few rows": (Layer("bf16", 4096, 7168), 16, Static, (8, 16, 24)),
    "one row": (Layer("bf16", 7168, 2048), 1, object, (0, 0, 0)),
    "nn": (Layer("f16", 1024, 1032, "f16", "f16", "f16", "nn"), 515, object, (8, 8, 8)),
    "tt": (Layer("bf16", 320, 1000, layout="tt"), 512, object, (0, 8, 0)),
    "tn, f32 result": (Layer("bf16", 264, 4096, out="f32", layout="tn"), 256, object, (8, 0, 4)),
    "tf32": (Layer("bf16", 768, 512, "f32", "f32", "f32"), 300, object, (4, 4, 4)),
    "odd N": (Layer("bf16", 50257, 768), 1024, object, (0, 0, 0)),
    "scaled": (Layer("fp8", 1280, 8192, "e4m3", "e4m3", "bf16", scales="tensor"), 64, object, (16, 32, 8)),
    "mixed fp8": (Layer("fp8", 1280, 512, "e5m2", "e4m3", "f16", scales="tensor"), 200, object, (0, 0, 0)),
    "blocks": (Layer(*BLOCK[:1], 7168, 2048, *BLOCK[1:], scales="block", padded=True), 192, object, (0, 0, 0)),
    "blocks of many rows": (Layer(*BLOCK[:1], 4096, 7168, *BLOCK[1:], scales="block", padded=True), 4096, Dynamic, (0, 0, 0)),
    "blocks of few rows": (Layer(*BLOCK[:1], 2112, 7168, *BLOCK[1:], scales="block", padded=True), 8, SplitK, (0, 0, 0)),
    "blocks of one row, not padded": (Layer(*BLOCK[:1], 2112, 7168, *BLOCK[1:], scales="block"), 1, object, (0, 0, 0)),
    "K of 288": (Layer(*BLOCK[:1], 5120, 288, *BLOCK[1:], scales="block", padded=True), 16, object, (0, 0, 0)),
    "stream-K": (Layer("bf16", 16160, 7168), 1024, StreamK, (0, 0, 0)),
    "split-K through the workspace": (Layer(*BLOCK[:1], 512, 7168, *BLOCK[1:], scales="block", padded=True), 128, SplitK, (0, 0, 0)),
    "split-K": (Layer("bf16", 256, 7168), 64, SplitK, (0, 0, 8)),
    "scales of rows": (Layer("fp8-row", 1280, 8192, "e4m3", "e4m3", "bf16", scales="row"), 64, object, (0, 0, 0)),
    "scales of one row": (Layer("fp8-row", 7168, 2048, "e4m3", "e4m3", "bf16", scales="row"), 1, object, (0, 0, 0)),
    "copied by threads": (Layer("bf16", 663, 1001), 64, object, (0, 0, 0)),
    "one operand copied by threads": (Layer("bf16", 2050, 514, layout="nn"), 190, object, (0, 0, 0)),
    "copied in words": (Layer("f16", 640, 1002, "f16", "f16", "f16"), 2000, object, (0, 0, 0)),
    "copied before": (Layer("bf16", 5003, 4099), 3001, object, (0, 0, 0)),
    "turned before": (Layer("bf16", 2048, 2048, "f32", "f32", "f32", "tn"), 2048, object, (0, 0, 0)),
    "tf32 of few rows, turned": (Layer("bf16", 512, 300, "f32", "f32", "f32", "nn"), 20, object, (0, 0, 0)),
    "Hilbert": (Layer("bf16", 4096, 4096), 4096, Static, (0, 0, 0)),
}


ONES = {
    "N of 1, nn": (Layer("bf16", 1, 7936, layout="nn"), 192), "M of 1, tn": (Layer("f16", 264, 128, "f16", "f16", "f16", "tn"), 1),
    "K of 1, nn": (Layer("f16", 3, 1, "f16", "f16", "f16", "nn"), 2744),
    "K of 1, nt of f32": (Layer("bf16", 640, 1, "f32", "f32", "f16"), 72),
    "K of 1, tt of f32": (Layer("bf16", 640, 1, "f32", "f32", "f32", "tt"), 72), "all 1": (Layer("bf16", 1, 1, layout="tn"), 1),
    "N of 1, nn of 8 bits": (Layer("fp8", 1, 512, "e5m2", "e4m3", "bf16", "nn", "tensor"), 40),
    "M of 1, tn of 8 bits": (Layer("fp8-row", 264, 512, "e4m3", "e4m3", "bf16", "tn", "row"), 1),
    "K of 128, blocks": (Layer("fp8-block", 256, 128, "e4m3", "e4m3", "bf16", scales="block", padded=True), 40),
}


@pytest.mark.parametrize("case", ONES)
def test_an_extent_of_one_lies_either_way(tmp_path: Path, driver: Path, case: str) -> None:
    """Without gaps, lines of one element are one line: C reads what Python reads."""
    layer, m = ONES[case]
    same_launches(tmp_path, driver, product(m, layer, tmp_path), layer, m, (0, 0, 0))


def test_lines_of_one_element_with_gaps_are_refused(tmp_path: Path, driver: Path) -> None:
    layer = Layer("bf16", 1, 256, layout="nn")
    exported, recorder = product(192, layer, tmp_path), Recorder()
    library = loaded(tmp_path / f"{exported.name}.c", driver, recorder)
    with recorder.under_python():
        arrays, _, _ = operands(layer, 192)
        for ldb, status in ((0, 0), (1, 0), (2, 5), (256, 5)):
            assert by_c(library, exported, arrays, [0, ldb, 0], [], None, 0) == status
    assert said(library, exported.name) == "ldb is 256: this product reads lines of one element that lie without gaps (0 or 1)"
    assert len(recorder.launches) == 2


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (5, 3), (31, 16), (64, 33)])
def test_the_curve_of_c_is_that_of_python(hilbert_of_c: Any, rows: int, columns: int) -> None:
    order = (ctypes.c_uint32 * (rows * columns))()
    hilbert_of_c(ctypes.c_uint64(rows), ctypes.c_uint64(columns), order)
    assert list(order) == hilbert(rows, columns).tolist()


@pytest.fixture(scope="module")
def hilbert_of_c(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The export's function, made visible."""
    folder = tmp_path_factory.mktemp("curve")
    exported = product(16, Layer("bf16", 128, 128), folder)
    text = (folder / f"{exported.name}.c").read_text()
    (folder / f"{exported.name}.c").write_text(text.replace("static void px_hilbert(", "void px_hilbert(uint64_t, uint64_t, uint32_t *);\n"
                                                            "void px_hilbert("))
    return ctypes.CDLL(str(compiled([folder / f"{exported.name}.c"], folder / "curve.so", *STRICT, "-shared", "-fPIC"))).px_hilbert


OFTEN = ("few rows", "tn, f32 result", "blocks of few rows", "blocks of one row, not padded", "stream-K",
         "split-K through the workspace", "Hilbert", "scales of rows", "copied by threads", "turned before")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", [case if case in OFTEN else pytest.param(case, marks=pytest.mark.sweep) for case in CASES])
def test_c_launches_what_python_launches(tmp_path: Path, driver: Path, case: str) -> None:
    """With gaps between lines Python might choose otherwise, and is told what to take."""
    layer, m, scheduler, gaps = CASES[case]
    exported = product(m, layer, tmp_path)
    assert isinstance(exported.configs[0].scheduler, scheduler), exported.configs[0]
    same_launches(tmp_path, driver, exported, layer, m, gaps)


SWAPPED = {
    "nt": (Layer("bf16", 1024, 512), Static()), "tn": (Layer("bf16", 1024, 512, layout="tn"), Static(Swizzle("along_n", 3))),
    "stream-K": (Layer("bf16", 1024, 4096, out="f32"), StreamK()),
    "Hilbert": (Layer("f16", 1024, 512, "f16", "f16", "f16"), Static(Hilbert())),
    "scales of rows": (Layer("fp8-row", 1280, 1024, "e4m3", "e4m3", "bf16", scales="row"), Static()),
    "one scale each": (Layer("fp8", 1280, 1024, "e5m2", "e4m3", "bf16", scales="tensor"), Dynamic()),
}


@pytest.mark.parametrize("case", [case if case in ("tn", "scales of rows") else pytest.param(case, marks=pytest.mark.sweep)
                                  for case in SWAPPED])
def test_c_swaps_a_and_b_as_python_does(tmp_path: Path, driver: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a configuration that swaps them as the tuned one."""
    layer, scheduler = SWAPPED[case]

    def swapped(problem: Problem, *_: Any) -> DenseConfig:
        return DenseConfig(problem.operands, Tile(128, 192), scheduler=scheduler, fusion=problem.fusion, swap_ab=True)

    monkeypatch.setattr(choices, "tuned", swapped)
    monkeypatch.setattr(dense, "tuned", swapped)
    same_launches(tmp_path, driver, product(264, layer, tmp_path), layer, 264, (16, 16, 8))


def same_launches(tmp_path: Path, driver: Path, exported: Exported, layer: Layer, m: int, gaps: tuple[int, int, int]) -> None:
    """C launches what Python launches."""
    recorder = Recorder()
    library = loaded(tmp_path / f"{exported.name}.c", driver, recorder)
    with recorder.under_python():
        arrays, lines, scales = operands(layer, m, gaps)
        before, workspace = by_python(recorder, arrays, scales, exported.configs[0] if any(gaps) else None)
        allowed, recorder.allowed = recorder.allowed, []
        scale_line = scales[0].strides[1] if layer.scales == "block" else None
        assert getattr(library, f"{exported.name}_load")() == 0, said(library, exported.name)
        held = recorder.loads, len(recorder.memory)
        status = by_c(library, exported, arrays, lines, scales, scale_line, workspace)
    assert status == 0, said(library, exported.name)
    assert (recorder.loads, len(recorder.memory)) == held, "a launch that is captured loads and allocates nothing"
    found = recorder.launches[len(before):]
    assert found[:-1] == before[:-1]
    c, python = found[-1], before[-1]
    if isinstance(exported.configs[0].scheduler.order, Hilbert):
        (address, table), = recorder.memory.items()
        assert c.parameters[CURVE] == address.to_bytes(8, "little")
        rows, columns = Grid.of(layer.problem(m), exported.configs[0], 1).curve or (0, 0)
        assert table == hilbert(rows, columns).tobytes()
        c, python = curveless(c), curveless(python)
    assert c == python
    assert c is not python
    assert set(recorder.allowed) == set(allowed)
