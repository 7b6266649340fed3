"""Scalar expressions as C++.

A bf16 value is held as a `float` that is exactly a bf16 number; it becomes 16 bits only in memory. Integer division and
remainder are floored, as in the expression language; where both sides are known not to be negative the plain C++
operators are used. `min` and `max` are those of `ir/functions.py` (the second operand wins where one is NaN).
"""
from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Set

from dinfc.ir.scalar import CODEC, COMPARE, DTYPE_BYTES, FLOATS, TRANSCENDENTAL, Expr

CPP_TYPES = {"f32": "float", "bf16": "float", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u32": "uint32_t",
             "bool": "bool"}
# Types of elements in memory.
STORED_TYPES = CPP_TYPES | {"bf16": "uint16_t", "bool": "uint8_t"}

# Words that cannot be names in generated code: C++ keywords and what the kernel frame defines.
_TAKEN = frozenset({
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const",
    "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new",
    "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register", "return", "short",
    "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typeid",
    "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor", "ctx", "args", "tid",
    "nthreads", "instance", "total", "begin", "end", "dinfc", "fp_mode", "kernel",
    "statement",
})

_BINARY = {"add": "+", "sub": "-", "mul": "*", "xor": "^", "and": "&", "or": "|", "shl": "<<", "shr": ">>",
           "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "land": "&&", "lor": "||"}


class EmitError(Exception):
    """A tile program that this emitter cannot print; the message names the statement or expression."""


def identifier(name: str) -> str:
    """A name of the IR as a C++ identifier. Names that end in one underscore are left to the emitter itself."""
    word = re.sub(r"\W", "_", name)
    return word + "_" if word in _TAKEN or word.startswith(("dinfc_", "__")) or word.endswith("_") else word


def round_to_f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:  # struct refuses what rounds to infinity
        return math.copysign(math.inf, value)


def round_to_bf16(value: float) -> float:
    """Through f32, then nearest even, as a cast does at run time."""
    x = round_to_f32(value)
    if not math.isfinite(x):
        return x
    word = struct.unpack("<I", struct.pack("<f", x))[0]
    word = (word + 0x7FFF + ((word >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", word))[0])


def float_literal(value: float) -> str:
    """The shortest decimal that reads back as the same f32."""
    x = round_to_f32(value)
    if math.isnan(x):
        return "__builtin_nanf(\"\")"
    if math.isinf(x):
        return "__builtin_inff()" if x > 0 else "(-__builtin_inff())"
    text = next(t for t in (f"{x:.{digits}g}" for digits in range(1, 10)) if round_to_f32(float(t)) == x)
    if not any(c in text for c in ".e"):
        text += ".0"
    return f"({text}f)" if text.startswith("-") else f"{text}f"


def literal(node: Expr) -> str:
    value = node.attr
    assert isinstance(value, int | float)
    if node.dtype in FLOATS:
        return float_literal(round_to_bf16(value) if node.dtype == "bf16" else value)
    number = int(value)
    if node.dtype == "bool":
        return "true" if number else "false"
    if node.dtype == "u32":
        return f"0x{number:x}u" if number > 0xFFFF else f"{number}u"
    if node.dtype in ("i64", "u8"):
        return f"({CPP_TYPES[node.dtype]}){number}" if number >= 0 else f"({CPP_TYPES[node.dtype]})({number})"
    if number == -(2**31):
        return "(-2147483647 - 1)"
    return str(number) if number >= 0 else f"({number})"


class ExprPrinter:
    """Prints expressions. `load(node)` gives the text of a buffer element; `nonnegative` holds the names of variables
    known to be >= 0 (loop variables, program scalars)."""

    def __init__(self, load: Callable[[Expr], str], nonnegative: Set[str] = frozenset()) -> None:
        self.load = load
        self.nonnegative = nonnegative

    def text(self, node: Expr) -> str:
        """The expression, parenthesised where it needs to be inside another one."""
        op, dtype = node.op, node.dtype
        if op == "const":
            return literal(node)
        if op == "var":
            return identifier(str(node.attr))
        if op == "load":
            return self.load(node)
        if op in ("arg", "index"):
            raise EmitError(f"{op} {node.attr} of a map inside a tile program")
        args = [self.text(a) for a in node.args]
        if op == "cast":
            return self.cast(args[0], node.args[0].dtype, dtype)
        if op == "bitcast":
            return self.bitcast(args[0], node.args[0].dtype, dtype)
        if op == "select":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if op in TRANSCENDENTAL or op in CODEC:
            return f"dinfc_{op}({', '.join(args)})"
        if op in ("idiv", "mod"):
            return self.divide(node, args)
        if op == "lnot":
            return f"(!{args[0]})"
        if op in _BINARY:
            return self.narrow(f"({args[0]} {_BINARY[op]} {args[1]})", op, dtype)
        return self.arithmetic(op, dtype, args)

    def outer(self, node: Expr) -> str:
        """The same without a needless pair of parentheses around the whole."""
        text = self.text(node)
        if text.startswith("(") and text.endswith(")") and _closes_at_end(text):
            inner = text[1:-1]
            return text if re.fullmatch(r"\w+", inner) else inner
        return text

    def narrow(self, text: str, op: str, dtype: str) -> str:
        """C++ computes small types in int; a bf16 result is rounded."""
        if op in COMPARE or dtype in ("f32", "i32", "i64", "u32"):
            return text
        if dtype == "bf16":
            return f"dinfc_round_bf16{text}"
        return text if op in ("land", "lor") else f"({CPP_TYPES[dtype]}){text}"

    def arithmetic(self, op: str, dtype: str, args: list[str]) -> str:
        joined = ", ".join(args)
        if op in ("min", "max"):
            return f"dinfc_{op}({joined})"
        if op == "neg":
            return f"({CPP_TYPES[dtype]})(-{args[0]})" if dtype == "u8" else f"(-{args[0]})"
        if dtype in FLOATS:
            text = {"div": " / ".join(args), "fma": f"__builtin_fmaf({joined})", "abs": f"__builtin_fabsf({joined})",
                    "sqrt": f"__builtin_sqrtf({joined})", "floor": f"__builtin_floorf({joined})"}[op]
            exact = op in ("abs", "floor")
            if dtype == "bf16" and not exact:
                return f"dinfc_round_bf16({text})"
            return f"({text})" if op == "div" else text
        if op == "abs":
            return f"dinfc_abs({joined})"
        if op == "floor":
            return args[0]
        raise EmitError(f"{op} of {dtype}: integers are divided by idiv, and there is no integer {op}")

    def divide(self, node: Expr, args: list[str]) -> str:
        plain = node.dtype in ("u8", "u32") or all(self.is_nonnegative(a) for a in node.args)
        if plain:
            sign = "/" if node.op == "idiv" else "%"
            return self.narrow(f"({args[0]} {sign} {args[1]})", node.op, node.dtype)
        return f"dinfc_{node.op}({args[0]}, {args[1]})"

    def is_nonnegative(self, node: Expr) -> bool:
        """A cheap proof that an integer expression is >= 0."""
        if node.op == "const":
            return isinstance(node.attr, int | float) and node.attr >= 0
        if node.dtype in ("u8", "u32", "bool"):
            return True
        if node.op == "var":
            return str(node.attr) in self.nonnegative
        if node.op in ("add", "mul", "idiv", "min", "shr"):
            return all(self.is_nonnegative(a) for a in node.args)
        if node.op == "mod":
            return self.is_nonnegative(node.args[1])
        if node.op in ("and", "max"):
            return any(self.is_nonnegative(a) for a in node.args)
        if node.op == "cast":
            return node.args[0].dtype not in FLOATS and self.is_nonnegative(node.args[0])
        return False

    def cast(self, text: str, source: str, dtype: str) -> str:
        if dtype == "bf16":
            if source == "bf16":
                return text
            return f"dinfc_round_bf16({text})" if source == "f32" else f"dinfc_round_bf16((float){text})"
        if dtype == "f32" and source in FLOATS:
            return text
        if dtype == "bool":
            return f"({text} != 0)"
        return f"({CPP_TYPES[dtype]}){text}"

    def bitcast(self, text: str, source: str, dtype: str) -> str:
        if source in FLOATS or dtype in FLOATS:
            if DTYPE_BYTES[dtype] != 4:
                raise EmitError(f"bitcast from {source} to {dtype}")
            return f"__builtin_bit_cast({CPP_TYPES[dtype]}, {_unwrap(text)})"
        return f"({CPP_TYPES[dtype]}){text}"


def _unwrap(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") and _closes_at_end(text) else text


def _closes_at_end(text: str) -> bool:
    """Does the bracket that opens the text close at its very end?"""
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at == len(text) - 1
    return False
