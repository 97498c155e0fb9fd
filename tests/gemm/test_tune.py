"""Laws of the tuner and its tables: the search finds the fastest, what is kept comes back, what is shipped is valid."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200, known
from ptxkit.errors import LaunchError
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import ClusterShape, Cooperative, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.heuristic import table as tables
from ptxkit.gemm.heuristic.dense import heuristic
from ptxkit.gemm.heuristic.table import Table, TableError, file_name, lookup
from ptxkit.gemm.heuristic.tuned import kind, knobs, revive, tuned
from ptxkit.gemm.tools import tune
from ptxkit.gemm.tools.bench import baselines, operands
from ptxkit.gemm.tools.bench import run as bench_run
from ptxkit.gemm.tools.bench.shapes import Problem, problem
from ptxkit.gemm.tools.problems import chosen, described
from ptxkit.measure import power, regimes, watch
from ptxkit.measure.regimes import Entry
from ptxkit.tuning import assembly

from .virtual_card import Card, Matrix

DEVICE = "NVIDIA Card 9"
CARD = dataclasses.replace(H200, name=DEVICE)
SHAPES = ("512", "4096", "16x4096x7168", "1x576x7168:f16", "4096:bf16:tn", "4096:f16:nn", "4096:e4m3", "4096x4096x7168:e4m3-block")


@pytest.fixture(autouse=True)
def user_tables(tmp_path, monkeypatch):
    """A cache directory of the test's own."""
    monkeypatch.setattr(tables, "user_path", lambda card: tmp_path / "tuned" / file_name(card.name))
    with tables.nothing_tuned_here():
        yield tmp_path / "tuned"


# The search.


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=150, unique=True), st.integers(1, 6))
def test_halving_finds_the_fastest(times, keep):
    rounds_of = []

    def times_of(entries, rounds):
        rounds_of.append((len(entries), rounds))
        return [times[entry] for entry in entries]

    found = tune.halving(range(len(times)), times_of, keep=keep)
    assert [time for time, _ in found] == sorted(times)[:len(found)]
    assert len(found) == min(len(times), keep)
    assert all(times[entry] == time for time, entry in found)
    assert sum(count * rounds for count, rounds in rounds_of) <= (2 * len(times) + 4 * keep) * (len(rounds_of) + 1)


def test_halving_measures_longer_what_is_close():
    rng = random.Random(3)
    true = [10 + 0.05 * i for i in range(64)]

    def noisy(entries, rounds):
        return [true[entry] + rng.gauss(0, 0.4) / rounds ** 0.5 for entry in entries]

    wins = sum(tune.halving(rng.sample(range(64), 64), noisy)[0][1] < 8 for _ in range(40))
    once = sum(min((true[entry] + rng.gauss(0, 0.4) / 2 ** 0.5, entry) for entry in range(64))[1] < 8 for _ in range(40))
    assert wins >= 38
    assert wins >= once


def test_the_score_weighs_the_regimes_alike():
    assert tune.score([(10.0,), (9.0,), (11.0,)]) == 1
    assert tune.score([(10.0, 300.0), (11.0, 200.0), (9.0, 400.0)]) == 1
    assert tune.score([(10.0, 200.0), (9.9, 210.0)]) == 0


def test_progress_is_for_terminals():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, wanted in ((io.StringIO(), False), (Terminal(), True)):
        progress = assembly.Progress(4, "checking", stream)
        for _ in range(4):
            progress.step()
        said = stream.getvalue()
        progress.close()
        assert ("4/4" in said and "#" * 30 in said) == wanted
        assert bool(said) == wanted


def field(monkeypatch, card, times, wrong=()):
    """The tuner on a card that keeps time, with launches as long as `times` says of a configuration; the operand set."""
    data = operands.Operands(None, None, Matrix())

    def launch(problem, data, config):
        work = card.kernel(times(config))

        def go():
            if config in refused:
                raise LaunchError("refused")
            work()
            data.d.written = data.d.written or config not in wrong
        return go

    refused = set()
    monkeypatch.setattr(operands, "make", lambda torch, problem, count: [data])
    monkeypatch.setattr(operands, "wrong", lambda torch, problem, data: None if data.d.written else "not written")
    monkeypatch.setattr(baselines, "our_launch", launch)
    monkeypatch.setattr(baselines, "cublas", lambda *a: [Entry("cublas", [card.kernel(20.0)])])
    monkeypatch.setattr(tune, "assembled", lambda found: {})
    monkeypatch.setattr(tune.driver, "current_device", lambda: 0)
    monkeypatch.setattr(tune.driver, "device", lambda ordinal: SimpleNamespace(name=DEVICE, l2_bytes=60 << 20, multiprocessors=132))
    monkeypatch.setattr(tune, "card_of", lambda ordinal: CARD)
    monkeypatch.setattr(bench_run, "reader", lambda torch: power.Reader())
    monkeypatch.setattr(regimes, "REGIMES", {name: dataclasses.replace(regime, pause=min(regime.pause, 1e-3), settle_s=0.0)
                                             for name, regime in regimes.REGIMES.items()})
    monkeypatch.setattr(regimes, "_settle", lambda torch, found, seconds: None)
    return refused


