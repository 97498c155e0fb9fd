"""A pytest fixture that proves kernels: `prove(kernel, grid, *args, schedules=...)` fails with the report and keeps the replay.

pytest finds it by itself where ptxkit is installed; else `pytest_plugins = ["ptxkit.testing"]` or `-p ptxkit.testing`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from .proof.result import Proof

Accept = Literal["proven", "incomplete"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares `--ptxkit-replays`, and the settings `ptxkit_replays` and `ptxkit_search_seconds`."""
    group = parser.getgroup("ptxkit")
    group.addoption("--ptxkit-replays", metavar="DIR", help="keep the replays of failed proofs in this folder, not in the test's own")
    parser.addini("ptxkit_replays", "as --ptxkit-replays", default="")
    parser.addini("ptxkit_search_seconds", "how long a failed proof looks for a short schedule", default="20")


class Prover:
    """What the fixture gives. `folder` is where replays are kept, `name` the beginning of their names."""

    def __init__(self, folder: Path, name: str, seconds: float) -> None:
        self.folder = folder
        self.name = name
        self.seconds = seconds
        self.count = 0

    def __call__(self, kernel: Any, grid: Any = None, *args: Any, schedules: int | str | Sequence[Any] = 4, accept: Accept = "proven",
                 **options: Any) -> Proof:
        """As `ptxkit.prove`; the test fails unless the launch is proven. With `accept="incomplete"` it is enough that nothing is wrong and
        all schedules leave the same memory.
        """
        from .errors import PtxkitError
        from .proof.prove import prove

        __tracebackhide__ = True
        if accept not in ("proven", "incomplete"):
            pytest.fail(f'accept is "proven" or "incomplete", not {accept!r}', pytrace=False)
        proof: Proof | PtxkitError
        try:
            proof = prove(kernel, grid, *args, schedules=schedules, **options)
        except PtxkitError as error:
            proof = error
        if isinstance(proof, PtxkitError):  # the launch does not fit: the sentence says all
            pytest.fail(f"{type(proof).__name__}: {proof}", pytrace=False)
        self.count += 1
        good = proof.proven or (accept == "incomplete" and proof.difference is None and proof.verdict != "error")
        if not good:
            pytest.fail(self._said(proof), pytrace=False)
        return proof

    def _said(self, proof: Proof) -> str:
        """The report, with the files that show why."""
        said = str(proof)
        if proof.difference is None and proof.verdict != "error":
            return f'{said}\nnothing is wrong, but not every schedule is known to be equivalent: accept="incomplete" lets that pass'
        replay = proof.replay(seconds=self.seconds)
        base = f"{self.name}-{self.count}" if self.count > 1 else self.name
        said = f"{said}\n\nshortest failure: {replay}\n\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            page, choices = replay.page(self.folder / f"{base}.html"), replay.save(self.folder / f"{base}.json")
        except OSError as error:
            return f"{said}the replay cannot be kept in {self.folder}: {error.strerror}: name another folder with --ptxkit-replays"
        return f"{said}page: {page}\nreplay: {choices}"


@pytest.fixture
def prove(request: pytest.FixtureRequest, tmp_path: Path) -> Prover:
    """Proves a launch on the CPU device: no GPU is needed."""
    config = request.config
    given = config.getoption("--ptxkit-replays") or config.getini("ptxkit_replays")
    folder = Path(config.rootpath, given) if given else tmp_path
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid.partition("::")[2] or request.node.name).strip("-")[:100]
    file = re.sub(r"[^\w.-]+", "-", request.node.nodeid.partition("::")[0].removesuffix(".py")).strip("-")
    seconds = str(config.getini("ptxkit_search_seconds"))
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?", seconds):
        raise pytest.UsageError(f"ptxkit_search_seconds is a number of seconds, not {seconds!r}")
    return Prover(folder, f"{file}-{name}" if given else name, float(seconds))
