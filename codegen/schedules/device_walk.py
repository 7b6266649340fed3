"""Small tools over tile programs for the device legalisers: rebuilding statements, names, accesses."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dinfc.ir.scalar import Expr, substitute, walk
from dinfc.ir.tile.program import (
    Alloc,
    Buffer,
    Copy,
    Dot,
    Fill,
    For,
    If,
    Let,
    Program,
    Reduce,
    Stmt,
    Store,
    statements,
)

Body = tuple[Stmt, ...]
Rewrite = Callable[[Expr], Expr]


class DeviceError(Exception):
    """A tile program that a device cannot run, or that its emitter cannot print; the message says why."""


def buffers_of(program: Program) -> dict[str, Buffer]:
    """All buffers by name."""
    found = {p.name: p for p in program.params}
    for s in statements(program.body):
        if isinstance(s, Alloc):
            found[s.buffer.name] = s.buffer
    return found


def sizes(buffer: Buffer) -> tuple[int, ...]:
    """Constant dims of a local buffer. Raises DeviceError for a symbolic one."""
    out = tuple(d.attr for d in buffer.shape)
    if not all(isinstance(n, int) for n in out):
        raise DeviceError(f"buffer {buffer.name} of one instance has a dim that is not constant")
    return tuple(int(n) for n in out if n is not None)


def rewrite(s: Stmt, change: Rewrite) -> Stmt:
    """The statement with every expression of it (and of statements inside) replaced by `change(expression)`."""
    if isinstance(s, For):
        return replace(s, extent=change(s.extent), body=tuple(rewrite(b, change) for b in s.body))
    if isinstance(s, If):
        return If(change(s.cond), tuple(rewrite(b, change) for b in s.then),
                  tuple(rewrite(b, change) for b in s.otherwise))
    if isinstance(s, Let):
        return Let(s.name, change(s.value))
    if isinstance(s, Store):
        return Store(s.buffer, tuple(change(i) for i in s.indices), change(s.value),
                     None if s.where is None else change(s.where))
    if isinstance(s, Fill):
        return Fill(s.buffer, change(s.value))
    if isinstance(s, Copy):
        return replace(s, offsets=tuple(change(o) for o in s.offsets),
                       limits=tuple(None if x is None else change(x) for x in s.limits))
    if isinstance(s, Reduce):
        return replace(s, extent=change(s.extent), value=change(s.value), start=change(s.start),
                       times=None if s.times is None else change(s.times))
    if isinstance(s, Dot):
        def offsets(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(change(o) for o in at)

        return replace(s, a_at=offsets(s.a_at), b_at=offsets(s.b_at),
                       a_scale_at=None if s.a_scale_at is None else offsets(s.a_scale_at),
                       b_scale_at=None if s.b_scale_at is None else offsets(s.b_scale_at),
                       rows=None if s.rows is None else change(s.rows))
    return s


def own_expressions(s: Stmt) -> Iterator[Expr]:
    """Expressions of the statement itself, not of statements inside it."""
    found: list[Expr | None] = []
    if isinstance(s, For):
        found = [s.extent]
    elif isinstance(s, If):
        found = [s.cond]
    elif isinstance(s, Let | Fill):
        found = [s.value]
    elif isinstance(s, Store):
        found = [*s.indices, s.value, s.where]
    elif isinstance(s, Copy):
        found = [*s.offsets, *s.limits]
    elif isinstance(s, Reduce):
        found = [s.extent, s.value, s.start, s.times]
    elif isinstance(s, Dot):
        found = [*s.a_at, *s.b_at, *(s.a_scale_at or ()), *(s.b_scale_at or ()), s.rows]
    return (e for e in found if e is not None)


def loads(nodes: Iterable[Expr]) -> Iterator[Expr]:
    """Loads inside expressions, outer ones after those in their indices."""
    return (n for e in nodes for n in walk(e) if n.op == "load")


def names_used(body: Body) -> set[str]:
    """Scalars named by expressions anywhere in the body."""
    return {str(n.attr) for s in statements(body) for e in own_expressions(s) for n in walk(e) if n.op == "var"}


def written(body: Body) -> set[str]:
    """Buffers that the body writes."""
    out: set[str] = set()
    for s in statements(body):
        if isinstance(s, Store | Fill):
            out.add(s.buffer)
        elif isinstance(s, Copy):
            out.add(s.dst)
        elif isinstance(s, Dot):
            out.add(s.acc)
    return out


def read(body: Body) -> set[str]:
    """Buffers that the body reads."""
    out = {str(n.attr) for s in statements(body) for n in loads(own_expressions(s))}
    for s in statements(body):
        if isinstance(s, Copy):
            out |= {s.src, *([s.rows] if s.rows else [])}
        elif isinstance(s, Dot):
            out |= {s.acc, s.a, s.b, *(n for n in (s.a_scale, s.b_scale) if n)}
    return out


def bind(values: dict[str, Expr]) -> Rewrite:
    """A rewrite that puts expressions in the place of scalars."""
    def change(e: Expr) -> Expr:
        return substitute(e, lambda n: values.get(str(n.attr)) if n.op == "var" else None)

    return change


def map_bodies(body: Body, change: Callable[[Body], Body]) -> Body:
    """Applies `change` to every block, inner ones first."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            s = replace(s, body=map_bodies(s.body, change))
        elif isinstance(s, If):
            s = If(s.cond, map_bodies(s.then, change), map_bodies(s.otherwise, change))
        out.append(s)
    return change(tuple(out))
