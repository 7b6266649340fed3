"""Printer of tensor IR; `ir/parse.py` reads its output back to an equal module.

    symbol T in [1, 4096] divisor 8
    constant @rope.window : f32[4112, 64]
    info block = 5

    func @layer(%x: bf16[T, 128], %w: bf16[128]) -> (mxfp8<32>[T, 128]) {
      %h = rms_norm(%x, %w) {eps = 1e-20}              : bf16[T, 128]
      %q = quantize(%h) {codec = "mxfp8<32>"}          : mxfp8<32>[T, 128]
      %c = repeat(%m) {count = 19}                     : f32[T, 4, 4] do @body(%m: f32[T, 4, 4]) {
        ...
        return %n
      }
      return %q
    }

One statement a line, types at the right. Attributes are sorted by name; texts are quoted, scalar expressions follow
`:=`, lists are in parentheses, a missing value is `none`. Where an op came from is printed on request as `loc "..."`.
"""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .graph import Attr, Function, Module, Op, Value
from .scalar import Expr
from .scalar_text import print_expr
from .types import Symbol

MAX_COLUMN = 96  # types stand in one column unless the statement is longer than this
MAX_HEADER = 120  # a function head that is longer has one parameter a line


@dataclass
class Listing:
    """Printed lines, and for each op and function the index of its (first) line."""

    lines: list[str] = field(default_factory=list)
    line_of: dict[Op | Function, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def print_module(module: Module, locations: bool = False) -> str:
    """The text of a whole module."""
    return list_module(module, locations).text


def print_function(function: Function, locations: bool = False) -> str:
    """The text of one function."""
    listing = Listing()
    _list_function(function, listing, "", locations)
    return listing.text


def list_module(module: Module, locations: bool = False) -> Listing:
    """The text of a module with the place of every op."""
    listing = Listing()
    listing.lines += [symbol_text(s) for s in module.symbols.values()]
    listing.lines += [f"constant @{c.name} : {c.type}" for c in module.constants.values()]
    listing.lines += [f"info {key} = {attr_text(value)}" for key, value in module.info.items()]
    for function in module.functions.values():
        if listing.lines:
            listing.lines.append("")
        _list_function(function, listing, "", locations)
    return listing


def symbol_text(symbol: Symbol) -> str:
    text = f"symbol {symbol.name} in [{symbol.lower}, {symbol.upper}]"
    return text if symbol.divisor == 1 else f"{text} divisor {symbol.divisor}"


def _list_function(function: Function, listing: Listing, indent: str, locations: bool) -> None:
    results = ", ".join(str(r.type) for r in function.results)
    params = [param_text(p) for p in function.params]
    listing.line_of[function] = len(listing.lines)
    head = f"{indent}func @{function.name}({', '.join(params)}) -> ({results}) {{"
    if len(head) <= MAX_HEADER or not params:
        listing.lines.append(head)
    else:
        listing.lines.append(f"{indent}func @{function.name}(")
        listing.lines += [f"{indent}    {p}," for p in params[:-1]] + [f"{indent}    {params[-1]}"]
        listing.lines.append(f"{indent}) -> ({results}) {{")
    _list_body(function, listing, indent + "  ", locations)
    listing.lines.append(f"{indent}}}")


def _list_body(function: Function, listing: Listing, indent: str, locations: bool) -> None:
    statements = [statement_text(op) for op in function.ops]
    column = max((len(s) for s in statements if len(s) <= MAX_COLUMN), default=0)
    for op, statement in zip(function.ops, statements, strict=True):
        types = ", ".join(str(r.type) for r in op.results)
        line = f"{indent}{statement.ljust(column)}  : {types}" if types else indent + statement
        if locations and op.loc:
            line += f" loc {json.dumps(op.loc, ensure_ascii=False)}"
        listing.line_of[op] = len(listing.lines)
        if not op.regions:
            listing.lines.append(line)
            continue
        for number, body in enumerate(op.regions):
            start = line if number == 0 else f"{indent}}}"
            params = ", ".join(param_text(p) for p in body.params)
            opening = f"{start} do @{body.name}({params}) {{"
            if number:
                listing.lines[-1] = opening
            else:
                listing.lines.append(opening)
            listing.line_of[body] = len(listing.lines) - 1
            _list_body(body, listing, indent + "  ", locations)
            listing.lines.append(f"{indent}}}")
    listing.lines.append(f"{indent}return {', '.join('%' + r.name for r in function.results)}".rstrip())


def param_text(value: Value) -> str:
    return f"%{value.name}: {value.type}"


def statement_text(op: Op) -> str:
    """A statement without its types: `%r = kind(%a, %b) {attr = value}`."""
    results = ", ".join("%" + r.name for r in op.results)
    text = f"{op.kind}({', '.join('%' + v.name for v in op.operands)})"
    if op.attrs:
        text += f" {{{attrs_text(op.attrs)}}}"
    return f"{results} = {text}" if results else text


def attrs_text(attrs: Mapping[str, Attr]) -> str:
    parts = []
    for name in sorted(attrs):
        value = attrs[name]
        parts.append(f"{name} := {print_expr(value)}" if isinstance(value, Expr) else f"{name} = {attr_text(value)}")
    return ", ".join(parts)


def attr_text(value: Attr) -> str:
    """An attribute value. Raises TypeError for a scalar expression inside a list, which the text cannot carry."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        inner = ", ".join(attr_text(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise TypeError(f"a scalar expression can only be an attribute by itself, not inside a list: {value!r}")
