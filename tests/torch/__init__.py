"""The operators of torch. Each test runs on the CPU device and, where there is a GPU, on it.

Without torch they are skipped, by name; with TESTS_REQUIRE=torch in the environment they fail instead.
"""

from __future__ import annotations

import os
from typing import Any

import pytest


def wanted(module: str) -> Any:
    """torch; the module that asks is skipped without it."""
    try:
        import torch
    except ImportError:
        if "torch" in os.environ.get("TESTS_REQUIRE", "").split(","):
            raise
        pytest.skip(f"{module} needs torch: pip install 'ptxkit[torch]'", allow_module_level=True)
    return torch
