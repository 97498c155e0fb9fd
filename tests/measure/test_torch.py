"""Tensors of torch, on a stand-in for torch and a driver that does nothing: copies, streams and graphs are torch's."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from ptxkit.gemm.tools.bench import stub
from ptxkit.measure.device import Gpu
from ptxkit.measure.timer import TorchTimer
from ptxkit.measure.values import span
from ptxkit.runtime import arrays, launch
from ptxkit.runtime.arrays import contiguous_strides
from tests.gemm.virtual_card import Card
from tests.tuning.clocked import axpy, stubbed

pytestmark = pytest.mark.ptxas
MAIN, SIDE = 0x1000, 0x2000


class Tensor:
    """What the package asks of a tensor."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32", pointer: int = 0, strides: tuple[int, ...] | None = None) -> None:
        self.shape, self.dtype, self.device = shape, dtype, "cuda:0"
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.pointer = pointer or stub.array("f32", *shape).pointer

    def data_ptr(self) -> int:
        return self.pointer

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return 0

    def is_neg(self) -> bool:
        return False

    def element_size(self) -> int:
        return 4

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        return Tensor(shape, self.dtype, self.pointer + 4 * offset, strides)


@pytest.fixture
def torch(monkeypatch):
    """A card that keeps time, whose current stream is the side stream inside its block."""
    card = Card()
    current = [MAIN]
    own = card.torch.cuda.stream

    def stream(which):
        made = own(which)

        class Block:
            def __enter__(self):
                current.append(SIDE)
                return made.__enter__()

            def __exit__(self, *given):
                current.pop()
                return made.__exit__(*given)

        return Block()

    class Event(type(card.torch.cuda.Event(enable_timing=True))):
        def query(self):
            return True

    module: Any = types.ModuleType("torch")
    module.__version__ = "0"
    module.Tensor, module.float32 = Tensor, "float32"
    module.cuda = types.SimpleNamespace(**{**vars(card.torch.cuda), "stream": stream, "Event": lambda enable_timing: Event(card)})
    module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: current[-1])
    module.empty = lambda count, *, dtype, device: Tensor((count,), dtype)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(arrays, "_TORCH", {})
    monkeypatch.setattr(arrays, "_TENSORS", set())
    monkeypatch.setattr(launch, "STREAMS", {})
    with stubbed():
        module.current, module.card = current, card
        yield module


def test_a_copy_has_the_shape_the_strides_and_the_place_of_an_address(torch):
    whole = Tensor((64, 40))
    part = Tensor((60, 33), pointer=whole.pointer + 4 * 43, strides=(40, 1))
    place = Gpu((part, 3))
    assert isinstance(place.timer, TorchTimer)
    made, three = place.copied((part, 3))
    assert three == 3
    assert (made.shape, made.strides, made.dtype) == (part.shape, part.strides, part.dtype)
    assert made.pointer % 256 == part.pointer % 256
    assert made.pointer != part.pointer
    assert span(arrays.view(made)) == span(arrays.view(part))


def test_launches_go_to_the_stream_that_is_captured(torch, monkeypatch):
    """The kernel is asked on which stream it is launched: torch's current one, which is the side stream in a capture."""
    streams = []

    def launched(kernel, config, grid, arguments):
        def run():
            streams.append(launch.raw_stream(None, arrays.view(arguments[0])))
            torch.card.do(lambda: torch.card.advance(10.0 / config.get("EACH", 1)))
        return run

    monkeypatch.setattr(Gpu, "launch", lambda self, *given: launched(*given))
    monkeypatch.setattr("ptxkit.measure.regimes.time.sleep", lambda seconds: None)
    x, y = Tensor((1 << 20,)), Tensor((1 << 20,))

    def other(x, y, n):
        streams.append(torch.current[-1])
        torch.card.do(lambda: torch.card.advance(20.0))

    found = axpy.bench(grid=8, args=(x, y, 1024), against={"other": other, "four": {"EACH": 4}}, check=lambda x, y, n: None)
    (row,) = found.rows
    assert row["sets"] == -(-5 * (50 << 20) // (8 << 20))
    assert {name: seen["us"] for name, seen in row["contestants"].items()} == {
        "kernel": pytest.approx(10.0), "other": pytest.approx(20.0), "four": pytest.approx(2.5)}
    assert set(streams) == {SIDE}
    assert found.results["device"]["torch"] == "0"
    tuned = axpy.tune({"THREADS": (128,), "EACH": (1, 2, 4)}, grid=8, args=(x, y, 1024), again=True)
    assert tuned.config == {"THREADS": 128, "EACH": 4}
    assert tuned.time == pytest.approx(2.5)
