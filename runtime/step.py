"""The step input: one int32 block with the fields cu_rows, start, state_slot, page_table, ids and logit_rows.

A field lies at the offset of its maximum length (design section 4a), so kernels know all addresses in advance.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .memory import allocate
from .plan import Plan

RESERVED = 0  # unused entries of a page table point at the reserved page

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class StepSequence:
    """The rows of one sequence in a step: tokens `ids` at positions start, start + 1, ..."""

    start: int
    ids: Sequence[int]
    slot: int
    pages: Sequence[int]


@dataclass(frozen=True)
class StepSize:
    """T rows and S sequences."""

    rows: int
    sequences: int


class StepBlock:
    """The block, filled anew for every step. `poison`: what a step does not use is set to a value that would show."""

    def __init__(self, plan: Plan, poison: bool = False) -> None:
        self._plan, self._poison = plan, poison
        length = max(f.offset + f.length for f in plan.step.values())
        self.block: Ids = allocate(length * 4).view(np.int32)

    def field(self, name: str) -> Ids:
        """A field at its maximum length."""
        place = self._plan.step[name]
        return self.block[place.offset : place.offset + place.length]

    def fill(self, sequences: Sequence[StepSequence]) -> StepSize:
        """Writes all fields but logit_rows.

        Raises ValueError for a step that the plan does not allow: no or too many sequences or rows, a sequence that
        would grow beyond max_len, has too few pages, or holds a reserved page or slot, a slot that occurs twice.
        """
        limits, pages_each = self._plan.limits, self._plan.max_pages
        rows = sum(len(s.ids) for s in sequences)
        if not 1 <= len(sequences) <= limits.max_seqs or not 1 <= rows <= limits.max_tokens:
            raise ValueError(f"a step of {len(sequences)} sequences and {rows} rows")
        if len({s.slot for s in sequences}) != len(sequences):
            raise ValueError("two sequences of a step share a state slot")
        if self._poison:
            self.block.fill(-1)
        cu_rows, start, slot = self.field("cu_rows"), self.field("start"), self.field("state_slot")
        table = self.field("page_table").reshape(limits.max_seqs, pages_each)
        ids = self.field("ids")
        row = 0
        for number, s in enumerate(sequences):
            end = s.start + len(s.ids)
            if not s.ids or s.start < 0 or end > limits.max_len:
                raise ValueError(f"a chunk of positions {s.start} to {end}")
            if len(s.pages) * self._plan.page_tokens < end or RESERVED in s.pages or s.slot <= RESERVED:
                raise ValueError(f"positions up to {end} with pages {list(s.pages)} and slot {s.slot}")
            cu_rows[number], start[number], slot[number] = row, s.start, s.slot
            table[number] = RESERVED
            table[number, : len(s.pages)] = s.pages
            ids[row : row + len(s.ids)] = s.ids
            row += len(s.ids)
        cu_rows[len(sequences)] = row
        return StepSize(row, len(sequences))

    def set_logit_rows(self, rows: Sequence[int]) -> None:
        """Rows of the step whose logits the head computes next. Raises ValueError for more than max_logit_rows."""
        if len(rows) > self._plan.max_logit_rows:
            raise ValueError(f"{len(rows)} logit rows, at most {self._plan.max_logit_rows}")
        self.field("logit_rows")[: len(rows)] = rows
