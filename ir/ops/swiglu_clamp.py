"""`swiglu_clamp`: the expert activation with its clamps and routing weight (spec 3.2)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, slice_
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import known_attrs, need_rank, number_attr
from ..scalar import Expr, apply


@register
class SwigluClamp(Composite):
    """ab bf16 `[P, 2I]` (gate, then up) [, weight f32 `[P]`] -> f32 `[P, I]`, not rounded.

    The gate is clamped from above only, up on both sides; shared and routed experts use this one op.
    """

    kind = "swiglu_clamp"
    takes = (1, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "limit")
        limit = float(number_attr(attrs, "limit"))
        ab, *weight = operands
        width = need_rank(ab, 2, "gate and up")[1]
        if not isinstance(width, int) or width % 2:
            raise IRError(f"swiglu_clamp: %{ab.name} must hold gate and up, it is {ab.tensor}")
        gate = slice_(b, ab, 1, 0, width // 2, hint="gate")
        up = slice_(b, ab, 1, width // 2, width, hint="up")

        def body(a: Expr, u: Expr, *w: Expr) -> Expr:
            g = apply("min", a, _limit(limit))
            clipped = apply("max", apply("min", u, _limit(limit)), _limit(-limit))
            out = g / (apply("exp", -g) + 1.0) * clipped
            return out * w[0] if w else out

        return [emap(b, body, [gate, up, *weight], dims=[(0, 1), (0, 1), (0,)][:2 + len(weight)], hint="hidden")]


def _limit(value: float) -> Expr:
    return Expr("const", (), "f32", value)
