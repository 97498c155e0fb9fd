"""`ptxkit simulate`: numbers against NumPy, the exit status, launch files that run again, and launches that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit.cli.main import main

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
ADD = ["--arg", "a=normal:f32:1000", "--arg", "b=normal:f32:1000:seed=7", "--arg", "out=poison:f32:1000", "--arg", "1000"]
RACE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry last(.param .u64 .ptr .global out)
.reqntid 32
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    st.relaxed.gpu.global.u32 [%rd1+4], %r1;
    ret;
}
"""

pytestmark = pytest.mark.pure


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["emit", f"{ROOT}/examples/vector_add.py:vector_add", "-o", "add.ptx"]) == 0
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What the command prints: on stdout, or on stderr when the status is 2."""
    assert main(["simulate", *arguments]) == status
    printed = capsys.readouterr()
    assert bool(printed.err) is (status == 2)
    return printed.err if status == 2 else printed.out


def normal(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def test_ptx_text_and_the_kernel_give_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "add.ptx", "--grid", "4", *ADD, "-o", "out=out.npy")
    assert text.startswith("vector_add: clean: 640 warp instructions, schedule fifo\nevery schedule of this input is equivalent")
    assert np.array_equal(np.load("out.npy"), normal(1000, 0) + normal(1000, 7))
    assert said(capsys, f"{ROOT}/examples/vector_add.py:vector_add", "--grid", "4", *ADD) == text
    np.save("a.npy", normal(1000, 0))
    assert said(capsys, "add.ptx", "--grid", "4x1", "--arg", "n=1000", "--arg", "c=poison:f32:1000", "--arg", "a.npy", *ADD[2:4],
                "-o", "c=c.npy").startswith("vector_add: clean")
    assert np.array_equal(np.load("c.npy"), np.load("out.npy"))


def test_other_compilers_kernels(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    product = ("--grid", "2x2", "--smem", "16384", "--arg", "a=randint:bf16:128x64:low=-3:high=4",
               "--arg", "b=randint:bf16:64x64:low=-3:high=4", "--arg", "c=poison:bf16:128x64",
               "--arg", "64", "--arg", "64", "--arg", "0", "--arg", "0")
    assert said(capsys, f"{CORPUS}/triton_matmul.ptx", *product, "--schedules", "2", "-o", "c=c.npy").startswith("proven: matmul")
    rng = [np.random.default_rng(seed).integers(-3, 4, shape) for seed, shape in ((0, (128, 64)), (1, (64, 64)))]
    bits = np.load("c.npy").view(np.uint16).astype(np.uint32) << 16
    wanted = (rng[0] @ rng[1]).astype(np.float32)
    assert np.abs(bits.view(np.float32) - wanted).max() <= np.abs(wanted).max() / 256
    softmax = ("--grid", "3", "--smem", "1024", "--arg", "x=normal:f32:3x200", "--arg", "y=poison:f32:3x200", "--arg", "total=zeros:f32:1",
               "--arg", "200", "--arg", "0", "--arg", "0")
    assert main(["simulate", f"{CORPUS}/triton_softmax.ptx", *softmax, "-o", "y=y.npy"]) in (0, 1)    # its atomic sum has an open order
    power = np.exp(normal(600, 0).reshape(3, 200))
    assert np.allclose(np.load("y.npy"), power / power.sum(1, keepdims=True), rtol=1e-5)


def test_tensor_maps_of_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name and in order; as text with maps, and as a kernel, which says its tiles itself."""
    kernel = f"{ROOT}/examples/tma_copy.py:tma_copy"
    assert main(["emit", kernel, "-o", "copy.ptx"]) == 0
    capsys.readouterr()
    at = ("--grid", "2x2", "--arg", "old=normal:f32:128x64", "--arg", "new=poison:f32:128x64")
    maps = {"ordered": ("--tensormap", "x=old,box=64x32,swizzle=128", "--tensormap", "y=new,box=64x32,swizzle=128"),
            "named": ("--tensormap", "target=new,swizzle=128,box=64x32", "--tensormap", "source=old,box=64x32,swizzle=128,fill=nan")}
    for name, given in maps.items():
        said(capsys, "copy.ptx", *at, *given, "-o", f"new={name}.npy", "--record", f"{name}.toml")
        said(capsys, "--spec", f"{name}.toml", "-o", f"new={name}.npy")
        assert np.array_equal(np.load(f"{name}.npy"), normal(128 * 64, 0).reshape(128, 64))
    said(capsys, kernel, *at, "-o", "new=plain.npy")
    assert np.array_equal(np.load("plain.npy"), np.load("named.npy"))
    direct = ("--tensormap", "source=normal:f32:128x64,box=64x32,swizzle=128",
              "--tensormap", "target=poison:f32:128x64,box=64x32,swizzle=128")
    said(capsys, "copy.ptx", "--grid", "2x2", *direct, "-o", "target=direct.npy")
    assert np.array_equal(np.load("direct.npy"), np.load("named.npy"))
    target, source = maps["named"][:2], maps["named"][2:]
    for given, message in (((*target, *source, "--arg", "1"), "too many arguments"),
                           (("--grid", "1", "--tensormap", "target=zeros:f32:8x8,box=8x8"), "nothing is given for `source` (a tensor"),
                           ((*target, "--tensormap", "source=old,box=64"), "box (64,) has 1 extents, the array has 2 dimensions"),
                           ((*target, "--tensormap", "source=old,box=64x48,swizzle=128"), "cannot be encoded"),
                           (target, "`source` is a tensor map: say which, as in --tensormap source=old,box=")):
        assert message in said(capsys, "copy.ptx", *(() if given[0] == "--grid" else at), *given, status=2)


