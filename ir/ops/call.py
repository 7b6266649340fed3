"""`call`: a function of the module, layer kinds for one (design section 4)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import opaque, text_attr, traffic
from ..types import Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Call(OpDef):
    """arguments -> results of `callee`. No rule can infer the types: the builder must be given the callee's."""

    kind = "call"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        raise IRError("the results of a call have the types of its callee: pass result_types")

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        return ev.call(text_attr(op.attrs, "callee"), args)

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Bytes at the edge only: the callee's own ops are counted where they stand."""
        return sympy.Integer(0), traffic(op)
