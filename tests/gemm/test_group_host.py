"""Groups at new addresses, without a GPU: launched by the plan of the first call, as if they had been asked anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.errors import LaunchError
from ptxkit.gemm.launch import grouped, grouped_k
from ptxkit.gemm.tools.bench import stub

pytestmark = pytest.mark.ptxas
ROWS, GROUPS, N, K = 512, 8, 256, 256


@pytest.fixture(autouse=True)
def card():
    with stub.installed() as made:
        yield made


def new(*shape: int, dtype: str = "bf16") -> Any:
    return stub.array(dtype, *shape)


def lengths(count: int = GROUPS + 1) -> Any:
    return new(count, dtype="s32")


def shifted(array: Any) -> Any:
    """From the second element on."""
    array.pointer += 2
    return array


Call = Callable[[], Any]


def plain(**more: Any) -> Call:
    x, w, out = more.pop("x", None) or new(ROWS, K), more.pop("w", None) or new(GROUPS, N, K), more.pop("out", None) or new(ROWS, N)
    cu = lengths()
    return lambda: gemm.group_gemm(x, w, cu, out=out, **more)


def fp8(x_scale: Callable[[], Any], w_scale: Callable[[], Any]) -> Call:
    x, w, out = new(ROWS, K, dtype="e4m3"), new(GROUPS, N, K, dtype="e4m3"), new(ROWS, N)
    cu, given = lengths(), {"x_scale": x_scale(), "w_scale": w_scale()}
    return lambda: gemm.group_gemm(x, w, cu, out=out, **given)


def masked() -> Call:
    x, w, out, rows = new(GROUPS, 64, K), new(GROUPS, N, K), new(GROUPS, 64, N), lengths(GROUPS)
    return lambda: gemm.group_gemm_masked(x, w, rows, out=out)


def gathered() -> Call:
    x, w, rows, out, cu = new(100, K), new(GROUPS, N, K), new(ROWS, dtype="s32"), new(ROWS, N), lengths()
    return lambda: gemm.group_gemm(x, w, cu, out=out, gather=rows)


def along_k() -> Call:
    a, b, out, cu = new(ROWS, 128), new(ROWS, N), new(GROUPS, 128, N), lengths()
    return lambda: gemm.group_gemm_k(a, b, cu, out=out)


CALLS: dict[str, Callable[[], Call]] = {
    "plain": plain, "masked": masked, "gathered": gathered, "along K": along_k,
    "a gate": lambda: plain(w=new(GROUPS, 2 * N, K), activation="silu_and_mul"),
    "one row": lambda: plain(x=new(1, K), out=new(1, N)),
    "results at odd addresses": lambda: plain(out=shifted(new(ROWS, N))),
    "odd numbers of features": lambda: plain(w=new(GROUPS, 129, K), out=new(ROWS, 129)),
    "scales of rows": lambda: fp8(lambda: new(ROWS, dtype="f32"), lambda: new(GROUPS, N, dtype="f32")),
    "block scales": lambda: fp8(lambda: new(ROWS, K // 128, dtype="f32"), lambda: new(GROUPS, N // 128, K // 128, dtype="f32"))}


def launched(call: Call) -> Any:
    """What a call launches."""
    call()
    return next(reversed((grouped_k if call.__qualname__.startswith("along_k") else grouped)._launches.values()))[0]


def told(launch: Any) -> Any:
    """What a launch passes to its kernels: the addresses in maps, and the scalars."""
    if isinstance(launch, grouped_k.Launch):
        return [one.pointer for one in launch.maps], launch.passed
    return [([one.pointer for one in maps], passed) for _, maps, passed, _ in launch.kernels]


@pytest.mark.parametrize("kind", CALLS)
def test_arrays_at_other_addresses_are_launched_by_the_same_plan(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = launched(CALLS[kind]())
    again = CALLS[kind]()
    with monkeypatch.context() as patched:
        for place in (grouped, grouped_k):
            patched.setattr(place, "GroupProblem" if place is grouped else "ProblemAlongK", lambda *_: pytest.fail("it was asked again"))
        short = launched(again)
    assert short.plan is first.plan
    for place in (grouped, grouped_k):
        place._launches.clear()
        place._plans.clear()
    long = launched(again)
    assert long is not short
    assert told(long) == told(short) != told(first)


def test_maps_of_arrays_that_stayed_are_kept() -> None:
    """Weights lie where they did."""
    w = new(GROUPS, N, K)
    first, second = launched(plain(w=w)), launched(plain(w=w))
    (_, one, *_), = first.kernels
    (_, other, *_), = second.kernels
    names = first.plan.kernels[0].maps.names
    kept = {name for name, a, b in zip(names, one, other, strict=True) if a is b}
    assert "w" in kept
    assert "x" in names
    assert "x" not in kept


def test_other_alignments_are_asked_anew() -> None:
    """A plan says nothing of arrays that begin elsewhere in 16 bytes."""
    usual = launched(plain())
    assert launched(plain(out=shifted(new(ROWS, N)))).plan is not usual.plan
    with pytest.raises(LaunchError, match="16"):
        plain(x=shifted(new(ROWS, K)))()
    with pytest.raises(LaunchError, match="16"):
        plain(w=shifted(new(GROUPS, N, K)))()
    assert launched(plain()).plan is usual.plan


def test_a_result_in_the_memory_of_an_operand_is_refused_after_a_plan() -> None:
    plain()()
    x = new(ROWS, K)
    out = new(ROWS, N)
    out.pointer = x.pointer
    with pytest.raises(LaunchError, match="out and x share memory"):
        plain(x=x, out=out)()
