"""Commands with closed and full streams, pipes as files, files of other kinds, outputs that cannot be written, and wrong command lines."""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxkit import settings
from ptxkit.cli.main import main, parser
from ptxkit.cli.messages import shown
from ptxkit.gemm.__main__ import _parser as gemm_parser

from . import planted
from .folders import KNOWN, with_kernels
from .other_user import ROOT, as_other, open_folder

pytestmark = pytest.mark.pure
posix = pytest.mark.skipif(os.name != "posix", reason="streams of POSIX")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return with_kernels(tmp_path, monkeypatch)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as `here`, made the working directory, that another user may reach."""
    with open_folder() as folder:
        yield with_kernels(folder, monkeypatch)


# --------------------------------------------------------------------------------------------------- streams

FORKS = """
import errno, json, os, sys
from ptxkit.cli.main import main

def one(arguments, streams):
    messages = os.memfd_create("stderr")
    child = os.fork()
    if child == 0:
        os.dup2(messages, 2)
        sys.stderr = open(2, "w", closefd=False)
        sys.stdout = open(1, "w", closefd=False)
        for number, what in streams.items():
            if what == "closed":
                os.close(int(number))
                setattr(sys, ("stdin", "stdout", "stderr")[int(number)], None)
            elif what == "gone":
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(writer, int(number))
            else:
                os.dup2(os.open(what, os.O_RDWR), int(number))
        sys.argv[1:] = arguments
        sys.exit(main())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.lseek(messages, 0, 0)
    return status, os.read(messages, 100_000).decode()

cases, stdout = json.load(sys.stdin), sys.stdout
for arguments in {tuple(arguments): 0 for arguments, _ in cases}:      # loads what the children need
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.stdin = open(os.devnull)
    try:
        main(arguments)
    except SystemExit:
        pass
stdout.write(json.dumps([one(*case) for case in cases]))
"""


def ended(cases: list[tuple[list[str], dict[str, str]]]) -> list[tuple[int, str]]:
    """The exit status and the messages of each command, whose streams are closed, gone (a pipe that nobody reads) or a device."""
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    done = subprocess.run([sys.executable, "-c", FORKS], input=json.dumps([(a, s) for a, s in cases]), capture_output=True, text=True,
                          check=True, env={**os.environ, "PYTHONPATH": path})
    return [(status, said) for status, said in json.loads(done.stdout[done.stdout.rindex("[["):])]


TALKING = [["emit", KNOWN], ["check", "k.ptx"], ["check", "k.ptx", "--json"], ["explain", "add.u32"], ["cache", "--json"],
           ["explain", "no.such.thing", "--json"], ["emit", "--json"], ["gemm", "--help"], ["--version"]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full")
def test_a_stdout_that_takes_nothing_is_one_sentence() -> None:
    sentence = "cannot write to stdout: "
    says = {"gone": "", "closed": f"{sentence}Bad file descriptor\n", "/dev/full": f"{sentence}No space left on device\n"}
    cases = [(arguments, {"1": what}) for arguments in TALKING for what in says]
    for (arguments, streams), (status, said) in zip(cases, ended(cases), strict=True):
        assert status == (141 if streams["1"] == "gone" else 1), (arguments, streams, said)
        assert said.endswith(says[streams["1"]]), (arguments, streams, said)
        assert "Traceback" not in said
        assert "Exception ignored" not in said
        assert said.count("\n") <= 3


@posix
def test_other_streams_that_are_closed() -> None:
    cases: list[tuple[list[str], dict[str, str]]] = [
        (["check", "-"], {"0": "closed"}), (["check", "-", "--json"], {"0": "closed"}), (["inspect", "-"], {"0": "closed"}),
        (["diff", "-", "k.ptx"], {"0": "closed"}), (["lift", "-"], {"0": "closed"}), (["simulate", "-"], {"0": "closed"}),
        (["check", "/dev/stdin"], {"0": "closed"}), (["emit", "no_module:k"], {"2": "closed"}),
        (["emit", "no_module:k"], {"2": "gone"}),
        (["emit", "--loud"], {"2": "closed"}), (["emit", KNOWN, "-o", "made.ptx"], {"0": "closed", "1": "closed", "2": "closed"})]
    found = ended(cases)
    assert [status for status, _ in found] == [1] * 7 + [2, 2, 2, 0]
    for (arguments, _), (_, said) in list(zip(cases, found, strict=True))[:6]:
        assert said.startswith("ptxkit: "), arguments
        assert said.count("\n") == 1, (arguments, said)
    assert all(said == "" for _, said in found[7:])
    assert ".entry store" in Path("made.ptx").read_text()


@posix
def test_from_outside() -> None:
    """As a shell runs it, once for each kind: a pipe that is closed, process substitution, /dev/stdin, no stdin."""
    command = f"{sys.executable} -m ptxkit"
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])

    def shell(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})

    piped = shell(f"set -o pipefail; {command} explain | true <&-; echo ${{PIPESTATUS[0]}}")
    assert (piped.stdout.splitlines()[-1], piped.stderr.count("Traceback")) == ("141", 0)
    assert shell(f"{command} check <(cat k.ptx) /dev/stdin < k.ptx").stdout.count("no findings") == 2
    for line in ("inspect <(cat k.ptx) >&-", "diff k.ptx - <&-"):
        done = shell(f"{command} {line}")
        assert done.returncode == 1, done
        assert re.fullmatch(r"(ptxkit: .*\n){1,2}", done.stderr), done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full")
def test_help_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where stdout is not buffered, as with PYTHONUNBUFFERED, argparse would see the error, and drop it."""
    for arguments in (["--help"], ["--version"], ["check", "--help"], ["gemm", "run", "--help"]):
        with monkeypatch.context() as patched, open("/dev/full", "wb", buffering=0) as full:
            patched.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
            assert main(arguments) == 1
            sys.stdout.detach()
        assert capsys.readouterr().err.endswith("cannot write to stdout: No space left on device\n")


