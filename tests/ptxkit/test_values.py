"""Frozen values as JSON, as text on a command line, and changed by a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.dsl.values import FieldError, changed, from_json, leaves, parsed, to_json
from ptxkit.types import Scalar, bf16, e4m3, f16

pytestmark = pytest.mark.pure


@dataclass(frozen=True)
class Tile:
    BM: int = 128
    dtype: type[Scalar] = bf16


@dataclass(frozen=True)
class Pingpong:
    pass


@dataclass(frozen=True)
class Cooperative:
    warpgroups: int = 2
    how: Literal["plain", "overlap"] = "plain"
    tile: Tile | None = None


@dataclass(frozen=True)
class Config:
    tile: Tile = Tile()
    schedule: Cooperative | Pingpong = Cooperative()
    streams: bool = False
    factor: float = 1.0
    steps: tuple[int, ...] = ()


TILES = st.builds(Tile, st.integers(0, 512), st.sampled_from([bf16, f16, e4m3]))
SCHEDULES = st.one_of(st.builds(Pingpong), st.builds(Cooperative, st.integers(0, 3), st.sampled_from(["plain", "overlap"]),
                                                     st.none() | TILES))
CONFIGS = st.builds(Config, TILES, SCHEDULES, st.booleans(), st.floats(-9, 9), st.lists(st.integers(0, 9), max_size=3).map(tuple))


@given(CONFIGS)
def test_a_value_comes_back_from_json(config: Config) -> None:
    import json

    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


def test_defaults_are_left_out() -> None:
    assert to_json(Config()) == {}
    assert to_json(Config(Tile(64), Pingpong())) == {"tile": {"BM": 64}, "schedule": "Pingpong"}
    assert to_json(Config(schedule=Cooperative(3))) == {"schedule": {"Cooperative": {"warpgroups": 3}}}


@pytest.mark.parametrize(("path", "text", "wanted"), [
    ("tile.BM", "64", Config(Tile(64))),
    ("tile.dtype", "f16", Config(Tile(dtype=f16))),
    ("schedule", "Pingpong", Config(schedule=Pingpong())),
    ("schedule", "Cooperative(warpgroups=3, how='overlap')", Config(schedule=Cooperative(3, "overlap"))),
    ("schedule.how", "overlap", Config(schedule=Cooperative(how="overlap"))),
    ("schedule.tile", "Tile(BM=8)", Config(schedule=Cooperative(tile=Tile(8)))),
    ("streams", "True", Config(streams=True)),
    ("factor", "2", Config(factor=2.0)),
])
def test_a_path_is_set_by_text(path: str, text: str, wanted: Config) -> None:
    assert changed(Config(), path, text) == wanted


@pytest.mark.parametrize(("path", "text", "sentence"), [
    ("tile.BK", "64", "Tile has no field 'BK': it has BM, dtype"),
    ("tile.BM", "wide", "BM is a whole number, not wide"),
    ("tile.dtype", "bf17", "dtype is an element type such as bf16, not bf17"),
    ("schedule", "Turns", "schedule is Cooperative or Pingpong, not Turns"),
    ("schedule", "Cooperative(turns=1)", "Cooperative has no field 'turns': it has warpgroups, how, tile"),
    ("schedule.how", "fast", "how is plain, overlap, not fast"),
    ("schedule", "Cooperative(", "is no value: write Cooperative or Pingpong"),
    ("streams", "maybe", "streams is True or False, not maybe"),
])
def test_what_a_field_cannot_take_is_one_sentence(path: str, text: str, sentence: str) -> None:
    with pytest.raises(FieldError) as caught:
        changed(Config(), path, text)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("data", [{"tile": 3}, {"tiles": {}}, {"schedule": {"Pingpong": {}, "Cooperative": {}}}, {"schedule": None},
                                  {"streams": "maybe"}, {"tile": {"BM": 1.5}}])
def test_json_of_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(FieldError):
        from_json(Config, data)


def test_a_function_has_no_json() -> None:
    with pytest.raises(FieldError):
        to_json(len)
    assert parsed(int, "3") == 3
    assert leaves(Config()) == 8
