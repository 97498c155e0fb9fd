"""Reading PTX files. A file that is not text, or larger than the settings allow, is refused with the reason."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace

from ..grammar.errors import ParseError
from ..settings import settings
from .errors import FileError

_NAME = re.compile(r"(?:^|\.)kernel(?:\(|$)")
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\v\f\r")


def is_file(source: str) -> bool:
    """Whether the command line names a file to read, a pipe or a device included; "-" is stdin."""
    if source == "-":
        return True
    try:
        return not stat.S_ISDIR(os.stat(source).st_mode)
    except PermissionError:
        return True  # to read it says why it cannot be read
    except (OSError, ValueError):
        return False


def no_file(source: str) -> FileError:
    """The error for a source that is neither a file nor `module:kernel`."""
    if os.path.isdir(source):
        return FileError(f"{source} is a folder: name a file or module:kernel")
    return FileError(f"there is no file {source}, and it is not module:kernel")


def read_ptx(name: str) -> str:
    """The text of a PTX file; "-" is stdin. Comments and strings may have characters of any encoding that extends ASCII."""
    return decoded(read_source(name), name)


@contextlib.contextmanager
def errors_in(name: str) -> Iterator[None]:
    """What is wrong with the text of a file is told with the file's name."""
    try:
        yield
    except ParseError as error:
        if error.position.file is not None:
            raise
        place = replace(error.position, file="<stdin>" if name == "-" else name)
        raise ParseError(error.message, place, error.expected) from None


def read_source(name: str) -> bytes:
    """The bytes of a file of PTX or machine code; "-" is stdin. It is read once: it may be a pipe."""
    if name.endswith((".py", ".pyw")):
        raise FileError(f"{name} is Python, not PTX: {kernels_in(name)}")
    if name.endswith((".cu", ".cuh")):
        raise FileError(f"{name} is CUDA C++, not PTX: `nvcc -ptx` makes PTX of it")
    limit = settings().ptx_mb * 1_000_000
    try:
        if name == "-":
            data = _stdin(limit)
        else:
            with open(name, "rb") as file:
                data = file.read(limit + 1)
                if data.startswith(b"\x7fELF"):
                    data += file.read()
    except OSError as error:
        raise FileError(f"cannot read {name}: {error.strerror}") from None
    if len(data) > limit and not data.startswith(b"\x7fELF"):
        raise FileError(f"{name} has more than {settings().ptx_mb} MB: PTXKIT_PTX_MB raises that limit")
    return data


def _stdin(limit: int) -> bytes:
    if sys.stdin is None:
        raise FileError("cannot read -: stdin is closed")
    piped = getattr(sys.stdin, "buffer", None)  # a program may have put a text stream in its place
    data: bytes = sys.stdin.read().encode("utf-8", "surrogateescape") if piped is None else piped.read(limit + 1)
    return data


def kernels_in(name: str) -> str:
    """How to name the kernels of a Python file, which is not run: those with the decorator `kernel`."""
    try:
        with open(name, "rb") as file:
            body = ast.parse(file.read(1 << 24)).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        body = []
    found = [each.name for each in body if isinstance(each, ast.FunctionDef)
             for decorator in each.decorator_list if _NAME.search(ast.unparse(decorator))]
    return f"name a kernel, as {name}:{found[0] if found else 'KERNEL'}" + (f"; it has {', '.join(found)}" if len(found) > 1 else "")


def decoded(data: bytes, name: str) -> str:
    """The bytes as text. When they are not PTX text, `FileError` says what they are."""
    if data.startswith(b"\x7fELF"):
        raise FileError(f"{name} is machine code, not PTX text: `nvdisasm` and `cuobjdump` read it")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:2] in (b".\0", b"\0.", b"/\0", b"\0/"):
        raise FileError(f"{name} is UTF-16: PTX is ASCII, so store it as ASCII or UTF-8")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if len(data.translate(None, _CONTROL)) != len(data):
        at = next(index for index, code in enumerate(data) if code in _CONTROL)
        line = data.count(b"\n", 0, at) + 1
        raise FileError(f"{name} is no text: line {line} has the byte {data[at]:#04x}")
    return data.decode("utf-8", errors="surrogateescape")
