"""`view`: the same elements in the same order under another shape."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..data import Quantised, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import check_codec_shape, count, dims_attr, elements, is_multiple, known_attrs, need_dim, opaque
from ..types import Codec, TensorType, Type, dim_text, simplify_dim

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class View(OpDef):
    """x -> x with dims `shape`. Groups of a codec stay whole: the last dim may be split or merged at multiples of the
    group; blocks of W-FP8 weights also need an unchanged last dim and N split at multiples of 32."""

    kind = "view"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "shape")
        count(operands, 1)
        x, shape = operands[0].tensor, dims_attr(attrs, "shape")
        need_dim(simplify_dim(elements(x.shape)), simplify_dim(elements(shape)), "elements before and after the view")
        check_codec_shape(x.codec, shape)
        if x.codec is not None and x.codec.rows > 1:
            _check_blocks(x, shape, x.codec)
        return [TensorType(x.elem, shape, x.bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        x, shape = args[0], ev.shape(op.result.tensor.shape)
        if not isinstance(x, Quantised):
            return [as_tensor(x).reshape(shape)]
        scales = [*shape[:-1], shape[-1] // x.codec.group]
        if x.codec.rows > 1:
            scales[-2] = -(-shape[-2] // x.codec.rows)
        return [Quantised(x.codes.reshape(shape), x.scales.reshape(scales), x.codec, base=x)]

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return sympy.Integer(0), sympy.Integer(0)


def _check_blocks(x: TensorType, shape: Sequence[object], codec: Codec) -> None:
    """Raises IRError where a view would cut the scale blocks of a weight."""
    dims = [d for d in shape if isinstance(d, int | sympy.Expr)]
    if len(dims) < 2 or dims[-1] != x.shape[-1]:
        raise IRError(f"a view of {codec.name} must keep its last dim {dim_text(x.shape[-1])}")
    for old in (dims[-2], x.shape[-2]):
        if dims[-2] != x.shape[-2] and not is_multiple(old, codec.rows):
            raise IRError(f"a view of {codec.name} must keep blocks of {codec.rows} rows whole, "
                          f"{dim_text(old)} does not")
