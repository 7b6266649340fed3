"""Keeps the names inside a program apart from the names of its parameters, which come from the model's text.

A schedule writes parameters as `@name` (nothing else can be called so). When the program is finished, `@name` becomes
the parameter's name, and whatever the body itself declares under such a name gets a number.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dinfc.ir.scalar import Expr, substitute
from dinfc.ir.tile.program import SCALARS, Alloc, Copy, Dot, Fill, For, If, Let, Reduce, Stmt, Store, statements

Grid = tuple[tuple[str, Expr], ...]


def alias(name: str) -> str:
    """How a schedule calls the parameter `name` until the program is finished."""
    return "@" + name


def resolve(body: tuple[Stmt, ...], grid: Grid, params: set[str]) -> tuple[tuple[Stmt, ...], Grid]:
    """Body and grid with the parameters under their own names and no declared name equal to one of them."""
    declared = declared_names(body) | {name for name, _ in grid}
    taken = params | set(SCALARS)
    names = {alias(p): p for p in params}
    for name in sorted(declared & taken):
        number = 1
        while f"{name}_{number}" in taken | declared:
            number += 1
        names[name] = f"{name}_{number}"
        taken.add(names[name])
    return (tuple(_statement(s, names) for s in body),
            tuple((names.get(v, v), _expr(extent, names)) for v, extent in grid))


def declared_names(body: tuple[Stmt, ...]) -> set[str]:
    """Names that the statements declare: buffers, loop variables, bound scalars."""
    out: set[str] = set()
    for s in statements(body):
        if isinstance(s, Alloc):
            out.add(s.buffer.name)
        elif isinstance(s, For):
            out.add(s.var)
        elif isinstance(s, Let):
            out.add(s.name)
        elif isinstance(s, Reduce):
            out |= {s.name, s.var}
    return out


def _expr(e: Expr, names: Mapping[str, str]) -> Expr:
    def leaf(node: Expr) -> Expr | None:
        if node.op == "var" and node.attr in names:
            return replace(node, attr=names[str(node.attr)])
        if node.op == "load":  # rebuilt here, since a replaced node is not descended into
            return replace(node, attr=names.get(str(node.attr), node.attr), args=_exprs(node.args, names))
        return None

    return substitute(e, leaf)


def _exprs(es: tuple[Expr, ...], names: Mapping[str, str]) -> tuple[Expr, ...]:
    return tuple(_expr(e, names) for e in es)


def _maybe(e: Expr | None, names: Mapping[str, str]) -> Expr | None:
    return None if e is None else _expr(e, names)


def _offsets(at: tuple[Expr, ...] | None, names: Mapping[str, str]) -> tuple[Expr, ...] | None:
    return None if at is None else _exprs(at, names)


def _name(name: str | None, names: Mapping[str, str]) -> str | None:
    return None if name is None else names.get(name, name)


def _statement(s: Stmt, names: Mapping[str, str]) -> Stmt:
    """One statement with every name in it replaced."""
    if isinstance(s, Alloc):
        return Alloc(replace(s.buffer, name=names.get(s.buffer.name, s.buffer.name)))
    if isinstance(s, For):
        return For(names.get(s.var, s.var), _expr(s.extent, names), s.kind, tuple(_statement(c, names) for c in s.body))
    if isinstance(s, Let):
        return Let(names.get(s.name, s.name), _expr(s.value, names))
    if isinstance(s, Store):
        return Store(names.get(s.buffer, s.buffer), _exprs(s.indices, names), _expr(s.value, names),
                     _maybe(s.where, names))
    if isinstance(s, If):
        return If(_expr(s.cond, names), tuple(_statement(c, names) for c in s.then),
                  tuple(_statement(c, names) for c in s.otherwise))
    if isinstance(s, Fill):
        return Fill(names.get(s.buffer, s.buffer), _expr(s.value, names))
    if isinstance(s, Copy):
        return Copy(names.get(s.dst, s.dst), names.get(s.src, s.src), _exprs(s.offsets, names),
                    tuple(_maybe(e, names) for e in s.limits), _name(s.rows, names))
    if isinstance(s, Reduce):
        return replace(s, name=names.get(s.name, s.name), var=names.get(s.var, s.var), extent=_expr(s.extent, names),
                       value=_expr(s.value, names), start=_expr(s.start, names), times=_maybe(s.times, names))
    if isinstance(s, Dot):
        return replace(
            s, acc=names.get(s.acc, s.acc), a=names.get(s.a, s.a), a_at=_exprs(s.a_at, names), b=names.get(s.b, s.b),
            b_at=_exprs(s.b_at, names), a_scale=_name(s.a_scale, names), a_scale_at=_offsets(s.a_scale_at, names),
            b_scale=_name(s.b_scale, names), b_scale_at=_offsets(s.b_scale_at, names),
            rows=_maybe(s.rows, names))
    return s
