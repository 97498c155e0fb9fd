"""Who is measured: this package and the baselines. Each turns a problem and its operand sets into entries: launches on torch's current
stream.

Built in: `ours`, `invariant` (the same with `batch_invariant=True`), `cublas` (torch.matmul), `cublaslt` (the best of the algorithms that
it proposes), `scaled_mm` (fp8), and the two ceilings `wgmma` and `read`. Anything else is `module:function`, called as `function(a, b, d)`
with a [M, K], b [K, N], d [M, N].
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ptxkit.errors import PtxkitError
from ptxkit.measure.contest import NotImplementedHere
from ptxkit.measure.regimes import Entry
from ptxkit.measure.timer import Launch
from ptxkit.types import TYPES

from ...launch.dense import card_of
from ..problems import chosen
from .operands import TORCH_NAMES, Operands
from .shapes import BYTES, Problem

T = TypeVar("T")


class BaselineError(PtxkitError, ValueError):
    """A baseline that is not there."""


Make = Callable[[Any, Problem, Sequence[Operands]], list[Entry]]
"""(torch, problem, operand sets) -> entries; of several, the fastest is kept. Raises NotImplementedHere."""


def ours(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """The product of this package, with the configuration that it chooses by itself."""
    return [Entry("ours", [our_launch(problem, data) for data in sets], detail=our_choice(problem))]


def invariant(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """The same with `batch_invariant=True`."""
    return [Entry("invariant", [our_launch(problem, data, batch_invariant=True) for data in sets], detail=our_choice(problem, True))]


def our_launch(problem: Problem, data: Operands, config: Any = None, batch_invariant: bool = False) -> Launch:
    """One product by this package's public entry."""
    how: dict[str, Any] = {"config": config, **({"batch_invariant": True} if batch_invariant else {})}
    from ptxkit import gemm

    if BYTES[problem.dtype] == 2 and problem.batch is None:
        return functools.partial(gemm.hgemm, data.a, data.b, data.d, **how)
    general: Any = getattr(gemm, "gemm", None)
    if not callable(general):
        raise NotImplementedHere("this package has no fp8 product")
    return functools.partial(general, data.a, data.b, data.d, a_scale=data.a_scale, b_scale=data.b_scale, **how)


def our_choice(problem: Problem, batch_invariant: bool = False) -> dict[str, Any]:
    """The configuration that the package chooses, as text for the record."""
    from ptxkit.runtime import driver

    config = chosen(problem, card_of(driver.current_device()), batch_invariant)
    return {} if config is None else {"config": str(config)}


