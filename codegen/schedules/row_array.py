"""Values inside a row region as arrays: how one element is computed from the elements of other arrays.

A plain tensor is one array, a codec value two (code bytes, scale bytes). `Array.element` writes an element as an
expression; `Elements.at` reads it from memory instead where the plan has given the array a place. Indices are full
tuples, the row included: values of the region are only ever read at their own row.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from dinfc.ir.graph import IRError
from dinfc.ir.scalar import DTYPE_BYTES, Expr, apply, cast, const, load, substitute, var, walk
from dinfc.ir.tile.program import Buffer
from dinfc.ir.types import Codec, Dim

from .order import RowOrder
from .row_index import Affine, CutLoop, affine, divide, flatten, locate, unflatten
from .tiles import eq, ge, inside, lt

Index = tuple[Expr, ...]
INLINE_EXTENT = 8  # reductions over at most that many elements are written as one expression
OPERATION_COST = {"div": 5.0, "sqrt": 6.0, "exp": 14.0, "log": 16.0, "log1p": 24.0, "sigmoid": 20.0, "rsqrt": 12.0,
                  "mod": 6.0, "idiv": 6.0, "e4m3_decode": 8.0, "e2m1_decode": 8.0, "e4m3_encode": 12.0,
                  "e2m1_encode": 12.0, "e8m0_decode": 3.0}


class Elements(Protocol):
    """What an element's expression may ask of its surroundings."""

    @property
    def row(self) -> Expr:
        """The row of this instance."""
        ...

    @property
    def extents(self) -> Mapping[str, int]:
        """Loops around the expression."""
        ...

    def at(self, array: Array, index: Index) -> Expr:
        """An element of another array: a load, a bound scalar, or its expression."""
        ...

    def flat(self, array: Array, position: Expr) -> Expr | None:
        """The element at a row-major position of the near part of an array, None where the array has no place."""
        ...


