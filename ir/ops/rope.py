"""`rope`: interleaved rotation of the last `rotary` channels (spec 2.2)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build import concat, emap, slice_, view
from ..composite import Composite
from ..graph import Attr, Builder, IRError, Value, register
from ..opkit import flag_attr, known_attrs, need_rank, need_size
from ..scalar import bf16


@register
class Rope(Composite):
    """x bf16 `[T, d]` or `[T, H, d]`, cs f32 `[T, rotary]` (cos, then sin, of each pair) -> as x, one bf16 rounding.

    Channels (2i, 2i+1) of the rotary slice are a complex number multiplied by cos_i + j sin_i, or with `conj` by its
    conjugate.
    """

    kind = "rope"
    takes = (2, 2)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        known_attrs(attrs, "conj")
        x, cs = operands
        sign = -1.0 if flag_attr(attrs, "conj") else 1.0
        if x.tensor.rank < 2:
            raise IRError(f"rope needs rows of vectors, %{x.name} is {x.tensor}")
        width = need_size(x.tensor.shape[-1], "the width of a vector")
        rotary = need_size(need_rank(cs, 2, "table rows")[1], "the width of a table row")
        if rotary > width or rotary % 2:
            raise IRError(f"rope: {rotary} rotary channels of {width}")
        rank, half = x.tensor.rank, rotary // 2
        even = slice_(b, x, -1, width - rotary, width, 2, hint="even")
        odd = slice_(b, x, -1, width - rotary + 1, width, 2, hint="odd")
        cos = slice_(b, cs, -1, 0, half, hint="cos")
        sin = slice_(b, cs, -1, half, rotary, hint="sin")
        dims = [range(rank), range(rank), (0, rank - 1), (0, rank - 1)]
        re = emap(b, lambda e, o, c, s: bf16(e * c - o * (s * sign)), [even, odd, cos, sin], dims=dims, hint="re")
        im = emap(b, lambda e, o, c, s: bf16(e * (s * sign) + o * c), [even, odd, cos, sin], dims=dims, hint="im")
        lead = x.tensor.shape[:-1]
        pairs = concat(b, [view(b, re, (*lead, half, 1)), view(b, im, (*lead, half, 1))], -1, hint="pairs")
        turned = view(b, pairs, (*lead, rotary), hint="turned")
        if rotary == width:
            return [turned]
        return [concat(b, [slice_(b, x, -1, 0, width - rotary, hint="plain"), turned], -1, hint="rotated")]
