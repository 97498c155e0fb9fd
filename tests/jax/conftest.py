"""The devices of the tests: the CPU device, and a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Where arrays are. Inside, those of the CPU are multiplied on the CPU device."""
    import jax

    from ptxkit.jax import cpu_device

    try:
        found = jax.devices(request.param)[0]
    except RuntimeError as error:
        pytest.skip(f"jax has no {request.param} here: {error}")
    with jax.default_device(found):
        if request.param == "cuda":
            yield found
        else:
            with cpu_device():
                yield found
