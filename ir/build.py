"""Typed helpers over `Builder.op`, one a primitive. They add no meaning: each appends one op and returns its values."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from .graph import Builder, Function, IRError, Value
from .opkit import dim_attr_value, same_dim
from .scalar import Expr, Operand, arg, f32, lift
from .types import Dim

Shape = Sequence[Dim | str]


def emap(b: Builder, fn: Callable[..., Operand], operands: Sequence[Value],
         dims: Sequence[Sequence[int]] | None = None, shape: Shape | None = None, hint: str = "",
         bounds: tuple[Dim, Dim] | None = None, dtype: str = "f32") -> Value:
    """A `map`: `fn` gets one expression per operand (bf16 widened to f32) and gives the body.

    `dims`: result dims of each operand's dims, by default right-aligned with equal extents. `shape`: the result's dims,
    by default what the operands cover. `dtype` is that of a body that is a plain number. Raises IRError where the body
    mixes dtypes.
    """
    args = [f32(x) if (x := arg(i, v.tensor.elem)).dtype == "bf16" else x for i, v in enumerate(operands)]
    try:
        expr = lift(fn(*args), dtype)
    except (ValueError, OverflowError) as error:
        have = ", ".join(f"%{v.name}: {v.type}" for v in operands)
        raise IRError(f"the element types of ({have}) do not fit together: {error}") from None
    return raw_map(b, expr, operands, dims, shape, hint, bounds)


def raw_map(b: Builder, expr: Expr, operands: Sequence[Value], dims: Sequence[Sequence[int]] | None = None,
            shape: Shape | None = None, hint: str = "", bounds: tuple[Dim, Dim] | None = None) -> Value:
    """A `map` of a finished expression over `arg` and `index` leaves."""
    if dims is None:
        rank = len(shape) if shape is not None else max((v.tensor.rank for v in operands), default=0)
        dims = [range(rank - v.tensor.rank, rank) for v in operands]
    over = tuple(tuple(d) for d in dims)
    sizes = tuple(shape) if shape is not None else covered_shape(operands, over)
    extra = {} if bounds is None else {"bounds": tuple(dim_attr_value(d) for d in bounds)}
    stored = tuple(d if isinstance(d, str) else dim_attr_value(d) for d in sizes)
    return b.one("map", operands, hint, expr=expr, dims=over, shape=stored, **extra)


def covered_shape(operands: Sequence[Value], dims: tuple[tuple[int, ...], ...]) -> tuple[Dim, ...]:
    """The result dims that operands cover. Raises IRError where one is not covered, or covered by unequal extents."""
    found: dict[int, Dim] = {}
    if len(dims) != len(operands):
        raise IRError(f"map: dims of {len(dims)} operands are given for {len(operands)}")
    for value, over in zip(operands, dims, strict=True):
        for d, extent in zip(over, value.tensor.shape, strict=False):
            if d in found and not same_dim(found[d], extent):
                raise IRError(f"map: dim {d} is {found[d]} and, in %{value.name}, {extent}")
            found[d] = extent
    rank = max(found, default=-1) + 1
    if sorted(found) != list(range(rank)):
        raise IRError(f"map: no operand covers dims {sorted(set(range(rank)) - set(found))}: give the shape")
    return tuple(found[d] for d in range(rank))


def reduce_(b: Builder, op: str, x: Value, axis: int, init: Value | None = None, hint: str = "") -> Value:
    """sum, max or min of f32 or integers along `axis` (negative counts from the end)."""
    axis = axis % x.tensor.rank if axis < 0 else axis
    return b.one("reduce", [x] if init is None else [x, init], hint, op=op, axis=axis)


def reduce_sum(b: Builder, x: Value, axis: int, init: Value | None = None, hint: str = "") -> Value:
    return reduce_(b, "sum", x, axis, init, hint)


def reduce_max(b: Builder, x: Value, axis: int, hint: str = "") -> Value:
    return reduce_(b, "max", x, axis, None, hint)


def reduce_min(b: Builder, x: Value, axis: int, hint: str = "") -> Value:
    return reduce_(b, "min", x, axis, None, hint)


def contract(b: Builder, a: Value, w: Value, cls: str, hint: str = "") -> Value:
    """a `[M, K]` times w `[N, K]` transposed, or `[M, G, K]` with `[G, N, K]` (batched by the ranks)."""
    if a.tensor.rank == 3:
        return b.one("contract", [a, w], hint, cls=cls, batch=True)
    return b.one("contract", [a, w], hint, cls=cls)


def grouped_contract(b: Builder, a: Value, w: Value, rows: Value, tile_expert: Value, tile: int, cls: str = "G4",
                     hint: str = "") -> Value:
    return b.one("grouped_contract", [a, w, rows, tile_expert], hint, cls=cls, tile=tile)


def gather_rows(b: Builder, index: Value, sources: Value | Sequence[Value], fill: float | None = None,
                hint: str = "") -> Value:
    """Rows by index; `fill` (default 0) where the index lies outside."""
    listed = [sources] if isinstance(sources, Value) else list(sources)
    extra = {} if fill is None else {"fill": fill}
    return b.one("gather_rows", [index, *listed], hint, **extra)


def take(b: Builder, table: Value, indices: Value | Sequence[Value], fill: float | None = None,
         hint: str = "") -> Value:
    """Elements of a table by one index tensor per dim of it; `fill` (default 0) outside."""
    listed = [indices] if isinstance(indices, Value) else list(indices)
    extra = {} if fill is None else {"fill": fill}
    return b.one("take", [table, *listed], hint, **extra)


def state_write(b: Builder, state: Value, value: Value, slots: Value, hint: str = "") -> Value:
    """The next version of the state."""
    return b.one("state_write", [state, value, slots], hint or state.name)


def quantize(b: Builder, x: Value, codec: str, hint: str = "") -> Value:
    return b.one("quantize", [x], hint, codec=codec)


def dequantize(b: Builder, x: Value, elem: str = "bf16", hint: str = "") -> Value:
    return b.one("dequantize", [x], hint, elem=elem)


def view(b: Builder, x: Value, shape: Shape, hint: str = "") -> Value:
    stored = tuple(d if isinstance(d, str) else dim_attr_value(d) for d in shape)
    return b.one("view", [x], hint, shape=stored)


def slice_(b: Builder, x: Value, axis: int, start: Dim, stop: Dim, step: int = 1, hint: str = "") -> Value:
    """x[start:stop:step] along `axis` (negative counts from the end)."""
    axis = axis % x.tensor.rank if axis < 0 else axis
    return b.one("slice", [x], hint, axis=axis, start=dim_attr_value(start), stop=dim_attr_value(stop), step=step)


def concat(b: Builder, values: Sequence[Value], axis: int, hint: str = "") -> Value:
    axis = axis % values[0].tensor.rank if axis < 0 else axis
    return b.one("concat", values, hint, axis=axis)


def topk(b: Builder, scores: Value, end: Value, k: int, by: str = "index", hint: str = "") -> Value:
    return b.one("topk", [scores, end], hint, k=k, by=by)


def segment(b: Builder, ids: Value, experts: int, tile: int,
            hints: Sequence[str] = ("slot_row", "pair", "tile_expert")) -> tuple[Value, Value, Value]:
    """(slot_row, pair, tile_expert)."""
    slot_row, pair, tile_expert = b.op("segment", [ids], hints, experts=experts, tile=tile)
    return slot_row, pair, tile_expert


def index_score(b: Builder, q: Value, w: Value, keys: Value, table: Value, seq: Value, end: Value, width: int,
                cand: Value | None = None, block: int = 0, hint: str = "") -> Value:
    more = [] if cand is None else [cand]
    return b.one("index_score", [q, w, keys, table, seq, end, *more], hint, width=width, block=block)


def sparse_attend(b: Builder, q: Value, index: Value, current: Value, ring: Value, sink: Value, scale: float,
                  pages: Value | None = None, hint: str = "") -> Value:
    more = [] if pages is None else [pages]
    return b.one("sparse_attend", [q, index, current, ring, sink, *more], hint, scale=scale)


def repeat(b: Builder, count: int, carried: Sequence[Value],
           body: Callable[[Builder, list[Value]], Sequence[Value]], hint: str | Sequence[str] = "") -> list[Value]:
    """`body(builder, params)` gives the carried values of the next round."""
    inner = Function("body", [Value(v.name, v.type) for v in carried])
    inner.results = list(body(Builder(inner, b.module), list(inner.params)))
    have, want = [r.type for r in inner.results], [v.type for v in carried]
    if have != want:
        raise IRError(f"repeat: the body turns ({', '.join(map(str, want))}) into ({', '.join(map(str, have))})")
    return b.op("repeat", list(carried), hint, regions=[inner], count=count)


def call(b: Builder, callee: Function, args: Sequence[Value], hints: str | Sequence[str] = "") -> list[Value]:
    """A call; hints default to the names of the callee's results."""
    return b.op("call", list(args), hints or [r.name for r in callee.results],
                result_types=[r.type for r in callee.results], callee=callee.name)


def constant(b: Builder, name: str, hint: str = "") -> Value:
    """A constant of the builder's module. Raises IRError where the module has no such table."""
    if b.module is None or name not in b.module.constants:
        raise IRError(f"constant: the module has no table {name!r}")
    types = [b.module.constants[name].type]
    (value,) = b.op("constant", [], hint or name.replace(".", "_"), result_types=types, name=name)
    return value


def relayout(b: Builder, x: Value, layout: str, hint: str = "") -> Value:
    return b.one("relayout", [x], hint or x.name, layout=layout)
