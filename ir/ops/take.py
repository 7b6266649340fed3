"""`take`: element gather from a table of rank r by r index tensors."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..data import as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import (
    element_bytes,
    elements,
    known_attrs,
    letters,
    need_elem,
    need_shape,
    number_attr,
    tensor_bytes,
    with_fill,
)
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Take(OpDef):
    """table (rank r >= 1), r index tensors (i32, i64) of one shape -> that shape; out of range gives `fill` (0)."""

    kind = "take"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "fill")
        if len(operands) < 2:
            raise IRError("takes a table and one index tensor per dim of it")
        table, *indices = operands
        if table.tensor.codec is not None:
            raise IRError(f"table %{table.name} is quantised ({table.tensor.elem}): use gather_rows")
        if table.tensor.rank != len(indices):
            raise IRError(f"table %{table.name} has {table.tensor.rank} dims, there are {len(indices)} index tensors")
        for index in indices:
            need_elem(index, ("i32", "i64"), "index")
            need_shape(index, indices[0].tensor.shape, "index")
        fill = number_attr(attrs, "fill", 0)
        return [TensorType(table.tensor.elem, indices[0].tensor.shape, with_fill(table.tensor.bounds, fill))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        table, *indices = [as_tensor(a) for a in args]
        fill = torch.tensor(number_attr(op.attrs, "fill", 0), dtype=table.dtype)
        if table.numel() == 0:
            return [fill.expand(indices[0].shape)]
        here = torch.ones_like(indices[0], dtype=torch.bool)
        for size, index in zip(table.shape, indices, strict=True):
            here = here & (index >= 0) & (index < size)
        found = table[tuple(torch.where(here, index, 0) for index in indices)]
        return [torch.where(here, found, fill)]

    def factors(self, op: Op) -> str:
        table = " ".join(c.upper() for c in letters(op.operands[0].tensor.rank))
        out = " ".join(letters(op.result.tensor.rank, 12)) or "."
        return f"{', '.join([table, *[out] * (len(op.operands) - 1)])} -> {out}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Reads the indices and one element per index, writes the result."""
        table = op.operands[0].tensor
        reads = sum((tensor_bytes(v.type) for v in dict.fromkeys(op.operands[1:])), sympy.Integer(0))
        touched = elements(op.result.tensor.shape) * element_bytes(table)
        return sympy.Integer(0), reads + touched + tensor_bytes(op.result.type)
