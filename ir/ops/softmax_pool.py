"""`softmax_pool`: one compressed token out of two (spec 2.3, ratio 2)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, slice_
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import known_attrs, need_rank
from ..scalar import Expr, apply, bf16


@register
class SoftmaxPool(Composite):
    """previous and current f32 `[T, 2d]` (gate, then latent) -> bf16 `[T, d]`: per channel
    bf(sum_u softmax_u(gate_u) * latent_u) over the two tokens."""

    kind = "softmax_pool"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs)
        previous, current = operands
        width = need_rank(previous, 2, "gate and latent")[1]
        if not isinstance(width, int) or width % 2:
            raise IRError(f"softmax_pool: %{previous.name} must hold gate and latent, it is {previous.tensor}")
        d = width // 2
        parts = [slice_(b, v, 1, start, start + d) for v in (previous, current) for start in (0, d)]

        def body(g0: Expr, l0: Expr, g1: Expr, l1: Expr) -> Expr:
            top = apply("max", g0, g1)
            e0, e1 = apply("exp", g0 - top), apply("exp", g1 - top)
            total = e0 + e1
            return bf16(e0 / total * l0 + e1 / total * l1)

        return [emap(b, body, parts, hint="pooled")]
