"""The order of a row reduction: `serial` or `lanes(16; halves)`, the text that `pin_reductions` sets.

`lanes(n; halves)`: element i belongs to lane i mod n, every lane takes its elements in increasing i, then the lanes are
folded by halving (tile IR `Reduce`). `serial` is one lane.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from dinfc.ir.graph import IRError, Op
from dinfc.ir.scalar import FLOATS

_LANES = re.compile(r"lanes\(\s*(\d+)\s*;\s*halves\s*\)")


@dataclass(frozen=True)
class RowOrder:
    """Lanes of a reduction; 1 is a serial chain."""

    lanes: int = 1

    def __str__(self) -> str:
        return "serial" if self.lanes == 1 else f"lanes({self.lanes}; halves)"


SERIAL = RowOrder(1)


def parse_row_order(text: str) -> RowOrder:
    """The order that `text` names. Raises ValueError for any other text and for lanes that cannot be halved."""
    if text.strip() == "serial":
        return SERIAL
    found = _LANES.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no order of a row reduction (serial, lanes(16; halves))")
    lanes = int(found.group(1))
    if lanes < 1 or lanes & (lanes - 1):
        raise ValueError(f"{lanes} lanes cannot be halved: a power of two is needed")
    return RowOrder(lanes)


def row_order(op: Op, default_lanes: int) -> RowOrder:
    """The order of a `reduce` op. Integers, maxima and minima are exact in any order, so theirs may be missing; a sum
    of floats without an order raises IRError."""
    text = op.attrs.get("order")
    if text is None:
        if op.attrs.get("op") == "sum" and op.result.tensor.elem in FLOATS:
            raise IRError(f"%{op.result.name} sums floats in no order: run pin_reductions first", op)
        return RowOrder(default_lanes)
    try:
        return parse_row_order(str(text))
    except ValueError as error:
        raise IRError(f"%{op.result.name}: {error}", op) from None
