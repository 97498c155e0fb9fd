"""`python -m ptxkit.gemm` as a user runs it on the CPU device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ptxkit.errors import LaunchError
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools import run, timeline
from tests.conftest import why_no_gpu


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ptxkit.gemm", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.ptxas
def test_it_shows_resources_executes_and_gives_a_verdict():
    done = command("run", "--device", "sim", "-m", "256", "-n", "264", "-k", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64x32x64, A and B swapped, 16 stages, 1 mma warpgroup" in done.stdout
    assert "spills (bytes stored, loaded)   0, 0" in done.stdout
    assert "executed on the CPU device" in done.stdout
    assert done.stdout.split("executed on")[1].splitlines()[0].endswith("right")
    assert "verdict: clean" in done.stdout


@pytest.mark.ptxas
def test_a_right_product_with_tickets_is_no_failure(capsys: pytest.CaptureFixture[str]):
    """The checker has no certificate for who draws which ticket, and says so."""
    assert main(["run", "--device", "sim", "-m", "200", "-n", "64", "-k", "128", "--set", "scheduler=Dynamic"]) == 0
    said = capsys.readouterr().out
    assert "verdict: incomplete" in said
    assert "order-dependence" in said


@pytest.mark.pure
@pytest.mark.parametrize("words", [["run", "--device", "sim"], ["timeline", "--device", "sim"]])
def test_a_product_that_takes_long_on_the_cpu_is_said_before(words: list[str], monkeypatch, capsys):
    """4096 x 4096 x 4096 is the default, a GPU's."""
    def begun(*_: object, **__: object) -> None:
        raise LaunchError("begun")

    monkeypatch.setattr(run, "simulated", begun)
    monkeypatch.setattr(timeline, "simulate", begun)
    for extents, long in ((["-m", "64", "-n", "64", "-k", "64"], False), ([], True)):
        assert main([*words, *extents]) == 1
        said = capsys.readouterr().err
        assert ("takes some 11 minutes: -m, -n and -k make it smaller" in said) == long
        assert "error: begun" in said


@pytest.mark.ptxas
def test_fields_of_the_configuration_are_set_by_path(capsys: pytest.CaptureFixture[str]):
    words = ("--card", "h100", "--set", "tile.BM=64", "--set", "schedule=Pingpong", "--set", "scheduler=Static(cluster=ClusterShape(m=2))")
    assert main(["run", "--device", "sim", "-m", "200", "-n", "64", "-k", "128", *words]) == 0
    said = capsys.readouterr().out
    assert "stages, pingpong, cluster 2x1, along m by 8" in said
    assert "verdict: clean" in said


@pytest.mark.pure
@pytest.mark.parametrize(("change", "sentence"), [
    ("tile.BM=96", "BM is 64, 128, 192 or 256, not 96"), ("tile.BQ=1", "Tile has no field 'BQ': it has BM, BN, BK"),
    ("schedule=Spiral", "schedule is Cooperative or Pingpong, not Spiral"), ("schedule.warpgroups=3", "cannot share 64 rows"),
    ("operands.out=f32", "not for this problem: its out is f32, the arguments need bf16"),
    ("scheduler=SplitK(splits=4)", "splits K 4 ways, and K = 64 has 1 stages")])
def test_a_configuration_that_cannot_be_is_one_sentence(change: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--device", "sim", "-m", "64", "-n", "64", "-k", "64", "--set", change]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert not said.out


@pytest.mark.ptxas
@pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")
def test_auto_takes_the_cpu_device_where_there_is_no_gpu():
    words = ("-m", "64", "-n", "64", "-k", "64", "--layout", "tn", "--dtype", "f16", "--out-dtype", "f32", "--schedule", "random")
    report = json.loads(command("hgemm", "--json", *words).stdout)
    assert report["device"] == "sim"
    assert report["verdict"] == "clean"
    assert 32 < report["resources"]["registers"] < 255


@pytest.mark.ptxas
@pytest.mark.parametrize("words", [("--dtype", "e4m3", "--b-dtype", "e5m2", "--batch", "2"), ("--dtype", "f32", "--out-dtype", "e4m3"),
                                   ("--batch", "3", "--layout", "tn")])
def test_other_types_and_batches(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--device", "sim", "--json", "-m", "40", "-n", "48", "-k", "96", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "clean"
    assert 0 < report["error_share"] <= 1


@pytest.mark.pure
@pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")
def test_a_gpu_asked_for_must_be_there():
    done = command("hgemm", "--device", "gpu", "-m", "64", "-n", "64", "-k", "64")
    assert done.returncode == 1
    assert "no NVIDIA driver was found" in done.stderr


@pytest.mark.pure
@pytest.mark.parametrize("words", [
    ("hgemm", "-m", "0"), ("hgemm", "--dtype", "f64"), ("run", "--layout", "nx"), ("run", "--batch", "0"), (), ("sgemm",),
    ("run", "--set", "tile.BM"), ("run", "--card", "b200"), ("tune", "--prepare", "--card", "b200")])
def test_usage_errors_exit_with_2(words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 2


@pytest.mark.pure
@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "1e3", "\u0663", "1,x", "9" * 30, "9" * 5000, "0x1", "1_0", "nan"])
def test_numbers_within_words_are_numbers(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Options that take a list, or the name of a draw, are read before anything runs."""
    for words in (["grouped", "-n", "64", "-k", "64", "--device", "sim", f"--tokens={value}"], ["bench", f"--shapes=random:1:{value}"],
                  ["bench", f"--shapes=random:{value}:{value}"], ["bench", "--grouped", f"--shapes=random:1:{value}"],
                  ["bench", f"--shapes=64x{value}x64"], ["bench", "--grouped", f"--shapes=8x64x{value}x64"],
                  ["grouped", "--compare", f"--cases=random:1:{value}"], ["tune", f"--shapes=64x{value}x64"],
                  ["export", "--model", "llama", f"--rows={value}", "-o", "q"]):
        try:
            status: object = main(words)
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr()
        assert status in (1, 2), words
        assert "fault of ptxkit" not in said.err, (words, said.err)
        assert said.out == ""
        assert len(said.err.splitlines()[-1]) < 700
