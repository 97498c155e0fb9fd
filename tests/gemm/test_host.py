"""What a call costs the host, without a GPU: laws of the warm path by a driver that does nothing. No clock decides here."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import SplitK, Tile
from ptxkit.gemm.launch import dense
from ptxkit.gemm.launch.grid import COUNTER_BYTES
from ptxkit.gemm.problem.dense import PLAIN, Arrays
from ptxkit.gemm.tools.bench import host, stub
from ptxkit.runtime import arrays, driver, launcher
from ptxkit.runtime.arrays import ArrayView, marks, marks_of_three, view

pytestmark = pytest.mark.ptxas


@pytest.fixture
def card():
    with stub.installed() as made:
        yield made


def operands(m: int = 128, n: int = 128, k: int = 64, dtype: str = "bf16") -> tuple[Any, Any, Any]:
    b = stub.array(dtype, k, n)
    b.strides = 1, k
    return stub.array(dtype, m, k), b, stub.array("bf16" if dtype == "e4m3" else dtype, m, n)


def entered(call: Callable[[], Any]) -> Counter[str]:
    """The Python functions that a call enters."""
    seen: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_a_warm_call_asks_each_array_once_and_launches(card) -> None:
    a, b, out = operands()
    gemm.gemm(a, b, out)
    gemm.hgemm(a, b, out)
    card.calls.clear()
    seen = entered(lambda: gemm.gemm(a, b, out))
    assert sum(seen.values()) <= 9, seen
    assert not seen.keys() & {"view", "_prepare", "__hash__", "__eq__", "_write", "_point_at", "at"}
    assert card.calls == {}                                     # of the driver nothing but the launch itself
    assert sum(entered(lambda: gemm.hgemm(a, b, out)).values()) <= 9


def test_a_warm_call_with_scales_makes_no_view(card) -> None:
    a, b, out = operands(k=128, dtype="e4m3")
    scale = stub.array("f32", 1)
    gemm.gemm(a, b, out, a_scale=scale, b_scale=scale)
    assert "view" not in entered(lambda: gemm.gemm(a, b, out, a_scale=scale, b_scale=scale))


def test_a_warm_group_product_and_a_workspace_are_written_once(card) -> None:
    """The arguments with a stream's workspace are made when the stream is another, not at each launch."""
    x, w, cu, y = stub.array("bf16", 512, 256), stub.array("bf16", 8, 256, 256), stub.array("s32", 9), stub.array("bf16", 512, 256)
    gemm.group_gemm(x, w, cu, out=y)
    gemm.group_gemm(x, w, cu, out=y)
    seen = entered(lambda: gemm.group_gemm(x, w, cu, out=y))
    assert not seen.keys() & {"view", "_prepare", "_on", "workspace", "_write"}
    a, b, out = operands(64, 64, 1024)
    config = DenseConfig(tile=Tile(64, 64), scheduler=SplitK(3))
    for stream in (1, 1, 2, 1):
        gemm.gemm(a, b, out, config=config, stream=stream)
        launch = next(each for each in dense._launches.values() if each.workspace_bytes)
        (kept, _), passed = launch.placed
        assert kept == stream
        assert passed[launch.counters] == dense._workspaces.of(0, stream, launch.workspace_bytes)
        assert passed[launch.sums] == passed[launch.counters] + COUNTER_BYTES
    assert "_in" not in entered(lambda: gemm.gemm(a, b, out, config=config, stream=1))


def test_what_differs_is_another_launch(card, monkeypatch) -> None:
    """Address, shape, strides, type, and the arguments that are no arrays; the same of all is the same launch."""
    prepared = []
    before = dense._prepare
    monkeypatch.setattr(dense, "_prepare", lambda *given: (prepared.append(1), before(*given))[1])
    a, b, out = operands()
    bias = stub.array("f32", 128)
    other = operands()
    wide = stub.array("bf16", 128, 136)
    wide.shape = 128, 128
    transposed = stub.array("bf16", 64, 128)
    f16 = operands(dtype="f16")
    calls: list[Callable[[], Any]] = [
        lambda: gemm.gemm(a, b, out), lambda: gemm.gemm(other[0], b, out), lambda: gemm.gemm(a, other[1], out),
        lambda: gemm.gemm(a, b, other[2]), lambda: gemm.gemm(a, b, wide), lambda: gemm.gemm(a, transposed, out),
        lambda: gemm.gemm(*f16), lambda: gemm.gemm(a, b, out, alpha=2.0), lambda: gemm.gemm(a, b, out, bias=bias),
        lambda: gemm.gemm(a, b, out, bias=bias, activation="relu")]
    for count, call in enumerate(calls, 1):
        call()
        assert len(prepared) == count
    for call in calls:
        call()
    assert len(prepared) == len(calls)
    gemm.gemm(view(a), view(b), view(out))                      # views are known by their fields
    gemm.gemm(view(a), view(b), view(out))
    assert len(prepared) == len(calls) + 1


