"""The kernels of the gallery beside a copy of as many bytes and beside torch.compile or a library.

    python benchmarks/gallery.py -o OUT.json
    python benchmarks/gallery.py --kernel softmax --kernel rotary --shapes 0,2 -o OUT.json

Operands that are not in the L2: sets of them are taken in turn, 256 MB together at least. Kernel, copy and library are timed in the same
rounds, in random order. The copy, torch's, reads half as many bytes as the kernel must move and writes the other half; `of_copy` is its
time over the kernel's, and `of_library` the library's, round by round. A kernel that writes next to nothing is also timed beside the
fastest of three streaming reads of its bytes (`of_read`). A result is compared with float64, and one that is wrong has no times. Other
threads make the next operands and compare the last results meanwhile. The file is written after every row, and a kernel that raises has
its sentence in its row. The exit status is 1 if one is wrong or raises, or there is no GPU.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))                        # `examples` is no package that is installed

from examples.host.gallery import GALLERY  # noqa: E402
from examples.host.problem import Problem  # noqa: E402
from ptxkit.gemm.tools.bench.baselines import reads  # noqa: E402
from ptxkit.measure.files import write_json  # noqa: E402
from ptxkit.measure.regimes import REGIMES, Entry, capture, measure, sets_that_are_cold  # noqa: E402
from ptxkit.measure.timer import TorchTimer  # noqa: E402
from ptxkit.runtime import driver  # noqa: E402

LEAST_BYTES = 256_000_000
MOSTLY_READ = 8
"""A kernel that moves at least so many times the bytes that it writes is compared with a streaming read, not with a copy."""
AHEAD = 3
"""Problems whose operands and float64 results are made while others are timed: a gigabyte or three each."""

Shape = tuple[Any, ...]


def tensors(torch: Any, problem: Problem) -> dict[str, Any]:
    """The operands on the GPU, in torch's types."""
    views = {"bf16": ("int16", torch.bfloat16), "e4m3": ("uint8", torch.float8_e4m3fn)}
    found = {}
    for name, (kind, bits) in problem.operands.items():
        if kind in views:
            found[name] = torch.from_numpy(bits.view(views[kind][0])).cuda().view(views[kind][1])
        else:
            found[name] = torch.from_numpy(bits).cuda()
    return found


def values(torch: Any, problem: Problem, arrays: dict[str, Any]) -> dict[str, Any]:
    """The bits of tensors, as NumPy has them in the problem."""
    return {name: array.view(torch.uint8).cpu().numpy().view(problem.operands[name][1].dtype).reshape(array.shape)
            for name, array in arrays.items()}


def work(problem: Problem, arrays: dict[str, Any]) -> Any:
    """A function that launches all steps on these arrays."""
    steps = problem.steps(arrays)

    def launch() -> None:
        for step in steps:
            step.launch()

    return launch


