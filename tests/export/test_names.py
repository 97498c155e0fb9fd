"""Exports that stand beside each other in one folder: what their headers declare is different, or the later one is refused."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from ptxkit.cards import H200
from ptxkit.export.exported import ExportError
from ptxkit.export.folder import write
from ptxkit.gemm.export import text
from ptxkit.gemm.export.choices import model_tables
from ptxkit.gemm.export.groups import group_header

from .recorder import CC

pytestmark = [pytest.mark.pure, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(120)]
EXPORTS = ("bar", "bar_group", "Bar", "bar_groups", "group", "b")


@functools.cache
def pack(name: str) -> bytes:
    """The header of a pack of a model with experts."""
    tables = model_tables("gpt-2", None, H200, (), by_row=False)[:1]
    return text.pack(name, ("said",), tables, H200, group_header(name, ()))[0].encode()


def compiles(folder: Path, *names: str) -> bool:
    """Whether a program takes both headers."""
    assert CC is not None
    program = folder / "program.c"
    program.write_text("".join(f'#include "{name}.h"\n' for name in names))
    done = subprocess.run([CC, "-fsyntax-only", str(program)], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("second", EXPORTS)
@pytest.mark.parametrize("first", EXPORTS)
def test_a_program_takes_what_one_folder_has(tmp_path: Path, first: str, second: str) -> None:
    """The C compiler is the oracle."""
    if first.lower() == second.lower():
        return
    (tmp_path / "both").mkdir()
    for name in (first, second):
        (tmp_path / "both" / f"{name}.h").write_bytes(pack(name))
    fits = compiles(tmp_path / "both", first, second)
    write(tmp_path, {f"{first}.h": pack(first)})
    if fits:
        write(tmp_path, {f"{second}.h": pack(second)})
    else:
        for force in (False, True):
            with pytest.raises(ExportError, match=f"{first}.h declares `bar_group_\\w+`, too, so that no program could have both: give"):
                write(tmp_path, {f"{second}.h": pack(second), f"{second}.c": b""}, force=force)
        assert [path.name for path in tmp_path.glob("*.[ch]")] == [f"{first}.h"]
    assert fits == ({first, second} != {"bar", "bar_group"})


def test_what_others_wrote_and_what_is_overwritten_is_no_clash(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("int bar_group_workspace(void);\n")
    write(tmp_path, {"bar.h": pack("bar")})
    write(tmp_path, {"bar.h": pack("bar")}, force=True)
