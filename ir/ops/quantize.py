"""`quantize`: a bf16 or f32 value to codes and scales (spec 0.4)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from .. import codecs
from ..data import Quantised, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import check_codec_shape, choice_attr, count, elements, known_attrs, letters, need_elem, traffic
from ..types import CODECS, TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation

ROW_CODECS = tuple(name for name, codec in CODECS.items() if codec.rows == 1)


@register
class Quantize(OpDef):
    """x `[.., n]` (bf16 or f32) -> `codec[.., n]`, groups along the last dim, each row and group on its own."""

    kind = "quantize"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "codec")
        count(operands, 1)
        need_elem(operands[0], ("bf16", "f32"), "operand")
        codec = CODECS[choice_attr(attrs, "codec", ROW_CODECS)]
        check_codec_shape(codec, operands[0].tensor.shape)
        return [TensorType(codec.name, operands[0].tensor.shape)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        codec = op.result.tensor.codec
        if codec is None:
            raise IRError("the result must be quantised", op)
        return [Quantised(*codecs.encode(as_tensor(args[0]), codec), codec)]

    def factors(self, op: Op) -> str:
        names = letters(op.result.tensor.rank)
        names[-1] = names[-1].upper()  # may be split at whole groups only
        return f"{' '.join(names)} -> {' '.join(names)}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return 4 * elements(op.result.tensor.shape), traffic(op)
