"""`grouped_contract`: rows grouped by expert, each group padded to the tile height (spec 3.2, design section 4a).

One instance takes one row tile and one block of columns; the tile belongs to one expert, `tile_expert[tile]`, or to
none (-1). Rows of A are gathered by `rows[p]`; padding rows (-1) are zero and are not stored. The tile height never
changes a bit: a row's result is a chain over K of its own elements (fault F16).
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.codegen.binding import dim_expr
from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, const, select, var
from dinfc.ir.tile.program import Alloc, Let, Program, Reduce

from .anchor import constant_dim, find_anchor
from .product import Product, RowsOut, column_tile, matrix_dims, operand, product_order, store_tile, tiled_columns
from .product_near import near_product
from .product_staged import staged_product
from .tiles import Body, either, inside, local, loop, store


@dataclass(frozen=True)
class GroupedMatmulSchedule:
    """Schedule of regions whose anchor is `grouped_contract`."""

    anchor: str = "grouped_matmul"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError for operands, layouts or orders that no strategy handles."""
        anchor = find_anchor(region, ("grouped_contract",))
        op = anchor.op
        if anchor.chunk:
            raise IRError("grouped_contract does not run in row chunks", op)
        a, b, rows, tile_expert = op.operands
        columns, k = matrix_dims(op)
        order = product_order(op, k, limits.dot_group)
        m, n = anchor.int_attr("tile"), column_tile(op, columns, limits)
        experts, a_rows = constant_dim(b, 0), dim_expr(a.tensor.shape[0])
        staged = bool(limits.extra.get("stage_operands"))
        picked = local("picked", "i32", m, space="shared" if staged else "near")
        expert, first, last = var("expert"), var("first_row"), var("live")

        def exists(i: Expr) -> Expr:
            return inside(picked[i], a_rows)

        def tile(width: int, tag: str) -> Body:
            p = Product(
                m, width, k, columns, order, operand(anchor, a), operand(anchor, b, (expert,)),
                row0=first, row_end=a_rows, rows=last, column0=var("column0"), gather=picked.name, tag=tag)
            body, acc = staged_product(p, limits) if staged else near_product(p)
            return body + store_tile(p, acc, anchor.buffer(op.result), RowsOut(first, last, exists),
                                     "parallel" if staged else "vector")

        inner: Body = [
            Let("first_row", var("it") * m), Alloc(picked),
            *loop("pi", m, lambda i: [store(picked, (i,), anchor.buffer(rows)[first + i])]),
            # Rows behind the last one that exists need no product; those between are zeros.
            Reduce("live", "max", "pl", const(m), select(exists(var("pl")), var("pl") + 1, 0), const(0), 1),
            *tiled_columns(columns, n, staged, tile)]
        body: Body = [
            Let("expert", anchor.buffer(tile_expert)[var("it")]),
            # An unused tile costs one load; the bound guards against ids that no expert has.
            either(inside(expert, experts), inner),
        ]
        grid = (("it", dim_expr(tile_expert.tensor.shape[0])), ("jb", const(-(-columns // n))))
        return anchor.program(name, self.anchor, grid, body, (str(order),), {"tile_rows": m, "tile_cols": n})
