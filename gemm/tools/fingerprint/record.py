"""Fingerprints of many problems: drawn, traced and assembled in worker processes, and kept in a file.

ptxas 13.0 is not deterministic: of one text in 500 it makes either of two programs, with other registers or in another order, by the
addresses at which the system puts its memory (measured: 22 and 18 of 40 runs). Here it always has the same addresses. Where names in the
text differ that may still decide, so a kernel that is not as in another file is assembled again, a few times, at random addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import json
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxkit.errors import AssembleError, PtxkitError
from ptxkit.files import read_json, temporary_folder, write_whole

from . import sass
from .draw import draw

if TYPE_CHECKING:
    from ptxkit.runtime.toolchain import Assembly

    from .adapter import Launched

SCHEMA = 1
CHUNK, CHUNKS_PER_PROCESS = 8, 8
"""Problems of one task, which share one run of the disassembler; tasks of one process, which keeps every kernel that it traced."""
KINDS = ("dense", "grouped")
TRIES, MOST_AGAIN = 16, 40
"""How often a kernel that differs is assembled again, and of how many problems at most."""
_FIXED_ADDRESSES = 0x0040000
"""Of personality(2)."""


class Record(NamedTuple):
    """The fingerprint of one kernel. `sass` is the hash of its normalised machine code; sizes are bytes."""

    role: str
    sass: str
    registers: int
    spills: int
    static: int
    dynamic: int


class Found(NamedTuple):
    """One problem: its key, the hash of the PTX text and the record of each kernel, and words for the coverage; no kernels if refused."""

    key: str
    texts: tuple[str, ...]
    records: tuple[Record, ...]
    words: tuple[str, ...]


@dataclass
class Fingerprints:
    """Those of all problems that were drawn. `drawn`, `refused` and `distinct` (PTX texts) are counts by kind. `again` counts the problems
    whose kernels are as in another file only at one more try; it is not kept."""

    seed: int
    ptxas: str = ""
    drawn: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    distinct: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: dict[str, tuple[Record, ...]] = field(default_factory=dict)
    again: int = 0

    def text(self) -> str:
        """As JSON: every kernel once, every problem with the numbers of its kernels, sorted."""
        kernels = sorted({record for records in self.problems.values() for record in records})
        number = {record: index for index, record in enumerate(kernels)}
        problems = [f"{json.dumps(key)}:{json.dumps([number[record] for record in records], separators=(',', ':'))}"
                    for key, records in sorted(self.problems.items())]
        head = {name: getattr(self, name) for name in ("seed", "ptxas", "drawn", "refused", "distinct", "coverage")}
        lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in kernels)
        return (f'{json.dumps({"schema": SCHEMA, **head}, sort_keys=True)[:-1]},\n"kernels": [\n{lines}\n],\n"problems": {{\n'
                + ",\n".join(problems) + "\n}}\n")

    @classmethod
    def read(cls, path: Path) -> Fingerprints:
        """What `text` wrote."""
        try:
            data = read_json(path)
            if data.pop("schema", None) != SCHEMA:
                raise ValueError
            kernels = [Record(*row) for row in data.pop("kernels")]
            problems = {key: tuple(kernels[index] for index in numbers) for key, numbers in data.pop("problems").items()}
            return cls(problems=problems, **data)
        except OSError as error:
            raise PtxkitError(f"cannot read {path}: {error.strerror}") from None
        except (LookupError, TypeError, ValueError, AttributeError):
            raise PtxkitError(f"{path} is no file of fingerprints of this version") from None


def take(seed: int, wanted: Mapping[str, int], *, other: Fingerprints | None = None, jobs: int = 2,
         keep: Path | None = None) -> Fingerprints:
    """Fingerprints of so many distinct PTX texts of each kind, or of the problems of another file.

    `keep` is a folder for normalised machine code, `<hash>.gz`. The result does not depend on `jobs`.
    """
    from ptxkit.runtime.toolchain import ptxas

    made = Fingerprints(seed, ptxas().version)
    with temporary_folder() as folder, multiprocessing.get_context("spawn").Pool(
            jobs, _begin, (str(folder), str(keep) if keep else ""), CHUNKS_PER_PROCESS) as pool:
        for kind in KINDS:
            problems = None if other is None else other.drawn[kind]
            size = max(1, min(CHUNK, wanted[kind] if problems is None else problems))
            _of_kind(made, kind, wanted[kind], problems, _results(pool, kind, seed, jobs, size))
        if other is not None:
            _try_again(made, other, pool)
        pool.terminate()
    return made


def _of_kind(made: Fingerprints, kind: str, wanted: int, exactly: int | None, results: Iterator[Found]) -> None:
    texts: set[str] = set()
    covered: Counter[str] = Counter()
    drawn = refused = 0
    while drawn < exactly if exactly is not None else len(texts) < wanted:
        found = next(results)
        drawn += 1
        if not found.records:
            refused += 1
            continue
        if not texts.issuperset(found.texts):
            covered.update(found.words)
        texts.update(found.texts)
        made.problems[found.key] = found.records
    made.drawn[kind], made.refused[kind], made.distinct[kind] = drawn, refused, len(texts)
    made.coverage[kind] = dict(sorted(covered.items()))


def _try_again(made: Fingerprints, other: Fingerprints, pool: Any) -> None:
    """Takes over what is as in the other file at one more try."""
    differing = [(key, kind, number) for kind in KINDS for number in range(made.drawn[kind])
                 if (key := draw(kind, made.seed, number).key) in other.problems and key in made.problems
                 and made.problems[key] != other.problems[key]]
    waiting = [(key, pool.apply_async(_again, (kind, made.seed, number, other.problems[key])))
               for key, kind, number in differing[:MOST_AGAIN]]
    for key, result in waiting:
        if (found := result.get()) == other.problems[key]:
            made.problems[key] = found
            made.again += 1


def _results(pool: Any, kind: str, seed: int, jobs: int, size: int) -> Iterator[Found]:
    """Problem after problem in their order; a few tasks are under way ahead of it."""
    ahead: deque[Any] = deque()
    first = 0
    while True:
        while len(ahead) < jobs + 1:
            ahead.append(pool.apply_async(_chunk, (kind, seed, range(first, first + size))))
            first += size
        yield from ahead.popleft().get()


# ------------------------------------------------------------------------------------------------------ in a worker process

_folders: dict[str, Path] = {}


def _begin(shared: str, keep: str) -> None:
    """Each kernel is assembled here: a kept cubin may have hints of another version, and a user's table is not the library's."""
    os.environ["PTXKIT_CACHE_DIR"] = "off"
    _fixed_addresses(True)
    _folders.clear()
    _folders["shared"] = Path(shared)
    if keep:
        _folders["keep"] = Path(keep)


def _fixed_addresses(wanted: bool) -> None:
    """Whether the programs that this process starts from now on have their memory at the same addresses each time, where there is Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).personality(_FIXED_ADDRESSES if wanted else 0)


