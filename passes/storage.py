"""Bytes that tensor values take in memory, as expressions of the symbols and as numbers for a bucket.

Shapes follow `codegen/binding.py`, which a test compares with this file.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import sympy

from dinfc.ir.graph import IRError, Value
from dinfc.ir.scalar import DTYPE_BYTES
from dinfc.ir.types import Dim, StateType, TensorType, dim_value, simplify_dim

ALIGNMENT = 64  # bytes; a cache line and an AVX-512 register


@dataclass(frozen=True)
class Piece:
    """One buffer of a value: `suffix` of its name ("" values or codes, "_s" scales), dtype and shape."""

    suffix: str
    dtype: str
    shape: tuple[Dim, ...]


def pieces(type_: TensorType) -> tuple[Piece, ...]:
    """The buffers of a tensor value: values, or codes and scales. Raises IRError for an unknown layout."""
    codec, shape = type_.codec, type_.shape
    dtype = "u8" if codec else type_.elem
    if type_.layout in ("n16k", "n16k4"):
        *lead, n, k = shape
        stored = (*lead, _ceil_div(n, 16), k, 8 if type_.layout == "n16k4" else 16)
    elif type_.layout:
        raise IRError(f"unknown layout {type_.layout!r}")
    elif codec and codec.bits == 4:
        stored = (*shape[:-1], _ceil_div(shape[-1], 2))
    else:
        stored = shape
    values = Piece("", dtype, stored)
    if codec is None:
        return (values,)
    rows = (*shape[:-2], _ceil_div(shape[-2], codec.rows)) if codec.rows > 1 else shape[:-1]
    return values, Piece("_s", "u8", (*rows, _ceil_div(shape[-1], codec.group)))


def _ceil_div(dim: Dim, by: int) -> Dim:
    if isinstance(dim, int):
        return -(-dim // by)
    return simplify_dim(sympy.ceiling(dim / by))


def row_bytes(value: Value) -> int:
    """Bytes of one row of a value: everything but its leading dim (symbolic inner dims count as one)."""
    if isinstance(value.type, StateType):
        return 0
    return sum(DTYPE_BYTES[p.dtype] * prod(d for d in p.shape[1:] if isinstance(d, int)) for p in pieces(value.type))


def aligned(n: int) -> int:
    """n rounded up to whole cache lines."""
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass
class Sizes:
    """Evaluates dims and sizes for every bucket; `values` = what the symbols take in each. Results are remembered,
    since a model has few distinct dims and sympy is slow."""

    values: tuple[Mapping[str, int], ...]
    _dims: dict[Dim, tuple[int, ...]] = field(default_factory=dict)
    _pieces: dict[TensorType, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def dim(self, dim: Dim) -> tuple[int, ...]:
        """The dim in every bucket."""
        if isinstance(dim, int):
            return (dim,) * len(self.values)
        if dim not in self._dims:
            self._dims[dim] = tuple(dim_value(dim, dict(v)) for v in self.values)
        return self._dims[dim]

    def pieces(self, type_: TensorType) -> tuple[tuple[int, ...], ...]:
        """For every buffer of a value, its bytes in every bucket."""
        if type_ not in self._pieces:
            self._pieces[type_] = tuple(
                tuple(DTYPE_BYTES[p.dtype] * prod(column) for column in zip(*map(self.dim, p.shape), strict=True))
                if p.shape else (DTYPE_BYTES[p.dtype],) * len(self.values)
                for p in pieces(type_))
        return self._pieces[type_]
