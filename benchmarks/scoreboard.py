"""The scoreboard of other compilers' kernels: `make scoreboard` compiles, checks and proves them, and writes the page and the record.

`--page` writes the page from the record alone. Exit status 1 when a finding has no adjudication, an error is false, a result is wrong, or a
kernel that was certified is not, and no line says on what it depends.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compact import compact

if TYPE_CHECKING:
    from ptxkit.proof.result import Proof

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scoreboard.md"
RECORD = ROOT / "benchmarks" / "results" / "2026-11-25-scoreboard.json"
ADJUDICATIONS = ROOT / "benchmarks" / "foreign" / "adjudications.toml"
SCHEDULES = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs everything, or only writes the page; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page, from the record")
    if not parser.parse_args(arguments).page:
        if absent := missing():
            print(f"no kernel was compiled: there is no {', no '.join(absent)}; `make scoreboard` sets up an environment that has all, and "
                  "--page writes the page from the record", file=sys.stderr)
            return 1
        record = {"schedules": SCHEDULES, "kernels": [*compiled(), *corpus()]}
        RECORD.write_text(compact(record), encoding="utf-8")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(page(record, adjudications()), encoding="utf-8")
    found = faults(record, adjudications())
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{PAGE.relative_to(ROOT)}: {len(record['kernels'])} kernels, {len(found)} faults")
    return 1 if found else 0


# ------------------------------------------------------------------------------------------------------ what is run


def missing() -> list[str]:
    """The packages of the kernels that are not installed."""
    from benchmarks.foreign.cases import CASES

    found = []
    for package in dict.fromkeys(case.package for case in CASES):
        try:
            version(package)
        except PackageNotFoundError:
            found.append(package)
    return found


def compiled() -> Iterator[dict[str, Any]]:
    """The kernels of the packages: findings, verdict, certificate, and whether the numbers are right."""
    from benchmarks.foreign.environment import prepare

    prepare()
    from benchmarks.foreign.cases import CASES
    from ptxkit import prove

    for case in CASES:
        ready = case.ready()
        proof = prove(*ready.arguments, schedules=SCHEDULES, **ready.config)
        why = next((line for line in proof.lines() if not line.startswith("not proven")), "")
        dependence = "" if proof.proven else f"no: {why.replace(f'{ROOT}/', '')}"
        yield {"kernel": f"{case.compiler} {case.name}", "compiler": f"{case.compiler} {version(case.package)}", "floor": case.floor,
               "lines": lines(proof.launch.text), "findings": [*findings(proof.launch.text), *of_runs(proof)], "simulated": True,
               "right": ready.right, "verdict": proof.verdict, "proven": proof.proven, "dependence": dependence}
        print(f"{case.compiler} {case.name}: {proof.verdict}", file=sys.stderr)


def corpus() -> Iterator[dict[str, Any]]:
    """What nvcc made of tests/corpus: static findings. Its kernels are there for their instructions, not all of them to be run."""
    for path in sorted((ROOT / "tests" / "corpus").glob("*.ptx")):
        text = path.read_text(encoding="utf-8")
        if "Cuda compilation tools" in text:
            release = text.partition("Cuda compilation tools, release ")[2].partition(",")[0]
            yield {"kernel": f"nvcc {path.name}", "compiler": f"nvcc {release}", "floor": False, "lines": lines(text),
                   "findings": findings(text), "simulated": False, "right": None, "verdict": None, "proven": None, "dependence": ""}


def lines(text: str) -> int:
    """Lines of PTX without those of debug sections, which have the folder of the source in them."""
    return text.partition("\n\t.section\t")[0].count("\n")


def of_runs(proof: Proof) -> list[dict[str, Any]]:
    """The errors and reviews of the runs; an error says in how many of the schedules it is."""
    found: dict[tuple[str, str], int] = {}
    for finding, schedules in proof.findings():
        if finding.severity != "info":
            key = finding.rule, f"{finding.severity} in a run"
            found[key] = max(found.get(key, 0), len(schedules))
    return [{"rule": rule, "severity": severity, "count": count} for (rule, severity), count in sorted(found.items())]


def findings(text: str) -> list[dict[str, Any]]:
    """The errors and reviews of the static rules: rule, severity and number."""
    from ptxkit.check import check_text

    counts: dict[tuple[str, str], int] = {}
    for finding in check_text(text):
        if finding.severity != "info":
            counts[finding.rule, finding.severity] = counts.get((finding.rule, finding.severity), 0) + 1
    return [{"rule": rule, "severity": severity, "count": count} for (rule, severity), count in sorted(counts.items())]


# ------------------------------------------------------------------------------------------------------ what is written


def adjudications() -> list[dict[str, Any]]:
    """What is true and what is false, by kernel and rule."""
    found: list[dict[str, Any]] = tomllib.loads(ADJUDICATIONS.read_text(encoding="utf-8"))["finding"]
    return found


def adjudged(kernel: str, finding: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The adjudication of a finding; None where nobody has looked at it."""
    return next((each for each in known if each["kernel"] in ("*", kernel) and each["rule"] == finding["rule"]
                 and each["severity"] == finding["severity"]), None)


