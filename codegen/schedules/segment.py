"""`segment`: groups (row, slot) pairs by expert, stably, each group padded to the tile height (design section 4a).

One instance, in four passes over integers: count the pairs of every expert, add up the padded counts, mark the tiles of
every expert, place the pairs in row order. Ids outside [0, E) are dropped; every element of the results is written:
positions, pairs and tiles that nobody uses are -1 (fault F07).
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.codegen.binding import dim_expr
from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, const, var
from dinfc.ir.tile.program import Alloc, Fill, Let, Program

from .anchor import constant_dim, find_anchor
from .tiles import Body, ceil_div, either, inside, local, loop, scalar_state, store


@dataclass(frozen=True)
class SegmentSchedule:
    """Schedule of regions whose anchor is `segment`."""

    anchor: str = "segment"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError in a chunk loop: groups are formed over all rows of the step."""
        anchor = find_anchor(region, ("segment",))
        op = anchor.op
        if anchor.chunk:
            raise IRError("segment does not run in row chunks", op)
        ids = op.operands[0]
        slots, experts, tile = constant_dim(ids, 1), anchor.int_attr("experts"), anchor.int_attr("tile")
        source = anchor.buffer(ids)
        slot_row, pair, tile_expert = (anchor.buffer(r) if anchor.has(r) else None for r in op.results)
        rows = dim_expr(ids.tensor.shape[0])
        positions, tiles = (dim_expr(r.tensor.shape[0]) for r in op.results[1:])

        next_row, first_tile = local("next_row", "i32", experts), scalar_state("first_tile")
        e = var("e")

        def each_pair(tag: str, known: Body, dropped: Body | None = None) -> Body:
            """Visits the pairs in row order; `known` runs with t, k and e bound."""
            return loop("t" + tag, rows, lambda t: loop("k" + tag, slots, lambda k: [
                Let("t", t), Let("k", k), Let("e", source[t, k]),
                either(inside(e, experts), known, dropped)]))

        def number_expert(x: Expr) -> Body:
            """Turns the count of expert x into its first row and marks its tiles."""
            mark = [] if tile_expert is None else loop("y", var("used"), lambda y: [
                store(tile_expert, (first_tile[0] + y,), x, inside(first_tile[0] + y, tiles))])
            return [Let("used", ceil_div(next_row[x], tile)), *mark,
                    store(next_row, (x,), first_tile[0] * tile),
                    store(first_tile, (0,), first_tile[0] + var("used"))]

        place: Body = [Let("p", next_row[e]), store(next_row, (e,), var("p") + 1)]
        drop: Body = []
        if slot_row is not None:
            place.append(store(slot_row, (var("t"), var("k")), var("p")))
            drop.append(store(slot_row, (var("t"), var("k")), -1))
        if pair is not None:
            # The number of positions is the worst case of any ids, so the bounds never bite.
            place.append(store(pair, (var("p"),), var("t") * slots + var("k"), inside(var("p"), positions)))

        body: Body = [Alloc(next_row), Alloc(first_tile)]
        body += [Fill(next_row.name, const(0)), Fill(first_tile.name, const(0))]
        body += [] if pair is None else loop("c", positions, lambda c: [store(pair, (c,), -1)])
        body += [] if tile_expert is None else loop("d", tiles, lambda d: [store(tile_expert, (d,), -1)])
        body += each_pair("0", [store(next_row, (e,), next_row[e] + 1)])
        body += loop("x", experts, number_expert)
        body += each_pair("1", place, drop)
        return anchor.program(name, self.anchor, (("one", const(1)),), body, (), {"tile": tile})
