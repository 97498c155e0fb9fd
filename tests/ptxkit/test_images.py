"""Images of kernels: what is launched out of the cache without a trace is what the trace would give."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxkit import Reg, gemm, kernel
from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.parameters import values
from ptxkit.errors import Finding, TraceError
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import Cooperative, Dynamic, Pingpong, SplitK, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.heuristic.grouped import heuristic as grouped
from ptxkit.gemm.launch import dense, group_kernels
from ptxkit.gemm.launch.grid import Grid, kernel_of, scalars
from ptxkit.gemm.problem.dense import PLAIN
from ptxkit.gemm.tools.bench import stub
from ptxkit.gemm.tools.bench.grouped_cases import case
from ptxkit.gemm.tools.problems import arrays_of, asked, problem_of
from ptxkit.runtime import cache, images, toolchain
from ptxkit.settings import Settings
from ptxkit.types import e4m3, f32, u32

CONFIGS = (DenseConfig(tile=Tile(128, 128), schedule=Pingpong()), DenseConfig(tile=Tile(64, 64), scheduler=SplitK(3)),
           DenseConfig(tile=Tile(128, 128), scheduler=StreamK()), DenseConfig(Operands(e4m3, e4m3), Tile(64, 128), scheduler=Dynamic()))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A cache of cubins of the test's own."""
    found = Settings(tmp_path / "cache")
    for module in (cache, images, toolchain):
        monkeypatch.setattr(module, "settings", lambda: found)
    toolchain.stamp.cache_clear()
    yield tmp_path / "cache"
    toolchain.stamp.cache_clear()


def operands(m: int = 256, n: int = 192, k: int = 128) -> tuple[Any, Any, Any]:
    b = stub.array("bf16", k, n)
    b.strides = 1, k
    return stub.array("bf16", m, k), b, stub.array("bf16", m, n)


@pytest.mark.pure
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_an_image_says_what_a_launch_needs_of_a_trace(config: DenseConfig) -> None:
    traced = kernel_of(config).trace(**config.parameters)
    image = images.read(images.write(traced))
    for name in ("name", "parameters", "block", "cluster", "dynamic_smem"):
        assert getattr(image, name) == getattr(traced, name)
    assert image.copies.records == traced.copies.records
    with pytest.raises((ValueError, KeyError, TypeError)):
        images.read("{}")


@pytest.mark.pure
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_arguments_by_name_are_those_of_the_signature(config: DenseConfig) -> None:
    """Records are taken apart by their fields, as the kernel's annotations say."""
    problem = asked(256, 192, 1024, config.operands.a.__name__, out="bf16")
    named = Grid.of(problem, config, 9).arguments(problem, PLAIN, lambda name: hash(name) & 0xFFFF)
    traced = kernel_of(config).trace(**config.parameters)
    by_signature = values([parameter for parameter in traced.signature if parameter.name in named], (), named)
    assert scalars(traced, named) == scalars(images.read(images.write(traced)), named) == by_signature
    assert len(by_signature) == sum(parameter.kind != "tensormap" for parameter in traced.parameters)


@pytest.mark.pure
def test_arguments_of_a_group_product_are_those_of_the_signature() -> None:
    one = case("8x64x256x256:bf16")
    problem = problem_of(one)
    for config in grouped(problem).kernels:
        named = problem.arguments(arrays_of(one), config, lambda _: 7)
        traced = group_kernels.kernel_of(config).trace(**config.parameters)
        by_signature = values([parameter for parameter in traced.signature if parameter.name in named], (), named)
        assert scalars(traced, named) == by_signature


@pytest.mark.ptxas
def test_a_configuration_out_of_the_cache_is_not_traced(store, monkeypatch) -> None:
    config = DenseConfig(Operands(), Tile(64, 64))

    def run() -> tuple[Any, ...]:
        with stub.installed() as card:
            arrays = operands()
            gemm.gemm(*arrays, config=config)
            (plan,) = dense._plans.values()
            maps = [each and (each.type, each.dims, each.strides, each.box, each.swizzle, each.l2_promotion) for each in plan.maps.fields]
            passed = plan.launcher
            return plan.grid, plan.template or plan.scalars(dense.Arrays(*map(dense.view, arrays)), PLAIN)[1:3], maps, passed.block, \
                passed.cluster, passed.shared, passed.parameters, card.calls["cuLibraryLoadData"]

    first = run()
    refuse = pytest.MonkeyPatch()
    refuse.setattr(Kernel, "_trace", lambda *given: (_ for _ in ()).throw(TraceError("it is traced")))
    try:
        kernel_of(config)._traced.results.clear()
        assert run() == first
        for path in store.rglob("*.cubin"):                     # what is damaged is made again
            path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(TraceError, match="it is traced"):
            run()
    finally:
        refuse.undo()
    assert run() == first


