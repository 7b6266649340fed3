"""Tile copies (tile IR `Copy`) as C++: bounds and gathered rows are resolved outside the innermost loop.

Per dim with a limit, the valid part of the tile is an interval; elements outside it become zero. A gathered row outside
[0, limit) is a row of zeros.
"""
from __future__ import annotations

from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import Buffer, Copy

from .cpu_expr import EmitError, identifier
from .cpu_scope import Scope, atom


def check_copy(c: Copy, dst: Buffer, src: Buffer) -> int:
    """Number of leading source dims that dst does not have. Raises EmitError where the two do not fit together."""
    lead = len(src.shape) - len(dst.shape)
    if lead < 0 or len(c.offsets) != len(src.shape) or len(c.limits) != len(src.shape):
        raise EmitError(f"copy {c.dst} <- {c.src}: ranks do not fit")
    if dst.dtype != src.dtype:
        raise EmitError(f"copy {c.dst} ({dst.dtype}) <- {c.src} ({src.dtype})")
    if c.rows is not None and lead:
        raise EmitError(f"copy {c.dst} <- {c.src}: gathered rows need equal ranks")
    return lead


def emit_copy(c: Copy, scope: Scope) -> None:
    """`dst` may have fewer dims than `src`: leading source dims are then fixed at their offset."""
    dst, src = scope.buffers[c.dst], scope.buffers[c.src]
    lead = check_copy(c, dst, src)
    offsets = [scope.text(o) for o in c.offsets]
    fixed = " && ".join(inside(offsets[d], c.limits[d], scope) for d in range(lead) if c.limits[d] is not None)
    _copy_dim(c, scope, dst, src, offsets, 0, lead, fixed)


def inside(index: str, limit: Expr | None, scope: Scope) -> str:
    assert limit is not None
    return f"{index} >= 0 && {index} < {scope.text(limit)}"


def _copy_dim(c: Copy, scope: Scope, dst: Buffer, src: Buffer, offsets: list[str], dim: int, lead: int,
              guard: str) -> None:
    """Loops over dim `dim` of dst. `guard`: condition, known here, under which anything is valid ('' = always)."""
    at = dim + lead
    var = f"c{dim}_"
    extent = scope.text(dst.shape[dim])
    limit = c.limits[at]
    last = dim == len(dst.shape) - 1
    gathered = c.rows is not None and dim == 0
    if gathered:
        rows = scope.buffers[str(c.rows)]
        with scope.block(f"for (int {var} = 0; {var} < {extent}; ++{var})"):
            row = f"row{dim}_"
            scope.line(f"const int {row} = {identifier(rows.name)}[{var}];")
            present = inside(row, limit if limit is not None else src.shape[0], scope)
            inner = f"{guard} && {present}" if guard else present
            _descend(c, scope, dst, src, [row, *offsets[1:]], dim, lead, inner, last)
        return
    if limit is not None and last:
        first, end = f"first{dim}_", f"end{dim}_"
        with scope.block(""):
            start, zero = offsets[at], offsets[at] == "0"
            bound = scope.text(limit) if zero else f"{scope.text(limit)} - {atom(start)}"
            scope.line(f"const int {first} = {'0' if zero else f'dinfc_min(dinfc_max(-{atom(start)}, 0), {extent})'};")
            valid = f"dinfc_max(dinfc_min({bound}, {extent}), {first})"
            scope.line(f"const int {end} = {f'({guard}) ? {valid} : {first}' if guard else valid};")
            element = [*[f"c{d}_" for d in range(dim)], var]
            source = [*offsets[:at], add(offsets[at], var)]
            to = f"{identifier(dst.name)}[{scope.flat(dst, element)}]"
            scope.line(f"for (int {var} = 0; {var} < {first}; ++{var}) {to} = 0;")
            scope.line(f"for (int {var} = {first}; {var} < {end}; ++{var}) "
                       f"{to} = {identifier(src.name)}[{scope.flat(src, source)}];")
            scope.line(f"for (int {var} = {end}; {var} < {extent}; ++{var}) {to} = 0;")
        return
    if last and guard:  # one test for the whole row
        to = f"{identifier(dst.name)}[{scope.flat(dst, [*[f'c{d}_' for d in range(dim)], var])}]"
        source_text = f"{identifier(src.name)}[{scope.flat(src, [*offsets[:at], add(offsets[at], var)])}]"
        head = f"for (int {var} = 0; {var} < {extent}; ++{var})"
        scope.line(f"if ({guard}) {head} {to} = {source_text};")
        scope.line(f"else {head} {to} = 0;")
        return
    with scope.block(f"for (int {var} = 0; {var} < {extent}; ++{var})"):
        index = add(offsets[at], var)
        inner = guard
        if limit is not None:
            scope.line(f"const int at{dim}_ = {index};")
            index = f"at{dim}_"
            inner = " && ".join(g for g in (guard, inside(index, limit, scope)) if g)
        _descend(c, scope, dst, src, [*offsets[:at], index, *offsets[at + 1:]], dim, lead, inner, last)


def _descend(c: Copy, scope: Scope, dst: Buffer, src: Buffer, offsets: list[str], dim: int, lead: int, guard: str,
             last: bool) -> None:
    if not last:
        _copy_dim(c, scope, dst, src, offsets, dim + 1, lead, guard)
        return
    to = f"{identifier(dst.name)}[{scope.flat(dst, [f'c{d}_' for d in range(dim + 1)])}]"
    source = f"{identifier(src.name)}[{scope.flat(src, offsets)}]"
    scope.line(f"{to} = ({guard}) ? {source} : 0;" if guard else f"{to} = {source};")


def add(offset: str, var: str) -> str:
    return var if offset == "0" else f"({offset} + {var})"
