"""Loop nests of row programs: loops split and cut until every index is plain arithmetic (row_index.py).

A nest starts with one loop a dim. Where writing its body asks for another loop structure (`LoopRequest`), the loop is
split in two or cut in two parts, and the body is written again; loops around a cut stay shared by both parts.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dinfc.ir.scalar import Expr, const, substitute, var
from dinfc.ir.tile.program import For, Reduce, Stmt, statements

from .row_index import CutLoop, SplitLoop, affine
from .tiles import Body

Indices = tuple[Expr, ...]
Write = Callable[[Indices, Mapping[str, int]], Body]  # element indices, extents of the loops around -> statements
FULL_UNROLL = 4  # loops of at most that many iterations are left to the compiler's unroller
MAX_CHANGES = 64  # a body that asks for more changes than this is written with divisions


@dataclass
class Names:
    """Fresh names inside one program."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, hint: str) -> str:
        """`hint`, or the hint with a number where it is taken."""
        name, number = hint, 1
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        return name


@dataclass(frozen=True)
class _Loop:
    var: str
    extent: int


def nest(extents: Sequence[int], names: Names, write: Write) -> Body:
    """Loops over all elements of the given extents. `write(indices, extents of loops)` gives the body; it may be called
    several times and must not keep anything from one call to the next."""
    loops = [_Loop(names.fresh(f"i{n}"), e) for n, e in enumerate(extents)]
    indices = tuple(const(0) if loop.extent == 1 else var(loop.var) for loop in loops)
    return _Nest(names, write).build([loop for loop in loops if loop.extent > 1], indices)


@dataclass
class _Nest:
    names: Names
    write: Write
    changes: int = 0

    def build(self, loops: list[_Loop], indices: Indices) -> Body:
        extents = {loop.var: loop.extent for loop in loops} if self.changes <= MAX_CHANGES else {}
        try:
            body = self.write(indices, extents)
        except SplitLoop as request:
            return self._split(loops, indices, request)
        except CutLoop as request:
            return self._cut(loops, indices, request)
        return wrap(loops, body)

    def _split(self, loops: list[_Loop], indices: Indices, request: SplitLoop) -> Body:
        """v = outer * inner_extent + inner."""
        self.changes += 1
        at = next(n for n, loop in enumerate(loops) if loop.var == request.var)
        outer = _Loop(self.names.fresh(request.var + "o"), loops[at].extent // request.inner)
        inner = _Loop(self.names.fresh(request.var + "i"), request.inner)
        parts = [loop for loop in (outer, inner) if loop.extent > 1]
        value = (var(outer.var) if outer.extent > 1 else const(0)) * request.inner
        value = value + (var(inner.var) if inner.extent > 1 else const(0))
        return self.build([*loops[:at], *parts, *loops[at + 1:]], _replace(indices, request.var, value))

    def _cut(self, loops: list[_Loop], indices: Indices, request: CutLoop) -> Body:
        """[0, at), then [at, extent)."""
        self.changes += 1
        at = next(n for n, loop in enumerate(loops) if loop.var == request.var)
        out: Body = []
        for first, extent in ((0, request.at), (request.at, loops[at].extent - request.at)):
            part = _Loop(self.names.fresh(request.var + "c"), extent)
            value = first + (var(part.var) if extent > 1 else const(0))
            inside = [part] if extent > 1 else []
            out = join(out, self.build([*loops[:at], *inside, *loops[at + 1:]],
                                       _replace(indices, request.var, value)))
        return out


def _replace(indices: Indices, name: str, value: Expr) -> Indices:
    return tuple(affine(substitute(i, lambda n: value if n.op == "var" and n.attr == name else None)).expr()
                 for i in indices)


def wrap(loops: Sequence[_Loop], body: Body) -> Body:
    """The loops around a body; the innermost is for the vector unit where nothing inside reduces."""
    for number, loop in enumerate(reversed(loops)):
        flat = number == 0 and not any(isinstance(s, Reduce | For) for s in statements(tuple(body)))
        kind = "vector" if flat and loop.extent > FULL_UNROLL else "serial"
        body = [For(loop.var, const(loop.extent), kind, tuple(body))]
    return body


def join(a: Body, b: Body) -> Body:
    """Both bodies one after the other; where both are one loop over the same variable, inside that loop."""
    if len(a) == 1 and len(b) == 1 and isinstance(a[0], For) and isinstance(b[0], For) and same_loop(a[0], b[0]):
        inner = join(list(a[0].body), list(b[0].body))
        flat = not any(isinstance(s, Reduce | For) for s in statements(tuple(inner)))
        kind = a[0].kind if a[0].kind == b[0].kind else "serial"
        if flat and isinstance(a[0].extent.attr, int) and a[0].extent.attr > FULL_UNROLL:
            kind = "vector"
        return [For(a[0].var, a[0].extent, kind, tuple(inner))]
    return [*a, *b]


def same_loop(a: Stmt, b: Stmt) -> bool:
    return isinstance(a, For) and isinstance(b, For) and a.var == b.var and a.extent == b.extent
