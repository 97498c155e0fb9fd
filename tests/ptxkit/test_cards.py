"""Cards as values: what is known of each, partitions, unknown devices, and that no number of one chip stands anywhere else."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit import cards
from ptxkit.cards import CARDS, H100, H200, CardError

pytestmark = pytest.mark.pure
ROOT = Path(__file__).parents[2]


@given(st.integers(1, 400), st.sampled_from(sorted(CARDS)))
def test_a_card_with_other_sms_keeps_the_share_of_its_clusters(sms: int, word: str) -> None:
    card = cards.named(word)
    part = card.with_sms(sms)
    assert part.sms == sms
    assert [part.resident(size) for size, _ in card.clusters] == [sms * ctas // card.sms for _, ctas in card.clusters]
    assert part.fit == card.fit
    assert card.with_sms(card.sms) == card


def test_a_cluster_of_another_size_counts_as_the_largest() -> None:
    assert H200.resident(16) == H200.resident(8)


def test_cards_are_found_by_word_and_by_the_drivers_name() -> None:
    assert cards.named("H200") is H200
    with pytest.raises(CardError, match="there is no card 'h300': h200, h100"):
        cards.named("h300")
    assert cards.of_device(H100.name, H100.sms) is H100
    partition = cards.of_device(H200.name, 16)
    assert (partition.name, partition.sms, partition.fit) == (H200.name, 16, H200.fit)
    unknown = cards.of_device("NVIDIA H20", 78)
    assert (unknown.name, unknown.sms) == ("NVIDIA H20", 78)


def test_two_devices_of_one_process_each_have_their_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.gemm.launch import dense
    from ptxkit.gemm.tools.problems import asked

    devices = {0: SimpleNamespace(name=H200.name, multiprocessors=132), 1: SimpleNamespace(name="NVIDIA H20", multiprocessors=78)}
    monkeypatch.setattr(dense.driver, "device", devices.__getitem__)
    dense.card_of.cache_clear()
    try:
        assert dense.card_of(0) == H200
        assert (dense.card_of(1).name, dense.card_of(1).sms) == ("NVIDIA H20", 78)
        problem = asked(512, 4096, 4096)
        assert dense.configuration(problem, 0) != dense.configuration(problem, 1)
    finally:
        dense.card_of.cache_clear()


NUMBERS = re.compile(r"(?<![\d._x])(?:132|114|78)(?![\d._x%])")


def test_no_number_of_one_chip_stands_in_code() -> None:
    """The cards are in one module; a count of SMs in a comment, a docstring or a string is prose."""
    import io
    import tokenize

    found = []
    for folder in ("ptxkit", "gemm"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "cards.py":
                continue
            for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
                if token.type == tokenize.NUMBER and NUMBERS.fullmatch(token.string):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.line.strip()}")
    assert found == []
    assert NUMBERS.fullmatch("132")
