"""The scalar expression language shared by tensor IR, tile IR, the interpreter and every emitter.

An expression is an immutable tree of `Expr` nodes, each with a dtype. In tensor IR an expression is the body of a
`map` (leaves: `arg` = operand element, `index` = coordinate of the output element); in tile IR it is the right side of
a store (leaves: `var` = loop variable or scalar, `load` = buffer element).

dtypes: f32 bf16 i32 i64 u8 u32 bool. In reference mode R64 (spec 0.3) f32 is held in fp64, so constants keep their
decimal value here and are rounded only by an emitter.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DTYPES = ("f32", "bf16", "i32", "i64", "u8", "u32", "bool")
DTYPE_BYTES = {"f32": 4, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "u32": 4, "bool": 1}
FLOATS = ("f32", "bf16")

# op -> arity. The result dtype is the first operand's unless `result_dtype` says otherwise.
ARITH = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "min": 2, "max": 2, "neg": 1, "abs": 1, "sqrt": 1,
         "floor": 1}
# Functions whose realisation is a *function set* (ir/functions.py for the CPU, fp64 library functions in R64).
TRANSCENDENTAL = {"exp": 1, "log": 1, "log1p": 1, "rsqrt": 1, "sigmoid": 1}
INTEGER = {"idiv": 2, "mod": 2, "xor": 2, "and": 2, "or": 2, "shl": 2, "shr": 2}
COMPARE = {"lt": 2, "le": 2, "eq": 2, "ne": 2, "gt": 2, "ge": 2}
LOGIC = {"land": 2, "lor": 2, "lnot": 1}
# Codec arithmetic (spec 0.4): decoders give f32, encoders give the code byte, pow2_ceil is P2.
CODEC = {
    "e4m3_decode": 1, "e4m3_encode": 1, "e2m1_decode": 1, "e2m1_encode": 1, "e8m0_decode": 1, "e8m0_encode": 1,
    "pow2_ceil": 1, "round_f32": 1,
}
ARITY = {**ARITH, **TRANSCENDENTAL, **INTEGER, **COMPARE, **LOGIC, **CODEC, "select": 3, "cast": 1, "bitcast": 1}
LEAVES = ("const", "arg", "index", "var", "load")


@dataclass(frozen=True, slots=True)
class Expr:
    """One node. `attr` is the value of a const, the number of an arg or index, the name of a var or loaded buffer."""

    op: str
    args: tuple[Expr, ...] = ()
    dtype: str = "f32"
    attr: int | float | str | None = None

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("idiv", self, other)

    def __mod__(self, other: Operand) -> Expr:
        return binary("mod", self, other)

    def __xor__(self, other: Operand) -> Expr:
        return binary("xor", self, other)

    def __and__(self, other: Operand) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return binary("or", self, other)

    def __lshift__(self, other: Operand) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        return binary("shr", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)


Operand = Expr | int | float


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """A constant; ints are i32, floats f32 unless a dtype is given."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
    if dtype == "bool":
        return Expr("const", (), dtype, int(value))
    return Expr("const", (), dtype, float(value) if dtype in FLOATS else int(value))


def arg(number: int, dtype: str) -> Expr:
    """Operand `number` of the enclosing map, at the element that `dims` selects."""
    return Expr("arg", (), dtype, number)


def index(dim: int) -> Expr:
    """Coordinate `dim` of the output element of the enclosing map (i32)."""
    return Expr("index", (), "i32", dim)


def var(name: str, dtype: str = "i32") -> Expr:
    """A loop variable, let-bound scalar or program scalar of tile IR."""
    return Expr("var", (), dtype, name)


def load(buffer: str, indices: tuple[Expr, ...], dtype: str) -> Expr:
    """An element of a tile IR buffer."""
    return Expr("load", indices, dtype, buffer)


def lift(value: Operand, dtype: str) -> Expr:
    """Turns a Python number into a constant of `dtype`; an Expr is returned as it is."""
    return value if isinstance(value, Expr) else const(value, dtype)


def result_dtype(op: str, dtypes: tuple[str, ...]) -> str:
    """dtype of `op` applied to operands of `dtypes`. Raises ValueError on a mismatch."""
    if op in COMPARE or op in LOGIC:
        if op in COMPARE and dtypes[0] != dtypes[1]:
            raise ValueError(f"{op} compares {dtypes[0]} with {dtypes[1]}")
        return "bool"
    if op in ("e4m3_decode", "e2m1_decode", "e8m0_decode"):
        return "f32"
    if op in ("e4m3_encode", "e2m1_encode", "e8m0_encode"):
        return "u8"
    if op == "select":
        if dtypes[0] != "bool" or dtypes[1] != dtypes[2]:
            raise ValueError(f"select needs (bool, t, t), got {dtypes}")
        return dtypes[1]
    if op in ("shl", "shr"):
        return dtypes[0]
    if len(set(dtypes)) > 1:
        raise ValueError(f"{op} mixes {' and '.join(dtypes)}")
    if op in INTEGER and dtypes[0] in FLOATS:
        raise ValueError(f"{op} needs integers, got {dtypes[0]}")
    if op in TRANSCENDENTAL and dtypes[0] != "f32":
        raise ValueError(f"{op} needs f32, got {dtypes[0]}")
    return dtypes[0]


