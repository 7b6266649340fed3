"""Text of tile programs: one statement a line, types and memory classes shown. `parse.py` reads it back.

    kernel @norm anchor row functions dinfc-f32 {
      order "lanes 16 stride 1"
      origin "%h = rms_norm"
      param x: bf16[T, 5120] global in
      param row: i32[T] global in bounds [-1, 512)
      param y: bf16[T, 5120] global out
      grid t in T, cb in 4
      alloc tile: f32[32] near
      let p: i32 = row[t]
      reduce sq = sum over k in 5120 lanes 16 start 0.0 of f32(x[t, k]) times f32(x[t, k])
      for k in 32 vector {
        y[t, k] = bf16(tile[k]) where lt(k, 20)
      }
      if ge(p, 0) {
        fill tile = 0.0
      } else {
        copy tile = x[p, 0] limits [T, _] rows list
      }
      dot acc += a[0, 0] * w[cb, 0, 0] m 8 n 64 k 256 group 32 layout n16k b_codec e4m3 a_scale s[0, 0] ...
      // a comment
    }
"""
from __future__ import annotations

import json
from collections.abc import Iterator

from ..scalar import Expr
from ..scalar_text import print_expr
from .program import Alloc, Buffer, Copy, Dot, Fill, For, If, Let, Program, Reduce, Stmt, Store

INDENT = "  "
KINDS = ("serial", "parallel", "vector", "unrolled", "pipelined")  # of loops


def print_program(program: Program) -> str:
    """The whole program; ends in a newline."""
    return "\n".join(line for line, _ in program_lines(program)) + "\n"


def program_lines(program: Program) -> Iterator[tuple[str, Stmt | None]]:
    """Lines of the program, each with the statement that it begins (None for the head, closing braces, `else`)."""
    yield f"kernel @{program.name} anchor {program.anchor or '-'} functions {program.functions} {{", None
    for order in program.orders:
        yield f"{INDENT}order {json.dumps(order)}", None
    for origin in program.origin:
        yield f"{INDENT}origin {json.dumps(origin)}", None
    for key, value in program.attrs.items():
        yield f"{INDENT}attr {key} = {value}", None
    for p in program.params:
        yield f"{INDENT}param {print_buffer(p)} {p.mode}{_bounds(p)}", None
    if program.grid:
        yield f"{INDENT}grid " + ", ".join(f"{name} in {print_expr(extent)}" for name, extent in program.grid), None
    yield from _block(program.body, 1)
    yield "}", None


def print_buffer(b: Buffer) -> str:
    """`name: dtype[shape] space`."""
    return f"{b.name}: {b.dtype}[{_list(b.shape)}] {b.space}"


def _bounds(b: Buffer) -> str:
    return "" if b.bounds is None else f" bounds [{print_expr(b.bounds[0])}, {print_expr(b.bounds[1])})"


def _list(items: tuple[Expr, ...]) -> str:
    return ", ".join(print_expr(i) for i in items)


def _block(body: tuple[Stmt, ...], depth: int) -> Iterator[tuple[str, Stmt | None]]:
    pad = INDENT * depth
    for s in body:
        yield pad + print_head(s), s
        if isinstance(s, For):
            yield from _block(s.body, depth + 1)
            yield f"{pad}}}", None
        elif isinstance(s, If):
            yield from _block(s.then, depth + 1)
            if s.otherwise:
                yield f"{pad}}} else {{", None
                yield from _block(s.otherwise, depth + 1)
            yield f"{pad}}}", None


def print_head(s: Stmt) -> str:
    """A statement on one line; of a loop or branch only its opening line."""
    if isinstance(s, Alloc):
        return f"alloc {print_buffer(s.buffer)}{_bounds(s.buffer)}"
    if isinstance(s, For):
        return f"for {s.var} in {print_expr(s.extent)} {s.kind} {{"
    if isinstance(s, Let):
        return f"let {s.name}: {s.value.dtype} = {print_expr(s.value)}"
    if isinstance(s, Store):
        where = "" if s.where is None else f" where {print_expr(s.where)}"
        return f"{s.buffer}[{_list(s.indices)}] = {print_expr(s.value)}{where}"
    if isinstance(s, If):
        return f"if {print_expr(s.cond)} {{"
    if isinstance(s, Fill):
        return f"fill {s.buffer} = {print_expr(s.value)}"
    if isinstance(s, Copy):
        limits = ", ".join("_" if limit is None else print_expr(limit) for limit in s.limits)
        rows = "" if s.rows is None else f" rows {s.rows}"
        return f"copy {s.dst} = {s.src}[{_list(s.offsets)}] limits [{limits}]{rows}"
    if isinstance(s, Reduce):
        times = "" if s.times is None else f" times {print_expr(s.times)}"
        return (f"reduce {s.name} = {s.op} over {s.var} in {print_expr(s.extent)} lanes {s.lanes} "
                f"start {print_expr(s.start)} of {print_expr(s.value)}{times}")
    if isinstance(s, Dot):
        return print_dot(s)
    if "\n" in s.text:
        raise ValueError(f"a comment is one line: {s.text!r}")
    return f"// {s.text}"


def print_dot(s: Dot) -> str:
    """Fields that have their default value are left out."""
    parts = [f"dot {s.acc} += {s.a}[{_list(s.a_at)}] * {s.b}[{_list(s.b_at)}]",
             f"m {s.m} n {s.n} k {s.k} group {s.group} layout {s.b_layout}"]
    if s.a_codec:
        parts.append(f"a_codec {s.a_codec}")
    if s.b_codec:
        parts.append(f"b_codec {s.b_codec}")
    for name, scale, at in (("a_scale", s.a_scale, s.a_scale_at), ("b_scale", s.b_scale, s.b_scale_at)):
        if scale is not None:
            parts.append(f"{name} {scale}[{_list(at or ())}]")
    if s.b_scale_rows != 1:
        parts.append(f"b_scale_rows {s.b_scale_rows}")
    if s.rows is not None:
        parts.append(f"rows {print_expr(s.rows)}")
    if s.order:
        parts.append(f"order {json.dumps(s.order)}")
    return " ".join(parts)


def show(program: Program, statement: Stmt | None, message: str) -> str:
    """The message with the program around the statement and a caret below it (the whole program where it is short)."""
    lines = list(program_lines(program))
    at = next((i for i, (_, s) in enumerate(lines) if statement is not None and s is statement), None)
    if at is None:
        return f"{message}\n  in kernel @{program.name}"
    first, last = max(0, at - 12), min(len(lines), at + 7)
    out = [message, f"  in kernel @{program.name}, line {at + 1}:"]
    for i in range(first, last):
        text = lines[i][0]
        out.append(f"{i + 1:5} | {text}")
        if i == at:
            start = len(text) - len(text.lstrip())
            out.append(f"      | {' ' * start}{'^' * max(1, len(text.strip()))}")
    return "\n".join(out)
