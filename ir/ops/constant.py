"""`constant`: a table of the module (RoPE, hash constants), evaluated in fp64 or exact integers."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import letters, text_attr
from ..types import Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class ConstantOp(OpDef):
    """-> the module constant `name`, whose type the builder must be given."""

    kind = "constant"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        raise IRError("a constant has the type of its table: pass result_types")

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        return [ev.constant(text_attr(op.attrs, "name"))]

    def factors(self, op: Op) -> str:
        return f"-> {' '.join(c.upper() for c in letters(op.result.tensor.rank)) or '.'}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Nothing: whoever reads the table counts what it reads."""
        return sympy.Integer(0), sympy.Integer(0)
