"""Between tables and configurations: what a problem decides of one, and which tuned one it gets."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from ptxkit.cards import Card
from ptxkit.dsl.values import FieldError, from_json, named, to_json

from ..config.dense import DenseConfig
from ..config.invariant import varies
from ..config.parts import ConfigError, Cooperative, CopiedLoads, Loads, Promoted, Schedule, Scheduler, Store, Tile
from ..problem.dense import Problem
from .table import Knobs, Shape, lookup

DERIVED = (("tile", "BK"), ("store", "Staged", "buffers"), ("stages",), ("schedule", "Cooperative", "warpgroups"),
           ("schedule", "Cooperative", "sums"), ("schedule", "Cooperative", "share"), ("store",))
"""Values that a configuration derives when they are left out."""


INVARIANT = "-invariant"
"""In a kind: tuned among the configurations that are batch-invariant."""


def kind(problem: Problem) -> str:
    """Under which a table keeps the problem: operands, result, layout ("nt": K contiguous in both)."""
    layout = ("n" if problem.a_major == "k" else "t") + ("t" if problem.b_major == "k" else "n")
    operands = problem.a.__name__ + ("" if problem.a is problem.b else f"-{problem.b.__name__}")
    operands += "-block" if problem.block_scales else "-promoted" if problem.promote else ""
    operands += "" if problem.accumulator.__name__ == "f32" else f"-{problem.accumulator.__name__}"
    operands += "" if problem.batches is None else "-batched"
    operands += "-copied" if problem.by_threads else ""
    operands += INVARIANT if problem.invariant else ""
    return f"{operands}/{problem.out.__name__}/{layout}"


def shape_of(problem: Problem) -> Shape:
    """Under which a table keeps its extents."""
    return (problem.m, problem.n, problem.k) if problem.batches is None else (problem.batches, problem.m, problem.n, problem.k)


def knobs(config: DenseConfig, problem: Problem) -> dict[str, Any]:
    """What a table keeps of a configuration, as JSON: tile, stages, schedule, scheduler, store and loads, without what the problem decides
    and what is derived."""
    usual = problem.aligned(config.loads.align).loads(config.scheduler, config.swap_ab)
    loads = {field.name: getattr(config.loads, field.name) for field in fields(Loads)
             if getattr(config.loads, field.name) != getattr(usual, field.name)}
    found = {"tile": to_json(config.tile), "stages": config.stages, "schedule": named(_bare(config.schedule)),
             "scheduler": named(config.scheduler), "store": named(config.store), "loads": loads,
             **({"swap_ab": True} if config.swap_ab else {}),
             **({"ahead": config.loads.ahead} if isinstance(config.loads, CopiedLoads) and config.loads.ahead else {})}
    for path in DERIVED:
        shorter = _without(found, path)
        with suppress(ConfigError):                # where the shorter form is not legal
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
    unknown = kept.keys() - {"tile", "stages", "schedule", "scheduler", "store", "loads", "swap_ab", "ahead"}
    if unknown:
        raise FieldError(f"a table keeps no {min(unknown)!r} of a configuration")
    schedule: Schedule = from_json(Schedule, kept.get("schedule", "Cooperative"), "schedule")
    if isinstance(schedule, Cooperative):
        schedule = replace(schedule, sums=problem.sums(schedule.sums.how if isinstance(schedule.sums, Promoted) else "plain"))
    scheduler: Scheduler = from_json(Scheduler, kept.get("scheduler", "Static"), "scheduler")
    store: Store | None = from_json(Store, kept["store"], "store") if "store" in kept else None
    given: Loads = from_json(Loads, kept.get("loads", {}), "loads")
    swap_ab: bool = from_json(bool, kept.get("swap_ab", False), "swap_ab")
    loads = problem.aligned(given.align).loads(scheduler, swap_ab)
    if isinstance(loads, Loads):
        loads = replace(loads, **{name: getattr(given, name) for name in kept.get("loads", {})})
    elif "ahead" in kept:
        shifted = loads.shifted(from_json(int, kept["ahead"], "ahead"))
        if shifted is None:
            raise FieldError("lines that are not contiguous cannot be shifted")
        loads = shifted
    if isinstance(loads, Loads) and loads.a_rows:
        loads = replace(loads, a_rows=-(-problem.m // 8) * 8 if problem.m <= 56 else 0)
    tile: Tile = from_json(Tile, kept.get("tile", {}), "tile")
    return DenseConfig(problem.operands, tile, kept.get("stages", 0), schedule, scheduler, problem.stored(tile, scheduler, store), loads,
                       problem.fusion, swap_ab)


def tuned(problem: Problem, card: Card, *, exact: bool = False) -> DenseConfig | None:
    """The configuration that a table of this card has for the problem; None when there is none, or none that it can have. A
    batch-invariant product has an entry of its own or, if that is batch-invariant too, the one of other products. `exact`: for just this
    kind and these extents."""
    for name in (kind(problem),) if exact else _kinds(problem):
        kept = lookup(card, name, problem.m, problem.n, problem.k, problem.batches, exact=exact)
        if kept is None:
            continue
        with suppress(FieldError):              # a fusion may take the room of a stage; a user's table may be another version's
            config = revive(kept, problem)
            if not (problem.invariant and varies(config)):
                return config
    return None


def _kinds(problem: Problem) -> tuple[str, ...]:
    """The kind of a problem, then those that take as long: f16 as bf16, a transposed 16-bit operand as one with K contiguous, a 16-bit
    result as another."""
    own = kind(problem).replace(INVARIANT, "")
    found = [own]
    if problem.a.bits == 16 and own.split("/")[0] in ("f16", "bf16"):
        out = "bf16" if problem.out.bits == 16 else problem.out.__name__
        found += [f"bf16/{out}/{own.split('/')[2]}", f"bf16/{out}/nt"]
    if problem.invariant:
        found = [*(name.replace("/", f"{INVARIANT}/", 1) for name in found), *found]
    return tuple(dict.fromkeys(found))


__all__ = ["INVARIANT", "kind", "knobs", "revive", "shape_of", "tuned"]
