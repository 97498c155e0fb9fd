"""The devices of the tests: the CPU device, and a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Where tensors are. Inside, those of the CPU are multiplied on the CPU device."""
    from ptxkit.torch import cpu_device

    if request.param == "cuda":
        yield request.param
    else:
        with cpu_device():
            yield request.param
