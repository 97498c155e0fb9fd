"""Finds and runs ptxas, nvdisasm and cuobjdump, and maps their messages to Python lines."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import AssembleError, Finding, NoToolError, Position, PtxkitError, SettingsError
from ..files import encoded, read_regular, temporary_folder, write_whole
from ..once import Once
from ..sass import hints
from ..sass.cubin import require_whole
from ..settings import settings
from . import cache
from .diagnostics import Resources, findings, renumber, resources

_LOG = logging.getLogger("ptxkit")

# A malformed operand can make ptxas crash, run for minutes or take all memory (measured, 13.0).
TIMEOUT_S = 600.0
MEMORY_BYTES = 16 << 30
VERSION_S = 60.0
LINGER_S = 5.0
"""For so long what a tool has started may write on after the tool has ended."""
LOG_BYTES = 16 << 20
"""Most of a log that is kept: what ptxas says of about 80,000 entries."""
OUTPUT_BYTES = 1 << 30
"""Most machine code as text."""
CUBIN_BYTES = 4 << 30

_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_DEBUG = re.compile(r"^[ \t]*\.target\b[^\n/]*\bdebug\b", re.MULTILINE)
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([%\w$]+)(?:\.pragma\b[^;{]*;|[^;{])*+\{")
_WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm", "cuobjdump": "nvidia-cuda-cuobjdump"}


@dataclass(frozen=True, slots=True)
class Tool:
    """An executable of the CUDA toolkit. Example of a `version`: "13.0.88"."""

    name: str
    path: Path
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class Assembly:
    """The result of ptxas for a module: the cubin, the log, each entry's resources, and remarks as findings."""

    cubin: bytes = field(repr=False)
    log: str = field(repr=False)
    resources: Mapping[str, Resources]
    findings: tuple[Finding, ...]
    tool: Tool
    target: str

    def _repr_html_(self) -> str:
        from ..html.kernels import assembly

        return assembly(self)


def ptxas() -> Tool:
    """The assembler: PTXKIT_PTXAS, then the wheel, then PATH. Raises NoToolError."""
    wish = settings().ptxas
    if wish == "driver":
        raise NoToolError("PTXKIT_PTXAS=driver leaves assembling to the driver, which gives no cubin: unset it, or set it to a ptxas, "
                          "to see a cubin, machine code or resources")
    return _tool("ptxas", wish)


@functools.cache
def stamp() -> str:
    """What tells the assembler from others, without running it: its file, size and time of change. Empty where there is none."""
    wish = settings().ptxas
    path = None if wish == "driver" else wish or _in_wheel("ptxas") or _in_path("ptxas")
    if path is None:
        return ""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{path}\0{status.st_size}\0{status.st_mtime_ns}"


def nvdisasm() -> Tool:
    """The disassembler. Raises NoToolError."""
    return _tool("nvdisasm")


def cuobjdump() -> Tool:
    """The reader of object files. Raises NoToolError."""
    return _tool("cuobjdump")


def ptx_level(cuda: tuple[int, int]) -> tuple[int, int]:
    """The highest PTX version that a tool or driver of that CUDA version accepts."""
    major, minor = cuda
    if major >= 13:
        return major - 4, minor
    return (8, minor if minor <= 5 else minor - 1) if major == 12 else (7, 0)


def outruns(tool: Tool, cuda: tuple[int, int]) -> str:
    """What to do when a tool is of a later major CUDA version than the driver, which may then refuse its cubins; else empty."""
    major, minor = cuda
    if tool.release[0] <= major:
        return ""
    wheel = f"nvidia-cuda-nvcc-cu{major}" if major < 13 else f"nvidia-cuda-nvcc=={major}.*"
    return (f"{tool.name} {tool.version} is of a later CUDA than the driver, which is for {major}.{minor} and may refuse its cubins: "
            f"install a newer driver, or set PTXKIT_PTXAS to a ptxas of CUDA {major} (`pip install {wheel}`) or to driver")


