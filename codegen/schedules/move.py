"""`move` regions: `relayout`, the packing of a weight when a checkpoint is loaded (binding.py has the layouts).

One instance packs one block of 16 matrix rows; rows past N are zero. Scales stay row-major.
"""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, apply, cast, const, select, var
from dinfc.ir.tile.program import Buffer, Program
from dinfc.ir.types import Codec

from .anchor import constant_dim, find_anchor, text_attr
from .tiles import Body, ceil_div, either, eq, loop, lt, store

BLOCK_ROWS = 16


@dataclass(frozen=True)
class MoveSchedule:
    """Schedule of regions whose anchor is `relayout`."""

    anchor: str = "move"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError for a layout that it does not know."""
        anchor = find_anchor(region, ("relayout",))
        value, result = anchor.op.operands[0], anchor.op.result
        layout, rank = text_attr(anchor.op, "layout"), value.tensor.rank
        if rank < 2 or value.tensor.layout or layout not in ("n16k", "n16k4"):
            raise IRError(f"no packing of {value.tensor} into layout {layout or 'row-major'} is known", anchor.op)
        dims = [constant_dim(value, d) for d in range(rank)]
        rows, width = dims[-2:]
        lead = tuple(var(f"g{d}") for d in range(rank - 2))
        block = var("block")
        source, target = anchor.buffer(value), anchor.buffer(result)
        if layout == "n16k4":
            body = pack_nibbles(source, target, lead, block, rows, width)
        else:
            body = pack(source, target, lead, block, rows, width)
        if value.tensor.codec:
            body += copy_scales(anchor.scales(value), anchor.scales(result), lead, block, value.tensor.codec, rows)
        grid = (*((f"g{d}", const(dims[d])) for d in range(rank - 2)), ("block", ceil_div(const(rows), BLOCK_ROWS)))
        return anchor.program(name, self.anchor, grid, body)


def row_of(block: Expr, n: Expr) -> Expr:
    return block * BLOCK_ROWS + n


def pack(source: Buffer, target: Buffer, lead: tuple[Expr, ...], block: Expr, rows: int, width: int) -> Body:
    """target[block, k, n] = source[16 block + n, k]."""

    def element(k: Expr, n: Expr) -> Expr:
        value = source[*lead, row_of(block, n), k]
        return value if rows % BLOCK_ROWS == 0 else select(lt(row_of(block, n), rows), value, 0)

    return loop("k", width, lambda k: loop("n", BLOCK_ROWS, lambda n: [
        store(target, (*lead, block, k, n), element(k, n))], "vector"))


def pack_nibbles(source: Buffer, target: Buffer, lead: tuple[Expr, ...], block: Expr, rows: int, width: int) -> Body:
    """target[block, k, j] holds the codes of rows 16 block + 2 j (low) and + 2 j + 1 (high)."""

    def code(n: Expr, byte: Expr, half: int) -> Expr:
        value = source[*lead, row_of(block, n), byte]
        value = apply("shr", value, const(4, "u8")) if half else value & 15
        return value if rows % BLOCK_ROWS == 0 else select(lt(row_of(block, n), rows), value, 0)

    def pair(byte: Expr, half: int, j: Expr) -> Expr:
        high = cast(apply("shl", code(j * 2 + 1, byte, half), const(4, "u8")), "u8")
        return apply("or", code(j * 2, byte, half), high)

    def half_of(byte: Expr, half: int) -> Body:
        return loop(f"j{half}", BLOCK_ROWS // 2, lambda j: [
            store(target, (*lead, block, byte * 2 + half, j), pair(byte, half, j))], "vector")

    return loop("byte", width // 2, lambda byte: half_of(byte, 0) + half_of(byte, 1))


def copy_scales(source: Buffer, target: Buffer, lead: tuple[Expr, ...], block: Expr, codec: Codec, rows: int) -> Body:
    """The scale rows that begin in this block: one a matrix row, or one for `codec.rows` of them."""
    groups = source.shape[-1]

    def row(r: Expr) -> Body:
        return loop("g", groups, lambda g: [store(target, (*lead, r, g), source[*lead, r, g])], "vector")

    if codec.rows == 1:
        copied = loop("r", BLOCK_ROWS, lambda n: row(row_of(block, n)))
        if rows % BLOCK_ROWS:
            copied = loop("r", BLOCK_ROWS, lambda n: [either(lt(row_of(block, n), rows), row(row_of(block, n)))])
        return copied
    if codec.rows % BLOCK_ROWS:
        raise IRError(f"scales of {codec.rows} rows do not end where blocks of {BLOCK_ROWS} rows do")
    blocks = codec.rows // BLOCK_ROWS
    return row(block) if blocks == 1 else [either(eq(block % blocks, 0), row(block // blocks))]
