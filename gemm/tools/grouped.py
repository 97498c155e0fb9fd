"""`python -m ptxkit.gemm grouped`: one grouped product, random ones, a sweep over configurations, or the comparison with the ceilings."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, positive, seconds, whole
from ptxkit.cli.output import write
from ptxkit.cli.paths import json_of, output_file
from ptxkit.runtime import driver
from ptxkit.types import TYPES

from ..config.grouped import GroupedConfig
from ..problem.grouped import GroupProblem
from . import grouped_settings
from . import options as shared
from .bench.grouped_cases import KINDS, Case, cases, parse

SIMULATED_SMS = 4
"""SMs of the CPU device, each of which then works on several tiles."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("--groups", type=positive, default=8, help="number of groups (default 8)")
    parser.add_argument("--tokens", default="64", help="rows of each group: a number, or one for each group with commas (default 64)")
    parser.add_argument("-n", type=positive, default=4096, help="rows of each group's weights (default 4096)")
    parser.add_argument("-k", type=positive, default=7168, help="depth (default 7168)")
    parser.add_argument("--dtype", choices=("bf16", "f16", "e4m3", "e5m2"), default="bf16")
    parser.add_argument("--out-dtype", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--scales", choices=("none", "group", "row", "column", "row_column", "block"), default="none",
                        help="of fp8: one of each group; of each row, each feature of a group, or both; of blocks")
    parser.add_argument("--gated", action="store_true", help="silu of the weights' first half times the second")
    shared.add_set(parser)
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="auto: the GPU, or the CPU device without one")
    shared.add_card(parser, f"on the CPU device, which has {SIMULATED_SMS} of its SMs, ")
    parser.add_argument("--schedule", default="fifo", help="of the CPU device")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--verify", type=count, metavar="COUNT", help="random launches on the GPU against float64 instead")
    parser.add_argument("--sweep", action="store_true", help="every candidate configuration of the cases instead, on the GPU")
    parser.add_argument("--compare", action="store_true", help="the cases, other libraries and the card's ceilings instead")
    parser.add_argument("--against", default="torch", help="of --compare: torch,deep_gemm,deep_gemm_masked,hpc_ops or module:function "
                        "(default torch)")
    parser.add_argument("--cases", help="of --sweep and --compare: 8x64x4096x7168:fp8-block:skewed with commas, models, or "
                        "random:SEED:COUNT of --kinds (default: all)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of the default cases (default {','.join(KINDS)})")
    parser.add_argument("--regimes", default="burst", help="of --compare: burst, or burst,sustained")
    parser.add_argument("--variants", default="", help="of --compare: ours with changes as well: linear, search, across, dynamic, ragged, "
                        "tensormap, with block scales shared or overlap; any settings as of --set: "
                        "\"tile.BN=128+scheduler=DynamicGroups,tile.BM=64\"; tiles: each tile that is chosen from. Of --sweep: tiles, "
                        "those that the trees of a card choose from; overlaps, the first of them with every begin of the next kernel")
    parser.add_argument("--layout", choices=("cu_seqlens", "contiguous"), default="cu_seqlens", help="of --sweep: how groups lie in x")
    parser.add_argument("--w-major", choices=("k", "mn"), default="k", help="of --sweep: mn: weights are contiguous along N")
    parser.add_argument("--rounds", type=positive, help="of --compare")
    parser.add_argument("--table", metavar="FILE", help="print what --compare wrote there as Markdown instead")
    parser.add_argument("--seconds", type=seconds, default=240.0, help="of --sweep: begin no further case after that long")
    parser.add_argument("--json", type=output_file, metavar="FILE", nargs="?", const="-", help="write the results there (- for stdout)")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: right; 1: wrong or failed."""
    if options.verify is not None:
        from .verify import grouped as verify

        return _finish(options, verify.run(options.verify, options.seed))
    if options.table is not None:
        print(_tabled(options.table), end="")
        return 0
    if options.sweep or options.compare:
        return _measure(options)
    one = _one(options)
    if options.device == "gpu" or (options.device == "auto" and driver.available("sm_90a")):
        return _finish(options, _on_gpu(options, one))
    return _finish(options, _simulated(options, _lengths(options)))


def _tabled(name: str) -> str:
    from .grouped_report import tables

    try:
        return tables(json_of(name))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UsageError(f"{name} is not what --compare writes") from None


def _measure(options: argparse.Namespace) -> int:
    from .bench import grouped as bench

    if not options.sweep and (options.layout, options.w_major) != ("cu_seqlens", "k"):
        raise UsageError("--layout and --w-major are of --sweep")
    path = Path(options.json) if options.json and options.json != "-" else None
    kinds = tuple(word for word in options.kinds.split(",") if word)
    chosen = parse(options.cases, kinds) if options.cases else cases(kinds, (False,) if options.sweep else (False, True))
    if options.sweep:
        if options.w_major == "mn" and any(one.kind != "bf16" or one.gated for one in chosen):
            raise UsageError("--w-major mn: weights lie along N in bf16 without a gate: give --kinds bf16, or such --cases")
        if options.layout == "contiguous" and any(one.quantised for one in chosen):
            raise UsageError("--layout contiguous: quantised results are not measured so")
        names = bench.names_of(options.variants)
        if len(names) > 1 or not set(names) <= set(bench.SWEPT):
            raise UsageError(f"--variants {options.variants}: a sweep has every candidate; with {bench.TILES} every tile that the trees of "
                             f"a card choose from; with {bench.OVERLAPS} the first of them with every begin of the next kernel")
        results = bench.sweep(chosen, every="".join(names), layout=options.layout, w_major=options.w_major, seconds=options.seconds,
                              path=path, say=_say)
    else:
        results = bench.compare(chosen, regimes=tuple(options.regimes.split(",")), rounds=options.rounds,
                                variants=bench.names_of(options.variants),
                                against=tuple(word for word in options.against.split(",") if word), path=path, say=_say)
        _say(json.dumps(results["summary"], indent=1))
    if options.json == "-":
        print(json.dumps(results, indent=1))
    return int(any("wrong" in row or row.get("faulty") for row in results["rows"]))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _finish(options: argparse.Namespace, results: dict[str, Any]) -> int:
    failures = results["failures"]
    if options.json:
        write(options.json, (json.dumps(results, indent=1) + "\n").encode())
    for failure in failures:
        print(f"wrong: {failure}", file=sys.stderr)
    for text in results.get("lines", ()) if options.json != "-" else ():
        print(text)
    if "trials" in results:
        print(f"{results['trials']} launches on {results['device']}, {len(failures)} wrong", file=sys.stderr)
    return int(bool(failures))


def _lengths(options: argparse.Namespace) -> tuple[int, ...]:
    try:
        words = [whole(word) for word in options.tokens.split(",") if word]
    except ValueError as error:
        raise UsageError(f"--tokens {options.tokens}: {error}") from None
    if len(words) == 1:
        words *= options.groups
    if not words or min(words) < 0 or (len(words) != options.groups and options.groups != 8):
        raise UsageError(f"--tokens {options.tokens}: one number, or one of at least 0 for each of {options.groups} groups")
    return tuple(words)


def _one(options: argparse.Namespace) -> Case:
    lengths = _lengths(options)
    if options.scales not in ("none", "group") and TYPES[options.dtype].bits != 8:
        raise UsageError(f"--scales {options.scales}: scales of rows, features and blocks are those of e4m3 and e5m2")
    return Case(len(lengths), max(1, sum(lengths) // len(lengths)), options.n, options.k)


def _configured(problem: GroupProblem, card: Card, settings: grouped_settings.Settings) -> GroupedConfig:
    """The heuristic's configuration with the settings."""
    from ..heuristic.grouped import heuristic

    config = heuristic(problem, card)
    return grouped_settings.with_settings(config, settings) if settings else config


