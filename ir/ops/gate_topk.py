"""`gate_topk`: routing of rows to experts (spec 3.1)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, reduce_sum, take, topk
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import int_attr, known_attrs, need_rank, need_shape, number_attr
from ..scalar import Expr, apply, compare, index, select


@register
class GateTopk(Composite):
    """z f32 `[T, E]`, bias f32 `[E]` -> experts i32 `[T, k]` in rank order, weights f32 `[T, k]`.

    u = sqrt(softplus(z)), with softplus(v) = v above 20; the bias ranks, it never weighs.
    """

    kind = "gate_topk"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "k", "scale")
        z, bias = operands
        k, scale = int_attr(attrs, "k", least=1), float(number_attr(attrs, "scale"))
        rows, experts = need_rank(z, 2, "router logits")
        need_shape(bias, (experts,), "bias")
        if not isinstance(experts, int) or k > experts:
            raise IRError(f"gate_topk: {k} of {experts} experts")

        def affinity(v: Expr) -> Expr:
            return apply("sqrt", select(compare("gt", v, 20.0), v, apply("log1p", apply("exp", v))))

        u = emap(b, affinity, [z], hint="affinity")
        rank = emap(b, lambda a, c: a + c, [u, bias], hint="rank")
        every = emap(b, lambda: experts, [], shape=(rows,), dtype="i32", bounds=(experts, experts + 1), hint="experts")
        ids = topk(b, rank, every, k, by="rank", hint="expert_ids")
        row = emap(b, lambda: index(0), [], shape=(rows, k), bounds=(0, rows), hint="row")
        chosen = take(b, u, [row, ids], hint="chosen")
        total = reduce_sum(b, chosen, 1, hint="chosen_sum")
        weights = emap(b, lambda c, s: c / (s + 1e-20) * scale, [chosen, total], dims=[(0, 1), (0,)], hint="weights")
        return [ids, weights]
