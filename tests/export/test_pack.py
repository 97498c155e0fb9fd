"""`ptxkit export gemm --model`: the C function chooses as Python does, and launches what Python launches with that choice."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.cli.main import main
from ptxkit.errors import PtxkitError
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import Hilbert
from ptxkit.gemm.export import export
from ptxkit.gemm.export.choices import KINDS, Layer
from ptxkit.gemm.export.plan import plan
from ptxkit.gemm.launch import dense
from ptxkit.gemm.tools import models, problems
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.bench.shapes import BYTES, Problem, of_layers

from .recorder import CC, Recorder, driver_library, loaded, said
from .test_gemm import STREAM, curveless, operands

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(300)]
_P, _L = ctypes.c_void_p, ctypes.c_uint64


class Product(ctypes.Structure):
    """NAME_product."""

    _fields_ = (("type", ctypes.c_int), ("m", _L), ("n", _L), ("k", _L), ("a", _P), ("b", _P), ("d", _P), ("lda", _L), ("ldb", _L),
                ("ldd", _L), ("a_scale", _P), ("b_scale", _P), ("a_scale_ld", _L), ("workspace", _P), ("workspace_bytes", _L))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver_library(tmp_path_factory.mktemp("driver"))


def of(shape: Problem, m: int | None = None) -> Product:
    """A shape of the preset `models` as C has it."""
    kind = "fp8-block" if shape.block else "fp8" if BYTES[shape.dtype] == 1 else shape.dtype
    return Product(list(KINDS).index(kind), m or shape.m, shape.n, shape.k)


def shapes(model: str, cards: int | None) -> tuple[Problem, ...]:
    return of_layers(models.dense(model, cards))


@pytest.fixture
def one_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports with real tables, in which no code stands for each cubin: no kernel is launched."""
    known: list[Any] = []

    def stand_in(config: DenseConfig, layer: Layer) -> Any:
        known[:] = known or [plan(config, layer)]
        return replace(known[0], config=config, entry=replace(known[0].entry, cubin=bytes(8)))

    monkeypatch.setattr(export, "plan", stand_in)
    monkeypatch.setattr(export, "group_tables", lambda *_: ())


PACKS = [("deepseek-v3", 8), ("llama-3.3-70b", None), ("bert", None)]
MORE = [("deepseek-v3", None), ("deepseek-v4-flash", None), ("llama-3.1-8b", 2), ("llama-3.1-405b", None), ("qwen3.5-27b", None),
        ("gpt-2", None)]


