"""A kernel and a function that other processes find by their names."""

from __future__ import annotations

import pickle

from ptxkit import Ptr, Reg, func, kernel
from ptxkit.ptx import st
from ptxkit.types import u32


@func
def same(x: Reg[u32]) -> Reg[u32]:
    return x


@kernel(block=32)
def store(out: Ptr[u32], *, N: int = 1) -> None:
    for _ in range(N):
        st.global_.u32(out, 7)


class Room:
    """Names within a class are found too."""

    @kernel(block=32)
    @staticmethod
    def inner(out: Ptr[u32]) -> None:
        st.global_.u32(out, 8)


def text_of(made: object) -> str:
    """Of a kernel, in another process."""
    return made.ptx(N=2)  # type: ignore[attr-defined,no-any-return]


def raises(error: bytes) -> None:
    """Raises what another process has pickled."""
    raise pickle.loads(error)


def refused(number: int) -> None:
    """Raises an error of a trace, in another process."""
    store.ptx(M=number)
