"""Compile every `.cu` here to the `.ptx` beside it: `python tests/sim/programs/generate.py`, with nvcc on PATH."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def compiled(source: Path) -> str:
    """What nvcc makes of a source, compiled in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(source, folder)
        subprocess.run(["nvcc", "-std=c++17", "-arch=sm_90a", "-ptx", source.name, "-o", "out.ptx"], cwd=folder, check=True)
        return "\n".join(line.rstrip() for line in Path(folder, "out.ptx").read_text().splitlines()) + "\n"


if __name__ == "__main__":
    for source in sorted(HERE.glob("*.cu")):
        source.with_suffix(".ptx").write_text(compiled(source))
