"""`expert_sum`: the unweighted sum of shared and routed experts (spec 3.2, order of 0.3)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import emap, gather_rows, reduce_sum
from ..composite import Composite
from ..graph import Attr, Builder, Value, register
from ..opkit import known_attrs, need_rank
from ..scalar import bf16


@register
class ExpertSum(Composite):
    """shared bf16 `[T, D]`, y bf16 `[P, D]`, slot_row i32 `[T, K]` -> bf16 `[T, D]`: shared first, then the experts in
    slot order, one rounding."""

    kind = "expert_sum"
    takes = (3, 3)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs)
        shared, y, slot_row = operands
        need_rank(slot_row, 2, "slot rows")
        routed = gather_rows(b, slot_row, y, hint="routed")
        wide = emap(b, lambda v: v, [routed], hint="wide")
        start = emap(b, lambda v: v, [shared], hint="start")
        return [emap(b, bf16, [reduce_sum(b, wide, 1, init=start, hint="sums")], hint="y")]
