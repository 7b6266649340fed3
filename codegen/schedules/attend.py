"""`sparse_attend`: every row over its own list of keys, from three sources, with a sink logit (spec 2.9).

Grid: rows, then blocks of heads. An instance walks the row's list from its first entry in blocks of a fixed number of
keys. A block's records are decoded to fp32 (an absent key is a zero row), then, per head:

    s = scale * <q, k>;  m' = max(m, s of the valid keys);  a = exp(m - m');  p = exp(s - m'), 0 for an absent key
    l = l * a, then + p key by key;  o = o * a, then + p k, the block's keys as one chain

m starts at the sink logit, l and o at 0; at the end o / (l + exp(sink - m)). Blocks and their order depend on the list
alone, so a row has the same bits in every batch, chunk and step kind (design section 8).

A block without a single valid key is skipped: with it m' = m and a = 1, l gains zeros, o is multiplied by 1 and gains
zeros. The condition reads this row's list only, never another row's, so the same row always skips the same blocks.

An entry is absent unless its offset is inside its source; the sign says nothing (source 2 makes an i32 negative).
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.codegen.binding import dim_expr
from dinfc.ir.graph import IRError, Module, Op, Value
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, apply, bf16, cast, const, select, var
from dinfc.ir.tile.program import Fill, Let, Program, Reduce

from .anchor import Anchor, codec_of, constant_dim, find_anchor, state_of
from .attend_fold import AttendTiles, attend_tiles, fold_block
from .dot_order import DotOrder
from .records import decode_scaled, page_record, ring_record, value_record
from .tiles import Body, either, eq, largest_divisor, loop, lt, minimum, ne, store

OFFSET_BITS = 30
OFFSET_MASK = (1 << OFFSET_BITS) - 1
HEAD_BLOCK = 32  # heads of an instance where the target does not say: decoded keys are reused by so many heads
CURRENT, RING, PAGES = 0, 1, 2


def attend_order(keys: int, dot_group: int) -> str:
    """The order text that this schedule realises: blocks of keys, logits by chains of `dot_group` channels."""
    return f"chain({keys} keys; dot {DotOrder(dot_group)})"


@dataclass(frozen=True)
class AttendSchedule:
    """Schedule of regions whose anchor is `sparse_attend`."""

    anchor: str = "attend"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError where operands do not fit together or the order is not `attend_order`."""
        anchor = find_anchor(region, ("sparse_attend",))
        op = anchor.op
        q, index, current, ring, sink = op.operands[:5]
        heads, d = constant_dim(q, 1), constant_dim(q, 2)
        keys, group = limits.key_block, limits.dot_group
        order = attend_order(keys, group)
        if op.attrs.get("order") not in (None, "", order):
            raise IRError(f"sparse_attend realises {order!r}, the op asks for {op.attrs['order']!r}", op)
        scale = op.attrs.get("scale")
        if not isinstance(scale, float):
            raise IRError(f"sparse_attend needs a float attribute 'scale', it has {scale!r}", op)
        if d % group or state_of(ring, "ring").width != d or constant_dim(current, 1) != d:
            raise IRError(f"keys of sparse_attend must have {d} channels, a multiple of {group}", op)
        block = largest_divisor(heads, limits.extra.get("head_block", HEAD_BLOCK))
        devices = bool(limits.extra.get("stage_operands"))
        tiles = attend_tiles(keys, block, d, devices)

        rows = anchor.rows(q)
        h0 = var("hb") * block
        body: Body = [Let("t", rows.row(var("r"))), *tiles.allocs()]
        body += _start(tiles, anchor, q, sink, h0)
        body += loop("kb", -(-constant_dim(index, 1) // keys), lambda kb: [
            *_read_index(anchor, tiles, kb),
            Reduce("some", "max", "n", const(keys), select(ne(tiles.entry[var("n")], -1), const(1), const(0)),
                   const(0), 1),
            either(eq(var("some"), 1), [
                *loop("key_n", keys, lambda i: _read_key(anchor, tiles, i)),
                *fold_block(tiles, group, scale)]),
        ])
        body += _finish(tiles, anchor, sink, h0)
        grid = (("r", rows.count), ("hb", const(heads // block)))
        return anchor.program(name, self.anchor, grid, body, (order,), {"key_block": keys, "head_block": block})


def _start(tiles: AttendTiles, anchor: Anchor, q: Value, sink: Value, h0: Expr) -> Body:
    """Loads the query and sets m, l, o."""
    source, row = anchor.buffer(q), anchor.at(q, var("t"))

    def load_q(h: Expr, c: Expr) -> Body:
        value = source[row, h0 + h, c]
        return [store(tiles.q, (h, c), cast(value, tiles.q.dtype))]

    body = loop("qh", tiles.heads, lambda h: loop("qc", tiles.d, lambda c: load_q(h, c), tiles.lanes))
    body += loop("mh", tiles.heads, lambda h: [store(tiles.m, (h,), anchor.buffer(sink)[h0 + h])])
    return [*body, Fill(tiles.denominator.name, const(0.0)), Fill(tiles.o.name, const(0.0))]


def _sources(anchor: Anchor) -> list[tuple[int, Expr]]:
    """(source number, number of records) of every source that the op reads."""
    current, ring = anchor.op.operands[2:4]
    out = [(CURRENT, dim_expr(current.tensor.shape[0])), (RING, var("slots") * state_of(ring, "ring").capacity)]
    if len(anchor.op.operands) > 5:
        out.append((PAGES, var("pages") * state_of(anchor.op.operands[5], "pages").capacity))
    return out


def source_of(entry: Expr) -> Expr:
    return (entry >> OFFSET_BITS) & 3


def offset_of(entry: Expr) -> Expr:
    return entry & OFFSET_MASK


def _read_index(anchor: Anchor, tiles: AttendTiles, kb: Expr) -> Body:
    """The block's entries; whatever does not lie inside its source becomes -1 here, once, for everything below."""
    index = anchor.op.operands[1]
    width, keys = constant_dim(index, 1), tiles.keys
    source, row = anchor.buffer(index), anchor.at(index, var("t"))

    def entry(i: Expr) -> Body:
        at = kb * keys + i
        value = source[row, at]
        if width % keys:  # the last block is filled up with absent entries
            value = select(lt(at, width), value, -1)
        length: Expr = const(0)
        for number, extent in _sources(anchor):
            length = select(eq(source_of(var("raw_entry")), number), extent, length)
        kept = select(lt(offset_of(var("raw_entry")), length), var("raw_entry"), -1)
        return [Let("raw_entry", value), store(tiles.entry, (i,), kept)]

    return loop("en", keys, entry)


def _read_key(anchor: Anchor, tiles: AttendTiles, i: Expr) -> Body:
    """Decodes the record of entry i into row i of the key tile; zeros where it is absent."""
    current, ring = anchor.op.operands[2:4]
    row, d, lanes, extents = tiles.key, tiles.d, tiles.lanes, dict(_sources(anchor))

    def at(c: Expr) -> tuple[Expr, ...]:
        return i, c

    def place(source: int, tag: str) -> Body:
        """The record's number, below the source's extent as `_read_index` has seen to; said again, so that it can be
        proven here."""
        return [Let(f"record_{tag}", minimum(var("key_offset"), extents[source] - 1))]

    here = value_record(anchor.buffer(current), anchor.scales(current), (var("record_c"),))
    ring_type = state_of(ring, "ring")
    there = ring_record(anchor.buffer(ring), ring_type, var("record_r"))
    assert ring_type.codec is not None
    last: Body = place(RING, "r") + decode_scaled(ring_type.codec, d, there, "r", row, at, lanes)
    if len(anchor.op.operands) > 5:
        pages = anchor.op.operands[5]
        state = state_of(pages, "pages")
        assert state.codec is not None
        number = var("record_p")
        record = page_record(anchor.buffer(pages), state, number // state.capacity, number % state.capacity)
        paged = place(PAGES, "p") + decode_scaled(state.codec, d, record, "p", row, at, lanes)
        last = [either(eq(var("key_source"), RING), last, paged)]
    present: Body = [
        Let("key_source", source_of(var("key_entry"))), Let("key_offset", offset_of(var("key_entry"))),
        either(eq(var("key_source"), CURRENT),
               place(CURRENT, "c") + decode_scaled(codec_of(current), d, here, "c", row, at, lanes), last)]
    absent = loop("zc", d, lambda c: [store(row, (i, c), const(0.0, row.dtype))], lanes)
    return [Let("key_entry", tiles.entry[i]), either(eq(var("key_entry"), -1), absent, present)]


def _finish(tiles: AttendTiles, anchor: Anchor, sink: Value, h0: Expr) -> Body:
    """o / (l + exp(sink - m)); without a valid key that is 0 / 1."""
    out = anchor.buffer(anchor.op.result)
    row, logit = anchor.at(anchor.op.result, var("t")), anchor.buffer(sink)

    def total(h: Expr) -> Body:
        own = logit[h0 + h]
        share = select(eq(own, tiles.m[h]), const(1.0), apply("exp", own - tiles.m[h]))
        return [store(tiles.denominator, (h,), tiles.denominator[h] + share)]

    def write(h: Expr, c: Expr) -> Body:
        return [store(out, (row, h0 + h, c), bf16(tiles.o[h, c] / tiles.denominator[h]))]

    return (loop("dh", tiles.heads, total)
            + loop("fh", tiles.heads, lambda h: loop("fc", tiles.d, lambda c: write(h, c), tiles.lanes)))
