"""Settings that must stand in the environment before the compilers are imported."""

from __future__ import annotations

from benchmarks.foreign.environment import prepare

prepare()
