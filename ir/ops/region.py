"""`region`: ops that become one kernel (made by the pass `fuse`)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, definition, register
from ..opkit import opaque, traffic
from ..types import Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Region(OpDef):
    """operands -> results of the body, whose params stand for the operands. Attributes belong to the passes (`anchor`,
    `kernel`, `chunk`); the types of the results are those of the body, so the builder must be given them."""

    kind = "region"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        raise IRError("the results of a region have the types that its body gives: pass result_types")

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        return ev.run_body(op.regions[0], args)

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """All flops of the body, but only the bytes that cross its edge."""
        flops = sum((definition(inner.kind).cost(inner)[0] for inner in op.regions[0].ops), sympy.Integer(0))
        return flops, traffic(op)
