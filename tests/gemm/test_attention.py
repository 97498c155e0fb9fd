"""The collective serves a kernel that is no GEMM: examples/attention_tile.py."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import attention_tile as example
from ptxkit import gemm
from ptxkit.runtime.toolchain import disassemble

COLLECTIVE = Path(gemm.__file__).parent / "collective"
PIECES = {"ConsumerSide", "Mma", "Multicast", "Pipeline", "StagedStore", "TiledCopy", "TiledMma", "mma_threads", "producer_warpgroup",
          "start"}


def imported(source: str) -> set[str]:
    """Names that a module imports from the collective."""
    return {alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("ptxkit.gemm.collective.") for alias in node.names}


def copied(source: str) -> set[str]:
    """Names that a module defines although the collective does."""
    def defined(text: str) -> set[str]:
        return {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}

    return defined(source) & {name for path in COLLECTIVE.glob("*.py") for name in defined(path.read_text(encoding="utf-8"))}


@pytest.mark.pure
def test_the_pieces_are_those_of_the_collective() -> None:
    source = Path(example.__file__).read_text(encoding="utf-8")
    assert imported(source) >= PIECES
    assert copied(source) == set()


@pytest.mark.pure
def test_a_copied_piece_is_seen() -> None:
    source = "".join(f"class {name}:\n    pass\n" for name in ("Pipeline", "Producer", "OnlineSoftmax"))
    assert copied(source) == {"Pipeline", "Producer"}


def operands(queries: int, keys: int, growth: tuple[float, float]) -> list[Any]:
    """Bits of q, k and v. The magnitude of the keys goes from one factor to the other."""
    generator = np.random.default_rng(keys)
    q, k, v = (generator.standard_normal((rows, example.HEAD), dtype=np.float32) for rows in (queries, keys, keys))
    k *= np.linspace(*growth, keys, dtype=np.float32)[:, None]
    return [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v)]


@pytest.mark.pure
@pytest.mark.parametrize(("queries", "tiles", "growth"), [(256, 1, (1, 1)), (1, 2, (1, 1)), (200, 5, (0.1, 6)), (300, 5, (6, 0.1))])
def test_attention_is_softmax(queries: int, tiles: int, growth: tuple[float, float]) -> None:
    """Ragged queries, and maxima that rise with each tile of keys or stay with the first."""
    given = operands(queries, tiles * example.KEYS, growth)
    assert example.share_of_bound(given, example.simulated(*given)) <= 1


@pytest.mark.thinned(3)
@pytest.mark.pure
@pytest.mark.parametrize("seed", range(4))
def test_every_schedule_gives_the_same_bits(seed: int) -> None:
    given = operands(256, 5 * example.KEYS, (1, 2))
    np.testing.assert_array_equal(example.simulated(*given, schedule="random", seed=seed), example.simulated(*given))


@pytest.mark.pure
def test_a_result_without_half_of_the_keys_is_outside_the_bound() -> None:
    """The bound above can fail."""
    given = operands(256, 2 * example.KEYS, (1, 1))
    found = example.simulated(*given)
    assert example.share_of_bound([given[0], given[1][::2].copy(), given[2][::2].copy()], found) > 10


@pytest.mark.pure
def test_no_static_rule_has_anything_to_say() -> None:
    assert example.attention_tile.check() == ()


@pytest.mark.ptxas
def test_it_assembles_without_spills_or_serialised_wgmma() -> None:
    """C7510 and C7514 would be findings, and so would a dropped setmaxnreg."""
    assembly = example.attention_tile.assemble()
    (entry,) = assembly.resources.values()
    assert (entry.spills, entry.stack, assembly.findings) == (0, 0, ())
    waits = [line for line in disassemble(assembly.cubin).splitlines() if "WARPGROUP.DEPBAR" in line]
    assert len(waits) == 2                                   # as written: after S, and at the end
