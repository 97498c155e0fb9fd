"""Files of results: what is kept comes back on the same card, for the same text; writers do not lose each other's entries."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from pathlib import Path

import pytest

import ptxkit.tuning.results as results
from ptxkit import Ptr, kernel
from ptxkit.cards import H100, H200
from ptxkit.ptx import mov, st
from ptxkit.types import f32

from .clocked import parametric

pytestmark = pytest.mark.pure
POINTS = [(("A", a), ("B", b)) for a in (1, 2) for b in (3, 4)]


@pytest.fixture(autouse=True)
def said_again():
    results._say.cache_clear()
    yield
    results._say.cache_clear()


def keep(path: Path, name: str, point=POINTS[1], card=H200) -> None:
    results.keep(path, card, name, parametric, point, {"us": 12.3456789})


def test_what_is_kept_comes_back(tmp_path):
    path = tmp_path / "deep" / "card.json"
    keep(path, "name")
    point, entry = results.find(path, H200, "name", parametric, POINTS)
    assert point == POINTS[1]
    assert (entry["us"], entry["kernel"]) == (12.3457, "tests.tuning.clocked.parametric")
    assert results.find(path, H200, "other", parametric, POINTS) is None
    assert results.find(path, H200, "name", parametric, POINTS[2:]) is None
    assert results.find(None, H200, "name", parametric, POINTS) is None
    assert [each.name for each in path.parent.iterdir() if not each.name.startswith(".")] == ["card.json"]


def test_another_cards_results_are_not_used_and_not_written_over(tmp_path, caplog):
    path = tmp_path / "card.json"
    keep(path, "name")
    before = path.read_bytes()
    for other in (H100, dataclasses.replace(H200, sms=66)):
        assert results.find(path, other, "name", parametric, POINTS) is None
        keep(path, "mine", card=other)
    assert path.read_bytes() == before
    assert "they are not used on NVIDIA H100 80GB HBM3 with 132" in caplog.text
    assert "give a folder" in caplog.text
    assert results.path_of(H200, tmp_path) != results.path_of(H100, tmp_path)
    assert results.path_of(dataclasses.replace(H200, sms=66), tmp_path) != results.path_of(H200, tmp_path)


def test_the_name_of_an_entry_is_everything_that_it_depends_on(monkeypatch):
    def name(**changed):
        given = {"kernel": parametric, "first": POINTS[0], "space": "s", "key": "k", "how": "burst"} | changed
        return results.name_of(**given)

    @kernel(block=32, name="parametric")
    def twin(y: Ptr[f32], *, A: int = 0, B: int = 0) -> None:
        """Stores A and B."""
        st.global_.v2.f32(y, (mov.f32(float(A)), mov.f32(float(B))))

    names = [name(), name(space="t"), name(key="l"), name(how="warm"), name(kernel=twin), name(first=POINTS[1])]
    assert name() == names[0]
    monkeypatch.setattr(results, "__version__", "9.9")
    names.append(name())
    monkeypatch.setattr(results, "assembler", lambda: "99.0")
    names.append(name())
    assert len(set(names)) == len(names)


def test_a_kernel_whose_helper_changed_has_another_text():
    """The source of the kernel is the same: its PTX is not."""
    helper = [1.0]

    def made():
        @kernel(block=32)
        def stored(y: Ptr[f32], *, A: int = 0, B: int = 0) -> None:
            st.global_.f32(y, mov.f32(helper[0] + A + B))

        return stored

    before = made()
    text = results.text_hash(before, POINTS[1])
    name = results.name_of(before, POINTS[0], "s", "k", "h")
    helper[0] = 2.0
    assert results.source_hash(made()) == results.source_hash(before)
    assert results.text_hash(made(), POINTS[1]) != text
    assert results.name_of(made(), POINTS[0], "s", "k", "h") != name


def test_an_entry_whose_point_has_another_text_by_now_is_not_used(tmp_path):
    path = tmp_path / "card.json"
    keep(path, "name")
    data = json.loads(path.read_text())
    data["entries"]["name"]["ptx"] = "0" * 64
    path.write_text(json.dumps(data))
    assert results.find(path, H200, "name", parametric, POINTS) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 0, "device": "x", "sms": 1, "entries": {}}',
                                  '{"schema": 1, "device": "NVIDIA H200", "sms": 132, "entries": [1]}',
                                  '{"schema": 1, "device": "NVIDIA H200", "sms": 132, "entries": {"name": 3}}'])
def test_what_is_no_file_of_results_is_never_in_the_way(tmp_path, text):
    path = tmp_path / "card.json"
    path.write_text(text)
    assert results.find(path, H200, "name", parametric, POINTS) is None
    keep(path, "name")
    assert results.find(path, H200, "name", parametric, POINTS)[0] == POINTS[1]


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch, caplog):
    path = tmp_path / "card.json"
    keep(path, "name")
    before = path.read_bytes()

    def refuse(*given):
        raise interruption

    monkeypatch.setattr(os, "replace", refuse)
    for interruption in (OSError(28, os.strerror(28)), KeyboardInterrupt()):
        if isinstance(interruption, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                keep(path, "other")
        else:
            keep(path, "other")
        assert path.read_bytes() == before
        assert not list(tmp_path.glob(".aside-*"))
    assert "used by this process alone" in caplog.text


def test_the_oldest_entries_go(tmp_path, monkeypatch):
    path = tmp_path / "card.json"
    monkeypatch.setattr(results, "MOST_KEPT", 3)
    for when, name in enumerate("abcde"):
        monkeypatch.setattr(results.time, "time", lambda when=when: when)
        keep(path, name)
    assert sorted(results.read(path, H200)) == ["c", "d", "e"]


def _writer(path: str, number: int, count: int) -> None:
    for each in range(count):
        keep(Path(path), f"{number}-{each}")


def test_writers_at_a_time_lose_nothing(tmp_path):
    path = tmp_path / "card.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_writer, args=(str(path), number, 8)) for number in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(20):
        results.read(path, H200)                # a reader finds a whole file at any moment
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert sorted(results.read(path, H200)) == sorted(f"{number}-{each}" for number in range(4) for each in range(8))
