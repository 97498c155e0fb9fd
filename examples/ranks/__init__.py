"""What the examples of several GPUs share: processes, one a GPU, that meet, and a clock that tells communication from the rest."""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ptxkit.torch import cpu_device

Work = Callable[[argparse.Namespace, "Clock"], None]


class Clock:
    """Microseconds of steps: events of the stream on a GPU, the process's time without one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.spans = device, []

    spans: list[tuple[Any, Any]]

    def _now(self) -> Any:
        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, start: Any, end: Any) -> float:
        return 1e6 * (end - start) if self.device.type == "cpu" else 1e3 * start.elapsed_time(end)

    @contextmanager
    def communication(self) -> Iterator[None]:
        """What is in the block is communication, with the time that a device waits in it for the others."""
        start = self._now()
        yield
        self.spans.append((start, self._now()))

    def time(self, step: Callable[[], Any], repeats: int) -> tuple[float, float]:
        """The medians of a step and of the communication in it."""
        found = []
        for _ in range(repeats):
            dist.barrier()
            self.spans.clear()
            start = self._now()
            step()
            end = self._now()
            if self.device.type != "cpu":
                torch.cuda.synchronize()
            found.append((self._between(start, end), sum(self._between(*span) for span in self.spans)))
        whole, talk = zip(*found, strict=True)
        return statistics.median(whole), statistics.median(talk)

    def words(self, step: Callable[[], Any], repeats: int) -> str:
        """The same in words."""
        whole, talk = self.time(step, repeats)
        return f"a step {whole:,.0f} us, of it communication {talk:,.0f} us, products and the rest {whole - talk:,.0f} us"


def arguments(description: str | None, **numbers: tuple[int, int]) -> argparse.ArgumentParser:
    """A parser with the options of all these examples, and numbers with defaults for GPUs and for the CPU device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--processes", type=int, default=2, help="one a GPU (default: 2); torchrun has its own")
    parser.add_argument("--cpu", action="store_true", help="on the CPU device, by gloo: small shapes")
    parser.add_argument("--repeats", type=int, help="steps that are timed")
    for name, (gpu, cpu) in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default: {gpu}, with --cpu {cpu}")
    parser.set_defaults(numbers=numbers)
    return parser


def launch(work: Work, parser: argparse.ArgumentParser) -> None:
    """Run `work` in each process. Ends with a sentence where there are too few GPUs."""
    options = parser.parse_args()
    for name, default in {**options.numbers, "repeats": (20, 1)}.items():
        if getattr(options, name) is None:
            setattr(options, name, default[options.cpu])
    if "RANK" in os.environ:                                 # of torchrun
        _run(int(os.environ.get("LOCAL_RANK", "0")), work, options, "env://")
        return
    if not options.cpu and torch.cuda.device_count() < options.processes:
        sys.exit(f"{options.processes} processes need as many GPUs, and torch sees {torch.cuda.device_count()}: give --processes, or --cpu "
                 "for small shapes on the CPU device")
    with tempfile.TemporaryDirectory() as folder:
        given = work, options, (Path(folder) / "meeting").as_uri()
        method = "fork" if options.cpu and sys.platform == "linux" else "spawn"      # forked, they have what this process has imported
        torch.multiprocessing.start_processes(_run, given, options.processes, start_method=method)


def _run(local: int, work: Work, options: argparse.Namespace, meeting: str) -> None:
    where = {} if meeting == "env://" else {"rank": local, "world_size": options.processes}
    device = torch.device("cpu") if options.cpu else torch.device("cuda", local)
    if options.cpu:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.cpu else "nccl", init_method=meeting, **where)
    try:
        with cpu_device() if options.cpu else nullcontext():
            work(options, Clock(device))
    finally:
        dist.destroy_process_group()


def apart(found: Any, wanted: Any) -> float:
    """The distance of a tensor from another one, relative to its norm."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm())


def worst(errors: dict[str, float], within: float, device: torch.device) -> float:
    """The largest of the errors in all processes. Raises AssertionError for one that is not within what rounding allows."""
    assert max(errors.values()) <= within, errors
    largest = torch.tensor(max(errors.values()), device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest)


def say(line: str) -> None:
    """Print a line, in one process."""
    if dist.get_rank() == 0:
        print(line, flush=True)
