"""Random edits of right kernels against the certificate: whatever is certified leaves one memory under every schedule.

    python -m tests.sim.edits [--count 2000] [--first 0] [--minutes 60] [--output F.jsonl] [--summary F.json]

An edit deletes, repeats, swaps or changes instructions: their operands, orders, scopes and counts. The kernels are bundled ones, nvcc's and
Triton's, and the small right ones of `test_certificate`. Each edited kernel runs once under the checker. If it is certified, it runs
under `COMPARED` schedules without it, and all must end and leave the same memory. A run goes on where `--output` ends.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit import TensorMap, grammar, sim
from ptxkit.errors import PtxkitError
from ptxkit.grammar import tree

from .mutants.edit import Edit, ptx, written
from .mutants.subjects import CORPUS, SUBJECTS, Subject
from .planted import text
from .test_certificate import CASES as SOURCES
from .test_elections import CASES as ELECTIONS
from .test_elections import ORDER

COMPARED = [("fifo", 0), *[("random", seed) for seed in range(3)], ("lazy", 0), ("starve-producer", 0), ("starve-consumer", 0),
            ("reverse", 0), ("elect-high", 0), ("spurious", 1), ("delay-cta", 0), ("adversarial", 1)]
SMALL = 0.2
"""The share of the small kernels."""
LEFT_OUT = {"hgemm", "hgemm.mn", "gemm.shared", "gemm.fp8", "gemm.pingpong"}
"""Products that take seconds a run; smaller ones have the same parts."""
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "cluster", "gpu", "sys")


@dataclass(frozen=True)
class Result:
    """`verdict` of the checked run ("refused": it is no kernel); `other` is what another schedule did to a certified one."""

    seed: int
    subject: str
    edit: str
    verdict: str
    certified: bool
    other: str = ""


def _launch(ctas: int) -> Callable[[], Any]:
    def launch() -> tuple[list[Any], Callable[[], bool], dict[str, Any]]:
        out = np.arange(4096, dtype=np.uint32)
        out[2048:] = 0
        return [out], lambda: True, {"grid": ctas}

    return launch


@functools.cache
def subjects() -> dict[str, Subject]:
    found = {name: subject for name, subject in SUBJECTS.items() if name not in LEFT_OUT}
    for i, (name, _, body, threads, ctas) in enumerate((*SOURCES, *ELECTIONS, *ORDER)):
        source = functools.partial(grammar.parse, text(body, False, threads))
        found[f"twin {i}: {name}"] = Subject(name, source, _launch(ctas))
    for name, launch in (("matmul", _triton_matmul), ("softmax", _triton_softmax)):
        source = functools.partial(_parsed, CORPUS / f"triton_{name}.ptx")
        found[f"triton.{name}"] = Subject(f"triton.{name}", source, launch)
    return found


def _parsed(path: Path) -> tree.Module:
    return grammar.parse(path.read_text(encoding="utf-8"))


def _triton_matmul() -> tuple[list[Any], Callable[[], bool], dict[str, Any]]:
    import ml_dtypes

    a = np.random.default_rng(1).integers(-2, 3, (128, 64)).astype(ml_dtypes.bfloat16)
    b = np.random.default_rng(2).integers(-2, 3, (64, 128)).astype(ml_dtypes.bfloat16)
    c = np.zeros((128, 128), ml_dtypes.bfloat16)
    return [a, b, c, 64, 128, 0, 0], lambda: True, {"grid": (2, 4), "dynamic_smem": 16384}


def _triton_softmax() -> tuple[list[Any], Callable[[], bool], dict[str, Any]]:
    """One row, so that the kernel's sum of floats has one contribution."""
    x = np.random.default_rng(3).standard_normal(200).astype(np.float32)
    y, total = np.zeros(200, np.float32), np.zeros(1, np.float32)
    return [x, y, total, 200, 0, 0], lambda: True, {"grid": 1, "dynamic_smem": 1024}


# ------------------------------------------------------------------------------------------------------ edits


def edited(subject: Subject, draw: random.Random) -> tuple[str, Any]:
    """(what was done, the edited source)."""
    edit = Edit(subject.original, subject.entry)
    done = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        instructions = edit.find(lambda s: isinstance(s, tree.Instruction))
        weights = [3 if re.search(r"atom|red|ld\.(rel|acq|vol)|st\.(rel|vol)|mbarrier|fence|bar|elect|async|bra|setp", s.opcode) else 1
                   for s in instructions]                       # type: ignore[union-attr]
        chosen = draw.choices(instructions, weights)[0]
        assert isinstance(chosen, tree.Instruction)
        done.append(_one(edit, chosen, instructions, draw))
    return "; ".join(done), edit.done()


def _one(edit: Edit, chosen: tree.Instruction, instructions: list[Any], draw: random.Random) -> str:
    line = written(chosen)

    def here(s: tree.Statement) -> bool:
        return s is chosen

    kind = draw.choice(("delete", "delete", "repeat", "swap", "swap", "operand", "operand", "order", "order", "count", "count", "guard"))
    if kind == "delete":
        edit.delete(here)
    elif kind == "repeat":
        edit.twice(here)
    elif kind == "swap":
        i = next(i for i, s in enumerate(instructions) if s is chosen)
        other = instructions[min(len(instructions) - 1, i + draw.choice((1, 1, 2, 5)))]
        if other is chosen:
            return "nothing"
        edit.swap(here, lambda s: s is other)
    elif kind == "guard":
        edit.guard(here, None if chosen.guard else draw.choice(re.findall(r"%p\d+", " ".join(map(written, instructions))) or ["%p0"]),
                   negated=draw.random() < 0.5)
    else:
        made = _changed(line, kind, instructions, draw)
        if made == line:
            return "nothing"
        edit.change(here, lambda s: ptx(made))
        line += f" -> {made}"
    return f"{kind} {line}"


