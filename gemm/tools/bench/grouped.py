"""Grouped products on the card, compared with baselines and with the ceilings of the same run; and a sweep over configurations."""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from ptxkit.dsl.values import FieldError, changed
from ptxkit.errors import PtxkitError
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

from ...config.grouped import GroupedConfig
from ...config.grouped_parts import GroupEnds, StagedGroups
from ...config.parts import ConfigError, Cooperative
from ...heuristic.group_tile import in_this_order
from ...heuristic.grouped import heuristic
from ...launch.grouped import group_gemm
from ...problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ...scheduler.grouped import ORDERS, Order
from ..grouped_settings import SettingError, read, with_settings
from .baselines import BaselineError, Entry, NotImplementedHere, wgmma
from .figures import geometric_mean, paired, spread
from .grouped_baselines import baselines, entry
from .grouped_candidates import candidates, each_tile
from .grouped_cases import DECODE, PREFILL, Case
from .grouped_data import Data, make, sets_of, wrong
from .power import Sampler
from .regimes import REGIMES, Captured, Regime, best_of, capture, measure
from .report import invocation
from .run import ceilings, device, library, reader
from .shapes import Problem

Variant = Callable[[GroupedConfig, GroupProblem], GroupedConfig]
"""Another configuration of a problem. Raises where there is none."""
TILES = "tiles"
"""Every tile that the heuristic chooses from."""


def _in_order(order: Order, config: GroupedConfig, problem: GroupProblem) -> GroupedConfig:
    return replace(config.alone, scheduler=in_this_order(config.scheduler, order))


def _ends(ends: GroupEnds, config: GroupedConfig, problem: GroupProblem) -> GroupedConfig:
    """Staged stores that end with the group in this way."""
    if not isinstance(config.store, StagedGroups):
        raise SettingError("the configuration stores directly")
    return replace(config.alone, store=replace(config.store, ends=ends))


def _in_shared(config: GroupedConfig, problem: GroupProblem) -> GroupedConfig:
    """Block scales through shared memory."""
    if not problem.scales_in_shared:
        raise SettingError("there are no block scales that can come through shared memory")
    return with_settings(config, {"schedule": Cooperative(sums=problem.sums())})


def _overlap(config: GroupedConfig, problem: GroupProblem) -> GroupedConfig:
    """The same with promotion that overlaps, in 128 x 128."""
    if not problem.scales_in_shared:
        raise SettingError("there are no block scales that can come through shared memory")
    return with_settings(config, {"schedule": Cooperative(sums=problem.sums("overlap")), "tile.BM": 128, "tile.BN": 128,
                                  "scheduler.cluster.m": 1})


VARIANTS: dict[str, Variant] = {
    **{order: functools.partial(_in_order, order) for order in ORDERS},
    **{ends: functools.partial(_ends, ends) for ends in get_args(GroupEnds)}, "shared": _in_shared, "overlap": _overlap}
"""Ways to deal out tiles; to end stores with the group; and to load block scales."""


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


def problem(case: Case, data: Data) -> GroupProblem:
    """As the adapter sees it."""
    from ptxkit.runtime.launch import view

    given = (data.x, data.w, data.cu, data.out, data.x_scale, data.w_scale, data.out_scale)
    views = [None if array is None else view(array) for array in given]
    return GroupProblem(GroupArrays(*views), GroupOptions(gated=case.gated))  # type: ignore[arg-type]


def shares(case: Case, us: float, limits: dict[str, Any], regime: str) -> dict[str, float]:
    """The time as rates, and as shares of the ceilings of the same run."""
    found = {"tflops": 1e-6 * case.flops / us, "gbs": 1e-3 * case.bytes / us}
    if limits:
        found["of_wgmma"] = found["tflops"] / limits[f"wgmma {_ceiling_type(case)} {regime}"]["value"]
        found["of_read"] = found["gbs"] / limits["read 8 GiB"]["value"]
    return found


def _ceiling_type(case: Case) -> str:
    """The operands of wgmma alone."""
    return "bf16" if case.operand_bytes == 2 else "e4m3"


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
    return lambda config, problem: with_settings(config, settings)


def variants_of(config: GroupedConfig, names: Sequence[str], problem: GroupProblem) -> dict[str, GroupedConfig]:
    """The same configuration with changes, without those that it cannot have and those that change nothing; and for TILES every tile that
    the heuristic chooses from."""
    found = {name: tile for name, tile in each_tile(problem).items() if tile != config} if TILES in names else {}
    for name in (name for name in names if name != TILES):
        variant = variant_of(name)
        try:
            other = variant(config, problem)
        except (ConfigError, SettingError):
            continue
        if other not in (config, *found.values()):
            found[name] = other
    return found


