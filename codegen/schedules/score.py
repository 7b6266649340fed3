"""`index_score`: index logits of a row against its compressed tokens, read from the paged index cache (spec 2.6, 2.8).

Grid: rows (of the chunk), then spans of columns. An instance walks its span in tiles of tokens, as far as the row's
own end: per tile the records are collected (codes and scale bytes as they are), multiplied by all heads, and folded
over the heads in order, acc = fma(w_h, max(0, dot_h), acc) from 0. Columns at or beyond the end are neither computed
nor written.

Column c is compressed token c, or, with candidate blocks, token cand[c / block] * block + c mod block. A token whose
page is not in the cache scores 0; its record is not touched.
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.codegen.binding import dim_expr
from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, bf16, const, f32, fma, land, select, var
from dinfc.ir.tile.program import Alloc, Buffer, Dot, Fill, Let, Program
from dinfc.ir.types import Codec, StateType

from .anchor import Anchor, codec_of, constant_dim, find_anchor, state_of
from .dot_order import DotOrder
from .records import page_record
from .tiles import Body, ceil_div, either, ge, inside, local, loop, lt, maximum, minimum, store

TILE = 64  # tokens of a product
SPAN = 1024  # columns of an instance


def score_order(group: int) -> str:
    """The order text that this schedule realises: a dot product per head, then a chain over the heads."""
    return f"heads(dot {DotOrder(group)}; chain fma)"


@dataclass(frozen=True)
class _Score:
    """The parts of one `index_score` and the buffers of an instance: a tile of keys (codes and scale bytes as they are
    stored), the products [heads, tokens] and their weighted sum."""

    anchor: Anchor
    heads: int
    d: int
    codec: Codec
    state: StateType
    tile: int
    key: Buffer
    key_scale: Buffer
    dot: Buffer
    acc: Buffer
    lanes: str

    def operand(self, number: int) -> Buffer:
        return self.anchor.buffer(self.anchor.op.operands[number])


@dataclass(frozen=True)
class ScoreSchedule:
    """Schedule of regions whose anchor is `index_score`."""

    anchor: str = "score"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError where operands do not fit together or the order is not `score_order`."""
        anchor = find_anchor(region, ("index_score",))
        op = anchor.op
        s = _parts(anchor, limits)
        order = score_order(s.codec.group)
        if op.attrs.get("order") not in (None, "", order):
            raise IRError(f"index_score realises {order!r}, the op asks for {op.attrs['order']!r}", op)
        width = anchor.int_attr("width")
        span = min(SPAN, -(-width // s.tile) * s.tile)
        rows = anchor.rows(op.operands[0])
        t, base = var("t"), var("base")
        left = maximum(minimum(s.operand(5)[anchor.at(op.operands[5], t)], width) - base, 0)
        walk = [
            *[Alloc(b) for b in (s.key, s.key_scale, s.dot, s.acc)],
            *loop("tile", ceil_div(minimum(var("left"), span), s.tile), lambda tile: [
                Let("column0", base + tile * s.tile), Let("left_here", var("left") - tile * s.tile),
                *loop("x", s.tile, lambda x: _read_key(s, x)),
                *_fold_heads(s),
                *_write(s)]),
        ]
        body: Body = [
            Let("t", rows.row(var("r"))), Let("base", var("jb") * span), Let("left", left),
            Let("seq_row", s.operand(4)[anchor.at(op.operands[4], t)]),
            either(land(lt(0, var("left")), inside(var("seq_row"), dim_expr(op.operands[3].tensor.shape[0]))), walk)]
        grid = (("r", rows.count), ("jb", const(-(-width // span))))
        return anchor.program(name, self.anchor, grid, body, (order,), {"tile": s.tile, "span": span})


def _parts(anchor: Anchor, limits: TargetLimits) -> _Score:
    op = anchor.op
    q, keys = op.operands[0], op.operands[2]
    heads, d = constant_dim(q, 1), constant_dim(q, 2)
    codec, state = codec_of(q), state_of(keys, "pages")
    if state.codec != codec or state.width != d or d % codec.group:
        raise IRError(f"index_score needs keys like its queries, {codec.name} of {d}: {state}", op)
    devices = bool(limits.extra.get("stage_operands"))
    near = "shared" if devices else "near"
    groups, tile = d // codec.group, limits.extra.get("score_tile", TILE)
    return _Score(
        anchor, heads, d, codec, state, tile,
        key=local("key_codes", "u8", tile, codec.code_bytes(d), space=near),
        key_scale=local("key_scale", "u8", tile, groups, space=near),
        dot=local("dot", "f32", heads, tile, space="accumulator"), acc=local("acc", "f32", tile, space=near),
        lanes="parallel" if devices else "vector")


def _token(s: _Score, column: Expr) -> Expr:
    """Compressed token of a column below the end; negative where a candidate block is absent."""
    op = s.anchor.op
    block = s.anchor.int_attr("block", 0)
    if len(op.operands) < 7 or block == 0:
        return column
    cand = op.operands[6]
    at = s.anchor.at(cand, var("t")), minimum(column // block, constant_dim(cand, 1) - 1)
    first = s.anchor.buffer(cand)[at]
    return select(lt(first, 0), const(-1), first * block + column % block)


def _read_key(s: _Score, x: Expr) -> Body:
    """Copies the record of column column0 + x into row x of the key tile; code zero where there is none."""
    table, groups, code_bytes = s.operand(3), s.d // s.codec.group, s.codec.code_bytes(s.d)
    max_pages = dim_expr(s.anchor.op.operands[3].tensor.shape[1])
    token, page, capacity = var("token"), var("page"), s.state.capacity
    codes, scales = page_record(s.operand(2), s.state, page, var("slot"))
    present: Body = [
        Let("slot", token % capacity),
        *loop("kb", code_bytes, lambda b: [store(s.key, (x, b), codes(b))], s.lanes),
        *loop("kg", groups, lambda g: [store(s.key_scale, (x, g), scales(g))])]
    absent: Body = [
        *loop("zb", code_bytes, lambda b: [store(s.key, (x, b), 0)], s.lanes),
        *loop("zg", groups, lambda g: [store(s.key_scale, (x, g), 0)])]
    in_table = land(ge(token, 0), lt(token // capacity, max_pages))
    return [
        Let("token", select(lt(x, var("left_here")), _token(s, var("column0") + x), const(-1))),
        Let("page", select(in_table, table[var("seq_row"), token // capacity], const(-1))),
        either(inside(page, var("pages")), present, absent)]


def _fold_heads(s: _Score) -> Body:
    """All heads' products, then relu and the weighted sum over heads in order."""
    q, w = s.anchor.op.operands[:2]
    row, zero = var("t"), const(0)

    def head(h: Expr) -> Body:
        return [Let("weight", f32(s.anchor.buffer(w)[s.anchor.at(w, row), h])), *loop("hx", s.tile, lambda x: [
            store(s.acc, (x,), fma(var("weight", "f32"), maximum(s.dot[h, x], 0.0), s.acc[x]))], s.lanes)]

    return [
        Fill(s.dot.name, const(0.0)),
        Dot(s.dot.name, s.anchor.buffer(q).name, (s.anchor.at(q, row), zero, zero), s.key.name, (zero, zero),
            s.heads, s.tile, s.d, s.codec.group, "nk", a_codec=s.codec.code, b_codec=s.codec.code,
            a_scale=s.anchor.scales(q).name, a_scale_at=(s.anchor.at(q, row), zero, zero),
            b_scale=s.key_scale.name, b_scale_at=(zero, zero), order=str(DotOrder(s.codec.group))),
        Fill(s.acc.name, const(0.0)), *loop("h", s.heads, head)]


def _write(s: _Score) -> Body:
    """bf16 results below the end. Adding +0 after the rounding makes -0 into +0: selection compares bit patterns."""
    out = s.anchor.op.result
    row = s.anchor.at(out, var("t"))

    def one(x: Expr) -> Body:
        column = var("column0") + x
        return [store(s.anchor.buffer(out), (row, column), bf16(f32(bf16(s.acc[x])) + 0.0), lt(x, var("left_here")))]

    return loop("ox", s.tile, one, s.lanes)
