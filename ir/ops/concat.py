"""`concat`: values joined along one axis."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..data import Quantised, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import (
    Bounds,
    int_attr,
    is_multiple,
    known_attrs,
    letters,
    need_axis,
    need_elem,
    need_shape,
    traffic,
    union_bounds,
)
from ..types import Dim, TensorType, Type, simplify_dim

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Concat(OpDef):
    """x0, x1, .. of one element type -> joined along `axis`; codec values keep their groups whole."""

    kind = "concat"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "axis")
        if not operands:
            raise IRError("takes at least one operand")
        first = operands[0].tensor
        axis = need_axis(int_attr(attrs, "axis"), first.rank)
        extents: list[Dim] = []
        bounds: Bounds = first.bounds
        for value in operands:
            need_elem(value, (first.elem,), "operand")
            if value.tensor.rank != first.rank:
                raise IRError(f"operands have {first.rank} and {value.tensor.rank} dims")
            extent = value.tensor.shape[axis]
            need_shape(value, (*first.shape[:axis], extent, *first.shape[axis + 1:]), "operand")
            extents.append(extent)
            bounds = bounds if value.tensor.bounds == bounds else union_bounds(bounds, value.tensor.bounds)
        codec = first.codec
        if codec is not None and codec.rows > 1 and axis == first.rank - 2 \
                and not all(is_multiple(e, codec.rows) for e in extents[:-1]):
            raise IRError(f"{codec.name} joined along axis {axis} must keep blocks of {codec.rows} rows whole")
        total = simplify_dim(sum((sympy.sympify(e) for e in extents), sympy.Integer(0)))
        return [TensorType(first.elem, (*first.shape[:axis], total, *first.shape[axis + 1:]), bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        axis = int_attr(op.attrs, "axis")
        parts = [a for a in args if isinstance(a, Quantised)]
        if parts:
            return [Quantised(torch.cat([p.codes for p in parts], axis), torch.cat([p.scales for p in parts], axis),
                              parts[0].codec)]
        return [torch.cat([as_tensor(a) for a in args], axis)]

    def factors(self, op: Op) -> str:
        axis = int_attr(op.attrs, "axis")
        names = letters(op.result.tensor.rank)
        left = []
        for n in range(len(op.operands)):
            names[axis] = f"{chr(ord('A') + axis)}{n}"
            left.append(" ".join(names))
        names[axis] = "Z"
        return f"{', '.join(left)} -> {' '.join(names)}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return sympy.Integer(0), traffic(op)
