"""Points that are traced alone, for the tests of the tuner."""

from __future__ import annotations

import pytest


@pytest.fixture
def unassembled(monkeypatch):
    """Points are traced alone: what is tested has nothing to do with machine code."""
    monkeypatch.setattr("ptxkit.dsl.kernel.Kernel.assemble", lambda self, **config: None)
