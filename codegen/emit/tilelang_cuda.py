"""TileLang text for NVIDIA devices, and what both generations share.

    with T.Kernel(grid, threads=N) as (...):       # one thread block an instance
        T.Parallel nests                           # phases of independent elements (device_spread.py)
        for s in T.serial(..): thread-level code   # phases with reductions inside: one thread a point
        T.Pipelined loops with T.copy and T.gemm   # staged products

Barriers between phases are TileLang's: it sees which shared buffers a phase reads and writes. Reductions are written
out with their lanes and tree; none is left to `T.reduce_*`, whose order follows the inferred layout.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dinfc.codegen.schedules.device_walk import DeviceError, bind, loads, own_expressions, rewrite, sizes, written
from dinfc.ir.scalar import Expr, const, walk
from dinfc.ir.tile.program import Alloc, Buffer, Copy, Dot, Fill, For, If, Let, Program, Reduce, Stmt, Store, statements

from .tilelang_cuda_prelude import CUDA
from .tilelang_expr import DTYPES, python_name
from .tilelang_text import Leaf, TileLangWriter, all_expressions, is_flat, zero

WARP = 32


class CudaWriter(TileLangWriter):
    """Statements of sm90: accumulators are fragments, products T.gemm on them (WGMMA)."""

    def __init__(self, program: Program, threads: int, stages: int = 2) -> None:
        super().__init__(program)
        self.threads, self.stages = threads, stages
        self.cells: dict[str, str] = {}  # thread-local variables: name -> dtype
        self.lanes: dict[str, tuple[int, str]] = {}  # shared lanes of block-wide reductions

    def emit(self) -> str:
        """The whole module."""
        program = self.program
        self.depth = 2
        for s in program.body:
            self.statement(s)
        body, self.lines, self.depth = self.lines, [], 0
        for order in program.orders:
            self.line(f"# order {order}")
        for origin in program.origin:
            self.line(f"# {origin}")
        self.line("import tilelang.language as T")
        self.line("")
        for dim in self.dims:
            self.line(f'{dim} = T.dynamic("{dim}")')
        prelude = CUDA.text(all_expressions(program))
        self.line('PRELUDE = r"""')
        self.lines += prelude.split("\n")
        self.lines += ['"""', "", ""]
        self.line("@T.prim_func")
        self.line(f"def {python_name(program.name)}(")
        self.depth = 1
        for p in self.params:
            self.line(p + ",")
        self.depth = 0
        self.line("):")
        self.depth = 1
        names = ", ".join(python_name(n) for n, _ in reversed(program.grid))
        extents = ", ".join(self.text(e) for _, e in reversed(program.grid))
        several = f"({names})" if len(program.grid) > 1 else names
        self.line(f"with T.Kernel({extents}, threads={self.threads}, prelude=PRELUDE) as {several}:")
        self.depth = 2
        self.line("tx = T.get_thread_binding()")
        for s in statements(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.buffer)
        for name, dtype in self.cells.items():
            self.line(f'{name} = T.alloc_local((1,), "{DTYPES[dtype]}")')
        for name, (count, dtype) in self.lanes.items():
            self.line(f'{name} = T.alloc_shared(({count},), "{DTYPES[dtype]}")')
        self.begin()
        self.lines += body
        return "\n".join(self.lines) + "\n"

    def begin(self) -> None:
        """Statements before the program's own."""

    def alloc(self, b: Buffer) -> None:
        place = "fragment" if b.space == "accumulator" else "shared"
        self.line(f'{python_name(b.name)} = T.alloc_{place}({self.shape(b)}, "{DTYPES[b.dtype]}")')

    def store(self, s: Store) -> None:
        """Outside every nest: one thread stores."""
        with self.block("if tx == 0:"):
            self.put(s)

    def let(self, s: Let) -> None:
        if self.is_fixed(s.value):
            self.bound.pop(s.name, None)
            self.line(f"{python_name(s.name)} = {self.text(s.value)}")
            return
        self.cell(s.name, s.value.dtype, self.text(s.value))

    def cell(self, name: str, dtype: str, value: str) -> str:
        """Sets a variable of the thread."""
        word = python_name(name) + "_v"
        while self.cells.get(word, dtype) != dtype:
            word += "_"
        self.cells[word] = dtype
        self.line(f"{word}[0] = {value}")
        self.bound[name] = f"{word}[0]"
        return f"{word}[0]"

    def reduce(self, r: Reduce) -> None:
        """Of the whole block: every thread alone where there is one lane, otherwise a lane a thread."""
        if r.lanes == 1:
            self.chain(r)
            return
        if r.lanes > self.threads:
            raise DeviceError(f"reduction {r.name}: {r.lanes} lanes need as many threads, there are {self.threads}")
        extent = _constant(r.extent, r.name)
        dtype, lanes = r.value.dtype, r.lanes
        acc = self.cell(r.name + "_lane", dtype, self.text(r.start))
        self.bound[r.var] = python_name(r.var)
        whole = extent % lanes == 0 and lanes == self.threads
        with self.block(f"for lane_step in T.serial({-(-extent // lanes)}):"):
            self.line(f"{python_name(r.var)} = lane_step * {lanes} + tx")
            if whole:
                self.update(r, acc)
            else:
                inside = f"T.And(tx < {lanes}, {python_name(r.var)} < {extent})"
                with self.block(f"if {inside}:"):
                    self.update(r, acc)
        shared = python_name(r.name) + "_lanes"
        self.lanes[shared] = (self.threads, dtype)
        self.line("T.sync_threads()")
        self.line(f"{shared}[tx] = {acc}")
        half = lanes // 2
        while half:
            self.line("T.sync_threads()")
            with self.block(f"if tx < {half}:"):
                self.line(f"{shared}[tx] = {self.combine(r, f'{shared}[tx]', f'{shared}[tx + {half}]')}")
            half //= 2
        self.line("T.sync_threads()")
        self.cell(r.name, dtype, f"{shared}[0]")

    def update(self, r: Reduce, acc: str) -> None:
        times = None if r.times is None else self.text(r.times)
        self.line(f"{acc} = {self.combine(r, acc, self.text(r.value), times)}")

    def chain(self, r: Reduce) -> None:
        """One thread, element after element; lanes of a sum are variables of the thread."""
        exact = r.op in ("max", "min")
        lanes = 1 if exact else r.lanes
        extent = _constant(r.extent, r.name)
        var = python_name(r.var)
        self.bound[r.var] = var
        if lanes == 1:
            acc = self.cell(r.name, r.value.dtype, self.text(r.start))
            with self.block(f"for {var} in T.serial({extent}):"):
                self.update(r, acc)
            return
        if extent % lanes:
            raise DeviceError(f"reduction {r.name}: {extent} elements do not fill {lanes} lanes")
        cells = [self.cell(f"{r.name}_{n}", r.value.dtype, self.text(r.start)) for n in range(lanes)]
        with self.block(f"for {var}_0 in T.serial({extent // lanes}):"):
            for n, cell in enumerate(cells):
                self.bound[r.var] = f"({var}_0 * {lanes} + {n})"
                self.update(r, cell)
        while len(cells) > 1:
            half = len(cells) // 2
            for a, b in zip(cells[:half], cells[half:], strict=True):
                self.line(f"{a} = {self.combine(r, a, b)}")
            cells = cells[:half]
        self.bound[r.name] = cells[0]

    def fill(self, s: Fill) -> None:
        self.line(f"T.fill({python_name(s.buffer)}, {self.text(s.value)})")

    def copy(self, s: Copy) -> None:
        dst, src = self.buffers[s.dst], self.buffers[s.src]
        lead = len(src.shape) - len(dst.shape)
        limits = zip(s.limits, src.shape, strict=True)
        plain = s.rows is None and all(limit is None or limit == dim for limit, dim in limits)
        if src.space != "global":
            if any(o != const(0) for o in s.offsets):
                raise DeviceError(f"copy {s.dst} = {s.src}: a copy between tiles takes the whole tile")
            self.line(f"T.copy({python_name(src.name)}, {python_name(dst.name)})")
            return
        if plain:
            region = [self.text(o) for o in s.offsets[:lead]]
            for o, extent in zip(s.offsets[lead:], sizes(dst), strict=True):
                at = self.text(o)
                region.append(f"{at} : {at} + {extent}")
            self.line(f"T.copy({python_name(src.name)}[{', '.join(region)}], {python_name(dst.name)})")
            return
        self.gather(s, dst, src, lead)

    def gather(self, s: Copy, dst: Buffer, src: Buffer, lead: int) -> None:
        """Element by element: gathered rows, or limits that are not the source's own."""
        loops = [f"c{n}" for n in range(len(dst.shape))]
        indices, tests = [], []
        for n, offset in enumerate(s.offsets):
            at = self.text(offset)
            if n >= lead:
                at = f"({at} + {loops[n - lead]})"
            if n == lead and s.rows is not None:
                at = f"{python_name(s.rows)}[{loops[0]}]"
            limit = s.limits[n] if s.limits[n] is not None or n != lead or s.rows is None else src.shape[n]
            if limit is not None:
                tests += [f"{at} >= 0", f"{at} < {self.text(limit)}"]
            indices.append(at)
        value = f"{python_name(src.name)}[{', '.join(indices)}]"
        for test in reversed(tests):
            value = f"T.if_then_else({test}, {value}, {zero(dst.dtype)})"
        with self.block(f"for {', '.join(loops)} in T.Parallel({', '.join(str(n) for n in sizes(dst))}):"):
            self.line(f"{python_name(dst.name)}[{', '.join(loops)}] = {value}")

    def dot(self, s: Dot) -> None:
        groups = self.threads // (4 * WARP)
        policy = "FullRow" if s.m >= 64 * groups else "FullCol"
        a, b = self.operands(s)
        self.line(f"T.gemm({a}, {b}, {python_name(s.acc)}, transpose_B={s.b_layout == 'nk'}, "
                  f"policy=T.GemmWarpPolicy.{policy})")

    def operands(self, s: Dot) -> tuple[str, str]:
        """Both operands as tiles: the whole buffer, or a part of it."""
        def tile(name: str, at: tuple[Expr, ...], shape: tuple[int, int]) -> str:
            if sizes(self.buffers[name]) == shape:
                return python_name(name)
            ranges = [f"{self.text(o)} : {self.text(o + n)}" for o, n in zip(at, shape, strict=True)]
            return f"{python_name(name)}[{', '.join(ranges)}]"

        return tile(s.a, s.a_at, (s.m, s.k)), tile(s.b, s.b_at, (s.n, s.k) if s.b_layout == "nk" else (s.k, s.n))

    def leaf(self, leaf: Leaf) -> None:
        if is_flat(leaf) and self.is_tile_operation(leaf):
            loops = ", ".join(python_name(n) for n, _ in leaf.nest)
            with self.block(f"for {loops} in T.Parallel({', '.join(str(e) for _, e in leaf.nest)}):"):
                for s in inline_lets(leaf.body):
                    self.point(s)
            return
        with self.threads_of(leaf):
            self.points(leaf.body)

    @contextmanager
    def threads_of(self, leaf: Leaf) -> Iterator[None]:
        """A block in which each thread takes points of the nest; its loop variables are set."""
        total = points_of(leaf)
        with self.block(f"for point_step in T.serial({-(-total // self.threads)}):"):
            self.line(f"point = point_step * {self.threads} + tx")
            stride = total
            for name, extent in leaf.nest:
                stride //= extent
                at = "point" if stride == 1 else f"point // {stride}"
                self.line(f"{python_name(name)} = {at if name == leaf.nest[0][0] else f'({at}) % {extent}'}")
            if total % self.threads == 0:
                yield
                return
            with self.block(f"if point < {total}:"):
                yield

    def is_tile_operation(self, leaf: Leaf) -> bool:
        """Accumulators can only be reached by tile operations. Other nests become tile operations where they are large
        and without branches, so that TileLang may vectorise them: its layout inference takes half a minute for a
        small nest of nested selects."""
        nodes = {n.op for s in statements(leaf.body) for e in own_expressions(s) for n in walk(e)}
        touched = {str(n.attr) for s in statements(leaf.body) for n in loads(own_expressions(s))} | written(leaf.body)
        if any(self.buffers[name].space == "accumulator" for name in touched):
            return True
        branches = "select" in nodes or any(isinstance(s, If) or (isinstance(s, Store) and s.where is not None)
                                            for s in statements(leaf.body))
        return not branches and points_of(leaf) >= 4 * self.threads

    def points(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.point(s)

    def point(self, s: Stmt) -> None:
        """A statement of one thread."""
        if isinstance(s, Store):
            self.put(s)
        elif isinstance(s, Reduce):
            self.chain(s)
        elif isinstance(s, For):
            with self.block(f"for {python_name(s.var)} in T.serial({self.text(s.extent)}):"):
                self.points(s.body)
        elif isinstance(s, If):
            with self.block(f"if {self.text(s.cond)}:"):
                self.points(s.then)
            if s.otherwise:
                with self.block("else:"):
                    self.points(s.otherwise)
        else:
            self.statement(s)

    def loop(self, s: For) -> None:
        extent = self.text(s.extent)
        kind = f"T.Pipelined({extent}, num_stages={self.stages})" if s.kind == "pipelined" else f"T.serial({extent})"
        with self.block(f"for {python_name(s.var)} in {kind}:"):
            for inner in s.body:
                self.statement(inner)


def points_of(leaf: Leaf) -> int:
    return math.prod(extent for _, extent in leaf.nest)


def inline_lets(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with its scalars in the place of their names (a tile operation has stores and branches only)."""
    values: dict[str, Expr] = {}
    change: Callable[[Expr], Expr] = bind(values)
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Let):
            values[s.name] = change(s.value)
        else:
            out.append(rewrite(s, change))
    return tuple(out)


def _constant(e: Expr, name: str) -> int:
    if e.op != "const" or not isinstance(e.attr, int):
        raise DeviceError(f"reduction {name}: its extent must be a constant on a device")
    return e.attr