def has_ptxas() -> bool:
    """Whether `assemble` has a ptxas to run. Without one, the driver can still load a kernel as text."""
    try:
        ptxas()
    except NoToolError:
        return False
    return True


@functools.cache
def _tool(name: str, path: Path | None = None) -> Tool:
    path = path or _in_wheel(name) or _in_path(name)
    if path is None:
        raise NoToolError(f"{name} was not found: `pip install 'ptxkit[toolchain]'` (or `pip install {_WHEELS[name]}`), or put the CUDA "
                          f"toolkit's bin directory on PATH{', or set PTXKIT_PTXAS to it' if name == 'ptxas' else ''}")
    try:
        code, said, _ = _run([str(path), "--version"], VERSION_S)
    except (OSError, AssembleError) as error:
        raise NoToolError(f"{path} does not run: {error}") from error
    if code != 0:
        raise NoToolError(f"{path} does not run: `--version` ended with {_ended(code)}")
    version = _VERSION.search(said)
    if version is None or len(version[1]) > 40:
        raise NoToolError(f"{path} does not answer `--version` as {name} does: it said {said.strip()[:80]!r}")
    return Tool(name, path, version.group(1))


def _in_wheel(name: str) -> Path | None:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:  # no cuda-python on this platform, or a version without the function
        return None
    try:
        found = find_nvidia_binary_utility(name)
    except Exception as error:  # not every version exports the class: UnsupportedBinaryError
        _LOG.warning("no wheel is looked into for %s (%s): `pip install 'cuda-pathfinder>=1.8.1'`", name, str(error).partition(".")[0])
        return None
    return Path(found) if found else None


def _in_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def assemble(ptx: str, target: str = "sm_90a", *, lines: Mapping[int, Position] | None = None, opt: int = 3,
             exact_lines: bool = False, relocatable: bool = False) -> Assembly:
    """Assemble a module by ptxas, or take it from the cache if the same module was assembled before.

    `lines` gives the source position of a line of the PTX text; without it findings name PTX lines. A text that differs from an earlier one
    only in `.loc` and `.file` gets the earlier cubin, with the line table of the earlier text; `exact_lines` prevents that. With
    `relocatable`, names that the module does not define are left to a linker. A module with the debug target is not optimised (ptxas
    refuses to) and gets its own line table. Pragmas for `hints` in the text are applied to the cubin.

    Raises AssembleError with every message of ptxas, or if the result is not a whole cubin with the text's entries. Raises NoToolError if
    there is no ptxas.
    """
    tool = ptxas()
    if _DEBUG.search(ptx):
        opt, exact_lines = 0, True
    flags = ("-v", f"-arch={target}", f"-O{opt}", *(["-c"] if relocatable else []))
    exact_lines = exact_lines or "sass" in settings().keep
    stripped, numbers = cache.strip_lines(ptx)
    name = cache.key(ptx if exact_lines else stripped, tool.name, tool.version, *flags)
    store, entries = cache.cache(), defined_entries(ptx)
    entry = store.get(name, entries) if store else None
    if entry is None:
        def made() -> cache.Entry:
            text, every = hints.take(ptx)
            cubin, log = _assemble(tool, text, flags, entries, lines)
            if every is not None and target.startswith("sm_90"):
                cubin = hints.spaced(cubin, every)
            found = cache.Entry(cubin, renumber(log, {number: index for index, number in enumerate(numbers, 1)}))
            if store:
                store.put(name, found)
            return found

        entry = _assembling.get((name, tool.path), made)
    cubin, log = entry.cubin, renumber(entry.log, dict(enumerate(numbers, 1)))
    found = findings(log, ptx, lines)
    for finding in found:
        _LOG.info("%s", finding)
    assembly = Assembly(cubin, log, resources(log), found, tool, target)
    _keep(name, ptx, assembly)
    return assembly


