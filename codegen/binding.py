"""How tensor IR values are stored: value -> tile IR buffers (the one place that knows).

| value | buffers |
|---|---|
| plain `e[d0, .., dn]` | `name`: e `[d0, .., dn]` |
| codec value | `name`: u8 codes (two e2m1 codes a byte), `name_s`: u8 scales `[.., n/group]` (W-FP8: `[N/32, K/32]`) |
| weight, layout `n16k` | codes or values `[.., ceil(N/16), K, 16]`; scales stay row-major; rows past N are zero |
| weight, layout `n16k4` | e2m1 codes `[.., ceil(N/16), K, 8]`, two along n a byte, even n low |
| ring of codec records | u8 `[slots*capacity, record_bytes]`: codes, then scales |
| ring of scalars | e `[slots*capacity, width]` |
| pages | u8 `[pages, page_bytes]`, from the section on: codes of record j at j*code_bytes, scales behind scale_offset |
"""
from __future__ import annotations

from dataclasses import replace

import sympy

from dinfc.ir.graph import IRError, Op, Value
from dinfc.ir.scalar import Expr, const, var
from dinfc.ir.tile.program import SCALARS, Buffer
from dinfc.ir.types import Dim, StateType, TensorType, Type, simplify_dim


def dim_expr(dim: Dim) -> Expr:
    """A dim as an i32 expression of program scalars (floor and ceiling of a quotient become integer division)."""
    if isinstance(dim, int):
        return const(dim)
    if dim.is_Integer:
        return const(int(dim))
    if isinstance(dim, sympy.Symbol):
        return var(dim.name)
    if isinstance(dim, sympy.Add | sympy.Mul):
        _, denominator = sympy.fraction(sympy.together(dim))
        if denominator != 1:
            raise IRError(f"dimension {dim} is not an integer expression")
        parts = [dim_expr(a) for a in dim.args]
        out = parts[0]
        for p in parts[1:]:
            out = out + p if isinstance(dim, sympy.Add) else out * p
        return out
    if isinstance(dim, sympy.ceiling | sympy.floor):
        numerator, denominator = sympy.fraction(sympy.together(dim.args[0]))
        top = dim_expr(simplify_dim(numerator))
        if isinstance(dim, sympy.ceiling):
            top = top + (int(denominator) - 1)
        return top // int(denominator)
    raise IRError(f"dimension {dim} has no tile IR form")


def storage_shapes(type_: TensorType) -> list[tuple[str, tuple[Dim, ...]]]:
    """(dtype, shape) of the buffers of a tensor value: one for plain values, codes and scales for codec values."""
    shape, codec, layout = type_.shape, type_.codec, type_.layout
    dtype = "u8" if codec else type_.elem
    if layout in ("n16k", "n16k4"):
        *lead, n, k = shape
        blocks = simplify_dim(sympy.ceiling(sympy.sympify(n) / 16))
        stored: tuple[Dim, ...] = (*lead, blocks, k, 8 if layout == "n16k4" else 16)
    elif layout:
        raise IRError(f"unknown layout {layout!r}")
    elif codec and codec.bits == 4:
        stored = (*shape[:-1], simplify_dim(sympy.sympify(shape[-1]) / 2))
    else:
        stored = shape
    out = [(dtype, stored)]
    if codec:
        groups = simplify_dim(sympy.ceiling(sympy.sympify(shape[-1]) / codec.group))
        rows = shape[:-1]
        if codec.rows > 1:
            rows = (*shape[:-2], simplify_dim(sympy.ceiling(sympy.sympify(shape[-2]) / codec.rows)))
        out.append(("u8", (*rows, groups)))
    return out


def state_shape(type_: StateType) -> tuple[str, tuple[Expr, Expr]]:
    """(dtype, shape) of a state's buffer, in run-time scalars `slots` and `pages`."""
    if type_.kind == "pages":
        return "u8", (var("pages"), const(type_.page_bytes))
    rows = var("slots") * type_.capacity
    if type_.codec:
        return "u8", (rows, const(type_.record_bytes))
    return type_.elem, (rows, const(type_.width))


def value_buffers(name: str, type_: Type, mode: str) -> list[Buffer]:
    """The global buffers that a value of `type_` named `name` is passed in."""
    if isinstance(type_, StateType):
        dtype, shape = state_shape(type_)
        return [Buffer(name, dtype, shape, "global", "inout" if mode == "inout" else "in")]
    bounds = None
    if type_.bounds is not None:
        bounds = (dim_expr(type_.bounds[0]), dim_expr(type_.bounds[1]))
    out = []
    for (dtype, dims), suffix in zip(storage_shapes(type_), ("", "_s"), strict=False):
        out.append(Buffer(name + suffix, dtype, tuple(dim_expr(d) for d in dims), "global", mode, bounds))
    return out


def region_buffers(region: Op) -> tuple[Buffer, ...]:
    """Program params of a region: its operands in order, then its tensor results in order, named as inside the region.

    A state that the region writes appears once, as its operand, with mode inout. Values named in the region's attribute
    `chunk` hold only the rows of one chunk: their first dim is the scalar `rows` instead of T, row t at t - row0.
    """
    body = region.regions[0]
    chunk = region.attrs.get("chunk") or ()
    assert isinstance(chunk, tuple)
    written = {op.operands[0] for op in body.ops if op.kind == "state_write"}
    out: list[Buffer] = []
    for p in body.params:
        out += chunked(value_buffers(buffer_name(p), p.type, "inout" if p in written else "in"), p.name in chunk)
    for r in body.results:
        if isinstance(r.type, TensorType):
            out += chunked(value_buffers(buffer_name(r), r.type, "out"), r.name in chunk)
    return tuple(out)


def chunked(buffers: list[Buffer], is_chunked: bool) -> list[Buffer]:
    if not is_chunked:
        return buffers
    return [replace(b, shape=(var("rows"), *b.shape[1:])) for b in buffers]


def buffer_name(value: Value) -> str:
    """A value's name as an identifier (`attn.wq_a` -> `attn_wq_a`; a scalar's name like `rows` -> `rows_`)."""
    name = value.name.replace(".", "_")
    return name + "_" if name in SCALARS else name
