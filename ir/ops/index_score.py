"""`index_score`: index logits of a row against its compressed tokens in the paged cache (spec 2.6, 2.8)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch
from torch import Tensor

from ..codecs import round_bf16
from ..data import as_state, as_tensor, numbers
from ..graph import Attr, IRError, Op, OpDef, Order, Value, register
from ..opkit import (
    count,
    element_bytes,
    elements,
    int_attr,
    known_attrs,
    need_dim,
    need_elem,
    need_rank,
    need_shape,
    need_state,
    tensor_bytes,
    text_attr,
)
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class IndexScore(OpDef):
    """q `mxfp4[T, H, d]`, w `bf16[T, H]`, keys (pages), table `i32[S, max_pages]`, seq `i32[T]`, end `i32[T]`
    [, cand `i32[T, N_c]`] -> `bf16[T, width]`: bf(sum_h w_h max(0, <q_h, key>)).

    Column c is compressed token c, or with candidates token cand[c / block] * block + c mod block; token j of a
    sequence is record j mod capacity of page table[seq, j / capacity]. Columns at or beyond `end` are undefined (NaN
    in the interpreter). A token whose page or candidate does not exist scores 0; a row without a sequence is undefined.
    """

    kind = "index_score"
    fusion = "score"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "width", "block", "order")
        count(operands, 6, 7)
        q, w, keys, table, seq, end = operands[:6]
        rows, heads, d = need_rank(q, 3, "q")
        state = need_state(keys, ("pages",), "keys")
        need_elem(q, ("mxfp4<32>",), "q")
        if state.elem != q.tensor.elem:
            raise IRError(f"keys must have the codec of the queries, {q.tensor.elem}, they have {state.elem}")
        need_dim(state.width, d, "width of a key and of a query head")
        need_elem(w, ("bf16",), "w")
        need_shape(w, (rows, heads), "w")
        need_rank(table, 2, "table")
        for value, what in ((table, "table"), (seq, "seq"), (end, "end")):
            need_elem(value, ("i32",), what)
        need_shape(seq, (rows,), "seq")
        need_shape(end, (rows,), "end")
        width, block = int_attr(attrs, "width", least=1), int_attr(attrs, "block", 0, least=0)
        text_attr(attrs, "order", "")
        if (len(operands) == 7) != (block > 0):
            raise IRError("'block' and the operand cand belong together")
        if len(operands) == 7:
            cand = operands[6]
            need_elem(cand, ("i32",), "cand")
            blocks = need_rank(cand, 2, "cand")[1]
            need_shape(cand, (rows, blocks), "cand")
            need_dim(width, blocks * block, "width and candidate blocks * block")
        return [TensorType("bf16", (rows, width))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        q, w, state = numbers(args[0]), as_tensor(args[1]), as_state(args[2])
        table, seq, end = (as_tensor(a) for a in args[3:6])
        width, block = int_attr(op.attrs, "width"), int_attr(op.attrs, "block", 0)
        end = torch.where((seq >= 0) & (seq < table.shape[0]), end.clamp(0, width), 0)
        out = torch.full((q.shape[0], width), torch.nan, dtype=torch.float64)
        last = int(end.max()) if end.numel() else 0
        if last == 0:
            return [out]
        column = torch.arange(last)
        if block:
            start = as_tensor(args[6])[:, column // block]
            token = torch.where(start >= 0, start * block + column % block, -1)
        else:
            token = column.expand(q.shape[0], last)
        record = _records(table[seq.clamp(0, table.shape[0] - 1)], token, state.type.capacity, state.records)
        for t in range(q.shape[0]):
            n = int(end[t])
            found = record[t, :n]
            keys = state.values()[found.clamp(min=0)]
            score = round_bf16(w[t] @ (q[t] @ keys.T).clamp(min=0))
            out[t, :n] = torch.where(found >= 0, score, 0.0)
        return [out]

    def factors(self, op: Op) -> str:
        cand = ", t B" if len(op.operands) == 7 else ""
        return f"t H D, t H, S, X Y, t, t{cand} -> t N"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Counts every column: the worst case of the lengths."""
        _, heads, d = op.operands[0].tensor.shape
        keys = need_state(op.operands[2], ("pages",), "keys")
        columns = elements(op.result.tensor.shape)
        rest = sum((tensor_bytes(v.type) for v in [*op.operands, op.result]), sympy.Integer(0))
        return 2 * columns * elements((heads, d)), columns * keys.width * element_bytes(keys) + rest

    def order(self, op: Op) -> Order | None:
        return Order(op.operands[0].tensor.shape[2], "score")


def _records(pages: Tensor, token: Tensor, capacity: int, records: int) -> Tensor:
    """Record of each token of each row, -1 where it does not exist. pages `[T, max_pages]`, token `[T, n]`."""
    number = token // capacity
    here = (token >= 0) & (number < pages.shape[1])
    page = pages.gather(1, torch.where(here, number, 0)) if pages.shape[1] else torch.zeros_like(token)
    record = page * capacity + token % capacity
    return torch.where(here & (page >= 0) & (record < records), record, -1)
