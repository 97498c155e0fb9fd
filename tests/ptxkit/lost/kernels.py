"""Wrong kernels, each an error at the line that ends in `# wrong`, and right ones that look like them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ptxkit import Reg, for_range, kernel
from ptxkit.types import u32
from tests.ptxkit.refusal import line_of, refused

Body = Callable[..., None]
N = Reg[u32]
"""How often the loop of a kernel runs."""
RULES = ("result-dropped", "result-guarded")


@dataclass
class Holder:
    """An object of the user's that holds registers."""

    t: Any
    inner: Any = None


class Tiles:
    """A context manager of the user's, which runs a loop."""

    def __init__(self, n: N) -> None:
        self.n = n

    def __enter__(self) -> Any:
        self.loop = for_range(self.n)
        return self.loop.__enter__()

    def __exit__(self, *given: Any) -> Any:
        return self.loop.__exit__(*given)


class Kernels:
    """The kernels of one test module, by name."""

    def __init__(self) -> None:
        self.wrongs: dict[str, tuple[Body, tuple[str, ...]]] = {}
        self.rights: dict[str, Body] = {}

    def wrong(self, *words: str) -> Callable[[Body], Body]:
        """A kernel that is an error whose message has these words. A rule's name stands for a finding of `check`."""

        def kept(body: Body) -> Body:
            assert body.__name__ not in self.wrongs
            self.wrongs[body.__name__] = body, words
            return body

        return kept

    def right(self, body: Body) -> Body:
        assert body.__name__ not in self.rights
        self.rights[body.__name__] = body
        return body

    def tests(self) -> tuple[Callable[[str], None], Callable[[str], None]]:
        """The tests of a module, which asks for them after its last kernel: of the wrong ones, and of the right ones."""

        @pytest.mark.parametrize("name", self.wrongs)
        def wrong(name: str) -> None:
            self.is_refused(name)

        @pytest.mark.parametrize("name", self.rights)
        def right(name: str) -> None:
            self.is_silent(name)

        return wrong, right

    def is_refused(self, name: str) -> None:
        body, words = self.wrongs[name]
        if words and words[0] in RULES:
            found = [each for each in kernel(block=128)(body).check() if each.rule == words[0]]
            assert found
            assert all(each.position is not None and each.position.line == line_of(body) for each in found), found
            assert all(each.fix for each in found)
        else:
            assert "`" in refused(body, *words).partition(": ")[2]  # what is written instead

    def is_silent(self, name: str) -> None:
        found: list[Any] = [each for each in kernel(block=128)(self.rights[name]).check() if each.rule in RULES or each.severity == "error"]
        assert found == []
