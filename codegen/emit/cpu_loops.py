"""Which loops the CPU emitter hands to the vectoriser, and loops whose guard can become their bound."""
from __future__ import annotations

from dinfc.ir.scalar import Expr, walk
from dinfc.ir.tile.program import Comment, For, If, Let, Stmt, Store


def is_simd_loop(s: For) -> bool:
    """A loop of independent iterations with nothing but scalars and stores inside."""
    return s.kind in ("vector", "parallel") and all(_is_flat(inner) for inner in s.body)


def _is_flat(s: Stmt) -> bool:
    if isinstance(s, If):
        return all(_is_flat(inner) for inner in (*s.then, *s.otherwise))
    return isinstance(s, Store | Let | Comment)


def clipped_extent(s: For) -> tuple[Expr, tuple[Stmt, ...]] | None:
    """`for v in N: store .. where a + v < b` is `for v in min(N, b - a): store ..`: (b - a, body without the guard).

    Compilers cannot vectorise a guarded store of small elements; the loop without the guard they can.
    """
    if s.kind not in ("vector", "parallel") or len(s.body) != 1:
        return None
    (only,) = s.body
    if isinstance(only, Store) and only.where is not None:
        guard, body = only.where, (Store(only.buffer, only.indices, only.value),)
    elif isinstance(only, If) and not only.otherwise:
        guard, body = only.cond, only.then  # type: ignore[assignment]
    else:
        return None
    if guard.op != "lt" or guard.args[0].dtype != "i32":
        return None
    rest = _without(guard.args[0], s.var)
    bound = guard.args[1]
    if rest is None or _mentions(bound, s.var):
        return None
    if any(n.op == "load" for e in (rest, bound) for n in walk(e)):  # a store inside could change what it reads
        return None
    return bound - rest, body


def _mentions(node: Expr, name: str) -> bool:
    return any(n.op == "var" and n.attr == name for n in walk(node))


def _without(node: Expr, name: str) -> Expr | None:
    """`a` where node = a + name; None where it has another form."""
    if node.op == "var" and node.attr == name:
        return Expr("const", (), "i32", 0)
    if node.op != "add":
        return None
    for own, other in (node.args, node.args[::-1]):
        if not _mentions(other, name):
            inner = _without(own, name)
            if inner is not None:
                return inner + other
    return None