def row(torch: Any, case: Case, regime: Regime, limits: dict[str, Any], sensors: Any, rounds: int, seed: int,
        names: Sequence[str] = (), against: Sequence[str] = ("torch",)) -> dict[str, Any]:
    """One measurement: ours, its variants and the baselines."""
    sets = sets_of(torch, case, regime.cold)
    found: dict[str, Any] = {"case": str(case), **asdict(case), "regime": regime.name, "sets": len(sets), "contestants": {}}
    launch(sets[0], case)()
    torch.cuda.synchronize()
    sentence = wrong(torch, case, sets[0])
    if sentence:
        found["wrong"] = sentence
        return found
    seen = problem(case, sets[0])
    config = heuristic(seen)
    makes: dict[str, Callable[[], Entry]] = {
        "ours": lambda: Entry("ours", [launch(data, case) for data in sets], detail={"config": str(config)})}
    for name, peer in baselines(against).items():
        makes[name] = functools.partial(entry, torch, name, peer, case, sets)
    for name, variant in variants_of(config, names, seen).items():
        makes[f"ours, {name}"] = functools.partial(_variant, torch, f"ours, {name}", case, sets, variant)
    graphs: list[Captured] = []
    for name, made in makes.items():
        try:
            graphs.append(capture(torch, made(), regime))
        except (NotImplementedHere, RuntimeError) as error:
            if name == "ours":
                raise
            found.setdefault("left_out", {})[name] = str(error).splitlines()[0]
    if limits and case.tokens >= PREFILL:
        graphs.append(best_of(torch, wgmma(torch, Problem(case.rows, case.n, case.k, _ceiling_type(case)), ()), regime))
    with Sampler(sensors) as sampler:
        timed = measure(torch, graphs, regime, rounds, seed)
    times = {one.captured.entry.name: one.us for one in timed}
    found |= sampler.within()
    for one in timed:
        if one.captured.entry.ceiling:                          # of the same rounds: the card is as warm as it was for the others
            limits = {**limits, f"wgmma {_ceiling_type(case)} {regime.name}": {"value": 1e-6 * case.flops / one.median}}
    found["contestants"] = {one.captured.entry.name: {**spread(one.us), **shares(case, one.median, limits, regime.name),
                                                      **one.captured.entry.detail} for one in timed}
    found["ratios"] = {name: paired(times["ours"], us) for name, us in times.items() if name != "ours"}
    return found


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
            variants: Sequence[str] = (), against: Sequence[str] = ("torch",), path: Path | None = None,
            say: Callable[[str], None] = print) -> dict[str, Any]:
    """Every case in every regime; sustained is for prefill alone. The results are written to `path` after each."""
    baselines(against)                                         # a name that is not there is an error before anything runs
    torch = library()
    results: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "command": invocation(),
                               "device": device(torch), "rows": []}
    sensors = reader(torch)
    limits = results["ceilings"] = ceilings(torch, sensors) if with_ceilings else {}
    say("ceilings: " + ", ".join(f"{name} {seen['value']:.0f} {seen['unit']}" for name, seen in limits.items()))
    wanted: list[GroupedConfig] = []
    for each in map(problem_of, cases):
        chosen = heuristic(each)
        wanted += [chosen, *variants_of(chosen, variants, each).values()]
    assemble(wanted, say)
    for name in regimes:                                       # one after another: a sustained case leaves the card too warm for a burst
        regime = REGIMES[name]
        for number, case in enumerate(cases):
            if name == "sustained" and case.tokens < PREFILL:
                continue
            found = row(torch, case, regime, limits, sensors, rounds or regime.rounds, number, variants, against)
            results["rows"].append(found)
            say(line(found))
            if path is not None:
                path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            torch.cuda.empty_cache()
    results["summary"] = summary(results["rows"])
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind: the least share of the ceiling that counts, the mean ratio to torch, and what skew costs."""
    found: dict[str, Any] = {}
    whole = [row for row in rows if "wrong" not in row]
    times = {(row["case"], row["regime"]): row["contestants"]["ours"]["us"] for row in whole}
    for kind in dict.fromkeys(row["kind"] for row in whole):
        mine = [row for row in whole if row["kind"] == kind and row["regime"] == "burst"]
        entry: dict[str, Any] = {}
        for what, share, chosen in (("decode of read", "of_read", [row for row in mine if row["tokens"] <= DECODE]),
                                    ("prefill of wgmma", "of_wgmma", [row for row in mine if row["tokens"] >= PREFILL])):
            values = [row["contestants"]["ours"][share] for row in chosen if share in row["contestants"]["ours"]]
            if values:
                entry[what] = {"least": min(values), "mean": geometric_mean(values)}
        ratios = [seen["ratio"] for row in mine for name, seen in row["ratios"].items() if name == "torch"]
        if ratios:
            entry["of torch._grouped_mm"] = {"least": min(ratios), "mean": geometric_mean(ratios)}
        skews = [us / times[case.replace(":skewed", ""), regime] for (case, regime), us in times.items()
                 if ":skewed" in case and f":{kind}:" in case and (case.replace(":skewed", ""), regime) in times]
        if skews:
            entry["skewed over balanced"] = {"most": max(skews), "mean": geometric_mean(skews)}
        found[kind] = entry
    return found


def problem_of(case: Case) -> GroupProblem:
    """The problem of a case without its arrays."""
    return GroupProblem(arrays_of(case), GroupOptions(gated=case.gated))


def arrays_of(case: Case) -> GroupArrays:
    """The arrays of a case, without their memory."""
    word = "bf16" if case.operand_bytes == 2 else "e4m3"
    scales: tuple[Any, Any] = (None, None)
    if case.kind == "fp8":
        scales = array("f32", 1), array("f32", case.groups)
    if case.kind == "fp8-block":
        blocks = -(-case.k // 128)
        scales = scales_by_rows(case.rows, blocks), array("f32", case.groups, -(-case.n // 128), blocks)
    return GroupArrays(array(word, case.rows, case.k), array(word, case.groups, case.n, case.k), array("s32", case.groups + 1),
                       array("e4m3" if case.quantised else "bf16", case.rows, case.columns), *scales,
                       array("f32", case.rows, case.columns // 128) if case.quantised else None)


def array(dtype: str, *shape: int) -> ArrayView:
    """One without gaps, without its memory."""
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


def scales_by_rows(rows: int, blocks: int) -> ArrayView:
    """Block scales of x as the producer can copy them: those of all rows next to each other, on lines of 16 bytes."""
    return ArrayView(0, (rows, blocks), (1, -(-rows // 4) * 4), "f32", 0, "other")


def _assemble_one(config: GroupedConfig) -> str | None:
    from ...launch.group_kernels import kernel_of

    try:
        kernel_of(config).assemble(**config.parameters)
    except PtxkitError as error:
        return f"{config}: {error}"
    return None


def assemble(configs: Sequence[GroupedConfig], say: Callable[[str], None]) -> None:
    """Assemble in parallel; the cache keeps the cubins."""
    unique = list(dict.fromkeys(kernel for config in configs for kernel in config.kernels))
    context = multiprocessing.get_context("spawn")              # the parent has a context of the GPU, which no fork survives
    with ProcessPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), len(unique))), context) as pool:
        for sentence in pool.map(_assemble_one, unique):
            if sentence:
                say(f"not assembled: {sentence}")


def sweep(cases: Sequence[Case], *, seconds: float = 120.0, path: Path | None = None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Every candidate of every case in bursts, three rounds each: the times of all, the fastest first."""
    torch = library()
    begin = time.perf_counter()
    results: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "device": device(torch), "rows": []}
    by_case = {case: list(candidates(problem_of(case))) for case in cases}
    assemble([config for configs in by_case.values() for config in configs], say)
    say(f"assembled {len({c for configs in by_case.values() for c in configs})} configurations in {time.perf_counter() - begin:.0f} s")
    regime = Regime("burst", 0.6, True, 1.0, 3)
    for case, configs in by_case.items():
        if time.perf_counter() - begin > seconds:
            results["cut"] = str(case)
            break
        sets = sets_of(torch, case, True)
        graphs: list[Captured] = []
        faulty: dict[str, str] = {}
        for config in configs:
            try:
                sets[0].out.fill_(math.nan)
                launch(sets[0], case, config)()
                torch.cuda.synchronize()
                sentence = wrong(torch, case, sets[0])
                if sentence:
                    faulty[str(config)] = sentence
                    continue
                graphs.append(capture(torch, Entry(str(config), [launch(data, case, config) for data in sets]), regime))
            except PtxkitError as error:
                faulty[str(config)] = str(error).splitlines()[0]
        timed = sorted(measure(torch, graphs, regime, regime.rounds), key=lambda one: one.median)
        found = {"case": str(case), **asdict(case), "faulty": faulty, "heuristic": str(configs[0]),
                 "configs": [{"config": one.captured.entry.name, "us": one.median, **shares(case, one.median, {}, "burst")}
                             for one in timed]}
        results["rows"].append(found)
        best, chosen = timed[0], next(one for one in timed if one.captured.entry.name == str(configs[0]))
        say(f"{case!s:<38} {best.median:8.1f} us {1e-6 * case.flops / best.median:6.0f} TF {1e-3 * case.bytes / best.median:6.0f} GB/s  "
            f"[{best.captured.entry.name}]; the heuristic's {chosen.median:.1f} us; {len(timed)} tried, {len(faulty)} faulty")
        for which, why in list(faulty.items())[:3]:
            say(f"    faulty: {which}: {why}")
        if path is not None:
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        del graphs, timed, best, chosen
        torch.cuda.empty_cache()
    return results


__all__ = ["assemble", "compare", "make", "sweep", "wrong"]
