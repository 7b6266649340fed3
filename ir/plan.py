"""Plan data: what `plan_memory` and `plan_launches` produce and the package writer prints (design sections 4a, 9).

Addresses. Every kernel argument is a `Ref`: space plus index plus byte offset.
  arena     scratch of one step; offset differs per bucket
  weight    packed weight `index`, at a byte offset
  constant  constant table `index` (passed behind the weights in the launcher's `weights` array)
  state     persistent buffer `index`
  step      the int32 step input; byte offset of the field (fields lie at offsets of their maxima, see STEP_FIELDS)
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .tile.program import Program
from .types import Dim, Limits

PLAN_FORMAT = 1
LAUNCHER_ABI = 1
PAGE_TOKENS = 128  # original tokens a page covers (spec 2.11)

# Field, length in terms of the limits; one int32 block, in this order, each at its maximum length.
STEP_FIELDS = ("cu_rows", "start", "state_slot", "page_table", "ids", "logit_rows")


def max_pages(limits: Limits) -> int:
    return -(-limits.max_len // PAGE_TOKENS)


def step_lengths(limits: Limits, max_logit_rows: int) -> dict[str, int]:
    """Maximum number of int32 of every field of the step input."""
    return {
        "cu_rows": limits.max_seqs + 1, "start": limits.max_seqs, "state_slot": limits.max_seqs,
        "page_table": limits.max_seqs * max_pages(limits), "ids": limits.max_tokens, "logit_rows": max_logit_rows,
    }


@dataclass(frozen=True)
class Ref:
    """Where one kernel argument lies. `offsets`: one byte offset per bucket (one entry where it does not depend)."""

    space: str
    index: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One kernel call. `loop` >= 0: member of that row-chunk loop."""

    kernel: str
    args: tuple[Ref, ...]
    loop: int = -1
    origin: str = ""


@dataclass(frozen=True)
class Loop:
    """Launches [first, last) repeat for row chunks of `rows` rows (row0 = 0, rows, 2*rows, .. < T)."""

    first: int
    last: int
    rows: int
    reason: str


@dataclass(frozen=True)
class StateBuffer:
    """A persistent buffer. ring: slots * `unit_bytes`; pages: one buffer of pages * `unit_bytes` shared by sections."""

    name: str
    kind: str
    unit_bytes: int
    dtype: str


@dataclass(frozen=True)
class WeightBuffer:
    """One buffer of a packed weight (codes or scales), its byte size and the load recipe's parts in order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class WeightPart:
    """Rows [row, row + rows) of a weight slot, filled by one checkpoint tensor.

    Rows are counted over the slot's matrices one after the other (a slot `[E, N, K]` has E*N rows of K elements, a
    vector `[D]` one row). `source`: checkpoint name of the values or codes; `scale`: of the scales of a codec slot.
    """

    source: str
    rows: int
    row: int = 0
    scale: str = ""


@dataclass(frozen=True)
class WeightRecipe:
    """How one weight parameter of `forward` is made from checkpoint tensors; parts in row order, without gaps."""

    name: str
    parts: tuple[WeightPart, ...]


@dataclass(frozen=True)
class LoadStep:
    """One run of a load kernel: checkpoint tensors in, one slice of packed buffers out.

    `kernel` "": no kernel, the target is the tensor's bytes as they are in the file (and may be mapped from it).
    """

    kernel: str
    sources: tuple[str, ...]
    targets: tuple[tuple[int, int], ...]  # (weight buffer index, byte offset)


@dataclass(frozen=True)
class Output:
    """A result of `forward` that the runtime reads: its arena offset per bucket."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    offsets: tuple[int, ...]


@dataclass
class Plan:
    """Everything the launcher and the runtime need, except model.yaml and the kernels' text."""

    limits: Limits
    max_logit_rows: int
    arena_bytes: tuple[int, ...] = ()
    states: list[StateBuffer] = field(default_factory=list)
    weights: list[WeightBuffer] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    entries: dict[str, tuple[int, int]] = field(default_factory=dict)
    load: list[LoadStep] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    programs: dict[str, Program] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