def problems(pool: Executor, asked: Sequence[tuple[str, Shape]]) -> Iterator[tuple[str, Shape, Future[Problem]]]:
    """The problems that were asked for, in order. While one is timed, the pool already makes the next ones."""
    waiting: deque[tuple[str, Shape, Future[Problem]]] = deque()
    for name, shape in asked:
        waiting.append((name, shape, pool.submit(GALLERY[name].problem, *shape)))
        if len(waiting) > AHEAD:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def row(torch: Any, timer: Any, name: str, shape: Shape, problem: Problem, rounds: int, pool: Executor) -> dict[str, Any]:
    """One kernel and shape."""
    regime = REGIMES["burst"]
    found: dict[str, Any] = {"kernel": name, "shape": list(shape), "bytes": problem.bytes}
    one = tensors(torch, problem)
    work(problem, one)()
    torch.cuda.synchronize()
    outputs = values(torch, problem, one)
    compared = pool.submit(problem.share, outputs)
    least = max(1, sum(array.numel() * array.element_size() for array in one.values()))
    count = max(-(-LEAST_BYTES // least), sets_that_are_cold(least, driver.device(driver.current_device()).l2_bytes))
    sets = [one, *({key: array.clone() for key, array in one.items()} for _ in range(count - 1))]
    entries = [Entry("ours", [work(problem, arrays) for arrays in sets])]
    pairs = [[torch.empty(problem.bytes // 2, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(count)]
    entries.append(Entry("copy", [lambda pair=pair: pair[1].copy_(pair[0]) for pair in pairs]))
    if problem.library:
        entries.append(Entry("library", [problem.library(torch, arrays) for arrays in sets]))
    if MOSTLY_READ * sum(outputs[name].nbytes for name in problem.right) < problem.bytes:
        entries += reads(torch, problem.bytes, count)
    timed: dict[str, list[float]] = {}
    for one in measure(timer, [capture(timer, entry, regime) for entry in entries], regime, rounds):
        name = one.captured.entry.name
        timed[name] = min(one.us, timed.get(name, one.us), key=statistics.median)
    found["share_of_bound"] = compared.result()
    if not found["share_of_bound"] <= 1:
        return {**found, "wrong": problem.mismatches(outputs)}
    ours, middle = timed["ours"], {which: statistics.median(us) for which, us in timed.items()}
    found |= {"sets": count, "us": middle, "library": problem.library_name,
              "gbs": 1e-3 * problem.bytes / middle["ours"]}
    if problem.operations:
        found["tflops"] = 1e-6 * problem.operations / middle["ours"]
    for which, us in timed.items():
        if which != "ours":
            found[f"of_{which}"] = statistics.median(theirs / own for own, theirs in zip(ours, us, strict=True))
    return found


def row_or_error(torch: Any, timer: Any, name: str, shape: Shape, problem: Future[Problem], rounds: int, pool: Executor) -> dict[str, Any]:
    """The row, or what was raised instead."""
    try:
        torch.compiler.reset()
        torch.cuda.empty_cache()
        return row(torch, timer, name, shape, problem.result(), rounds, pool)
    except Exception as error:
        traceback.print_exc()
        return {"kernel": name, "shape": list(shape), "error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}


def said(found: dict[str, Any]) -> str:
    """A line for people."""
    what = f"{found['kernel']} {'x'.join(map(str, found['shape']))}: "
    if "error" in found:
        return f"{what}{found['error']}"
    if "wrong" in found:
        return "\n  ".join([f"{what}WRONG, {found['share_of_bound']:.3g} of what rounding allows", *found["wrong"]])
    rate = f"{found['tflops']:.1f} TFLOP/s" if "tflops" in found else f"{found['gbs']:.0f} GB/s, {found['of_copy']:.3f} of a copy's rate"
    rate += f", {found['of_read']:.3f} of a read's" if "of_read" in found else ""
    beside = f", {found['of_library']:.3f} of {found['library']}'s" if "of_library" in found else ""
    return f"{what}{found['us']['ours']:.1f} us, {rate}{beside}"


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/gallery.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel", action="append", choices=tuple(GALLERY), help="once for each kernel; all without it")
    parser.add_argument("--shapes", type=lambda text: [int(word) for word in text.split(",")], help="which of each kernel's shapes, from 0")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no other row begins after so many")
    parser.add_argument("-o", "--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args(arguments)
    if not driver.available():
        print("no kernel was measured: there is no GPU", file=sys.stderr)
        return 1
    import torch  # pyright: ignore[reportMissingImports]

    timer, rows, end = TorchTimer(torch), [], time.monotonic() + options.seconds
    asked = [(name, shape) for name in options.kernel or GALLERY for index, shape in enumerate(GALLERY[name].large)
             if options.shapes is None or index in options.shapes]
    with ThreadPoolExecutor(AHEAD + 1) as pool:
        for name, shape, problem in problems(pool, asked):
            if time.monotonic() > end:
                print(f"{len(rows)} of {len(asked)} rows: {options.seconds:g} seconds are over", flush=True)
                pool.shutdown(cancel_futures=True)
                break
            rows.append(row_or_error(torch, timer, name, shape, problem, options.rounds, pool))
            print(said(rows[-1]), flush=True)
            if options.json:
                write_json(options.json, {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "regime": "burst",
                                          "rounds": options.rounds, "rows": rows})
    return int(any("wrong" in one or "error" in one for one in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
