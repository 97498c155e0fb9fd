"""Grouped products on the card, compared with baselines and with the ceilings of the same run; and a sweep over configurations."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from ptxkit.cards import H200, Card
from ptxkit.dsl.values import FieldError, changed
from ptxkit.errors import PtxkitError
from ptxkit.layout import Major
from ptxkit.measure.contest import prepared, sampled, times_of
from ptxkit.measure.figures import geometric_mean, row_ratios
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES, Captured, Entry, Regime, best_of, capture, measure
from ptxkit.measure.timer import TorchTimer
from ptxkit.measure.watch import alive

from ...config.grouped import GroupedConfig
from ...config.grouped_parts import GroupEnds, StagedGroups
from ...config.parts import ConfigError, Cooperative
from ...heuristic.group_tile import in_this_order
from ...heuristic.grouped import heuristic
from ...launch.grouped import group_gemm
from ...problem.grouped import GroupProblem
from ...scheduler.group_table import Layout
from ...scheduler.grouped import ORDERS, Order
from ..assembly import assemble
from ..grouped_settings import SettingError, read, with_settings
from ..options import card as card_of
from ..problems import problem_of
from .baselines import BaselineError, NotImplementedHere, wgmma
from .figures import whole, worst
from .grouped_baselines import Peer, baselines, entry, in_blocks
from .grouped_candidates import begun_candidates, candidates, each_tile, taught_candidates
from .grouped_cases import DECODE, PREFILL, Case
from .grouped_data import Data, sets_of, wrong
from .operands import fault
from .report import invocation
from .rows import contestants, each, header, rates
from .run import ceilings, device, library, reader, told
from .shapes import Problem

Variant = Callable[[GroupedConfig, GroupProblem, Card], GroupedConfig]
"""Another configuration of a problem on a card. Raises where there is none."""
TILES = "tiles"
"""Every tile that the heuristic chooses from where each CTA has a whole K."""
OVERLAPS = "overlaps"
"""Every begin of the next kernel, of the tiles that are chosen from first."""
SWEPT = {TILES: taught_candidates, OVERLAPS: begun_candidates}
"""What a sweep has instead of every candidate."""


def _in_order(order: Order, config: GroupedConfig, problem: GroupProblem, card: Card) -> GroupedConfig:
    return replace(config.alone, scheduler=in_this_order(config.scheduler, order))


def _ends(ends: GroupEnds, config: GroupedConfig, problem: GroupProblem, card: Card) -> GroupedConfig:
    """Staged stores that end with the group in this way."""
    if not isinstance(config.store, StagedGroups):
        raise SettingError("the configuration stores directly")
    return replace(config.alone, store=replace(config.store, ends=ends))


def _in_shared(config: GroupedConfig, problem: GroupProblem, card: Card) -> GroupedConfig:
    """Block scales through shared memory."""
    if not problem.scales_in_shared:
        raise SettingError("there are no block scales that can come through shared memory")
    return with_settings(config, {"schedule": Cooperative(sums=problem.sums())})


def _overlap(config: GroupedConfig, problem: GroupProblem, card: Card) -> GroupedConfig:
    """The same with promotion that overlaps, in 128 x 128."""
    if not problem.scales_in_shared:
        raise SettingError("there are no block scales that can come through shared memory")
    return with_settings(config, {"schedule": Cooperative(sums=problem.sums("overlap")), "tile.BM": 128, "tile.BN": 128,
                                  "scheduler.cluster.m": 1})


def _invariant(config: GroupedConfig, problem: GroupProblem, card: Card) -> GroupedConfig:
    asked = copy.copy(problem)
    asked.options = replace(problem.options, batch_invariant=True)
    return heuristic(asked, card)


VARIANTS: dict[str, Variant] = {
    **{order: functools.partial(_in_order, order) for order in ORDERS},
    **{ends: functools.partial(_ends, ends) for ends in get_args(GroupEnds)}, "shared": _in_shared, "overlap": _overlap,
    "invariant": _invariant}
"""Ways to deal out tiles; to end stores with the group; to load block scales; and the choice with `batch_invariant=True`."""


def names_of(text: str) -> tuple[str, ...]:
    """The variants that a command line says with commas. Commas in parentheses belong to a value."""
    found, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return tuple(word for word in found if word)


def launch(data: Data, case: Case, config: GroupedConfig | None = None) -> Callable[[], Any]:
    """One product by this package's public entry."""
    return functools.partial(group_gemm, data.x, data.w, data.cu, x_scale=data.x_scale, w_scale=data.w_scale, out=data.out,
                             out_scale=data.out_scale, activation="silu_and_mul" if case.gated else None, config=config)


