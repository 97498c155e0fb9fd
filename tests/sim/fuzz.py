"""Random edits of the corpus, run on the CPU device: whatever a text is, what reaches its author is a report or an error of ptxkit.

    python -m tests.sim.fuzz COUNT [FIRST]

It prints each exception that is none of ptxkit's, with the seed that gives it.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit import TensorMap, sim
from ptxkit.errors import PtxkitError
from ptxkit.grammar import parse

CORPUS = Path(__file__).parents[1] / "corpus"
TOKEN = re.compile(r"[%$A-Za-z_.][\w$.:]*|-?\d[\w.]*|\S")
NUMBERS = ("0", "1", "-1", "3", "4", "31", "32", "255", "65535", "2147483647", "-2147483648", "4294967295", "9223372036854775807",
           "-9223372036854775808", "18446744073709551615", "0f7F800000", "0d7FF0000000000000", "1000000000")
MOST = 40_000
"""Characters of a text: larger ones are cut down to one entry first."""


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every entry of the corpus that runs alone, as (its name, a module with it and what is not an entry)."""
    found = []
    for path in sorted(CORPUS.glob("*.ptx")):
        text = path.read_text(encoding="utf-8")
        pieces = re.split(r"(?m)^(?=(?:\.visible |\.weak )?\.entry )", text)
        for piece in pieces[1:]:
            whole = pieces[0] + piece
            if len(whole) < MOST:
                try:
                    name = next(f.name for f in parse(whole).functions if f.kind == "entry")
                except (PtxkitError, StopIteration):
                    continue
                found.append((name, whole))
    return tuple(found)


def _kind(word: str) -> str:
    """Words of one kind stand for each other: registers, numbers, opcodes, names."""
    return word[0] if word[0] in "%$" else "0" if word[0] in "-0123456789" else "." if "." in word else "a" if word[0].isalpha() else word


def edited(seed: int) -> tuple[str, str]:
    """(the entry's name, the text after one to four edits)."""
    draw = random.Random(seed)
    name, text = draw.choice(texts())
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if ".entry" in line)
    for _ in range(draw.choice((1, 1, 2, 4))):
        i = draw.randrange(start if draw.random() < 0.9 else 0, len(lines))
        line = lines[i]
        tokens = list(TOKEN.finditer(line))
        kind = draw.choice((0, 1, 2, 3, 3, 4, 4, 4, 4, 4, 5, 5, 6, 6))
        if kind == 0:
            del lines[i]
            start = min(start, len(lines) - 1)
        elif kind == 1:
            lines.insert(draw.randrange(start, len(lines)), line)
        elif kind == 2 and line:
            at = draw.randrange(len(line))
            lines[i] = line[:at] + draw.choice(["", draw.choice("%$[]{}();,.:+-*/!@_0a1 ")]) + line[at + 1:]
        elif tokens:
            token = draw.choice(tokens)
            near = [m.group() for line in draw.choices(lines[start:], k=8) for m in TOKEN.finditer(line)] or [token.group()]
            others = near if kind == 3 else [word for word in near if _kind(word) == _kind(token.group())] or near
            made = draw.choice(NUMBERS) if _kind(token.group()) == "0" else draw.choice(others)
            if kind == 5 and "." in token.group():
                parts = token.group().split(".")
                parts[draw.randrange(len(parts))] = draw.choice(draw.choice(others).split("."))
                made = ".".join(parts)
            elif kind == 6:
                made = re.sub(r"\d+", lambda m: str(int(m.group()) + draw.choice((-1, 1, 8, 1 << 31, 1 << 64))), token.group())
            lines[i] = line[:token.start()] + made + line[token.end():]
    return name, "\n".join(lines) + "\n"


def arguments(text: str, name: str) -> list[Any]:
    function = next(f for f in parse(text).functions if f.name == name)
    found: list[Any] = []
    for parameter in function.parameters:
        if parameter.shape == (128,):
            found.append(TensorMap(np.zeros((64, 64), np.float16), box=(8, 64)))
        elif parameter.shape:
            found.append(bytes(int(np.prod([n or 0 for n in parameter.shape]))))
        elif parameter.type in ("u64", "b64", "s64"):
            found.append(np.arange(4096, dtype=np.uint32))
        else:
            found.append(3)
    return found


def run(seed: int) -> str:
    """What became of it: the verdict, or the name of the error. Raises what says nothing of the text: what ptxkit does not raise, or
    calls a defect of its own.
    """
    name, text = edited(seed)
    draw = random.Random(seed)
    try:
        if not any(f.name == name for f in parse(text).functions):
            return "renamed"
        report = sim.run(text, name, grid=draw.choice((1, 2)), block=draw.choice((1, 32, 128)), args=arguments(text, name),
                         check=draw.random() < 0.7, max_steps=5_000, schedule=draw.choice(("fifo", "random")), seed=seed)
    except sim.InternalError:
        raise
    except PtxkitError as error:
        return type(error).__name__ if str(error) else "nothing said"
    return report.verdict if str(report) else "nothing said"


def main(arguments: list[str], stop: bool = False) -> int:
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    seen: dict[str, int] = {}
    wrong = 0
    for seed in range(first, first + count):
        try:
            what = run(seed)
        except Exception as error:
            if stop:
                raise
            wrong += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            if what not in seen:
                print(f"seed {seed}: {what}: {str(error)[:150]}", flush=True)
        seen[what] = seen.get(what, 0) + 1
    print(seen)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
