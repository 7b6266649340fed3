"""From the ops of a row region to arrays (row_array.py): what every value's elements are made of."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dinfc.codegen.binding import buffer_name, dim_expr
from dinfc.ir.graph import IRError, Op, Value
from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import Buffer
from dinfc.ir.types import Codec, Dim, StateType, TensorType, dim_text

from .anchor import int_attr, text_attr
from .order import row_order
from .row_array import Array, Carried, Component, Concat, Decode, Fold, Gather, Map, Param, Slice, Source, Take, View

Parts = tuple[Array, ...]  # one array, or codes and scales of a codec value


@dataclass(frozen=True)
class StateStore:
    """`state_write`: record `slots[row]` of `state` gets the row of `parts`."""

    state: Buffer
    type: StateType
    parts: Parts
    slots: Array


@dataclass(frozen=True)
class Iterate:
    """`repeat`: `count` times, the body's results become the carried values."""

    count: int
    carried: Parts
    initial: Parts
    body: Steps
    results: Parts


Step = Array | StateStore | Iterate


@dataclass
class Steps:
    """Statements of one block, in order: arrays (which may or may not get a place) and what stores."""

    steps: list[Step] = field(default_factory=list)


@dataclass
class RegionBuilder:
    """Translates ops one after the other. `rows`: text of the region's row dim."""

    rows: str
    default_lanes: int
    buffers: Mapping[str, Buffer]
    chunk: frozenset[str]
    values: dict[Value, Parts] = field(default_factory=dict)

    def is_row(self, shape: Sequence[Dim]) -> bool:
        return bool(shape) and dim_text(shape[0]) == self.rows

    def param(self, value: Value) -> None:
        """Operand buffers as arrays; a state has none (its records are read through `source`)."""
        if not isinstance(value.type, TensorType):
            return
        name, chunked = buffer_name(value), value.name in self.chunk
        parts = []
        for suffix, shape in zip(("", "_s"), component_shapes(value.tensor), strict=False):
            buffer = self.buffers[name + suffix]
            parts.append(Param(name + suffix, buffer.dtype, shape, buffer, chunked, is_row=self.is_row(shape),
                               bounds=value.tensor.bounds))
        self.values[value] = tuple(parts)

    def plain(self, value: Value) -> Array:
        """The array of a value without a codec. Raises IRError for a codec value."""
        parts = self.values[value]
        if len(parts) != 1:
            raise IRError(f"%{value.name} is quantised ({value.tensor}): this row op cannot read it", value.producer)
        return parts[0]

    def build(self, ops: Sequence[Op]) -> Steps:
        """The ops of a body. Raises IRError for an op that has no row form."""
        block = Steps()
        for op in ops:
            make = _MAKERS.get(op.kind)
            if make is None:
                raise IRError(f"{op.kind} has no row form", op)
            made = make(self, op)
            if isinstance(made, StateStore | Iterate):
                block.steps.append(made)
                if isinstance(made, Iterate):
                    self.values.update(zip(op.results, ((c,) for c in made.carried), strict=True))
            else:
                block.steps += made
                self.values[op.result] = made
        return block

    def name(self, value: Value) -> str:
        return buffer_name(value)


