"""Which cases of a thinned test stay outside of the sweep."""

from __future__ import annotations

import pytest

from tests.conftest import thin_out

pytestmark = pytest.mark.pure


class Item:
    def __init__(self, nodeid: str, n: int = 0) -> None:
        self.nodeid, self.n, self.marks = nodeid, n, list[str]()

    def get_closest_marker(self, name: str) -> object:
        return pytest.mark.thinned(self.n).mark if self.n else None

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker.name)


def test_the_first_case_stays_and_about_one_in_n_of_the_others_whatever_the_parameters_are() -> None:
    items = [Item(f"test_x.py::test_x[{a}-{b}]", 2) for a in range(100) for b in ("left", "right")]
    thin_out(items)  # type: ignore[arg-type]
    stays = [item.nodeid for item in items if not item.marks]
    assert items[0].nodeid in stays
    assert 80 <= len(stays) <= 120
    assert min(sum(word in name for name in stays) for word in ("left", "right")) > 30


def test_others_and_tests_of_one_case_are_left_alone() -> None:
    items = [Item("test_x.py::test_y[1]"), Item("test_x.py::test_y[2]"), Item("test_x.py::test_z[only]", 5), Item("test_x.py::test_w", 5)]
    thin_out(items)  # type: ignore[arg-type]
    assert not any(item.marks for item in items)
