"""The host's side of a launch, by a driver that does nothing, and the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ptxkit.attention import __main__ as command
from ptxkit.attention import attention
from ptxkit.attention.config.forward import ForwardConfig
from ptxkit.attention.launch import forward
from ptxkit.attention.tools import bench
from ptxkit.attention.tools.draw import HEADS, Made, draw
from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench import stub
from ptxkit.runtime import driver


@pytest.fixture
def card() -> Iterator[Any]:
    """A card without memory or work."""
    with stub.installed() as made:
        forward._launches.clear()
        forward._plans.clear()
        yield made
    forward._launches.clear()
    forward._plans.clear()


def operands(head: int = 64, heads: int = 4, kv_heads: int = 4, type: str = "bf16") -> list[Any]:
    return [stub.array(type, *(2, h, 100, head)) for h in (heads, kv_heads, kv_heads, heads)]


@pytest.mark.ptxas
def test_a_repeated_call_asks_the_driver_for_nothing_but_the_launch(card: Any) -> None:
    q, k, v, out = operands(kv_heads=2)
    attention(q, k, v, is_causal=True, enable_gqa=True, out=out)
    assert card.calls["cuLibraryLoadData"] == 1
    card.calls.clear()
    assert attention(q, k, v, is_causal=True, enable_gqa=True, out=out) is out
    assert card.calls == {}
    attention(*operands(kv_heads=2)[:3], is_causal=True, enable_gqa=True, out=out)      # the same plan, other pointers
    assert "cuLibraryLoadData" not in card.calls


@pytest.mark.ptxas
def test_results_are_allocated_where_q_is(card: Any) -> None:
    q, k, v, _ = operands(type="f16")
    out, lse = attention(q, k, v, return_lse=True)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (q.shape, "f16", (2, 4, 100), "f32")
    packed = [stub.array("bf16", *(100, 4, 64)) for _ in range(3)]
    out, lse = attention(*packed, cu_seqlens=stub.array("s32", *(4,)), return_lse=True)
    assert (out.shape, lse.shape) == ((100, 4, 64), (4, 100))
    del out, lse                                    # freed while the driver is there


@pytest.mark.ptxas
def test_a_configuration_for_another_problem_is_refused(card: Any) -> None:
    q, k, v, out = operands()
    with pytest.raises(LaunchError, match="its causal is True"):
        attention(q, k, v, out=out, config=ForwardConfig(64, 192, 128, buffers=1, causal=True))


@pytest.mark.pure
def test_no_keys_are_filled_by_the_driver(card: Any) -> None:
    q, k, v, out = stub.array("bf16", *(2, 4, 100, 64)), *[stub.array("bf16", *(2, 4, 0, 64))] * 2, stub.array("bf16", *(2, 4, 100, 64))
    attention(q, k, v, out=out, lse=stub.array("f32", 2, 4, 100))
    assert card.calls["cuMemsetD2D8Async"] >= 1
    assert card.calls["cuMemsetD32Async"] == 1


@pytest.mark.pure
def test_problems_are_drawn_from_all_that_is_taken() -> None:
    found = [draw(seed) for seed in range(300)]
    assert found == [draw(seed) for seed in range(300)]
    assert {drawn.head for drawn in found} == set(HEADS)
    for values in ({drawn.causal for drawn in found}, {bool(drawn.lengths) for drawn in found}, {drawn.lse for drawn in found},
                   {drawn.type for drawn in found}, {drawn.kv_heads < drawn.heads for drawn in found}):
        assert len(values) == 2
    assert any(0 in drawn.lengths for drawn in found)
    assert any(len(drawn.lengths) > 32 for drawn in found)


@pytest.mark.pure
def test_verify_names_what_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    assert command.main(["verify", "--device", "sim", "-n", "1", "--seed", "12"]) == 0
    assert capsys.readouterr().out == "1 of 1 problems from seed 12: 1 right, 0 wrong\n"
    right = Made.arguments
    monkeypatch.setattr(Made, "arguments", lambda made: {**right(made), "scale": 0.3})
    assert command.main(["verify", "--device", "sim", "-n", "1", "--seed", "12"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("WRONG seed 12: ")
    assert "of its bound" in printed


@pytest.mark.pure
def test_a_stray_store_is_seen() -> None:
    torch = pytest.importorskip("torch")
    made = Made(torch, draw(12, 2000), "cpu")
    made.memory[5] = 0
    assert made.problem() == "memory around the result, or rows of no sequence, was written"


@pytest.mark.pure
def test_the_bench_has_the_shapes_and_says_its_summary() -> None:
    assert len(bench.SHAPES) == len(set(bench.SHAPES)) == 12
    rows = [{"shape": i, "tflops": {"ours": 500.0, "cudnn": 400.0}, "of": {"cudnn": ratio}} for i, ratio in enumerate((1.0, 1.21))]
    assert bench._summary(rows) == {"cudnn": {"shapes": 2, "geometric_mean": pytest.approx(1.1), "least": 1.0}}
    assert bench.said(rows[0]) == "head 64, full, 4096: ours 500, cudnn 400 TFLOP/s; 1.000 x cudnn"
    json.dumps(rows)


@pytest.mark.pure
def test_bench_refuses_what_it_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench", "--shapes", "12"]) == 2
    assert command.main(["bench", "--against", "other"]) == 2
    for wrong in ("abc", "1,,2", "-1"):
        with pytest.raises(SystemExit, match="2"):
            command.main(["bench", f"--shapes={wrong}"])
        assert f"argument --shapes: {wrong!r} are no numbers of shapes from 0 on, as 0,3" in capsys.readouterr().err
    if not driver.available("sm_90a"):
        assert command.main(["bench"]) == 1
        assert "error: " in capsys.readouterr().err


@pytest.mark.gpu
def test_random_problems_are_right_on_the_card() -> None:
    pytest.importorskip("torch")
    assert command.main(["verify", "-n", "12"]) == 0
