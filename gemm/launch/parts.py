"""What the launches of all products share: launches in parts, and whether a caller's configuration is for the operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Generic, Protocol, TypeVar, get_args

from ptxkit.errors import LaunchError

from ..config import budget
from ..config.dense import DenseConfig
from ..config.grouped import GroupedConfig
from ..config.invariant import varies
from ..config.parts import BlockScaled, Direct, ScaleLoad
from ..problem.dense import Problem
from ..problem.lines import allows


class Launchable(Protocol):
    """A launch that is ready."""

    def run(self, stream: int) -> None:
        """Launch on a stream."""


L = TypeVar("L", bound=Launchable)


class GroupLaunches(Generic[L]):
    """Launches that have some of the groups each, one after another."""

    __slots__ = ("launches",)

    def __init__(self, launches: Sequence[L]) -> None:
        self.launches = launches

    def run(self, stream: int) -> None:
        """Launch all of them on a stream."""
        for each in self.launches:
            each.run(stream)


def check_operands(given: Any, needed: Any) -> None:
    """Raise LaunchError unless the operands of the caller's configuration are those that the arguments need. Room for groups is not
    compared."""
    for field in fields(needed):
        own, wanted = getattr(given, field.name), getattr(needed, field.name)
        if own != wanted and field.name != "max_groups":
            raise LaunchError(f"this config is not for this problem: its {field.name} is {_word(own)}, the arguments need {_word(wanted)}")


def _word(value: Any) -> str:
    return getattr(value, "__name__", str(value))


def check_sums(config: GroupedConfig, promote: bool, invariant: bool) -> None:
    """Raise LaunchError unless the sums of the caller's configuration of groups are added as the arguments ask for."""
    if promote and not budget.promoted(config.sums):
        raise LaunchError("this config is not for this problem: its sums stay in the tensor cores, the arguments need Promoted ones")
    if invariant and (why := varies(config)):
        raise LaunchError(f"this config is not batch-invariant: {why}; take TokensAsRows, a whole K for each CTA and BK=0, or leave "
                          "batch_invariant out")


def check_room(most: int, name: str, groups: int, at_once: int | None = None) -> None:
    """Raise LaunchError where a launch has more groups than the `most` that the caller's configuration has room for. It has all `groups` of
    the array `name`, or so many of them `at_once`."""
    if (groups if at_once is None else at_once) > most:
        raise LaunchError(f"this config has room for {most} groups, {name} has {groups}: take a larger max_groups")


LOADED = 16
"""Bytes that are loaded or stored at once. Whether the arrays of groups begin at a multiple of it decides how, or that they are refused."""
LOADS = get_args(ScaleLoad)


def check_product(config: DenseConfig, problem: Problem) -> None:
    """Raise LaunchError unless the caller's configuration computes what the arguments ask for."""
    check_operands(config.operands, problem.operands)
    if config.fusion != problem.fusion:
        raise LaunchError(f"this config is not for this problem: its fusion is {config.fusion}, the arguments need {problem.fusion}")
    if isinstance(config.sums, BlockScaled) != problem.block_scales:
        raise LaunchError("this config is not for this problem: " + ("it has block scales, the arguments have none"
                          if isinstance(config.sums, BlockScaled) else "its sums are not BlockScaled, the arguments have block scales"))


def check_config(config: DenseConfig, problem: Problem) -> None:
    """Raise LaunchError unless the caller's configuration fits the problem. It may promote without need, and load scales more slowly."""
    check_product(config, problem)
    if problem.promote and not budget.promoted(config.sums):
        raise LaunchError("this config is not for this problem: its sums stay in the tensor cores, the arguments need Promoted ones")
    for name, given, best_ in (("a", config.loads.a, problem.of_a.copies), ("b", config.loads.b, problem.of_b.copies)):
        if name not in config.loads.align and not allows(best_, given):
            raise LaunchError(f"this config loads {name} by {given}, which its address or strides do not allow: take {best_}")
    widest = problem.store or (Direct(1) if problem.ragged else Direct())
    too_wide = isinstance(config.store, Direct) and config.store.elements > widest.elements
    if too_wide or (problem.store is not None and (config.staged or config.swap_ab)):
        raise LaunchError(f"this config stores by {config.store}, which the address, the strides or the N of out or of what is added do "
                          f"not allow: take {widest} or Rows()")
    if problem.invariant and (why := varies(config)):
        raise LaunchError(f"this config is not batch-invariant: {why}; take Static or Dynamic and BK=0, or leave batch_invariant out")
    best = problem.sums()
    if isinstance(config.sums, BlockScaled) and isinstance(best, BlockScaled) and LOADS.index(config.sums.load) > LOADS.index(best.load):
        raise LaunchError(f"this config is not for this problem: its scales are loaded by {config.sums.load}, which these arrays do not "
                          f"allow: take load={best.load!r}")
    if config.loads.a_rows and problem.m > config.loads.a_rows:
        raise LaunchError(f"this config loads a_rows={config.loads.a_rows} rows of a, and a has {problem.m} rows: take a_rows=0")
    depth = -(-problem.k // config.tile.BK)
    if max(1, depth) < config.splits:
        raise LaunchError(f"this config splits K {config.splits} ways, and K = {problem.k} has {depth} stages of {config.tile.BK}: "
                          "take fewer splits")


__all__ = ["LOADED", "LOADS", "GroupLaunches", "check_config", "check_operands", "check_product", "check_room", "check_sums"]
