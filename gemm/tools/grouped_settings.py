"""Configurations of grouped products that differ from another one in settings such as `tile.BM=64`: for commands, variants and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptxkit.errors import PtxkitError

from ..config.grouped import GroupedConfig, StagedGroups, SwapAB, TokensAsRows
from ..config.parts import ConfigError, Cooperative, Promoted, TensorCoreSums, ThreadScaled
from ..problem.grouped import GroupProblem

Settings = Mapping[str, Any]
"""Values, or text as on a command line, by the path of their field."""


class SettingError(PtxkitError, ValueError):
    """What is no setting."""


def read(words: Sequence[str]) -> dict[str, str]:
    """The settings that these words say."""
    found = {}
    for word in words:
        path, _, value = word.partition("=")
        if not path or not value:
            raise SettingError(f"{word!r} is no setting: write one such as tile.BM=64 or tokens=SwapAB(n_granularity=16)")
        found[path] = value
    return found


def with_settings(config: GroupedConfig, settings: Settings) -> GroupedConfig:
    """The configuration with these settings, as one kernel. What was derived is derived again. If no setting says otherwise, it has as many
    warpgroups as before, and no partial boxes where its tile cannot have them."""
    changes = dict(settings)
    if isinstance(config.schedule, Cooperative) and not any(path.startswith(("schedule", "tile.BM")) for path in changes):
        changes["schedule.warpgroups"] = config.warpgroups
    if isinstance(config.store, StagedGroups) and config.store.ends != "ragged" and "store" not in changes:
        changes = {"store": StagedGroups(ends=config.store.ends), **changes}
    try:
        return config.with_(changes)
    except ConfigError:
        if not config.tokens.partial_boxes or any(path.startswith("tokens") for path in changes):
            raise
    tokens = replace(config.tokens, partial_boxes=False) if isinstance(config.tokens, SwapAB) else TokensAsRows()
    return config.with_({"tokens": tokens, **changes})


def from_defaults(problem: GroupProblem, settings: Settings) -> GroupedConfig:
    """The default configuration of a problem with these settings. Without a setting of them, block scales are read by the threads."""
    sums = ThreadScaled() if problem.block_scales else Promoted() if problem.promote else TensorCoreSums()
    return GroupedConfig(problem.operands).with_({"schedule": Cooperative(sums=sums), **settings})


__all__ = ["SettingError", "Settings", "from_defaults", "read", "with_settings"]
