"""The handler of XLA's calls: one C file, built by the system's compiler at first use and kept in the cache directory."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.files import ASIDE, folder_of, make_folder, strange, temporary_folder
from ptxkit.settings import settings

from . import cpu, plans
from .framework import ffi

NAME = "ptxkit_jax_product"
SOURCE = Path(__file__).with_name("handler.c")
FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared", "-pthread")
MESSAGE_BYTES = 2048        # of handler.c
_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32, ctypes.c_void_p,
                            ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
_SIMULATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
_registered: set[str] = set()
_lock = threading.Lock()


def register(platform: str) -> None:
    """Tell XLA the handler of a platform, "cpu" or "CUDA", once. Raises LaunchError where it cannot be built."""
    with _lock:
        if platform in _registered:
            return
        library = load()
        entry = ffi.pycapsule(library.ptxkit_jax_cpu if platform == "cpu" else library.ptxkit_jax_cuda)
        ffi.register_ffi_target(NAME, entry if platform == "cpu" else {"initialize": entry, "execute": entry}, platform=platform)
        _registered.add(platform)


@functools.cache
def load() -> Any:
    """The library, connected with what answers it."""
    folder = kept_in()
    if folder is not None:
        library = ctypes.CDLL(str(build(folder)))
    else:
        with temporary_folder() as aside:
            library = ctypes.CDLL(str(build(aside)))
    library.ptxkit_jax_connect(prepare, simulate)
    atexit.register(library.ptxkit_jax_close)
    return library


def kept_in() -> Path | None:
    """The folder of the cache directory for the library. None where there is none that can be written to."""
    folder = folder_of(settings().cache_dir, "jax")
    if folder is None:
        return None
    try:
        make_folder(folder, settings().cache_dir)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def build(folder: Path) -> Path:
    """The library's file in a folder: as it is there, or compiled."""
    include = Path(ffi.include_dir())
    compiler = _compiler()
    header = include / "xla" / "ffi" / "api" / "c_api.h"
    recipe = [SOURCE.read_bytes(), header.read_bytes(), " ".join((*compiler, *FLAGS)).encode()]
    name = hashlib.sha256(b"\0".join(recipe)).hexdigest()
    path = folder / f"{name}.so"
    if not path.is_file() or strange(path.stat()):
        _compile(compiler, include, path)
    return path


def _compiler() -> list[str]:
    """The command of a C compiler: that of CC, or the first of cc, gcc and clang that is there."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in ([given] if given else [["cc"], ["gcc"], ["clang"]]):
        if shutil.which(command[0]):
            return command
    raise LaunchError("ptxkit.jax compiles a C file at its first use, and " + (
        f"CC={os.environ['CC']!r} is no command" if given else "cc, gcc and clang are not there")
        + ": install a C compiler, or name one in CC")


def _compile(compiler: Sequence[str], include: Path, path: Path) -> None:
    """Compile into another file, then move it into place: another process may do the same."""
    try:
        make_folder(path.parent, settings().cache_dir)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=ASIDE) as aside:
            made = Path(aside) / path.name
            done = subprocess.run([*compiler, *FLAGS, "-I", str(include), str(SOURCE), "-o", str(made)], capture_output=True, text=True,
                                  check=False)
            if done.returncode:
                said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
                raise LaunchError(f"`{' '.join(compiler)}` does not compile the C file of ptxkit.jax: {said}; name another compiler in CC")
            made.chmod(0o700)
            os.replace(made, path)
    except OSError as error:
        raise LaunchError(f"the C file of ptxkit.jax cannot be built: {error}; name a folder that can be written to in PTXKIT_CACHE_DIR"
                          ) from None


def _answer(message: int, error: Exception) -> int:
    """An error for the handler: its sentence."""
    text = str(error) if isinstance(error, PtxkitError) else f"{type(error).__name__}: {error}"
    said = text.encode()[:MESSAGE_BYTES - 1] + b"\0"
    ctypes.memmove(message, said, len(said))
    return 1


def _prepare(text: int, length: int, device: int, apart: int, plan: Any, message: int) -> int:
    """The plan of a product on a device."""
    try:
        rests = ctypes.string_at(apart, plans.MOST_BUFFERS)
        plan[0] = plans.known(ctypes.string_at(text, length).decode(), device, tuple(rests)).address
    except Exception as error:
        return _answer(message, error)
    return 0


def _simulate(text: int, length: int, buffers: Any, message: int) -> int:
    """A product on the CPU device."""
    try:
        cpu.run(ctypes.string_at(text, length).decode(), [buffers[i] or 0 for i in range(plans.MOST_BUFFERS)])
    except Exception as error:
        return _answer(message, error)
    return 0


prepare, simulate = _PREPARE(_prepare), _SIMULATE(_simulate)

__all__ = ["NAME", "build", "load", "prepare", "register", "simulate"]