@pytest.mark.parametrize("text", ["4096", "16x4096x7168"])
def test_the_fastest_right_configuration_wins(monkeypatch, text):
    asked = described(problem(text))
    found = tune.configurations(asked, H200, 20)
    best, false, unrunnable = found[7], found[3], found[5]

    def times(config):
        if config in found and config not in (best, false):
            return 10.0 + found.index(config)                   # in the order of tiles that the choice gives it
        order = config.scheduler.order
        tile = dataclasses.replace(config, scheduler=dataclasses.replace(config.scheduler, order=best.scheduler.order))
        known = found.index(tile) if tile in found else 30
        across = isinstance(order, Swizzle) and order.raster == "along_n"
        return (8.0 if tile == best else 2.0 if tile == false else 10.0 + known) - (0.5 if across else 0.0)

    card, step = Card(), watch.Step()
    step.state["skip"] = {f"{problem(text)} {found[9]}": "it hangs"}
    refused = field(monkeypatch, card, times, wrong={false})
    refused.add(unrunnable)
    entry = tune.tune(card.torch, problem(text), ("burst", "sustained"), step=step, most=20, rounds=2)
    many = math.prod(best.tiles(asked.m, asked.n)) > H200.sms
    won = revive(entry["config"], asked)
    assert (won.tile, won.schedule, won.splits) == (best.tile, best.schedule, best.splits)
    assert ("along_n" if many else best.scheduler.order.raster) == won.scheduler.order.raster
    for measured in entry["measured"].values():
        assert measured["us"] == pytest.approx(7.5 if many else 8.0)
        assert measured["heuristic_us"] == pytest.approx(10.0)
        assert measured["cublas_us"] == pytest.approx(20.0)
    assert entry["wrong"] == 3


def test_what_a_table_has_stays_if_it_is_the_best(monkeypatch, tmp_path):
    """Also one that the model puts behind those that are tried, in the table that is added to."""
    one, path = problem("4096"), tmp_path / "table.json"
    asked = described(one)
    known = tune.configurations(asked, H200)[60]
    table = Table.of(CARD)
    table.put(kind(asked), (one.m, one.n, one.k), {"config": knobs(known, asked)})
    table.write(path)
    card = Card()
    field(monkeypatch, card, lambda config: 5.0 if config == known else 10.0)
    monkeypatch.setattr(tune.bench, "library", lambda: card.torch)
    said: list[str] = []
    tune.run([one], path, regime="burst", most=10, step=watch.Step(), say=said.append)
    entry, = Table.read(path).entries[kind(asked)].values()
    assert revive(entry["config"], asked) == known
    assert entry["measured"]["burst"]["us"] == pytest.approx(5.0)
    assert entry["measured"]["burst"]["heuristic_us"] == pytest.approx(10.0)


# The configurations.


@pytest.mark.thinned(9)
@pytest.mark.parametrize("text", SHAPES)
def test_knobs_give_the_configuration_back(text):
    asked = described(problem(text))
    found = tune.configurations(asked, H200)
    assert found[0] == heuristic(asked, H200)
    assert len(set(found)) == len(found) > 5
    assert any(isinstance(config.scheduler, StreamK) for config in found) == (text != "1x576x7168:f16")
    for config in (*found, *(way for first in found[:3] for way in tune.ways(first))):
        kept = knobs(config, asked)
        assert revive(json.loads(json.dumps(kept)), asked) == config
        assert kept.keys() <= {"tile", "stages", "schedule", "scheduler", "store", "loads", "swap_ab"}
    sums = Cooperative(sums=asked.sums())
    plain = DenseConfig(asked.operands, Tile(64, 64), schedule=sums, loads=asked.loads(Static()), fusion=asked.fusion)
    assert knobs(plain, asked) == {"tile": {"BM": 64, "BN": 64}}
    assert len(set(tune.orders(found[0]))) == 17


