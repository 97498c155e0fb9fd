"""Compile every `.cu` here to the `.ptx` beside it: `python tests/corpus/generate.py [NAME ...]`, with nvcc on PATH."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = {"debug": ["-G"], "lines": ["-lineinfo"], "objects": ["--extended-lambda"], "separate": ["-rdc=true"], "tma": ["-lineinfo"],
         "unoptimised": ["-G"]}
FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"(?:[^"]*/)?([^"/]+)"(?:,.*)?$', re.MULTILINE)
BYTES = re.compile(r"(?:^\.b8 [\d,]+.*\n)+", re.MULTILINE)


def compiled(source: Path) -> str:
    """What nvcc makes of a source, compiled in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(source, folder)
        flags = FLAGS.get(source.stem, [])
        command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-ptx", *flags, source.name, "-o", "out.ptx"]
        subprocess.run(command, cwd=folder, check=True)
        return neutral(Path(folder, "out.ptx").read_text(), str(Path(folder).resolve()))


def neutral(text: str, folder: str) -> str:
    """The PTX with no path of this machine in it, and with no size or time of a source."""
    text = FILE.sub(r'\1"\2"', text)
    text = BYTES.sub(lambda match: _without(match[0], folder), text)
    if found := re.search(r"/(?:tmp|usr|home|root|opt|work)/", text):
        raise SystemExit(f"{found[0]} is still in the PTX")
    return "\n".join([line.rstrip() for line in text.splitlines()]) + "\n"


def _without(rows: str, folder: str) -> str:
    """Rows of bytes with the folder's name replaced by as many dots: the length of a debug section is in its header."""
    values = re.findall(r"\d+", re.sub(r"//.*|^\.b8", "", rows, flags=re.MULTILINE))
    old = [str(b) for b in folder.encode()]
    starts = [i for i in range(len(values) - len(old) + 1) if values[i : i + len(old)] == old]
    if not starts:
        return rows
    for start in starts:
        values[start : start + len(old)] = [str(b) for b in ("." * len(old)).encode()]
    return "".join([f".b8 {value}\n" for value in values])


def main(names: list[str]) -> None:
    for source in sorted(HERE.glob("*.cu")):
        if not names or source.stem in names:
            target = source.with_suffix(".ptx")
            target.write_text(compiled(source))
            print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