def cublas(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """torch.matmul."""
    if BYTES[problem.dtype] == 1:
        raise NotImplementedHere("torch.matmul has no fp8 product: scaled_mm has")
    if problem.dtype == "f32":
        return [Entry("cublas", [functools.partial(_tf32, torch, data) for data in sets])]
    return [Entry("cublas", [functools.partial(torch.matmul, data.a, data.b, out=data.d) for data in sets])]


def _tf32(torch: Any, data: Operands) -> None:
    """torch.matmul in tf32, as ours; the products that results are compared with stay in f32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        torch.matmul(data.a, data.b, out=data.d)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def cublaslt(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """Every algorithm that the heuristic of cuBLASLt proposes."""
    from .cublaslt import LtError, proposals

    if problem.block or problem.rowcol:
        raise NotImplementedHere("cuBLASLt is asked for products with one scale")
    try:
        found = proposals(torch, problem, sets)
    except LtError as error:
        raise NotImplementedHere(str(error)) from None
    if not found:
        raise NotImplementedHere("cuBLASLt proposes nothing")
    return [Entry("cublaslt", launches, f"#{place}", detail={"algorithm": place, "of": len(found)}) for place, launches in enumerate(found)]


def scaled_mm(torch: Any, problem: Problem, sets: Sequence[Operands], fast: bool = True) -> list[Entry]:
    """torch._scaled_mm with one scale for each operand, or for each row and column, and fast accumulation; or with block scales, whose sums
    leave the tensor cores."""
    if BYTES[problem.dtype] > 1:
        raise NotImplementedHere("torch._scaled_mm multiplies fp8")
    if problem.batch is not None:
        raise NotImplementedHere("torch._scaled_mm is asked for single products")
    if problem.layout != "nt":
        raise NotImplementedHere("torch._scaled_mm takes the layout nt")
    if problem.block and (why := _no_blocks(problem, fast)):
        raise NotImplementedHere(why)
    kind = getattr(torch, TORCH_NAMES[problem.out])

    def launch(data: Operands) -> Launch:
        b_scale = _padded(torch, data.b_scale) if problem.block else data.b_scale
        accumulates = fast and not problem.block
        return lambda: torch._scaled_mm(data.a, data.b, data.a_scale, b_scale, out_dtype=kind, use_fast_accum=accumulates, out=data.d)

    return [Entry("scaled_mm" if fast else "scaled_mm_slow", [launch(data) for data in sets])]


def _no_blocks(problem: Problem, fast: bool) -> str:
    """Why torch._scaled_mm does not take a problem with block scales; nothing if it does."""
    if not fast:
        return "torch._scaled_mm has one product with block scales: ask for scaled_mm"
    if problem.m % 4 or (-(-problem.k // 128) % 4 and problem.n > 128):
        return "torch._scaled_mm takes block scales where M and the blocks of K are multiples of 4"
    return ""


def _padded(torch: Any, scales: Any) -> Any:
    """The scales of B, [K / 128, N / 128], as torch._scaled_mm takes them: contiguous along K, and each line begins a multiple of 4 scales
    after the one before."""
    depth, blocks = scales.shape
    lines = torch.zeros(blocks, -(-depth // 4) * 4, device=scales.device)[:, :depth]
    return lines.copy_(scales.T).T


def wgmma(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """wgmma alone on resident operands of the problem's type, in launches long enough for their loads not to count."""
    from ptxkit.runtime import driver

    from .ceilings import BM, BN, resident, resident_flops, resident_k

    type_ = TYPES[problem.dtype]
    grid = driver.device(driver.current_device()).multiprocessors
    k = resident_k(type_)
    kind = getattr(torch, TORCH_NAMES[problem.dtype])
    a, b = (torch.randn((rows, k), device="cuda").to(kind) for rows in (grid * BM, BN))
    d = torch.empty((grid * BM, BN), device="cuda", dtype=torch.float32)
    once = resident_flops(grid, 1, type_)
    rounds = max(64, round(max(problem.flops, _LEAST_FLOPS * BYTES["bf16"] / BYTES[problem.dtype]) / once))

    def launch() -> None:
        resident.launch(grid, a, b, d, rounds, TYPE=type_)

    scale = resident_flops(grid, rounds, type_) / problem.flops
    return [Entry("wgmma", [launch], scale=scale, ceiling=True, keeps=(a, b, d))]


_LEAST_FLOPS = 6e11
"""Of one launch of wgmma alone: with 16-bit operands 0.7 ms on an H200, of which loading 192 KiB an SM takes about 1 %."""
_READ_SHAPES = ((8192, 24), (16384, 12), (4096, 48))


def read(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
    """A streaming read of as many bytes as the product moves at least, from places that are as cold; pieces of several sizes."""
    return reads(torch, problem.bytes, max(1, len(sets)))


def reads(torch: Any, size: int, count: int) -> list[Entry]:
    """Streaming reads of `size` bytes in `count` places in turn."""
    from ptxkit.runtime import driver

    from .ceilings import READ_WARPS, stream

    grid = driver.device(driver.current_device()).multiprocessors
    total = torch.empty(grid * READ_WARPS, device="cuda", dtype=torch.int32)
    whole = -(-size // 16384) * 16384
    sources = [torch.randint(-(1 << 31), (1 << 31) - 1, (whole // 4,), device="cuda", dtype=torch.int32) for _ in range(count)]
    found = []
    for chunk, stages in _READ_SHAPES:
        chunks = max(1, round(size / chunk))
        launches: list[Launch] = [functools.partial(stream.launch, min(grid, chunks), source, total, chunks, CHUNK=chunk, STAGES=stages)
                                  for source in sources]
        pieces = f"{stages} x {chunk}"
        found.append(Entry("read", launches, pieces, chunks * chunk / size, True, {"pieces": pieces}))
    return found


def imported(name: str) -> Any:
    """What `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise BaselineError(f"--against {name}: {error}") from None


def foreign(name: str) -> Make:
    """A baseline from `module:function`."""
    function = imported(name)

    def make(torch: Any, problem: Problem, sets: Sequence[Operands]) -> list[Entry]:
        return [Entry(name, [functools.partial(function, data.a, data.b, data.d) for data in sets])]

    return make


BUILT_IN: dict[str, Make] = {"ours": ours, "invariant": invariant, "cublas": cublas, "cublaslt": cublaslt, "scaled_mm": scaled_mm,
                             "scaled_mm_slow": functools.partial(scaled_mm, fast=False), "wgmma": wgmma, "read": read}
CEILINGS = ("wgmma", "read")
NO_PEERS = (*CEILINGS, "invariant")
"""Those that are not among the baselines of which the best counts."""


def named(names: Sequence[str], built_in: Mapping[str, T], foreign: Callable[[str], T]) -> dict[str, T]:
    """The baselines of these names, each once, in that order: built in, or from `module:function`."""
    found: dict[str, T] = {}
    for name in names:
        if name not in built_in and ":" not in name:
            raise BaselineError(f"--against {name}: there are {', '.join(built_in)}, and module:function")
        found[name] = built_in[name] if name in built_in else foreign(name)
    return found


def baselines(names: Sequence[str]) -> dict[str, Make]:
    """The baselines of these names, for products of matrices."""
    return named(names, BUILT_IN, foreign)


__all__ = ["BUILT_IN", "CEILINGS", "NO_PEERS", "BaselineError", "Entry", "Launch", "Make", "NotImplementedHere", "baselines", "imported",
           "named", "our_choice", "our_launch", "reads"]
