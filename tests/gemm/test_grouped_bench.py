"""How grouped products are measured: cases, baselines, variants and tables."""

from __future__ import annotations

import ast
import copy
import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.gemm.config.parts import Tile
from ptxkit.gemm.tools.bench import grouped as bench
from ptxkit.gemm.tools.bench import grouped_baselines
from ptxkit.gemm.tools.bench.grouped_cases import MOST_BYTES, Case, case, parse, skewed
from ptxkit.gemm.tools.bench.shapes import ShapeError
from ptxkit.gemm.tools.grouped_report import tables
from ptxkit.gemm.tools.problems import problem_of
from ptxkit.measure import files, power
from tests.gemm.groups import made, results
from tests.gemm.virtual_card import Card, Matrix

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(("words", "regimes"), [([], ("burst",)), (["--regime", "both"], ("burst", "sustained"))])
def test_bench_grouped_measures_every_case(monkeypatch, capsys, tmp_path, words, regimes):
    from ptxkit.gemm.__main__ import main

    seen: dict[str, Any] = {}

    def compare(cases: Any, **how: Any) -> Any:
        seen.update(how, cases=cases)
        return {"rows": [{"case": "a"}, {"case": "b", "wrong": "a sentence"}] if words else [], "summary": {"bf16": {}}}

    monkeypatch.setattr(bench, "compare", compare)
    assert main(["bench", "--grouped", *words, "--json", str(tmp_path / "results.json")]) == int(bool(words))
    assert seen["regimes"] == regimes
    assert len(seen["cases"]) == 72
    assert json.loads(capsys.readouterr().out) == {"bf16": {}}


class Tensor(list[int]):
    """As much of a tensor as a baseline's check needs."""

    def fill_(self, value: float) -> None:
        self[:] = [0] * len(self)

    def __getitem__(self, rows: Any) -> Any:
        return Tensor(list.__getitem__(self, row) for row in rows) if isinstance(rows, list) else list.__getitem__(self, rows)


def first_rows(torch: Any, case: Case, data: Any) -> Any:
    from ptxkit.gemm.tools.bench.grouped_baselines import Peer

    return Peer(lambda: Tensor([1, 9, 2]), [0, 2])


def in_place(torch: Any, case: Case, data: Any) -> Any:
    return lambda: data.out.__setitem__(slice(None), [1, 2])


def silent(torch: Any, case: Case, data: Any) -> Any:
    return lambda: None


def test_what_a_baseline_computes_is_checked_before_it_is_timed(monkeypatch):
    from ptxkit.gemm.tools.bench.baselines import BaselineError, NotImplementedHere

    monkeypatch.setattr(grouped_baselines, "wrong", lambda torch, case, data, y: None if list(y) == [1, 2] else f"{list(y)}")
    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
    sets: Any = [SimpleNamespace(out=Tensor([7, 7])) for _ in range(3)]
    one = Case(1, 2, 8, 16)
    made = grouped_baselines.baselines(["torch", f"{__name__}:first_rows", f"{__name__}:in_place", f"{__name__}:silent"])
    for name, function in list(made.items())[1:3]:
        assert len(grouped_baselines.entry(torch, name, function, one, sets).launches) == 3
    with pytest.raises(NotImplementedHere, match=r"wrong: \[0, 0\]"):
        grouped_baselines.entry(torch, "silent", made[f"{__name__}:silent"], one, sets)
    for wrong in ("cutlass", "no.such.module:function", f"{__name__}:nothing"):
        with pytest.raises(BaselineError, match="--against"):
            grouped_baselines.baselines([wrong])


@pytest.fixture
def card(monkeypatch):
    """A card that keeps time. Products with another configuration than the heuristic's take longer, one of them is wrong."""
    card = Card()
    slow = itertools.count(11)

    def launch(data: Any, case: Case, config: Any = None) -> Any:
        work = card.kernel(10.0 if config is None else float(next(slow)))

        def go() -> None:
            work()
            data.out.written = config is None or config.tile.BM != 64
        return go

    monkeypatch.setattr(bench, "library", lambda: card.torch)
    monkeypatch.setattr(bench, "device", lambda torch: {"name": "Card"})
    monkeypatch.setattr(bench, "reader", lambda torch: power.Reader())
    monkeypatch.setattr(bench, "ceilings", lambda torch, sensors: {"wgmma bf16 burst": {"value": 800.0, "unit": "TFLOP/s"},
                                                                   "read 8 GiB": {"value": 4000.0, "unit": "GB/s"}})
    monkeypatch.setattr(bench, "assemble", lambda configs, say: None)
    monkeypatch.setattr(bench, "sets_of", lambda torch, case, cold: [SimpleNamespace(out=Matrix()) for _ in range(2)])
    monkeypatch.setattr(bench, "launch", launch)
    for module in (bench, grouped_baselines):
        monkeypatch.setattr(module, "wrong", lambda torch, case, data, y=None: None if data.out.written else "not written")
    return card


