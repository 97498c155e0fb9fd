"""Tools that hang, flood, are cut short or say anything; settings that no program expects."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxkit import settings
from ptxkit.errors import AssembleError, NoToolError, SettingsError
from ptxkit.runtime import diagnostics, toolchain
from ptxkit.settings import VARIABLES, Settings

from . import planted
from .cubins import small
from .test_toolchain import fake_tool

ROOT = Path(__file__).parents[2]
scripts = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Settings and tools are read anew, and forgotten again after the test. Nothing is kept."""
    monkeypatch.setenv("PTXKIT_CACHE_DIR", "off")
    settings.settings.cache_clear()
    toolchain._tool.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    settings.settings.cache_clear()
    toolchain._tool.cache_clear()


def refused(environment: pytest.MonkeyPatch, tmp_path: Path, body: str) -> AssembleError:
    environment.setenv("PTXKIT_PTXAS", str(fake_tool(tmp_path, body)))
    with pytest.raises(AssembleError) as caught:
        toolchain.assemble(planted.CLEAN)
    return caught.value


# --------------------------------------------------------------------------------------------------- time


@scripts
@pytest.mark.parametrize(("last", "apart"), [("time.sleep(60)", False), ("sys.exit(0)", False), ("time.sleep(60)", True)])
def test_what_a_hanging_tool_has_started_ends_with_it(environment: pytest.MonkeyPatch, tmp_path: Path, last: str, apart: bool) -> None:
    """The child keeps the output open, as a wrapper's does. Told by the last line: the tool hangs, too, or has ended. `apart`: the child is
    of another group of processes, as one of `timeout` is."""
    environment.setattr(toolchain, "TIMEOUT_S", 1.0)
    environment.setattr(toolchain, "LINGER_S", 1.0)
    own = ", start_new_session=True" if apart else ""
    child = f"import subprocess; p = subprocess.Popen(['sleep', '60']{own}); open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); {last}"
    began = time.monotonic()
    said = str(refused(environment, tmp_path, child))
    assert time.monotonic() - began < 20
    assert ("did not finish in 1 s and was stopped" in said) == ("sleep" in last)
    process = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 5
    while _lives(process) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _lives(process)


HANGING = """
import sys
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)            # whatever the tests themselves are told to ignore, as under nohup
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from ptxkit.cli.main import main
main(["assemble", sys.argv[1]])
"""


@scripts
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the table of processes of Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_stopped_stops_its_assembler_and_cleans_up(tmp_path: Path, number: int) -> None:
    """It then ends as the signal says."""
    (tmp_path / "k.ptx").write_text(planted.CLEAN)
    (tmp_path / "temporary").mkdir()
    tool = fake_tool(tmp_path, f"open({str(tmp_path / 'new')!r}, 'w').write(str(os.getpid())); "
                               f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r}); time.sleep(60)")
    known = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary"), "PTXKIT_PTXAS": str(tool), "PTXKIT_CACHE_DIR": "off"}
    with subprocess.Popen([sys.executable, "-c", HANGING, str(tmp_path / "k.ptx")], env={**os.environ, **known}, stderr=subprocess.PIPE,
                          text=True) as running:
        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert len(list((tmp_path / "temporary").iterdir())) == 1
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (0 if number == signal.SIGINT else -number, "")    # this program drops the status of main
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not _lives(int((tmp_path / "pid").read_text()))