def component_shapes(type_: TensorType) -> list[tuple[Dim, ...]]:
    """Shapes of the arrays of a value: elements, or code bytes and scale bytes."""
    codec = type_.codec
    if codec is None:
        return [type_.shape]
    last = type_.shape[-1]
    if not isinstance(last, int) or codec.rows != 1:
        raise IRError(f"{type_} has no form inside a row kernel")
    return [(*type_.shape[:-1], codec.code_bytes(last)), (*type_.shape[:-1], last // codec.group)]


def _map(b: RegionBuilder, op: Op) -> Parts:
    type_, expr, dims = op.result.tensor, op.attrs["expr"], op.attrs["dims"]
    assert isinstance(expr, Expr) and isinstance(dims, tuple)
    over = tuple(tuple(d for d in entry if isinstance(d, int)) for entry in dims if isinstance(entry, tuple))
    return (Map(b.name(op.result), type_.elem, type_.shape, expr, tuple(b.plain(o) for o in op.operands), over,
                is_row=b.is_row(type_.shape), bounds=type_.bounds),)


def _structure(b: RegionBuilder, op: Op, make: Callable[[str, Array, tuple[Dim, ...], int], Array]) -> Parts:
    """One array a component; `make(name, source, shape, elements a component element stands for)`."""
    codec = op.result.tensor.codec
    out = []
    sources = b.values[op.operands[0]]
    for suffix, source, shape, unit in zip(("", "_s"), sources, component_shapes(op.result.tensor), units(codec),
                                           strict=False):
        out.append(make(b.name(op.result) + suffix, source, shape, unit))
    return tuple(out)


def units(codec: Codec | None) -> tuple[int, ...]:
    """Elements along the last dim that one element of each component stands for."""
    return (1,) if codec is None else (8 // codec.bits, codec.group)


def _view(b: RegionBuilder, op: Op) -> Parts:
    type_, source = op.result.tensor, op.operands[0].tensor
    if type_.codec and type_.shape[-1] != source.shape[-1]:
        raise IRError(f"a view of %{op.operands[0].name} changes the dim that its scales run along", op)
    return _structure(b, op, lambda name, array, shape, _: View(
        name, array.dtype, shape, array, is_row=b.is_row(shape), bounds=type_.bounds))


def _slice(b: RegionBuilder, op: Op) -> Parts:
    axis, type_ = int_attr(op, "axis"), op.result.tensor
    start, step = int_attr(op, "start", 0), int_attr(op, "step", 1)

    def make(name: str, source: Array, shape: tuple[Dim, ...], unit: int) -> Array:
        first = start
        if type_.codec and axis == type_.rank - 1:
            if step != 1 or start % type_.codec.group:
                raise IRError("a slice of a quantised value must keep its groups whole", op)
            first = start // unit
        return Slice(name, source.dtype, shape, source, axis, first, step, is_row=b.is_row(shape),
                     bounds=type_.bounds)

    return _structure(b, op, make)


def _concat(b: RegionBuilder, op: Op) -> Parts:
    parts = tuple(b.plain(o) for o in op.operands)
    type_ = op.result.tensor
    return (Concat(b.name(op.result), type_.elem, type_.shape, parts, int_attr(op, "axis"),
                   is_row=b.is_row(type_.shape), bounds=type_.bounds),)


def _reduce(b: RegionBuilder, op: Op) -> Parts:
    type_ = op.result.tensor
    init = b.plain(op.operands[1]) if len(op.operands) > 1 else None
    return (Fold(b.name(op.result), type_.elem, type_.shape, b.plain(op.operands[0]), int_attr(op, "axis"),
                 text_attr(op, "op"), row_order(op, b.default_lanes), init, is_row=b.is_row(type_.shape),
                 bounds=type_.bounds),)


def _quantize(b: RegionBuilder, op: Op) -> Parts:
    source, codec = b.plain(op.operands[0]), op.result.tensor.codec
    assert codec is not None
    codes, scales = component_shapes(op.result.tensor)
    name = b.name(op.result)
    return (Component(name, "u8", codes, source, codec, is_row=b.is_row(codes)),
            Component(name + "_s", "u8", scales, source, codec, True, is_row=b.is_row(scales)))


def _dequantize(b: RegionBuilder, op: Op) -> Parts:
    type_, codec = op.result.tensor, op.operands[0].tensor.codec
    assert codec is not None
    codes, scales = b.values[op.operands[0]]
    return (Decode(b.name(op.result), type_.elem, type_.shape, codes, scales, codec, is_row=b.is_row(type_.shape)),)


def _gather(b: RegionBuilder, op: Op) -> Parts:
    index, type_ = b.plain(op.operands[0]), op.result.tensor
    fill = op.attrs.get("fill", 0)
    assert isinstance(fill, int | float)
    out = []
    for number, (suffix, shape) in enumerate(zip(("", "_s"), component_shapes(type_), strict=False)):
        sources = tuple(_source(b, v, number) for v in op.operands[1:])
        # The scale byte of 1.0 stands for a row that does not exist.
        default = float(fill) if number == 0 else float(127 if type_.codec and type_.codec.scale == "e8m0" else 0x38)
        out.append(Gather(b.name(op.result) + suffix, sources[0].array.dtype, shape, index, sources, default,
                          is_row=b.is_row(shape), bounds=type_.bounds))
    return tuple(out)


def _source(b: RegionBuilder, value: Value, component: int) -> Source:
    """A tensor's component, or the codes or scales inside the records of a ring."""
    if isinstance(value.type, TensorType):
        array = b.values[value][component]
        if not isinstance(array, Param):
            raise IRError(f"rows of %{value.name} are read by index, so it must come from another kernel",
                          value.producer)
        if array.chunked:
            raise IRError(f"rows of %{value.name} are read by index, but a chunk loop holds some of them only",
                          value.producer)
        return Source(array, dim_expr(array.shape[0]))
    if value.type.kind != "ring":
        raise IRError(f"records of pages (%{value.name}) are not read by row kernels", value.producer)
    buffer = b.buffers[buffer_name(value)]
    ring = Param(buffer.name, buffer.dtype, (value.type.capacity, value.type.width), buffer, is_row=False)
    codec = value.type.codec
    offset = codec.code_bytes(value.type.width) if codec and component else 0
    return Source(ring, buffer.shape[0], offset)


def _take(b: RegionBuilder, op: Op) -> Parts:
    table = b.plain(op.operands[0])
    if not isinstance(table, Param) or table.chunked:
        raise IRError(f"elements of %{op.operands[0].name} are read by index, so it must come whole from another "
                      "kernel", op)
    fill, type_ = op.attrs.get("fill", 0), op.result.tensor
    assert isinstance(fill, int | float)
    return (Take(b.name(op.result), table.dtype, type_.shape, table, tuple(dim_expr(d) for d in table.shape),
                 tuple(b.plain(i) for i in op.operands[1:]), float(fill), is_row=b.is_row(type_.shape),
                 bounds=type_.bounds),)


def _state_write(b: RegionBuilder, op: Op) -> StateStore:
    state, value, slots = op.operands
    assert isinstance(state.type, StateType)
    return StateStore(b.buffers[buffer_name(state)], state.type, b.values[value], b.plain(slots))


def _repeat(b: RegionBuilder, op: Op) -> Iterate:
    body = op.regions[0]
    carried, initial = [], []
    for operand, param in zip(op.operands, body.params, strict=True):
        type_ = operand.tensor
        array = Carried(b.name(param), type_.elem, type_.shape, is_row=b.is_row(type_.shape))
        carried.append(array)
        initial.append(b.plain(operand))
        b.values[param] = (array,)
    steps = b.build(body.ops)
    return Iterate(int_attr(op, "count"), tuple(carried), tuple(initial), steps,
                   tuple(b.plain(r) for r in body.results))


_MAKERS: Mapping[str, Callable[[RegionBuilder, Op], Parts | StateStore | Iterate]] = {
    "map": _map, "view": _view, "slice": _slice, "concat": _concat, "reduce": _reduce, "quantize": _quantize,
    "dequantize": _dequantize, "gather_rows": _gather, "take": _take, "state_write": _state_write, "repeat": _repeat,
}

