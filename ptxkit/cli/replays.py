"""What `ptxkit simulate` does with replays: --replay, --keep, --page and --trace."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .messages import say
from .output import cannot_write

if TYPE_CHECKING:
    from ..proof.launch import Launch
    from ..proof.result import Proof
    from ..replay.replay import Replay


def repeated(launch: Launch, path: str, *, check: bool, max_steps: int | None) -> Proof:
    """One run, under the choices of a file."""
    from ..proof.result import Proof, Run
    from ..proof.schedules import Schedule
    from ..replay.choices import Choices
    from ..replay.policies import Replaying
    from ..sim.storage import storage

    before = {name: storage(array).copy() for name, array in launch.arrays.items()}
    policy = Replaying(Choices.load(path))
    report = launch.run(policy, check=check, max_steps=max_steps)
    if policy.missed:
        say(f"{policy.missed} of the {len(policy.steps)} steps of {path} do not fit this run: they are of another")
    return Proof(launch, (Run(Schedule("replay"), report),), None, before, max_steps)


def kept(proof: Proof, options: argparse.Namespace) -> Replay:
    """Look for the shortest schedule of what the proof found, and write the files that are asked for."""
    from ..replay.choices import Choices
    from ..replay.outcome import Trial
    from ..replay.replay import Replay

    if options.replay:
        replay = Replay(Trial.of(proof.launch.copy(proof.before), proof.max_steps, proof.card), Choices.load(options.replay))
    else:
        replay = proof.replay(seconds=options.search_seconds)
    writers: tuple[tuple[str | None, Callable[[str], Any]], ...] = (
        (options.keep, replay.save), (options.page, replay.page), (options.trace, replay.trace))
    for path, write in writers:
        if path:
            try:
                write(path)
            except OSError as error:
                raise cannot_write(path, error) from None
    return replay
