"""The experts of a model in an export: C chooses as Python does, and launches what `gemm.group_gemm` launches."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.cards import H200, Card
from ptxkit.gemm.config.grouped import GroupedConfig, StreamGroups
from ptxkit.gemm.config.parts import Tile
from ptxkit.gemm.export import groups
from ptxkit.gemm.export.choices import KINDS
from ptxkit.gemm.export.export import Exported, pack
from ptxkit.gemm.export.groups import GroupLayer
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.launch import grouped
from ptxkit.gemm.problem.grouped import GroupProblem
from ptxkit.gemm.tools import models
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.bench.grouped_cases import Case
from ptxkit.gemm.tools.problems import problem_of

from .recorder import CC, Recorder, driver_library, loaded, said

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(300)]
STREAM = 0x5000
_P, _L = ctypes.c_void_p, ctypes.c_uint64


class Group(ctypes.Structure):
    """NAME_group."""

    _fields_ = (("type", ctypes.c_int), ("gated", ctypes.c_int), ("rows", _L), ("groups", _L), ("n", _L), ("k", _L), ("x", _P), ("w", _P),
                ("y", _P), ("cu_seqlens", _P), ("ldx", _L), ("ldy", _L), ("x_scale", _P), ("w_scale", _P), ("x_scale_ld", _L),
                ("mean_rows", _L), ("workspace", _P), ("workspace_bytes", _L))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver_library(tmp_path_factory.mktemp("driver"))


def of(layer: GroupLayer, rows: int, **more: Any) -> Group:
    return Group(type=list(KINDS).index(layer.kind), gated=int(layer.gated), rows=rows, groups=layer.groups, n=layer.n, k=layer.k, **more)


def arrays_of(layer: GroupLayer, rows: int, gap: int) -> tuple[list[Any], list[Any]]:
    """X, W, cu_seqlens and Y, whose rows have a gap, and the scales."""
    x, y = stub.array(layer.dtype, rows, layer.k + gap), stub.array(layer.out, rows, layer.n + gap)
    x.shape, y.shape = (rows, layer.k), (rows, layer.n)
    lines, depth = layer.n * (1 + layer.gated), -(-layer.k // 128)
    arrays = [x, stub.array(layer.dtype, layer.groups, lines, layer.k), stub.array("s32", layer.groups + 1), y]
    scales: list[Any] = []
    if layer.kind == "fp8":
        scales = [stub.array("f32", 1), stub.array("f32", layer.groups)]
    elif layer.kind == "fp8-block":
        line = -(-rows // 4) * 4
        scales = [stub.array("f32", depth, line), stub.array("f32", layer.groups, -(-lines // 128), depth)]
        scales[0].shape, scales[0].strides = (rows, depth), (1, line)
    return arrays, scales


def launches(library: ctypes.CDLL, made: Exported, recorder: Recorder, layer: GroupLayer, rows: int, mean: int,
             config: GroupedConfig | None, gap: int) -> None:
    """C and Python launch the same; `config` is what Python is told to take, None for its own choice."""
    arrays, scales = arrays_of(layer, rows, gap)
    x, w, cu, y = arrays
    before = len(recorder.launches)
    gemm.group_gemm(x, w, cu, **dict(zip(("x_scale", "w_scale"), scales, strict=False)), out=y, stream=STREAM, config=config,
                    activation="silu_and_mul" if layer.gated else None)
    python = recorder.launches[before:]
    workspaces = grouped._sums if config is not None and config.streams else grouped._workspaces
    workspace = workspaces._made.get((0, STREAM), (0, 0))[0]
    group = of(layer, rows, x=x.pointer, w=w.pointer, y=y.pointer, cu_seqlens=cu.pointer, ldx=x.strides[0], ldy=y.strides[0],
               mean_rows=mean)
    if scales:
        group.x_scale, group.w_scale = (scale.pointer for scale in scales)
    needs = _L(0)
    assert getattr(library, f"{made.name}_group_workspace")(ctypes.byref(group), ctypes.byref(needs)) == 0, said(library, made.name)
    group.workspace, group.workspace_bytes = workspace, needs.value
    assert getattr(library, f"{made.name}_group_gemm")(ctypes.byref(group), _P(STREAM)) == 0, said(library, made.name)
    assert recorder.launches[before + len(python):] == python, (layer, rows)


@pytest.mark.parametrize("model", ["gpt-oss-20b", *(pytest.param(name, marks=pytest.mark.sweep) for name in (
    "deepseek-v3", "kimi-k2", "glm-4.5", "qwen3-235b", "qwen3.5-35b-a3b", "mixtral-8x7b", "llama-4"))])
def test_experts_are_launched_as_python_does(tmp_path: Path, driver: Path, model: str) -> None:
    recorder = Recorder()
    made = pack(model, tmp_path)
    library = loaded(made.files[1], driver, recorder)
    choice = getattr(library, f"{made.name}_group_choice")
    listed = {(e.groups, e.n // (1 + e.gated), e.k, e.gated): e for e in models.model(model).experts}
    assert {(t.layer.groups, t.layer.n, t.layer.k, t.layer.gated) for t in made.groups} == set(listed)
    with recorder.under_python():
        for table in made.groups:
            layer = table.layer
            experts = listed[layer.groups, layer.n, layer.k, layer.gated]
            for mean in experts.rows:
                wanted = heuristic(problem_of(Case(layer.groups, mean, experts.n, layer.k, layer.kind, gated=layer.gated)), H200)
                rows = layer.groups * mean
                found = choice(ctypes.byref(of(layer, rows)))
                assert made.group_configs[found:found + len(wanted.kernels)] == wanted.kernels, (layer, mean)
                launches(library, made, recorder, layer, rows, 0, None, 0)
                launches(library, made, recorder, layer, rows + 5, mean, wanted, 16)
            assert choice(ctypes.byref(of(layer, 1))) == choice(ctypes.byref(of(layer, 1, mean_rows=min(experts.rows))))
            assert choice(ctypes.byref(of(layer, 10**9))) == choice(ctypes.byref(of(layer, 1, mean_rows=max(experts.rows))))


def test_tiles_whose_k_ctas_share_are_launched_as_python_does(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their grid is as large as CTAs share tiles, and their workspace has room for the sums of any card's CTAs."""
    def shared(problem: GroupProblem, card: Card) -> GroupedConfig:
        if problem.promote:
            return heuristic(problem, card)
        return GroupedConfig(problem.operands, tile=Tile(64, 64), scheduler=StreamGroups(most=3))

    monkeypatch.setattr(groups, "heuristic", shared)
    recorder = Recorder()
    made = pack("gpt-oss-20b", tmp_path)
    library = loaded(made.files[1], driver, recorder)
    with recorder.under_python():
        for table in made.groups:
            layer = table.layer
            config = shared(layer.problem(2), H200)
            assert config.streams
            for rows in (2, 3 * layer.groups):
                launches(library, made, recorder, layer, rows, 0, config, 8)
            needs = _L(0)
            assert getattr(library, f"{made.name}_group_workspace")(ctypes.byref(of(layer, 64)), ctypes.byref(needs)) == 0
            assert needs.value == config.workspace_bytes(groups.MOST_SMS) >= 4 * 144 * 64 * 64