def test_the_ways_of_a_tile():
    """In clusters of eight and of one, with the next kernel after the loads, and with shorter rings, besides other loads and schedulers."""
    asked = described(problem("2048x2048x4096:bf16:nt"))
    config = DenseConfig(asked.operands, Tile(128, 96), scheduler=Static(cluster=ClusterShape(1, 2)), fusion=asked.fusion)
    found = tune.ways(config)
    assert len(set(found)) == len(found)
    assert config not in found
    shapes = ClusterShape(), ClusterShape(1, 2)
    later = [Static(cluster=shape, overlap=overlap) for shape in shapes for overlap in ("start", "loads", "end")]
    eight = Static(cluster=ClusterShape(2, 4)), Static(cluster=ClusterShape(4, 2))
    assert {way.scheduler for way in found} == {StreamK(cluster=ClusterShape(1, 2)), *later, *eight}
    assert {config.stages - way.stages for way in found if way.scheduler == config.scheduler} == {0, 1, 2}
    assert {way.loads.l2_fetch for way in found} == {128, 256}
    assert {way.stages for way in tune.ways(dataclasses.replace(config, stages=3))} == {2, config.stages}
    assert {way.stages for way in tune.ways(dataclasses.replace(config, stages=2))} == {config.stages}


def test_each_kind_of_problem_has_its_own_entries():
    kinds = [kind(described(problem(text))) for text in SHAPES]
    assert kinds == ["bf16/bf16/nt", "bf16/bf16/nt", "bf16/bf16/nt", "f16/f16/nt", "bf16/bf16/tn", "f16/f16/nn", "e4m3/bf16/nt",
                     "e4m3-block/bf16/nt"]


# The tables.


shapes = st.tuples(*[st.integers(1, 5000)] * 3)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(shapes, st.integers(8, 256), min_size=1, max_size=8))
def test_what_is_written_comes_back(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("tables")
    table = Table(DEVICE)
    for shape, BN in entries.items():
        table.put("bf16/bf16/nt", shape, {"config": {"tile": {"BN": BN}, "scheduler": "Dynamic"}, "measured": {"burst": {"us": 1.5}}})
    path = folder / "deep" / file_name(DEVICE)
    table.write(path)
    assert Table.read(path) == table
    assert list(path.parent.iterdir()) == [path]
    first = path.read_bytes()
    shuffled = Table(DEVICE, {"bf16/bf16/nt": dict(reversed(table.entries["bf16/bf16/nt"].items()))})
    shuffled.write(path)
    assert path.read_bytes() == first


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"schema": 0, "device": "x", "entries": {}}', '{"schema": 2, "entries": {}}',
    '{"schema": 2, "device": "x", "entries": {"bf16/bf16/nt": {"4096": {"config": {}}}}}',
    '{"schema": 2, "device": "x", "entries": {"bf16": {"1x1x1": {"config": {}}}}}',
    '{"schema": 2, "device": "x", "entries": {"bf16/bf16/nt": {"1x1x1": {"config": 3}}}}',
    '{"schema": 2, "device": "x", "entries": {"bf16/bf16/nt": {"1x1x1": {}}}}',
    *('{"schema": 2, "device": "NVIDIA H200", "entries": {"bf16/bf16/nt": {"EXTENTS": {"config": {}}}}}'.replace("EXTENTS", extents)
      for extents in ("0x1x1", "0x2x1x1", "9" * 400 + "x1x1", "9" * 5000 + "x1x1", "\u0661x1x1"))], ids=lambda text: text[:90])
def test_what_is_no_table_is_refused_and_never_in_the_way(text, user_tables):
    path = user_tables / file_name(DEVICE)
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=path.name):
        Table.read(path)
    assert lookup(CARD, "bf16/bf16/nt", 1, 1, 1) is None


def keep(user_tables: Path, **shapes: int) -> None:
    table = Table.of(CARD)
    for shape, BN in shapes.items():
        table.put("bf16/bf16/nt", tables.extents(shape.removeprefix("s")), {"config": {"tile": {"BN": BN}}})
    table.write(user_tables / file_name(DEVICE))
    tables.forget()