def test_a_launch_file_runs_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = said(capsys, "add.ptx", "--grid", "4", *ADD, "--schedules", "3", "--record", "launch.toml")
    (here / "below").mkdir()
    assert said(capsys, "--spec", "launch.toml", "--record", "below/again.toml") == first
    assert said(capsys, "--spec", "below/again.toml") == first
    assert 'source = "../add.ptx"' in (here / "below" / "again.toml").read_text()
    assert said(capsys, "--spec", "launch.toml", "--schedule", "random", "--seed", "3").startswith("vector_add: clean: 640 warp "
                                                                                                  "instructions, schedule random 3\n")
    assert sorted(path.name for path in here.iterdir()) == ["add.ptx", "below", "launch.toml"]


def test_schedules_that_leave_different_memory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "race.ptx").write_text(RACE)
    text = said(capsys, "race.ptx", "--grid", "4", "--arg", "out=zeros:u32:4", "--schedules", "4", status=1)
    assert text.startswith("not proven: last, 4 schedules")
    assert "memory differs: `out`[1] is 3 in schedule fifo, 0 in schedule reverse" in text
    found = json.loads(said(capsys, "race.ptx", "--grid", "4", "--arg", "out=zeros:u32:4", "--schedules", "4", "--json", status=1))
    assert (found["proven"], found["difference"]["index"], found["difference"]["values"]) == (False, [1], ["3", "0"])
    assert [run["schedule"] for run in found["runs"]] == ["fifo", "random", "reverse", "adversarial"]


def test_a_fault_is_status_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = [*ADD[:4], "--arg", "out=poison:f32:900", "--arg", "1000"]
    assert "error [out-of-bounds]" in said(capsys, "add.ptx", "--grid", "4", *short, status=1)
    assert "error [out-of-bounds]" in said(capsys, "add.ptx", "--grid", "4", *short, "--no-check", status=1)
    assert "not checked" in said(capsys, "add.ptx", "--grid", "4", *ADD, "--no-check")
    assert main(["simulate", "gone.ptx", "--grid", "1"]) == 1


