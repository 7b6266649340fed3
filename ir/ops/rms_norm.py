"""`rms_norm`: RMSNorm with one rounding at the end (spec 1.2)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, reduce_sum
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import known_attrs, need_shape, need_size, number_attr
from ..scalar import Expr, apply, bf16


@register
class RmsNorm(Composite):
    """x bf16 `[.., n]`, w bf16 `[n]` -> bf16 `[.., n]`: bf(x * rsqrt(mean(x^2) + eps) * w), over the last dim."""

    kind = "rms_norm"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "eps")
        x, w = operands
        eps = number_attr(attrs, "eps")
        if x.tensor.rank == 0:
            raise IRError(f"rms_norm needs rows, %{x.name} is {x.tensor}")
        n = need_size(x.tensor.shape[-1], "the width of a row")
        need_shape(w, (n,), "weight")
        squares = emap(b, lambda v: v * v, [x], hint="squares")
        total = reduce_sum(b, squares, -1, hint="square_sum")
        rank = x.tensor.rank

        def scale(s: Expr) -> Expr:
            return apply("rsqrt", s / float(n) + float(eps))

        rms = emap(b, scale, [total], hint="inv_rms")
        dims = [range(rank), range(rank - 1), (rank - 1,)]
        return [emap(b, lambda v, r, g: bf16(v * r * g), [x, rms, w], dims=dims, hint="normed")]
