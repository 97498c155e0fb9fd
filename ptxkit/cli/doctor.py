"""The command `ptxkit doctor`: which tools ptxkit finds on this machine, and how to get those that are missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Literal

from ..errors import PtxkitError
from ..runtime import cache, driver, toolchain
from ..settings import settings
from . import output
from .extras import EXTRAS, way_out

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `fix` says what to do; it may be empty when the state is "ok"."""

    name: str
    state: State
    detail: str
    fix: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run(options: argparse.Namespace) -> int:
    """Shows every check; 1 when something is broken or nothing can assemble."""
    checks = examine()
    fine = healthy(checks)
    if options.json:
        output.show_json({"ok": fine, "checks": [asdict(check) for check in checks]})
        return 0 if fine else 1
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append((check.name, check.state, check.detail))
        if check.fix:
            rows.append(("", "", f"-> {check.fix}"))
    output.table(("", "", ""), rows)
    return 0 if fine else 1


def examine() -> tuple[Check, ...]:
    """Every check, the most important first."""
    return (_python(), *_tools(), *_driver(), _cache(), *_extras())


def healthy(checks: tuple[Check, ...]) -> bool:
    """Whether nothing is broken, and ptxas or a driver can assemble kernels."""
    assembles = any(check.state == "ok" for check in checks if check.name in ("ptxas", "device 0"))
    return assembles and all(check.state != "broken" for check in checks)


def _python() -> Check:
    packages = ", ".join(f"{name} {version}" for name in ("cuda-bindings", "cuda-core", "lark", "numpy") if (version := _version(name)))
    return Check("python", "ok", f"{platform.python_version()} on {sys.platform} ({packages})")


def _tools() -> Iterator[Check]:
    tools: tuple[tuple[str, Callable[[], toolchain.Tool]], ...] = (
        ("ptxas", toolchain.ptxas), ("nvdisasm", toolchain.nvdisasm), ("cuobjdump", toolchain.cuobjdump))
    for name, find in tools:
        try:
            tool = find()
        except PtxkitError as error:
            what, _, fix = str(error).partition(": ")
            yield Check(name, "missing", what, fix)
            continue
        level = f", PTX up to {_dotted(toolchain.ptx_level(tool.release))}" if name == "ptxas" else ""
        yield Check(name, "ok", f"{tool.version}{level} ({tool.path})")


def _driver() -> Iterator[Check]:
    try:
        driver.probe()
        version = driver.driver_version()
    except PtxkitError as error:
        what, _, fix = str(error).partition(": ")
        yield Check("driver", "missing", what, fix)
        return
    newer = toolchain.outruns(toolchain.ptxas(), version) if toolchain.has_ptxas() else ""
    yield Check("driver", "ok", f"for CUDA {_dotted(version)}, PTX up to {_dotted(toolchain.ptx_level(version))}", newer)
    for ordinal in range(driver.device_count()):
        device = driver.device(ordinal)
        detail = (f"{device.name}, compute capability {_dotted(device.capability)}, {device.multiprocessors} SMs, "
                  f"{device.shared_per_block} bytes of shared memory a CTA, {device.memory_bytes >> 20} MiB")
        if device.capability == (9, 0):
            yield Check(f"device {ordinal}", "ok", detail)
        else:
            fix = "kernels for sm_90a run on compute capability 9.0 only (H100, H200, GH200)"
            yield Check(f"device {ordinal}", "missing", detail, fix)


def _cache() -> Check:
    store = cache.cache()
    if store is None:
        return Check("cache", "ok", "off (PTXKIT_CACHE_DIR=off)")
    folder = store.directory
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        fix = "each process assembles its kernels again: set PTXKIT_CACHE_DIR to a directory of yours, or to off"
        return Check("cache", "missing", f"{store.directory} cannot be written to", fix)
    entries, size = store.size()
    return Check("cache", "ok", f"{store.directory}: {entries} kernels, {size / 2**20:.1f} MiB")


def _extras() -> Iterator[Check]:
    for module, (_, use) in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Check(module, "missing", f"optional: {use}", way_out(module))
        else:
            yield Check(module, "ok", f"{_version(module)}: {use}")
    kept = ", ".join(sorted(settings().keep))
    if kept:
        yield Check("keep", "ok", f"{kept} of every assembly are written to {settings().keep_dir}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