def test_a_comparison_measures_who_is_right_and_names_who_is_not(monkeypatch, card, tmp_path):
    def peer(torch: Any, case: Case, data: Any) -> Any:
        work = card.kernel(15.0)

        def go() -> None:
            work()
            data.out.written = True
        return go

    def broken(torch: Any, case: Case, data: Any) -> Any:
        raise TypeError("no such product")

    monkeypatch.setattr(bench, "baselines", lambda names: {"torch": peer, "broken": broken, "lazy": silent})
    path, said = tmp_path / "results.json", []
    cases = [Case(8, 64, 4096, 7168), Case(8, 64, 4096, 7168, skewed=True)]
    results = bench.compare(cases, regimes=("burst", "sustained"), rounds=2, variants=("dynamic", "tile.BM=64"), path=path, say=said.append)
    assert list(results) == ["date", "command", "device", "rows", "ceilings", "summary"]
    assert json.loads(path.read_text()) == files.rounded(results)
    assert said[0] == "ceilings: wgmma bf16 burst 800 TFLOP/s, read 8 GiB 4000 GB/s"
    assert len(said) == 1 + len(results["rows"]) == 3                             # sustained is for prefill alone
    for found, case_ in zip(results["rows"], cases, strict=True):
        ours = found["contestants"]["ours"]
        assert (found["case"], found["sets"], ours["us"]) == (str(case_), 2, pytest.approx(10.0))
        assert list(ours) == ["us", "p10", "p90", "tflops", "gbs", "of_wgmma", "of_read", "config"]
        assert ours["of_read"] == pytest.approx(1e-3 * case_.bytes / 10.0 / 4000.0)
        assert found["ratios"]["torch"]["ratio"] == pytest.approx(1.5)
        assert found["left_out"] == {"broken": "TypeError: no such product", "lazy": "wrong: not written",
                                     "ours, tile.BM=64": "wrong: not written"}
    assert results["summary"]["bf16"]["skewed over balanced"]["most"] == pytest.approx(1.0)


def test_a_sweep_has_the_fastest_candidate_first(card, tmp_path):
    path, said = tmp_path / "results.json", []
    results = bench.sweep([Case(8, 4096, 4096, 4096)] * 2, path=path, say=said.append)
    found, = results["rows"]
    assert json.loads(path.read_text()) == files.rounded(results)
    times = [one["us"] for one in found["configs"]]
    assert times == sorted(times)
    assert set(found["faulty"].values()) == {"wrong: not written"}
    assert f"{len(times)} tried, {len(found['faulty'])} faulty" in said[1]
    assert said[1].count("faulty: ") == 3
    assert bench.sweep([Case(8, 4096, 4096, 4096)], seconds=0.0, say=said.append)["cut"] == "8x4096x4096x4096:bf16"


def test_tiles_by_which_the_scales_of_hpc_ops_are_laid_out():
    from ptxkit.gemm.tools.bench.grouped_baselines import hpc_ops_tile

    tokens = (1, 8, 9, 16, 32, 33, 64, 65, 96, 97, 128, 129, 144, 145, 8192)
    assert [hpc_ops_tile(each) for each in tokens] == [8, 8, 16, 16, 32, 48, 64, 48, 48, 32, 32, 48, 48, 64, 64]