@scripts
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_a_tool_that_outlives_this_process_ends(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that is killed cannot stop it: the limit on its processor time does."""
    environment.setattr(toolchain, "TIMEOUT_S", 5.0)
    said = refused(environment, tmp_path, "import resource; print('CPU', resource.getrlimit(resource.RLIMIT_CPU), flush=True); sys.exit(1)")
    assert "CPU (65, 65)" in said.log


@scripts
@pytest.mark.parametrize("last", ["sys.exit(1)", "sys.exit(255)", "print(' '); sys.exit(127)"])
def test_a_tool_that_fails_without_a_word_is_told_of(environment: pytest.MonkeyPatch, tmp_path: Path, last: str) -> None:
    said = str(refused(environment, tmp_path, last))
    assert f"{tmp_path / 'ptxas'} ended with exit status {last.split('(')[-1][:-1]} and said nothing" in said
    assert "PTXKIT_PTXAS" in said


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --------------------------------------------------------------------------------------------------- logs


@scripts
def test_a_log_of_any_size_is_bounded(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr(toolchain, "LOG_BYTES", 100_000)
    began = time.monotonic()
    error = refused(environment, tmp_path, "[print('ptxas error : no' + 'x' * 1000) for _ in range(3000)]; sys.exit(1)")
    assert time.monotonic() - began < 20
    assert len(error.log) < 110_000
    assert "further bytes of this log are left out)" in error.log
    assert len(str(error)) < 300_000
    flat = refused(environment, tmp_path, "[print('x' * 100000) for _ in range(20)]; sys.exit(1)")
    assert len(str(flat)) < 3_000


@pytest.mark.pure
def test_the_text_of_an_error_has_so_many_lines() -> None:
    error = AssembleError("\n".join(f"line {number}" for number in range(100_000)))
    assert str(error).endswith("line 99\n... and 99,900 more")
    assert str(AssembleError("one\ntwo")) == "the assembler refused this PTX\none\ntwo"
    assert str(AssembleError("")) == "the assembler refused this PTX"


@scripts
@pytest.mark.parametrize(("written", "why"), [
    (r"os.write(1, b'\xff\xfe V13.0\x80')", "does not answer `--version` as ptxas does"),
    ("print('V' + '9' * 5000 + '.0.0')", "does not answer"),
    ("print('x' * 30_000_000)", "does not answer"),
    ("sys.exit(3)", "ended with exit status 3"),
    ("os.kill(os.getpid(), 11)", "ended with signal 11"),
    ("time.sleep(60)", "did not finish in"),
])
def test_any_version_text_is_survived(environment: pytest.MonkeyPatch, tmp_path: Path, written: str, why: str) -> None:
    environment.setattr(toolchain, "VERSION_S", 1.0)
    path = tmp_path / "ptxas"
    path.write_text(f"#!{sys.executable}\nimport sys, os, time\n{written}\n")
    path.chmod(0o755)
    environment.setenv("PTXKIT_PTXAS", str(path))
    with pytest.raises(NoToolError, match=why) as caught:
        toolchain.ptxas()
    assert len(str(caught.value)) < 1000
    assert str(path) in str(caught.value)


@pytest.mark.pure
def test_any_log_is_read() -> None:
    """Logs are kept in files, and other programs write them."""
    chance = random.Random(3)
    words = ["ptxas info    : ", "ptxas fatal   : ", "Compiling entry function 'k' for 'sm_90a'", "Function properties for k\n",
             "Used ", " registers", "9" * 5000, "12", " bytes stack frame, ", " bytes spill stores, ", " bytes spill loads", ", line ",
             " bytes smem", "cmem[", "]",
             "used 7 barriers", "(C7508) ", "setmaxnreg' ignored", "\n", "\r", "\x00", "\ud800", "at line ", ";", ":", "é", " "]
    for _ in range(800):
        log = "".join(chance.choice(words) for _ in range(chance.randrange(30)))
        found = diagnostics.findings(log, planted.CLEAN)
        assert all(finding.rule for finding in found)
        diagnostics.resources(log)
        diagnostics.renumber(log, {12: 3})


# --------------------------------------------------------------------------------------------------- limits of the system


@scripts
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of limits")
@pytest.mark.parametrize(("number", "says"), [
    (signal.SIGXFSZ, "it would have written a larger file than it may (raise the limit on files, `ulimit -f`"),
    (signal.SIGKILL, "the system does so when memory runs out"), (signal.SIGSEGV, "a fault of ptxas that illegal operands can cause")])
def test_what_a_signal_means(environment: pytest.MonkeyPatch, tmp_path: Path, number: int, says: str) -> None:
    default = "" if number == signal.SIGKILL else f"import signal; signal.signal({int(number)}, signal.SIG_DFL); "
    error = refused(environment, tmp_path, f"{default}os.kill(os.getpid(), {int(number)})")
    assert says in str(error)
    assert (error.findings[-1].rule == "ptxas-limit") == (number != signal.SIGSEGV)


@pytest.mark.ptxas
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
@pytest.mark.parametrize("kilobytes", [0, 1, 2])
def test_a_limit_on_files_is_named_and_nothing_is_kept(tmp_path: Path, kilobytes: int) -> None:
    """With the real ptxas. A limit on files is met as a full disk is."""
    program = ("import resource, sys\nfrom ptxkit.runtime import toolchain\nfrom ptxkit.errors import AssembleError\ntoolchain.ptxas()\n"
               f"resource.setrlimit(resource.RLIMIT_FSIZE, ({kilobytes * 1024},) * 2)\n"
               "try:\n    toolchain.assemble(sys.argv[1])\nexcept AssembleError as error:\n    print(error)\n")
    done = subprocess.run([sys.executable, "-c", program, planted.CLEAN], capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "PTXKIT_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[0]
    named = ("`ulimit -f`", "File too large", "is not a whole cubin", "cannot write a temporary file")
    assert any(word in done.stdout for word in named), said
    assert not list(tmp_path.rglob("*.cubin"))


# --------------------------------------------------------------------------------------------------- settings

NONSENSE = ["9" * 5000, "10000000000000", "-1", "0", "1.5", "nan", "~nosuchuser/x", "x" * 300, "/" + "y" * 300 + "/z",
            "/" * 5000 + "q" * 4999, "/dev/null/x", "/dev/null", "٣", "\udcff", "a\nb", "off,on", " ", "~", "."]


def refusal(variables: dict[str, str]) -> str | None:
    try:
        Settings.read(variables)
    except SettingsError as error:
        return str(error)
    return None


@pytest.mark.pure
@pytest.mark.parametrize("variable", [*VARIABLES, "XDG_CACHE_HOME", "NO_COLOR"])
def test_any_value_is_taken_or_refused_in_one_sentence(variable: str) -> None:
    chance = random.Random(variable)
    alphabet = "0123456789~/. ,:=offnwarndriver\udc80é"
    for value in [*NONSENSE, *("".join(chance.choices(alphabet, k=chance.randrange(1, 12))) for _ in range(150))]:
        said = refusal({variable: value})
        assert said is None or (variable in said and len(said) < 600 and "\n" not in said), said


@pytest.mark.pure
@pytest.mark.parametrize(("variable", "value"), [
    ("PTXKIT_CACHE_MB", "9" * 5000), ("PTXKIT_PTX_MB", "10000000000000"), ("PTXKIT_CACHE_MB", "0"),
    ("PTXKIT_CACHE_DIR", "~nosuchuser/x"), ("PTXKIT_CACHE_DIR", "x" * 300), ("PTXKIT_KEEP_DIR", "/dev/null"),
    ("PTXKIT_KEEP_DIR", "~nosuchuser/x"), ("PTXKIT_TABLE", "x" * 300), ("PTXKIT_TUNE", "~nosuchuser/x.json"),
    ("PTXKIT_PTXAS", "x" * 300), ("PTXKIT_PTXAS", "~nosuchuser/ptxas"), ("PTXKIT_CHECK", "z" * 9000)])
def test_nonsense_is_refused(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        Settings.read({variable: value})


@pytest.mark.pure
@pytest.mark.parametrize("home", ["", "relative", None])
def test_the_home_directory_is_never_the_root_of_all(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    pwd = pytest.importorskip("pwd")
    monkeypatch.setenv("HOME", home) if home is not None else monkeypatch.delenv("HOME")
    mine = pwd.getpwuid(os.getuid()).pw_dir
    assert Settings.read({}).cache_dir == Path(mine, ".cache", "ptxkit")
    assert Settings.read({"XDG_CACHE_HOME": "relative"}).cache_dir == Path(mine, ".cache", "ptxkit")

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert Settings.read({}).cache_dir is None
    monkeypatch.setenv("HOME", "/somewhere")
    assert Settings.read({}).cache_dir == Path("/somewhere/.cache/ptxkit")


@pytest.mark.pure
def test_an_unknown_variable_is_told_once_and_ignored() -> None:
    assert settings.unknown({"PTXKIT_CACHE_DIR": "", "OTHER": ""}) == ()
    (near,) = settings.unknown({"PTXKIT_CACHEDIR": "x"})
    assert near == "PTXKIT_CACHEDIR is not a variable that ptxkit knows and is ignored; did you mean PTXKIT_CACHE_DIR?"
    (far,) = settings.unknown({"PTXKIT_" + "Q" * 5000: "x"})
    assert far.endswith(f"there are {', '.join(VARIABLES)}")
    assert settings.unknown({"PTXKIT_FOO": "x"})[0].endswith(f"there are {', '.join(VARIABLES)}"), "the prefix makes no names alike"
    assert len(far) < 600
    program = "from ptxkit.settings import settings; settings(); settings.cache_clear(); print(settings().check)"
    done = subprocess.run([sys.executable, "-c", program], env={"PATH": "", "PTXKIT_CHEK": "error"}, capture_output=True, text=True,
                          cwd=ROOT, check=True)
    assert done.stdout == "warn\n"
    assert "PTXKIT_CHEK is not a variable" in done.stderr


@scripts
def test_a_keep_dir_that_cannot_be_made_is_a_setting(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "left").write_bytes(small(b"code"))
    tool = fake_tool(tmp_path, f"open(sys.argv[-1], 'wb').write(open({str(tmp_path / 'left')!r}, 'rb').read())")
    environment.setenv("PTXKIT_PTXAS", str(tool))
    environment.setenv("PTXKIT_KEEP", "cubin")
    environment.setenv("PTXKIT_KEEP_DIR", str(tmp_path / "left" / "below"))
    with pytest.raises(SettingsError, match=r"cannot be written \(.*\): set PTXKIT_KEEP_DIR to a folder of yours"):
        toolchain.assemble(planted.CLEAN)
