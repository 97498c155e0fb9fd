"""What findings call shared memory: the author's name, or the type and line of what has none."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from ptxkit import Ptr, if_, kernel, smem, tid
from ptxkit.check.places import Places
from ptxkit.idioms import wait
from ptxkit.inspect.entry import facts
from ptxkit.inspect.shared_map import drawn
from ptxkit.ptx import bar, cp, ld, mbarrier, mov, st
from ptxkit.types import bf16, u32

pytestmark = pytest.mark.pure


@kernel(block=64)
def races(out: Ptr[u32]) -> None:
    """Two warps write one element of each array."""
    thread = mov.u32(tid.x)
    alone = smem.array(u32, 32)
    pair = [smem.array(u32, 8) for _ in range(2)]
    matrix = smem.tile(bf16, (8, 64))
    named, first, second = smem.array(u32, 4, name="kept"), smem.array(u32, 4, name="twice"), smem.array(u32, 4, name="twice")
    for place in (alone.at(7), pair[0], pair[1].at(1), matrix[0].at(0, 0), named.at(2), first, second.at(3)):
        st.shared.u32(place, thread)
    bar.sync(0)
    st.global_.u32(out, ld.shared.u32(alone))


def test_findings_name_what_the_author_sees() -> None:
    code = races.function.__code__
    line = code.co_firstlineno + 4
    report = races.simulate(1, np.zeros(1, np.uint32))
    places = [f"the u32[32] of line {line} (+28)", f"the 1st u32[8] of line {line + 1}", f"the 2nd u32[8] of line {line + 1} (+4)",
              f"the bf16[8, 64] of line {line + 2}", "kept+8", f"twice (1st u32[4] of line {line + 3})",
              f"twice (2nd u32[4] of line {line + 3}) (+12)"]
    found = [finding for finding in report.findings if finding.rule == "shared-race"]
    assert len(found) == len(places)
    for place, finding in zip(places, found, strict=True):
        assert f" writes {place} of CTA 0, which " in finding.message
    assert "#" not in json.dumps([finding.message for finding in report.findings])
    assert "#" not in races.trace().shared._repr_html_().replace("&#x27;", "").split("<table", 1)[1]


@kernel(block=32)
def copied(out: Ptr[u32], x: Ptr[u32]) -> None:
    """A copy in bulk to the second half of an array."""
    first, full = smem.array(u32, 64), smem.mbarrier(1)
    mbarrier.init.shared__cta.b64(full[0], 1)
    with if_(tid.x == 0):
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], 128)
        cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes(first.at(32), x, 128, full[0])
    wait(full[0], 0)
    st.global_.u32(out, ld.shared.u32(first.at(32)))


def test_inspect_uses_the_same_words() -> None:
    line = copied.function.__code__.co_firstlineno + 3
    traced = copied.trace()
    (entry,) = facts(traced.numbered()[0], Places(*traced.numbered()), traced)
    assert [part.name for part in entry.shared[1:]] == [f"the u32[64] of line {line}", f"the mbarrier[1] of line {line}"]
    assert [each.shared for each in entry.copies] == [f"the u32[64] of line {line} (+128)"]
    assert [each.address for each in entry.barriers] == [f"the mbarrier[1] of line {line}"]
    used = {named: lines.split() for lines, named in re.findall(r'data-p="([\d ]+)"><title>(.*?):', drawn(entry))}
    assert {named: len(lines) for named, lines in used.items()} == {f"the u32[64] of line {line}": 1, f"the mbarrier[1] of line {line}": 4}
