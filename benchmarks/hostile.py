"""How the time and memory of `ptxkit check` grow with texts of each shape: `python -m benchmarks.hostile [SHAPE ...] [-o RESULTS.json]`.

Each shape is a text of one thing many times: branches to one label, loops, blocks, labels, entries, calls, barriers, mbarriers, and so on.
It is checked with all rules at two sizes, in a process of its own. `exponent` is the slope between them on logarithmic axes: 1 is linear.
`seconds` is processor time, `times` the peak of memory beyond the text's own process, in bytes for each byte of the text. `unfinished` says
that the protocol rules stopped at their most steps.

`--real` judges 20,000 lines of compilers' output instead: kernels of the test corpus under new names.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .shapes import BEGIN, END, HEAD, SHAPES

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
SIZES = (1_000_000, 10_000_000)
LINES = 20_000
SECONDS, MEMORY = 600, 8 << 30
REAL = {"wgmma and TMA": ("wgmma", "tma", "clusters"), "Triton matmul": ("triton_matmul",), "Triton scan": ("triton_scan",),
        "low precision": ("low_precision",), "arithmetic": ("arithmetic",)}

def text(shape: str, size: int) -> str:
    """A text of the shape of about that many characters."""
    return SHAPES[shape].text(size)


def real(names: tuple[str, ...]) -> str:
    """`LINES` lines of a compiler's kernels, each time under new names."""
    parts: list[str] = []
    lines = copy = 0
    while lines < LINES:
        for name in names:
            given = (CORPUS / f"{name}.ptx").read_text()
            rest = given[given.index(".address_size 64") + 16:].partition(".section")[0]
            rest = re.sub(r"^\s*\.(?:loc|file)\b[^\n]*\n", "", rest, flags=re.M)
            own = {*re.findall(r"^\.(?:visible |weak |extern )?\.?(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", rest, re.M),
                   *re.findall(r"^\s*(?:\.\w+ )*\.(?:global|const|shared|local)\s[^;{=]*?([\w$]+)(?:\[[^\n;=]*)?(?:;|\s*=)", rest, re.M)}
            own |= {*re.findall(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", rest)}
            word = re.compile(r"(?<![\w$%.])(" + "|".join(map(re.escape, sorted(own, key=len, reverse=True))) + r")(?=[^\w$]|_param)")
            parts.append(word.sub(rf"\1_{copy}", rest))
            lines += parts[-1].count("\n")
            copy += 1
    return HEAD + "\n".join(parts)


def measured(given: str) -> dict[str, Any]:
    """The check of one text in this process: processor seconds, memory, findings."""
    from ptxkit.check import check_text

    check_text(HEAD + BEGIN + END)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = check_text(given)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"bytes": len(given), "seconds": round(seconds, 3), "times": round(1024 * peak / len(given), 1), "findings": len(found),
            "errors": sum(finding.severity == "error" for finding in found),
            "unfinished": any(finding.rule == "unfinished" for finding in found)}


def apart(*arguments: str) -> dict[str, Any]:
    """What `measured` gives in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.hostile", "--one", *arguments], capture_output=True, text=True,
                          timeout=SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def grown(shape: str, sizes: tuple[int, int]) -> dict[str, Any]:
    small, large = (apart(shape, str(size)) for size in sizes)
    slope = math.log(max(large["seconds"], 1e-3) / max(small["seconds"], 1e-3)) / math.log(large["bytes"] / small["bytes"])
    return {"exponent": round(slope, 2), "small": small, "large": large}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description="How `ptxkit check` grows with texts of each shape.")
    parser.add_argument("shapes", nargs="*", help="all of them if none is named")
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, metavar="BYTES")
    parser.add_argument("--real", action="store_true", help=f"{LINES:,} lines of compilers' output")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.one:
        shape, size = options.shapes
        print(json.dumps(measured(real(REAL[shape]) if shape in REAL else text(shape, int(size)))))
        return
    result: dict[str, Any] = {"python": platform.python_version(), "sizes": options.sizes, "lines": LINES}
    rows: dict[str, Any] = {}
    for shape in REAL if options.real else options.shapes or SHAPES:
        rows[shape] = apart(shape, "0") if options.real else grown(shape, tuple(options.sizes))
        print(shape, json.dumps(rows[shape]), file=sys.stderr, flush=True)
    result["real" if options.real else "shapes"] = rows
    if options.output:
        options.output.write_text(json.dumps(result))
    else:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
