"""Between tables and configurations: what a problem decides of one, and which tuned one it gets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

from ..config.dense import Config, ConfigError
from ..problem.dense import Problem
from .table import Knobs, lookup

AUTO = ("BK", "BUFFERS", "STAGES", "CONSUMERS", "STORE")
"""Knobs that a configuration derives when they are left out."""


def kind(problem: Problem) -> str:
    """Under which a table keeps the problem: operands, result, layout ("nt": K contiguous in both)."""
    layout = ("n" if problem.a_major == "k" else "t") + ("t" if problem.b_major == "k" else "n")
    operands = problem.a.__name__ + ("" if problem.a is problem.b else f"-{problem.b.__name__}")
    operands += "-block" if problem.block_scales else "-promoted" if problem.promote else ""
    operands += "" if problem.accumulator.__name__ == "f32" else f"-{problem.accumulator.__name__}"
    operands += "" if problem.batches is None else "-batched"
    return f"{operands}/{problem.out.__name__}/{layout}"


def knobs(config: Config, problem: Problem) -> dict[str, Any]:
    """What a table keeps of a configuration: the fields that differ from their defaults and that the rest does not give."""
    usual = problem.reading
    found = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in problem.fixed
             and getattr(config, field.name) != usual.get(field.name, field.default)}
    for name in AUTO:
        shorter = {other: value for other, value in found.items() if other != name}
        if len(shorter) < len(found) and _made(shorter, problem) == config:
            found = shorter
    return found


def revive(kept: Knobs, problem: Problem) -> Config:
    """The configuration of these knobs for a problem, which may have other rows than the one that was tuned. Raises ConfigError when it
    is not valid, TypeError for an unknown knob."""
    if kept.get("A_ROWS"):
        kept = {**kept, "A_ROWS": -(-problem.m // 8) * 8 if problem.m <= 56 else 0}
    return _made(kept, problem)


def _made(kept: Knobs, problem: Problem) -> Config:
    return Config(**{**problem.fixed, **problem.reading, **kept})


def tuned(problem: Problem, device: str) -> Config | None:
    """The configuration that a table of this device has for the problem; None when there is none, or none that it can have."""
    for name in dict.fromkeys((kind(problem), *_alike(problem))):
        kept = lookup(device, name, problem.m, problem.n, problem.k)
        if kept is None:
            continue
        with suppress(ConfigError, TypeError):     # a fusion may take the room of a stage; a user's table may be another version's
            return revive(kept, problem)
    return None


def _alike(problem: Problem) -> tuple[str, ...]:
    """Kinds that take as long: f16 as bf16, a transposed 16-bit operand as one with K contiguous, a 16-bit result as another."""
    own = kind(problem)
    if problem.a.bits != 16 or own.split("/")[0] not in ("f16", "bf16"):
        return ()
    out = "bf16" if problem.out.bits == 16 else problem.out.__name__
    layout = own.split("/")[2]
    return f"bf16/{out}/{layout}", f"bf16/{out}/nt"


__all__ = ["kind", "knobs", "revive", "tuned"]
