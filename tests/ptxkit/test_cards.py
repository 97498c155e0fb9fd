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
    assert [part.resident(size) for size, _ in card.clusters] == [sms * ctas // card.sms // size * size for size, ctas in card.clusters]
    assert part.fit == card.fit
    assert card.with_sms(card.sms) == card


def test_a_cluster_of_another_size_counts_as_the_largest() -> None:
    assert H200.resident(16) == H200.resident(8)


def test_cards_are_found_by_word_and_by_the_drivers_name() -> None:
    assert cards.named("H200") is H200
    with pytest.raises(CardError, match=r"there is no card 'h300': h200, h100, h100-pcie.*h20"):
        cards.named("h300")
    assert cards.of_device(H100.name, H100.sms) is H100
    assert len({card.name for card in CARDS.values()}) == len(CARDS)
    for card in CARDS.values():
        assert cards.of_device(card.name, card.sms) is card
        assert cards.of_device(card.name, card.sms, memory_gbs=card.memory_gbs * 1.02, clock_mhz=card.clock_mhz, l2_mib=60) is card
    assert cards.of_device(H200.name, H200.sms, memory_gbs=4000).memory_gbs == 4000         # its driver says something else


def test_a_partition_is_a_share_of_its_card() -> None:
    fewer = cards.of_device(H200.name, 16)
    assert (fewer.name, fewer.sms, fewer.memory_gbs) == (H200.name, 16, H200.memory_gbs)
    for profile, sms, eighths in (("1g.18gb", 16, 1), ("1g.35gb", 26, 2), ("3g.71gb", 60, 4), ("7g.141gb", 132, 8)):
        part = cards.of_device(f"NVIDIA H200 MIG {profile}", sms)
        assert (part.sms, part.memory_gbs, part.l2_mib) == (sms, 4800 * eighths / 8, 50 * eighths / 8)
        assert part.resident(8) == sms // 8 * 8
        assert part.fit.memory == pytest.approx(H200.fit.memory * eighths / 8)
    assert cards.of_device("NVIDIA H20 MIG 1g.12gb", 8).tensor == 0.25


def test_a_card_that_is_not_known_is_what_its_driver_says() -> None:
    told = cards.of_device("NVIDIA H30", 78, memory_gbs=4000, clock_mhz=1500, l2_mib=40)
    assert (told.name, told.sms, told.memory_gbs, told.clock_mhz, told.l2_mib, told.tensor) == ("NVIDIA H30", 78, 4000, 1500, 40, 1.0)
    assert told.fit.memory == pytest.approx(H100.fit.memory * 4000 / 3350 / (1500 / 1980))
    assert told.fit.prologue == pytest.approx(H100.fit.prologue * 1500 / 1980)
    assert cards.of_device("NVIDIA H30", 78).memory_gbs == H100.memory_gbs                  # a driver that says nothing
    assert cards.of_device("NVIDIA H20 NVL16", 78, memory_gbs=4000).tensor == 0.25          # the name begins as an H20's


def test_two_devices_of_one_process_each_have_their_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.gemm.launch import dense
    from ptxkit.gemm.tools.problems import asked

    driver_says = {"memory_gbs": 0.0, "clock_mhz": 0.0, "l2_bytes": 0}
    devices = {0: SimpleNamespace(name=H200.name, multiprocessors=132, **driver_says),
               1: SimpleNamespace(name="NVIDIA H20", multiprocessors=78, **driver_says)}
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
    for folder in ("ptxkit", "gemm", "attention"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "cards.py":
                continue
            text = path.read_text(encoding="utf-8")
            for token in tokenize.generate_tokens(io.StringIO(text).readline) if NUMBERS.search(text) else ():
                if token.type == tokenize.NUMBER and NUMBERS.fullmatch(token.string):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.line.strip()}")
    assert found == []
    assert NUMBERS.fullmatch("132")
