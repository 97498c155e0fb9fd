"""How fast PTX is read and judged: `python benchmarks/parser.py [FILE.ptx ...] [-o RESULTS.json]`, processor seconds of one core.

Without files: the test corpus (nvcc and Triton output), each entry copied under new names until the module has 1 MB. `parse` reads every
line and gives every syntax error, but builds the nodes of most bodies only when somebody asks for them. `tree` is reading with all nodes
built. `check` is every language rule. It asks only for the nodes of what is wrong or unusual: `bodies_made` of `bodies`. `tree_and_check`
is all of it with every node built first, so that the rules are applied to nodes. `statement_reader` is reading without the template
reader, and `reference_reader` is reading by the grammar alone (the best of two readings). `first` is a process's first reading and check,
when nothing of the table is in memory yet. Each other figure is the best of several readings of the text, each from nothing but the table
and its verdicts. `distinct_lines` is the share of a text's lines that differ from all lines before, and `distinct_templates` the share of
templates.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxkit import grammar
from ptxkit.check import language
from ptxkit.check.places import Places
from ptxkit.grammar import tree
from ptxkit.grammar.gc_pause import gc_pause
from ptxkit.grammar.lazy import TemplateBody
from ptxkit.grammar.readers import reference
from ptxkit.grammar.readers.module import ModuleReader
from ptxkit.grammar.readers.source import Source

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
SIZE = 1_000_000
READINGS = 40


def corpus() -> str:
    """One module of 1 MB in nvcc's layout: the functions of the corpus that stand by themselves, again and again under new names."""
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    parts: list[str] = []
    for path in sorted(CORPUS.glob("*.ptx")):
        text = path.read_text()
        module = grammar.parse(text)
        if any(not isinstance(item, tree.Function) for item in module.items):
            continue
        body = text.partition(".address_size 64\n")[2]
        if len(module.items) == len(module.entries):
            parts.append(body)
    made, size, copy = [head], len(head), 0
    while size < SIZE:
        for part in parts:
            for name in {function.name for function in grammar.parse(head + part).functions}:
                part = part.replace(name, f"copy{copy}_{name}")
            made.append(part)
            size += len(part)
        copy += 1
    return "".join(made)


def judge(module: tree.Module) -> int:
    return sum(1 for _ in language.findings(module, Places(module)))


def make(module: tree.Module) -> int:
    """Asks for the nodes of every body."""
    return sum(len(function.body or ()) for function in module.functions)


def made(module: tree.Module) -> int:
    return sum(not isinstance(tree.stored_body(function), tree.LazyBody) for function in module.functions if function.defined)


class WithoutTemplates(ModuleReader):
    """Reads every body by its lines and statements."""

    def _template_body(self, start: int, parameter_prefix: str) -> TemplateBody | None:
        self.skip_templates = self._closing(self.text.find("\n", start))
        return None


def statement_reader(text: str) -> None:
    with gc_pause():
        WithoutTemplates(Source(text)).read()


def seconds(read: Callable[[str], object], text: str, readings: int) -> float:
    """The least processor time of a reading."""
    best = float("inf")
    for _ in range(readings):
        gc.collect()
        start = time.process_time()
        read(text)
        best = min(best, time.process_time() - start)
    return best


def peak(text: str, *, nodes: bool) -> int:
    """Bytes at most while a text is read and checked."""
    tracemalloc.start()
    module = grammar.parse(text)
    if nodes:
        make(module)
    judge(module)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def measured(name: str, text: str) -> dict[str, Any]:
    best = dict.fromkeys(("parse", "check", "parse_and_check", "tree", "tree_and_check"), float("inf"))
    findings = bodies_made = 0
    for _ in range(READINGS):
        gc.collect()
        start = time.process_time()
        module = grammar.parse(text)
        middle = time.process_time()
        findings = judge(module)
        end = time.process_time()
        bodies_made = made(module)
        del module
        gc.collect()
        begin = time.process_time()
        whole = grammar.parse(text)
        make(whole)
        built = time.process_time()
        judge(whole)
        done = time.process_time()
        del whole
        spent = (middle - start, end - middle, end - start, built - begin, done - begin)
        best = {key: min(before, now) for (key, before), now in zip(best.items(), spent, strict=True)}
    best["statement_reader"] = seconds(statement_reader, text, READINGS // 4)
    best["reference_reader"] = seconds(reference.parse, text, 2)
    module = grammar.parse(text)
    same = grammar.parse(grammar.write(module)) == module
    reading = ModuleReader(Source(text))
    reading.read()
    size, lines = len(text), text.split("\n")
    return {"name": name, "bytes": size, "lines": len(lines), "distinct_lines": round(len({*lines}) / len(lines), 3),
            "distinct_templates": round(len(reading.templates) / len(lines), 3), "instructions": sum(map(_instructions, module.functions)),
            **{f"{key}_MB_s": round(size / taken / 1e6, 2) for key, taken in best.items()},
            "bodies": sum(function.defined for function in module.functions), "bodies_made": bodies_made,
            "peak_memory_per_byte": round(peak(text, nodes=False) / size, 1),
            "tree_peak_memory_per_byte": round(peak(text, nodes=True) / size, 1),
            "language_findings": findings, "round_trip_equal": same}


def _instructions(function: tree.Function) -> int:
    def count(body: tuple[tree.Statement, ...]) -> int:
        return sum(count(s.body) if isinstance(s, tree.Block) else isinstance(s, tree.Instruction) for s in body)

    return count(function.body or ())


def first(path: str) -> float:
    """Processor seconds of a new process for one reading and check, with the imports."""
    code = ("import sys, time; start = time.process_time(); text = open(sys.argv[1]).read(); from ptxkit.grammar import parse; "
            "from ptxkit.check import language; from ptxkit.check.places import Places; module = parse(text); "
            "list(language.findings(module, Places(module))); print(time.process_time() - start)")
    return float(subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout)


def yardstick() -> float:
    """Milliseconds of a fixed piece of work: what the machine did beside this shows here."""
    best = float("inf")
    for _ in range(9):
        start = time.process_time()
        found: dict[int, tuple[int, str]] = {}
        for number in range(200_000):
            found[number] = number, str(number)
        best = min(best, time.process_time() - start)
    return round(best * 1e3, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Parse and check speed.")
    parser.add_argument("files", nargs="*", metavar="FILE.ptx[=name]")
    parser.add_argument("-o", "--output", metavar="RESULTS.json")
    options = parser.parse_args()
    rows = []
    for given in options.files or [""]:
        path, _, name = given.partition("=")
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape") if path else corpus()
        row = measured(name or Path(path).name or "test corpus, 1 MB", text)
        if path:
            row["first_seconds"] = round(first(path), 2)
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.output:
        machine = {"python": platform.python_version(), "processor": _processor(), "load": [round(load, 1) for load in os.getloadavg()],
                   "yardstick_ms": yardstick()}
        Path(options.output).write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