@pytest.mark.pure
def test_what_decides_a_kernel_decides_its_image(store, monkeypatch) -> None:
    def name(config: DenseConfig) -> str | None:
        return images.key(kernel_of(config), config.parameters)

    plain = DenseConfig(tile=Tile(128, 128))
    others = [replace(plain, schedule=Pingpong(), stages=0), replace(plain, schedule=Cooperative(1), stages=0), replace(plain, stages=3),
              replace(plain, operands=Operands(out=f32), store=None, stages=0), replace(plain, scheduler=Static(Swizzle(size=4))),
              replace(plain, fusion=Fusion(activation="relu")), replace(plain, scheduler=StreamK())]
    monkeypatch.setattr(toolchain, "stamp", functools.cache(lambda: "ptxas"))
    names = [name(config) for config in (plain, *others)]
    assert None not in names
    assert len(set(names)) == len(names)
    assert name(plain) == names[0]
    with monkeypatch.context() as patch:
        patch.setattr(images, "stamp", lambda: "other sources")
        assert name(plain) not in names
    monkeypatch.setattr(toolchain, "stamp", functools.cache(lambda: "another ptxas"))
    assert name(plain) not in names


@pytest.mark.pure
def test_what_has_no_image(store, monkeypatch) -> None:
    @kernel(block=32)
    def foreign(n: Reg[u32]) -> None:
        """Of another package."""

    plain = DenseConfig(tile=Tile(64, 64))
    monkeypatch.setattr(toolchain, "stamp", functools.cache(lambda: "ptxas"))
    assert images.key(kernel_of(plain), plain.parameters)
    assert images.key(foreign, {}) is None
    own = replace(plain, fusion=Fusion(activation=lambda x: x))
    assert images.key(kernel_of(own), own.parameters) is None
    for settings in (Settings(store, keep=frozenset({"ptx"})), Settings(store, check="error")):
        monkeypatch.setattr(images, "settings", lambda settings=settings: settings)
        assert images.key(kernel_of(plain), plain.parameters) is None
    monkeypatch.setattr(images, "settings", lambda: Settings(store))
    monkeypatch.setattr(toolchain, "stamp", functools.cache(lambda: ""))
    assert images.key(kernel_of(plain), plain.parameters) is None


@pytest.mark.pure
def test_the_assembler_is_known_without_running_it(store, monkeypatch, tmp_path) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text("one")
    for wish, there in ((tool, True), ("driver", False), (tmp_path / "gone", False)):
        monkeypatch.setattr(toolchain, "settings", lambda wish=wish: Settings(store, ptxas=wish))
        toolchain.stamp.cache_clear()
        assert bool(toolchain.stamp()) == there
    monkeypatch.setattr(toolchain, "settings", lambda: Settings(store, ptxas=tool))
    toolchain.stamp.cache_clear()
    before = toolchain.stamp()
    tool.write_text("another")
    toolchain.stamp.cache_clear()
    assert toolchain.stamp() != before


@pytest.mark.pure
def test_the_sources_of_kernels_decide(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(images, "ROOT", tmp_path)
    for folder in ("dsl", "grammar", "gemm/kernels", "attention/kernels", "sim"):
        (tmp_path / folder).mkdir(parents=True)

    def stamp() -> str:
        images.stamp.cache_clear()
        return images.stamp()

    seen = [stamp()]
    try:
        for path, counts in (("smem.py", True), ("gemm/kernels/dense.py", True), ("attention/kernels/forward.py", True),
                             ("grammar/ptx.lark", True), ("sim/run.py", False), ("gemm/kernels/note.md", False)):
            Path(tmp_path, path).write_text("x", encoding="utf-8")
            assert (stamp() != seen[-1]) == counts, path
            seen.append(stamp())
        Path(tmp_path, "smem.py").write_text("xy", encoding="utf-8")
        assert stamp() not in seen
    finally:
        images.stamp.cache_clear()


@pytest.mark.ptxas
def test_what_the_assembler_remarks_on_is_assembled_each_time(store, monkeypatch) -> None:
    config = DenseConfig(tile=Tile(64, 64))
    made = kernel_of(config)
    before = toolchain.assemble
    monkeypatch.setattr(toolchain, "assemble", lambda *given, **named: replace(before(*given, **named), findings=(Finding("C7510", "x"),)))
    images.keep(made, config.parameters, made.trace(**config.parameters))
    assert cache.cache().get(images.key(made, config.parameters)) is None
