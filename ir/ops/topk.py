"""`topk`: the k largest of the first `end` scores of a row, ties to the lowest index (spec 2.7)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..data import as_tensor
from ..graph import Attr, Op, OpDef, Value, register
from ..opkit import choice_attr, count, elements, int_attr, known_attrs, need_elem, need_rank, need_shape, traffic
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class TopK(OpDef):
    """scores `[T, N]` (bf16 or f32), end `i32[T]` -> `i32[T, k] in [-1, N)`, padded with -1.

    `by`: index = ascending indices, rank = descending scores (ties by ascending index). Scores at or beyond `end` are
    not read. -0 equals +0; NaN ranks below everything.
    """

    kind = "topk"
    fusion = "select"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "k", "by")
        count(operands, 2)
        scores, end = operands
        rows, width = need_rank(scores, 2, "scores")
        need_elem(scores, ("bf16", "f32"), "scores")
        need_elem(end, ("i32",), "end")
        need_shape(end, (rows,), "end")
        choice_attr(attrs, "by", ("index", "rank"), "index")
        return [TensorType("i32", (rows, int_attr(attrs, "k", least=1)), (-1, width))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        scores, end, k = as_tensor(args[0]), as_tensor(args[1]), int_attr(op.attrs, "k")
        rows, width = scores.shape
        column = torch.arange(width)
        valid = column < end.clamp(0, width).unsqueeze(1)
        # A second, stable sort by validity keeps what is beyond `end` behind NaN and -inf.
        key = torch.where(valid & ~scores.isnan(), scores, -torch.inf) + 0.0
        real = valid & ~scores.isnan()
        order = key.sort(dim=1, descending=True, stable=True).indices
        group = torch.where(real, 0, torch.where(valid, 1, 2)).gather(1, order)
        order = order.gather(1, group.sort(dim=1, stable=True).indices)[:, :k]
        found = torch.where(torch.arange(order.shape[1]) < end.clamp(0, width).unsqueeze(1), order, width)
        if op.attrs.get("by", "index") == "index":
            found = found.sort(dim=1).values
        out = torch.full((rows, k), -1, dtype=torch.int64)
        out[:, : found.shape[1]] = torch.where(found < width, found, -1)
        return [out]

    def factors(self, op: Op) -> str:
        return "t N, t -> t K"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return 4 * elements(op.operands[0].tensor.shape), traffic(op)
