"""The verifier of tile programs: names and dtypes, bounds, initialisation, races, capacity (design section 7).

- Names: declared once in a scope, before use; parameters of mode `in` are not stored to; dtypes of stores fit.
- Bounds: every index is proven inside its buffer, from loops, value bounds and the conditions around it (linear.py).
- Initialisation: a near buffer is written before it is read, in program order.
- Races (races.py): iterations of the grid and of parallel loops store to different elements.
- Capacity: buffers that live together fit into their memory class.

What cannot be proven is refused: the message shows the program with a caret.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..scalar import DTYPE_BYTES, Expr, const, var
from .linear import UNKNOWN, Bounds, Form, Knowledge, interval, mentions_any, number, program_knowledge
from .program import (
    SCALARS,
    Alloc,
    Buffer,
    Copy,
    Dot,
    Fill,
    For,
    If,
    Let,
    Program,
    Reduce,
    Stmt,
    Store,
    TileError,
    statements,
)
from .races import check_store
from .text import show

INTEGERS = ("i32", "i64", "u8", "u32")


def verify_program(program: Program, capacity: Mapping[str, int] | None = None) -> None:
    """Raises TileError for the first thing that is wrong or cannot be proven. `capacity`: bytes by memory class."""
    try:
        contents = _Checker(program, {}, capacity or {}, collect=True).run()
        _Checker(program, contents, capacity or {}).run()
    except TileError as error:
        raise TileError(show(program, error.statement, str(error)), error.statement) from None


@dataclass
class Scope:
    """What is known at a place: buffers by name, dtypes of bound names, inequalities, the parallel loops around."""

    buffers: dict[str, Buffer]
    names: dict[str, str]
    known: Knowledge
    loops: tuple[tuple[str, bool], ...] = ()  # (variable, iterations are independent), outermost first
    depth: dict[str, int] = field(default_factory=dict)  # buffer -> number of loops around its declaration

    def copy(self) -> Scope:
        return Scope(dict(self.buffers), dict(self.names), self.known.copy(), self.loops, dict(self.depth))


class _Checker:
    """One walk. `collect`: only gathers the values that integer scratch buffers hold, for the second walk."""

    def __init__(self, program: Program, contents: Mapping[str, Bounds], capacity: Mapping[str, int],
                 collect: bool = False) -> None:
        self.program, self.capacity, self.collect = program, capacity, collect
        self.contents = dict(contents)
        self.collected: dict[str, Bounds] = {}
        self.written: set[str] = set()
        self.live: dict[str, int] = {}

    def run(self) -> dict[str, Bounds]:
        program = self.program
        known = program_knowledge()
        scope = Scope({}, dict.fromkeys(SCALARS, "i32"), known)
        for p in program.params:
            if p.name in scope.buffers or p.name in scope.names:
                raise TileError(f"two parameters are called {p.name}")
            if p.space != "global":
                raise TileError(f"parameter {p.name} is {p.space}, not global")
            scope.buffers[p.name], scope.depth[p.name] = p, 0
            if p.bounds is not None:
                self.contents[p.name] = interval(known, 0, const(0))
                self.contents[p.name] = ((known.form(p.bounds[0]),), (known.form(p.bounds[1]).plus(-1),))
            if p.mode != "out":
                self.written.add(p.name)
        known.contents = self.contents
        for name, extent in program.grid:
            self.expression(extent, scope, None)
            self.bind_loop(name, extent, scope, None, independent=True)
        self.block(program.body, scope)
        return self.collected

    # -- statements

    def block(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        """Statements in order; `scope` belongs to the block and is changed."""
        allocated: list[Buffer] = []
        for s in body:
            if isinstance(s, Alloc):
                self.alloc(s, scope)
                allocated.append(s.buffer)
            else:
                self.statement(s, scope)
        for b in allocated:
            self.live[b.space] -= size_of(b)

    def statement(self, s: Stmt, scope: Scope) -> None:
        if isinstance(s, Let):
            self.expression(s.value, scope, s)
            form, bounds = None, UNKNOWN
            if s.value.dtype in INTEGERS:
                form, bounds = scope.known.form(s.value), scope.known.range(s.value)
            self.declare(s.name, s.value.dtype, scope, s)
            scope.known.bind(s.name, form, bounds)
        elif isinstance(s, Store):
            self.store(s, scope)
        elif isinstance(s, For):
            self.loop(s, scope)
        elif isinstance(s, If):
            self.expression(s.cond, scope, s)
            for body, holds in ((s.then, True), (s.otherwise, False)):
                inner = scope.copy()
                inner.known.assume(s.cond, holds)
                self.block(body, inner)
            self.invalidate(s.then + s.otherwise, scope)
        elif isinstance(s, Fill):
            buffer = self.target(s.buffer, scope, s)
            self.expression(s.value, scope, s)
            self.same_dtype(buffer, s.value, s)
            self.record(buffer, s.value, scope)
            self.finish_write(buffer, scope)
        elif isinstance(s, Reduce):
            self.reduce(s, scope)
        elif isinstance(s, Copy):
            self.copy(s, scope)
        elif isinstance(s, Dot):
            self.dot(s, scope)

    def alloc(self, s: Alloc, scope: Scope) -> None:
        b = s.buffer
        if b.space == "global":
            raise TileError(f"{b.name} is global: only parameters are", s)
        if b.name in scope.names or (b.name in scope.buffers and scope.buffers[b.name].space == "global"):
            raise TileError(f"{b.name} is declared already", s)
        if any(not isinstance(d.attr, int) or d.op != "const" for d in b.shape):
            raise TileError(f"{b.name} has a dim that is no constant", s)
        scope.buffers[b.name] = b
        scope.depth[b.name] = len(scope.loops)
        self.written.discard(b.name)
        if b.bounds is not None:
            self.contents[b.name] = ((scope.known.form(b.bounds[0]),), (scope.known.form(b.bounds[1]).plus(-1),))
        self.live[b.space] = self.live.get(b.space, 0) + size_of(b)
        limit = self.capacity.get(b.space)
        if limit is not None and self.live[b.space] > limit:
            raise TileError(f"{b.name} brings {b.space} memory to {self.live[b.space]} bytes, there are {limit}", s)

    def store(self, s: Store, scope: Scope) -> None:
        buffer = self.target(s.buffer, scope, s)
        inner = scope
        if s.where is not None:
            self.expression(s.where, scope, s)
            inner = scope.copy()
            inner.known.assume(s.where)
        self.expression(s.value, inner, s)
        self.same_dtype(buffer, s.value, s)
        self.indices(buffer, s.indices, inner, s)
        if not self.collect:
            check_store(self.program, s, buffer, inner.known, inner.loops[inner.depth[buffer.name]:])
        self.record(buffer, s.value, inner)
        self.finish_write(buffer, scope)

    def loop(self, s: For, scope: Scope) -> None:
        self.expression(s.extent, scope, s)
        self.invalidate(s.body, scope)
        inner = scope.copy()
        self.bind_loop(s.var, s.extent, inner, s, s.kind in ("parallel", "vector"))
        self.block(s.body, inner)

    def reduce(self, s: Reduce, scope: Scope) -> None:
        self.expression(s.extent, scope, s)
        self.expression(s.start, scope, s)
        if s.lanes < 1 or s.lanes & (s.lanes - 1):
            raise TileError(f"{s.lanes} lanes are no power of two", s)
        inner = scope.copy()
        self.bind_loop(s.var, s.extent, inner, s, independent=False)
        for value in (s.value, *(() if s.times is None else (s.times,))):
            self.expression(value, inner, s)
            if value.dtype != s.start.dtype:
                raise TileError(f"{s.name} starts as {s.start.dtype} and adds {value.dtype}", s)
        self.declare(s.name, s.value.dtype, scope, s)
        scope.known.bind(s.name, None, self.reduced(s, inner) if s.value.dtype in INTEGERS else UNKNOWN)

    def reduced(self, s: Reduce, inner: Scope) -> Bounds:
        """Bounds of a maximum or minimum: constants that hold for the start and for every element."""
        if s.op == "sum":
            return UNKNOWN
        out: list[tuple[Form, ...]] = []
        for sign, side in ((-1, 0), (1, 1)):
            ends = []
            for value in (s.value, s.start):
                found = [n for b in inner.known.range(value)[side]
                         if (n := inner.known.constant_bound(b, sign)) is not None]
                ends.append(max(found) if sign < 0 and found else min(found) if found else None)
            known = [n for n in ends if n is not None]
            # The result is one of the values: of a maximum the start is a lower bound by itself, and so on.
            if len(known) == 2:
                out.append((number(min(known) if sign < 0 else max(known)),))
            else:
                out.append(())
        return out[0], out[1]

    def copy(self, s: Copy, scope: Scope) -> None:
        target, source = self.target(s.dst, scope, s), self.readable(s.src, scope, s)
        if target.dtype != source.dtype:
            raise TileError(f"{s.dst} is {target.dtype}, {s.src} is {source.dtype}", s)
        lead = len(source.shape) - len(target.shape)
        if lead < 0 or len(s.offsets) != len(source.shape) or len(s.limits) != len(source.shape):
            raise TileError(f"offsets, limits and dims of {s.src} and {s.dst} do not match", s)
        if s.rows is not None:
            rows = self.readable(s.rows, scope, s)
            if len(rows.shape) != 1 or rows.dtype not in INTEGERS:
                raise TileError(f"{s.rows} is no list of rows", s)
        for d, (offset, limit, extent) in enumerate(zip(s.offsets, s.limits, source.shape, strict=True)):
            self.expression(offset, scope, s)
            if d == lead and s.rows is not None:
                continue
            width = 1 if d < lead else int(target.shape[d - lead].attr or 0)
            form = scope.known.form(offset)
            if not scope.known.never_positive(form * -1):
                self.unproven(f"offset {d} of {s.src} is not proven to be >= 0", s)
            if limit is not None:
                self.expression(limit, scope, s)
                if not scope.known.never_positive(scope.known.form(limit) - scope.known.form(extent)):
                    self.unproven(f"limit {d} is not proven to lie inside {s.src}", s)
            elif not scope.known.never_positive(form.plus(width) - scope.known.form(extent)):
                self.unproven(f"dim {d} of {s.src} is not proven to hold the tile", s)
        low, high = self.contents.get(source.name, UNKNOWN)
        if target.dtype in INTEGERS and target.space != "global":
            zero = number(0)
            merged = (scope.known._both(low, (zero,), -1), scope.known._both(high, (zero,), 1))
            self.merge(target, merged, scope)
        self.finish_write(target, scope)

    def dot(self, s: Dot, scope: Scope) -> None:
        acc = self.readable(s.acc, scope, s)
        parts: list[tuple[str, tuple[Expr, ...], tuple[int, ...]]] = []
        a_k = s.k // 2 if s.a_codec == "e2m1" else s.k
        b_k = s.k // 2 if s.b_codec == "e2m1" else s.k
        parts.append((s.a, s.a_at, (s.m, a_k)))
        shapes = {"nk": (s.n, b_k), "kn": (s.k, s.n // 2 if s.b_codec == "e2m1" else s.n),
                  "n16k": (-(-s.n // 16), s.k, 16), "n16k4": (-(-s.n // 16), s.k, 8)}
        if s.b_layout not in shapes:
            raise TileError(f"unknown layout {s.b_layout}", s)
        parts.append((s.b, s.b_at, shapes[s.b_layout]))
        groups = max(1, s.k // s.group)
        if s.a_scale is not None and s.a_scale_at is not None:
            parts.append((s.a_scale, s.a_scale_at, (s.m, groups)))
        if s.b_scale is not None and s.b_scale_at is not None:
            parts.append((s.b_scale, s.b_scale_at, (-(-s.n // s.b_scale_rows), groups)))
        if s.rows is not None:
            self.expression(s.rows, scope, s)
        for name, at, widths in parts:
            buffer = self.readable(name, scope, s)
            if len(at) != len(buffer.shape):
                raise TileError(f"{name} has {len(buffer.shape)} dims, the product names {len(at)}", s)
            for d, (offset, extent) in enumerate(zip(at, buffer.shape, strict=True)):
                self.expression(offset, scope, s)
                form = scope.known.form(offset)
                tile = d - (len(at) - len(widths))
                is_row = tile == 0 and name in (s.a, s.a_scale)
                width = number(1 if tile < 0 else widths[tile])
                if is_row and s.rows is not None:
                    width = scope.known.form(s.rows)
                if not scope.known.never_positive(form * -1):
                    self.unproven(f"offset {d} of {name} is not proven to be >= 0", s)
                if not scope.known.never_positive(form + width - scope.known.form(extent)):
                    self.unproven(f"dim {d} of {name} is not proven to hold the tile of the product", s)
        if [d.attr for d in acc.shape] != [s.m, s.n]:
            raise TileError(f"{s.acc} does not have the shape {s.m} x {s.n} of the product", s)
        self.finish_write(acc, scope)

    # -- expressions and names

    def expression(self, e: Expr, scope: Scope, s: Stmt | None) -> None:
        """Checks names and the indices of all loads; a branch of `select` is checked under its condition."""
        if e.op == "var":
            if scope.names.get(str(e.attr)) != e.dtype:
                have = scope.names.get(str(e.attr))
                raise TileError(f"{e.attr} is {have}, not {e.dtype}" if have else f"{e.attr} is not declared", s)
        elif e.op in ("select", "land", "lor"):
            self.expression(e.args[0], scope, s)
            for number_, branch in enumerate(e.args[1:]):
                inner = scope.copy()
                inner.known.assume(e.args[0], (number_ == 0) != (e.op == "lor"))
                self.expression(branch, inner, s)
        elif e.op == "load":
            buffer = self.readable(str(e.attr), scope, s)
            if buffer.dtype != e.dtype:
                raise TileError(f"{e.attr} is {buffer.dtype}, it is read as {e.dtype}", s)
            for i in e.args:
                self.expression(i, scope, s)
            self.indices(buffer, e.args, scope, s)
        else:
            for a in e.args:
                self.expression(a, scope, s)

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...], scope: Scope, s: Stmt | None) -> None:
        if len(indices) != len(buffer.shape):
            raise TileError(f"{buffer.name} has {len(buffer.shape)} dims, indexed with {len(indices)}", s)
        for d, (i, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            self.expression(i, scope, s)
            form = scope.known.form(i)
            if not scope.known.never_positive(form * -1):
                self.unproven(f"index {d} of {buffer.name} is not proven to be >= 0", s)
            if not scope.known.never_positive(form.plus(1) - scope.known.form(extent)):
                self.unproven(f"index {d} of {buffer.name} is not proven to be below its extent", s)

    def unproven(self, message: str, s: Stmt | None) -> None:
        if not self.collect:
            raise TileError(message, s)

    def readable(self, name: str, scope: Scope, s: Stmt | None) -> Buffer:
        buffer = scope.buffers.get(name)
        if buffer is None:
            raise TileError(f"there is no buffer {name}", s)
        if name not in self.written and not self.collect:
            raise TileError(f"{name} is read before anything was written to it", s)
        return buffer

    def target(self, name: str, scope: Scope, s: Stmt) -> Buffer:
        buffer = scope.buffers.get(name)
        if buffer is None:
            raise TileError(f"there is no buffer {name}", s)
        if buffer.space == "global" and buffer.mode == "in":
            raise TileError(f"{name} is a parameter of mode in", s)
        return buffer

    def same_dtype(self, buffer: Buffer, value: Expr, s: Stmt) -> None:
        if buffer.dtype != value.dtype:
            raise TileError(f"{buffer.name} is {buffer.dtype}, the stored value {value.dtype}", s)

    def declare(self, name: str, dtype: str, scope: Scope, s: Stmt) -> None:
        if name in SCALARS or name in scope.buffers:
            raise TileError(f"{name} is declared already", s)
        scope.names[name] = dtype

    def bind_loop(self, name: str, extent: Expr, scope: Scope, s: Stmt | None, independent: bool) -> None:
        if name in SCALARS or name in scope.buffers or any(name == v for v, _ in scope.loops):
            raise TileError(f"{name} is declared already", s)
        bounds = interval(scope.known, 0, extent)
        scope.names[name] = "i32"
        scope.known.bind(name, None, bounds)
        # Inside the loop there is at least one iteration.
        scope.known.learn(scope.known.form(extent).plus(-1) * -1)
        scope.known.facts.append(scope.known.form(var(name)).plus(1) - scope.known.form(extent))
        scope.loops = (*scope.loops, (name, independent))

    # -- what buffers hold

    def record(self, buffer: Buffer, value: Expr, scope: Scope) -> None:
        """First walk: the bounds of what is stored into integer scratch."""
        if buffer.space != "global" and buffer.dtype in INTEGERS and buffer.bounds is None:
            self.merge(buffer, scope.known.range(value), scope)

    def merge(self, buffer: Buffer, bounds: Bounds, scope: Scope) -> None:
        if not self.collect:
            return
        low, high = (tuple(f for f in side if (f.terms == () or _only_scalars(f))) for side in bounds)
        fixed_low = [n for b in bounds[0] if (n := scope.known.constant_bound(b, -1)) is not None]
        fixed_high = [n for b in bounds[1] if (n := scope.known.constant_bound(b, 1)) is not None]
        low = (*low, *(number(n) for n in fixed_low[:1]))
        high = (*high, *(number(n) for n in fixed_high[:1]))
        if buffer.name in self.collected:
            old_low, old_high = self.collected[buffer.name]
            low, high = scope.known._both(old_low, low, -1), scope.known._both(old_high, high, 1)
        self.collected[buffer.name] = (tuple(dict.fromkeys(low)), tuple(dict.fromkeys(high)))

    def finish_write(self, buffer: Buffer, scope: Scope) -> None:
        self.written.add(buffer.name)
        scope.known.forget(mentions_any([buffer.name], "load"))

    def invalidate(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        """What a loop body stores may have changed before any of its statements runs again."""
        stored = [s.buffer for s in statements(body) if isinstance(s, Store | Fill)]
        stored += [s.dst for s in statements(body) if isinstance(s, Copy)]
        scope.known.forget(mentions_any(stored, "load"))


def _only_scalars(form: object) -> bool:
    from .linear import SCALAR_NAMES, Form

    assert isinstance(form, Form)
    return all(a.op == "var" and a.attr in SCALAR_NAMES for a, _ in form.terms)


def size_of(b: Buffer) -> int:
    """Bytes of a scratch buffer."""
    count = DTYPE_BYTES[b.dtype]
    for d in b.shape:
        count *= int(d.attr or 0)
    return count



