"""The functions of jax. Each test runs on the CPU device and, where there is a GPU, on it.

Without jax they are skipped, by name; with TESTS_REQUIRE=jax in the environment they fail instead.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from tests.conftest import why_no_gpu

DEVICES = 2                     # of the CPU platform, for shard_map


def wanted(module: str) -> Any:
    """jax, with two devices on the CPU; the module that asks is skipped without it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if not re.search("xla_force_host_platform_device_count", flags):
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES}".strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")          # other tests of the process need a GPU's memory, too
    if why_no_gpu():
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")      # jax's own programs run once, and compiling them takes longer
    try:
        import jax
    except ImportError:
        if "jax" in os.environ.get("TESTS_REQUIRE", "").split(","):
            raise
        pytest.skip(f"{module} needs jax: pip install 'ptxkit[jax]'", allow_module_level=True)
    return jax