def faults(record: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> list[str]:
    """What keeps the scoreboard from being right."""
    found = []
    for row in record["kernels"]:
        for finding in row["findings"]:
            judged = adjudged(row["kernel"], finding, known)
            if judged is None:
                found.append(f"{row['kernel']}: {finding['severity']} {finding['rule']} is not adjudicated")
            elif finding["severity"].startswith("error") and not judged["true"]:
                found.append(f"{row['kernel']}: the error {finding['rule']} is false")
        if row["simulated"] and not row["right"]:
            found.append(f"{row['kernel']}: its numbers are wrong")
        if row["floor"] and not row["proven"] and not row["dependence"]:
            found.append(f"{row['kernel']}: not proven, and no dependence is named")
    return found


def page(record: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> str:
    """docs/scoreboard.md."""
    return "\n".join(_page(record, known)) + "\n"


def _page(record: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = record["kernels"]
    run = [row for row in rows if row["simulated"]]
    yield "<!-- Generated by benchmarks/scoreboard.py: run `make scoreboard`. -->"
    yield "# Scoreboard: kernels of other compilers"
    yield ""
    yield "For users of other compilers who ask what can be proven of their kernels."
    yield ""
    certified = sum(row["proven"] for row in run)
    yield (f"{len(run)} kernels were compiled ahead for sm_90a without a GPU, by the packages of the group `foreign`, and proven with "
           f"`ptxkit.prove` in {record['schedules']} schedules; {certified} of them have a certificate. Their results were compared with "
           "NumPy's f32. The kernels are in `benchmarks/foreign`. The output of nvcc is that of `tests/corpus`, whose kernels are there "
           "for their instructions: it is only checked.")
    yield ""
    yield (f"[The record](../benchmarks/results/{RECORD.name}) is what `make scoreboard` wrote last, on the CPU alone. Findings are those "
           "of `ptxkit check`, errors and reviews; those in a run are of the checker, with the number of schedules that have them.")
    yield ""
    yield "| kernel | compiler | lines of PTX | findings | run | numbers | verdict | certificate |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        earned = ", ".join(f"{each['count']} {each['rule']} ({each['severity']})" for each in row["findings"]) or "none"
        told = ("yes", "right" if row["right"] else "WRONG", row["verdict"], "yes" if row["proven"] else row["dependence"] or "no")
        ran = told if row["simulated"] else ("no", "", "", "")
        yield f"| {row['kernel']} | {row['compiler']} | {row['lines']:,} | {earned} | {' | '.join(ran)} |"
    yield ""
    yield "## Findings, adjudicated"
    yield ""
    yield "| kernel | finding | true? | why |"
    yield "|---|---|---|---|"
    for row in rows:
        for each in row["findings"]:
            judged = adjudged(row["kernel"], each, known)
            answer = ("not adjudicated", "") if judged is None else ("true" if judged["true"] else "false", judged["why"])
            yield f"| {row['kernel']} | {each['rule']} ({each['severity']}) | {answer[0]} | {answer[1]} |"


if __name__ == "__main__":
    sys.exit(main())
