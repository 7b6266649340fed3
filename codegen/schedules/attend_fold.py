"""The online softmax of `attend`: buffers of one instance, and how a block of keys is folded into them."""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.ir.scalar import Expr, apply, const, select, var
from dinfc.ir.tile.program import Alloc, Buffer, Dot, Fill, Let, Reduce

from .dot_order import DotOrder
from .tiles import Body, eq, local, loop, ne, store

AT_START = (const(0), const(0))
NEVER = float("-inf")


@dataclass(frozen=True)
class AttendTiles:
    """Buffers of one instance: `heads` queries, a block of `keys` keys, logits and probabilities [heads, keys], and the
    running maximum m, denominator and output. `lanes`: loop kind of independent elements."""

    keys: int
    heads: int
    d: int
    lanes: str
    q: Buffer
    key: Buffer
    logit: Buffer
    p: Buffer
    o: Buffer
    entry: Buffer
    m: Buffer
    denominator: Buffer

    def allocs(self) -> Body:
        return [Alloc(b) for b in (self.q, self.key, self.logit, self.p, self.o, self.entry, self.m, self.denominator)]

    def valid(self, i: Expr) -> Expr:
        return ne(self.entry[i], -1)


def attend_tiles(keys: int, heads: int, d: int, devices: bool) -> AttendTiles:
    """fp32 operands near the core; on devices bf16 ones in shared memory (every codec decodes exactly to bf16)."""
    near, elem = ("shared", "bf16") if devices else ("near", "f32")
    return AttendTiles(
        keys, heads, d, "parallel" if devices else "vector",
        q=local("q_tile", elem, heads, d, space=near), key=local("key_tile", elem, keys, d, space=near),
        logit=local("logit", "f32", heads, keys, space="accumulator"), p=local("p", "f32", heads, keys, space=near),
        o=local("o", "f32", heads, d, space="accumulator"), entry=local("entry", "i32", keys, space=near),
        m=local("m", "f32", heads, space=near), denominator=local("denominator", "f32", heads, space=near))


def fold_block(t: AttendTiles, group: int, scale: float) -> Body:
    """Folds the decoded block into m, denominator and o; sums over its keys run in list order."""
    def scaled(h: Expr, i: Expr) -> Expr:
        return t.logit[h, i] * scale

    def one_head(h: Expr) -> Body:
        top, old = var("top", "f32"), var("old", "f32")
        # Equal maxima give 1 without a subtraction, so that a sink of -inf does not become -inf - -inf.
        shrink = select(eq(old, top), const(1.0), apply("exp", old - top))
        return [
            Let("old", t.m[h]),
            Reduce("top", "max", "x", const(t.keys), select(t.valid(var("x")), scaled(h, var("x")), const(NEVER)),
                   old, 1),
            Let("shrink", shrink), store(t.m, (h,), top),
            # An absent key selects weight 0; its logit is not looked at.
            *loop("i", t.keys, lambda i: [store(
                t.p, (h, i), select(t.valid(i), apply("exp", scaled(h, i) - top), const(0.0)))], t.lanes),
            Reduce("share", "sum", "y", const(t.keys), t.p[h, var("y")], const(0.0), 1),
            store(t.denominator, (h,), t.denominator[h] * var("shrink", "f32") + var("share", "f32")),
            *loop("c", t.d, lambda c: [store(t.o, (h, c), t.o[h, c] * var("shrink", "f32"))], t.lanes)]

    return [
        Fill(t.logit.name, const(0.0)),
        Dot(t.logit.name, t.q.name, AT_START, t.key.name, AT_START, t.heads, t.keys, t.d, group, "nk",
            order=str(DotOrder(group))),
        *loop("h", t.heads, one_head),
        Dot(t.o.name, t.p.name, AT_START, t.key.name, AT_START, t.heads, t.d, t.keys, t.keys, "kn",
            order=str(DotOrder(t.keys)))]
