"""Which rows of an operand a row of the result reads: the fact that row fusion rests on.

An op's *row* is the leading dim of its first result (of the stored value for `state_write`).
"""
from __future__ import annotations

from dinfc.ir.graph import IRError, Op, definition
from dinfc.ir.types import Dim, TensorType, dim_text

ROW_CLASSES = ("row", "move")
ROW_KINDS = ("slice", "concat", "repeat")  # structure ops that copy or loop inside a row
INTEGERS = ("i32", "i64", "u32", "u8", "bool")
STRUCTURE = ("constant", "view")  # cost nothing: operands of kernels, or aliases


def fusion_class(op: Op) -> str:
    """The anchor class of an op: `row` for everything that row fusion may take, else the class of its schedule."""
    if op.kind in ("call", "relayout"):
        return {"call": "call", "relayout": "move"}[op.kind]
    found = definition(op.kind).fusion
    return "row" if found in ROW_CLASSES or op.kind in ROW_KINDS else found


def row_dim(op: Op) -> Dim:
    """The leading dim of the op's rows. Raises IRError for an op whose result has no dims."""
    value = op.operands[1] if op.kind == "state_write" else op.result
    shape = value.tensor.shape
    if not shape:
        raise IRError(f"%{value.name} has no dims, so no rows", op)
    return shape[0]


def other_rows_read(op: Op, operand: int) -> str:
    """Why row r of the op may read another row of that operand than r; "" where it never does."""
    type_ = op.operands[operand].type
    if not isinstance(type_, TensorType) or not type_.shape:
        return "a state has no rows of the step"
    if dim_text(type_.shape[0]) != dim_text(row_dim(op)):
        return f"its rows are {dim_text(row_dim(op))}, those of %{op.operands[operand].name} {dim_text(type_.shape[0])}"
    return _other_rows(op, operand)


def _other_rows(op: Op, operand: int) -> str:
    name = op.operands[operand].name
    if op.kind == "map":
        dims = op.attrs["dims"]
        assert isinstance(dims, tuple)
        mapped = dims[operand]
        assert isinstance(mapped, tuple)
        return "" if mapped[:1] == (0,) else f"rows of %{name} lie along another dim of the map"
    if op.kind in ("reduce", "slice", "concat"):
        axis = op.attrs.get("axis", 0)
        assert isinstance(axis, int)
        return "" if axis % op.operands[0].tensor.rank else f"{op.kind} runs over the rows"
    if op.kind == "gather_rows":
        return f"gather_rows may read any row of %{name}" if operand > 0 else ""
    if op.kind == "take":
        return f"take may read any row of %{name}" if operand == 0 else ""
    if op.kind == "repeat":
        for inner in (i for region in op.regions for i in region.ops):
            for number, value in enumerate(inner.operands):
                reason = "" if value.tensor.shape[:1] != op.result.tensor.shape[:1] else other_rows_read(inner, number)
                if reason:
                    return f"in the body of repeat, {reason}"
        return ""
    if op.kind in ("view", "quantize", "dequantize", "state_write"):
        return ""
    return _by_factors(op, operand)


def _by_factors(op: Op, operand: int) -> str:
    """Ops of other packages: their sharding factors say it, e.g. `t i, t i -> t i` (capitals must not be split)."""
    left, _, right = definition(op.kind).factors(op).partition("->")
    inputs, results = left.split(","), right.split(",")
    mine, rows = inputs[operand].split()[:1], results[0].split()[:1]
    if mine == rows and rows and rows[0].islower():
        return ""
    return f"the factors of {op.kind} do not tie rows of %{op.operands[operand].name} to rows of the result"
