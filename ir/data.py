"""Run-time values of the reference interpreter (mode R64, spec 0.3): tensors, quantised values, states.

| IR type | value |
|---|---|
| f32, bf16 | fp64 tensor (bf16: holding bf16-representable numbers) |
| i32, i64, u8, u32 | int64 tensor |
| bool | bool tensor |
| codec value | `Quantised` |
| ring, pages | `State` |
"""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import codecs
from .scalar import FLOATS
from .types import CODECS, Codec, StateType

INT_POISON = 2**31 - 1  # what uninitialised integers read as: outside of every buffer


@dataclass(eq=False)
class Quantised:
    """Codes (uint8, one an element) and scales (uint8, [.., n/group]; W-FP8: [.., ceil(N/32), K/32]) of a codec."""

    codes: Tensor
    scales: Tensor
    codec: Codec
    base: Quantised | None = field(default=None, repr=False)  # the same elements under another shape
    _values: Tensor | None = field(default=None, repr=False)

    def values(self) -> Tensor:
        """code * scale in fp64, computed once: a `Quantised` is never changed after it was made."""
        if self._values is None:
            if self.base is not None:
                self._values = self.base.values().reshape(self.codes.shape)
            else:
                self._values = codecs.decode(self.codes, self.scales, self.codec)
        return self._values

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape


@dataclass(eq=False)
class State:
    """Records of one state: a ring's `slots * capacity` entries, or the records of one section of all pages.

    `data`: fp64 or int64 `[records, width]`, or uint8 codes `[records, width]` with `scales [records, width/group]`.
    Memory that was never written is NaN, 0xFF bytes or INT_POISON. Change it through `write` only: decoded values are
    kept beside the codes.
    """

    type: StateType
    data: Tensor
    scales: Tensor | None = None
    _values: Tensor | None = field(default=None, repr=False)

    @staticmethod
    def make(type_: StateType, count: int) -> State:
        """An uninitialised state of `count` slots (ring) or pages."""
        records, codec = count * type_.capacity, type_.codec
        if codec is None:
            if type_.elem in FLOATS:
                return State(type_, torch.full((records, type_.width), torch.nan, dtype=torch.float64))
            return State(type_, torch.full((records, type_.width), INT_POISON, dtype=torch.int64))
        poison = 0xFF if codec.code == "e4m3" else 0x0F
        codes = torch.full((records, type_.width), poison, dtype=torch.uint8)
        return State(type_, codes, torch.full((records, type_.width // codec.group), 0xFF, dtype=torch.uint8))

    @property
    def records(self) -> int:
        return self.data.shape[0]

    def values(self) -> Tensor:
        """All records as numbers, `[records, width]`."""
        if self.scales is None:
            return self.data
        if self._values is None:
            codec = self.type.codec
            assert codec is not None
            self._values = codecs.decode(self.data, self.scales, codec)
        return self._values

    def read(self, rows: Tensor) -> Tensor | Quantised:
        """The records `rows` (int64, all in range) as a new value."""
        if self.scales is None:
            return self.data[rows]
        codec = self.type.codec
        assert codec is not None
        return Quantised(self.data[rows], self.scales[rows], codec)

    def write(self, rows: Tensor, value: Tensor | Quantised) -> None:
        """Stores value row i as record `rows[i]` (int64, all in range, all different)."""
        if isinstance(value, Quantised):
            assert self.scales is not None
            self.data[rows] = value.codes
            self.scales[rows] = value.scales
            if self._values is not None:
                self._values[rows] = value.values()
        else:
            self.data[rows] = value

    def clone(self) -> State:
        """A copy with its own memory (snapshots of tests)."""
        return State(self.type, self.data.clone(), None if self.scales is None else self.scales.clone())


Data = Tensor | Quantised | State


def is_float(elem: str) -> bool:
    return elem in FLOATS or elem in CODECS


def as_tensor(value: Data) -> Tensor:
    """A plain tensor operand. Raises TypeError for a codec value or a state (the verifier has excluded both)."""
    if isinstance(value, Tensor):
        return value
    raise TypeError(f"a plain tensor is needed, got {type(value).__name__}")


def numbers(value: Data) -> Tensor:
    """The numbers of a plain or quantised value or of all records of a state, fp64 or int64."""
    return value if isinstance(value, Tensor) else value.values()


def as_state(value: Data) -> State:
    if isinstance(value, State):
        return value
    raise TypeError(f"a state is needed, got {type(value).__name__}")
