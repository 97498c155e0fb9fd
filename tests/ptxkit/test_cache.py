"""The cubin cache: what decides an entry, and that many processes may share one directory."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxkit.runtime.cache import Cache, Entry, key, strip_lines

from .cubins import small

PTX = '.version 8.0\n.file 1 "a.py"\n.entry k()\n{\n\t.loc 1 3 0\n\tret;\n}\n'


def test_line_directives_take_no_part_in_the_key() -> None:
    stripped, numbers = strip_lines(PTX)
    assert stripped == ".version 8.0\n.entry k()\n{\n\tret;\n}"
    assert numbers == (1, 3, 4, 6, 7)
    other, _ = strip_lines(PTX.replace("1 3 0", "1 99 4").replace("a.py", "b.py"))
    assert key(other, "ptxas") == key(stripped, "ptxas")


@pytest.mark.parametrize("recipe", [("ptxas", "13.1", "-O3"), ("ptxas", "13.0", "-O1"), ("other", "13.0", "-O3"), ("ptxas", "13.0-O3", "")])
def test_everything_else_does(recipe: tuple[str, ...]) -> None:
    assert key(PTX, *recipe) != key(PTX, "ptxas", "13.0", "-O3")
    assert key(PTX + " ", "ptxas") != key(PTX, "ptxas")


def test_what_is_put_is_got(tmp_path: Path) -> None:
    store = Cache(tmp_path / "new")
    name, entry = key(PTX), Entry(small(bytes(range(256))), "a log: \N{GREEK SMALL LETTER MU}s\n")
    assert store.get(name) is None
    store.put(name, entry)
    assert store.get(name) == entry
    assert store.size()[0] == 1
    assert store.clear() == 1
    assert store.get(name) is None


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1],
    lambda data: b"",
    lambda data: data[:40] + b"?" + data[41:],
    lambda data: b"junk" + data,
])
def test_a_damaged_entry_is_none(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store, name = Cache(tmp_path), key(PTX)
    store.put(name, Entry(small(b"cubin"), "log"))
    path, = tmp_path.glob("??/*.cubin")
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(name) is None
    assert not path.exists()


def test_a_directory_that_cannot_be_made_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Cache(tmp_path / "file" / "cache")
    store.put(key(PTX), Entry(small(b"cubin"), "log"))
    assert store.get(key(PTX)) is None


def _work(folder: str, seed: int, rounds: int) -> int:
    """Puts, gets and clears at random; the number of entries got that were not what was put."""
    store, chance, wrong = Cache(Path(folder)), random.Random(seed), 0
    for _ in range(rounds):
        which = chance.randrange(4)
        entry = Entry(small(bytes([which]) * 50_000), f"log {which}")
        action = chance.random()
        if action < 0.5:
            store.put(key(str(which)), entry)
        elif action < 0.98:
            wrong += store.get(key(str(which))) not in (None, entry)
        else:
            store.clear()
    return wrong


def test_many_processes_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        assert pool.starmap(_work, [(str(tmp_path), seed, 300) for seed in range(4)]) == [0, 0, 0, 0]
    assert not list(tmp_path.rglob(".aside-*"))
