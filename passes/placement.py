"""Placing blocks of memory with known lifetimes: greedy best fit, the same answer every time."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .storage import aligned


@dataclass(frozen=True)
class Block:
    """`size` bytes that are in use from op `first` to op `last`, both included."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        """True if both are in use at some op: they must not share bytes."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Layout:
    """Offsets of the blocks, in their order, and the bytes of the whole."""

    offsets: tuple[int, ...]
    total: int


def place(blocks: Sequence[Block]) -> Layout:
    """Offsets (multiples of the alignment) such that blocks in use together do not overlap.

    Largest blocks first (ties: earlier first use, then position), each into the smallest gap that holds it between the
    blocks it meets, else behind them. A block of no bytes takes no room.
    """
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].first, i))
    offsets = [0] * len(blocks)
    placed: list[int] = []
    total = 0
    for i in order:
        size = aligned(blocks[i].size)
        if not size:
            continue
        taken = sorted((offsets[j], offsets[j] + aligned(blocks[j].size)) for j in placed if blocks[i].meets(blocks[j]))
        best, best_room, end = None, 0, 0
        for start, stop in taken:
            room = start - end
            if room >= size and (best is None or room < best_room):
                best, best_room = end, room
            end = max(end, stop)
        offsets[i] = end if best is None else best
        placed.append(i)
        total = max(total, offsets[i] + size)
    return Layout(tuple(offsets), total)
