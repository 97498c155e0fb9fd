"""Measurements in a process that is watched: what hangs or takes the process down is skipped with its reason, and the rest goes on.

The worker notes in a file what it begins. A kernel that never ends leaves the note unchanged; the worker is then ended and started again
without that step. A card that an illegal access has put out of service for the process is given up the same way.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import write_aside

PATIENCE_S = 45.0
"""Longer than any single step takes: assembling a kernel, or measuring a product of 16384 cubed."""
START = 4
"""So many times that patience before the first step: importing torch on a fresh machine."""
GIVEN_UP = 70
"""Exit status of a worker that cannot go on. 0 to 2 are results."""
WORKER = (sys.executable, "-m", "ptxkit.measure")


class GiveUp(Exception):
    """The process can use the card no longer."""


class Step:
    """The note of a worker: what it does now, what it has done, and what to skip. Without a file it keeps nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.state: dict[str, Any] = {"at": "", "skip": {}, "done": [], "restarts": 0}
        if path is not None:
            self.state.update(json.loads(path.read_text(encoding="utf-8")))

    def begin(self, key: str) -> str | None:
        """Notes the step; a sentence when it must be skipped."""
        why = self.state["skip"].get(key)
        if why is None:
            self._note(at=key)
        return str(why) if why is not None else None

    def touch(self) -> None:
        """Says that the step goes on."""
        if self.path is not None:
            os.utime(self.path)

    def finish(self, key: str) -> None:
        """Notes that this need not be done again after a restart."""
        self._note(at="", done=[*self.state["done"], key])

    def leave(self) -> None:
        """Notes that no step is begun."""
        self._note(at="")

    def finished(self, key: str) -> bool:
        return key in self.state["done"]

    @property
    def restarted(self) -> bool:
        """Whether an earlier worker has begun the task."""
        return bool(self.state["restarts"])

    def _note(self, **news: Any) -> None:
        self.state.update(news)
        if self.path is not None:
            write_aside(self.path, json.dumps(self.state))


def alive(torch: Any) -> None:
    """Raises GiveUp when the card answers this process no longer."""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise GiveUp(str(error).splitlines()[0]) from None


def watched(task: str, options: Mapping[str, Any], path: Path, *, patience_s: float = PATIENCE_S, restarts: int = 12,
            worker: Sequence[str] = WORKER, say: Callable[[str], None] = lambda line: None) -> int:
    """Runs a task in a worker until it ends by itself, leaving out the steps at which it hangs or falls; its exit status.

    The task is `module:function`, which is called with the options and the worker's `Step`. `path` is the note's file, which must not be
    there yet.
    """
    state: dict[str, Any] = {"task": task, "options": dict(options), "at": "", "skip": {}, "done": [], "restarts": 0}
    path.write_text(json.dumps(state), encoding="utf-8")
    while True:
        process = subprocess.Popen([*worker, str(path)])
        try:
            why = _wait(process, path, patience_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if why is None:
            return int(process.returncode)
        state = json.loads(path.read_text(encoding="utf-8"))
        at = state["at"]
        say(f"{at or 'the start'}: {why}")
        state["restarts"] += 1
        if not at or at in state["skip"] or state["restarts"] > restarts:
            return 1
        state["skip"][at] = why
        path.write_text(json.dumps(state), encoding="utf-8")


def _wait(process: subprocess.Popen[bytes], path: Path, patience_s: float) -> str | None:
    """None when the worker ended with a result, else what became of it."""
    while True:
        before, text = path.stat().st_mtime_ns, path.read_text(encoding="utf-8")
        wait_s = patience_s if json.loads(text)["at"] else START * patience_s
        try:
            status = process.wait(wait_s)
        except subprocess.TimeoutExpired:
            if path.stat().st_mtime_ns == before:
                return f"nothing happened for {wait_s:g} s: it hangs"
            continue
        if status in (0, 1, 2):
            return None
        return "the process could not go on" if status == GIVEN_UP else f"the process ended with status {status}"


def main(arguments: Sequence[str]) -> int:
    """The worker."""
    from ..errors import PtxkitError

    step = Step(Path(arguments[0]))
    module, _, name = step.state["task"].partition(":")
    try:
        return int(getattr(importlib.import_module(module), name)(step.state["options"], step))
    except PtxkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except GiveUp as error:
        print(f"{step.state['at']}: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GIVEN_UP)      # a process whose card hangs may never finish its own cleaning up


__all__ = ["PATIENCE_S", "GiveUp", "Step", "alive", "main", "watched"]
