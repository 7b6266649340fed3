"""`relayout`: another storage order of the same value (design section 4: layout is storage, codec is semantics)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import count, known_attrs, letters, text_attr, traffic
from ..types import Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Relayout(OpDef):
    """x -> x stored in `layout` ("" is row-major)."""

    kind = "relayout"
    fusion = "move"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "layout")
        count(operands, 1)
        layout = text_attr(attrs, "layout")
        if layout and not layout.isalnum():
            raise IRError(f"a layout is a word of letters and digits, not {layout!r}")
        return [operands[0].tensor.with_(layout=layout)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        return args

    def factors(self, op: Op) -> str:
        names = " ".join(letters(op.result.tensor.rank)) or "."
        return f"{names} -> {names}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return sympy.Integer(0), traffic(op)
