"""`contract`: a matrix product, classes G8, G4, GB, GB32, GT of spec 0.5, also batched over groups."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..codecs import round_bf16
from ..data import numbers
from ..graph import Attr, IRError, Op, OpDef, Order, Value, register
from ..opkit import choice_attr, count, flag_attr, known_attrs, need_dim, product_cost, text_attr, traffic
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation

# class -> (elements of A, elements of B, element of the result)
CLASSES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "G8": (("mxfp8<32>",), ("wfp8<32x32>",), "bf16"),
    "G4": (("mxfp8<32>",), ("mxfp4<32>",), "bf16"),
    "GB": (("bf16",), ("bf16",), "bf16"),
    "GB32": (("bf16",), ("bf16",), "f32"),
    "GT": (("f32", "bf16"), ("f32",), "f32"),
}


def check_class(a: Value, b: Value, attrs: Mapping[str, Attr], allowed: Sequence[str]) -> str:
    """The result element of the attribute `cls`. Raises IRError where an operand has another element or scale format
    than its class needs (fault F22)."""
    cls = choice_attr(attrs, "cls", allowed)
    left, right, result = CLASSES[cls]
    for value, wanted, side in ((a, left, "A"), (b, right, "B")):
        if value.tensor.elem not in wanted:
            raise IRError(f"class {cls} needs {' or '.join(wanted)} as {side}, %{value.name} is {value.tensor.elem}")
    return result


@register
class Contract(OpDef):
    """a `[M, K]`, b `[N, K]` -> `[M, N]`; with `batch` a `[M, G, K]`, b `[G, N, K]` -> `[M, G, N]`."""

    kind = "contract"
    fusion = "matmul"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "cls", "batch", "order")
        count(operands, 2)
        a, b = operands
        elem = check_class(a, b, attrs, tuple(CLASSES))
        text_attr(attrs, "order", "")
        rank = 3 if flag_attr(attrs, "batch") else 2
        if a.tensor.rank != rank or b.tensor.rank != rank:
            what = "a batched product" if rank == 3 else "a product"
            raise IRError(f"{what} needs operands of {rank} dims, they are {a.tensor} and {b.tensor}")
        need_dim(a.tensor.shape[-1], b.tensor.shape[-1], "K of A and K of B")
        if rank == 3:
            need_dim(a.tensor.shape[1], b.tensor.shape[0], "groups of A and groups of B")
        return [TensorType(elem, (*a.tensor.shape[:-1], b.tensor.shape[-2]))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        a, b = numbers(args[0]), numbers(args[1])
        if a.dim() == 3:
            out = torch.einsum("mgk,gnk->mgn", a, b)
        else:
            out = a @ b.T
        return [round_bf16(out) if op.result.tensor.elem == "bf16" else out]

    def factors(self, op: Op) -> str:
        return "m g K, g n K -> m g n" if op.operands[0].tensor.rank == 3 else "m K, n K -> m n"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        shape, out = op.operands[0].tensor.shape, op.result.tensor.shape
        flops = product_cost(shape[0], out[-1], shape[-1])
        return flops * (shape[1] if len(shape) == 3 else 1), traffic(op)

    def order(self, op: Op) -> Order | None:
        return Order(op.operands[0].tensor.shape[-1], "contract")