@dataclass(eq=False)
class Array:
    """`is_row`: the leading dim is the region's row dim and an instance holds one row of it."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    is_row: bool = field(default=True, kw_only=True)
    bounds: tuple[Dim, Dim] | None = field(default=None, kw_only=True)

    # Placed where it is read more than once, whatever it costs (or never placed: an alias of other arrays).
    alias: ClassVar[bool] = False

    @property
    def near_shape(self) -> tuple[Dim, ...]:
        return self.shape[1:] if self.is_row else self.shape

    @property
    def extents(self) -> tuple[int, ...]:
        """Dims of the near part. Raises IRError for a symbolic one."""
        out = []
        for d in self.near_shape:
            if not isinstance(d, int):
                raise IRError(f"%{self.name}: dim {d} of a value inside a row kernel must be a constant")
            out.append(d)
        return tuple(out)

    def size(self) -> int:
        """Elements that one instance sees. Raises IRError for a symbolic dim."""
        return math.prod(self.extents)

    def bytes(self) -> int:
        return self.size() * DTYPE_BYTES[self.dtype]

    def element(self, index: Index, elements: Elements) -> Expr:
        raise NotImplementedError

    def reads(self) -> list[tuple[Array, float]]:
        """Arrays that computing the whole array reads, and how often it reads each of their elements."""
        return []

    def cost(self) -> float:
        """Work of one element beyond that of its operands, in simple operations."""
        return 0.0


@dataclass(eq=False)
class Param(Array):
    """A global buffer. `chunked`: it holds the rows of the chunk only, row t at t - row0."""

    buffer: Buffer
    chunked: bool = False
    alias = True

    def element(self, index: Index, elements: Elements) -> Expr:
        return self.buffer[self.place(index, elements)]

    def place(self, index: Index, elements: Elements) -> Index:
        """Index in the buffer."""
        if not self.chunked:
            return index
        first = var("i") if index[0] == elements.row else index[0] - var("row0")
        return (first, *index[1:])


@dataclass(eq=False)
class Map(Array):
    expr: Expr
    operands: tuple[Array, ...]
    dims: tuple[tuple[int, ...], ...]

    def element(self, index: Index, elements: Elements) -> Expr:
        seen: dict[int, Expr] = {}

        def leaf(node: Expr) -> Expr | None:
            if node.op == "arg":
                number = node.attr
                assert isinstance(number, int)
                if number not in seen:
                    seen[number] = elements.at(self.operands[number], tuple(index[d] for d in self.dims[number]))
                return seen[number]
            if node.op == "index":
                assert isinstance(node.attr, int)
                return index[node.attr]
            return None

        return substitute(self.expr, leaf)

    def reads(self) -> list[tuple[Array, float]]:
        times = [sum(1 for n in walk(self.expr) if n.op == "arg" and n.attr == i) for i in range(len(self.operands))]
        return [(o, n * ratio(self, o)) for o, n in zip(self.operands, times, strict=True) if n]

    def cost(self) -> float:
        return expression_cost(self.expr)


@dataclass(eq=False)
class View(Array):
    source: Array
    alias = True

    def element(self, index: Index, elements: Elements) -> Expr:
        rest, shape = (index[1:], self.shape[1:]) if self.is_row else (index, self.shape)
        target = self.source.near_shape
        if rest and shape == target:
            return elements.at(self.source, index)
        position = flatten(rest, shape) if rest else const(0)
        flat = elements.flat(self.source, position)
        if flat is not None:
            return flat
        place = unflatten(position, target, elements.extents) if target else ()
        return elements.at(self.source, (index[0], *place) if self.source.is_row else place)

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.source, 1.0)]


@dataclass(eq=False)
class Slice(Array):
    source: Array
    axis: int
    start: int
    step: int
    alias = True

    def element(self, index: Index, elements: Elements) -> Expr:
        along = affine(index[self.axis] * self.step + self.start).expr()
        return elements.at(self.source, (*index[: self.axis], along, *index[self.axis + 1:]))

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.source, ratio(self, self.source))]


@dataclass(eq=False)
class Concat(Array):
    parts: tuple[Array, ...]
    axis: int

    def boundaries(self) -> list[int]:
        out = [0]
        for part in self.parts:
            extent = part.shape[self.axis]
            if not isinstance(extent, int):
                raise IRError(f"%{self.name}: operand %{part.name} of concat has the extent {extent}, not a constant")
            out.append(out[-1] + extent)
        return out

    def element(self, index: Index, elements: Elements) -> Expr:
        ends, along = self.boundaries(), index[self.axis]
        part = locate(along, ends, elements.extents)
        if part is not None:
            return self._part(part, index, ends, elements)
        out = self._part(len(self.parts) - 1, index, ends, elements)
        for number in reversed(range(len(self.parts) - 1)):
            out = apply("select", lt(along, ends[number + 1]), self._part(number, index, ends, elements), out)
        return out

    def _part(self, number: int, index: Index, ends: Sequence[int], elements: Elements) -> Expr:
        along = affine(index[self.axis] - ends[number]).expr()
        return elements.at(self.parts[number], (*index[: self.axis], along, *index[self.axis + 1:]))

    def reads(self) -> list[tuple[Array, float]]:
        return [(p, 1.0) for p in self.parts]


@dataclass(frozen=True)
class Source:
    """Rows that a gather reads: a tensor `[N, ...]`, or one component of the records of a ring (`offset`: its first
    byte or element in a record)."""

    array: Array
    rows: Expr
    offset: int = 0

    def read(self, row: Expr, rest: Index, elements: Elements) -> Expr:
        along = affine(rest[-1] + self.offset).expr() if self.offset else (rest[-1] if rest else const(0))
        return elements.at(self.array, (row, *rest[:-1], along) if rest else (row,))


@dataclass(eq=False)
class Gather(Array):
    """Rows by index; several sources: index = source << 30 | offset."""

    index: Array
    sources: tuple[Source, ...]
    fill: float

    def element(self, index: Index, elements: Elements) -> Expr:
        rank = len(self.index.shape)
        which, rest = elements.at(self.index, index[:rank]), index[rank:]
        out = const(self.fill if self.dtype in ("f32", "bf16") else int(self.fill), self.dtype)
        if len(self.sources) == 1:
            (source,) = self.sources
            if self._always_inside(source):
                return source.read(which, rest, elements)
            return apply("select", inside(which, source.rows), source.read(which, rest, elements), out)
        number, offset = (which >> 30) & 3, which & ((1 << 30) - 1)
        for n, source in reversed(list(enumerate(self.sources))):
            here = apply("land", eq(number, n), inside(offset, source.rows))
            out = apply("select", here, source.read(offset, rest, elements), out)
        return out

    def _always_inside(self, source: Source) -> bool:
        """True where the type's bounds prove it."""
        bounds = self.index.bounds
        return (bounds is not None and bounds[0] == 0 and isinstance(bounds[1], int) and source.rows.op == "const"
                and isinstance(source.rows.attr, int) and bounds[1] <= source.rows.attr)

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.index, ratio(self, self.index)), *((s.array, 1.0) for s in self.sources)]

    def cost(self) -> float:
        return 3.0


@dataclass(eq=False)
class Take(Array):
    """One table element by one index a dim."""

    table: Array
    ends: tuple[Expr, ...]
    indices: tuple[Array, ...]
    fill: float

    def element(self, index: Index, elements: Elements) -> Expr:
        found = [elements.at(i, index) for i in self.indices]
        there = [apply("land", ge(i, 0), lt(i, cast(n, i.dtype))) for i, n in zip(found, self.ends, strict=True)]
        cond = there[0]
        for other in there[1:]:
            cond = apply("land", cond, other)
        fill = const(self.fill if self.dtype in ("f32", "bf16") else int(self.fill), self.dtype)
        return apply("select", cond, elements.at(self.table, tuple(cast(i, "i32") for i in found)), fill)

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.table, 1.0), *((i, 3.0) for i in self.indices)]

    def cost(self) -> float:
        return 3.0


