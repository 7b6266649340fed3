"""Frames: where each function keeps the values it makes, as `plan_memory` found it and `plan_launches` reads it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Offsets = tuple[int, ...]  # one byte offset a bucket


@dataclass(frozen=True)
class ResultPlace:
    """Where a tensor result of a function lies: `own` storage given by the caller, the buffer of parameter `index`
    (`param`), or that of the earlier result `index` (`result`)."""

    kind: str
    index: int = 0


@dataclass(frozen=True)
class Frame:
    """Scratch of one function.

    `places`: for every value stored in the frame, the offset of each of its buffers. `callee_base`: where the frame of
    a called function starts (calls come one after the other and share it). `bytes`: size, callees included.
    `results`: one entry a result, None for states. `sizes`: bytes of every value in `places`, for reports.
    """

    function: str
    places: Mapping[str, tuple[Offsets, ...]]
    callee_base: Offsets
    bytes: Offsets
    results: tuple[ResultPlace | None, ...] = ()
    sizes: Mapping[str, Offsets] = field(default_factory=dict)


@dataclass(frozen=True)
class Arena:
    """Scratch of a step: metadata (results of `prepare`) by name, then from `base` the frame of the running entry."""

    metadata: Mapping[str, tuple[Offsets, ...]]
    base: Offsets
    bytes: Offsets