def _chunk(kind: str, seed: int, numbers: range) -> list[Found]:
    """The problems with these numbers."""
    from . import adapter

    drawn, new = [], {}
    for number in numbers:
        problem = draw(kind, seed, number)
        try:
            kernels = adapter.kernels(problem)
        except adapter.Unsupported:
            kernels = ()
        texts = []
        for each in kernels:
            text = each.traced.ptx()
            texts.append(_hash(text))
            if not (_folders["shared"] / texts[-1]).exists():
                new[texts[-1]] = each
        drawn.append((problem.key, texts, tuple(dict.fromkeys(word for each in kernels for word in each.words))))
    _fingerprint(new)
    return [Found(key, tuple(texts), tuple(map(_kept, texts)), words) for key, texts, words in drawn]


def _again(kind: str, seed: int, number: int, wanted: tuple[Record, ...]) -> tuple[Record, ...]:
    """The wanted records of this problem's kernels where ptxas makes them at some try, else others."""
    from . import adapter

    kernels = adapter.kernels(draw(kind, seed, number))
    if len(kernels) != len(wanted):
        return ()
    _fixed_addresses(False)
    try:
        return tuple(_wanted(each, record) for each, record in zip(kernels, wanted, strict=True))
    except AssembleError:
        return ()
    finally:
        _fixed_addresses(True)


def _wanted(kernel: Launched, record: Record) -> Record:
    """That record if it is one of TRIES, else the last one."""
    from ptxkit.runtime.toolchain import assemble

    own = record
    for _ in range(TRIES):
        made = assemble(kernel.traced.ptx())
        code = sass.code(made.cubin)
        own, _ = _record(kernel, made, code, sass.disassembled([code])[0])
        if own == record:
            break
    return own


def _fingerprint(kernels: Mapping[str, Launched]) -> None:
    """Assembles kernels, and leaves their records in the shared folder for all processes."""
    from ptxkit.runtime.toolchain import assemble

    made = {}
    for name, each in kernels.items():
        try:
            made[name] = assemble(each.traced.ptx())
        except AssembleError:
            _leave(name, Record(each.role, "refused", 0, 0, 0, 0))
    codes = [sass.code(assembly.cubin) for assembly in made.values()]
    for name, code, lines in zip(made, codes, sass.disassembled(codes), strict=True):
        record, text = _record(kernels[name], made[name], code, lines)
        _leave(name, record)
        if "keep" in _folders:
            _write(_folders["keep"] / f"{record.sass}.gz", gzip.compress(text.encode(), mtime=0))


def _record(kernel: Launched, made: Assembly, code: bytes, lines: Sequence[str]) -> tuple[Record, str]:
    """The record of a kernel and its normalised machine code."""
    from ptxkit.sass import cubin

    from . import adapter

    traced, (entry,) = kernel.traced, cubin.read(made.cubin).entries.values()
    parameters = sass.Parameters.of(entry, [each.name for each in traced.parameters], adapter.RENAMED)
    head = [f"block {traced.block} cluster {traced.cluster}"]
    head += [f"{section} {data.hex()}" for section, data in sorted(sass.constants(made.cubin).items())]
    text = "\n".join([*head, *sass.normalised(lines, code, parameters)]) + "\n"
    used = made.resources[traced.name]
    return Record(kernel.role, _hash(text), used.registers, used.spills, used.shared, traced.dynamic_smem), text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kept(name: str) -> Record:
    return Record(*json.loads((_folders["shared"] / name).read_text(encoding="utf-8")))


def _leave(name: str, record: Record) -> None:
    _write(_folders["shared"] / name, json.dumps(record).encode())


def _write(path: Path, data: bytes) -> None:
    """Aside, then in place: another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


__all__ = ["Fingerprints", "Found", "Record", "take"]