@dataclass(eq=False)
class Fold(Array):
    """A reduction of `source` along `axis`, starting from `init` where it is given."""

    source: Array
    axis: int
    op: str
    order: RowOrder
    init: Array | None = None

    @property
    def extent(self) -> Dim:
        return self.source.shape[self.axis]

    @property
    def is_inline(self) -> bool:
        return isinstance(self.extent, int) and self.extent <= INLINE_EXTENT

    def at_source(self, index: Index, along: Expr, elements: Elements) -> Expr:
        return elements.at(self.source, (*index[: self.axis], along, *index[self.axis:]))

    def start(self) -> Expr:
        return neutral(self.op, self.dtype)

    def element(self, index: Index, elements: Elements) -> Expr:
        """The whole chain as one expression, in the order of tile IR `Reduce`."""
        assert isinstance(self.extent, int)
        values = [self.at_source(index, const(n), elements) for n in range(self.extent)]
        first = None if self.init is None else elements.at(self.init, index)
        if self.op != "sum":  # exact in any order; the neutral element changes nothing
            out = values[0]
            for v in values[1:]:
                out = apply(self.op, out, v)
            return out
        serial = self.order.lanes == 1
        lanes = [first if serial and first is not None else self.start() for _ in range(self.order.lanes)]
        for n, v in enumerate(values):
            lanes[n % self.order.lanes] = lanes[n % self.order.lanes] + v
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [a + b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0] if serial or first is None else first + lanes[0]

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.source, 1.0), *([(self.init, 1.0)] if self.init else [])]

    def cost(self) -> float:
        return 1.0 * self.extent if isinstance(self.extent, int) else 100.0


@dataclass(eq=False)
class Decode(Array):
    """code * scale of a codec value, in f32 or rounded to bf16 (exact, spec 0.4)."""

    codes: Array
    scales: Array
    codec: Codec

    def element(self, index: Index, elements: Elements) -> Expr:
        along = index[-1]
        group, _ = divide(along, self.codec.group, elements.extents)
        factor = apply(f"{self.codec.scale}_decode", elements.at(self.scales, (*index[:-1], group)))
        if self.codec.bits == 8:
            code = elements.at(self.codes, index)
        else:
            byte, half = divide(along, 2, elements.extents)
            code = nibble(elements.at(self.codes, (*index[:-1], byte)), half, elements.extents)
        return cast(apply(f"{self.codec.code}_decode", code) * factor, self.dtype)

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.codes, 8.0 / self.codec.bits), (self.scales, 1.0)]

    def cost(self) -> float:
        return 10.0


@dataclass(eq=False)
class Carried(Array):
    """A value of a `repeat` from one iteration to the next; it always has a place."""


@dataclass(eq=False)
class Component(Array):
    """Code bytes or scale bytes of a quantiser's result; written by the quantiser's own loops (row_quantize.py)."""

    source: Array
    codec: Codec
    is_scale: bool = False

    def reads(self) -> list[tuple[Array, float]]:
        return [(self.source, 1.0)]


def nibble(byte: Expr, half: Expr, extents: Mapping[str, int]) -> Expr:
    """The e2m1 code in the low (half 0) or high half of a byte; the decoder ignores the upper four bits."""
    if half.op == "const":
        return byte if half.attr == 0 else byte >> 4
    form = affine(half)
    if form == Affine({half: 1}, 0) and half.op == "var" and extents.get(str(half.attr)) == 2:
        raise CutLoop(str(half.attr), 1)
    return apply("select", eq(half, 0), byte, byte >> 4)


def neutral(op: str, dtype: str) -> Expr:
    """The start value of a reduction."""
    if op == "sum":
        return const(0, dtype)
    if dtype == "f32":
        return const(float("-inf") if op == "max" else float("inf"))
    bits = 8 * DTYPE_BYTES[dtype] - 1
    return const(-(1 << bits) if op == "max" else (1 << bits) - 1, dtype)


def ratio(reader: Array, operand: Array) -> float:
    """How often an elementwise reader reads each element of an operand that lacks some of its dims."""
    if isinstance(operand, Param):
        return 1.0
    return max(1.0, reader.size() / max(1, operand.size())) if not isinstance(reader, Slice) else 1.0


def expression_cost(e: Expr) -> float:
    """Operations of an expression, weighted."""
    total = 0.0
    for n in walk(e):
        if not n.args or n.op == "load":
            continue
        if n.op == "cast":
            total += 3.0 if n.dtype == "bf16" and n.args[0].dtype == "f32" else 0.5
        else:
            total += OPERATION_COST.get(n.op, 1.0)
    return total


def element_of(buffer: Buffer, index: Index) -> Expr:
    """A load from a near buffer, or the scalar of that name where it has no dims."""
    return load(buffer.name, index, buffer.dtype) if buffer.shape else var(buffer.name, buffer.dtype)