def test_results_as_a_table(capsys, tmp_path):
    from ptxkit.gemm.__main__ import main

    def measured(case_: Case, us: float, **more: Any) -> dict[str, Any]:
        ours = {"us": us, "p10": us - 1, "p90": us + 1, "tflops": 1234.5, "gbs": 4321.0, "of_wgmma": 0.75, "of_read": 0.925}
        words = {name: getattr(case_, name) for name in ("groups", "tokens", "n", "k", "kind", "skewed", "gated")}
        return {"case": str(case_), **words, "regime": "burst", "contestants": {"ours": ours, "ours, dynamic": ours}, "ratios": {}, **more}

    few, many = Case(8, 16, 64, 128), Case(4, 512, 64, 128, "fp8")
    rows = [measured(few, 10.0), measured(replace(few, skewed=True), 11.5), measured(many, 50.0), {"case": "x", "wrong": "a sentence"}]
    rows[2]["contestants"]["torch"], rows[2]["ratios"]["torch"] = {"us": 75.0}, {"ratio": 1.5}
    (tmp_path / "results.json").write_text(json.dumps({"rows": rows, "ceilings": {"read": {"value": 4700.0, "unit": "GB/s"}}}))
    assert main(["grouped", "--table", str(tmp_path / "results.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Ceilings of the run: read 4,700 GB/s."
    assert "| 8x16x64x128 | bf16 | 10 (9 - 11) | 4,321 | 0.925 | 11.5 | 1.15 |" in lines
    assert "| 4x512x64x128 | fp8 | 50 (49 - 51) | 1,234 | 0.750 |  |  | 75 (1.50) |" in lines
    assert lines[-1] == "x: a sentence"


def test_a_variant_is_a_name_or_settings():
    from ptxkit.gemm.tools.bench.baselines import BaselineError
    from ptxkit.gemm.tools.bench.grouped import names_of, variants_of

    config, problem = made({"tile": Tile(128, 256)}), problem_of(Case(8, 512, 4096, 7168))
    several = "tile.BN=128+scheduler=DynamicGroups(longest_first=True)+scheduler.order.size=1"
    names = names_of(f"dynamic,ragged,tensormap,{several},tile.BM=64,tile.BN=100,schedule=Pingpong,tile.BM=64,shared")
    found = variants_of(config, names, problem)
    assert list(found) == ["dynamic", "tensormap", several, "tile.BM=64"]       # nothing, not to be had, not to be had, again, no scales
    changed = found[several]
    assert (changed.tile.BN, changed.scheduler.order.size, changed.dynamic, changed.scheduler.longest_first) == (128, 1, True, True)
    assert changed.stages > config.stages
    assert found["tile.BM=64"].warpgroups == 1
    for wrong in ("fastest", "tile.BN", "tile.X=16", "tile.BN=128+", "schedule=Alone"):
        with pytest.raises(BaselineError, match="settings such as"):
            variants_of(config, [wrong], problem)


def test_every_tile_that_is_chosen_from_is_a_variant():
    from ptxkit.gemm.heuristic.grouped import heuristic, untaught
    from ptxkit.gemm.tools.bench.grouped import variants_of

    columns = ("256x192 swap AB", "192x192 swap AB", "128x192 swap AB")
    for extent, names in ((Case(8, 512, 4096, 7168, "fp8"), {"128x256", "128x192 pingpong", "128x128 pingpong", *columns}),
                          (Case(8, 512, 4096, 7168, "fp8-block"), {"256x128", "128x128", "192x128 in pairs", "128x192", "128x256"})):
        problem = problem_of(extent)
        config = untaught(problem)
        found = variants_of(config, ["dynamic", "tiles"], problem)
        assert names <= found.keys() <= names | {"dynamic"}
        assert len({*found.values()}) == len(found)
        assert config.second is not None
        assert config.second.alone in found.values()
    problem = problem_of(Case(4, 8192, 4096, 7168, "bf16"))
    alone = heuristic(problem)
    assert alone.second is None
    assert alone not in variants_of(alone, ["tiles"], problem).values()
    gated = problem_of(Case(8, 512, 4096, 7168, "bf16", gated=True))
    assert columns[1] not in variants_of(heuristic(gated), ["tiles"], gated)        # one m64 block a warpgroup, none of both projections


@given(st.integers(1, 200), st.integers(0, 5000))
def test_skewed_lengths_have_the_total(groups, total):
    found = skewed(groups, total)
    assert len(found) == groups
    assert sum(found) == total
    assert min(found) >= 0


def test_a_case_is_read_as_it_is_written():
    for one in (Case(8, 64, 4096, 7168), Case(4, 1, 8, 16, "fp8-block", True), Case(4, 1, 8, 16, "fp8", gated=True),
                Case(4, 1, 256, 16, "fp8-block", True, True, quantised=True)):
        assert case(str(one)) == one
    assert replace(Case(8, 64, 4096, 7168), skewed=True).rows == sum(Case(8, 64, 4096, 7168, skewed=True).lengths)


@pytest.mark.parametrize("name", ["2026-11-24-h200-grouped.json", "2026-11-23-h200-grouped-sustained.json"])
def test_the_tables_of_the_page_are_what_was_recorded(name):
    """Line by line, as `grouped --table` writes it."""
    recorded = copy.deepcopy(results(name))
    written = [line for line in tables(recorded).splitlines() if line.startswith("|")]
    page = (Path(__file__).parents[2] / "docs/grouped.md").read_text().splitlines()
    assert len(written) > 10
    assert [line for line in written if line not in page] == []
    recorded["rows"][0]["contestants"]["ours"]["us"] += 1
    assert [line for line in tables(recorded).splitlines() if line.startswith("|") and line not in page]


def test_random_cases_are_drawn_as_the_seed_says():
    """Within their limits, the same for the same seed, and each readable from its own name."""
    drawn = parse("random:5:60,random:5:40:aligned,random:6:30", ("bf16", "fp8-block"))
    assert drawn == parse("random:5:60,random:5:40:aligned,random:6:30", ("bf16", "fp8-block"))
    assert len(set(drawn)) == 130
    assert {one.kind for one in drawn} == {"bf16", "fp8-block"}
    for one in drawn:
        assert case(str(one)) == one
        assert sum(one.lengths) == one.rows
        assert min(one.lengths) >= 0
        assert one.n % 8 == one.k % (8 if one.kind == "bf16" else 16) == 0
        assert 4 <= one.groups <= 256
        assert one.bytes <= MOST_BYTES
    assert all(one.n % 64 == one.k % 64 == 0 for one in drawn[60:100])
    assert any(0 in one.lengths for one in drawn)
    assert any(len(set(one.lengths)) == 1 for one in drawn)
    assert any(2 * max(one.lengths) >= one.rows > 8 * one.tokens for one in drawn)      # half of all rows in one group
    with pytest.raises(ShapeError, match="no group product"):
        parse("random:5")
    with pytest.raises(ShapeError, match="not 'any'"):
        parse("random:5:3:any")
    for wrong in ("8x8x64x64:fp9", "8x8x64x64:bf16:nn", "0x8x64x64", "8x8x64x64:bf16:fp8", "8x8x64"):
        with pytest.raises(ShapeError, match=f"'{wrong}' is no group product"):
            parse(wrong)
    with pytest.raises(ShapeError, match="no group product in it"):
        parse(" , ")


def test_the_preset_of_models_has_every_expert_once():
    found = parse("models")
    assert len(found) == len(set(found)) == len({str(one) for one in found}) > 60
    assert {one.k for one in found} >= {192, 768, 1536, 2880, 7168}
    assert all(problem_of(one).scales_in_shared for one in found if one.kind == "fp8-block")
    assert parse("models", ("bf16",)) == tuple(one for one in found if one.kind == "bf16")


def test_the_summary_tells_each_contestants_ratios():
    def row(ratio: float, name: str) -> dict[str, Any]:
        return {"case": name, "regime": "burst", "kind": "bf16", "tokens": 8, "contestants": {"ours": {"us": 1.0}},
                "ratios": {"torch": {"ratio": ratio}, "best": {"ratio": ratio / 2}}}

    found = bench.summary([row(2.0, "a"), row(0.5, "b")])["bf16"]
    assert found["ratio to torch"] == {"shapes": 2, "geometric_mean": pytest.approx(1.0), "percentile_5": pytest.approx(0.575),
                                       "least": 0.5, "least_shape": "b", "below_0.95": 1}
    assert found["ratio to best"]["below_0.95"] == 1
    assert found["of torch._grouped_mm"]["least"] == 0.5


def test_the_worst_rows_are_measured_again(card, tmp_path):
    """The later measurement counts, and the earlier one is kept beside it."""
    def peer(torch: Any, case: Case, data: Any) -> Any:
        work = card.kernel(15.0 if case.groups == 8 else 5.0)

        def go() -> None:
            work()
            data.out.written = True
        return go

    made = {"peer": peer}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bench, "baselines", lambda names: made)
        found = bench.compare([Case(8, 16, 64, 64), Case(4, 16, 64, 64)], rounds=3, against=("peer",), path=tmp_path / "f.json", again=1,
                              say=lambda text: None)
    assert ["before" in row for row in found["rows"]] == [False, True]
    assert found["rows"][1]["ratios"]["best"]["ratio"] == pytest.approx(0.5, rel=0.2)
    assert found["summary"]["bf16"]["ratio to peer"]["least_shape"] == str(Case(4, 16, 64, 64))


def test_tools_choose_for_the_card_that_they_run_on():
    """Without a card a heuristic chooses for an H200."""
    least = {"heuristic": 2, "candidates": 2, "clocks": 3, "tiles_of": 2, "each_tile": 2, "tuned": 2}
    folder = Path(bench.__file__).parents[1]
    for path in (*folder.rglob("*.py"), *(folder.parent / "launch").glob("*.py"), *(folder.parents[1] / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in least and path.name != "ptr_array.py":
                given = len(node.args) + sum(one.arg == "card" for one in node.keywords)
                assert given >= least[node.func.id], f"{path.name}:{node.lineno}"
