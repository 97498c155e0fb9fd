"""`python -m ptxkit.gemm probe`: what a card does at most, measured in about a second and kept in the cache directory, for cards that are
not known. wgmma alone says what its tensor cores do, a streaming read what its memory does."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card, Probe
from ptxkit.errors import PtxkitError
from ptxkit.files import make_folder
from ptxkit.measure.files import write_aside
from ptxkit.measure.power import Reader, Sampler
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import DeviceArray, device_array
from ptxkit.runtime.launch import LEGACY_STREAM
from ptxkit.settings import settings
from ptxkit.types import bf16

from ..heuristic import probes
from ..launch.dense import card_of
from .bench.ceilings import BM, BN, READ_WARPS, resident, resident_flops, resident_k, stream

SECONDS = 0.4                   # of each measurement
READ_BYTES = 512 << 20          # several times what an L2 holds
CHUNK, STAGES = 16384, 12
FLOPS = 6e11                    # of a launch of wgmma: its loads do not count


class ProbeError(PtxkitError, RuntimeError):
    """A card that cannot be measured, or nowhere to keep what was."""


def rate(launch: Callable[[], Any], wait: Callable[[], Any], seconds: float = SECONDS,
         now: Callable[[], float] = time.perf_counter) -> float:
    """Launches a second, once the first is over: as many as take so long, enqueued together."""
    launch()
    wait()
    begin = now()
    launch()
    wait()
    count = max(4, round(seconds / max(1e-6, now() - begin)))
    begin = now()
    for _ in range(count):
        launch()
    wait()
    return count / (now() - begin)


def measured(ordinal: int) -> Probe:
    """The measurement of a device, by two kernels."""
    sms = driver.device(ordinal).multiprocessors

    def wait() -> None:
        driver.synchronize(ordinal)

    with driver.on(ordinal), Sampler(Reader(ordinal)) as sampler:
        k, source = resident_k(bf16), np.random.default_rng(0)
        a, b = (device_array((source.standard_normal((rows, k), dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16), "bf16",
                             device=ordinal) for rows in (sms * BM, BN))
        d = DeviceArray((sms * BM, BN), "f32", ordinal)
        rounds = max(64, round(FLOPS / resident_flops(sms, 1, bf16)))
        begin = time.perf_counter()
        launches = rate(lambda: resident.launch(sms, a, b, d, rounds, TYPE=bf16, stream=LEGACY_STREAM), wait)
        clock = sampler.within([(begin, time.perf_counter())]).get("mhz", 0.0)
        data, total = DeviceArray((READ_BYTES // 4,), "u32", ordinal), DeviceArray((sms * READ_WARPS,), "u32", ordinal)
        chunks = READ_BYTES // CHUNK
        reads = rate(lambda: stream.launch(sms, data, total, chunks, CHUNK=CHUNK, STAGES=STAGES, stream=LEGACY_STREAM), wait)
    return Probe(launches * resident_flops(sms, rounds, bf16) / 1e12, reads * READ_BYTES / 1e9, clock)


def keep(probe: Probe, path: Path, device: str) -> None:
    """Written aside, then put in place."""
    make_folder(path.parent, settings().cache_dir)
    write_aside(path, json.dumps({"device": device, **asdict(probe)}, indent=1) + "\n")


def told(probe: Probe, card: Card) -> str:
    """The measurement as text, and the card that follows from it."""
    return (f"wgmma alone {probe.tflops:.0f} TFLOP/s of bf16 at {probe.mhz:.0f} MHz, a streaming read {probe.read_gbs:.0f} GB/s\n"
            f"{card.name}: {card.sms} SMs, {card.clock_mhz:.0f} MHz, {card.memory_gbs:.0f} GB/s, {card.tensor:g} of an H100's tensor cores")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`run` for the command line; there is nothing to say."""
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: measured and kept; 1: not."""
    driver.probe()
    ordinal = driver.current_device()
    device = driver.device(ordinal).name
    path = probes.probe_path(device)
    if path is None:
        raise ProbeError("the cache is off (PTXKIT_CACHE_DIR): there is nowhere to keep a measurement")
    found = measured(ordinal)
    keep(found, path, device)
    card_of.cache_clear()
    print(told(found, card_of(ordinal)))
    print(f"kept in {path}", file=sys.stderr)
    return 0


__all__ = ["add_arguments", "command", "keep", "measured", "rate", "told"]
