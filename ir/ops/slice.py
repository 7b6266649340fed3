"""`slice`: a range of one axis."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
from torch import Tensor

from ..data import Quantised, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import count, int_attr, is_multiple, known_attrs, letters, need_axis, tensor_bytes, to_dim
from ..types import Codec, Dim, TensorType, Type, dim_text, simplify_dim

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Slice(OpDef):
    """x[.., start:stop:step, ..] along `axis`; start and stop are dims with 0 <= start <= stop <= extent."""

    kind = "slice"
    fusion = ""

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "axis", "start", "stop", "step")
        count(operands, 1)
        x = operands[0].tensor
        axis = need_axis(int_attr(attrs, "axis"), x.rank)
        start, stop, step = bounds_of(attrs)
        extent = x.shape[axis]
        if step < 1:
            raise IRError(f"step must be at least 1, it is {step}")
        for low, high in ((0, start), (start, stop), (stop, extent)):
            if _surely_less(high, low):
                raise IRError(f"range {dim_text(start)}:{dim_text(stop)} does not lie inside of {dim_text(extent)}")
        if x.codec is not None:
            _check_codec(x, x.codec, axis, start, stop, step)
        length = simplify_dim(sympy.ceiling((sympy.sympify(stop) - start) / step))
        return [TensorType(x.elem, (*x.shape[:axis], length, *x.shape[axis + 1:]), x.bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        x, axis = args[0], int_attr(op.attrs, "axis")
        start, stop, step = bounds_of(op.attrs)
        low, high = ev.dim(start), ev.dim(stop)
        if not isinstance(x, Quantised):
            return [_cut(axis, low, high, step, as_tensor(x).shape, as_tensor(x))]
        part = {len(x.shape) - 1: x.codec.group, len(x.shape) - 2: x.codec.rows}.get(axis, 1)
        return [Quantised(_cut(axis, low, high, step, x.shape, x.codes),
                          _cut(axis, low // part, -(-high // part), step, x.scales.shape, x.scales), x.codec)]

    def factors(self, op: Op) -> str:
        names = letters(op.result.tensor.rank)
        axis = int_attr(op.attrs, "axis")
        left, right = list(names), list(names)
        left[axis] = left[axis].upper()
        right[axis] = "Z"
        return f"{' '.join(left)} -> {' '.join(right)}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return sympy.Integer(0), 2 * tensor_bytes(op.result.type)


def bounds_of(attrs: Mapping[str, Attr]) -> tuple[Dim, Dim, int]:
    """(start, stop, step); start is 0 and step 1 where they are missing."""
    if "stop" not in attrs:
        raise IRError("attribute 'stop' is missing")
    return to_dim(attrs.get("start", 0)), to_dim(attrs["stop"]), int_attr(attrs, "step", 1)


def _surely_less(a: Dim, b: Dim) -> bool:
    return bool((sympy.sympify(a) - b).is_negative)


def _check_codec(x: TensorType, codec: Codec, axis: int, start: Dim, stop: Dim, step: int) -> None:
    """Raises IRError where the range would cut a scale group."""
    part = {x.rank - 1: codec.group, x.rank - 2: codec.rows}.get(axis, 1)
    ends = stop == x.shape[axis] or is_multiple(stop, part)
    if part > 1 and (step != 1 or not is_multiple(start, part) or not ends):
        raise IRError(f"a slice of {codec.name} along axis {axis} must keep groups of {part} whole, "
                      f"{dim_text(start)}:{dim_text(stop)}:{step} does not")


def _cut(axis: int, low: int, high: int, step: int, shape: Sequence[int], x: Tensor) -> Tensor:
    if not 0 <= low <= high <= shape[axis]:
        raise IRError(f"range {low}:{high} does not lie inside of {shape[axis]}")
    return x[(*[slice(None)] * axis, slice(low, high, step))]
