"""Scalar expressions as TileLang text, and the function set as functions of a device's own language.

Functions of the set `dinfc-f32` and fp32 operations whose rounding must be spelled out (fma, min, max, sqrt) are calls
of device functions in the kernel's prelude (`Prelude`).
"""
from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dinfc.codegen.schedules.device_walk import DeviceError
from dinfc.ir.functions import Function, function_set
from dinfc.ir.scalar import CODEC, FLOATS, TRANSCENDENTAL, Expr, walk

from .cpu_expr import CPP_TYPES, ExprPrinter, identifier, round_to_f32

DTYPES = {"f32": "float32", "bf16": "bfloat16", "i32": "int32", "i64": "int64", "u8": "uint8", "u32": "uint32",
          "bool": "bool"}
_TAKEN = frozenset({"T", "S", "tx", "tilelang", "PRELUDE", "CORES", "core"}) | frozenset(keyword.kwlist)
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "idiv": "//", "mod": "%", "xor": "^", "and": "&", "or": "|",
           "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}


def python_name(name: str) -> str:
    """A name of the IR as a Python identifier that hides nothing of the generated text."""
    word = re.sub(r"\W", "_", name)
    return word + "_" if word in _TAKEN or word.startswith("dinfc_") else word


class TileLangPrinter:
    """Prints expressions. `load(node)` gives the text of a buffer element, `scalar(name)` that of a scalar."""

    def __init__(self, load: Callable[[Expr], str], scalar: Callable[[str], str] = python_name) -> None:
        self.load, self.scalar = load, scalar

    def text(self, node: Expr) -> str:
        op = node.op
        if op == "const":
            return constant(node)
        if op == "var":
            return self.scalar(str(node.attr))
        if op == "load":
            return self.load(node)
        if op in ("arg", "index"):
            raise DeviceError(f"{op} {node.attr} of a map inside a tile program")
        args = [self.text(a) for a in node.args]
        if op == "cast":
            return f'T.cast({args[0]}, "{DTYPES[node.dtype]}")'
        if op == "bitcast":
            return f'T.reinterpret({args[0]}, "{DTYPES[node.dtype]}")'
        if op == "select":
            return f"T.if_then_else({', '.join(args)})"
        if op in ("land", "lor"):
            return f"T.{'And' if op == 'land' else 'Or'}({', '.join(args)})"
        if op == "lnot":
            return f"T.Not({args[0]})"
        if op in TRANSCENDENTAL or op in CODEC:
            return self.function(op, node, args)
        if op in _BINARY:
            return f"({args[0]} {_BINARY[op]} {args[1]})"
        return self.arithmetic(op, node, args)

    def function(self, op: str, node: Expr, args: list[str]) -> str:
        """A function of the set."""
        return self.call("dinfc_" + op, node.dtype, args)

    def arithmetic(self, op: str, node: Expr, args: list[str]) -> str:
        if node.dtype == "f32":
            if op == "neg":
                return f"(-{args[0]})"
            return self.call("dinfc_" + op, "f32", args)
        if node.dtype in FLOATS:
            raise DeviceError(f"{op} of {node.dtype}: bf16 arithmetic is written in f32")
        if op == "neg":
            return f"(0 - {args[0]})"
        if op == "floor":
            return args[0]
        return f"T.{op}({', '.join(args)})"

    def call(self, name: str, dtype: str, args: list[str]) -> str:
        return f'T.call_pure_extern("{DTYPES[dtype]}", "{name}", {", ".join(args)})'


def constant(node: Expr) -> str:
    value = node.attr
    assert isinstance(value, int | float)
    if node.dtype in FLOATS:
        x = round_to_f32(value)
        if x != x:
            text = 'T.reinterpret(T.uint32(0x7fc00000), "float32")'
        elif x in (float("inf"), float("-inf")):
            text = f'{"-" if x < 0 else ""}T.infinity("float32")'
        else:
            text = f"T.float32({x!r})"
        return f'T.cast({text}, "bfloat16")' if node.dtype == "bf16" else text
    number = int(value)
    if node.dtype == "i32":
        return str(number) if number >= 0 else f"({number})"
    if node.dtype == "bool":
        return "T.bool(True)" if number else "T.bool(False)"
    return f"T.{DTYPES[node.dtype]}({number})"


@dataclass(frozen=True)
class Prelude:
    """How a device's language writes functions. `head`: what stands before every one; `printer`: of their bodies;
    `helpers`: fp32 operations by name; `always`: lines before everything else; `native`: functions of the set that the
    device computes itself, so that they are no calls."""

    head: str
    printer: type[ExprPrinter]
    helpers: Mapping[str, str]
    always: tuple[str, ...]
    native: frozenset[str] = frozenset()

    def text(self, expressions: Iterable[Expr]) -> str:
        """Definitions of what these expressions call, each after those that it calls itself."""
        functions = function_set()
        wanted: set[str] = set()

        def visit(e: Expr) -> None:
            for n in walk(e):
                name = n.op
                called = (name in functions and name not in self.native) or (name in self.helpers and n.dtype == "f32")
                if called and name not in wanted:
                    wanted.add(name)
                    if name in functions:
                        for inner in (*(v for _, v in functions[name].lets), functions[name].body):
                            visit(inner)

        for e in expressions:
            visit(e)
        lines = [*self.always, *(f"{self.head} {text}" for name, text in self.helpers.items() if name in wanted)]
        lines += [self.function(f) for name, f in functions.items() if name in wanted]
        return "\n".join(lines)

    def function(self, function: Function) -> str:
        def no_load(node: Expr) -> str:
            raise DeviceError(f"a function of the function set reads buffer {node.attr}")

        printer = self.printer(no_load)
        params = ", ".join(f"{CPP_TYPES[dtype]} {identifier(name)}" for name, dtype in function.params)
        lines = [f"{self.head} {CPP_TYPES[function.dtype]} dinfc_{function.name}({params}) {{"]
        lines += [f"    const {CPP_TYPES[v.dtype]} {identifier(n)} = {printer.outer(v)};" for n, v in function.lets]
        return "\n".join([*lines, f"    return {printer.outer(function.body)};", "}"])


def minimum_maximum(head: str) -> tuple[str, str]:
    """The convention of ir/functions.py: with a NaN on either side the second operand wins."""
    return (f"template <class V> {head} V dinfc_min(V a, V b) {{ return a < b ? a : b; }}",
            f"template <class V> {head} V dinfc_max(V a, V b) {{ return a > b ? a : b; }}")