def shares(case: Case, us: float, limits: Mapping[str, Any], regime: str) -> dict[str, float]:
    """The rates as shares of the ceilings of the same run."""
    if not limits:
        return {}
    found = rates(case, us)
    return {"of_wgmma": found["tflops"] / limits[f"wgmma {case.dtype} {regime}"]["value"],
            "of_read": found["gbs"] / limits["read 8 GiB"]["value"]}


def variant_of(name: str) -> Variant:
    """The variant: a name of `VARIANTS`, or settings such as `tile.BN=128+scheduler=DynamicGroups`."""
    if name in VARIANTS:
        return VARIANTS[name]
    settings: dict[str, str] = {}
    try:
        settings |= read(name.split("+"))
        for path, value in settings.items():
            changed(GroupedConfig(), path, value)
    except ConfigError:
        pass                                                    # a value that the default configuration cannot have
    except (SettingError, FieldError) as error:
        there = ", ".join((*VARIANTS, TILES))
        raise BaselineError(f"--variants {name}: there are {there}, and settings such as tile.BN=128+scheduler=DynamicGroups; {error}") \
            from None
    return lambda config, problem, card: with_settings(config, settings)


def variants_of(config: GroupedConfig, names: Sequence[str], problem: GroupProblem, card: Card = H200) -> dict[str, GroupedConfig]:
    """The same configuration with changes, without those that it cannot have and those that change nothing; and for TILES every tile that
    the heuristic chooses from."""
    found = {name: tile for name, tile in each_tile(problem, card).items() if tile != config} if TILES in names else {}
    for name in (name for name in names if name != TILES):
        variant = variant_of(name)
        try:
            other = variant(config, problem, card)
        except (ConfigError, SettingError):
            continue
        if other not in (config, *found.values()):
            found[name] = other
    return found


def row(torch: Any, case: Case, regime: Regime, limits: Mapping[str, Any], sensors: Any, rounds: int, seed: int,
        names: Sequence[str] = (), against: Sequence[str] = ("torch",)) -> dict[str, Any]:
    """One measurement: ours, its variants and the baselines."""
    sets = sets_of(torch, case, regime.cold)
    found: dict[str, Any] = {"case": str(case), **asdict(case), "regime": regime.name, "sets": len(sets), "contestants": {}}
    sentence = _fault(torch, case, sets[0])
    if sentence:
        found["wrong"] = sentence
        return found
    seen, card = problem_of(case), card_of(None)
    config = heuristic(seen, card)
    ours = Entry("ours", [launch(data, case) for data in sets], detail={"config": str(config)})
    others: dict[str, Callable[[], Entry]] = {
        name: functools.partial(entry, torch, name, peer, case, sets) for name, peer in baselines(against).items()}
    for name, variant in variants_of(config, names, seen, card).items():
        others[f"ours, {name}"] = functools.partial(_variant, torch, f"ours, {name}", case, sets, variant)
    timer = TorchTimer(torch)
    own = capture(timer, ours, regime)
    graphs, left_out = prepared(others, lambda made: capture(timer, made(), regime), lambda: alive(torch))
    if left_out:
        found["left_out"] = left_out
    graphs.insert(0, own)
    if limits and case.tokens >= PREFILL:
        graphs.append(best_of(timer, wgmma(torch, Problem(case.rows, case.n, case.k, case.dtype), ()), regime))
    timed, sampler = sampled(timer, graphs, regime, rounds, sensors, seed)
    found |= sampler.within()
    for one in timed:
        if one.captured.entry.ceiling:                          # of the same rounds: the card is as warm as it was for the others
            limits = {**limits, f"wgmma {case.dtype} {regime.name}": {"value": rates(case, one.median)["tflops"]}}
    found["contestants"] = contestants(case, timed, lambda one: {
        **shares(case, one.median, limits, regime.name), **one.captured.entry.detail})
    names_of_own = [one.captured.entry.name for one in timed if one.captured.entry.ceiling or one.captured.entry.name.startswith("ours")]
    found["ratios"] = row_ratios(times_of(timed), "ours", names_of_own)
    return found