BAD = {
    "too few arguments": (["--grid", "4", *ADD[:4]], "nothing is given for `c` (an array), `n` (a number of type .u32)"),
    "a misspelt number": (["--grid", "4", *ADD[:6], "--arg", "nn=1000"], "`vector_add` has no parameter `nn`; did you mean `n`?"),
    "a number of no parameter": (["--grid", "4", *ADD[:6], "--arg", "q=1000"], "it has `a`, `b`, `c`, `n`. Without a name a value"),
    "too many": (["--grid", "4", *ADD, "--arg", "5"], "no parameter of `vector_add` is left for 5"),
    "no grid": ([*ADD], "does not say its grid"),
    "a bad grid": (["--grid", "4x0", *ADD], "--grid is one to three positive extents as in 4 or 4x2, not '4x0'"),
    "twice": (["--grid", "4", *ADD[:6], "--arg", "a=1"], "two arguments are for the parameter `a`"),
    "an unknown generator": (["--grid", "4", *ADD[:6], "--arg", "random:f32:3"], "neither a number, nor a .npy file, nor a generator"),
    "an unknown type": (["--grid", "4", "--arg", "zeros:f12:3", *ADD[2:]], "there is no element type 'f12'; there are u8"),
    "a bad shape": (["--grid", "4", "--arg", "zeros:f32:3x-1", *ADD[2:]], "the shape is positive extents as in 512x512, not '3x-1'"),
    "a huge shape": (["--grid", "4", "--arg", "zeros:f32:99999x99999", *ADD[2:]], "39,999,200,004 bytes, at most"),
    "an unknown option": (["--grid", "4", "--arg", "zeros:f32:3:seed=1", *ADD[2:]], "zeros has no option 'seed=1'; it has none"),
    "no such file": (["--grid", "4", "--arg", "gone.npy", *ADD[2:]], "cannot read gone.npy: No such file"),
    "not a npy file": (["--grid", "4", "--arg", "bad.npy", *ADD[2:]], "bad.npy is no array of numbers in NumPy's format"),
    "texts in a file": (["--grid", "4", "--arg", "texts.npy", *ADD[2:]], "texts.npy has elements of <U1, which no kernel can use"),
    "an option twice": (["--grid", "4", "--arg", "normal:f32:9:std=1:std=2", *ADD[2:]], "std is given twice"),
    "a value of no such type": (["--grid", "4", "--arg", "full:u8:9:value=300", *ADD[2:]], "300 is no value of uint8, which has 0 to 255"),
    "an array for a number": (["--grid", "4", *ADD[:6], "--arg", "zeros:f32:3"], "`n`"),
    "a number that does not fit": (["--grid", "4", *ADD[:6], "--arg", "5000000000"], "`n`: 5000000000 does not fit its 32 bits"),
    "a map with no array": (["--grid", "4", *ADD, "--tensormap", "m=x,box=8x8"], "there is no array 'x'; there are a, b, out"),
    "a map with no place": (["--grid", "4", *ADD, "--tensormap", "m=a,box=8"], "too many tensor maps"),
    "an unknown schedule": (["--grid", "4", *ADD, "--schedule", "worst"], "there is no schedule 'worst'; there are fifo, random"),
    "an unknown output": (["--grid", "4", *ADD, "-o", "z=z.npy"], "there is no array 'z'; there are a, b, out"),
    "a folder that is not there": (["--grid", "4", *ADD, "-o", "out=no/z.npy"], "cannot write no/z.npy"),
    "a bad block": (["--grid", "4", "--block", "64", *ADD], "conflicts with .reqntid"),
    "a compile-time parameter": (["--grid", "4", *ADD, "--set", "BM=3"], "--set is for kernels"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_launch_that_does_not_fit(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad.npy").write_bytes(b"no array")
    np.save(here / "texts.npy", np.array(["a"]))
    before = sorted(here.iterdir())
    arguments, message = BAD[case]
    assert message in said(capsys, "add.ptx", *arguments, "--record", "launch.toml", status=2)
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(("old", "new", "message"), [
    ("grid = [4]", "grid = [0]", "grid is positive extents as in [4, 2], not [0]"),
    ("grid = [4]", "gird = [4]", "there is no key 'gird'; there are source"),
    ("source =", "# source =", "source is missing"),
    ('array = "a"', 'array = "z"', "there is no array 'z' in [arrays]"),
    ('"normal:f32:1000:seed=0"', "3", "the array a is a generator"),
    ("grid = [4]", "grid = [4", "is no TOML"),
    ('value = "1000"', "values = 3", "an argument has no key 'values'"),
])
def test_a_bad_launch_file(old: str, new: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "add.ptx", "--grid", "4", *ADD, "--record", "launch.toml")
    file = here / "launch.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    capsys.readouterr()
    assert main(["simulate", "--spec", "launch.toml"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("text", "status", "message"), [
    ("def (:", 2, "made.py:1: made.py is no Python: invalid syntax"),
    ("import ptxkit\n\nraise KeyError('x')", 2, "made.py:3: made.py cannot be imported: KeyError: 'x'"),
    ("import no_such_package", 2, "made.py:1: made.py imports no_such_package, which is not installed"),
    ("import ptxkit\n@ptxkit.kernel(block=32)\ndef k() -> None:\n    raise KeyError('x')", 1, "made.py:4: KeyError: 'x'"),
])
def test_a_module_that_raises_is_told_with_its_line(text: str, status: int, message: str, here: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (here / "made.py").write_text(text)
    assert main(["simulate", "made.py:k", "--grid", "1"]) == status
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == ["add.ptx", "made.py"]


def test_arrays_of_other_numbers_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("c.npy", np.array([1, np.inf], np.complex64))
    (here / "race.ptx").write_text(RACE)
    assert "complex64" in said(capsys, "race.ptx", "--grid", "1", "--arg", "c.npy", "--no-check")


def test_the_grid_before(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stores before griddepcontrol.wait race with a grid that still reads; after it they do not. The launch file says it again."""
    early = RACE.replace("    mov.u32 %r1", "    griddepcontrol.wait;\n    mov.u32 %r1")
    (here / "after.ptx").write_text(early)
    (here / "before.ptx").write_text(RACE.replace("    ret;", "    griddepcontrol.wait;\n    ret;"))
    given = ("--grid", "1", "--arg", "out=zeros:u32:4", "--previous-reads", "out")
    said(capsys, "after.ptx", *given)
    assert "error [" in said(capsys, "before.ptx", *given, "--record", "launch.toml", status=1)
    assert "error [" in said(capsys, "--spec", "launch.toml", status=1)
    assert "previous[\"reads\"] names 'in'" in said(capsys, "after.ptx", *given[:4], "--previous-reads", "in", status=2)
