"""`reduce`: sum, maximum or minimum along one axis."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..data import as_tensor
from ..graph import Attr, IRError, Op, OpDef, Order, Value, register
from ..opkit import (
    choice_attr,
    count,
    elements,
    int_attr,
    known_attrs,
    letters,
    need_axis,
    need_elem,
    need_shape,
    traffic,
)
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Reduce(OpDef):
    """x [, init] -> x without `axis`; f32, i32 or i64. A sum starts from `init` where it is given."""

    kind = "reduce"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "op", "axis", "order")
        count(operands, 1, 2)
        x = operands[0].tensor
        need_elem(operands[0], ("f32", "i32", "i64"), "operand")
        axis = need_axis(int_attr(attrs, "axis"), x.rank)
        shape = x.shape[:axis] + x.shape[axis + 1:]
        op = choice_attr(attrs, "op", ("sum", "max", "min"))
        if len(operands) == 2:
            if op != "sum":
                raise IRError(f"only a sum has a start value, this is {op}")
            need_elem(operands[1], (x.elem,), "start value")
            need_shape(operands[1], shape, "start value")
        return [TensorType(x.elem, shape, None if op == "sum" else x.bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        x, axis, kind = as_tensor(args[0]), int_attr(op.attrs, "axis"), op.attrs["op"]
        if kind == "sum":
            total = x.sum(axis)
            if x.dtype.is_floating_point or op.result.tensor.elem == "i64":
                return [total + as_tensor(args[1]) if len(args) == 2 else total]
            return [ev.wrap_i32(total + as_tensor(args[1]) if len(args) == 2 else total)]
        return [x.amax(axis) if kind == "max" else x.amin(axis)]

    def factors(self, op: Op) -> str:
        names = letters(op.operands[0].tensor.rank)
        axis = int_attr(op.attrs, "axis")
        out = " ".join(names[:axis] + names[axis + 1:]) or "."
        names[axis] = names[axis].upper()
        return f"{', '.join([' '.join(names), *[out] * (len(op.operands) - 1)])} -> {out}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return elements(op.operands[0].tensor.shape), traffic(op)

    def order(self, op: Op) -> Order | None:
        return Order(op.operands[0].tensor.shape[int_attr(op.attrs, "axis")], "reduce")
