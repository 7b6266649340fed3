"""Tile products (tile IR `Dot`) as calls of the templates in `dot.h`."""
from __future__ import annotations

from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import Buffer, Dot

from .cpu_expr import EmitError, identifier
from .cpu_scope import Scope

FORMATS = {"": {"f32": "dinfc_f32", "bf16": "dinfc_bf16"}, "e4m3": {"u8": "dinfc_e4m3"}, "e2m1": {"u8": "dinfc_e2m1"}}


def operand_format(d: Dot, buffer: Buffer, codec: str) -> str:
    try:
        return FORMATS[codec][buffer.dtype]
    except KeyError:
        raise EmitError(f"dot into {d.acc}: {buffer.name} of {buffer.dtype} cannot hold {codec or 'values'}") from None


def pointer(scope: Scope, buffer: Buffer, at: tuple[Expr, ...]) -> str:
    offset = scope.flat(buffer, [scope.text(i) for i in at])
    return identifier(buffer.name) if offset == "0" else f"{identifier(buffer.name)} + {offset}"


def row_stride(scope: Scope, buffer: Buffer) -> str:
    """Stored elements from one row to the next (the last dim)."""
    return scope.text(buffer.shape[-1])


def columns_source(d: Dot, scope: Scope) -> str:
    """The C++ object that gives decoded columns of B."""
    b = scope.buffers[d.b]
    if len(d.b_at) != len(b.shape):
        raise EmitError(f"dot into {d.acc}: {b.name} has {len(b.shape)} dims, b_at has {len(d.b_at)}")
    fmt = operand_format(d, b, d.b_codec)
    base = pointer(scope, b, d.b_at)
    if d.b_layout == "nk":
        return f"dinfc_nk<{fmt}, {d.n}>{{{base}, {row_stride(scope, b)}}}"
    if d.b_layout == "kn":
        return f"dinfc_kn<{fmt}, {d.n}>{{{base}, {row_stride(scope, b)}}}"
    block = f"{scope.text(b.shape[-2])} * {scope.text(b.shape[-1])}"
    if d.b_layout == "n16k" and d.b_codec != "e2m1":
        return f"dinfc_n16k<{fmt}>{{{base}, {block}}}"
    if d.b_layout == "n16k4" and d.b_codec == "e2m1":
        return f"dinfc_n16k4{{{base}, {block}}}"
    raise EmitError(f"dot into {d.acc}: layout {d.b_layout} cannot hold {d.b_codec or b.dtype}")


def scale_source(d: Dot, scope: Scope, name: str | None, at: tuple[Expr, ...] | None, per: int) -> str:
    if name is None:
        return "dinfc_no_scale{}"
    buffer = scope.buffers[name]
    if at is None or buffer.dtype not in ("f32", "u8"):
        raise EmitError(f"dot into {d.acc}: scales {name} need offsets and f32 or u8 elements")
    return (f"dinfc_scale<{scope.stored_type(buffer)}, {per}>"
            f"{{{pointer(scope, buffer, at)}, {row_stride(scope, buffer)}}}")


def check_dot(d: Dot, scope: Scope) -> None:
    """Raises EmitError for what no build can print."""
    acc = scope.buffers[d.acc]
    if acc.dtype != "f32" or len(acc.shape) != 2:
        raise EmitError(f"dot into {d.acc}: the accumulator must be f32 with two dims")
    if d.k % d.group:
        raise EmitError(f"dot into {d.acc}: k = {d.k} is not a multiple of its group {d.group}")
    operand_format(d, scope.buffers[d.a], d.a_codec)
    columns_source(d, scope)


def emit_dot(d: Dot, scope: Scope) -> None:
    check_dot(d, scope)
    acc, a = scope.buffers[d.acc], scope.buffers[d.a]
    fmt = operand_format(d, a, d.a_codec)
    rows = str(d.m) if d.rows is None else f"dinfc_min(dinfc_max({scope.outer(d.rows)}, 0), {d.m})"
    scope.line(f"dinfc_dot<{d.m}, {d.n}, {d.k}, {d.group}>(")
    with scope.indented():
        scope.line(f"{identifier(acc.name)}, {row_stride(scope, acc)},")
        scope.line(f"dinfc_rows<{fmt}>{{{pointer(scope, a, d.a_at)}, {row_stride(scope, a)}}},")
        scope.line(f"{columns_source(d, scope)},")
        scope.line(f"{scale_source(d, scope, d.a_scale, d.a_scale_at, 1)},")
        scope.line(f"{scale_source(d, scope, d.b_scale, d.b_scale_at, d.b_scale_rows)}, {rows});")