def test_a_shape_gets_its_entry_or_that_of_a_near_number_of_rows(user_tables):
    keep(user_tables, s64x4096x7168=64, s128x4096x7168=128, s4096x4096x7168=256)
    for m, BN in ((64, 64), (128, 128), (4096, 256), (60, 64), (89, 64), (100, 128), (181, 128), (3000, 256), (5700, 256)):
        assert lookup(CARD, "bf16/bf16/nt", m, 4096, 7168) == {"tile": {"BN": BN}}, m
    for m, n, k in ((44, 4096, 7168), (200, 4096, 7168), (64, 4096, 7160), (64, 4104, 7168)):
        assert lookup(CARD, "bf16/bf16/nt", m, n, k) is None
    assert lookup(CARD, "f16/f16/nt", 64, 4096, 7168) is None
    assert lookup(dataclasses.replace(CARD, name="another"), "bf16/bf16/nt", 64, 4096, 7168) is None


def test_the_users_entries_go_before_the_shipped_ones(user_tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    shipped = Table(DEVICE)
    for shape, BN in (((8, 8, 8), 64), ((16, 16, 16), 128)):
        shipped.put("bf16/bf16/nt", shape, {"config": {"tile": {"BN": BN}}})
    shipped.write(tmp_path / file_name(DEVICE))
    keep(user_tables, s8x8x8=256)
    assert lookup(CARD, "bf16/bf16/nt", 8, 8, 8) == {"tile": {"BN": 256}}
    assert lookup(CARD, "bf16/bf16/nt", 16, 16, 16) == {"tile": {"BN": 128}}


def test_a_tuned_configuration_is_taken_where_it_is_valid(user_tables):
    asked = described(Problem(64, 4096, 7168))
    keep(user_tables, s64x4096x7168=96)
    found = tuned(asked, CARD)
    assert found is not None
    assert found.tile.BN == 96
    keep(user_tables, s64x4096x7168=97)
    assert tuned(asked, CARD) is None
    assert chosen(Problem(64, 4096, 7168), CARD) == heuristic(asked, H200)


def shipped_entries():
    for path in sorted(tables.FOLDER.glob("*.json")):
        table = Table.read(path)
        for kind_, entries in table.entries.items():
            for shape, entry in entries.items():
                yield path, table.device, kind_, shape, entry


def test_shipped_tables_are_named_after_their_device():
    for path in tables.FOLDER.glob("*.json"):
        assert path.name == file_name(Table.read(path).device)
    assert file_name("NVIDIA H100 80GB HBM3") == "h100-80gb-hbm3.json"


def test_every_shipped_configuration_is_valid_for_its_problem():
    for _, device, kind_, shape, entry in shipped_entries():
        operands, out, layout = kind_.split("/")
        asked = described(problem(f"{shape}:{operands}:{layout}"))
        assert kind(asked) == kind_
        assert asked.out.__name__ == out
        config = revive(entry["config"], asked)
        assert knobs(config, asked) == entry["config"], (kind_, shape)
        assert tuned(asked, known(device)) == config


# The command.


@pytest.mark.ptxas
def test_prepare_assembles_without_a_gpu(capsys):
    assert main(["tune", "--shapes", "64x64x64", "--most", "2", "--prepare"]) == 0
    assert capsys.readouterr().out.startswith("2 configurations assembled")


@pytest.mark.parametrize(("words", "sentence"), [
    (("-m", "3"), "give -m, -n and -k, or --shapes"), (("-m", "3", "--shapes", "512"), "not two of them"),
    (("--shapes", "nosuch", "--prepare"), "is not a shape"), (("--shapes", "64x64x64:f16:xx"), "no type of operands and no layout"),
    (("--shapes", "64", "--batch", "3"), "--batch is of -m, -n and -k"), (("--model", "gpt-2", "--batch", "3"), "--batch is of -m"),
    (("-m", "3", "-n", "3", "-k", "3", "--card", "h20"), "--card is of --prepare")])
def test_what_cannot_be_tuned_says_so(words, sentence, capsys):
    assert main(["tune", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.gpu
def test_a_problem_is_tuned_and_looked_up(user_tables, capfd):
    """The lines are a worker's, a process of its own: `capfd` sees them."""
    pytest.importorskip("torch")
    path = user_tables / "table.json"
    assert main(["tune", "--shapes", "128x256x512", "--most", "6", "--output", str(path)]) == 0
    (entry,) = Table.read(path).entries["bf16/bf16/nt"].values()
    assert entry["of"] >= 6
    assert entry["wrong"] == 0
    assert entry["measured"]["burst"]["us"] <= 1.1 * entry["measured"]["burst"]["heuristic_us"]
    assert "cublas" in capfd.readouterr().out