_assembling = Once[cache.Entry](keep=False)
"""Modules that threads assemble at this time."""


def defined_entries(ptx: str) -> tuple[str, ...]:
    """The names of the entries that a text defines."""
    return tuple(_ENTRY.findall(_NOT_CODE.sub(" ", ptx)))


def _assemble(tool: Tool, ptx: str, flags: tuple[str, ...], entries: Collection[str],
              lines: Mapping[int, Position] | None) -> tuple[bytes, str]:
    with _file("kernel.ptx", encoded(ptx)) as source:
        made = source.with_name("kernel.cubin")
        code, log, left_out = _run([str(tool.path), *flags, str(source), "-o", str(made)])
        log = log.replace(str(source), "kernel.ptx")
        if left_out:
            log += f"\n... ({left_out:,} further bytes of this log are left out)\n"
        if code == 0:
            return _made(tool, made, entries, log), log
    found = tuple(finding for finding in findings(log, ptx, lines) if finding.severity == "error")
    if code < 0:
        found = (*found, _killed(tool, -code))
    elif not log.strip():
        said = f"{tool.path} ended with {_ended(code)} and said nothing"
        found = (Finding("ptxas-silent", said, "set PTXKIT_PTXAS to a ptxas that works"),)
    raise AssembleError(log, found, summary=f"ptxas {tool.version} refused this PTX")


def _killed(tool: Tool, number: int) -> Finding:
    """What a signal means that has ended ptxas."""
    said = f"ptxas {tool.version} was killed by signal {number}"
    if number in _LIMITS:
        what, fix = _LIMITS[number]
        return Finding("ptxas-limit", f"{said}: {what}", fix)
    return Finding("ptxas-crash", f"{said}: a fault of ptxas that illegal operands can cause",
                   "check the kernel against the instruction table, or leave instructions out until it assembles")


def _ended(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal {-code}"


_LIMITS = {int(getattr(signal, name)): says for name, says in {
    "SIGXFSZ": ("it would have written a larger file than it may", "raise the limit on files, `ulimit -f`, or empty the disk of TMPDIR"),
    "SIGXCPU": ("it used more processor time than it may", "raise the limit, `ulimit -t`"),
    "SIGKILL": ("somebody stopped it; the system does so when memory runs out", "give it more memory, or split the module"),
    "SIGTERM": ("somebody stopped it", "assemble again"),
}.items() if hasattr(signal, name)}
"""Signals that are no fault of ptxas: what happened, and the way out."""


def _made(tool: Tool, path: Path, entries: Collection[str], log: str) -> bytes:
    """The cubin that ptxas reports to have made. If the disk is full, ptxas 13.0 writes only a part and reports success (measured)."""
    found = read_regular(path, CUBIN_BYTES)
    cubin = b"" if found is None else found[0]
    try:
        require_whole(cubin, f"what it left ({len(cubin):,} bytes)", entries)
    except PtxkitError as error:
        wrong = AssembleError("", summary=f"ptxas {tool.version} exited with status 0, but {error}. Is the temporary folder "
                              f"{tempfile.gettempdir()} full? TMPDIR names another")
        wrong.log = log                                                             # of a success: it says nothing of this
        raise wrong from None
    return cubin


@contextlib.contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    """A file with this content in its own temporary folder. Raises AssembleError if it cannot be written."""
    with contextlib.ExitStack() as folders:
        try:
            path = folders.enter_context(temporary_folder()) / name
            path.write_bytes(data)
        except OSError as error:
            raise AssembleError("", summary=f"cannot write a temporary file ({error}): TMPDIR names another folder") from error
        yield path


def disassemble(cubin: bytes, *, lines: bool = False) -> str:
    """The machine code of a cubin as nvdisasm writes it. `lines` adds source lines. Raises NoToolError."""
    tool = nvdisasm()
    with _file("kernel.cubin", cubin) as path:
        code, said, left_out = _run([str(tool.path), "-c", *(["-g"] if lines else []), str(path)], most=OUTPUT_BYTES)
    if code != 0:
        raise AssembleError(said, summary=f"nvdisasm {tool.version} refused this cubin")
    if left_out:
        raise AssembleError("", summary=f"nvdisasm {tool.version} wrote {OUTPUT_BYTES + left_out:,} bytes of machine code, and "
                            f"{OUTPUT_BYTES:,} are the limit: disassemble a cubin with fewer entries")
    return said


def _run(command: list[str], timeout_s: float | None = None, most: int | None = None) -> tuple[int, str, int]:
    """Run a tool. Returns its exit status, the first `most` bytes of its output as text, and how many were left out.

    Time is limited, and on Linux memory and processor time too. What the tool has started ends with it. Raises AssembleError after
    `timeout_s`.
    """
    limit = TIMEOUT_S if timeout_s is None else timeout_s
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
                               process_group=0 if os.name == "posix" else None)
    _bound(process.pid)
    output = _Output(process, LOG_BYTES if most is None else most)
    try:
        code = process.wait(limit)
        output.join(LINGER_S)
    except subprocess.TimeoutExpired:
        raise AssembleError("", summary=f"{Path(command[0]).name} did not finish in {limit:.0f} s and was stopped") from None
    finally:
        if process.returncode is None or output.is_alive():
            _stop(process)
            output.join(LINGER_S)
    return code, output.text(), output.left_out


