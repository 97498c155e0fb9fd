"""A pack under the compiler's sanitizers, called with products right and wrong; and its choices beside Python's for thousands of them."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ptxkit.gemm.export import export
from ptxkit.gemm.export.choices import KINDS

from .recorder import CC, CXX, STRICT, Recorder, compiled, driver_library, loaded, said
from .test_pack import Product, one_cubin  # noqa: F401

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(300)]
HERE = Path(__file__).parent
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g")
CALLS = 200_000


@pytest.fixture
def pack(tmp_path: Path, one_cubin: None) -> export.Exported:  # noqa: F811
    return export.pack("deepseek-v3", tmp_path, cards=8, name="pack")


def test_no_call_leaves_its_memory_or_is_undefined(pack: export.Exported, tmp_path: Path) -> None:
    """Every address, extent and size at random, right and wrong: a status and a sentence, and launches of those that are right."""
    source = pack.files[1]
    driver = compiled([HERE / "libfuzz.c"], tmp_path / "libfuzz.so", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    shapes = ", ".join(f"{{{list(KINDS).index(table.layer.kind)}, {table.layer.n}, {table.layer.k}}}" for table in pack.tables)
    named = {"HEADER": f'"{source.with_suffix(".h").name}"', "SHAPES": f"{{{shapes}}}", "PRODUCT": "pack_product", "CHOICE": "pack_choice",
             "CONFIGURATION": "pack_configuration", "WORKSPACE": "pack_workspace", "GEMM": "pack_gemm", "ERROR": "pack_error",
             "PTXKIT_LIBCUDA": f'"{driver}"'}
    program = compiled([source, HERE / "fuzz.c"], tmp_path / "fuzz", *STRICT, *SANITIZERS, f"-I{source.parent}", "-pthread", "-ldl",
                       *(f"-D{name}={value}" for name, value in named.items()))
    done = subprocess.run([program, "1", str(CALLS)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
    assert "launched" in done.stdout


@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler `c++`")
def test_a_pack_is_c_plus_plus_too(pack: export.Exported, tmp_path: Path) -> None:
    for standard in ("-std=c++11", "-std=c++20"):
        flags = "-x", "c++", standard, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"
        compiled([pack.files[1]], tmp_path / "pack.so", *flags, compiler=CXX)


def test_thousands_of_choices_are_pythons(pack: export.Exported, tmp_path: Path) -> None:
    """Any number of rows of any product, with lines of scales of every rest: that of the next number of rows of its table."""
    library, rng = loaded(pack.files[1], driver_library(tmp_path), Recorder()), random.Random(7)
    by_kind: dict[Any, dict[bool, Any]] = {}
    for table in pack.tables:
        by_kind.setdefault((table.layer.kind, table.layer.n, table.layer.k), {})[table.layer.padded] = table
    for _ in range(5000):
        (kind, n, k), tables = rng.choice(list(by_kind.items()))
        m = rng.choice((rng.randint(1, 300), rng.randint(1, 20_000), rng.randint(1, 1 << 31)))
        line = rng.choice((0, -(-m // 4) * 4, m + rng.randint(0, 7)))
        found = library.pack_choice(ctypes.byref(Product(list(KINDS).index(kind), m, n, k, a_scale_ld=line)))
        if kind == "fp8-block":
            table = tables.get((line or m) % 4 == 0)
            if table is not None and not table.layer.padded and m > table.choices[-1][0]:
                table = None
        else:
            table = tables[False]
        if table is None:
            assert (found, said(library, "pack")[:24]) == (-1, "the lines of a_scale hav"), (kind, m, line)
        else:
            assert pack.configs[found] == table.chosen(m), (kind, m, line)


@pytest.mark.parametrize(("a", "d", "ldd", "overlaps"), [
    (0x100000, 0x100000, 0, True), (0x100000, 0x100000 + 64 * 7168 * 2 - 16, 0, True), (0x100000, 0x100000 + 64 * 7168 * 2, 0, False),
    (0x100000, 0x100000 + 2 * 2112, 7168, True), (0x100000, 0x100000 - 2 * 256, 7168, True), (0x100000, 0x100000 - 2 * 256 * 64, 0, False)])
def test_a_result_in_the_memory_of_an_operand_is_refused(pack: export.Exported, tmp_path: Path, a: int, d: int, ldd: int,
                                                         overlaps: bool) -> None:
    table = next(table for table in pack.tables if table.layer.kind == "bf16" and (table.layer.n, table.layer.k) == (256, 7168))
    driver = compiled([HERE / "libfuzz.c"], tmp_path / "libfuzz.so", "-shared", "-fPIC")
    library = ctypes.CDLL(str(compiled([pack.files[1]], tmp_path / "pack.so", *STRICT, "-shared", "-fPIC", f'-DPTXKIT_LIBCUDA="{driver}"')))
    product = Product(0, 64, table.layer.n, table.layer.k, a, 0x40000000, d, 0, 0, ldd, workspace=0x80000000, workspace_bytes=1 << 30)
    assert library.pack_gemm(ctypes.byref(product), None) == (5 if overlaps else 0), said(library, "pack")
    assert not overlaps or said(library, "pack").startswith("d and a share memory: ")
