"""Text of scalar expressions, for tensor IR and tile IR alike: `add($0, mul(f32(x[i, 2]), 1.5))`.

| text | node |
|---|---|
| `$0`, `@1` | operand 0 of the enclosing map, coordinate 1 of its output element |
| `name`, `buf[i, j]` | a variable, an element of a buffer |
| `3`, `-3`, `3:i64`, `7:u8` | integer constants (i32 when no dtype is given) |
| `1.5`, `-0.0`, `1e-20`, `inf`, `-inf`, `nan`, `1.5:bf16` | float constants (f32 when no dtype is given) |
| `true`, `false` | bool constants |
| `bf16(x)`, `as_i32(x)` | cast, bitcast |
| `op(x, ...)` | every other operation, by its name |

The text carries no dtypes of names: the reader supplies them in a `ScalarEnv`. Nothing is folded while parsing, so
that print -> parse gives the same tree.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .scalar import ARITY, DTYPE_BYTES, DTYPES, FLOATS, Expr, const, result_dtype

RESERVED = frozenset({"true", "false", "inf", "nan"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NUMBER = re.compile(r"-?(?:inf\b|nan\b|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)")
_SPACE = re.compile(r"\s*")
_DTYPE_SUFFIX = re.compile(r":\s*(" + "|".join(DTYPES) + r")\b")


class ScalarSyntaxError(ValueError):
    """`position` is the offset in the text where the mistake is."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.position = position

    def __str__(self) -> str:
        return f"{self.message}\n  {self.text}\n  {' ' * self.position}^"


@dataclass(frozen=True)
class ScalarEnv:
    """dtypes of what an expression may name: operands by number, variables and buffers by name."""

    args: Mapping[int, str] | tuple[str, ...] | list[str] = ()
    vars: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, str] = field(default_factory=dict)

    def arg_dtype(self, number: int) -> str | None:
        if isinstance(self.args, Mapping):
            return self.args.get(number)
        return self.args[number] if 0 <= number < len(self.args) else None


def print_const(node: Expr) -> str:
    value = node.attr
    if node.dtype == "bool":
        return "true" if value else "false"
    if node.dtype in FLOATS:
        assert isinstance(value, int | float)
        text = "nan" if math.isnan(value) else repr(float(value))
        return text if node.dtype == "f32" else f"{text}:{node.dtype}"
    return str(value) if node.dtype == "i32" else f"{value}:{node.dtype}"


def print_expr(node: Expr) -> str:
    """The text of an expression; `parse_expr` gives the same tree back."""
    if node.op == "const":
        return print_const(node)
    if node.op == "arg":
        return f"${node.attr}"
    if node.op == "index":
        return f"@{node.attr}"
    if node.op == "var":
        return str(node.attr)
    inner = ", ".join(print_expr(a) for a in node.args)
    if node.op == "load":
        return f"{node.attr}[{inner}]"
    if node.op == "cast":
        return f"{node.dtype}({inner})"
    if node.op == "bitcast":
        return f"as_{node.dtype}({inner})"
    return f"{node.op}({inner})"


def parse_expr(text: str, env: ScalarEnv) -> Expr:
    """The expression that `text` is, the whole of it. Raises ScalarSyntaxError."""
    node, end = parse_prefix(text, 0, env)
    end = skip_space(text, end)
    if end != len(text):
        raise ScalarSyntaxError("unexpected text after the expression", text, end)
    return node


