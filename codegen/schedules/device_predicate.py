"""Programs for devices whose matrix unit cannot branch on what the vector unit computed (Ascend's cube).

Scalars of a block that come from memory are kept in one-element buffers, and a branch around products becomes its
condition on those vector statements inside whose effect is seen outside of it, or which read global memory (that may be
safe under the condition only). Everything else, the products included, runs always: where the condition is false it
changes buffers that nobody outside of the branch looks at, and what the products read has been written.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dinfc.ir.scalar import Expr, apply, const, load, var, walk
from dinfc.ir.tile.program import (
    Alloc,
    Buffer,
    Comment,
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

from .device_walk import Body, DeviceError, bind, buffers_of, loads, own_expressions, read, rewrite, sizes, written


def predicate_products(program: Program) -> Program:
    """The program without branches around products. Programs without products stay as they are.

    Raises DeviceError for a branch whose product is visible outside.
    """
    if not any(isinstance(s, Dot) for s in statements(program.body)):
        return program
    buffers = buffers_of(program)
    outside = _used_outside(program.body)
    private = frozenset(n for n, b in buffers.items() if b.space != "global" and n not in outside)
    rules = _Rules(buffers, private)
    body = rules.block(program.body, {}, ())
    return replace(program, body=(*(Alloc(b) for b in rules.kept), *body))


@dataclass
class _Rules:
    buffers: Mapping[str, Buffer]
    private: frozenset[str]  # local buffers that only branches around products use
    kept: list[Buffer] = field(default_factory=list)

    def is_seen(self, s: For) -> bool:
        """Must the nest stay under the condition?"""
        reads = {str(n.attr) for inner in statements((s,)) for n in loads(own_expressions(inner))}
        return bool(written((s,)) - self.private) or any(
            n in self.buffers and self.buffers[n].space == "global" for n in reads)

    def half_written(self, s: If) -> list[str]:
        """Private buffers that nests write which stay under the branch's condition. Products and nests outside of it
        read them always: without a value of their own they would read what nobody ever wrote."""
        seen = written(tuple(inner for inner in s.then if isinstance(inner, For) and self.is_seen(inner)))
        return sorted(seen & self.private)

    def block(self, body: Body, values: dict[str, Expr], guards: tuple[Expr, ...]) -> Body:
        """Statements of a block, under these conditions; `values`: what scalars have become."""
        values = dict(values)
        out: list[Stmt] = []
        for original in body:
            s = rewrite(original, bind(values))
            if isinstance(s, Let) and not any(n.op == "load" for n in walk(s.value)):
                values[s.name] = s.value  # a function of the grid and loops: written where it is used
            elif isinstance(s, Let | Reduce):
                out.append(self.keep(s, values, guards))
            elif isinstance(s, If) and any(isinstance(inner, Dot) for inner in statements(s.then)):
                _check_private(s)
                if s.otherwise or guards:
                    raise DeviceError("a branch around products has an else part or lies in another one")
                out += [Fill(n, const(0.0, self.buffers[n].dtype)) for n in self.half_written(s)]
                out += self.block(s.then, values, (s.cond,))
            elif isinstance(s, For) and s.kind in ("serial", "pipelined") and not guards:
                out.append(replace(s, body=self.block(s.body, values, ())))
            elif isinstance(s, Dot | Alloc | Comment) or self.starts_product(s, body):
                out.append(s)
            elif isinstance(s, Fill):
                out.append(_fill_nest(self.buffers[s.buffer], s.value, guards) if guards else s)
            elif isinstance(s, For) and guards:
                out.append(_guarded(s, guards) if self.is_seen(s) else s)
            elif isinstance(s, Copy) and guards:
                raise DeviceError(f"copy {s.dst} = {s.src} inside a branch around products")
            else:
                out.append(If(_all(guards), (s,)) if guards else s)
        return tuple(out)

    def starts_product(self, s: Stmt, body: Body) -> bool:
        """Does the statement clear an accumulator of a product of this block?"""
        return (isinstance(s, Fill) and self.buffers[s.buffer].space == "accumulator"
                and any(isinstance(d, Dot) and d.acc == s.buffer for d in body))

    def keep(self, s: Let | Reduce, values: dict[str, Expr], guards: tuple[Expr, ...]) -> Stmt:
        """Computes a scalar in one thread and keeps it in memory."""
        if isinstance(s, Reduce) and s.lanes != 1:
            raise DeviceError(f"reduction {s.name}: lanes across a program with products")
        buffer = Buffer(f"{s.name}_kept", s.value.dtype, (const(1),), "shared")
        self.kept.append(buffer)
        values[s.name] = load(buffer.name, (const(0),), s.value.dtype)
        stored = Store(buffer.name, (var("one"),), var(s.name, s.value.dtype))
        inner: Body = (s, stored)
        return For("one", const(1), "parallel", (If(_all(guards), inner),) if guards else inner)


def _used_outside(body: Body) -> set[str]:
    """Buffers that statements outside of branches around products read or write."""
    out: set[str] = set()
    for s in body:
        if isinstance(s, If) and any(isinstance(inner, Dot) for inner in statements(s.then)):
            continue
        if isinstance(s, For) and any(isinstance(inner, Dot) for inner in statements(s.body)):
            out |= _used_outside(s.body)
        else:
            out |= read((s,)) | written((s,))
    return out


def _check_private(s: If) -> None:
    """Accumulators of products inside the branch must be filled there."""
    filled = {inner.buffer for inner in statements(s.then) if isinstance(inner, Fill)}
    for inner in statements(s.then):
        if isinstance(inner, Dot) and inner.acc not in filled:
            raise DeviceError(f"the product into {inner.acc} would run where the branch around it is not taken")


def _all(guards: tuple[Expr, ...]) -> Expr:
    out = guards[0]
    for g in guards[1:]:
        out = apply("land", out, g)
    return out


def _guarded(s: For, guards: tuple[Expr, ...]) -> Stmt:
    """A parallel nest whose points are under the conditions. Raises DeviceError where it writes what they read."""
    reads = {str(n.attr) for g in guards for n in walk(g) if n.op == "load"}
    if reads & written((s,)):
        raise DeviceError(f"loop {s.var} changes the condition that it is under")
    if len(s.body) == 1 and isinstance(s.body[0], For) and s.body[0].kind == "parallel":
        return replace(s, body=(_guarded(s.body[0], guards),))
    return replace(s, body=(If(_all(guards), s.body),))


def _fill_nest(buffer: Buffer, value: Expr, guards: tuple[Expr, ...]) -> Stmt:
    names = [f"fill_{n}" for n in range(len(buffer.shape))]
    inner: Stmt = If(_all(guards), (Store(buffer.name, tuple(var(n) for n in names), value),))
    for name, extent in zip(reversed(names), reversed(sizes(buffer)), strict=True):
        inner = For(name, const(extent), "parallel", (inner,))
    return inner
