"""`sparse_attend`: every row over its own list of keys from three sources, with a sink logit (spec 2.9)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..codecs import round_bf16
from ..data import State, as_tensor, numbers
from ..graph import Attr, IRError, Op, OpDef, Order, Value, register
from ..opkit import (
    count,
    elements,
    known_attrs,
    need_dim,
    need_elem,
    need_rank,
    need_shape,
    need_state,
    number_attr,
    tensor_bytes,
    text_attr,
)
from ..types import TensorType, Type
from .gather_rows import OFFSET_MASK, SOURCE_SHIFT

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class SparseAttend(OpDef):
    """q `bf16[T, H, d]`, index `i32[T, n]` encoded, current `mxfp8[N, d]`, ring, sink `f32[H]` [, pages] ->
    `bf16[T, H, d]`.

    Sources: 0 current rows, 1 ring, 2 pages. l = scale * <q, k>; M = max(max l, sink); e = exp(l - M);
    o = sum e k / (sum e + exp(sink - M)), keys in list order. A key that does not lie in its source (-1 among them) is
    absent; without any key o = 0.
    """

    kind = "sparse_attend"
    fusion = "attend"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "scale", "order")
        count(operands, 5, 6)
        q, index, current, ring, sink = operands[:5]
        rows, heads, d = need_rank(q, 3, "q")
        need_elem(q, ("bf16",), "q")
        need_elem(index, ("i32",), "index")
        need_shape(index, (rows, need_rank(index, 2, "index")[1]), "index")
        need_elem(current, ("mxfp8<32>",), "current")
        need_dim(need_rank(current, 2, "current")[1], d, "width of a current key and of a head")
        need_elem(sink, ("f32",), "sink")
        need_shape(sink, (heads,), "sink")
        states = [need_state(ring, ("ring",), "ring")]
        states += [need_state(operands[5], ("pages",), "pages")] if len(operands) == 6 else []
        if states[0].elem != current.tensor.elem:
            raise IRError(f"the ring must hold {current.tensor.elem} like the current rows, it holds {states[0].elem}")
        for state in states:
            if state.codec is None or state.codec.rows > 1:
                raise IRError(f"keys must be quantised records, %{operands[3].name} holds {state.elem}")
            need_dim(state.width, d, "width of a key and of a head")
        number_attr(attrs, "scale")
        text_attr(attrs, "order", "")
        return [TensorType("bf16", q.tensor.shape)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        q, index, sink = as_tensor(args[0]), as_tensor(args[1]), as_tensor(args[4])
        source, offset = (index >> SOURCE_SHIFT) & 3, index & OFFSET_MASK
        keys = torch.zeros((*index.shape, q.shape[2]), dtype=torch.float64)
        valid = torch.zeros_like(index, dtype=torch.bool)
        for number, store in enumerate([args[2], args[3], *args[5:]]):
            values = numbers(store) if not isinstance(store, State) else store.values()
            here = (source == number) & (offset < values.shape[0])
            keys[here] = values[offset[here]]
            valid |= here
        scale = float(number_attr(op.attrs, "scale"))
        logits = torch.matmul(q, keys.transpose(1, 2)) * scale  # [T, H, n]
        logits = torch.where(valid.unsqueeze(1), logits, -torch.inf)
        top = torch.maximum(logits.amax(2, keepdim=True), sink[:, None]) if index.shape[1] else sink[:, None]
        weight = torch.exp(logits - top)
        total = weight.sum(2, keepdim=True) + torch.exp(sink[:, None] - top)
        return [round_bf16(torch.matmul(weight, keys) / total)]

    def factors(self, op: Op) -> str:
        return f"t h D, t N, M D, S, h{', S' if len(op.operands) == 6 else ''} -> t h D"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Counts every entry of the lists, read once a row."""
        _, heads, d = op.operands[0].tensor.shape
        listed = elements(op.operands[1].tensor.shape)
        widest = max(s.type.record_bytes for s in op.operands[3:] if not isinstance(s.type, TensorType))
        rest = sum((tensor_bytes(v.type) for v in [*op.operands, op.result]), sympy.Integer(0))
        return 4 * listed * elements((heads, d)), listed * widest + rest

    def order(self, op: Op) -> Order | None:
        return Order(op.operands[1].tensor.shape[1], "attend")
