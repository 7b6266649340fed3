"""`contract`: a matrix product with weights, classes G8, G4, GB, GB32 and GT (spec 0.5), also batched over groups.

Grid: column blocks, then groups, then row tiles, so that neighbouring instances read the same weights. A row's result
is a chain over K of its own elements; the row tile only decides which core computes it.
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, const, var
from dinfc.ir.tile.program import Let, Program

from .anchor import constant_dim, find_anchor
from .product import Product, RowsOut, column_tile, matrix_dims, operand, product_order, store_tile, tiled_columns
from .product_near import near_product
from .product_staged import staged_product
from .tiles import Body, ceil_div, minimum


@dataclass(frozen=True)
class MatmulSchedule:
    """Schedule of regions whose anchor is `contract`."""

    anchor: str = "matmul"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError for operands, layouts or orders that no strategy handles."""
        anchor = find_anchor(region, ("contract",))
        op = anchor.op
        a, b = op.operands[:2]
        columns, k = matrix_dims(op)
        batch = b.tensor.rank == 3
        if a.tensor.rank != b.tensor.rank:
            raise IRError(f"contract of {a.tensor} with {b.tensor}: ranks differ", op)
        order = product_order(op, k, limits.dot_group)
        m, n = limits.tile_rows, column_tile(op, columns, limits)
        staged = bool(limits.extra.get("stage_operands"))
        rows = anchor.rows(a)
        group: tuple[Expr, ...] = (var("g"),) if batch else ()
        row0, live = rows.row(var("it") * m), var("live")

        def tile(width: int, tag: str) -> Body:
            p = Product(
                m, width, k, columns, order, operand(anchor, a, group), operand(anchor, b, group),
                row0=anchor.at(a, row0), row_end=anchor.at(a, rows.end), rows=live, column0=var("column0"), tag=tag)
            body, acc = staged_product(p, limits) if staged else near_product(p)
            where = RowsOut(anchor.at(op.result, row0), live, mid=group)
            return body + store_tile(p, acc, anchor.buffer(op.result), where, "parallel" if staged else "vector")

        body: Body = [Let("live", minimum(rows.end - row0, m)), *tiled_columns(columns, n, staged, tile)]
        grid = [("jb", const(-(-columns // n)))]
        grid += [("g", const(constant_dim(b, 0)))] if batch else []
        grid += [("it", ceil_div(rows.count, m))]
        return anchor.program(name, self.anchor, tuple(grid), body, (str(order),), {"tile_rows": m, "tile_cols": n})
