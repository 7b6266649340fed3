"""`row` regions: maps, row reductions, quantisers, gathers and cache writes over the same rows become one kernel.

One instance is one row. Values that several others read have a place near the core (row_plan.py); all others are
written into the expressions of their readers. Loops come from row_loops.py.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dinfc.codegen.binding import buffer_name, dim_expr, region_buffers
from dinfc.ir.graph import Function, IRError, Module, Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.scalar import Expr, cast, const, load, var
from dinfc.ir.tile.program import Alloc, Buffer, Comment, For, Let, Program, Reduce, Store
from dinfc.ir.types import Dim, StateType, TensorType, dim_text

from .rename import alias, resolve
from .row_array import Array, Component, Fold
from .row_build import Iterate, RegionBuilder, StateStore, Steps
from .row_index import flatten
from .row_loops import Names, nest
from .row_plan import Placement, plan_places
from .row_quantize import quantize_group
from .tiles import Body, either, ge, inside, local


@dataclass(frozen=True)
class RowSchedule:
    """Schedule of regions whose anchor is `row`."""

    anchor: str = "row"

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program. Raises IRError for an op without a row form."""
        body = region.regions[0]
        params = region_buffers(region)
        if len({p.name for p in params}) != len(params):
            raise IRError("two values of the region share a buffer name", region)
        chunk = region.attrs.get("chunk") or ()
        assert isinstance(chunk, tuple)
        buffers = {p.name: replace(p, name=alias(p.name)) for p in params}
        rows = region_rows(body)
        builder = RegionBuilder(dim_text(rows), limits.lanes, buffers, frozenset(str(c) for c in chunk))
        for param in body.params:
            builder.param(param)
        block = builder.build(body.ops)
        tensors = [r for r in body.results if isinstance(r.type, TensorType)]
        sinks = tuple(a for r in tensors for a in builder.values[r])
        placement = plan_places(block, sinks)
        writer = RowWriter(placement, Names(), var("t"))
        for result in tensors:
            for array, suffix in zip(builder.values[result], ("", "_s"), strict=False):
                out = buffers[buffer_name(result) + suffix]
                writer.outputs.setdefault(array, []).append((out, result.name in builder.chunk))
        statements = writer.block(block) + writer.remaining()
        guard = region.attrs.get("guard")
        if guard is not None:
            statements = [either(ge(buffers[str(guard).replace(".", "_")][var("t")], 0), statements)]
        if chunk:
            grid: tuple[tuple[str, Expr], ...] = (("i", var("rows")),)
            statements = [Let("t", var("row0") + var("i")), *statements]
        else:
            grid = (("t", dim_expr(rows)),)
        final, final_grid = resolve(tuple(statements), grid, {p.name for p in params})
        return Program(name, self.anchor, params, final_grid, final, region_orders(body.ops), origins(body.ops))


def region_rows(body: Function) -> Dim:
    """The row dim that the results of a region share. Raises IRError where there is none."""
    shaped = [r for r in body.results if isinstance(r.type, TensorType)]
    shaped += [op.operands[1] for op in body.ops if op.kind == "state_write"]
    if not shaped or shaped[0].tensor.rank == 0:
        raise IRError(f"the region @{body.name} has no rows")
    return shaped[0].tensor.shape[0]


def region_orders(ops: list[Op]) -> tuple[str, ...]:
    """Orders of the float sums inside, each once."""
    found = []
    for op in ops:
        if op.kind == "reduce" and op.attrs.get("order"):
            found.append(str(op.attrs["order"]))
        for region in op.regions:
            found += region_orders(region.ops)
    return tuple(dict.fromkeys(found))


def origins(ops: list[Op]) -> tuple[str, ...]:
    """One line an op that computes something: its results, its kind, its place in the model."""
    return tuple(f"{', '.join('%' + r.name for r in op.results)} = {op.kind}" for op in ops
                 if op.kind not in ("view", "slice"))


