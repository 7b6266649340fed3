"""The order text of a matrix product along K, and what a schedule must do to honour it.

    fold(32; chain fma)                 groups of 32 along K: chain = 0, then fma element by element; the chains (times
                                        their scale product, by fma) are added to an accumulator that starts at 0
    fold(1024; fold(32; chain fma))     slices of 1024 along K, each an accumulator of its own from 0 as above; the
                                        slices are added left to right, in fp32, to a sum that starts at 0

Only this text decides, never a tile size: a schedule may cut K where it likes *inside* an accumulator, since the next
piece continues the same chain of additions.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from dinfc.ir.graph import IRError, Op

_CHAIN = r"fold\((\d+); *chain fma\)"
_ONE = re.compile(_CHAIN)
_TWO = re.compile(rf"fold\((\d+); *{_CHAIN}\)")


@dataclass(frozen=True)
class DotOrder:
    """`group`: elements of a chain; `slice`: elements of one accumulator, or 0 where one takes the whole of K."""

    group: int
    slice: int = 0

    def __str__(self) -> str:
        inner = f"fold({self.group}; chain fma)"
        return f"fold({self.slice}; {inner})" if self.slice else inner


def parse_dot_order(text: str) -> DotOrder:
    """Reads an order text. Raises ValueError for any other form (another instruction is another order)."""
    if found := _ONE.fullmatch(text.strip()):
        return DotOrder(int(found[1]))
    if found := _TWO.fullmatch(text.strip()):
        order = DotOrder(int(found[2]), int(found[1]))
        if order.slice % order.group:
            raise ValueError(f"slices of {order.slice} cut a group of {order.group}: {text!r}")
        return order
    raise ValueError(f"not the order of a matrix product: {text!r}")


def dot_order(op: Op, group: int) -> DotOrder:
    """The order that `pin_reductions` gave the op, or one accumulator over groups of `group` where it gave none.

    Raises IRError if the text is not an order of a product or its group is not the scale group of the operands.
    """
    text = op.attrs.get("order")
    if text is None or text == "":
        return DotOrder(group)
    try:
        order = parse_dot_order(str(text))
    except ValueError as error:
        raise IRError(str(error), op) from None
    return order
