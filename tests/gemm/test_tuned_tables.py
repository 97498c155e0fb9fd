"""Tables of what was tuned: whose results are used, and in what order, and that nothing in them is lost."""

# ruff: noqa: F811

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ptxkit import __version__, gemm
from ptxkit.cards import H100, H200, Card
from ptxkit.errors import LaunchError
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.table import Table, file_name, keep, lookup
from ptxkit.gemm.heuristic.tuned import kind, knobs

from .first_use import CARD, KIND, SHAPE, problem_of, third, wishes  # noqa: F401


def test_a_table_that_breaks_off_is_not_left_behind(tmp_path, monkeypatch) -> None:
    path = tmp_path / "table.json"
    Table.of(CARD).write(path)
    before = path.read_bytes()
    monkeypatch.setattr(tables.os, "replace", lambda *given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    broken = Table.of(CARD)
    broken.put(KIND, SHAPE, {"config": {}})
    with pytest.raises(OSError, match="no space"):
        broken.write(path)
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]
    assert path.read_bytes() == before


def write(path: Path, BN: int, card: Card = CARD, version: str = __version__) -> None:
    made = Table(card.name, sms=card.sms, version=version)
    made.put(KIND, SHAPE, {"config": {"tile": {"BN": BN}}})
    made.write(path)


def found(card: Card = CARD) -> Any:
    tables.forget()
    kept = lookup(card, KIND, *SHAPE)
    return kept and kept["tile"]["BN"]


def test_the_order_of_tables(wishes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "FOLDER", tmp_path / "shipped")
    assert found() is None
    write(tmp_path / "shipped" / file_name(CARD.name), 64, version="0.0.1")     # what ships is of the package
    assert found() == 64
    write(tables.user_path(CARD), 96)
    assert found() == 96
    write(tmp_path / "team.json", 128)
    wishes.table = tmp_path / "team.json"
    assert found() == 128
    write(tmp_path / "mine.json", 160)
    wishes.tune = tmp_path / "mine.json"
    assert found() == 160
    keep(CARD, KIND, SHAPE, {"config": {"tile": {"BN": 192}}}, None)
    assert found() == 192
    assert lookup(CARD, KIND, 520, *SHAPE[1:])["tile"]["BN"] == 192             # a near number of rows
    assert lookup(CARD, KIND, 520, *SHAPE[1:], exact=True) is None


def test_a_folder_has_a_table_for_each_card(wishes, tmp_path) -> None:
    wishes.table = tmp_path
    for card, BN in ((CARD, 64), (H100, 96), (H200.with_sms(16), 128)):
        write(tmp_path / tables.own_name(card), BN, card)
    assert [found(card) for card in (CARD, H100, H200.with_sms(16))] == [64, 96, 128]
    assert found(H200.with_sms(17)) is None
    assert {path.name for path in tmp_path.iterdir()} >= {"card-9.json", "h100-80gb-hbm3.json", "h200-16-sms.json"}


def test_a_result_of_another_card_or_version_is_not_used_and_said_once(wishes, tmp_path, caplog) -> None:
    wishes.table = tmp_path / "team.json"
    for card, version, sentence in ((H100, __version__, "is of NVIDIA H100 80GB HBM3 with 132 SMs, not of NVIDIA Card 9"),
                                    (CARD.with_sms(16), __version__, "with 16 SMs, not of NVIDIA Card 9 with 132"),
                                    (CARD, "0.0.9", f"was tuned by ptxkit 0.0.9, not by {__version__}"),
                                    (CARD, "", "before 0.1")):
        write(wishes.table, 64, card, version)
        caplog.clear()
        tables.forget()
        with caplog.at_level(logging.WARNING, "ptxkit"):
            assert lookup(CARD, KIND, *SHAPE) is None
            tables._known.cache_clear()
            assert lookup(CARD, KIND, *SHAPE) is None
        (said,) = caplog.messages
        assert sentence in said
        assert str(wishes.table) in said
    caplog.clear()
    wishes.table = tmp_path / "gone.json"
    with caplog.at_level(logging.WARNING, "ptxkit"):
        assert found() is None
    assert "is not there" in caplog.text
    caplog.clear()
    wishes.table = Path(os.devnull)
    with caplog.at_level(logging.WARNING, "ptxkit"):
        assert found() is None
    assert "is no file or folder" in caplog.text


def test_what_is_tuned_never_spoils_a_table_of_others(wishes, tmp_path, caplog) -> None:
    path = tmp_path / "table.json"
    entry = {"config": {"tile": {"BN": 96}}}
    write(path, 64, H100)
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING, "ptxkit"):
        keep(CARD, KIND, SHAPE, entry, path)
    assert path.read_bytes() == before
    assert "used by this process alone" in caplog.text
    assert lookup(CARD, KIND, *SHAPE) == entry["config"]
    write(path, 64, CARD, "0.0.9")
    keep(CARD, KIND, SHAPE, entry, path)
    assert Table.read(path).version == __version__
    assert Table.read(tmp_path / "table.0.0.9.json").entries[KIND]                # put aside, not lost
    path.write_text("{")
    keep(CARD, KIND, SHAPE, entry, path)
    assert Table.read(path).entries[KIND]
    assert (tmp_path / "table.old.json").read_text() == "{"


def test_a_table_that_ships_is_added_to_whoever_wrote_it(wishes, tmp_path, monkeypatch) -> None:
    """By whatever path: the package's folders are links in a checkout."""
    folder = tmp_path / "cards"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    monkeypatch.setattr(tables, "FOLDER", folder)
    write(folder / file_name(CARD.name), 64, version="")
    keep(CARD, KIND, (8, 8, 8), {"config": {}}, tmp_path / "link" / file_name(CARD.name))
    assert len(Table.read(folder / file_name(CARD.name)).entries[KIND]) == 2
    assert {path.suffix for path in folder.iterdir()} == {".json", ".lock"}


def test_what_is_kept_is_json_that_can_be_read(wishes, tmp_path) -> None:
    keep(CARD, KIND, SHAPE, {"config": knobs(third(), problem_of())}, tmp_path / "deep" / "table.json")
    data = json.loads((tmp_path / "deep" / "table.json").read_text())
    assert (data["device"], data["sms"], data["version"]) == (CARD.name, 132, __version__)
    assert kind(problem_of()) == KIND


@pytest.mark.parametrize(("name", "value"), [
    *(("seconds", value) for value in ("5", None, -1, float("nan"), float("inf"), [5])),
    *(("table", value) for value in (5, "", b"team.json", []))], ids=str)
def test_a_block_that_cannot_be_is_refused_where_it_begins(name: str, value: object) -> None:
    """Not at the first use of a shape."""
    with pytest.raises(LaunchError, match=f"^{name}="):
        gemm.tuning(**{name: value})
