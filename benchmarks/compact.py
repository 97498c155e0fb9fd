"""Recorded results in few bytes: `python benchmarks/compact.py FILE.json ...` rewrites the files, each short value on a line of its own.

Numbers keep six digits: more is noise. Everything that is in a file stays in it; leave out by hand what nothing reads.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

LINE = 140
DIGITS = 6


def compact(value: Any) -> str:
    """JSON without indentation: a value that fits a line, or holds no other objects and lists, is one line."""
    return _lines(_rounded(value)) + "\n"


def _lines(value: Any) -> str:
    line = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(line) <= LINE or not any(isinstance(one, dict | list) for one in inner):
        return line
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(name, ensure_ascii=False)}:{_lines(one)}" for name, one in value.items()) + "\n}"
    return "[\n" + ",\n".join(map(_lines, value)) + "\n]"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        few = float(f"{value:.{DIGITS}g}")
        return int(few) if few.is_integer() else few
    if isinstance(value, dict):
        return {str(name): _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite recorded results without indentation, numbers to six digits.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.json")
    for path in parser.parse_args().files:
        path.write_text(compact(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
