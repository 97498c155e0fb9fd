"""Many configurations brought into the cache of cubins at once, with a bar that shows how far that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO, TypeVar

from ptxkit.errors import NoToolError, PtxkitError

from ..config.dense import DenseConfig
from ..config.grouped import GroupedConfig
from ..launch import grid, group_kernels

C = TypeVar("C", DenseConfig, GroupedConfig)


class Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty()
        self.total, self.what, self.done = total, what, 0

    def step(self, note: str = "") -> None:
        self.done += 1
        if self.shown:
            filled = 30 * self.done // max(1, self.total)
            self.stream.write(f"\r\x1b[K{self.what} [{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} {note}")
            self.stream.flush()

    def close(self) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def _assemble(config: DenseConfig | GroupedConfig) -> None:
    """Brings the configuration's kernel into the cache of cubins."""
    kernel = grid.kernel_of(config) if isinstance(config, DenseConfig) else group_kernels.kernel_of(config)
    kernel.assemble(**config.parameters)


def assembled(found: Sequence[C], jobs: int | None = None) -> dict[C, str]:
    """Brings all of them into the cache of cubins, several at a time (the assembler runs in its own process); why some could not be.

    The traces stay in this process, which launches them later. Without an assembler nothing is done: the driver assembles what is launched.
    """
    refused: dict[C, str] = {}
    progress = Progress(len(found), "assembling")

    def one(config: C) -> None:
        try:
            _assemble(config)
        except NoToolError:
            pass
        except PtxkitError as error:
            refused[config] = str(error)

    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(one, found):
            progress.step()
    progress.close()
    return refused


def assemble(configs: Sequence[GroupedConfig], say: Callable[[str], None]) -> None:
    """Brings the kernels of all of them into the cache of cubins, each once, and says which ones could not be."""
    kernels = list(dict.fromkeys(kernel for config in configs for kernel in config.kernels))
    for kernel, why in assembled(kernels).items():
        say(f"not assembled: {kernel}: {why}")


__all__ = ["Progress", "assemble", "assembled"]