def _fault(torch: Any, case: Case, data: Data) -> str | None:
    """A sentence when our product is wrong."""
    return fault(torch, data.out, launch(data, case), lambda returned: wrong(torch, case, data))


def _variant(torch: Any, name: str, case: Case, sets: Sequence[Data], config: GroupedConfig) -> Entry:
    made = entry(torch, name, lambda _, case, data: launch(data, case, config), case, sets)
    return replace(made, detail={"config": str(config)})


def line(found: dict[str, Any]) -> str:
    """A row as text."""
    text = f"{found['regime']:<9} {found['case']:<38}"
    if "wrong" in found:
        return f"{text} WRONG: {found['wrong']}"
    for name, seen in found["contestants"].items():
        text += f" {name} {seen['us']:.1f} us {seen['tflops']:.0f} TF {seen['gbs']:.0f} GB/s"
        if "of_wgmma" in seen:
            text += f" ({seen['of_wgmma']:.2f} of wgmma, {seen['of_read']:.2f} of read)"
        text += f" x {found['ratios'][name]['ratio']:.2f}" if name in found["ratios"] else ""
    return f"{text}  [{found['contestants']['ours']['config']}]"


def compare(cases: Sequence[Case], *, regimes: Sequence[str] = ("burst",), rounds: int | None = None, with_ceilings: bool = True,
            variants: Sequence[str] = (), against: Sequence[str] = ("torch",), path: Path | None = None, again: int = 0,
            seconds: float | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Every case in every regime; sustained is for prefill alone. The results are written to `path` after each.

    No case is begun after `seconds`. The `again` worst rows are measured once more at the end, and the later measurement counts.
    """
    baselines(against)                                         # a name that is not there is an error before anything runs
    torch = library()
    results = header(command=invocation(), device=device(torch))
    sensors = reader(torch)
    limits = results["ceilings"] = ceilings(torch, sensors) if with_ceilings else {}
    results["summary"] = {}
    say(told(limits))
    wanted: list[GroupedConfig] = []
    card = card_of(None)
    for one in map(problem_of, cases):
        chosen = heuristic(one, card)
        wanted += [chosen, *variants_of(chosen, variants, one, card).values()]
    assemble(wanted, say)
    # one regime after another: a sustained case leaves the card too warm for a burst
    jobs = [(REGIMES[name], number, case) for name in regimes for number, case in enumerate(cases)
            if name != "sustained" or case.tokens >= PREFILL]

    def measured(done: int, job: tuple[Regime, int, Case]) -> dict[str, Any]:
        regime, number, case = job
        return row(torch, case, regime, limits, sensors, rounds or regime.rounds, number, variants, against)

    begin = time.perf_counter()
    each(torch, results, jobs, measured, line, path=path, say=say, summary=summary,
         cut=lambda done, job: f"{done} of {len(jobs)} cases" if seconds is not None and time.perf_counter() - begin > seconds else None)
    for place in worst(results["rows"], again):
        before = results["rows"][place]
        results["rows"][place] = {**measured(place, jobs[place]), "before": before["ratios"]}
        say(f"again: {line(results['rows'][place])}")
        torch.cuda.empty_cache()
    results["summary"] = summary(results["rows"])
    if path is not None:
        write_json(path, results)
    return results


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind: the least share of the ceiling that counts, what skew costs, and the ratios to torch and to each contestant (`whole`)."""
    found: dict[str, Any] = {}
    right = [row for row in rows if "wrong" not in row]
    times = {(row["case"], row["regime"]): row["contestants"]["ours"]["us"] for row in right}
    for kind in dict.fromkeys(row["kind"] for row in right):
        mine = [row for row in right if row["kind"] == kind and row["regime"] == "burst"]
        entry: dict[str, Any] = {}
        for what, share, chosen in (("decode of read", "of_read", [row for row in mine if row["tokens"] <= DECODE]),
                                    ("prefill of wgmma", "of_wgmma", [row for row in mine if row["tokens"] >= PREFILL])):
            values = [row["contestants"]["ours"][share] for row in chosen if share in row["contestants"]["ours"]]
            if values:
                entry[what] = {"least": min(values), "mean": geometric_mean(values)}
        faster = [seen["ratio"] for row in mine for name, seen in row["ratios"].items() if name == "torch"]
        if faster:
            entry["of torch._grouped_mm"] = {"least": min(faster), "mean": geometric_mean(faster)}
        for name in dict.fromkeys(name for row in mine for name in row["ratios"]):
            of = [row for row in mine if name in row["ratios"]]
            entry[f"ratio to {name}"] = whole([row["ratios"][name]["ratio"] for row in of], [row["case"] for row in of])
        skews = [us / times[case.replace(":skewed", ""), regime] for (case, regime), us in times.items()
                 if ":skewed" in case and f":{kind}:" in case and (case.replace(":skewed", ""), regime) in times]
        if skews:
            entry["skewed over balanced"] = {"most": max(skews), "mean": geometric_mean(skews)}
        found[kind] = entry
    return found


def sweep(cases: Sequence[Case], *, every: str = "", layout: Layout = "cu_seqlens", w_major: Major = "k", seconds: float = 120.0,
          path: Path | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Every candidate of every case in bursts, three rounds each: the times of all, the fastest first. `every`: what instead, of cases that
    trees learn from, a key of SWEPT. `layout`: "cu_seqlens" or "contiguous"."""
    torch = library()
    begin = time.perf_counter()
    results = header(device=device(torch))
    candidates_of = SWEPT.get(every, candidates)
    card = card_of(None)
    by_case = {case: configs for case in cases if (configs := list(candidates_of(problem_of(case, layout, w_major), card)))}
    assemble([config for configs in by_case.values() for config in configs], say)
    say(f"assembled {len({c for configs in by_case.values() for c in configs})} configurations in {time.perf_counter() - begin:.0f} s")
    return each(torch, results, list(by_case), lambda done, case: _swept(torch, case, by_case[case], layout, w_major), _swept_line,
                path=path, say=say, cut=lambda done, case: str(case) if time.perf_counter() - begin > seconds else None)


def _swept(torch: Any, case: Case, configs: Sequence[GroupedConfig], layout: Layout, w_major: Major) -> dict[str, Any]:
    """The times of all candidates of a case."""
    regime = Regime("burst", 0.6, True, 1.0, 3)
    sets = sets_of(torch, case, True)
    if w_major == "mn":
        sets = [replace(data, w=data.w.mT.contiguous().mT) for data in sets]
    graphs: list[Captured] = []
    faulty: dict[str, str] = {}

    def make(config: GroupedConfig, torch: Any, case: Case, data: Data) -> Peer:
        return in_blocks(torch, case, data, config) if layout == "contiguous" else Peer(launch(data, case, config))

    for config in configs:
        try:
            graphs.append(capture(TorchTimer(torch), entry(torch, str(config), functools.partial(make, config), case, sets), regime))
        except (PtxkitError, NotImplementedHere) as error:
            faulty[str(config)] = str(error).splitlines()[0]
    timed = sorted(measure(TorchTimer(torch), graphs, regime, regime.rounds), key=lambda one: one.median)
    return {"case": str(case), **asdict(case), "layout": layout, "w_major": w_major, "faulty": faulty, "heuristic": str(configs[0]),
            "configs": [{"config": one.captured.entry.name, "us": one.median, **rates(case, one.median)} for one in timed]}


def _swept_line(found: Mapping[str, Any]) -> str:
    """The fastest candidate as text, and why some are faulty."""
    tried, faulty = found["configs"], found["faulty"]
    best, chosen = tried[0], next(one for one in tried if one["config"] == found["heuristic"])
    lines = [f"{found['case']:<38} {best['us']:8.1f} us {best['tflops']:6.0f} TF {best['gbs']:6.0f} GB/s  "
             f"[{best['config']}]; the heuristic's {chosen['us']:.1f} us; {len(tried)} tried, {len(faulty)} faulty"]
    return "\n".join([*lines, *(f"    faulty: {which}: {why}" for which, why in list(faulty.items())[:3])])


__all__ = ["compare", "line", "names_of", "sweep", "variants_of"]
