"""`repeat`: a body applied `count` times to carried values (Sinkhorn)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, definition, register
from ..opkit import int_attr, known_attrs, opaque
from ..types import StateType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Repeat(OpDef):
    """carried values -> carried values; the region's params and results are the carried values, types unchanged. The
    body reads nothing from outside."""

    kind = "repeat"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "count")
        int_attr(attrs, "count", least=0)
        if any(isinstance(v.type, StateType) for v in operands):
            raise IRError("a state cannot be carried")
        return [v.type for v in operands]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        for _ in range(int_attr(op.attrs, "count")):
            args = ev.run_body(op.regions[0], args)
        return args

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        costs = [definition(inner.kind).cost(inner) for inner in op.regions[0].ops]
        times = int_attr(op.attrs, "count")
        zero = sympy.Integer(0)
        return times * sum((c[0] for c in costs), zero), times * sum((c[1] for c in costs), zero)