# --------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("command", ["check", "assemble", "inspect", "lift", "diff", "simulate"])
def test_a_file_of_python_is_not_read_as_ptx(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main([command, "kernels_of_a_test.py", *(["k.ptx"] if command == "diff" else [])])
    said = capsys.readouterr()
    assert (status, said.out) == (1, "")
    assert said.err == ("ptxkit: kernels_of_a_test.py is Python, not PTX: name a kernel, as kernels_of_a_test.py:store; "
                        "it has store, broken\n")


def test_other_files_are_named_for_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.py").write_text("def (")
    Path("a.cu").write_text("int main() {}")
    Path("b.ptx").write_bytes(b"\x7fELF" + bytes(100))
    Path("c.ptx").write_bytes("x".encode("utf-16"))
    for name, word in (("none.py", "as none.py:KERNEL"), ("a.cu", "`nvcc -ptx` makes PTX of it"), ("b.ptx", "is machine code"),
                       ("c.ptx", "is UTF-16"), (".", "is a folder")):
        assert main(["check", name]) == 1
        assert word in capsys.readouterr().err
    assert main(["emit", "kernels_of_a_test.py"]) == 2
    assert "is a file, not module:kernel: name a kernel, as kernels_of_a_test.py:store" in capsys.readouterr().err


@posix
@pytest.mark.ptxas
@pytest.mark.parametrize("command", ["inspect", "diff"])
def test_a_pipe_is_read_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands look at the first bytes, which a pipe gives only once."""
    reader, writer = os.pipe()
    os.write(writer, planted.CLEAN.encode())
    os.close(writer)
    try:
        status = main([command, f"/dev/fd/{reader}", *(["k.ptx"] if command == "diff" else [])])
    finally:
        os.close(reader)
    assert status == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


def test_check_takes_several(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.ptx").write_text(planted.CLEAN.replace("wgmma.fence", "wgmma.fense"))
    assert main(["check", "k.ptx", KNOWN]) == 0
    assert capsys.readouterr().out.splitlines() == ["k.ptx: no findings", f"{KNOWN}: no findings"]
    assert main(["check", "k.ptx", "wrong.ptx", "none.ptx", KNOWN]) == 1
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.out.splitlines() if line.endswith(("findings", "error"))] == [
        "k.ptx", "wrong.ptx", "kernels_of_a_test"]
    assert said.err.startswith("ptxkit: there is no file none.ptx")
    assert main(["check", "k.ptx", "wrong.ptx", "none.ptx", "--json", "--sarif", "f.sarif"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [each["source"] for each in data["sources"]] == ["k.ptx", "wrong.ptx"]
    assert data["counts"]["error"] == sum(each["counts"]["error"] for each in data["sources"]) > 0
    assert list(data["errors"]) == ["none.ptx"]
    assert len(json.loads(Path("f.sarif").read_text())["runs"]) == 2
    assert main(["check", "k.ptx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "k.ptx"


# --------------------------------------------------------------------------------------------------- what is written


@posix
@pytest.mark.parametrize("arguments", [["emit", KNOWN], ["lift", "k.ptx"], ["check", "k.ptx", "--sarif"]])
def test_an_output_that_cannot_be_written(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    option = [] if arguments[-1] == "--sarif" else ["-o"]
    Path("file").write_text("as it was")
    outputs = [".", "no/such/place", "file/below", "a" * 300, *(["/dev/full"] if sys.platform.startswith("linux") else [])]
    for output in outputs:
        assert main([*arguments, *option, output]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"ptxkit: cannot write {shown(output)}: ")
        assert said.count("\n") == 1
    assert Path("file").read_text() == "as it was"
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]
    assert main([*arguments, *option, "file"]) == 0
    assert Path("file").read_text() != "as it was"


def test_an_output_that_another_user_may_not_write(reached: Path) -> None:
    (reached / "file").write_text("as it was")
    imports = ("from ptxkit.cli.main import main\nsys.path.insert(0, sys.argv[1])\n"
               "main(['emit', 'kernels_of_a_test:store', '-o', os.devnull])")
    program = "os.chdir(sys.argv[1]); sys.exit(main(['emit', 'kernels_of_a_test:store', '-o', sys.argv[2]]))"
    if os.geteuid() != 0:
        (reached / "file").chmod(0o400)
        reached.chmod(0o500)
    try:
        for name in ("file", "new"):
            done = as_other(imports, program, reached, name, PTXKIT_CACHE_DIR="off")
            assert (done.returncode, done.stdout) == (2, ""), done.stderr
            assert done.stderr == f"ptxkit: cannot write {name}: Permission denied\n"
    finally:
        reached.chmod(0o755)
    assert (reached / "file").read_text() == "as it was"
    assert not (reached / "new").exists()


def test_a_file_that_another_user_may_not_read_is_there(reached: Path) -> None:
    """So is one in a folder that he may not enter."""
    (reached / "locked").mkdir()
    for name in ("secret.ptx", "locked/k.ptx"):
        (reached / name).write_text(planted.CLEAN)
        (reached / name).chmod(0)
    (reached / "locked").chmod(0)
    commands = ("name = {}\nfor command in (['check', name], ['lift', name], ['diff', name, name], ['simulate', name]):\n"
                "    status = main(command)\n    print(status, file=sys.stderr)")
    imports = ("from ptxkit.cli.main import main\nos.chdir(sys.argv[1]); err, sys.stderr = sys.stderr, open(os.devnull, 'w')\n"
               + commands.format("'k.ptx'") + "\nsys.stderr = err")
    program = commands.format("sys.argv[2]")
    try:
        for name in ("secret.ptx", "locked/k.ptx"):
            done = as_other(imports, program, reached, name, PTXKIT_CACHE_DIR="off")
            assert done.stderr == f"ptxkit: cannot read {name}: Permission denied\n1\n" * 4
    finally:
        (reached / "locked").chmod(0o755)


# --------------------------------------------------------------------------------------------------- what is asked for


def ended_in_process(arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


def commands() -> list[list[str]]:
    """Every command of both command lines."""
    ours = re.findall(r"^    (\w+)", parser().format_help(), re.MULTILINE)
    gemms = re.findall(r"^    (\w+)", gemm_parser("ptxkit gemm").format_help(), re.MULTILINE)
    return [[name] for name in ours if name not in ("gemm", "command")] + [["gemm", name] for name in gemms if name != "command"]


def test_a_wrong_call_is_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(commands()) > 22
    for command in commands():
        assert ended_in_process([*command, "--no-such-option", "--json"]) == 2, command
        said = capsys.readouterr()
        assert json.loads(said.out)["error"], command
        assert "Traceback" not in said.err
    for arguments in (["emit", "nothing:at_all", "--json"], ["diff", "k.ptx", "--json"], ["check", "k.ptx", "--set", "A=1", "--json"],
                      ["sing", "--json"], ["debug", "k.ptx", "--json"], ["simulate", "--json"],
                      ["gemm", "run", "--set", "stages=x", "--device", "sim", "--json"],
                      ["gemm", "explain", "-m", "64", "-n", "64", "-k", "64", "--shared", "a", "--json"],
                      ["gemm", "bench", "--shapes", "x", "--json", "-"], ["gemm", "tune", "--json"]):
        assert ended_in_process(arguments) == 2
        assert json.loads(capsys.readouterr().out)["error"], arguments


@pytest.mark.parametrize("variable", ["PTXKIT_CACHE_MB", "PTXKIT_LOG"])
def test_a_wrong_setting_is_status_2_of_every_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                      variable: str) -> None:
    monkeypatch.setenv(variable, "9" * 5000)
    settings.settings.cache_clear()
    try:
        for command in commands():
            assert main(command) == 2, command
            said = capsys.readouterr()
            assert said.out == ""
            assert re.fullmatch(rf"(ptxkit|error): {variable}=.*\n", said.err)
    finally:
        settings.settings.cache_clear()


@pytest.mark.parametrize("value", ["-5", "x", "1.5", "9" * 5000, "1_0", "٣", "", "1e3", "nan", "inf"])
def test_numbers_that_are_none(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["diff", "k.ptx", "k.ptx", f"--context={value}"], ["explain", "--swizzle", "128B", f"--rows={value}"],
                      ["simulate", "k.ptx", f"--seed={value}"], ["simulate", "k.ptx", f"--max-steps={value}"],
                      ["gemm", "run", f"-m={value}"], ["gemm", "explain", "-m", "1", "-n", "1", f"-k={value}"],
                      ["gemm", "run", f"--seed={value}"], ["gemm", "bench", f"--rounds={value}"]):
        assert ended_in_process(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert "error: argument" in said


@pytest.mark.parametrize(("given", "says"), [
    ("VALUE=abc", "`VALUE` is an int, not 'abc'"), ("VALUE=1.5", "not '1.5'"), ("VALUE=", "not ''"), ("VALUE=[1]", "is an int"),
    ("VALUE=True", "is an int"), ("VALUE=" + "(" * 300, "is an int"), ("VALUE=" + "9" * 5000, "is an int"), ("VALUE=\x00", "NUL")])
def test_a_value_of_another_type(given: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", KNOWN, "--set", given]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert len(said) < 6000


def test_values_of_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    Path("typed.py").write_text("from ptxkit import Ptr, kernel\nfrom ptxkit.types import f32, u32\n\n\n@kernel(block=32)\n"
                                "def k(out: Ptr[u32], *, A: int = 1, B: bool = False, C: float = 1.0, D: str = 'x', E=None, F=f32):\n"
                                "    assert all(type(each) is kind for each, kind in ((A, int), (B, bool), (D, str))), (A, B, D)\n"
                                "    assert isinstance(C, (int, float))\n")
    for given in ("A=-3", "B=True", "B=1", "B=0", "C=2", "C=2.5", "D=7", "D=word", "E=3", "E=word", "E=None", "F=u32"):
        assert main(["emit", "typed.py:k", "--set", given]) == 0, capsys.readouterr().err
    for given in ("A=word", "B=word", "B=7", "C=word"):
        assert main(["emit", "typed.py:k", "--set", given]) == 2, given


def test_any_command_line_ends_in_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    """A few hundred command lines made of words that commands know, and of what they do not."""
    chance = random.Random(11)
    words = ["emit", "check", "explain", "diff", "lift", "cache", "inspect", "k.ptx", KNOWN, "kernels_of_a_test.py", ".", "none.ptx", ":",
             "a:b:c", "--set", "VALUE=3", "VALUE=x", "VALUE.a=1", "=", "--json", "-o", "out", "--strict", "--sarif", "-", "--context", "-5",
             "--rows", "0", "--swizzle", "128B", "--descriptor", "0x10", "--tensormap", "type=bf16", "add", "wgmma.fence", "é", "\udcff",
             "",
             "--", "-e", "k", "--view", "--target", "sm_90a", "--no-resources", "--language", "--locs", "\n", "x" * 300,
             "kernels_of_a_test:broken"]
    sys.stdin = open(os.devnull)  # noqa: SIM115
    try:
        for _ in range(150):
            arguments = [chance.choice(words[:6]), *(chance.choice(words) for _ in range(chance.randrange(5)))]
            assert ended_in_process(arguments) in (0, 1, 2), arguments
            said = capsys.readouterr()
            assert "Traceback" not in said.err, arguments
            assert "a fault of ptxkit" not in said.err, (arguments, said.err)
            assert not re.search(r"<frozen|cli/main\.py|cli/guard\.py", said.err), (arguments, said.err)
    finally:
        sys.stdin.close()
        sys.stdin = sys.__stdin__


# --------------------------------------------------------------------------------------------------- places


def test_no_message_points_at_what_started_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m ptxkit` runs through Python's own modules, which are nobody's kernel."""
    Path("needs.py").write_text("from ptxkit import Ptr, kernel\nfrom ptxkit.types import u32\n\n\n"
                                "@kernel(block=lambda config: config['N'])\ndef k(out: Ptr[u32], *, N: int = 5000): ...\n\n\n"
                                "@kernel(block=32)\ndef j(out: Ptr[int]): ...\n")
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    for source in ("needs.py:k", "needs.py:j"):
        done = subprocess.run([sys.executable, "-m", "ptxkit", "emit", source], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 1
        assert "<frozen" not in done.stderr
        assert "__main__" not in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(("line", "says"), [
    ("import sys; sys.exit(7)", "ends Python when it is imported (status 7): put what is only for a program below `if __name__"),
    ("raise SystemExit", "ends Python when it is imported (status None)"), ("exit('no')", "ends Python when it is imported (status 'no')"),
    ("raise GeneratorExit", "cannot be imported: GeneratorExit"), ("x = bytearray(1 << 60)", "cannot be imported: MemoryError"),
    ("def f(): f()\nf()", "cannot be imported: RecursionError"), ("x = '\0'", "is no Python"),
    ("def __getattr__(name): raise ValueError(name)", "ValueError: store")])
def test_a_module_that_cannot_be_imported_says_why(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.py").write_text(line)
    for source in ("odd.py:store", "odd:store"):
        sys.modules.pop("odd", None)
        assert ended_in_process(["emit", source, "--json"]) in (1, 2)
        said = capsys.readouterr()
        assert says in said.err
        assert said.err.count("\n") == 1
        assert json.loads(said.out)["error"] in said.err


def test_a_kernel_that_ends_python_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ends.py").write_text("import sys\nfrom ptxkit import Ptr, kernel\nfrom ptxkit.types import u32\n\n\n"
                               "@kernel(block=32)\ndef k(out: Ptr[u32]) -> None:\n    sys.exit(0)\n")
    assert main(["check", "ends.py:k"]) == 1
    assert re.fullmatch(r"ptxkit: .*ends\.py:8: SystemExit: 0: a kernel cannot end Python, raise an error\n", capsys.readouterr().err)


def test_a_trace_in_a_thread_does_not_point_at_the_pool() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from ptxkit.errors import TraceError

    from .importable import store

    with ThreadPoolExecutor(1) as pool, pytest.raises(TraceError) as caught:
        pool.submit(store.ptx, M=1).result()
    assert caught.value.position is None
    assert str(caught.value).startswith("kernel `store` has no compile-time parameter `M`")