def turned(array: Any) -> Any:
    """The transposed array, in the same memory."""
    array.shape, array.strides = (*array.shape[:-2], *array.shape[:-3:-1]), (*array.strides[:-2], *array.strides[:-3:-1])
    return array


def shifted(array: Any) -> Any:
    """From the second element on."""
    array.pointer += 2
    return array


def shared(array: Any, batches: int) -> Any:
    array.shape, array.strides = (batches, *array.shape), (0, *array.strides)
    return array


def new(*shape: int) -> Any:
    return stub.array("bf16", *shape)


def with_scales(rows: bool) -> dict[str, Any]:
    shapes = ((128, 1), (1, 64)) if rows else ((1,), (1,))
    return dict(zip(("a_scale", "b_scale"), (stub.array("f32", *shape) for shape in shapes), strict=True))


KINDS: dict[str, Callable[[], tuple[tuple[Any, Any, Any], dict[str, Any]]]] = {
    "rows": lambda: ((new(64, 128), new(128, 192), new(64, 192)), {}),
    "turned operands": lambda: ((turned(new(128, 64)), turned(new(192, 128)), new(64, 192)), {}),
    "turned result": lambda: ((new(64, 128), new(128, 192), turned(new(192, 64))), {"bias": new(192)}),
    "vector": lambda: ((new(128), new(128, 192), new(192)), {}),
    "columns of a batch": lambda: ((shared(new(64, 128), 3), new(3, 128, 1), new(3, 64, 1)), {}),
    "batches in one": lambda: ((new(2, 3, 64, 128), shared(shared(new(128, 192), 3), 2), new(2, 3, 64, 192)), {}),
    "batches apart": lambda: ((new(2, 3, 64, 128), new(1, 3, 128, 192), new(2, 3, 64, 192)), {}),
    "odd addresses": lambda: ((shifted(new(64, 129)), shifted(new(129, 192)), new(64, 192)), {}),
    "further arrays": lambda: ((new(64, 128), new(128, 192), new(64, 192)), {"residual": new(64, 192), "bias": new(192), "alpha": 0.5}),
    "scales": lambda: (operands(128, 64, 128, "e4m3"), with_scales(rows=False)),
    "scales of rows": lambda: (operands(128, 64, 128, "e4m3"), with_scales(rows=True))}


APART = "batches apart"             # several launches


def launched(given: tuple[tuple[Any, Any, Any], dict[str, Any]]) -> Any:
    """What a call launches."""
    gemm.gemm(*given[0], **given[1])
    return next(reversed(dense._launches.values()))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != APART])
def test_arrays_at_other_addresses_are_launched_as_the_first_ones(card, kind: str, monkeypatch) -> None:
    """By what became of the first ones: the same plan, and the addresses that the long way gives."""
    first, second = KINDS[kind](), KINDS[kind]()
    launched(first)
    with monkeypatch.context() as patched:
        patched.setattr(dense, "products", lambda arrays: pytest.fail("it was asked again what products these are"))
        short = launched(second)
    dense._recipes.clear()
    dense._launches.clear()
    long = launched(second)
    assert short is not long
    assert short.like == long.like
    assert short.plan is long.plan
    assert short.pointers == long.pointers
    assert short.scalars == long.scalars
    assert [one.pointer for one in short.maps] == [one.pointer for one in long.maps]


def prepared(*arrays_: Any, **more: Any) -> Any:
    """The launch of views, without a run."""
    return dense._prepare(Arrays(*map(view, arrays_, "abo"), **more), PLAIN, None)


def test_each_call_is_launched_where_its_own_library_works(card) -> None:
    """Arrays of one library say nothing of the streams of another one's."""
    first, second = ((new(64, 128), new(128, 192), new(64, 192)) for _ in range(2))
    assert prepared(*first).like.owner == "ptxkit"
    for owner in ("torch", "jax"):
        assert prepared(*(view(array)._replace(owner=owner) for array in second)).like.owner == owner
    with pytest.raises(LaunchError, match="does not say which stream it works on"):
        gemm.gemm(*(view(array)._replace(owner="jax") for array in second))