@pytest.mark.parametrize(("model", "cards"), [*PACKS, *(pytest.param(*one, marks=pytest.mark.sweep) for one in MORE)])
def test_c_chooses_as_python_does(tmp_path: Path, driver: Path, one_cubin: None, model: str, cards: int | None) -> None:
    made = export.pack(model, tmp_path, cards=cards)
    library = loaded(made.files[1], driver, Recorder())
    choice = getattr(library, f"{made.name}_choice")
    words = getattr(library, f"{made.name}_configuration")
    words.restype = ctypes.c_char_p
    asked = shapes(model, cards)
    assert asked
    for shape in asked:
        found = choice(ctypes.byref(of(shape)))
        assert made.configs[found] == problems.chosen(shape, H200), shape
        assert words(found).decode() == str(made.configs[found])
    alike = [shape for shape in asked if shape.m > 1 and (shape.n, shape.k, shape.dtype) == (asked[0].n, asked[0].k, asked[0].dtype)]
    rows = sorted(shape.m for shape in alike)
    for m in (2, 7, 9, 100, 129, 1000, 4097, 100_000):                  # the next listed number of rows; the largest for more
        product = of(alike[0], m)
        product.a_scale_ld = -(-m // 4) * 4
        listed = next((row for row in rows if m <= row), rows[-1])
        assert choice(ctypes.byref(product)) == choice(ctypes.byref(of(alike[0], listed))), m


def test_scales_of_rows_are_another_type(tmp_path: Path, driver: Path, one_cubin: None) -> None:
    made = export.pack("llama-3.3-70b", tmp_path, by_row=True)
    library = loaded(made.files[1], driver, Recorder())
    assert {table.layer.kind for table in made.tables} == {"bf16", "fp8-row"}
    for table in made.tables:
        for m in models.DECODE + models.PREFILL:
            product = Product(list(KINDS).index(table.layer.kind), m, table.layer.n, table.layer.k)
            assert made.configs[library[f"{made.name}_choice"](ctypes.byref(product))] == table.layer.chosen(m, H200)
            if table.layer.scales:
                assert table.layer.chosen(m, H200).fusion.scale == ("column" if m == 1 else "row_column")


def test_what_a_pack_has_not_is_a_sentence(tmp_path: Path, driver: Path, one_cubin: None) -> None:
    made = export.pack("deepseek-v3", tmp_path, cards=8, name="pack")
    library = loaded(made.files[1], driver, Recorder())
    for product, sentence in (
            (Product(0, 16, 256, 7169), "there is no product of type 0 with N 256 and K 7169 here: the header lists those that there are"),
            (Product(1, 16, 256, 7168), "there is no product of type 1 with N 256 and K 7168 here: the header lists those that there are"),
            (Product(4, 9, 2112, 7168), "the lines of a_scale have 9 elements: pad them to a multiple of 4 (a_scale_ld)")):
        assert library.pack_choice(ctypes.byref(product)) == -1
        assert said(library, "pack") == sentence
        assert library.pack_gemm(ctypes.byref(product), None) == 5
        assert library.pack_workspace(ctypes.byref(product), ctypes.byref(_L())) == 5
    assert library.pack_choice(ctypes.byref(Product(4, 9, 2112, 7168, a_scale_ld=12))) >= 0


def launches(library: ctypes.CDLL, made: export.Exported, recorder: Recorder, layer: Layer, m: int, config: DenseConfig) -> None:
    """C and Python launch the same; `config` is what Python is told to take, where that is not its own choice."""
    arrays, lines, scales = operands(layer, m)
    before = len(recorder.launches)
    gemm.gemm(*arrays, **dict(zip(("a_scale", "b_scale"), scales, strict=False)), stream=STREAM,
              config=None if layer.chosen(m, H200) == config else config)
    python = recorder.launches[-1]
    launch = next(reversed(dense._launches.values()))
    bytes = launch.workspace_bytes                                      # type: ignore[union-attr]
    workspace = dense._workspaces.of(0, STREAM, bytes) if bytes else 0
    needs = _L(0)
    scaled = [scale.pointer for scale in scales] or (None, None)
    product = Product(list(KINDS).index(layer.kind), m, layer.n, layer.k, *(array.pointer for array in arrays), *lines, *scaled,
                      scales[0].strides[1] if layer.scales == "block" else 0, workspace)
    assert getattr(library, f"{made.name}_workspace")(ctypes.byref(product), ctypes.byref(needs)) == 0, said(library, made.name)
    assert needs.value == bytes
    product.workspace_bytes = bytes
    assert getattr(library, f"{made.name}_gemm")(ctypes.byref(product), _P(STREAM)) == 0, said(library, made.name)
    _, c = recorder.launches[before:]
    hilbert = config is not None and isinstance(config.scheduler.order, Hilbert)
    assert (curveless(c) == curveless(python)) if hilbert else (c == python), (layer, m)
    if bytes:
        product.workspace_bytes = bytes - 1
        assert getattr(library, f"{made.name}_gemm")(ctypes.byref(product), _P(STREAM)) == 5
        assert said(library, made.name).startswith(f"the workspace has {bytes - 1} bytes at ")
        recorder.cleared.clear()
        assert getattr(library, f"{made.name}_prepare")(_P(workspace), needs, _P(STREAM)) == 0
        assert recorder.cleared == [(workspace, 64 << 10, STREAM)]


def every(made: export.Exported) -> Iterator[tuple[Layer, int, DenseConfig]]:
    """Numbers of rows between those of the tables, with the choice."""
    for table in made.tables:
        bounds = [most for most, _ in table.choices]
        for m in sorted({*bounds, *(max(1, most - 3) for most in bounds), bounds[-1] + (8 if table.layer.padded else 5)}):
            config = table.chosen(m)
            fits = not config.loads.a_rows or m <= config.loads.a_rows
            if fits and (m % 4 == 0 or table.layer.padded or table.layer.scales != "block" or m <= bounds[-1]):
                yield table.layer, m, config


@pytest.mark.parametrize(("model", "by_row"), [("gpt-2", False), *(pytest.param(*one, marks=pytest.mark.sweep) for one in (
    ("deepseek-v3", False), ("llama-3.1-8b", False), ("llama-3.3-70b", True), ("llama-3.1-405b", False), ("deepseek-v4-flash", False),
    ("bert", False)))])
def test_a_pack_launches_what_python_launches(tmp_path: Path, driver: Path, model: str, by_row: bool) -> None:
    recorder = Recorder()
    made = export.pack(model, tmp_path, by_row=by_row)
    library = loaded(made.files[1], driver, recorder)
    with recorder.under_python():
        assert getattr(library, f"{made.name}_load")() == 0, said(library, made.name)
        count = 0
        for layer, m, config in every(made):
            launches(library, made, recorder, layer, m, config)
            count += 1
        assert count >= len(made.tables)


def test_rows_may_be_named_and_then_every_choice_is_pythons(tmp_path: Path, driver: Path, one_cubin: None) -> None:
    made = export.pack("deepseek-v4-flash", tmp_path, rows=tuple(range(1, 65)), name="pack")
    library = loaded(made.files[1], driver, Recorder())
    for table in made.tables:
        for m in range(1, 65, 3):
            if table.layer.padded:
                product = Product(4, m, table.layer.n, table.layer.k, a_scale_ld=-(-m // 4) * 4)
                assert made.configs[library.pack_choice(ctypes.byref(product))] == table.layer.chosen(m, H200)


# ------------------------------------------------------------------------------------------------ the command


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(["export", "gemm", *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_writes_one_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "out")
    status, out, err = command(capsys, "-m", "16", "-n", "4096", "-k", "7168", "--card", "h200", "-o", folder, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert [Path(file).name for file in found["files"]] == [f"gemm_16x4096x7168_bf16_nt.{kind}" for kind in ("h", "c", "cubin")]
    assert found["configurations"] == [str(Layer("bf16", 4096, 7168).chosen(16, H200))]
    assert found["card"] == H200.name
    assert command(capsys, "-m", "16", "-n", "4096", "-k", "7168", "--card", "h200", "-o", folder)[0] == 1


@pytest.mark.parametrize(("arguments", "status", "sentence"), [
    (("-m", "16", "-n", "16"), 2, "error: give -m, -n and -k of a product, or --model"),
    (("--model", "gpt-2", "-m", "3"), 2, "error: --model says which products there are: leave out -m"),
    (("--model", "gpt-2", "--out-dtype", "f32"), 2, "error: --model says which products there are: leave out --out-dtype"),
    (("-m", "1", "-n", "1", "-k", "1", "--tp", "8"), 2, "error: --tp is for --model"),
    (("-m", "8", "-n", "128", "-k", "128", "--scales", "block"), 2, "error: --scales block is for operands of e4m3 and e5m2"),
    (("--model", "gpt-3"), 1, "error: there is no model 'gpt-3': "),
    (("--model", "deepseek-v3", "--tp", "7"), 1, "error: the layers of deepseek-v3 are not known for 7 cards, but for 1, 2, 4, 8 or 16\n"),
    (("-m", "8191", "-n", "8191", "-k", "8193", "--card", "h200"), 1, "error: M 8191, N 8191, K 8193, bf16 nt: rows do not begin at "
     "multiples of 16 bytes, and Python launches a product of this size in slabs: pad N and K"),
    (("--model", "deepseek-v3", "--scales", "block"), 2, "error: --model says which products there are: leave out --scales"),
    (("-m", "64", "-n", "64", "-k", "64", "--dtype", "bf16", "--b-dtype", "f16"), 1, "error: a has elements of bf16 and b of f16"),
    (("-m", "64", "-n", "64", "-k", "64", "--name", "int"), 1, "error: 'int' cannot begin the names of C functions"),
])
def test_what_cannot_be_exported_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int,
                                               sentence: str) -> None:
    found, out, err = command(capsys, *arguments, "-o", str(tmp_path / "out"))
    assert found == status
    assert out == ""
    assert err.startswith(sentence), err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_rows_are_ranges(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for wrong in ("0", "x", "1-", "2-x", "64,,128", "1-512,-3"):
        status, _, err = command(capsys, "--model", "gpt-2", "--rows", wrong, "-o", str(tmp_path / "out"))
        word = {"64,,128": "", "1-512,-3": "-3"}.get(wrong, wrong)
        assert (status, err.splitlines()[-1].split("argument ")[1]) == (
            2, f"--rows: {word!r} is no number of rows from 1 on, as 64, and no range of them, as 1-512")
    for wrong in ("5-4", "1-9999999"):
        assert command(capsys, "--model", "gpt-2", "--rows", wrong, "-o", str(tmp_path / "out"))[0] == 2
    assert isinstance(PtxkitError(), Exception)
    assert list(tmp_path.iterdir()) == []


def test_the_stub_is_of_the_preset() -> None:
    """What `operands` makes is what the bench of the preset `models` multiplies."""
    with stub.installed():
        shape = Problem(16, 2112, 7168, "e4m3", block=True)
        arrays, _, scales = operands(Layer("fp8-block", 2112, 7168, "e4m3", "e4m3", "bf16", scales="block", padded=True), 16)
        described = problems.arrays_described(shape)
        assert [array.strides for array in (*arrays, *scales)] == [described.a.strides, described.b.strides, described.out.strides,
                                                                   described.a_scale.strides, described.b_scale.strides]  # type: ignore[union-attr]
