"""What grouped products are compared with. A baseline prepares a launch for one operand set, before anything is timed.

Built in: `torch` (torch._grouped_mm), `deep_gemm` and `deep_gemm_masked` (DeepGEMM 2.6), and `hpc_ops`, where they are installed; and
`ours_contiguous` and `ours_masked`, this package's products in the layouts of `deep_gemm` and `deep_gemm_masked`. Anything else is
`module:function`, called as `function(torch, case, data)` for each operand set; it returns a `Peer`, or the launch alone, and raises
`NotImplementedHere` with a sentence for a case that it has no product for. What it computes is checked before it is timed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...config.grouped import CONTIGUOUS_ROWS, GroupedConfig
from ...launch.grouped import group_gemm_contiguous, group_gemm_masked
from .baselines import Entry, Launch, NotImplementedHere, imported, named
from .grouped_cases import Case, filled
from .grouped_data import Data, wrong
from .operands import fault


@dataclass(frozen=True, slots=True)
class Peer:
    """`launch` enqueues one product on torch's current stream and returns y, or writes `data.out` and returns None.

    `rows`: which rows of what it returns are those of x, where its layout has others between them.
    """

    launch: Launch
    rows: Any = None


Make = Callable[[Any, Case, Data], Peer | Launch]


def torch_grouped_mm(torch: Any, case: Case, data: Data) -> Peer:
    """torch._grouped_mm, which has bf16 alone."""
    if case.kind != "bf16" or case.gated or case.quantised or not hasattr(torch, "_grouped_mm"):
        raise NotImplementedHere("torch._grouped_mm multiplies bf16")
    return Peer(functools.partial(torch._grouped_mm, data.x, data.w.transpose(1, 2), offs=data.cu[1:]))


def deep_gemm_contiguous(torch: Any, case: Case, data: Data) -> Peer:
    """DeepGEMM's contiguous layout: groups filled up to whole tiles, the group of each row."""
    library = _deep_gemm(case)
    aligned = getattr(library, "get_mk_alignment_for_contiguous_layout", None) or library.get_m_alignment_for_contiguous_layout
    taken = filled(case.lengths, int(aligned()))
    rows, groups, x, out = _contiguous(torch, case, data, taken)
    if case.kind == "bf16":
        return _returning(functools.partial(library.m_grouped_bf16_gemm_nt_contiguous, x, data.w, out, groups), out, rows)
    scale = library.get_mn_major_tma_aligned_tensor(_spread(torch, data.x_scale, rows, sum(taken)))
    product = functools.partial(library.m_grouped_fp8_gemm_nt_contiguous, (x, scale), (data.w, data.w_scale), out, groups)
    return _returning(product, out, rows)


def ours_contiguous(torch: Any, case: Case, data: Data) -> Peer:
    """This package's product in DeepGEMM's contiguous layout, its scales included."""
    if case.gated or case.quantised or case.kind == "fp8":
        raise NotImplementedHere("DeepGEMM's contiguous layout, for comparison, is measured in bf16 and with block scales")
    return in_blocks(torch, case, data)


def in_blocks(torch: Any, case: Case, data: Data, config: GroupedConfig | None = None) -> Peer:
    """This package's product of contiguous groups, with scales of blocks that are contiguous along the rows."""
    taken = filled(case.lengths, CONTIGUOUS_ROWS)
    rows, groups, x, out = _contiguous(torch, case, data, taken)
    scale = _spread(torch, data.x_scale, rows, sum(taken)).T.contiguous().T if case.kind == "fp8-block" else data.x_scale
    product = functools.partial(group_gemm_contiguous, x, data.w, groups, x_scale=scale, w_scale=data.w_scale, out=out, config=config,
                                activation="silu_and_mul" if case.gated else None)
    return _returning(product, out, rows)


