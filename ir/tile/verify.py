"""The verifier of tile programs (design section 7).

- Names: declared once, before use; parameters of mode `in` are not stored to; dtypes fit.
- Bounds: every index is proven inside its buffer, from loops, value bounds and the conditions around it (linear.py);
  what is stored into scratch with value bounds is proven to keep them.
- Initialisation: an element of a scratch or output buffer is written on every path before it is read (access.py).
- Races: iterations of the grid, of parallel and of vector loops do not touch what another one stores (access.py).
- Capacity: buffers that live together fit into their memory class.

What cannot be proven is refused: the message shows the program with a caret.
"""
from __future__ import annotations

from collections.abc import Mapping

from ..scalar import ARITY, DTYPE_BYTES, Expr, result_dtype, var, walk
from .access import (
    Loop,
    Scope,
    Span,
    Spans,
    Touch,
    both,
    box_of,
    clash,
    covered,
    dot_operands,
    guarded,
    lasting,
    loaded_buffers,
    stored_buffers,
    stretch,
    untouched,
    whole,
)
from .linear import UNKNOWN, Bounds, Form, interval, mentions_any, number, only_scalars, program_knowledge
from .program import (
    SCALARS,
    SPACES,
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
from .text import KINDS, show

INTEGERS = ("i32", "i64", "u8", "u32")
INDEPENDENT = ("parallel", "vector")
ELEMENTS = {"": ("f32", "bf16"), "e4m3": ("u8",), "e2m1": ("u8",)}  # of operands of a product, by codec


def verify_program(program: Program, capacity: Mapping[str, int] | None = None) -> None:
    """Raises TileError for the first thing that is wrong or cannot be proven. `capacity`: bytes by memory class."""
    try:
        contents: Mapping[str, Bounds] = {}
        if any(isinstance(s, Alloc) and s.buffer.dtype in INTEGERS for s in statements(program.body)):
            contents = _Checker(program, {}, capacity or {}, collect=True).run()
        _Checker(program, contents, capacity or {}).run()
    except TileError as error:
        raise TileError(show(program, error.statement, str(error)), error.statement) from None


class _Checker:
    """One walk. `collect`: only gathers the values that integer scratch buffers hold, for the second walk."""

    def __init__(self, program: Program, contents: Mapping[str, Bounds], capacity: Mapping[str, int],
                 collect: bool = False) -> None:
        self.program, self.capacity, self.collect = program, capacity, collect
        self.contents = dict(contents)
        self.collected: dict[str, Bounds] = {}
        self.live: dict[str, int] = {}
        self.read_somewhere = loaded_buffers(program.body)

    def run(self) -> dict[str, Bounds]:
        program = self.program
        scope = Scope({}, dict.fromkeys(SCALARS, "i32"), program_knowledge())
        scope.known.contents = self.contents
        for p in program.params:
            if p.space != "global":
                raise TileError(f"parameter {p.name} is {p.space}, not global")
            if p.mode not in ("in", "out", "inout"):
                raise TileError(f"parameter {p.name} has no mode {p.mode}")
            self.declare(p.name, "", scope, None)
            for e in (*p.shape, *(p.bounds or ())):
                self.size(e, scope)
            self.add_buffer(p, scope)
        outer = stored_buffers(program.body)
        for name, extent in program.grid:
            self.size(extent, scope)
            self.open_loop(name, extent, scope, None, outer)
        self.block(program.body, scope)
        for loop in scope.loops:
            self.races(loop, scope)
        return self.collected

    def size(self, e: Expr, scope: Scope) -> None:
        """An extent or bound outside of statements: program scalars only."""
        self.expression(e, scope, None)
        if any(n.op == "load" or (n.op == "var" and n.attr not in SCALARS) for n in walk(e)):
            raise TileError("extents and bounds of parameters and of the grid may use program scalars only")

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
            entry = scope.entry(s.value)
            self.declare(s.name, s.value.dtype, scope, s)
            scope.known.bind(s.name, form, bounds)
            if entry is not None:
                scope.entries[s.name] = entry
        elif isinstance(s, Store):
            self.store(s, scope)
        elif isinstance(s, For):
            self.loop(s, scope)
        elif isinstance(s, If):
            self.branch(s, scope)
        elif isinstance(s, Fill):
            buffer = self.target(s.buffer, scope, s)
            self.expression(s.value, scope, s)
            self.value(buffer, s.value, scope, s)
            self.write(buffer, whole(scope.extents(buffer)), scope, scope, s)
        elif isinstance(s, Reduce):
            self.reduce(s, scope)
        elif isinstance(s, Copy):
            self.copy(s, scope)
        elif isinstance(s, Dot):
            self.dot(s, scope)

    def alloc(self, s: Alloc, scope: Scope) -> None:
        b = s.buffer
        if b.space == "global" or b.space not in SPACES:
            raise TileError(f"{b.name} is {b.space}: only parameters are global", s)
        if b.dtype not in DTYPE_BYTES:
            raise TileError(f"{b.name} has no dtype {b.dtype}", s)
        self.declare(b.name, "", scope, s)
        if any(d.op != "const" or not isinstance(d.attr, int) or d.attr < 1 for d in b.shape):
            raise TileError(f"{b.name} has a dim that is no positive constant", s)
        self.add_buffer(b, scope)
        self.live[b.space] = self.live.get(b.space, 0) + size_of(b)
        limit = self.capacity.get(b.space)
        if limit is not None and self.live[b.space] > limit:
            raise TileError(f"{b.name} brings {b.space} memory to {self.live[b.space]} bytes, there are {limit}", s)

    def store(self, s: Store, scope: Scope) -> None:
        buffer = self.target(s.buffer, scope, s)
        inner = scope
        if s.where is not None:
            self.condition(s.where, scope, s)
            inner = scope.assuming(s.where)
        self.expression(s.value, inner, s)
        self.value(buffer, s.value, inner, s)
        self.indices(buffer, s.indices, inner, s)
        spans = tuple(Span(inner.known.form(i), number(1)) for i in s.indices)
        self.write(buffer, spans, inner, scope, s, s.where)

    def loop(self, s: For, scope: Scope) -> None:
        if s.kind not in KINDS:
            raise TileError(f"no kind of loop is called {s.kind}", s)
        if s.kind == "vector" and s.extent.op != "const":
            raise TileError("a vector loop has a constant extent", s)
        self.expression(s.extent, scope, s)
        self.invalidate(s.body, scope)
        inner = scope.copy()
        extent = scope.known.form(s.extent)
        stored = stored_buffers(s.body)
        self.open_loop(s.var, s.extent, inner, s, stored if s.kind in INDEPENDENT else None)
        self.block(s.body, inner)
        self.races(inner.loops[-1], scope)
        runs = scope.known.never_positive(extent.plus(-1) * -1)
        scope.forget_boxes(stored)
        for name in stored & scope.buffers.keys():
            before = scope.written.get(name, ())
            made = [stretch(b, s.var, extent, runs) for b in inner.written.get(name, ()) if b not in before]
            kept = lasting(tuple(b for b in made if b is not None), scope.ended)
            scope.add_boxes(name, untouched(kept, stored))

    def branch(self, s: If, scope: Scope) -> None:
        self.condition(s.cond, scope, s)
        sides = []
        for body, holds in ((s.then, True), (s.otherwise, False)):
            inner = scope.copy()
            inner.known.assume(s.cond, holds)
            self.block(body, inner)
            sides.append(inner)
        stored = stored_buffers(s.then + s.otherwise)
        self.invalidate(s.then + s.otherwise, scope)
        scope.forget_boxes(stored)
        for name in stored & scope.buffers.keys():
            before = scope.written.get(name, ())
            then, otherwise = (lasting(i.written.get(name, ()), scope.ended) for i in sides)
            scope.add_boxes(name, both(then, otherwise, scope.known))
            for boxes, holds in ((then, True), (otherwise, False)):
                new = guarded(tuple(b for b in boxes if b not in before), s.cond, holds)
                scope.add_boxes(name, untouched(new, stored))

    def reduce(self, s: Reduce, scope: Scope) -> None:
        self.expression(s.extent, scope, s)
        self.expression(s.start, scope, s)
        if s.lanes < 1 or s.lanes & (s.lanes - 1):
            raise TileError(f"{s.lanes} lanes are no power of two", s)
        if s.op not in ("sum", "max", "min") or (s.times is not None and s.op != "sum"):
            raise TileError(f"there is no reduction {s.op}{' with times' if s.times is not None else ''}", s)
        inner = scope.copy()
        self.open_loop(s.var, s.extent, inner, s, None)
        for value in (s.value, *(() if s.times is None else (s.times,))):
            self.expression(value, inner, s)
            if value.dtype != s.start.dtype:
                raise TileError(f"{s.name} starts as {s.start.dtype} and takes {value.dtype}", s)
        bounds = UNKNOWN  # of a maximum or minimum: it is one of these values
        if s.op != "sum" and s.value.dtype in INTEGERS:
            bounds = inner.known.hull((s.value, s.start))
        self.declare(s.name, s.value.dtype, scope, s)
        scope.known.bind(s.name, None, bounds)

    def copy(self, s: Copy, scope: Scope) -> None:
        target, source = self.target(s.dst, scope, s), self.buffer(s.src, scope, s)
        if target.dtype != source.dtype:
            raise TileError(f"{s.dst} is {target.dtype}, {s.src} is {source.dtype}", s)
        lead = len(source.shape) - len(target.shape)
        if lead < 0 or len(s.offsets) != len(source.shape) or len(s.limits) != len(source.shape):
            raise TileError(f"offsets, limits and dims of {s.src} and {s.dst} do not match", s)
        if s.rows is not None:
            rows = self.buffer(s.rows, scope, s)
            if len(rows.shape) != 1 or rows.dtype not in INTEGERS or lead:
                raise TileError(f"{s.rows} is no list of the rows of {s.dst}", s)
            self.read(rows, (Span(number(0), scope.known.form(target.shape[0])),), scope, s)
            if not scope.known.never_positive(scope.known.form(target.shape[0]) - scope.known.form(rows.shape[0])):
                self.unproven(f"{s.rows} has fewer rows than {s.dst}", s)
        spans = []
        for d, (offset, limit, extent) in enumerate(zip(s.offsets, s.limits, scope.extents(source), strict=True)):
            self.expression(offset, scope, s)
            width = number(1) if d < lead else scope.known.form(target.shape[d - lead])
            form = scope.known.form(offset)
            if limit is not None:
                self.expression(limit, scope, s)
                if not scope.known.never_positive(scope.known.form(limit) - extent):
                    self.unproven(f"limit {d} is not proven to lie inside {s.src}", s)
            if d == 0 and s.rows is not None:
                spans.append(Span(number(0), extent))
                continue
            spans.append(Span(form, width))
            self.tile_dim(d, s.src, spans[-1], extent if limit is None else None, scope, s)
        self.read(source, tuple(spans), scope, s)
        if target.dtype in INTEGERS and target.space != "global":
            low, high = self.contents.get(source.name, UNKNOWN)
            zero = (number(0),)
            self.merge(target, (scope.known.both(low, zero, -1), scope.known.both(high, zero, 1)), scope)
        self.write(target, whole(scope.extents(target)), scope, scope, s)

    def dot(self, s: Dot, scope: Scope) -> None:
        acc = self.target(s.acc, scope, s)
        if self.collect:
            return
        if acc.dtype != "f32" or [d.attr for d in acc.shape] != [s.m, s.n]:
            raise TileError(f"{s.acc} is no f32 accumulator of {s.m} x {s.n}", s)
        if s.group < 1 or s.k % s.group:
            raise TileError(f"k = {s.k} is no multiple of the group {s.group}", s)
        rows = number(s.m)
        if s.rows is not None:
            self.expression(s.rows, scope, s)
            rows = scope.known.form(s.rows)
            if not scope.known.never_positive(rows.plus(-s.m)):
                self.unproven(f"{s.acc} is not proven to have so many rows", s)
        try:
            operands = dot_operands(s)
        except KeyError as error:
            raise TileError(f"unknown layout {error.args[0]}", s) from None
        for (name, at, widths, by_rows), codec in zip(operands, (s.a_codec, s.b_codec, "scale", "scale"),
                                                     strict=False):
            buffer = self.buffer(name, scope, s)
            if buffer.dtype not in (("u8", "f32") if codec == "scale" else ELEMENTS.get(codec, ())):
                raise TileError(f"{name} is {buffer.dtype}, it cannot hold {codec or 'values'} here", s)
            if len(at) != len(buffer.shape) or len(at) < len(widths):
                raise TileError(f"{name} has {len(buffer.shape)} dims, the product names {len(at)}", s)
            spans = []
            for d, (offset, extent) in enumerate(zip(at, scope.extents(buffer), strict=True)):
                self.expression(offset, scope, s)
                form, tile = scope.known.form(offset), d - (len(at) - len(widths))
                width = number(1 if tile < 0 else widths[tile])
                if by_rows and tile == 0:
                    width = rows
                spans.append(Span(form, width))
                self.tile_dim(d, name, spans[-1], extent, scope, s)
            self.read(buffer, tuple(spans), scope, s)
        spans = [Span(number(0), rows), Span(number(0), number(s.n))]
        self.read(acc, tuple(spans), scope, s)
        self.write(acc, tuple(spans), scope, scope, s)

    def tile_dim(self, d: int, name: str, span: Span, extent: Form | None, scope: Scope, s: Stmt) -> None:
        """A tile lies inside dim d of a buffer; of an extent None the end is given by a limit."""
        if not scope.known.never_positive(span.start * -1):
            self.unproven(f"offset {d} of {name} is not proven to be >= 0", s)
        if extent is not None and not scope.known.never_positive(span.start + span.width - extent):
            self.unproven(f"dim {d} of {name} is not proven to hold the tile", s)

    # -- expressions and names

    def condition(self, e: Expr, scope: Scope, s: Stmt) -> None:
        self.expression(e, scope, s)
        if e.dtype != "bool":
            raise TileError(f"the condition is {e.dtype}", s)

    def expression(self, e: Expr, scope: Scope, s: Stmt | None) -> None:
        """Checks names, dtypes and all loads; a branch of `select` is checked under its condition."""
        if self.collect:
            return
        if e.op == "var":
            have = scope.names.get(str(e.attr))
            if have != e.dtype:
                raise TileError(f"{e.attr} is {have}, not {e.dtype}" if have else f"{e.attr} is not declared", s)
            return
        if e.op in ("select", "land", "lor"):
            self.expression(e.args[0], scope, s)
            for number_, branch in enumerate(e.args[1:]):
                self.expression(branch, scope.assuming(e.args[0], (number_ == 0) != (e.op == "lor")), s)
        elif e.op == "load":
            buffer = self.buffer(str(e.attr), scope, s)
            if buffer.dtype != e.dtype:
                raise TileError(f"{e.attr} is {buffer.dtype}, it is read as {e.dtype}", s)
            self.indices(buffer, e.args, scope, s)
            self.read(buffer, tuple(Span(scope.known.form(i), number(1)) for i in e.args), scope, s)
        else:
            for a in e.args:
                self.expression(a, scope, s)
        if e.op in ("arg", "index"):
            raise TileError("an operand of a map inside a tile program", s)
        if e.op in ARITY and e.op not in ("cast", "bitcast"):
            try:
                right = result_dtype(e.op, tuple(a.dtype for a in e.args)) == e.dtype
            except ValueError as error:
                raise TileError(str(error), s) from None
            if not right or len(e.args) != ARITY[e.op]:
                raise TileError(f"{e.op} of {len(e.args)} operands is not {e.dtype}", s)

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...], scope: Scope, s: Stmt | None) -> None:
        if len(indices) != len(buffer.shape):
            raise TileError(f"{buffer.name} has {len(buffer.shape)} dims, indexed with {len(indices)}", s)
        if self.collect:
            return
        for d, (i, extent) in enumerate(zip(indices, scope.extents(buffer), strict=True)):
            self.expression(i, scope, s)
            if i.dtype not in ("i32", "i64"):
                raise TileError(f"index {d} of {buffer.name} is {i.dtype}", s)
            form = scope.known.form(i)
            if not scope.known.never_positive(form * -1):
                self.unproven(f"index {d} of {buffer.name} is not proven to be >= 0", s)
            if not scope.known.never_positive(form.plus(1) - extent):
                self.unproven(f"index {d} of {buffer.name} is not proven to be below its extent", s)

    def unproven(self, message: str, s: Stmt | None) -> None:
        if not self.collect:
            raise TileError(message, s)

    def buffer(self, name: str, scope: Scope, s: Stmt | None) -> Buffer:
        if name not in scope.buffers:
            raise TileError(f"there is no buffer {name}", s)
        return scope.buffers[name]

    def target(self, name: str, scope: Scope, s: Stmt) -> Buffer:
        buffer = self.buffer(name, scope, s)
        if buffer.space == "global" and buffer.mode == "in":
            raise TileError(f"{name} is a parameter of mode in", s)
        return buffer

    def declare(self, name: str, dtype: str, scope: Scope, s: Stmt | None) -> None:
        """`dtype`: "" for a buffer. What is in sight is not declared again."""
        if name in scope.names or name in scope.buffers:
            raise TileError(f"{name} is declared already", s)
        scope.level[name] = len(scope.loops)
        if dtype:
            scope.names[name] = dtype

    def add_buffer(self, b: Buffer, scope: Scope) -> None:
        scope.buffers[b.name] = b
        scope.written.pop(b.name, None)
        if b.bounds is not None:
            self.contents[b.name] = ((scope.known.form(b.bounds[0]),), (scope.known.form(b.bounds[1]).plus(-1),))

    def open_loop(self, name: str, extent: Expr, scope: Scope, s: Stmt | None, stored: frozenset[str] | None) -> None:
        """`stored`: what an independent loop stores to; None for any other loop."""
        if extent.dtype != "i32":
            raise TileError(f"the extent of {name} is {extent.dtype}", s)
        self.declare(name, "i32", scope, s)
        scope.level[name] = len(scope.loops) + 1
        scope.known.bind(name, None, interval(scope.known, 0, extent))
        # Inside the loop there is at least one iteration.
        scope.known.learn(scope.known.form(extent).plus(-1) * -1)
        scope.known.facts.append(scope.known.form(var(name)).plus(1) - scope.known.form(extent))
        touches: dict[str, list[Touch]] | None = None
        if stored is not None and not self.collect:
            touches = {b: [] for b in stored}
        scope.loops = (*scope.loops, Loop(name, touches))

    # -- what buffers hold, and who touches it

    def read(self, buffer: Buffer, spans: Spans, scope: Scope, s: Stmt | None) -> None:
        if self.collect or (buffer.space == "global" and buffer.mode == "in"):
            return
        scope.record(buffer.name, spans, False, s)
        if buffer.mode != "inout" and not covered(scope.written.get(buffer.name, ()), spans, scope.known):
            raise TileError(f"{buffer.name} is read where it is not known to be written", s)

    def write(self, buffer: Buffer, spans: Spans, inner: Scope, scope: Scope, s: Stmt,
              where: Expr | None = None) -> None:
        """`inner`: what holds where the store happens; `scope`: where it may have happened, if `where`."""
        if not self.collect:
            inner.record(buffer.name, spans, True, s)
            scope.forget_boxes(frozenset({buffer.name}))
            if buffer.name in self.read_somewhere:
                boxes = (box_of(spans),) if where is None else guarded((box_of(spans),), where, True)
                scope.add_boxes(buffer.name, boxes)
        if buffer.name in self.read_somewhere:
            scope.known.forget(mentions_any([buffer.name], "load"))

    def races(self, loop: Loop, scope: Scope) -> None:
        for name, touches in (loop.touches or {}).items():
            if not touches:
                continue
            met = clash(touches, scope.buffers[name].mode == "inout")
            if met is None:
                continue
            if met[1].write:
                raise TileError(f"iterations of {loop.var} may store to the same element of {name}", met[0].statement)
            raise TileError(f"an iteration of {loop.var} may read an element of {name} that another one stores",
                            met[1].statement)

    def value(self, buffer: Buffer, value: Expr, scope: Scope, s: Stmt) -> None:
        """What is stored: its dtype, and its bounds where a scratch buffer has some. Those of an output are a claim of
        its tensor type (counts, remainders by numbers in memory); the checked build asserts them."""
        if buffer.dtype != value.dtype:
            raise TileError(f"{buffer.name} is {buffer.dtype}, the stored value {value.dtype}", s)
        if buffer.space == "global":
            return
        if buffer.bounds is not None:
            form = scope.known.form(value)
            low, high = (scope.known.form(b) for b in buffer.bounds)
            if not (scope.known.never_positive(low - form) and scope.known.never_positive(form.plus(1) - high)):
                self.unproven(f"the value is not proven to lie in the bounds of {buffer.name}", s)
        elif buffer.dtype in INTEGERS:
            self.merge(buffer, scope.known.range(value), scope)

    def merge(self, buffer: Buffer, bounds: Bounds, scope: Scope) -> None:
        """First walk: the bounds of what is stored into integer scratch."""
        if not self.collect:
            return
        low, high = (tuple(f for f in side if only_scalars(f)) for side in bounds)
        fixed_low = [n for b in bounds[0] if (n := scope.known.constant_bound(b, -1)) is not None]
        fixed_high = [n for b in bounds[1] if (n := scope.known.constant_bound(b, 1)) is not None]
        low = (*low, *(number(n) for n in fixed_low[:1]))
        high = (*high, *(number(n) for n in fixed_high[:1]))
        if buffer.name in self.collected:
            old_low, old_high = self.collected[buffer.name]
            low, high = scope.known.both(old_low, low, -1), scope.known.both(old_high, high, 1)
        self.collected[buffer.name] = (tuple(dict.fromkeys(low)), tuple(dict.fromkeys(high)))

    def invalidate(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        """What a loop body stores may have changed before any of its statements runs again."""
        scope.known.forget(mentions_any(stored_buffers(body), "load"))


def size_of(b: Buffer) -> int:
    """Bytes of a scratch buffer."""
    count = DTYPE_BYTES[b.dtype]
    for d in b.shape:
        count *= int(d.attr or 0)
    return count