@dataclass
class RowWriter:
    """Writes the statements of one row. `outputs`: global buffers that an array is stored in, and whether they hold the
    rows of the chunk only."""

    placement: Placement
    names: Names
    row: Expr
    outputs: dict[Array, list[tuple[Buffer, bool]]] = field(default_factory=dict)
    places: dict[Array, Buffer] = field(default_factory=dict)
    written: set[Array] = field(default_factory=set)

    def block(self, block: Steps) -> Body:
        out: Body = []
        for step in block.steps:
            if isinstance(step, StateStore):
                out += self.state_store(step)
            elif isinstance(step, Iterate):
                out += self.iterate(step)
            elif step in self.placement.placed or step in self.outputs:
                out += self.compute(step)
        return out

    def remaining(self) -> Body:
        """Results that are operands, or carried values of a `repeat`: copied."""
        out: Body = []
        for array in self.outputs:
            if array not in self.written:
                out += self.elementwise(array, force=True)
        return out

    def compute(self, array: Array) -> Body:
        """Computes a whole array into its places."""
        self.written.add(array)
        if isinstance(array, Component):
            return [] if array.is_scale else self.quantize(array)
        head: Body = [Comment(f"%{array.name}")]
        if isinstance(array, Fold) and not array.is_inline:
            return head + self.fold(array)
        return head + self.elementwise(array)

    def place(self, array: Array, body: Body) -> Buffer | None:
        """The near buffer of an array, declared in `body`; None where it has none."""
        if array not in self.placement.placed:
            return None
        if array not in self.places:
            self.places[array] = local(self.names.fresh(array.name), array.dtype, max(1, array.size()))
            body.append(Alloc(self.places[array]))
        return self.places[array]

    def elementwise(self, array: Array, force: bool = False) -> Body:
        """A nest that stores `array.element`; a scalar that no result needs is bound by `let`."""
        self.written.add(array)
        out: Body = []
        scalar = array in self.placement.placed and not array.extents
        if scalar and array not in self.places:
            name = self.names.fresh(array.name)
            value = array.element((self.row,) if array.is_row else (), View(self, {}))
            self.places[array] = Buffer(name, array.dtype, ())
            out.append(Let(name, value))
            return out + self.store_outputs(array, (), var(name, array.dtype))
        place = None if force else self.place(array, out)

        def write(indices: tuple[Expr, ...], extents: Mapping[str, int]) -> Body:
            full = (self.row, *indices) if array.is_row else indices
            view = View(self, extents)
            value = view.at(array, full) if force else array.element(full, view)
            if place is not None and self.outputs.get(array):
                name = self.names.fresh(array.name + "_v")
                bound = var(name, array.dtype)
                return [Let(name, value), self.near_store(place, array, indices, bound),
                        *self.store_outputs(array, indices, bound)]
            if place is not None:
                return [self.near_store(place, array, indices, value)]
            return self.store_outputs(array, indices, value)

        return out + nest(array.extents, self.names, write)

    def near_store(self, place: Buffer, array: Array, indices: tuple[Expr, ...], value: Expr) -> Store:
        at = flatten(indices, array.near_shape) if indices else const(0)
        return Store(place.name, (at,), value)

    def store_outputs(self, array: Array, indices: tuple[Expr, ...], value: Expr) -> Body:
        out: Body = []
        for buffer, chunked in self.outputs.get(array, ()):
            first = (var("i") if chunked else self.row,) if array.is_row else ()
            out.append(Store(buffer.name, (*first, *indices), value))
        return out

    def fold(self, array: Fold) -> Body:
        """A nest over what remains, with a reduction inside."""
        out: Body = []
        scalar = not array.extents
        place = None if scalar else self.place(array, out)
        extent = array.extent
        length = const(extent) if isinstance(extent, int) else dim_expr(extent)
        lanes = array.order.lanes

        def write(indices: tuple[Expr, ...], extents: Mapping[str, int]) -> Body:
            full = (self.row, *indices) if array.is_row else indices
            view = View(self, extents)
            k, total = self.names.fresh("k"), self.names.fresh(array.name + "_r")
            start = array.start()
            first = None if array.init is None else view.at(array.init, full)
            value = array.at_source(full, var(k), view)
            if first is not None and lanes == 1:
                start, first = first, None
            body: Body = [Reduce(total, array.op, k, length, value, start, lanes)]
            result = var(total, array.dtype)
            result = result if first is None else first + result
            if scalar:
                name = self.names.fresh(array.name)
                self.places[array] = Buffer(name, array.dtype, ())
                return [*body, Let(name, result), *self.store_outputs(array, (), var(name, array.dtype))]
            if place is None:
                return [*body, *self.store_outputs(array, indices, result)]
            name = self.names.fresh(array.name + "_v")
            return [*body, Let(name, result), self.near_store(place, array, indices, var(name, array.dtype)),
                    *self.store_outputs(array, indices, var(name, array.dtype))]

        return out + nest(array.extents, self.names, write)

    def quantize(self, codes: Component) -> Body:
        """Codes and scales of a quantiser, group by group."""
        scales = next(a for a in self.components() if a.source is codes.source and a.is_scale
                      and a.codec == codes.codec and a.name == codes.name + "_s")
        self.written.add(scales)
        out: Body = [Comment(f"%{codes.name} = quantize")]
        code_place, scale_place = self.place(codes, out), self.place(scales, out)
        source, codec = codes.source, codes.codec
        per_group = codec.code_bytes(codec.group)

        def put(array: Component, place: Buffer | None, indices: tuple[Expr, ...], value: Expr) -> Body:
            near = [] if place is None else [self.near_store(place, array, indices, value)]
            return [*near, *self.store_outputs(array, indices, value)]

        def write(indices: tuple[Expr, ...], extents: Mapping[str, int]) -> Body:
            view = View(self, extents)
            *lead, group = indices
            tag = self.names.fresh(codes.name)

            def element(k: Expr) -> Expr:
                at = (*lead, group * codec.group + k)
                return cast(view.at(source, (self.row, *at) if source.is_row else at), "f32")

            return quantize_group(
                codec, tag, element, lambda value: put(scales, scale_place, indices, value),
                lambda b, value: put(codes, code_place, (*lead, group * per_group + b), value))

        return out + nest(scales.extents, self.names, write)

    def components(self) -> list[Component]:
        return [a for a in {**self.placement.work, **self.outputs} if isinstance(a, Component)]

    def state_store(self, step: StateStore) -> Body:
        """The row's record; slot -1 (or any outside of the state) stores nothing."""
        view = View(self, {})
        slot = self.names.fresh("slot")
        state, type_ = step.state, step.type
        records = state.shape[0] if type_.kind == "ring" else state.shape[0] * type_.capacity
        body: Body = []
        codec = type_.codec
        sizes = [type_.width] if codec is None else [codec.code_bytes(type_.width), type_.width // codec.group]
        starts = record_starts(type_, var(slot), sizes)
        for part, size, start in zip(step.parts, sizes, starts, strict=True):
            line = var(slot) if type_.kind == "ring" else var(slot) // type_.capacity

            def write(indices: tuple[Expr, ...], extents: Mapping[str, int], part: Array = part, line: Expr = line,
                      start: Expr = start) -> Body:
                value = View(self, extents).at(part, (self.row, *indices))
                return [Store(state.name, (line, start + indices[0]), value)]

            body += nest((size,), self.names, write)
        return [Comment(f"record of {state.name.lstrip('@')}"), Let(slot, view.at(step.slots, (self.row,))),
                either(inside(var(slot), records), body)]

    def iterate(self, step: Iterate) -> Body:
        out: Body = []
        for carried, initial in zip(step.carried, step.initial, strict=True):
            out += self.copy(initial, carried, out)
        body = self.block(step.body)
        for carried, result in zip(step.carried, step.results, strict=True):
            body += self.copy(result, carried, body)
        return [*out, For(self.names.fresh("round"), const(step.count), "serial", tuple(body))]

    def copy(self, source: Array, target: Array, body: Body) -> Body:
        """Copies a whole array into the place of another, declared in `body` where it is new."""
        place = self.place(target, body)
        assert place is not None
        if source is target:
            return []

        def write(indices: tuple[Expr, ...], extents: Mapping[str, int]) -> Body:
            value = View(self, extents).at(source, (self.row, *indices) if source.is_row else indices)
            return [self.near_store(place, target, indices, value)]

        return nest(target.extents, self.names, write)


def record_starts(type_: StateType, slot: Expr, sizes: list[int]) -> list[Expr]:
    """First byte (or element) of each component of a record in its ring entry or page."""
    if type_.kind == "ring":
        return [const(0), const(sizes[0])][: len(sizes)]
    entry = slot % type_.capacity
    offsets = [0, type_.scale_offset]
    return [entry * size + offset for size, offset in zip(sizes, offsets, strict=False)]


@dataclass(frozen=True)
class View:
    """What an expression sees: arrays with a place are loaded, others are written out."""

    writer: RowWriter
    extents: Mapping[str, int]

    @property
    def row(self) -> Expr:
        return self.writer.row

    def at(self, array: Array, index: tuple[Expr, ...]) -> Expr:
        place = self.writer.places.get(array)
        if place is None:
            return array.element(index, self)
        if not place.shape:
            return var(place.name, place.dtype)
        near = index[1:] if array.is_row else index
        return load(place.name, (flatten(near, array.near_shape) if near else const(0),), place.dtype)

    def flat(self, array: Array, position: Expr) -> Expr | None:
        place = self.writer.places.get(array)
        if place is None:
            return None
        return load(place.name, (position,), place.dtype) if place.shape else var(place.name, place.dtype)