def deep_gemm_masked(torch: Any, case: Case, data: Data) -> Peer:
    """DeepGEMM's masked layout: every group with as much room as the longest, and how many rows of it are used.

    Its tiles have 64 or 128 rows, and one that ends after a group's room would be written over the next group.
    """
    library = _deep_gemm(case)
    room = max(filled(case.lengths, 128))
    if room > max(128, 8 * case.tokens):
        raise NotImplementedHere(f"{case.groups} groups with room for {room} rows each take more than 8 times the memory")
    rows, shape = _places(torch, case, [room] * case.groups), (case.groups, room)
    x = _spread(torch, data.x, rows, case.groups * room).view(*shape, case.k)
    out = torch.empty((*shape, case.n), dtype=torch.bfloat16, device="cuda")
    used = torch.tensor(case.lengths, dtype=torch.int32, device="cuda")
    y = out.view(-1, case.n)
    if case.kind == "bf16":
        return _returning(functools.partial(library.m_grouped_bf16_gemm_nt_masked, x, data.w, out, used, case.tokens), y, rows)
    scale = library.get_mn_major_tma_aligned_tensor(_spread(torch, data.x_scale, rows, case.groups * room).view(*shape, -1))
    product = functools.partial(library.m_grouped_fp8_gemm_nt_masked, (x, scale), (data.w, data.w_scale), out, used, case.tokens)
    return _returning(product, y, rows)


def ours_masked(torch: Any, case: Case, data: Data) -> Peer:
    """This package's product in DeepGEMM's masked layout, its scales included."""
    if case.gated or case.quantised or case.kind == "fp8":
        raise NotImplementedHere("DeepGEMM's masked layout, for comparison, is measured in bf16 and with block scales")
    room = max(4, *filled(case.lengths, 4))
    rows, shape = _places(torch, case, [room] * case.groups), (case.groups, room)
    x = _spread(torch, data.x, rows, case.groups * room).view(*shape, case.k)
    out = torch.empty((*shape, case.n), dtype=torch.bfloat16, device="cuda")
    used, scale = torch.tensor(case.lengths, dtype=torch.int32, device="cuda"), None
    if data.x_scale is not None:
        scale = _spread(torch, data.x_scale, rows, case.groups * room).view(*shape, -1).transpose(1, 2).contiguous().transpose(1, 2)
    product = functools.partial(group_gemm_masked, x, data.w, used, x_scale=scale, w_scale=data.w_scale, out=out, mean_tokens=case.tokens)
    return _returning(product, out.view(-1, case.n), rows)


def hpc_ops(torch: Any, case: Case, data: Data) -> Peer:
    """hpc-ops' fp8 products: a scale for each group, or block scales.

    Of block scales it takes those of x by blocks of K, groups filled up to whole tiles, and those of w with blocks of K filled up to 4.
    """
    library = _imported("hpc", case, ("fp8", "fp8-block"))
    if case.groups > HPC_OPS_GROUPS:
        raise NotImplementedHere(f"hpc-ops counts the tiles of up to {HPC_OPS_GROUPS} groups")
    how = {"num_seq_per_group_avg": case.tokens, "output": data.out}
    operands = (data.x, data.w, data.cu[1:] - data.cu[:-1], data.cu)
    if case.kind == "fp8":
        return Peer(functools.partial(library.group_gemm_pertensor_fp8, *operands, data.w_scale * data.x_scale, **how))
    tile = hpc_ops_tile(case.tokens)
    taken = filled(case.lengths, tile)
    x_scale = _spread(torch, data.x_scale, _places(torch, case, taken), sum(taken)).T.contiguous()
    w_scale = torch.nn.functional.pad(data.w_scale, (0, -data.w_scale.shape[2] % 4)).contiguous()
    return Peer(functools.partial(library.group_gemm_blockwise_fp8, *operands, x_scale, w_scale, **how))


HPC_OPS_GROUPS = 256
_HPC_OPS_TILES = ((8, 8), (16, 16), (32, 32), (48, 48), (64, 64), (96, 48), (128, 32), (144, 48))


