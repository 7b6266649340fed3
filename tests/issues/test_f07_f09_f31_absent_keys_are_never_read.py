"""F07, F09, F31: indices of -1, at or beyond the length, or never initialised were read as addresses.

The bound is 0 <= offset < length of the entry's own source. The sign alone says nothing: an entry of the page source is
a negative i32, and INT_MAX is a positive one that points nowhere.
"""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from support.anchors import bits, page_buffer, ring_buffer
from support.attention import (
    CURRENT,
    INT_MAX,
    PAGE_COUNT,
    PAGES,
    RING,
    RING_ENTRIES,
    SLOTS,
    attention,
    entry,
    page_type,
)

RECORDS = PAGE_COUNT * page_type("fp4e4m3<16>").capacity
NOWHERE = {
    "minus one": -1, "int max": INT_MAX, "int min source 2 at its length": entry(PAGES, RECORDS),
    "page offset far away": entry(PAGES, 2**30 - 1), "ring at its length": entry(RING, SLOTS * RING_ENTRIES),
    "ring far away": entry(RING, 2**30 - 1), "current row at its length": entry(CURRENT, 4),
    "current row far away": entry(CURRENT, 2**30 - 1), "no such source": entry(3, 0), "poison": 0x7B7B7B7B,
}


@pytest.mark.parametrize("name", NOWHERE)
def test_an_entry_that_points_nowhere_is_absent(name: str) -> None:
    problem = attention(4, 40)
    absent, nowhere = problem.index.clone(), problem.index.clone()
    absent[:, 3::5] = -1
    nowhere[:, 3::5] = NOWHERE[name]
    out = replace(problem, index=nowhere).run(checked=True)
    assert torch.equal(bits(out), bits(replace(problem, index=absent).run()))


@pytest.mark.parametrize("name", NOWHERE)
def test_a_list_of_nothing_but_such_entries_gives_zero(name: str) -> None:
    problem = attention(4, 33)
    out = replace(problem, index=torch.full((4, 33), NOWHERE[name])).run()
    assert torch.equal(out, torch.zeros_like(out))


def test_the_first_and_the_last_record_of_every_source_are_read_and_their_neighbours_in_memory_are_not() -> None:
    """Guard zones of 0xFF (NaN codes, NaN scales) before and after the buffers must not show in the result."""
    problem = attention(4, 33)
    index = torch.full((4, 33), -1, dtype=torch.int64)
    ends = [entry(CURRENT, 0), entry(CURRENT, 3), entry(RING, 0), entry(RING, SLOTS * RING_ENTRIES - 1),
            entry(PAGES, 0), entry(PAGES, RECORDS - 1)]
    index[:, 5: 5 + len(ends)] = torch.tensor(ends)
    problem = replace(problem, index=index)
    pages, ring = page_buffer(problem.pages, page_type(problem.elem)), ring_buffer(problem.ring, "mxfp8<32>")

    def guarded(x: torch.Tensor) -> torch.Tensor:
        zone = torch.full((3, x.shape[1]), 0xFF, dtype=torch.uint8)
        return torch.cat([zone, x, zone])[3:-3]

    out = problem.run(pages=guarded(pages), ring=guarded(ring))
    assert bool(out.isfinite().all())
    for row in range(4):
        reference, _ = problem.reference(row)
        assert torch.allclose(out[row].double(), reference, atol=2e-2, rtol=2e-2)


def test_topk_wider_than_what_exists_contributes_nothing() -> None:
    """F31: a list padded with -1 to its width equals the list alone, whatever the padding."""
    problem = attention(4, 32)
    padded = replace(problem, index=torch.cat([problem.index, torch.full((4, 64), -1)], 1))
    assert torch.equal(bits(padded.run()), bits(problem.run()))
