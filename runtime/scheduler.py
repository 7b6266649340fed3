"""Which rows of which sequences make up the next step.

A sequence is admitted when a state slot is free and pages for all the tokens it may come to are; so nothing that runs
ever has to be stopped for lack of memory. A policy then picks chunks of the admitted sequences. Results do not depend
on any of this: policies exist for speed, and to show exactly that.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import cycle
from typing import Protocol

import numpy as np

from .cache import PageAllocator, SlotAllocator
from .plan import Plan
from .step import StepSequence


@dataclass
class Sequence:
    """One text on its way through the model.

    `ids`: all tokens so far; the first `computed` have been through the model. `final_length`: tokens it may come to.
    `every_row`: the logits of all rows are wanted, not only those behind the last token.
    """

    number: int
    ids: list[int]
    final_length: int
    every_row: bool = False
    computed: int = 0
    slot: int = 0
    pages: list[int] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Tokens that the model has not seen."""
        return len(self.ids) - self.computed


@dataclass(frozen=True)
class Chunk:
    """The next `rows` tokens of a sequence."""

    sequence: Sequence
    rows: int

    def step(self) -> StepSequence:
        s = self.sequence
        return StepSequence(s.computed, s.ids[s.computed : s.computed + self.rows], s.slot, s.pages)

    def wanted(self, first_row: int) -> list[int]:
        """Rows of the step (this chunk's start at `first_row`) whose logits are needed."""
        if self.sequence.every_row:
            return list(range(first_row, first_row + self.rows))
        return [first_row + self.rows - 1] if self.rows == self.sequence.pending else []


class Policy(Protocol):
    """Picks chunks. `max_running`: sequences to admit at most (0: as many as there are slots)."""

    max_running: int

    def pick(self, running: Items[Sequence], max_seqs: int, max_tokens: int) -> list[Chunk]:
        """Chunks of different sequences with pending tokens, within the limits; at least one."""
        ...


class DefaultPolicy:
    """Sequences that generate go first, one row each; what is left of the step is for prompts, in order of arrival."""

    max_running = 0

    def pick(self, running: Items[Sequence], max_seqs: int, max_tokens: int) -> list[Chunk]:
        decoding = [s for s in running if s.pending == 1 and s.computed]
        prompts = [s for s in running if s.pending > 1 or (s.pending and not s.computed)]
        # the one that waited longest first, where more sequences run than a step takes
        decoding.sort(key=lambda s: s.computed)
        chunks = [Chunk(s, 1) for s in decoding[: min(max_seqs, max_tokens)]]
        room = max_tokens - len(chunks)
        for s in prompts:
            if not room or len(chunks) == max_seqs:
                break
            chunks.append(Chunk(s, min(room, s.pending)))
            room -= chunks[-1].rows
        return chunks


class FixedChunks:
    """One sequence after the other, in chunks of the given sizes; the list starts again when it is used up, and for
    every sequence."""

    max_running = 1

    def __init__(self, sizes: Items[int]) -> None:
        self._sizes = tuple(sizes)
        self._owner: Sequence | None = None
        self._next = cycle(self._sizes)

    def pick(self, running: Items[Sequence], max_seqs: int, max_tokens: int) -> list[Chunk]:
        sequence = running[0]
        if sequence is not self._owner:
            self._owner, self._next = sequence, cycle(self._sizes)
        return [Chunk(sequence, min(next(self._next), sequence.pending, max_tokens))]


class RandomMix:
    """Random sequences in random order with chunks of random sizes; the same seed gives the same steps."""

    max_running = 0

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def pick(self, running: Items[Sequence], max_seqs: int, max_tokens: int) -> list[Chunk]:
        ready = [s for s in running if s.pending]
        count = int(self._random.integers(1, min(len(ready), max_seqs, max_tokens) + 1))
        order = self._random.permutation(len(ready))[:count]
        chunks, room = [], max_tokens
        for left, at in zip(range(count - 1, -1, -1), order, strict=True):
            # every one of those still to come gets a row at least; half of the chunks are decode-like single rows
            most = min(ready[at].pending, room - left)
            rows = 1 if self._random.integers(2) else int(self._random.integers(1, most + 1))
            chunks.append(Chunk(ready[at], rows))
            room -= rows
        return chunks


class Scheduler:
    """Waiting and running sequences, and what they hold."""

    def __init__(self, plan: Plan, policy: Policy, slots: int, pages: int) -> None:
        self._plan, self._policy = plan, policy
        self._slots, self._pages = SlotAllocator(slots), PageAllocator(pages)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence. Raises ValueError if it could never run."""
        if sequence.final_length > self._plan.limits.max_len or not sequence.ids:
            raise ValueError(f"a sequence of {len(sequence.ids)} to {sequence.final_length} tokens")
        self._waiting.append(sequence)

    def next_step(self) -> list[Chunk]:
        """Chunks of the next step; empty when nothing is left to do. Callers advance `computed` afterwards."""
        self._admit()
        ready = [s for s in self._running if s.pending]
        if not ready:
            return []
        limits = self._plan.limits
        return self._policy.pick(ready, limits.max_seqs, limits.max_tokens)

    def finish(self, sequence: Sequence) -> None:
        """Gives back what a sequence holds."""
        self._running.remove(sequence)
        self._slots.release(sequence.slot)
        self._pages.release(sequence.pages)

    def _admit(self) -> None:
        most = self._policy.max_running
        while self._waiting and self._slots.available and not (most and len(self._running) >= most):
            sequence = self._waiting[0]
            needed = -(-sequence.final_length // self._plan.page_tokens)
            if needed > self._pages.available:
                break  # in order of arrival, so that a long one is not overtaken for ever
            self._waiting.popleft()
            sequence.slot, sequence.pages = self._slots.take(), self._pages.take(needed)
            self._running.append(sequence)
