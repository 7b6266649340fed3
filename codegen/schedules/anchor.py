"""What every anchored schedule asks of a region: its anchor op, the buffers of a value, the rows of this launch."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dinfc.codegen.binding import buffer_name, dim_expr, region_buffers
from dinfc.ir.graph import Attr, IRError, Op, Value
from dinfc.ir.scalar import Expr, const, var
from dinfc.ir.tile.program import Buffer, Program
from dinfc.ir.types import Codec, StateType

from .rename import alias, resolve
from .tiles import Body


@dataclass(frozen=True)
class Rows:
    """The rows of one dim that a launch computes: grid extent `count`, row r of the grid is row `base + r` of a value
    (`base` = row0 inside a chunk loop, else 0), rows from `end` on do not exist."""

    count: Expr
    base: Expr
    end: Expr

    def row(self, r: Expr) -> Expr:
        return self.base + r


@dataclass(frozen=True)
class Anchor:
    """A region with one anchor op in its body.

    `buffers`: params of the kernel by name, as they are called inside the body (rename.py). A schedule with an epilogue
    would let `op` be the anchor and walk the rest of the body when it stores; for now the anchor stands alone.
    """

    region: Op
    op: Op
    params: tuple[Buffer, ...]
    buffers: Mapping[str, Buffer]
    chunk: frozenset[str]

    def buffer(self, value: Value) -> Buffer:
        """Values or codes of a value, or the records of a state."""
        return self.buffers[buffer_name(value)]

    def has(self, value: Value) -> bool:
        """Whether the kernel has a buffer for this value (an unused result has none)."""
        return buffer_name(value) in self.buffers

    def scales(self, value: Value) -> Buffer:
        """Scales of a codec value."""
        return self.buffers[buffer_name(value) + "_s"]

    def rows(self, extent_of: Value) -> Rows:
        """The rows of dim 0 of `extent_of`: all of them, or those of the chunk."""
        if self.chunk:
            return Rows(var("rows"), var("row0"), var("row0") + var("rows"))
        whole = dim_expr(extent_of.tensor.shape[0])
        return Rows(whole, const(0), whole)

    def at(self, value: Value, row: Expr) -> Expr:
        """Index of row `row` (a row of the step) in the buffer of `value`: chunk buffers hold the chunk only."""
        return row - var("row0") if value.name in self.chunk else row

    def int_attr(self, name: str, default: int | None = None) -> int:
        return int_attr(self.op, name, default)

    def program(self, name: str, kind: str, grid: tuple[tuple[str, Expr], ...], body: Body,
                orders: tuple[str, ...] = (), attrs: Mapping[str, int] | None = None) -> Program:
        """The finished program of this region."""
        origin = tuple(f"{', '.join('%' + r.name for r in op.results)} = {op.kind}"
                       for op in self.region.regions[0].ops)
        final, final_grid = resolve(tuple(body), grid, {p.name for p in self.params})
        return Program(name, kind, self.params, final_grid, final, orders, origin, attrs=dict(attrs or {}))


def int_attr(op: Op, name: str, default: int | None = None) -> int:
    """An integer attribute. Raises IRError where it is missing (without a default) or no integer."""
    value: Attr = op.attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise IRError(f"{op.kind} needs an integer attribute {name!r}, it has {value!r}", op)
    return value


def text_attr(op: Op, name: str, default: str = "") -> str:
    value = op.attrs.get(name, default)
    if not isinstance(value, str):
        raise IRError(f"{op.kind} needs a text attribute {name!r}, it has {value!r}", op)
    return value


def constant_dim(value: Value, axis: int) -> int:
    """A dim that must be known when compiling. Raises IRError for a symbolic one."""
    dim = value.tensor.shape[axis]
    if not isinstance(dim, int):
        raise IRError(f"dim {axis} of %{value.name} must be a constant here, it is {dim}", value.producer)
    return dim


def codec_of(value: Value) -> Codec:
    codec = value.tensor.codec
    if codec is None:
        raise IRError(f"%{value.name} must be a quantised value, it is {value.tensor}", value.producer)
    return codec


def state_of(value: Value, kind: str) -> StateType:
    if not isinstance(value.type, StateType) or value.type.kind != kind:
        raise IRError(f"%{value.name} must be a state of kind {kind}, it is {value.type}", value.producer)
    return value.type


def find_anchor(region: Op, kinds: tuple[str, ...]) -> Anchor:
    """The anchor of a region. Raises IRError unless the body is exactly one op of one of these kinds."""
    ops = region.regions[0].ops
    found = [op for op in ops if op.kind in kinds]
    if len(found) != 1:
        raise IRError(f"a region of {' or '.join(kinds)} must hold exactly one such op, it holds {len(found)}", region)
    if len(ops) != 1:
        others = ", ".join(sorted({op.kind for op in ops} - set(kinds)))
        raise IRError(f"{found[0].kind} is scheduled alone; this region also holds {others}", region)
    params = region_buffers(region)
    names = [p.name for p in params]
    if len(set(names)) != len(names):
        raise IRError(f"two values of the region share a buffer name: {', '.join(sorted(names))}", region)
    chunk = region.attrs.get("chunk") or ()
    if not isinstance(chunk, tuple):
        raise IRError("attribute 'chunk' of a region must be a list of value names", region)
    return Anchor(region, found[0], params, {p.name: replace(p, name=alias(p.name)) for p in params},
                  frozenset(str(c) for c in chunk))
