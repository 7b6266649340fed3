"""`hc_apply` and `hc_post`: reading and updating the residual streams (spec 1.1, 1.3)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, reduce_sum
from ..composite import Composite
from ..graph import Attr, Builder, Value, register
from ..opkit import known_attrs, need_rank, need_shape
from ..scalar import bf16


@register
class HcApply(Composite):
    """X bf16 `[T, m, D]`, pre f32 `[T, m]` -> bf16 `[T, D]`: bf(sum_j pre_j X_j)."""

    kind = "hc_apply"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs)
        x, pre = operands
        rows, m, _ = need_rank(x, 3, "streams")
        need_shape(pre, (rows, m), "mix")
        terms = emap(b, lambda v, p: p * v, [x, pre], dims=[(0, 1, 2), (0, 1)], hint="terms")
        return [emap(b, bf16, [reduce_sum(b, terms, 1, hint="mixed")], hint="h")]


@register
class HcPost(Composite):
    """X bf16 `[T, m, D]`, y bf16 `[T, D]`, post f32 `[T, m]`, C f32 `[T, m, m]` -> the next X.

    X'_n = bf(post_n y + sum_a C[a, n] X_a): the contraction runs over the first index of C.
    """

    kind = "hc_post"
    takes = (4, 4)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs)
        x, y, post, c = operands
        rows, m, _ = need_rank(x, 3, "streams")
        need_shape(c, (rows, m, m), "combination")
        start = emap(b, lambda v, p: p * v, [y, post], dims=[(0, 2), (0, 1)], hint="start")
        terms = emap(b, lambda w, v: w * v, [c, x], dims=[(0, 1, 2), (0, 1, 3)], hint="terms")
        return [emap(b, bf16, [reduce_sum(b, terms, 1, init=start, hint="sums")], hint="X")]
