"""Between tables and configurations: what a problem decides of one, and which tuned one it gets."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from ptxkit.dsl.values import FieldError, from_json, named, to_json

from ..config.dense import DenseConfig
from ..config.parts import Cooperative, Loads, Promoted, Schedule, Scheduler, Store, Tile
from ..problem.dense import Problem
from .table import Knobs, lookup

DERIVED = (("tile", "BK"), ("store", "Staged", "buffers"), ("stages",), ("schedule", "Cooperative", "warpgroups"),
           ("schedule", "Cooperative", "sums"), ("store",))
"""Values that a configuration derives when they are left out."""


def kind(problem: Problem) -> str:
    """Under which a table keeps the problem: operands, result, layout ("nt": K contiguous in both)."""
    layout = ("n" if problem.a_major == "k" else "t") + ("t" if problem.b_major == "k" else "n")
    operands = problem.a.__name__ + ("" if problem.a is problem.b else f"-{problem.b.__name__}")
    operands += "-block" if problem.block_scales else "-promoted" if problem.promote else ""
    operands += "" if problem.accumulator.__name__ == "f32" else f"-{problem.accumulator.__name__}"
    operands += "" if problem.batches is None else "-batched"
    return f"{operands}/{problem.out.__name__}/{layout}"


def knobs(config: DenseConfig, problem: Problem) -> dict[str, Any]:
    """What a table keeps of a configuration, as JSON: tile, stages, schedule, scheduler, store and loads, without what the problem decides
    and what is derived."""
    usual = problem.loads(config.scheduler)
    loads = {field.name: getattr(config.loads, field.name) for field in fields(Loads)
             if getattr(config.loads, field.name) != getattr(usual, field.name)}
    found = {"tile": to_json(config.tile), "stages": config.stages, "schedule": named(_bare(config.schedule)),
             "scheduler": named(config.scheduler), "store": named(config.store), "loads": loads}
    for path in DERIVED:
        shorter = _without(found, path)
        if shorter != found and revive(shorter, problem) == config:
            found = shorter
    short = {name: _name_alone(value) for name, value in found.items()}
    return {name: value for name, value in short.items() if value not in ({}, "Cooperative", "Static")}


def _name_alone(value: Any) -> Any:
    """A member of a sum type whose fields have all been left out, as its name."""
    return next(iter(value)) if isinstance(value, dict) and list(value.values()) == [{}] else value


def _bare(schedule: Schedule) -> Schedule:
    """Without the way that block scales are loaded, which the arrays decide."""
    if isinstance(schedule, Cooperative) and isinstance(schedule.sums, Promoted):
        return replace(schedule, sums=Promoted(schedule.sums.how))
    return schedule


def _without(found: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The same without the value at this path, if there is one."""
    shorter = copy.deepcopy(found)
    place: Any = shorter
    for key in path[:-1]:
        place = place.get(key) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place.pop(path[-1], None)
    return shorter


def revive(kept: Knobs, problem: Problem) -> DenseConfig:
    """The configuration of these knobs for a problem, which may have other rows than the one that was tuned. Raises FieldError when it is
    not valid or has an unknown knob."""
    unknown = kept.keys() - {"tile", "stages", "schedule", "scheduler", "store", "loads"}
    if unknown:
        raise FieldError(f"a table keeps no {min(unknown)!r} of a configuration")
    schedule: Schedule = from_json(Schedule, kept.get("schedule", "Cooperative"), "schedule")
    if isinstance(schedule, Cooperative):
        schedule = replace(schedule, sums=problem.sums(schedule.sums.how if isinstance(schedule.sums, Promoted) else "plain"))
    scheduler: Scheduler = from_json(Scheduler, kept.get("scheduler", "Static"), "scheduler")
    store: Store | None = from_json(Store, kept["store"], "store") if "store" in kept else None
    given: Loads = from_json(Loads, kept.get("loads", {}), "loads")
    loads = replace(problem.loads(scheduler), **{name: getattr(given, name) for name in kept.get("loads", {})})
    if loads.a_rows:
        loads = replace(loads, a_rows=-(-problem.m // 8) * 8 if problem.m <= 56 else 0)
    return DenseConfig(problem.operands, from_json(Tile, kept.get("tile", {}), "tile"), kept.get("stages", 0), schedule, scheduler, store,
                       loads, problem.fusion)


def tuned(problem: Problem, device: str) -> DenseConfig | None:
    """The configuration that a table of this device has for the problem; None when there is none, or none that it can have."""
    for name in dict.fromkeys((kind(problem), *_alike(problem))):
        kept = lookup(device, name, problem.m, problem.n, problem.k)
        if kept is None:
            continue
        with suppress(FieldError):              # a fusion may take the room of a stage; a user's table may be another version's
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
