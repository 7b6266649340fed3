"""Cuts an accumulator into column blocks of their own, for units that work on a few columns at once.

`o: f32[64, 512]` becomes `o_0 .. o_3: f32[64, 128]`; a nest over all its columns becomes one nest a block. Elements do
not move between rows or columns, so no bit changes.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dinfc.ir.scalar import Expr, const, load, substitute, var
from dinfc.ir.tile.program import Alloc, Buffer, Fill, For, If, Program, Stmt, Store, statements

from .device_walk import Body, DeviceError, bind, buffers_of, loads, own_expressions, rewrite, sizes
from .row_index import affine


def split_accumulators(program: Program, names: frozenset[str], width: int) -> Program:
    """The program with these accumulators cut into blocks of `width` columns.

    Raises DeviceError for an access that is not `[loop of rows, loop of columns]` or within one block.
    """
    buffers = buffers_of(program)
    split = {n: buffers[n] for n in sorted(names) if sizes(buffers[n])[1] > width}
    if not split:
        return program
    splitter = _Splitter(split, width)
    if taken := {b.name for name in split for b in splitter.parts(name)} & set(buffers):
        raise DeviceError(f"two buffers would be called {min(taken)}")
    return replace(program, body=splitter.block(program.body))


@dataclass
class _Splitter:
    split: Mapping[str, Buffer]
    width: int

    def part(self, name: str, number: int) -> Buffer:
        old = self.split[name]
        return Buffer(f"{name}_{number}", old.dtype, (old.shape[0], const(self.width)), old.space)

    def parts(self, name: str) -> list[Buffer]:
        return [self.part(name, n) for n in range(sizes(self.split[name])[1] // self.width)]

    def block(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Alloc) and s.buffer.name in self.split:
                out += [Alloc(b) for b in self.parts(s.buffer.name)]
            elif isinstance(s, Fill) and s.buffer in self.split:
                out += [Fill(b.name, s.value) for b in self.parts(s.buffer)]
            elif isinstance(s, For) and s.kind == "parallel" and self.touched(s):
                out += self.nest(s)
            elif isinstance(s, For):
                out.append(replace(s, body=self.block(s.body)))
            elif isinstance(s, If):
                out.append(If(s.cond, self.block(s.then), self.block(s.otherwise)))
            elif self.touched(s):
                raise DeviceError(f"accumulator {min(self.touched(s))} is used outside a parallel nest")
            else:
                out.append(s)
        return tuple(out)

    def touched(self, s: Stmt) -> set[str]:
        return {name for inner in statements((s,)) for name, _ in _uses(inner) if name in self.split}

    def nest(self, s: For) -> list[Stmt]:
        """One nest a block of columns, or the nest itself where it stays inside one."""
        columns = {i[1] for inner in statements((s,)) for name, i in _uses(inner) if name in self.split}
        if len(columns) != 1:
            raise DeviceError(f"loop {s.var}: columns of an accumulator are indexed in two ways")
        form = affine(columns.pop())
        loops = {inner.var: inner for inner in statements((s,)) if isinstance(inner, For)}
        (atom, factor), = form.terms.items()
        loop = loops.get(str(atom.attr))
        if factor != 1 or loop is None or not isinstance(loop.extent.attr, int):
            raise DeviceError(f"loop {s.var}: columns of an accumulator are no loop over them")
        if loop.extent.attr == self.width and form.constant % self.width == 0:
            return [self.renamed(s, loop, form.constant // self.width, form.constant)]
        if form.constant or loop.extent.attr % self.width:
            raise DeviceError(f"loop {loop.var} does not run over whole blocks of {self.width} columns")
        return [self.renamed(s, loop, n, 0) for n in range(loop.extent.attr // self.width)]

    def renamed(self, s: For, loop: For, number: int, inside: int) -> Stmt:
        """The nest on one block: `loop` runs over its columns, elsewhere its variable counts from the first block."""
        shift = {} if inside else {loop.var: var(loop.var) + number * self.width}
        first = inside or number * self.width

        def local(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return indices[0], affine(bind(shift)(indices[1]) - first).expr()

        def change(e: Expr) -> Expr:
            def leaf(n: Expr) -> Expr | None:
                if n.op == "load" and n.attr in self.split:
                    return load(self.part(str(n.attr), number).name, local(n.args), n.dtype)
                return shift.get(str(n.attr)) if n.op == "var" else None

            return substitute(e, leaf)

        def walk(body: Body) -> Body:
            out: list[Stmt] = []
            for inner in body:
                if isinstance(inner, Store) and inner.buffer in self.split:
                    out.append(Store(self.part(inner.buffer, number).name, local(inner.indices), change(inner.value),
                                     None if inner.where is None else change(inner.where)))
                elif isinstance(inner, For):
                    extent = const(self.width) if inner is loop else inner.extent
                    out.append(replace(inner, extent=extent, body=walk(inner.body)))
                elif isinstance(inner, If):
                    out.append(If(change(inner.cond), walk(inner.then), walk(inner.otherwise)))
                else:
                    out.append(rewrite(inner, change))
            return tuple(out)

        return walk((s,))[0]


def _uses(s: Stmt) -> list[tuple[str, tuple[Expr, ...]]]:
    """Buffers that the statement itself reads or stores element by element, with the indices."""
    out = [(str(n.attr), n.args) for n in loads(own_expressions(s))]
    return [*out, (s.buffer, s.indices)] if isinstance(s, Store) else out
