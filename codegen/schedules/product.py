"""A matrix product as tiles: what `matmul` and `grouped_matmul` share.

One output tile is A rows times B columns over the whole of K, in the order that the op's text names (dot_order.py). Two
strategies behind one interface, chosen by the target's limits:
  near    (CPU) the product reads A and B where they lie; B from its packed layout
  staged  (devices, `limits.extra["stage_operands"]`) a pipelined K loop copies codes and scales of A and B into shared
          memory and multiplies from there; see product_staged.py

Rows that do not exist (beyond the last row, or gathered by -1) are never read, or are zeros that multiply to zero
whatever lies in memory; they are never stored.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dinfc.ir.graph import IRError, Op, Value
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, bf16, const, var
from dinfc.ir.tile.program import Buffer, Let
from dinfc.ir.types import Codec

from .anchor import Anchor, constant_dim
from .dot_order import DotOrder, dot_order
from .tiles import Body, either, loop, lt, store

PACK = 16  # columns of a block of a packed weight


@dataclass(frozen=True)
class Operand:
    """One operand in memory: values or codes, scales, and the indices of its leading dims (expert or group)."""

    value: Value
    data: Buffer
    scales: Buffer | None
    lead: tuple[Expr, ...] = ()

    @property
    def codec(self) -> Codec | None:
        return self.value.tensor.codec

    @property
    def code(self) -> str:
        return self.codec.code if self.codec else ""

    @property
    def layout(self) -> str:
        return self.value.tensor.layout

    def stored(self, k: Expr | int) -> Expr:
        """Where element k lies along the stored K dim of a row-major operand (two e2m1 codes a byte)."""
        k = const(k) if isinstance(k, int) else k
        return k // 2 if self.codec and self.codec.bits == 4 else k

    def stored_width(self, k: int) -> int:
        """Stored elements of a row of k elements."""
        return self.codec.code_bytes(k) if self.codec else k


@dataclass(frozen=True)
class Product:
    """One output tile of m rows and n columns: rows [row0, row0 + m) of A up to `row_end`, or the rows listed in the
    buffer `gather`; columns [column0, column0 + n) of the `columns` of B. `rows`: how many rows of the tile exist (the
    first ones). `tag` keeps the names of two tiles of one program apart."""

    m: int
    n: int
    k: int
    columns: int
    order: DotOrder
    a: Operand
    b: Operand
    row0: Expr
    row_end: Expr
    rows: Expr
    column0: Expr
    gather: str | None = None
    tag: str = ""

    @property
    def a_grouped(self) -> bool:
        """A is [M, G, K]: the group index stands between row and K."""
        return bool(self.a.lead)


Strategy = Callable[[Product], tuple[Body, Buffer]]


@dataclass(frozen=True)
class RowsOut:
    """Where the rows of a tile go: first row of the result, which of the first `count` rows exist (None: all),
    indices between row and column."""

    row0: Expr
    count: Expr
    exists: Callable[[Expr], Expr] | None = None
    mid: tuple[Expr, ...] = ()


def operand(anchor: Anchor, value: Value, lead: tuple[Expr, ...] = ()) -> Operand:
    return Operand(value, anchor.buffer(value), anchor.scales(value) if value.tensor.codec else None, lead)


def matrix_dims(op: Op) -> tuple[int, int]:
    """(N, K) of operand 1, both constants. Raises IRError where K of operand 0 is another one."""
    a, b = op.operands[:2]
    columns, k = constant_dim(b, b.tensor.rank - 2), constant_dim(b, b.tensor.rank - 1)
    if constant_dim(a, a.tensor.rank - 1) != k:
        raise IRError(f"{op.kind} of {a.tensor} with {b.tensor}: K differs", op)
    return columns, k


def product_order(op: Op, k: int, default_group: int) -> DotOrder:
    """The order of the op. Raises IRError where operands do not fit together, or chains do not fit their scales."""
    a, b = (o.tensor for o in op.operands[:2])
    if (a.codec is None) != (b.codec is None):
        raise IRError(f"both operands of {op.kind} must be quantised or neither: {a} and {b}", op)
    if a.layout:
        raise IRError(f"operand 0 of {op.kind} must be row-major, it has layout {a.layout}", op)
    order = dot_order(op, default_group)
    if a.codec is None or b.codec is None:
        return order
    if a.codec.group != b.codec.group or k % a.codec.group:
        raise IRError(f"K = {k} in scale groups of {a.codec.group} and {b.codec.group} has no common K group", op)
    if b.layout not in ("", "n16k4" if b.codec.bits == 4 else "n16k"):
        raise IRError(f"layout {b.layout} does not hold {b.elem}", op)
    if order.group != a.codec.group:
        raise IRError(f"order {order} has chains of {order.group}, but a scale covers {a.codec.group} elements", op)
    return order


def column_tile(op: Op, columns: int, limits: TargetLimits) -> int:
    """Columns of an instance. Unless one tile takes them all, a tile is whole blocks of the packed layout and does not
    straddle two scale blocks unevenly: their sizes divide one another."""
    if columns <= limits.tile_cols and not limits.extra.get("stage_operands"):
        return columns
    b, n = op.operands[1].tensor, limits.tile_cols
    block = b.codec.rows if b.codec else 1
    if (b.layout and n % PACK) or (n % block and block % n):
        raise IRError(f"column tiles of {n} cut the blocks of {b}", op)
    return n


def tiled_columns(columns: int, n: int, whole: bool, tile: Callable[[int, str], Body]) -> Body:
    """Statements for column block `jb`: a tile of n columns, and where n does not divide their number, another one of
    the columns that are left. `whole`: the tile itself copes with columns past the end."""
    head: Body = [Let("column0", var("jb") * n)]
    rest = columns % n
    if rest == 0 or whole:
        return head + tile(n, "")
    if columns < n:
        return head + tile(rest, "")
    return [*head, either(lt(var("jb"), columns // n), tile(n, ""), tile(rest, "_rest"))]


def store_tile(p: Product, acc: Buffer, out: Buffer, where: RowsOut, kind: str = "vector") -> Body:
    """Writes the tile: rows that exist only, columns below the number of columns only.

    An elementwise epilogue belongs here: `value` is the only place that turns an accumulator element into a result.
    """
    def value(i: Expr, j: Expr) -> Expr:
        return bf16(acc[i, j]) if out.dtype == "bf16" else acc[i, j]

    def columns_of(i: Expr) -> Body:
        overhang = kind != "vector" and p.columns % p.n
        row = loop("oj" + p.tag, p.n, lambda j: [store(
            out, (where.row0 + i, *where.mid, p.column0 + j), value(i, j),
            lt(p.column0 + j, p.columns) if overhang else None)], kind)
        return row if where.exists is None else [either(where.exists(i), row)]

    return loop("oi" + p.tag, where.count, columns_of)


def add_tile(p: Product, total: Buffer, acc: Buffer, kind: str = "vector") -> Body:
    """total = total + acc, the fold of K slices."""
    return loop("ti" + p.tag, p.m, lambda i: loop("tj" + p.tag, p.n, lambda j: [
        store(total, (i, j), total[i, j] + acc[i, j])], kind))
