"""Memory of tensors on the CPU, as the CPU device has it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.collector import new_objects
from tests.torch import wanted

torch = wanted(__name__)

from ptxkit.torch import cpu  # noqa: E402

MADE: dict[str, Any] = {"float32": lambda: torch.ones(64, 64), "a view of bfloat16": lambda: torch.ones(64, 64, dtype=torch.bfloat16).t()}


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    with new_objects():
        yield


@pytest.mark.parametrize("kind", MADE)
def test_the_array_of_a_tensor_keeps_its_memory(kind: str) -> None:
    """Whoever has the array may have it for longer than the tensor that it was made of."""
    tensor = MADE[kind]()
    seen, gone = cpu.array(tensor, "a"), weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is not None
    assert (seen == 1).all()
    del seen
    gc.collect()
    assert gone() is None


def test_arrays_that_are_parts_of_one_keep_their_tensors() -> None:
    whole = torch.ones(8, 16)
    seen = cpu.arrays({"a": whole[:, :8], "out": whole[:, 8:]})
    del whole
    gc.collect()
    assert (seen["a"] == 1).all()
    assert (seen["out"] == 1).all()
