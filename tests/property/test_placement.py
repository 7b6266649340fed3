"""plan_memory never lets two values in use together share a byte, and places them the same way twice."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dinfc.passes.placement import Block, place
from dinfc.passes.storage import ALIGNMENT

SPANS = st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(lambda t: (t[0], t[1], t[1] + t[2]))


def blocks_of(spans: list[tuple[int, int, int]]) -> list[Block]:
    return [Block(f"v{i}", *span) for i, span in enumerate(spans)]


@settings(max_examples=300, deadline=None)
@given(st.lists(SPANS, max_size=40))
def test_values_in_use_together_share_no_byte(spans: list[tuple[int, int, int]]) -> None:
    blocks = blocks_of(spans)
    layout = place(blocks)
    for i, a in enumerate(blocks):
        assert layout.offsets[i] % ALIGNMENT == 0
        assert layout.offsets[i] + a.size <= layout.total
        for j, b in enumerate(blocks[:i]):
            if a.meets(b) and a.size and b.size:
                first, second = layout.offsets[i], layout.offsets[j]
                assert first + a.size <= second or second + b.size <= first


@settings(max_examples=100, deadline=None)
@given(st.lists(SPANS, max_size=40))
def test_placement_is_the_same_every_time_and_ignores_names(spans: list[tuple[int, int, int]]) -> None:
    renamed = [Block(f"w{99 - i}", *span) for i, span in enumerate(spans)]
    assert place(blocks_of(spans)) == place(renamed)


def test_memory_of_a_dead_value_is_used_again() -> None:
    layout = place([Block("a", 640, 0, 1), Block("b", 64, 1, 2), Block("c", 640, 2, 3)])
    assert layout.offsets[2] == layout.offsets[0]
    assert layout.total == 640 + 64


def test_the_smallest_gap_that_fits_is_taken() -> None:
    layout = place([Block("x", 512, 0, 0), Block("a", 448, 0, 9), Block("y", 384, 0, 0), Block("b", 320, 0, 9),
                    Block("z", 128, 1, 9)])
    # After x and y died there are gaps of 512 and 384 bytes; z goes into the smaller one.
    assert layout.offsets[4] == layout.offsets[2]