def _on_gpu(options: argparse.Namespace, one: Case) -> dict[str, Any]:
    import torch  # pyright: ignore[reportMissingImports]

    from .verify import grouped as verify

    driver.probe()
    trial = verify.Trial(_lengths(options), options.n // 2 if options.gated else options.n, options.k, options.dtype, options.scales,
                         options.out_dtype, options.gated, "cu_seqlens", None, None, 3)
    settings, problem = dict(options.changes), trial.problem()
    config = _configured(problem, shared.card(options.card), settings) if settings and not problem.empty else None
    sentence = verify.check(torch, trial, config)
    text = f"{one.groups} groups, {sum(trial.lengths)} rows, N {options.n}, K {options.k}, {options.dtype}, scales {options.scales}"
    return {"failures": [sentence] if sentence else [], "lines": [f"{text}: {'WRONG' if sentence else 'right'}"]}


def _simulated(options: argparse.Namespace, lengths: tuple[int, ...]) -> dict[str, Any]:
    from .grouped_example import example

    begin = time.perf_counter()
    card, settings = shared.card(options.card).with_sms(SIMULATED_SMS), dict(options.changes)
    share, report, config = example(lengths, options.n, options.k, dtype=options.dtype, out=options.out_dtype, scales=options.scales,
                                    gated=options.gated, configure=lambda problem: _configured(problem, card, settings), card=card,
                                    schedule=options.schedule, seed=options.seed)
    wrong = not share <= 1 or report.verdict == "error" or not np.isfinite(share)
    lines = [f"{len(lengths)} groups, {sum(lengths)} rows, N {options.n}, K {options.k}: {config}",
             f"executed on the CPU device, not a GPU, in {time.perf_counter() - begin:.2f} s: {share:.2f} of the error that is allowed",
             f"verdict: {report}"]
    return {"failures": [lines[1:]] if wrong else [], "lines": lines, "error_share": share, "verdict": report.verdict, "device": "sim"}


__all__ = ["add_arguments", "command"]
