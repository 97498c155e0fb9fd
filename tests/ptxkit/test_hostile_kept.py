"""JSON that programs keep for themselves and that something has spoiled: it is as good as none, and never an error of Python."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ptxkit import cards, files
from ptxkit.cards import H100, H200
from ptxkit.gemm.heuristic import corrections, costs, overlaps, table
from ptxkit.runtime import images
from ptxkit.tuning import results
from tests.tuning.clocked import parametric

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
WORDS = ("schema", "device", "sms", "entries", "version", "constants", "factors", "trees", "features", "few", "tflops", "read_gbs", "mhz",
         "name", "block", "cluster", "dynamic_smem", "parameters", "records", "config", "when", "kernel", "point", "bf16/bf16/nt",
         "64x64x64", "f32")


def nonsense(chance: random.Random, depth: int = 3) -> Any:
    """Any JSON, of words that the readers know."""
    if depth and chance.random() < 0.6:
        count = chance.randrange(5)
        if chance.random() < 0.3:
            return [nonsense(chance, depth - 1) for _ in range(count)]
        return {chance.choice(WORDS): nonsense(chance, depth - 1) for _ in range(count + 4)}
    return chance.choice([None, True, 0, -1, 1, 2, 3, 1 << 80, 1.5, float("inf"), float("nan"), "", "f32", "1", "x" * 200, "\ud800",
                          "../x", "\0", [], {}])


def spoiled(chance: random.Random, whole: Any) -> Any:
    """What is whole with one value, somewhere in it, replaced by nonsense."""
    if not isinstance(whole, (dict, list)) or not whole or chance.random() < 0.15:
        return nonsense(chance, 2)
    made = dict(whole) if isinstance(whole, dict) else list(whole)
    at = chance.choice(list(made)) if isinstance(made, dict) else chance.randrange(len(made))
    made[at] = spoiled(chance, made[at])
    return made


def tuned(path: Path) -> None:
    """A file of tuned kernels: it is read, looked into, and added to."""
    results._say.cache_clear()
    points = [(("A", 1), ("B", 2))]
    results.read(path, H200)
    results.find(path, H200, "name", parametric, points)
    results.keep(path, H200, "name", parametric, points[0], {"us": 1.0})


def shapes(path: Path) -> None:
    table._say.cache_clear()
    with table.nothing_tuned_here():
        table.keep(H200, "bf16/bf16/nt", (64, 64, 64), {"config": {}}, path)
    table.Table.read(path).why_not(H200)


READERS: list[tuple[Callable[[Path], Any], tuple[type[Exception], ...]]] = [
    (tuned, ()), (shapes, ()), (costs.read, (costs.CostsError,)), (corrections.read, (costs.CostsError,)),
    (lambda path: corrections.read(path, overlaps.NAMES), (costs.CostsError,)), (cards.read_probe, ()),
    (lambda path: images.read(path.read_text("utf-8", "surrogateescape")), files.WRONG_DATA)]
IMAGE = {"name": "k", "block": [1, 1, 1], "cluster": [1, 1, 1], "dynamic_smem": 0, "parameters": [["p", "value", "f32"]],
         "records": {"p": ["f32", [1, 2], None]}}
WHOLE: list[Any] = [
    {"schema": results.SCHEMA, "device": H200.name, "sms": H200.sms, "entries": {"name": {"point": [["A", 1], ["B", 2]], "when": 1}}},
    {"schema": table.SCHEMA, "device": H200.name, "sms": H200.sms, "version": "1",
     "entries": {"bf16/bf16/nt": {"64x64x64": {"config": {}}}}},
    json.loads(costs.fit_path(H100.name).read_text()),
    json.loads(corrections.trees_beside(costs.fit_path(H100.name)).read_text()), json.loads(overlaps.path_of(H200).read_text()),
    {"tflops": 1, "read_gbs": 2, "mhz": 3}, IMAGE]


@pytest.mark.parametrize("which", range(len(READERS)))
def test_any_json_is_survived(tmp_path: Path, which: int) -> None:
    read, legal = READERS[which]
    chance, path = random.Random(which), tmp_path / "kept.json"
    path.write_text(json.dumps(WHOLE[which]))
    read(path)                                                      # what is whole is read
    for number in range(150):
        made = spoiled(chance, WHOLE[which]) if number % 2 else nonsense(chance)
        path.write_text(json.dumps(made), "utf-8", "surrogatepass")
        try:
            read(path)
        except legal:
            pass
        except Exception as error:
            pytest.fail(f"{error!r} for {str(made)[:500]}")


@pytest.mark.parametrize("which", range(len(READERS) - 1))
def test_any_file_is_survived(tmp_path: Path, which: int) -> None:
    """A pipe is not waited for, and a device not read."""
    read, legal = READERS[which]
    path = tmp_path / "kept.json"
    makers: list[Callable[[], object]] = [lambda: path.write_text("[" * 100_000), lambda: path.write_bytes(b"\xff\xfe{}"),
                                          path.touch, path.mkdir]
    if os.name == "posix":
        makers += [lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"), lambda: path.symlink_to(path)]
    for make in makers:
        make()
        with contextlib.suppress(*legal):
            read(path)
        for each in tmp_path.iterdir():
            each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
