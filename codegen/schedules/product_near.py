"""The inside of a matrix product tile on the CPU: A and B are read where they lie.

The product itself decodes codes and scales (once per tile for A, once per column block for B), so nothing is staged
except rows of A that are no plain run of rows: gathered ones, and rows of one group of [M, G, K].
"""
from __future__ import annotations

from dinfc.ir.scalar import Expr, const
from dinfc.ir.tile.program import Alloc, Buffer, Copy, Dot, Fill

from .dot_order import DotOrder
from .product import PACK, Operand, Product, add_tile
from .tiles import Body, blocks, local, loop, store


def near_product(p: Product) -> tuple[Body, Buffer]:
    """Statements that compute the tile, and the buffer that then holds it."""
    acc = local("acc" + p.tag, "f32", p.m, p.n, space="accumulator")
    rows = _Rows(p)
    body: Body = [Alloc(acc), *rows.load()]
    if not p.order.slice:
        return [*body, Fill(acc.name, const(0.0)), *_dots(p, rows, acc, const(0), p.k)], acc
    total = local("total" + p.tag, "f32", p.m, p.n, space="accumulator")
    body += [Alloc(total), Fill(total.name, const(0.0))]
    for number, (first, count, size) in enumerate(blocks(p.k, p.order.slice)):

        def one(s: Expr, first: int = first, size: int = size) -> Body:
            return [Fill(acc.name, const(0.0)), *_dots(p, rows, acc, s * size + first, size),
                    *add_tile(p, total, acc)]

        body += loop(f"slice{number}{p.tag}", count, one)
    return body, total


class _Rows:
    """The rows of A of one tile: in place, or collected in near buffers with their codes as they are."""

    def __init__(self, p: Product) -> None:
        self.p = p
        self.in_place = p.gather is None and not p.a_grouped
        codec = p.a.codec
        self.data, self.scales = p.a.data, p.a.scales
        if not self.in_place:
            self.data = local("a_rows" + p.tag, p.a.data.dtype, p.m, p.a.stored_width(p.k))
            self.scales = local("a_scales" + p.tag, "u8", p.m, p.k // codec.group) if codec else None

    def load(self) -> Body:
        if self.in_place:
            return []
        p = self.p
        out: Body = []
        pairs = [(self.data, p.a.data), (self.scales, p.a.scales)]
        for number, (near, source) in enumerate(pairs):
            if near is None or source is None:
                continue
            out.append(Alloc(near))
            if p.gather is not None:
                out.append(Copy(near.name, source.name, (const(0), const(0)), (p.row_end, None), p.gather))
            else:
                out += self._group_rows(near, source, number)
        return out

    def _group_rows(self, near: Buffer, source: Buffer, number: int) -> Body:
        width = near.shape[1].attr
        assert isinstance(width, int)
        p, tag = self.p, f"{number}{self.p.tag}"
        return loop("gi" + tag, p.rows, lambda i: loop("gk" + tag, width, lambda k: [
            store(near, (i, k), source[p.row0 + i, *p.a.lead, k])], "vector"))

    def at(self, k: Expr) -> tuple[Expr, Expr]:
        return (self.p.row0 if self.in_place else const(0)), k


def _dots(p: Product, rows: _Rows, acc: Buffer, k0: Expr, size: int) -> Body:
    """One product over `size` elements of K; a rest of less than a group (values only) is a shorter last chain."""
    out: Body = []
    for first, count, chain in blocks(size, p.order.group):
        k = k0 + first
        scales = {}
        if rows.scales is not None and p.b.scales is not None and p.b.codec is not None:
            g = k // p.b.codec.group
            scales = {"a_scale": rows.scales.name, "a_scale_at": rows.at(g), "b_scale": p.b.scales.name,
                      "b_scale_at": (*p.b.lead, p.column0 // p.b.codec.rows, g)}
        out.append(Dot(
            acc.name, rows.data.name, rows.at(p.a.stored(k)), p.b.data.name, _columns_at(p.b, p.column0, k),
            p.m, p.n, count * chain, chain, p.b.layout or "nk", a_codec=p.a.code, b_codec=p.b.code,
            b_scale_rows=p.b.codec.rows if p.b.codec else 1, order=str(DotOrder(chain)), rows=p.rows,
            **scales))  # type: ignore[arg-type]
    return out


def _columns_at(b: Operand, column0: Expr, k: Expr) -> tuple[Expr, ...]:
    """Offsets of element (column0, k) of B in its layout."""
    if b.layout:
        return (*b.lead, column0 // PACK, k, const(0))
    return (*b.lead, column0, b.stored(k))
