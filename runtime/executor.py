"""The executor: owns the memory of a running package and runs steps on it.

`forward` runs the entries `prepare` and `forward` over all rows of a step; `head` then gives the logits of any of its
rows, in pieces of at most max_logit_rows, by running the entry `head` again on the same hidden values.
"""
from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault
from .library import KernelLibrary, StepArgs
from .memory import POISON, Memory, address
from .plan import LAUNCHER_ABI, Output, Plan
from .step import StepBlock, StepSequence, StepSize

LOGITS = "logits"
WORD_BYTES = {"f32": 4, "i32": 4, "bf16": 2, "u8": 1}

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How steps are run; none of it changes a result. `bucket_rows`: no bucket of fewer rows is used. `poison`: scratch
    is filled with 0xFF before every step."""

    threads: int = 1
    bucket_rows: int = 1
    poison: bool = False


class Executor:
    """Runs steps of one plan over packed weights. `tables`: weight buffers, then constants, as the launcher wants them.

    Raises RuntimeFault E-PLAN-003 for a plan without the entries and the output that a step needs.
    """

    def __init__(self, plan: Plan, library: KernelLibrary, tables: Sequence[NDArray[np.uint8]], memory: Memory,
                 settings: Settings) -> None:
        missing = {"prepare", "forward", "head"} - plan.entries.keys()
        if missing or LOGITS not in plan.outputs:
            raise RuntimeFault("E-PLAN-003", path="plan.json", reason=f"it has no {min(missing, default=LOGITS)}")
        self.plan, self.library, self.memory, self.settings = plan, library, memory, settings
        self._entry = {name: number for number, name in enumerate(plan.entries)}
        self._step = StepBlock(plan, settings.poison)
        self._size = StepSize(0, 0)
        self._tables = tuple(tables)  # keeps them alive: the library holds addresses only
        self._weights = (ctypes.c_void_p * max(1, len(tables)))(*(address(t) for t in tables))
        self._states = (ctypes.c_void_p * max(1, len(memory.states)))(*(address(s) for s in memory.states))

    def forward(self, sequences: Sequence[StepSequence]) -> int:
        """Runs one step over the rows of `sequences`, in their order; returns the number of rows."""
        if self.settings.poison:
            self.memory.arena.fill(POISON)
        self._size = self._step.fill(sequences)
        self._run("prepare", 0)
        self._run("forward", 0)
        return self._size.rows

    def head(self, rows: Sequence[int]) -> Iterator[Logits]:
        """Logits f32 [R, V] of rows of the last step, piece by piece. A piece is a view of scratch: it is overwritten
        by the next one. Raises ValueError for a row outside the step."""
        if rows and not (min(rows) >= 0 and max(rows) < self._size.rows):
            raise ValueError(f"logit rows {list(rows)} of a step of {self._size.rows} rows")
        remaining = iter(rows)
        while piece := list(islice(remaining, self.plan.max_logit_rows)):
            self._step.set_logit_rows(piece)
            self._run("head", len(piece))
            yield self.output(self.plan.outputs[LOGITS], len(piece)).view(np.float32)

    def output(self, output: Output, logit_rows: int) -> NDArray[np.uint8]:
        """The bytes of an output of the last step, with its dims ([R, V * 4] for f32 [R, V])."""
        sizes: dict[int | str, int] = {"T": self._size.rows, "S": self._size.sequences, "R": logit_rows}
        *lead, last = (sizes.get(d, d) if isinstance(d, str) else d for d in output.shape)
        dims = [int(d) for d in (*lead, int(last) * WORD_BYTES[output.dtype])]
        start = output.offsets[self.bucket]
        return self.memory.arena[start : start + int(np.prod(dims))].reshape(dims)

    @property
    def bucket(self) -> int:
        """Number of the bucket that the last step ran in."""
        least = max(self._size.rows, self.settings.bucket_rows)
        return next(i for i, rows in enumerate(self.plan.buckets) if rows >= least)

    def _run(self, entry: str, logit_rows: int) -> None:
        self.library.run(StepArgs(
            abi=LAUNCHER_ABI, entry=self._entry[entry], T=self._size.rows, S=self._size.sequences, R=logit_rows,
            bucket=self.bucket, first=-1, last=-1, threads=self.settings.threads, slots=self.memory.slots,
            pages=self.memory.pages, arena=address(self.memory.arena), weights=ctypes.addressof(self._weights),
            states=ctypes.addressof(self._states), step=address(self._step.block), stream=None))
