"""The inside of a matrix product tile for devices: a pipelined K loop that stages both operands in shared memory.

Codes and scales are copied as they are stored; the emitter decides what its tensor unit wants (block-scaled
instructions, or codes decoded to bf16 on the way to registers). Both operands are row-major along K (`nk`).
"""
from __future__ import annotations

from dinfc.ir.graph import IRError
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, const, land, select, var
from dinfc.ir.tile.program import Alloc, Buffer, Copy, Dot, Fill, For

from .dot_order import DotOrder
from .product import Operand, Product, add_tile
from .tiles import Body, largest_divisor, local, loop, lt, store

TILE_K = 128  # K elements of a stage where the target does not say


def staged_product(p: Product, limits: TargetLimits) -> tuple[Body, Buffer]:
    """Statements that compute the tile from staged operands, and the buffer that then holds it.

    Raises IRError for a packed weight (devices read rows along K) and for K that cannot be cut into equal stages.
    """
    if p.b.layout:
        raise IRError(f"%{p.b.value.name} has the packed layout {p.b.layout}; staged products read row-major weights")
    sliced = bool(p.order.slice)
    span = p.order.slice if sliced and p.k > p.order.slice else p.k
    if p.k % span:
        raise IRError(f"K = {p.k} is not a multiple of the slice {span}: staged products need equal slices")
    step = _stage_length(p, span, limits.extra.get("tile_k", TILE_K))
    acc = local("acc" + p.tag, "f32", p.m, p.n, space="accumulator")
    total = local("total" + p.tag, "f32", p.m, p.n, space="accumulator") if sliced else acc
    a_tiles = _stage("a", p.a, p.m, step)
    b_tiles = _stage("b", p.b, p.n, step)
    body = [*([Alloc(total)] if sliced else []), *(Alloc(t) for t in (acc, *a_tiles, *b_tiles))]
    out: Body = [*body, Fill(total.name, const(0.0))]

    def pipeline(first: Expr) -> Body:
        k0 = first + var("ks") * step
        inner = [*_load_a(p, a_tiles, k0, step), *_load_b(p, b_tiles, k0), _dot(p, acc, a_tiles, b_tiles, step)]
        return [For("ks", const(-(-span // step)), "pipelined", tuple(inner))]

    if not sliced:
        return out + pipeline(const(0)), acc
    return out + loop("slice", p.k // span, lambda s: [
        Fill(acc.name, const(0.0)), *pipeline(s * span), *add_tile(p, total, acc, "parallel")]), total


def _stage_length(p: Product, span: int, limit: int) -> int:
    """The longest stage of whole chains that divides the span; values may also end in a stage that zeros fill up (a
    zero product leaves every chain and sum as it is)."""
    if step := largest_divisor(span, limit, p.order.group):
        return step
    if p.a.codec is not None:
        raise IRError(f"K = {p.k} cannot be cut into stages of whole groups of {p.order.group}")
    return min(limit, -(-span // p.order.group) * p.order.group)


def _stage(name: str, o: Operand, rows: int, step: int) -> tuple[Buffer, ...]:
    """Shared buffers of one stage of an operand: values or codes, then scales."""
    codec = o.codec
    data = local(f"{name}_tile", o.data.dtype, rows, o.stored_width(step), space="shared")
    if codec is None:
        return (data,)
    # A block scale covers `rows` columns; a tile of n columns starts on a block when both are multiples of it.
    scale_rows = -(-rows // codec.rows)
    return data, local(f"{name}_scale", "u8", scale_rows, step // codec.group, space="shared")


def _load_a(p: Product, tiles: tuple[Buffer, ...], k0: Expr, step: int) -> Body:
    """Rows of A as one 2-d tile. With a group index between row and K the tile is no box of equal rank, so the
    elements are stored one by one."""
    codec = p.a.codec
    sources = [(tiles[0], p.a.data, p.a.stored(k0), p.a.stored_width(p.k), p.a.stored_width(step))]
    if codec is not None:
        assert p.a.scales is not None
        sources.append((tiles[1], p.a.scales, k0 // codec.group, p.k // codec.group, step // codec.group))
    if not p.a_grouped:
        return [Copy(tile.name, source.name, (const(0) if p.gather else p.row0, k), (p.row_end, const(end)), p.gather)
                for tile, source, k, end, _ in sources]
    out: Body = []
    for number, (tile, source, k, end, width) in enumerate(sources):

        def row(i: Expr, tile: Buffer = tile, source: Buffer = source, k: Expr = k, end: int = end,
                width: int = width, tag: str = f"ak{number}") -> Body:
            def element(j: Expr) -> Body:
                there = land(lt(p.row0 + i, p.row_end), lt(k + j, end))
                return [store(tile, (i, j), select(there, source[p.row0 + i, *p.a.lead, k + j], const(0, tile.dtype)))]
            return loop(tag, width, element, "parallel")

        out += loop(f"ai{number}", p.m, row, "parallel")
    return out


def _load_b(p: Product, tiles: tuple[Buffer, ...], k0: Expr) -> Body:
    """Columns of B (of one expert or group): zeros beyond the last column and the last K element."""
    codec = p.b.codec
    none = tuple(None for _ in p.b.lead)
    out: Body = [Copy(tiles[0].name, p.b.data.name, (*p.b.lead, p.column0, p.b.stored(k0)),
                      (*none, const(p.columns), const(p.b.stored_width(p.k))))]
    if codec is not None:
        assert p.b.scales is not None
        out.append(Copy(tiles[1].name, p.b.scales.name, (*p.b.lead, p.column0 // codec.rows, k0 // codec.group),
                        (*none, const(-(-p.columns // codec.rows)), const(p.k // codec.group))))
    return out


def _dot(p: Product, acc: Buffer, a: tuple[Buffer, ...], b: tuple[Buffer, ...], step: int) -> Dot:
    scaled = len(a) > 1
    zero = (const(0), const(0))
    return Dot(
        acc.name, a[0].name, zero, b[0].name, zero, p.m, p.n, step, p.order.group,
        b_layout="nk", a_codec=p.a.code, b_codec=p.b.code,
        a_scale=a[1].name if scaled else None, a_scale_at=zero if scaled else None,
        b_scale=b[1].name if scaled else None, b_scale_at=zero if scaled else None,
        b_scale_rows=p.b.codec.rows if p.b.codec else 1, order=str(DotOrder(p.order.group)))