def test_what_else_decides_a_launch_is_asked_anew(card, monkeypatch) -> None:
    """Alignment, options, a depth of 0, and a tuning that has begun."""
    plain = launched(KINDS["rows"]())
    (a, b, out), _ = KINDS["rows"]()
    other = launched(((shifted(a), b, out), {}))
    assert other.plan is not plain.plan
    for options in ({"alpha": 2.0}, {"activation": "relu"}):
        (a, b, out), _ = KINDS["rows"]()
        found = launched(((a, b, out), options))
        assert found.plan is not plain.plan
        assert found.plan.config.fusion != plain.plan.config.fusion
    kept = len(dense._recipes)
    assert not isinstance(launched(((new(64, 0), new(0, 192), new(64, 192)), {})), dense.Launch)
    assert len(dense._recipes) == kept
    monkeypatch.setattr(dense.tuning, "wish", lambda: "some")
    monkeypatch.setattr(dense, "products", lambda arrays: pytest.fail("the long way"))
    with pytest.raises(pytest.fail.Exception, match="the long way"):
        launched(KINDS["rows"]())


def test_several_launches_are_made_anew(card) -> None:
    for _ in range(2):
        assert isinstance(launched(KINDS[APART]()), dense.Several)
    assert not dense._recipes


def test_arrays_in_the_same_memory_say_nothing_of_others(card) -> None:
    """One array as both operands, then two; and a result in the memory of an operand, whose shapes were right before."""
    x, out = new(64, 64), new(64, 64)
    launched(((x, x, out), {}))
    (a, b, y), _ = apart = (new(64, 64), new(64, 64), new(64, 64)), {}
    assert dict(launched(apart).pointers) == {"a": a.pointer, "b": b.pointer, "out": y.pointer, "a_scale": 0}
    y.pointer = a.pointer
    with pytest.raises(LaunchError, match="out and a share memory"):
        gemm.gemm(a, b, y)


def test_marks_are_there_for_arrays_that_say_them(monkeypatch) -> None:
    class Tensor:
        shape, dtype = (2, 3), "bfloat16"

        def data_ptr(self) -> int:
            return 0x100

        def stride(self) -> tuple[int, ...]:
            return 3, 1

    class Other(Tensor):
        """A subclass may be anything."""

    one = Tensor()
    assert marks(one) is None
    monkeypatch.setattr(arrays, "_TENSORS", {Tensor})
    assert marks(one, None) == (0x100, (2, 3), (3, 1), "bfloat16", None)
    assert marks_of_three(one, one, one) == marks(one, one, one)
    assert marks_of_three(one, one, Other()) is None
    assert marks(one, Other()) is None
    assert marks(SimpleNamespace()) is None
    assert marks(ArrayView(0, (1,), (1,), "f32", 0, "other")) is None


def test_arguments_that_cannot_be_written_leave_nothing_behind(card) -> None:
    a, b, out = operands()
    gemm.gemm(a, b, out)
    launch = next(iter(dense._launches.values()))
    wrong = (*launch.scalars[:-1], "text")
    for _ in range(2):
        with pytest.raises(LaunchError):
            launch.launcher(1, launch.grid, wrong, launch.maps)
    launch.launcher(1, launch.grid, launch.scalars, launch.maps)
    assert launch.launcher._scalars is launch.scalars


def test_a_launch_without_a_context_gets_one(card, monkeypatch) -> None:
    """One device: its context is asked for only if the launch fails; several: before each launch."""
    a, b, out = operands()
    gemm.gemm(a, b, out)
    launch = next(iter(dense._launches.values()))
    tried, contexts = [], []
    monkeypatch.setattr(launch.launcher, "_launch", lambda *passed: (tried.append(1), 0 if contexts else 201)[1])
    monkeypatch.setattr(launch.launcher, "_get_device", lambda cell: 201)
    inside = driver.on

    def on(ordinal: int) -> Any:
        contexts.append(ordinal)
        return inside(ordinal)

    monkeypatch.setattr(launcher.driver, "on", on)
    launch.run(1)
    assert (len(tried), contexts) == (2, [0])
    tried.clear()
    contexts.clear()
    monkeypatch.setattr(launch.launcher, "_alone", False)
    launch.run(1)
    assert (len(tried), contexts) == (1, [0])


def test_the_stub_leaves_nothing_behind() -> None:
    before = driver._api, launcher._entry
    with stub.installed(H200.with_sms(16)) as made:
        assert dense.card_of(0).sms == 16
        made.calls.clear()
        assert driver.allocate(10, 0) != driver.allocate(10, 0)
        assert made.calls["cuMemAlloc"] == 2
        gemm.gemm(*operands())
    assert (driver._api, launcher._entry) == before
    assert not dense._launches
    assert not dense._plans


def test_the_bench_of_the_host_measures_what_it_says() -> None:
    found = host.stubbed(repeat=40)
    assert found.keys() == {"same_arrays_us", "hgemm_us", "scales_us", "new_pointers_us", "choice_new_kind_ms", "choice_new_shape_ms",
                            "configuration_ms"}
    assert all(value > 0 for value in found.values())