def parse_prefix(text: str, start: int, env: ScalarEnv) -> tuple[Expr, int]:
    """The expression that begins at `start`, and the offset just after it (readers of larger languages use this)."""
    at = skip_space(text, start)
    if at >= len(text):
        raise ScalarSyntaxError("expected an expression", text, at)
    if text[at] in "$@":
        return _parse_leaf(text, at, env)
    number = _NUMBER.match(text, at)
    if number:
        return _parse_number(text, at, number.group(), number.end())
    name = _NAME.match(text, at)
    if not name:
        raise ScalarSyntaxError("expected an expression", text, at)
    word, end = name.group(), name.end()
    after = skip_space(text, end)
    if after < len(text) and text[after] == "(":
        args, end = _parse_list(text, after, ")", env)
        return _make_call(text, at, word, tuple(args)), end
    if after < len(text) and text[after] == "[":
        dtype = env.buffers.get(word)
        if dtype is None:
            raise ScalarSyntaxError(f"unknown buffer {word!r}", text, at)
        args, end = _parse_list(text, after, "]", env)
        return Expr("load", tuple(args), dtype, word), end
    if word in ("true", "false"):
        return const(word == "true"), end
    dtype = env.vars.get(word)
    if dtype is None:
        raise ScalarSyntaxError(f"unknown name {word!r}", text, at)
    return Expr("var", (), dtype, word), end


def skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _parse_leaf(text: str, at: int, env: ScalarEnv) -> tuple[Expr, int]:
    digits = re.compile(r"\d+").match(text, at + 1)
    if not digits:
        raise ScalarSyntaxError(f"expected a number after {text[at]!r}", text, at + 1)
    number = int(digits.group())
    if text[at] == "@":
        return Expr("index", (), "i32", number), digits.end()
    dtype = env.arg_dtype(number)
    if dtype is None:
        raise ScalarSyntaxError(f"there is no operand ${number}", text, at)
    return Expr("arg", (), dtype, number), digits.end()


def _parse_number(text: str, at: int, digits: str, end: int) -> tuple[Expr, int]:
    is_float = any(c in digits for c in ".enaEN")
    dtype = "f32" if is_float else "i32"
    suffix = _DTYPE_SUFFIX.match(text, end)
    if suffix:
        dtype, end = suffix.group(1), suffix.end()
    if is_float and dtype not in FLOATS:
        raise ScalarSyntaxError(f"{digits} is not a constant of {dtype}", text, at)
    if dtype == "bool":
        raise ScalarSyntaxError("a bool constant is written true or false", text, at)
    if digits.endswith("nan"):
        return const(math.nan, dtype), end
    return const(float(digits) if dtype in FLOATS else int(digits), dtype), end


def _parse_list(text: str, at: int, close: str, env: ScalarEnv) -> tuple[list[Expr], int]:
    """Comma separated expressions from the opening bracket at `at` to `close`."""
    args: list[Expr] = []
    end = skip_space(text, at + 1)
    if text.startswith(close, end):
        return args, end + 1
    while True:
        node, end = parse_prefix(text, end, env)
        args.append(node)
        end = skip_space(text, end)
        if text.startswith(close, end):
            return args, end + 1
        if not text.startswith(",", end):
            raise ScalarSyntaxError(f"expected ',' or '{close}'", text, end)
        end += 1


def _make_call(text: str, at: int, name: str, args: tuple[Expr, ...]) -> Expr:
    dtype = name.removeprefix("as_")
    if dtype in DTYPES:
        if len(args) != 1:
            raise ScalarSyntaxError(f"{name} takes 1 operand, got {len(args)}", text, at)
        op = "cast" if name == dtype else "bitcast"
        if op == "bitcast" and DTYPE_BYTES[args[0].dtype] != DTYPE_BYTES[dtype]:
            raise ScalarSyntaxError(f"bitcast from {args[0].dtype} to {dtype}: widths differ", text, at)
        return Expr(op, args, dtype)
    if name not in ARITY or name in ("cast", "bitcast"):
        raise ScalarSyntaxError(f"unknown operation {name!r}", text, at)
    if len(args) != ARITY[name]:
        raise ScalarSyntaxError(f"{name} takes {ARITY[name]} operands, got {len(args)}", text, at)
    try:
        return Expr(name, args, result_dtype(name, tuple(a.dtype for a in args)))
    except ValueError as error:
        raise ScalarSyntaxError(str(error), text, at) from None
