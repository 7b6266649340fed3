"""`dequantize`: codes and scales back to numbers (spec 0.4)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..codecs import round_bf16
from ..data import Data, numbers
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import choice_attr, count, elements, known_attrs, letters, traffic
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..interpret import Evaluation


@register
class Dequantize(OpDef):
    """codec `[.., n]` -> `elem[.., n]`: code * scale, rounded to bf16 where `elem` is bf16."""

    kind = "dequantize"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "elem")
        count(operands, 1)
        if operands[0].tensor.codec is None:
            raise IRError(f"operand %{operands[0].name} is not quantised, it is {operands[0].tensor}")
        return [TensorType(choice_attr(attrs, "elem", ("bf16", "f32")), operands[0].tensor.shape)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        values = numbers(args[0])
        return [round_bf16(values) if op.result.tensor.elem == "bf16" else values]

    def factors(self, op: Op) -> str:
        names = letters(op.result.tensor.rank)
        names[-1] = names[-1].upper()
        return f"{' '.join(names)} -> {' '.join(names)}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return elements(op.result.tensor.shape), traffic(op)
