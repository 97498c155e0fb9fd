"""Errors and kernels that go to other processes, threads that ask for one thing, forks."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import os
import pickle
import pkgutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ptxkit
from ptxkit import Kernel, Ptr, kernel, settings
from ptxkit.cli.errors import UsageError
from ptxkit.errors import Finding, Position, PtxkitError, TraceError
from ptxkit.once import Once, ReenteredError
from ptxkit.ptx import st
from ptxkit.runtime import toolchain
from ptxkit.types import u32

from . import importable, planted
from .cubins import small
from .test_toolchain import fake_tool

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

FRAMEWORKS = ("ptxkit.torch", "ptxkit.jax", "ptxkit.adapters", "ptxkit.__main__", "ptxkit.gemm.__main__")
EXAMPLES: dict[str, Any] = {
    "message": "what is wrong", "reason": "why", "log": "ptxas error : no", "summary": "no", "position": Position("a.py", 7, 2),
    "findings": (Finding("rule", "message", "fix", Position("a.py", 3)),), "place": Position(None, 4), "expected": ("b", "c"), "stop": 3,
    "kind": "refused", "why": "it does not fit"}
"""An argument for each parameter of a constructor."""


def errors() -> list[type[Exception]]:
    """Every class of the package that a user may catch."""
    for module in pkgutil.walk_packages(ptxkit.__path__, "ptxkit."):
        if not module.name.startswith(FRAMEWORKS):
            importlib.import_module(module.name)

    def below(of: type[Exception]) -> Iterator[type[Exception]]:
        yield of
        for each in of.__subclasses__():
            yield from below(each)

    found = {each for each in below(PtxkitError) if each.__module__.startswith("ptxkit.")}
    return sorted(found | {UsageError}, key=lambda each: (each.__module__, each.__qualname__))


def example(error: type[Exception]) -> Exception:
    ours = next((each for each in error.__mro__ if "__init__" in vars(each)), error)
    if not ours.__module__.startswith("ptxkit."):
        return error("what is wrong")
    return error(**{name: EXAMPLES[name] for name in list(inspect.signature(ours.__init__).parameters)[1:]})


def test_every_error_comes_back_with_its_text_and_fields() -> None:
    classes = errors()
    assert len(classes) > 40
    for each in classes:
        error = example(each)
        error.__dict__["also"] = {"more": (1, 2)}
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is each
            assert str(again) == str(error), each
            assert again.args == error.args
            assert again.__dict__ == error.__dict__


def test_an_error_of_another_process_is_raised_here() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(TraceError, match="has no compile-time parameter `M`; it has N") as caught:
            pool.submit(importable.refused, 3).result(60)
        assert caught.value.position is not None
        assert caught.value.position.file == importable.__file__
        assert pool.submit(importable.text_of, importable.store).result(60) == importable.store.ptx(N=2)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_error_crosses_from_every_kind_of_process(method: str) -> None:
    """Out of a pool of concurrent.futures and out of one of multiprocessing, which would wait for ever for what cannot be read."""
    context: Any = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context) as executor, context.Pool(1) as pool:
        for each in errors():
            error = example(each)
            data = pickle.dumps(error)
            for found in (executor.submit(importable.raises, data).exception(60), caught(pool, data)):
                assert type(found) is each
                assert (str(found), found.args) == (str(error), error.args)
        assert pool.apply_async(importable.text_of, [importable.store]).get(60) == importable.store.ptx(N=2)


def caught(pool: Any, data: bytes) -> BaseException:
    try:
        pool.apply_async(importable.raises, [data]).get(60)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    for made in (importable.store, importable.same, importable.Room.inner):
        assert pickle.loads(pickle.dumps(made)) is made
        assert copy.copy(made) is made
        assert copy.deepcopy([made])[0] is made


def test_what_has_no_name_says_so() -> None:
    @kernel(block=32)
    def local(out: Ptr[u32]) -> None:
        st.global_.u32(out, 1)

    for made in (local, kernel(block=64)(importable.store.function)):
        with pytest.raises(pickle.PicklingError, match=r"another process finds it as `.*`.*top level of a module") as caught:
            pickle.dumps(made)
        assert "\n" not in str(caught.value)
        assert copy.deepcopy(made) is made


# --------------------------------------------------------------------------------------------------- threads


def counted(slowly: float = 0.02) -> tuple[Kernel[...], list[int]]:
    """A kernel and the configurations that it was traced for."""
    traces: list[int] = []

    @kernel(block=32)
    def slow(out: Ptr[u32], *, N: int = 1) -> None:
        traces.append(N)
        time.sleep(slowly)
        st.global_.u32(out, N)

    return slow, traces


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """`work` of 0 to count - 1, in as many threads that begin at a time."""
    gate = threading.Barrier(count)

    def begun(number: int) -> Any:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begun, range(count)))


def test_a_configuration_is_traced_once_for_all_threads() -> None:
    slow, traces = counted()
    found = together(8, lambda number: slow.trace(N=number % 2))
    assert sorted(traces) == [0, 1]
    assert all(each is found[number % 2] for number, each in enumerate(found))


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
def test_a_module_is_assembled_once_for_all_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "left").write_bytes(small(b"code"))
    tool = fake_tool(tmp_path, f"open({str(tmp_path / 'runs')!r}, 'a').write('.'); time.sleep(0.3); "
                               f"open(sys.argv[-1], 'wb').write(open({str(tmp_path / 'left')!r}, 'rb').read())")
    monkeypatch.setenv("PTXKIT_PTXAS", str(tool))
    monkeypatch.setenv("PTXKIT_CACHE_DIR", "off")
    settings.settings.cache_clear()
    try:
        found = together(8, lambda number: toolchain.assemble(planted.CLEAN))
    finally:
        monkeypatch.undo()
        settings.settings.cache_clear()
    assert {each.cubin for each in found} == {small(b"code")}
    assert (tmp_path / "runs").read_text() == "."


def test_an_error_is_each_threads_own_and_work_is_tried_again() -> None:
    once, runs = Once[int](), []

    def work() -> int:
        runs.append(1)
        time.sleep(0.01)
        if len(runs) < 3:
            raise ValueError(len(runs))
        return 7

    def asked(number: int) -> object:
        try:
            return once.get("key", work)
        except ValueError as error:
            return error.args[0]

    assert sorted(map(str, together(6, asked))) == ["1", "2", "7", "7", "7", "7"]
    assert len(runs) == 3


def test_work_that_asks_for_itself_is_refused() -> None:
    once = Once[int]()
    with pytest.raises(ReenteredError):
        once.get("key", lambda: once.get("key", lambda: 1))
    assert once.get("key", lambda: 2) == 2


def test_two_kernels_that_ask_for_each_other() -> None:
    @kernel(block=32)
    def one(out: Ptr[u32]) -> None:
        other.ptx()

    @kernel(block=32)
    def other(out: Ptr[u32]) -> None:
        one.ptx()

    with pytest.raises(TraceError, match="kernel `one` is traced within its own trace, by way of another"):
        one.ptx()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_during_a_trace_traces_by_itself() -> None:
    slow, traces = counted(slowly=0.5)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(slow.ptx)
        while not traces:
            time.sleep(0.005)
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if "st.global.u32" in slow.ptx() and len(traces) == 2 else 1)
            finally:
                os._exit(2)
        until = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        if ended[0] == 0:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert ended == (child, 0)
        assert "st.global.u32" in working.result()
    assert traces == [1]