def hpc_ops_tile(tokens: int) -> int:
    """Rows of a tile that hpc-ops takes for that many tokens a group; its scales of x are laid out by them."""
    return next((tile for most, tile in _HPC_OPS_TILES if tokens <= most), 64)


def _deep_gemm(case: Case) -> Any:
    """DeepGEMM. Its launches may begin under the end of the one before, as ours do."""
    library = _imported("deep_gemm", case, ("bf16", "fp8-block"))
    if hasattr(library, "set_pdl"):
        library.set_pdl(True)
    return library


def _imported(name: str, case: Case, kinds: tuple[str, ...]) -> Any:
    if case.kind not in kinds or case.gated or case.quantised:
        raise NotImplementedHere(f"{name} is asked for {' and '.join(kinds)}, without a gate and with results in bf16")
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise NotImplementedHere(str(error)) from None


def _places(torch: Any, case: Case, taken: Sequence[int]) -> Any:
    """Where the rows of x come when each group takes up that many."""
    found, first = [], 0
    for length, room in zip(case.lengths, taken, strict=True):
        found.append(torch.arange(first, first + length, device="cuda"))
        first += room
    return torch.cat(found)


def _spread(torch: Any, array: Any, rows: Any, count: int) -> Any:
    """`count` rows: the array's at `rows`, zeros elsewhere."""
    whole = torch.zeros((count, array.shape[1]), dtype=torch.uint8 if array.element_size() == 1 else array.dtype, device="cuda")
    whole[rows] = array.view(whole.dtype)
    return whole.view(array.dtype)


def _contiguous(torch: Any, case: Case, data: Data, taken: Sequence[int]) -> tuple[Any, Any, Any, Any]:
    """Where the rows of x come in groups that take up so many; the group of each row, -1 of further ones; x so; and room for y."""
    rows, count = _places(torch, case, taken), sum(taken)
    groups = torch.full((count,), -1, dtype=torch.int32, device="cuda")
    of_group = torch.arange(case.groups, dtype=torch.int32, device="cuda")
    groups[rows] = of_group.repeat_interleave(torch.tensor(case.lengths, device="cuda"))
    return rows, groups, _spread(torch, data.x, rows, count), torch.empty((count, case.columns), dtype=torch.bfloat16, device="cuda")


def _returning(product: Launch, out: Any, rows: Any) -> Peer:
    def launch() -> Any:
        product()
        return out

    return Peer(launch, rows)


BUILT_IN: dict[str, Make] = {"torch": torch_grouped_mm, "deep_gemm": deep_gemm_contiguous, "deep_gemm_masked": deep_gemm_masked,
                             "hpc_ops": hpc_ops, "ours_contiguous": ours_contiguous, "ours_masked": ours_masked}


def baselines(names: Sequence[str]) -> dict[str, Make]:
    """The baselines of these names, for grouped products."""
    return named(names, BUILT_IN, imported)


def entry(torch: Any, name: str, make: Make, case: Case, sets: Sequence[Data]) -> Entry:
    """A baseline's launches for all operand sets, when what it computes is right."""
    launches: list[Launch] = []
    for number, data in enumerate(sets):
        made = make(torch, case, data)
        peer = made if isinstance(made, Peer) else Peer(made)
        if not number:
            sentence = fault(torch, data.out, peer.launch, functools.partial(_wrong, torch, case, data, peer.rows))
            if sentence:
                raise NotImplementedHere(f"wrong: {sentence}")
        launches.append(peer.launch)
    return Entry(name, launches)


def _wrong(torch: Any, case: Case, data: Data, rows: Any, returned: Any) -> str | None:
    y = data.out if returned is None else returned
    return wrong(torch, case, data, y if rows is None else y[rows])


__all__ = ["BUILT_IN", "Make", "Peer", "baselines", "entry", "in_blocks"]
