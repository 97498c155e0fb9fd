"""The list of models: extents as published, shares of tensor parallelism, and the preset that is made of them."""

from __future__ import annotations

import pytest

from ptxkit.gemm.__main__ import main
from ptxkit.gemm.tools import models
from ptxkit.gemm.tools.bench import run
from ptxkit.gemm.tools.bench.grouped_cases import KINDS
from ptxkit.gemm.tools.bench.shapes import PRESETS, Problem, of_layers
from ptxkit.gemm.tools.models import MODELS, ModelError
from ptxkit.gemm.tools.problems import chosen

pytestmark = pytest.mark.pure


def weights(name: str, cards: int | None = None) -> set[tuple[int, int]]:
    return {(share.n, share.k) for share in models.dense(name, cards)}


def test_the_layers_are_those_of_one_card() -> None:
    assert weights("deepseek-v3") == {(2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048), (256, 7168),
                                      (129280, 7168)}
    assert weights("deepseek-v3", 8) == {(2112, 7168), (3072, 1536), (4096, 512), (7168, 2048), (512, 7168), (7168, 256), (256, 7168),
                                         (16160, 7168)}
    assert weights("llama-3.3-70b") == {(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)}
    assert weights("LLAMA-3.3-70B", 1) == {(10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)}
    assert weights("llama-3.1-405b") == {(13312, 16384), (16384, 6656)}
    for share in models.dense("llama-3.3-70b"):
        assert share.name.startswith("llama-3.3-70b ")
        assert share.name.endswith(" on 8")


@pytest.mark.parametrize(("name", "cards"), [("gpt-5", None), ("deepseek-v4-flash", 1), ("llama-3.1-8b", 7), ("gpt-2", 2)])
def test_what_is_not_listed_says_so(name: str, cards: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match=name):
        list(models.dense(name, cards))
    assert main(["tune", "--model", name, *(["--tp", str(cards)] if cards else []), "--prepare"]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", models.MODELS)
def test_the_numbers_of_cards_are_named_that_are_taken(name: str) -> None:
    """Those that leave each card multiples of 16, and the one that the layers are listed for."""
    found, taken = models.model(name), []
    for cards in range(1, 200):
        whole = all(extent % (16 * cards) == 0 for layer in found.layers for split, extent in (("n", layer.n), ("k", layer.k))
                    if layer.split == split)
        if cards == found.cards or (whole and any(layer.split for layer in found.layers)):
            list(models.dense(name, cards))
            taken.append(str(cards))
            continue
        with pytest.raises(ModelError) as error:
            list(models.dense(name, cards))
    said = str(error.value).split("but for ")[1].replace(" or ", ", ").split(", ")
    assert [cards for cards in said if int(cards) < 200] == taken


def test_the_preset_is_every_layer_with_its_rows_and_types() -> None:
    found = PRESETS["models"].problems
    assert len(found) == len(set(found)) > 250
    assert Problem(8192, 28672, 4096) in found
    assert Problem(1, 2112, 7168, "e4m3", block=True) in found
    assert Problem(197 * 8, 2304, 768, "f16") in found
    assert set(found) == set().union(*(of_layers(models.dense(name)) for name in MODELS))
    assert models.names_of(7168, 2048) == ("deepseek-v3 shared down",)
    assert models.names_of(1, 2) == ()
    assert [str(problem) for problem in found if chosen(problem) is None] in ([], ["1024x50257x768:bf16:nt"])


def test_experts_are_cases_that_the_bench_of_groups_can_have() -> None:
    listed = list(models.every_grouped())
    assert {name for name, _ in listed} >= {"deepseek-v3", "kimi-k2", "glm-4.5", "qwen3-235b", "gpt-oss-20b", "mixtral-8x7b"}
    for _, experts in listed:
        assert set(experts.types) <= set(KINDS)
        assert experts.n % 8 == experts.k % 16 == 0
        assert min(experts.rows) >= 1
        assert not experts.gated or experts.n % 2 == 0


def test_rows_say_whose_layer_they_are() -> None:
    row = {"regime": "burst", "shape": "1x2112x7168", "contestants": {}, "ratios": {}, "layers": ["deepseek-v3 q_a+kv_a"]}
    assert run.line(row).endswith("[deepseek-v3 q_a+kv_a]")


def test_what_is_tuned_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--model", "kimi-k2", "--prepare"]) == 2
    assert "experts alone" in capsys.readouterr().err
    assert main(["tune", "--model", "gpt-2", "-m", "3", "--prepare"]) == 2
    assert main(["tune", "--tp", "8", "--shapes", "quick", "--prepare"]) == 2
    assert "--model" in capsys.readouterr().err