@pytest.mark.parametrize(("change", "sentence"), [
    ({"k": 2881}, "there is no group product of type 0 with 32 groups, N 2880, K 2881 here: the header lists those that there are"),
    ({"rows": 0, "mean_rows": 1}, "rows is 0: it is between 1 and 2^31"),
    ({"x": 0x1008}, "x is at the address 0x1008, which is not a multiple of 16 bytes"),
    ({"ldx": 2879}, "ldx is 2879: lines have 2880 elements"),
    ({"cu_seqlens": 0x1002}, "cu_seqlens is an address of int32 numbers on the device"),
])
def test_what_cannot_be_is_a_sentence(tmp_path: Path, small: tuple[Exported, ctypes.CDLL], change: dict[str, Any], sentence: str) -> None:
    made, library = small
    layer = next(table.layer for table in made.groups if table.layer.n == 2880)
    given = {"x": 0x10000, "w": 0x20000, "y": 0x40000000, "cu_seqlens": 0x30000, "workspace": 0x50000, "workspace_bytes": 1 << 20}
    group = of(layer, 64, **given)
    for name, value in change.items():
        setattr(group, name, value)
    assert getattr(library, f"{made.name}_group_gemm")(ctypes.byref(group), None) == 5
    assert said(library, made.name) == sentence


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> tuple[Exported, ctypes.CDLL]:
    made = pack("gpt-oss-20b", tmp_path_factory.mktemp("small"))
    return made, loaded(made.files[1], driver, Recorder())
