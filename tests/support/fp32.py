"""Scalar expressions in real fp32 and wrapping integers, on numpy arrays: what kernels compute (ir/functions.py)."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from dinfc.ir.functions import function_set
from dinfc.ir.scalar import Expr

Array = NDArray[np.generic]
DTYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u32": np.uint32, "bool": np.bool_}
BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift, "lt": operator.lt,
    "le": operator.le, "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge,
    "land": operator.and_, "lor": operator.or_,
    "min": lambda a, b: np.where(a < b, a, b), "max": lambda a, b: np.where(a > b, a, b),
}
UNARY: Mapping[str, Callable[[Array], Array]] = {
    "neg": operator.neg, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "lnot": np.logical_not}


def evaluate(node: Expr, scope: Mapping[str, Array]) -> Array:
    """The value of an expression whose variables are arrays of their dtypes."""
    if node.op == "const":
        return np.asarray(node.attr, dtype=DTYPES[node.dtype])
    if node.op == "var":
        return scope[str(node.attr)]
    args = [evaluate(a, scope) for a in node.args]
    if node.op in function_set():
        return call(node.op, *args)
    if node.op == "cast":
        return args[0].astype(DTYPES[node.dtype])
    if node.op == "bitcast":
        return args[0].view(DTYPES[node.dtype])
    if node.op == "select":
        return np.where(args[0], args[1], args[2])
    if node.op == "fma":  # the product is exact in fp64; the sum is rounded twice, once in 2^29 wrongly
        a, b, c = (x.astype(np.float64) for x in args)
        return (a * b + c).astype(np.float32)
    out = UNARY[node.op](args[0]) if node.op in UNARY else BINARY[node.op](args[0], args[1])
    return np.asarray(out, dtype=DTYPES[node.dtype])


def call(name: str, *args: Array) -> Array:
    """A function of the set on arrays of its parameters' dtypes."""
    function = function_set()[name]
    scope: dict[str, Array] = {p: a for (p, _), a in zip(function.params, args, strict=True)}
    with np.errstate(all="ignore"):
        for let, value in function.lets:
            scope[let] = evaluate(value, scope)
        return np.broadcast_to(evaluate(function.body, scope), args[0].shape)