class _Output(threading.Thread):
    """Reads what a process writes until nobody can write any more, and keeps the beginning."""

    def __init__(self, process: subprocess.Popen[bytes], most: int) -> None:
        super().__init__(name="ptxkit-output", daemon=True)
        assert process.stdout is not None
        self.pipe, self.most, self.kept, self.left_out = process.stdout, most, bytearray(), 0
        self.start()

    def run(self) -> None:
        with self.pipe:
            while data := self.pipe.read(1 << 16):
                taken = data[:self.most - len(self.kept)]
                self.kept += taken
                self.left_out += len(data) - len(taken)

    def text(self) -> str:
        return bytes(self.kept).decode(errors="replace").replace("\r\n", "\n")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it has started, where they still run: its group, and its children in others, as of `timeout`."""
    if os.name == "posix":
        below = _below(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for each in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _below(pid: int) -> list[int]:
    """The children of a process, their children, and so on; none where there is no table of processes to ask."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(path.read_bytes().rpartition(b")")[2].split()[1]), []).append(int(path.parent.name))
    found = list(children.get(pid, ()))
    for each in found:
        found += children.get(each, ())
    return found


def _bound(pid: int) -> None:
    """Limit a tool's memory, and its processor time: it may outlive this process, which then cannot stop it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = getattr(resource, "prlimit", None)
    if limit is not None:  # Linux
        for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, int(TIMEOUT_S) + 60)):
            with contextlib.suppress(OSError, ValueError):
                limit(pid, what, (most, most))


def _keep(name: str, ptx: str, assembly: Assembly) -> None:
    """Write the files that PTXKIT_KEEP asks for, as `<first entry>-<hash>.<kind>`."""
    wishes = settings().keep
    if not wishes:
        return
    entry = next(iter(assembly.resources), "module")
    stem = f"{entry[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    folder = settings().keep_dir
    made: dict[str, Callable[[], bytes]] = {
        "ptx": lambda: encoded(ptx), "cubin": lambda: assembly.cubin,
        "sass": lambda: disassemble(assembly.cubin, lines=True).encode(), "log": lambda: assembly.log.encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, data in made.items():
            if kind in wishes:
                write_whole(folder / f"{stem}.{kind}", data())
    except OSError as error:
        raise SettingsError(f"PTXKIT_KEEP asks for files in {folder}, which cannot be written ({error.strerror or error}): set "
                            "PTXKIT_KEEP_DIR to a folder of yours") from None
