"""Runs the worker and watches it. A step that hangs, crashes or is wrong is left out with the reason; the others continue."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ptxkit.measure.files import write_json

from ..tools.bench.report import invocation
from .rungs import BY_NAME, NAMES, OURS, OURS_IDEA

PATIENCE_S = 120.0
"""The longest time between two lines of the worker, in seconds. The slowest step at 8192 cubed takes a few, as does assembling a kernel."""
WORKER = (sys.executable, "-m", "ptxkit.gemm.ladder.worker")
Say = Callable[[str], None]


class Stopped(Exception):
    """The worker ended or hung. `at` is the task that it had begun."""

    def __init__(self, at: str, why: str) -> None:
        super().__init__(why)
        self.at = at
        self.why = why


def lines(command: Sequence[str], patience_s: float = PATIENCE_S) -> Iterator[dict[str, Any]]:
    """The worker's lines. Raises Stopped if the worker fails. If it writes nothing for `patience_s`, it is killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    heard: queue.Queue[str | None] = queue.Queue()
    complaints: list[str] = []

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            heard.put(line)
        heard.put(None)

    def note() -> None:
        assert process.stderr is not None
        complaints.extend(process.stderr)

    listeners = [threading.Thread(target=target, daemon=True) for target in (listen, note)]
    for listener in listeners:
        listener.start()
    at = "start"
    try:
        while True:
            try:
                line = heard.get(timeout=patience_s)
            except queue.Empty:
                raise Stopped(at, f"nothing happened for {patience_s:.0f} s: it hangs") from None
            if line is None:
                break
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            at = said.get("begin", at)
            yield said
        if process.wait(timeout=60):
            listeners[1].join(timeout=5)
            raise Stopped(at, f"it failed with status {process.returncode}: {_last(complaints)}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _last(complaints: Sequence[str]) -> str:
    spoken = [line.strip() for line in complaints if line.strip()]
    return spoken[-1] if spoken else "no message"


def ladder(size: int, *, rounds: int, say: Say, names: Sequence[str] = NAMES, patience_s: float = PATIENCE_S,
           worker: Sequence[str] = WORKER) -> dict[str, Any]:
    """Verify, measure and profile the steps at one size. Steps that could not be measured are under "left_out" with the reason."""
    left_out = {name: sentence for name in names if name in BY_NAME and (sentence := BY_NAME[name].problem(size, size, size))}
    alive = [name for name in names if name not in left_out]

    def call(task: str, wanted: Sequence[str], *more: str) -> Iterator[dict[str, Any]]:
        yield from lines((*worker, task, "--size", str(size), "--names", ",".join(wanted), *more), patience_s)

    verified: set[str] = set()
    waiting = list(alive)
    while waiting:
        try:
            seen: dict[str, int] = {}
            for said in call("verify", waiting):
                if "wrong" in said:
                    name = said["name"]
                    if said["wrong"]:
                        left_out.setdefault(name, f"wrong at {'x'.join(map(str, said['shape']))}: {said['wrong']}")
                    seen[name] = seen.get(name, 0) + 1
                    if seen[name] == 2 and name not in left_out:
                        verified.add(name)
                        say(f"  {name}: right")
            waiting = []
        except Stopped as stopped:
            waiting = [name for name in _without(waiting, stopped, left_out, say) if name not in verified and name not in left_out]
    alive = [name for name in alive if name in verified and name not in left_out]

    found: dict[str, Any] = {"size": size, "results": {}}
    device: dict[str, Any] = {}
    waiting = list(alive)
    while waiting:
        try:
            for said in call("measure", waiting, "--rounds", str(rounds)):
                if "measured" in said:
                    found, device = said["measured"], said["device"]
            break
        except Stopped as stopped:
            waiting = _without(waiting, stopped, left_out, say)

    waiting = [name for name in alive if name in found["results"]]
    while waiting:
        try:
            for said in call("profile", waiting):
                if "clocks" in said:
                    found["results"][said["name"]]["clocks"] = said["clocks"]
            break
        except Stopped as stopped:
            waiting = _without(waiting, stopped, {}, say)
    for name, sentence in left_out.items():
        say(f"  {name} left out: {sentence}")
    return {**found, "left_out": left_out, "device": device}


def _without(names: Sequence[str], stopped: Stopped, left_out: dict[str, str], say: Say) -> list[str]:
    """The names without the step at fault; no names if no step is at fault."""
    say(f"  {stopped.at}: {stopped.why}")
    if stopped.at not in names:
        left_out.update((name, f"not measured: {stopped.at}: {stopped.why}") for name in names)
        return []
    left_out[stopped.at] = stopped.why
    return [name for name in names if name != stopped.at]


def described(name: str) -> dict[str, Any]:
    """The cells of a step besides its figures."""
    if name == OURS:
        return {"step": "", "name": name, "idea": OURS_IDEA}
    rung = BY_NAME[name]
    return {"step": str(rung.step), "name": name, "idea": rung.idea}


def run(sizes: Sequence[int], *, rounds: int, say: Say, keep: Path | None = None) -> dict[str, Any]:
    """Measure all sizes. `keep` gets the results after each size."""
    results: dict[str, Any] = {"schema": 1, "date": time.strftime("%Y-%m-%d"), "command": invocation(),
                               "sizes": []}
    for size in sizes:
        say(f"{size} x {size} x {size}: each step is checked against float64, then all are timed in turn")
        found = ladder(size, rounds=rounds, say=say)
        device = found.pop("device")
        results["device"] = device or results.get("device", {})
        results["sizes"].append(found)
        if keep is not None:
            write_json(keep, results)
    return results
