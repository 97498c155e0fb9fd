"""What the tuner costs: 64 points of a small kernel, tuned, beside assembling them and measuring every one of them as the bench does.

    python benchmarks/tuner.py --json OUT.json                 # on a GPU
    python benchmarks/tuner.py --device cpu                    # no times: the command runs, and counts instructions

The tuner may take 1.5 times as long as the other two together (`ratio`). Each part begins with an empty cache of cubins. The order of the
parts changes from repetition to repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ptxkit import Ptr, Reg, Space, ctaid, device_array, if_, kernel, tid
from ptxkit.measure.files import write_json
from ptxkit.ptx import fma, mad, mov, opcode, st
from ptxkit.runtime import driver
from ptxkit.tuning.tune import admitted
from ptxkit.types import f32, u32

LOADS = ("ld.global.f32", "ld.global.nc.f32", "ld.global.cg.f32", "ld.global.L1::no_allocate.f32")
SPACE = Space(THREADS=(128, 256, 512, 1024), EACH=(1, 2, 4, 8), LOAD=LOADS)
MOST = 1.5


@kernel(block=lambda config: config["THREADS"])
def axpy(x: Ptr[f32], y: Ptr[f32], out: Ptr[f32], n: Reg[u32], *, THREADS: int = 256, EACH: int = 1, LOAD: str = LOADS[0]) -> None:
    """out = 2 x + y. A thread has EACH values, THREADS apart."""
    load: Any = opcode(LOAD)
    first = mad.lo.u32(mov.u32(ctaid.x), THREADS * EACH, mov.u32(tid.x))
    for step in range(EACH):
        i = first + step * THREADS
        with if_(i < n):
            st.global_.f32(out.at(i), fma.rn.f32(load(x.at(i)), 2.0, load(y.at(i))))


def arguments(n: int, device: str) -> tuple[Any, ...]:
    source = np.random.default_rng(0)
    x, y = (source.standard_normal(n).astype(np.float32) for _ in range(2))
    given = x, y, np.zeros(n, np.float32)
    return (*(given if device == "cpu" else map(device_array, given)), n)


def grid(n: int) -> Any:
    return lambda config: -(-n // (config["THREADS"] * config["EACH"]))


def part(name: str, n: int, device: Any) -> dict[str, Any]:
    """One part, in a process of its own: the seconds it takes, without imports and making the arguments."""
    given = arguments(n, device)
    host = given if device == "cpu" else [array.numpy() for array in given[:3]]
    check = {"out": 2 * host[0] + host[1]}
    axpy.bench(grid=grid(n), args=given, device=device, rounds=1)           # the device is there, and has kept a card busy
    begin = time.perf_counter()
    if name == "tune":
        found = axpy.tune(SPACE, grid=grid(n), args=given, check=check, device=device, again=True)
        seconds, more = time.perf_counter() - begin, {"config": {key: str(value) for key, value in found.config.items()}, "us": found.time,
                                                      "measured": len(found.times), "skipped": found.counts}
    else:
        points, _ = admitted(axpy, SPACE)
        assembled = time.perf_counter() - begin
        own, *others = map(dict, points)
        row = axpy.bench(grid=grid(n), args=given, config=own, check=check, device=device,
                         against={str(number): config for number, config in enumerate(others)}).rows[0]
        seconds = time.perf_counter() - begin
        least = min(row["contestants"].values(), key=lambda seen: seen["us"])
        more = {"config": least["config"], "us": least["us"], "measured": len(row["contestants"]), "assembling": assembled,
                "rounds": row["rounds"]}
    return {"part": name, "seconds": seconds, **more}


def apart(name: str, n: int, device: str) -> dict[str, Any]:
    """A part in a process and with a cache of its own."""
    with TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, __file__, "--part", name, "--size", str(n), "--device", device], check=True, text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "PTXKIT_CACHE_DIR": folder})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="elements (default 4 Mi; 4,096 on the CPU device)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=("tune", "all"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "gpu" and not driver.available():
        print("nothing was tuned: there is no GPU, and --device cpu counts instructions", file=sys.stderr)
        return 1
    n = options.size or (4096 if options.device == "cpu" else 1 << 22)
    if options.part:
        print(json.dumps(part(options.part, n, options.device)))
        return 0
    parts: dict[str, list[dict[str, Any]]] = {"tune": [], "all": []}
    for turn in range(options.repeat):
        for name in list(parts)[::1 if turn % 2 else -1]:
            parts[name].append(apart(name, n, options.device))
            print(f"{name}: {parts[name][-1]['seconds']:.2f} s, {parts[name][-1]['measured']} points, best {parts[name][-1]['us']:.2f} "
                  f"{parts[name][-1]['config']}", flush=True)
    ratio = statistics.median(one["seconds"] for one in parts["tune"]) / statistics.median(one["seconds"] for one in parts["all"])
    print(f"the tuner takes {ratio:.2f} times as long as assembling and measuring every point (at most {MOST})")
    if options.json:
        write_json(options.json, {"date": time.strftime("%Y-%m-%d"), "device": options.device, "size": n, "cpus": os.cpu_count(),
                                  "ratio": ratio, "parts": parts})
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
