"""Scalar expressions as Python functions over torch tensors, mode R64 (spec 0.3).

f32 and bf16 are fp64 tensors and integers int64 tensors, wrapped to their dtype where an operation may leave it; shifts
to the right are arithmetic on i32 and i64, logical on u8 and u32; division and remainder of integers round down. Every
branch of a `select` is computed and `torch.where` picks, so a NaN of the branch not taken goes nowhere.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from . import codecs
from .codecs import F64, round_bf16, round_f32
from .scalar import COMPARE, FLOATS, Expr

Body = Callable[..., Tensor]
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">=",
            "xor": "^", "and": "&", "or": "|", "shl": "<<", "shr": ">>", "land": "&", "lor": "|"}
_CALLS = {"min": "torch.minimum", "max": "torch.maximum", "abs": "torch.abs", "sqrt": "torch.sqrt",
          "floor": "torch.floor", "exp": "torch.exp", "log": "torch.log", "log1p": "torch.log1p",
          "rsqrt": "torch.rsqrt", "sigmoid": "torch.sigmoid", "select": "torch.where", "lnot": "torch.logical_not",
          "round_f32": "round_f32", "pow2_ceil": "codecs.pow2_ceil"}
_WRAPS = ("add", "sub", "mul", "neg", "abs", "shl", "idiv")  # integer operations whose result may leave the dtype


def wrap(x: Tensor, dtype: str) -> Tensor:
    """int64 reduced to the range of an integer dtype (two's complement)."""
    if dtype == "i32":
        return x.to(torch.int32).to(torch.int64)
    if dtype == "u32":
        return x & 0xFFFFFFFF
    return x & 0xFF if dtype == "u8" else x


def divisor(x: Tensor) -> Tensor:
    """x with 1 for 0: a division in a branch that is not taken must not stop the run."""
    return torch.where(x == 0, 1, x)


def code(x: Tensor) -> Tensor:
    return x.to(torch.int64)


def bits_to(x: Tensor, source: str, target: str) -> Tensor:
    """Reinterprets 32-bit values."""
    if source == "f32":
        return wrap(x.to(torch.float32).view(torch.int32).to(torch.int64), target)
    if target == "f32":
        return x.to(torch.int32).view(torch.float32).to(F64)
    return wrap(x, target)


_NAMESPACE: dict[str, object] = {
    "torch": torch, "codecs": codecs, "round_bf16": round_bf16, "round_f32": round_f32, "wrap": wrap,
    "divisor": divisor, "code": code, "bits_to": bits_to, "F64": F64, "I64": torch.int64,
}


@cache
def _compiled(source: str, constants: tuple[tuple[str, str], ...]) -> Body:
    """The function of a source text; equal maps of different layers share it. `constants`: (dtype, value as text)."""
    scope = dict(_NAMESPACE)
    for number, (dtype, text) in enumerate(constants):
        scope[f"k{number}"] = _constant(dtype, text)
    exec(compile(source, "<map>", "exec"), scope)
    body = scope["body"]
    assert callable(body)
    return body


def _constant(dtype: str, text: str) -> Tensor:
    if dtype in FLOATS:
        value = torch.tensor(float(text), dtype=F64)
        return round_bf16(value) if dtype == "bf16" else value
    return torch.tensor(bool(int(text))) if dtype == "bool" else torch.tensor(int(text), dtype=torch.int64)


class _Writer:
    """Writes the statements of one expression, each distinct subtree once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.constants: list[tuple[str, str]] = []

    def name(self, node: Expr) -> str:
        if node.op == "arg":
            return f"x{node.attr}"
        if node.op == "index":
            return f"i{node.attr}"
        if node.op == "const":
            key = (node.dtype, repr(node.attr))
            if key not in self.constants:
                self.constants.append(key)
            return f"k{self.constants.index(key)}"
        args = [self.name(a) for a in node.args]
        text = statement(node, args)
        if text.isidentifier():
            return text
        if text not in self.names:
            self.names[text] = f"t{len(self.names)}"
            self.lines.append(f"    {self.names[text]} = {text}")
        return self.names[text]


def statement(node: Expr, args: list[str]) -> str:
    """The Python expression of one node over the names of its operands."""
    op, dtype = node.op, node.dtype
    if op == "cast":
        return cast_text(args[0], node.args[0].dtype, dtype)
    if op == "bitcast":
        return f"bits_to({args[0]}, {node.args[0].dtype!r}, {dtype!r})"
    if op.endswith("_decode"):
        return f"codecs.{op}({args[0]})"
    if op.endswith("_encode"):
        return f"code(codecs.{op}({args[0]}))"
    if op == "fma":
        text = f"{args[0]} * {args[1]} + {args[2]}"
    elif op == "neg":
        text = f"-{args[0]}"
    elif op == "div" and dtype in FLOATS:
        text = f"{args[0]} / {args[1]}"
    elif op in ("idiv", "div", "mod"):
        by = node.args[1]
        safe = args[1] if by.op == "const" and by.attr != 0 else f"divisor({args[1]})"
        text = f"torch.remainder({args[0]}, {safe})" if op == "mod" \
            else f"torch.div({args[0]}, {safe}, rounding_mode='floor')"
    elif op in _SYMBOLS:
        text = f"{args[0]} {_SYMBOLS[op]} {args[1]}"
    else:
        text = f"{_CALLS[op]}({', '.join(args)})"
    if op in COMPARE or dtype == "bool":
        return text
    if dtype == "bf16" and op not in ("min", "max", "neg", "abs", "select", "floor"):
        return f"round_bf16({text})"
    return f"wrap({text}, {dtype!r})" if op in _WRAPS and dtype in ("i32", "u32", "u8") else text


def cast_text(x: str, source: str, target: str) -> str:
    """The Python expression of a cast."""
    if source == target or (source, target) == ("bf16", "f32"):
        return x
    if target in FLOATS:
        wide = x if source in FLOATS else f"{x}.to(F64)"
        return f"round_bf16({wide})" if target == "bf16" else wide
    if target == "bool":
        return f"{x} != 0"
    whole = f"{x}.to(I64)" if source in (*FLOATS, "bool") else x
    fits = target == "i64" or source == "bool" or (source == "u8" and target in ("i32", "u32"))
    return whole if fits else f"wrap({whole}, {target!r})"


def compile_expr(expr: Expr, args: int) -> tuple[Body, tuple[int, ...]]:
    """(body, coordinates it reads): `body(x0, .., i_a, i_b, ..)` over operands, then the coordinate tensors that the
    second result names, in that order."""
    writer = _Writer()
    result = writer.name(expr)
    text = " ".join([*writer.lines, result])
    coords = tuple(d for d in sorted(_coordinates(expr)) if f"i{d}" in text)
    params = [f"x{n}" for n in range(args)] + [f"i{d}" for d in coords]
    source = "\n".join([f"def body({', '.join(params)}):", *writer.lines, f"    return {result}", ""])
    return _compiled(source, tuple(writer.constants)), coords


def _coordinates(node: Expr) -> set[int]:
    if node.op == "index":
        assert isinstance(node.attr, int)
        return {node.attr}
    return set().union(*(_coordinates(a) for a in node.args))
