"""Python's own `for`, `if`, `while` and `with` on what runs on the GPU."""

from __future__ import annotations

import pytest

from ptxkit import Reg, for_range, if_, loop
from ptxkit.ptx import add
from ptxkit.types import u32
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


def test_a_register_is_no_sequence_and_no_context() -> None:
    def iterated(n: Numbers) -> None:
        for _ in n:                                                              # wrong
            pass

    def unpacked(n: Numbers) -> None:
        _, _ = n                                                                 # wrong

    def contained(n: Numbers) -> None:
        _ = 3 in n                                                               # wrong

    def entered(n: Numbers) -> None:
        with n > 3:                                                              # wrong
            pass

    for wrong in (iterated, unpacked, contained):
        refused(wrong, "is one value and no sequence", "`with for_range(n) as i:`")
    refused(entered, "`with` takes no register", "`with if_(p):`")


def test_python_cannot_run_what_runs_on_the_gpu() -> None:
    def if_statement(n: Numbers) -> None:
        if if_(n == 0):                                                          # wrong
            add.u32(n, n, 1)

    def for_statement(n: Numbers) -> None:
        for _ in for_range(n):                                                   # type: ignore[attr-defined] # wrong
            add.u32(n, n, 1)

    def while_statement(n: Numbers) -> None:
        while loop():                                                            # wrong
            add.u32(n, n, 1)

    for wrong, words in ((if_statement, "write `with if_(p):`"), (for_statement, "write `with for_range(n) as i:`"),
                         (while_statement, "write `with loop():`")):
        refused(wrong, words)
