"""`map`: a scalar expression over broadcast operands; expand, transpose and iota are maps too."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import bounds_attr, dims_attr, elements, known_attrs, letters, need_dim, traffic, tuple_attr
from ..scalar import FLOATS, Expr, walk
from ..types import TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class Map(OpDef):
    """`expr` at every element of the result; operand i ranges over the result dims `dims[i]`.

    `shape`: dims of the result; `bounds`: a claim about an integer result, checked when the interpreter runs.
    """

    kind = "map"
    fusion = "row"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "expr", "dims", "shape", "bounds")
        expr = attrs.get("expr")
        if not isinstance(expr, Expr):
            raise IRError(f"attribute 'expr' must be a scalar expression, it is {expr!r}")
        shape = dims_attr(attrs, "shape")
        dims = operand_dims(attrs)
        if len(dims) != len(operands):
            raise IRError(f"attribute 'dims' has {len(dims)} entries for {len(operands)} operands")
        for number, (value, over) in enumerate(zip(operands, dims, strict=True)):
            check_operand(number, value, over, len(shape))
            for have, d in zip(value.tensor.shape, over, strict=True):
                need_dim(have, shape[d], f"operand {number} (%{value.name}) along dim {d} of the result")
        for node in walk(expr):
            check_leaf(node, operands, len(shape))
        bounds = bounds_attr(attrs)
        if bounds is not None and expr.dtype in FLOATS:
            raise IRError(f"bounds belong to integers, the result is {expr.dtype}")
        return [TensorType(expr.dtype, shape, bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        return [ev.map(op, args)]

    def factors(self, op: Op) -> str:
        names = letters(op.result.tensor.rank)
        left = [" ".join(names[d] for d in over) or "." for over in operand_dims(op.attrs)]
        return f"{', '.join(left)} -> {' '.join(names) or '.'}"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        expr = op.attrs["expr"]
        assert isinstance(expr, Expr)
        work = sum(1 for n in walk(expr) if n.args and n.op not in ("cast", "bitcast"))
        return work * elements(op.result.tensor.shape), traffic(op)


def operand_dims(attrs: Mapping[str, Attr]) -> tuple[tuple[int, ...], ...]:
    """The attribute `dims`: for every operand, the result dims that its own dims range over."""
    out = []
    for entry in tuple_attr(attrs, "dims"):
        if not isinstance(entry, tuple) or not all(isinstance(d, int) for d in entry):
            raise IRError(f"an entry of 'dims' must be a list of dims, it is {entry!r}")
        out.append(tuple(d for d in entry if isinstance(d, int)))
    return tuple(out)


def check_operand(number: int, value: Value, over: tuple[int, ...], rank: int) -> None:
    """Raises IRError unless an operand's entry of `dims` names one distinct result dim per dim."""
    if value.tensor.codec is not None:
        raise IRError(f"operand {number} (%{value.name}) is {value.tensor}: dequantize it first")
    if len(over) != value.tensor.rank or len(set(over)) != len(over) or not all(0 <= d < rank for d in over):
        raise IRError(f"dims {over} do not name a dim of the result (it has {rank}) for each dim of operand {number} "
                      f"(%{value.name}: {value.tensor})")


def check_leaf(node: Expr, operands: Sequence[Value], rank: int) -> None:
    """Raises IRError for a leaf that the map cannot supply."""
    if node.op in ("var", "load"):
        raise IRError(f"'{node.attr}' is a name of tile IR: a map reads operands and coordinates only")
    if node.op == "arg":
        number = node.attr
        if not isinstance(number, int) or not 0 <= number < len(operands):
            raise IRError(f"the expression reads operand ${number}, there are {len(operands)}")
        if operands[number].tensor.elem != node.dtype:
            raise IRError(f"the expression reads ${number} as {node.dtype}, %{operands[number].name} is "
                          f"{operands[number].tensor.elem}")
    if node.op == "index" and not (isinstance(node.attr, int) and 0 <= node.attr < rank):
        raise IRError(f"the expression reads coordinate @{node.attr}, the result has {rank} dims")