def apply(op: str, *operands: Expr) -> Expr:
    """Builds a node of `op`, checking arity and dtypes; folds integer constants."""
    if op not in ARITY:
        raise ValueError(f"unknown scalar op {op!r}")
    if len(operands) != ARITY[op]:
        raise ValueError(f"{op} takes {ARITY[op]} operands, got {len(operands)}")
    dtype = result_dtype(op, tuple(o.dtype for o in operands))
    return fold(Expr(op, operands, dtype))


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "idiv": operator.floordiv, "mod": operator.mod,
    "min": min, "max": max, "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ne": operator.ne,
    "gt": operator.gt, "ge": operator.ge,
}


def fold(node: Expr) -> Expr:
    """Folds integer arithmetic on constants and the identities x+0, x-0, x*1, x*0, x//1 (integers only: a float
    identity could change the sign of a zero)."""
    if len(node.args) != 2 or node.args[0].dtype in FLOATS:
        return node
    a, b = node.args
    if a.op == "const" and b.op == "const" and node.op in _FOLD:
        x, y = a.attr, b.attr
        assert isinstance(x, int) and isinstance(y, int)
        if node.op in ("idiv", "mod") and y == 0:
            return node
        return const(int(_FOLD[node.op](x, y)), node.dtype)
    if b.op == "const":
        if b.attr == 0 and node.op in ("add", "sub"):
            return a
        if b.attr == 1 and node.op in ("mul", "idiv"):
            return a
        if b.attr == 0 and node.op == "mul":
            return b
        if b.attr == 1 and node.op == "mod":
            return const(0, node.dtype)
    if a.op == "const":
        if a.attr == 0 and node.op == "add":
            return b
        if a.attr == 1 and node.op == "mul":
            return b
        if a.attr == 0 and node.op in ("mul", "idiv", "mod"):
            return a
    return node


def unary(op: str, x: Expr) -> Expr:
    return apply(op, x)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """A binary node; a Python number takes the other operand's dtype."""
    if not isinstance(a, Expr):
        if not isinstance(b, Expr):
            raise ValueError("one operand must be an expression")
        a = const(a, b.dtype)
    return apply(op, a, lift(b, a.dtype))


def select(cond: Expr, a: Operand, b: Operand) -> Expr:
    """cond ? a : b; the branch not taken is not evaluated (its loads may be out of range)."""
    if isinstance(a, Expr):
        return apply("select", cond, a, lift(b, a.dtype))
    if not isinstance(b, Expr):
        raise ValueError("one branch must be an expression")
    return apply("select", cond, lift(a, b.dtype), b)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    return apply("fma", a, b, c)


def cast(x: Expr, dtype: str) -> Expr:
    """Value conversion: f32 -> bf16 rounds to nearest even (in R64 through fp32), float -> int truncates."""
    return x if x.dtype == dtype else Expr("cast", (x,), dtype)


def bitcast(x: Expr, dtype: str) -> Expr:
    """Reinterprets the bits; both dtypes must have the same width."""
    if DTYPE_BYTES[x.dtype] != DTYPE_BYTES[dtype]:
        raise ValueError(f"bitcast from {x.dtype} to {dtype}: widths differ")
    return x if x.dtype == dtype else Expr("bitcast", (x,), dtype)


def f32(x: Expr) -> Expr:
    return cast(x, "f32")


def bf16(x: Expr) -> Expr:
    return cast(x, "bf16")


def land(*conditions: Expr) -> Expr:
    """Conjunction, evaluated left to right with short circuit."""
    out = conditions[0]
    for c in conditions[1:]:
        out = apply("land", out, c)
    return out


def compare(op: str, a: Operand, b: Operand) -> Expr:
    return binary(op, a, b)


def walk(node: Expr) -> Iterator[Expr]:
    """All nodes, children before parents (a shared subtree is visited once per use)."""
    for child in node.args:
        yield from walk(child)
    yield node


def substitute(node: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuilds the tree bottom-up; `leaf(n)` may replace any node (None keeps it)."""
    new = leaf(node)
    if new is not None:
        return new
    if not node.args:
        return node
    args = tuple(substitute(a, leaf) for a in node.args)
    return node if args == node.args else fold(Expr(node.op, args, node.dtype, node.attr))
