"""Skips what this machine cannot run, and keeps the tests' cubins apart from the user's."""

from __future__ import annotations

import functools
import gc
import os
import zlib
from collections.abc import Iterator

import pytest

from tests import browser as browsers


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith("PTXKIT_") and name != "PTXKIT_PTXAS"]:
        del os.environ[name]
    gc.set_threshold(10_000, 10, 100)                   # a full collection of a late run's millions of objects takes seconds: few are due
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process that a test starts would compile all that it imports
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    os.environ["PTXKIT_CACHE_DIR"] = str(cache.mkdir("cubins")) if cache is not None else "off"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    gc.freeze()                                         # pytest and Python collect all objects once more at the end


@functools.cache
def why_no_gpu() -> str:
    """Why this machine cannot run the kernels; empty when it can."""
    from ptxkit.errors import NoDriverError
    from ptxkit.runtime import driver

    try:
        driver.probe()
    except NoDriverError as error:
        return str(error)
    device = driver.device(0)
    return "" if device.capability == (9, 0) else f"device 0 ({device.name}) is not a Hopper GPU"


@functools.cache
def why_no_ptxas() -> str:
    """Why nothing can be assembled here; empty when it can."""
    from ptxkit.errors import NoToolError
    from ptxkit.runtime import toolchain

    try:
        toolchain.ptxas()
        toolchain.nvdisasm()
    except NoToolError as error:
        return str(error)
    return ""


def why_no_browser() -> str:
    """Why no page can be opened here; empty when it can, and when TESTS_REQUIRE=browser makes the tests fail instead."""
    if browsers.executable() is not None or "browser" in os.environ.get("TESTS_REQUIRE", "").split(","):
        return ""
    return f"none of {', '.join(browsers.NAMES)} is on PATH"


@pytest.fixture(scope="session")
def browser() -> Iterator[browsers.Browser]:
    """A headless Chromium, which all tests of this process share."""
    running = browsers.Browser()
    yield running
    running.close()


def thin_out(items: list[pytest.Item]) -> None:
    """Of a test that is `thinned(n)` the first case stays, and about one in n of the others, whatever their parameters are."""
    met: set[str] = set()
    for item in items:
        marker = item.get_closest_marker("thinned")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            if test in met and zlib.crc32(item.nodeid.encode()) % marker.args[0]:
                item.add_marker(pytest.mark.sweep)
            met.add(test)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thin_out(items)
    sweeps, foreign = ("sweep" in (config.option.markexpr or ""), "foreign" in (config.option.markexpr or ""))
    for item in items:
        if item.get_closest_marker("foreign") and not foreign:
            item.add_marker(pytest.mark.skip(reason="other compilers' kernels: make test-foreign"))
        if item.get_closest_marker("sweep") and not sweeps:
            item.add_marker(pytest.mark.skip(reason="one of many cases: with -m sweep"))
        for marker, why in (("gpu", why_no_gpu), ("ptxas", why_no_ptxas), ("browser", why_no_browser)):
            if item.get_closest_marker(marker) and why():
                item.add_marker(pytest.mark.skip(reason=why()))
