"""Spreads serial loops over threads: a loop whose iterations are independent becomes phases of parallel nests.

A schedule writes `for h: { scalars; for c parallel: ...; scalars; for x parallel: ... }`, which a CPU core runs one h
after the other. A device runs one *phase* after the other, each over all h (and c) at once, so the loop is cut at its
inner loops:

    for h parallel { scalars }      for h parallel { for c parallel { ... } }      for h parallel { scalars } ...

Cutting keeps every dependence, since an iteration touches only its own part of each buffer that the loop writes (that
is checked) and phases run in the order of the text. A scalar that a later phase needs is computed again where it reads
nothing that the loop writes, and otherwise kept in a shared buffer of one element an iteration. Branches are cut too:
each leaf of the branch becomes a nest under its condition.

The result is tile IR again, with the same bits: the CPU runs it in the tests.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dinfc.codegen.schedules.row_index import affine
from dinfc.ir.scalar import Expr, apply, compare, const, load, unary, var
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

from .device_walk import (
    Body,
    bind,
    buffers_of,
    loads,
    names_used,
    own_expressions,
    rewrite,
    sizes,
    written,
)

SPREAD = ("parallel", "vector")


def spread(program: Program) -> Program:
    """The program with its independent loops as phases; loops that cannot be spread stay as they are."""
    spreader = _Spreader(buffers_of(program), {p.name for p in program.params})
    body = spreader.block(program.body)
    return replace(program, body=(*(Alloc(b) for b in spreader.kept), *body))


@dataclass
class _Spreader:
    buffers: Mapping[str, Buffer]
    params: set[str]
    kept: list[Buffer] = field(default_factory=list)

    def block(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, For):
                out += self.loop(s)
            elif isinstance(s, If):
                out.append(If(s.cond, self.block(s.then), self.block(s.otherwise)))
            else:
                out.append(s)
        return tuple(out)

    def loop(self, s: For) -> Body:
        extent = self.extent(s)
        if extent is None or not _simple(s.body) or not self.independent(s):
            return (replace(s, body=self.block(s.body)),)
        body = s.body
        if s.extent != const(extent):  # the loop runs over the whole tile, rows that do not exist under a guard
            body = (If(compare("lt", var(s.var), s.extent), body),)
        return self.cut(((s.var, extent),), (), body)

    def extent(self, s: For) -> int | None:
        """Constant extent, or that of the dim of a local buffer which the loop variable indexes."""
        if s.extent.op == "const":
            return int(s.extent.attr)  # type: ignore[arg-type]
        found: set[int] = set()
        for n in loads(e for inner in statements(s.body) for e in own_expressions(inner)):
            buffer = self.buffers[str(n.attr)]
            if buffer.space != "global":
                found |= {sizes(buffer)[d] for d, i in enumerate(n.args) if i == var(s.var)}
        return found.pop() if len(found) == 1 else None

    def independent(self, s: For) -> bool:
        """Does every iteration touch only its own part of each buffer that the loop writes?"""
        extents = {inner.var: inner.extent for inner in statements(s.body) if isinstance(inner, For | Reduce)}
        spans = {name: int(e.attr) for name, e in extents.items() if isinstance(e.attr, int) and e.op == "const"}
        lets = {inner.name: inner.value for inner in statements(s.body) if isinstance(inner, Let)}
        for name in written(s.body):
            accesses = _accesses(s.body, name)
            rank = len(self.buffers[name].shape)
            if not any(_separates(s.var, [a[d] for a in accesses], spans, lets) for d in range(rank)):
                return False
        return True

    def cut(self, nest: tuple[tuple[str, int], ...], guards: tuple[Expr, ...], body: Body) -> Body:
        """The phases of a loop nest with this body, under these conditions."""
        body = tuple(s for s in body if not isinstance(s, Comment))
        scalars: dict[str, Expr] = {}  # what later phases may put in the place of a scalar
        changed = written(body)
        phases: list[Stmt] = []
        run: list[Stmt] = []

        def flush(rest: Body) -> None:
            """Ends a phase of plain statements; scalars that the rest needs are kept."""
            if not run:
                return
            needed = names_used(rest)
            defined = {s.name for s in run if isinstance(s, Let | Reduce)}
            for s in tuple(run):
                if not isinstance(s, Let | Reduce) or s.name not in needed:
                    continue
                reads = {str(n.attr) for n in loads(own_expressions(s))}
                value = bind(scalars)(s.value) if isinstance(s, Let) else None
                if value is not None and not reads & changed and not _names(value) & defined:
                    scalars[s.name] = value
                    continue
                dtype = s.value.dtype
                kept = self.keep(s.name, dtype, tuple(n for _, n in nest))
                indices = tuple(var(v) for v, _ in nest)
                run.append(Store(kept.name, indices, var(s.name, dtype)))
                scalars[s.name] = load(kept.name, indices, dtype)
            if any(not isinstance(s, Let) for s in run):
                phases.append(_nest(nest, guards, tuple(run)))
            run.clear()

        for at, s in enumerate(body):
            s = rewrite(s, bind(scalars))
            if not _has_loop(s):
                run.append(s)
                continue
            flush(body[at:])
            s = rewrite(s, bind(scalars))
            if isinstance(s, If):
                phases += self.cut(nest, (*guards, s.cond), s.then)
                if s.otherwise:
                    phases += self.cut(nest, (*guards, unary("lnot", s.cond)), s.otherwise)
            else:
                assert isinstance(s, For)
                if s.extent.op == "const" and (s.kind in SPREAD or self.independent(s)):
                    phases += self.cut((*nest, (s.var, int(s.extent.attr))), guards, s.body)  # type: ignore[arg-type]
                else:
                    phases.append(_nest(nest, guards, (s,)))
        flush(())
        return tuple(phases)

    def keep(self, name: str, dtype: str, shape: tuple[int, ...]) -> Buffer:
        taken = {b.name for b in self.kept} | set(self.buffers)
        label = next(n for n in (f"{name}_kept{'' if i == 0 else i}" for i in range(1000)) if n not in taken)
        buffer = Buffer(label, dtype, tuple(const(n) for n in shape), "shared")
        self.kept.append(buffer)
        return buffer


def _simple(body: Body) -> bool:
    return not any(isinstance(s, Dot | Copy | Fill | Alloc) for s in statements(body))


def _has_loop(s: Stmt) -> bool:
    return isinstance(s, For) or (isinstance(s, If) and any(isinstance(i, For) for i in statements((s,))))


def _names(e: Expr) -> set[str]:
    return names_used((Let("_", e),))


def _nest(nest: tuple[tuple[str, int], ...], guards: tuple[Expr, ...], body: Body) -> Stmt:
    inner = body
    if guards:
        cond = guards[0]
        for g in guards[1:]:
            cond = apply("land", cond, g)
        inner = (If(cond, body),)
    for name, extent in reversed(nest):
        inner = (For(name, const(extent), "parallel", inner),)
    return inner[0]


def _accesses(body: Body, name: str) -> list[tuple[Expr, ...]]:
    """Indices of all loads and stores of a buffer."""
    out = [s.indices for s in statements(body) if isinstance(s, Store) and s.buffer == name]
    out += [n.args for s in statements(body) for n in loads(own_expressions(s)) if n.attr == name]
    return out


def _separates(name: str, indices: list[Expr], spans: Mapping[str, int], lets: Mapping[str, Expr]) -> bool:
    """True where these indices (of one dim) differ between any two values of `name`: index = c * name + rest with the
    same c > 0 and base everywhere, and the rests within c of each other."""
    me = var(name)
    low, high, step, base = 0, 0, None, None
    for number, index in enumerate(indices):
        form = affine(bind(dict(lets))(index))
        terms = dict(form.terms)
        c = terms.pop(me, 0)
        inner = {a: f for a, f in terms.items() if a.op == "var" and a.attr in spans}
        outer = {a: f for a, f in terms.items() if a not in inner}
        if c <= 0 or any(name in _names(a) or _names(a) & set(spans) for a in outer):
            return False
        ends = [f * (spans[str(a.attr)] - 1) for a, f in inner.items()]
        lo, hi = form.constant + sum(min(e, 0) for e in ends), form.constant + sum(max(e, 0) for e in ends)
        if number == 0:
            low, high, step, base = lo, hi, c, outer
        elif (c, outer) != (step, base):
            return False
        low, high = min(low, lo), max(high, hi)
    return step is not None and high - low < step