def _changed(line: str, kind: str, instructions: list[Any], draw: random.Random) -> str:
    if kind == "order":
        words = [word for word in re.findall(r"(?<=\.)\w+", line) if word in SEMANTICS + SCOPES]
        if not words:
            return re.sub(r"^((?:@\S+ )?(?:ld|st))\.(global|shared)", r"\1.relaxed.gpu.\2", line)
        word = draw.choice(words)
        return line.replace(f".{word}", f".{draw.choice(SEMANTICS if word in SEMANTICS else SCOPES)}", 1)
    if kind == "count":
        numbers = list(re.finditer(r"(?<![\w%.$])\d+\b", line))
        if not numbers:
            return line
        at = draw.choice(numbers)
        value = int(at.group())
        return line[:at.start()] + str(max(0, draw.choice((value + 1, value - 1, value ^ 1, 0, 1, 2 * value, 4)))) + line[at.end():]
    registers = list(re.finditer(r"%[a-z]+\d+", line))
    if not registers:
        return line
    at = draw.choice(registers)
    kind_of = at.group().rstrip("0123456789")
    others = re.findall(rf"{kind_of}\d+", " ".join(written(s) for s in draw.sample(instructions, min(12, len(instructions)))))
    return line[:at.start()] + (draw.choice(others) if others else at.group()) + line[at.end():]


# ------------------------------------------------------------------------------------------------------ runs


@functools.cache
def most_steps(name: str) -> int:
    """Warp instructions that an edited kernel may take: three times what the right one takes. Schedules that starve some may take more."""
    subject = subjects()[name]
    report, _ = subject.run(check=False)
    return 3 * report.stats.instructions + 2000


def memory(args: list[Any]) -> bytes:
    arrays = [a.array if isinstance(a, TensorMap) else a for a in args]
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays if isinstance(a, np.ndarray))


def judged(seed: int, names: list[str] | None = None, compared: list[tuple[str, int]] = COMPARED) -> Result:
    """One random edit, run and compared."""
    draw = random.Random(seed)
    small = draw.random() < SMALL
    name = draw.choice(names or [name for name in sorted(subjects()) if name.startswith("twin") == small])
    subject = subjects()[name]
    try:
        what, source = edited(subject, draw)
    except (PtxkitError, LookupError, AssertionError, StopIteration, ValueError) as error:
        return Result(seed, name, str(error)[:80], "refused", False)
    schedule, number = draw.choice(COMPARED)

    def run(schedule: str, seed: int, *, check: bool) -> tuple[sim.Report, bytes]:
        args, _, how = subject.launch()
        with np.errstate(all="ignore"):
            report = sim.run(source, subject.entry, args=args, schedule=schedule, seed=seed, check=check,
                             max_steps=most_steps(name) * (1 if check else 50), **how)
        return report, memory(args)

    try:
        report, left = run(schedule, number, check=True)
    except (PtxkitError, ValueError) as error:
        return Result(seed, name, f"{what}: {str(error)[:80]}", "refused", False)
    certified = report.every_schedule and report.verdict in ("clean", "review")
    if not certified:
        return Result(seed, name, what, report.verdict, False)
    for schedule, number in compared:
        other, found = run(schedule, number, check=False)
        if found != left or other.findings:
            why = other.findings[0].rule if other.findings else "other memory"
            return Result(seed, name, what, report.verdict, True, f"{why} under {schedule} {number}")
    return Result(seed, name, what, report.verdict, True)


def summary(results: list[Result]) -> dict[str, Any]:
    verdicts = Counter(r.verdict for r in results)
    return {"edits": len(results), "verdicts": dict(sorted(verdicts.items())), "certified": sum(r.certified for r in results),
            "schedules": len(COMPARED), "false": [[r.seed, r.subject, r.edit, r.other] for r in results if r.other],
            "subjects": dict(sorted(Counter(r.subject.partition(" ")[0] for r in results).items()))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--output", type=Path, help="a line for each edit; what it holds is not run again")
    parser.add_argument("--summary", type=Path)
    options = parser.parse_args()
    before = options.output.read_text(encoding="utf-8").splitlines() if options.output and options.output.exists() else []
    known = [Result(**json.loads(line)) for line in before]
    results, done, end = known, {r.seed for r in known}, time.monotonic() + 60 * options.minutes
    for seed in range(options.first, options.first + options.count):
        if seed in done:
            continue
        if time.monotonic() > end:
            break
        result = judged(seed)
        results.append(result)
        if options.output:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars_of(result)) + "\n")
        if result.other:
            print(f"seed {seed}: {result.subject}: {result.edit}: {result.other}", flush=True)
    found = summary(results)
    if options.summary:
        options.summary.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
    print({key: value for key, value in found.items() if key != "subjects"})
    return 1 if found["false"] else 0


def vars_of(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in Result.__dataclass_fields__}


if __name__ == "__main__":
    raise SystemExit(main())
