"""TileLang text for Ascend 950: a persistent grid of cores, each one cube unit and vector units.

What differs from CUDA (tilelang_cuda.py):
  grid           one dim of CORES cores; every core walks over its share of the instances
  vector code    inside `T.SimtVF(threads=N)` only; a run of nests becomes one such block, in the same thread-level form
  memories       unified buffer (alloc_shared) for vector code; operands of a product are copied to L1, the product is
                 in L0C and comes back to the unified buffer whole
  branches       around products do not exist: the cube cannot see a value that the vector unit computed, so the
                 condition guards the vector code and the product runs always, into an accumulator that nobody reads
  functions      native transcendentals (`T.exp`), codecs as functions of the prelude (ascend_prelude.py)
"""
from __future__ import annotations

from dinfc.codegen.schedules.device_walk import DeviceError, names_used, read, written
from dinfc.ir.scalar import Expr, const
from dinfc.ir.tile.program import (
    Alloc,
    Buffer,
    Comment,
    Copy,
    Dot,
    Fill,
    For,
    Let,
    Program,
    Reduce,
    Stmt,
    Store,
    statements,
)

from .ascend_prelude import ASCEND, AscendPrinter
from .tilelang_cuda import CudaWriter
from .tilelang_expr import DTYPES, python_name
from .tilelang_text import Leaf, all_expressions, zero


class AscendWriter(CudaWriter):
    """Statements of ascend950. `cores`: size of the grid."""

    def __init__(self, program: Program, threads: int, stages: int, cores: int) -> None:
        super().__init__(program, threads, stages)
        self.printer = AscendPrinter(self.load, self.scalar)
        self.cores = cores
        dots = [s for s in statements(program.body) if isinstance(s, Dot)]
        self.products = {d.acc for d in dots}
        self.operand_names = {name for d in dots for name in (d.a, d.b)}
        self.vector: list[Stmt] = []  # vector statements that are not written yet
        self.fetched: set[str] = set()  # products whose present value is in the unified buffer

    def emit(self) -> str:
        """The whole module."""
        program = self.program
        self.depth = 3
        self.body(program.body)
        body, self.lines, self.depth = self.lines, [], 0
        for order in program.orders:
            self.line(f"# order {order}")
        for origin in program.origin:
            self.line(f"# {origin}")
        self.line("import tilelang.ascend.language as T")
        self.line("")
        for dim in self.dims:
            self.line(f'{dim} = T.dynamic("{dim}")')
        self.line(f"CORES = {self.cores}")
        self.line('PRELUDE = r"""')
        self.lines += ASCEND.text(all_expressions(program)).split("\n")
        self.lines += ['"""', "", ""]
        self.line("@T.prim_func")
        self.line(f"def {python_name(program.name)}(")
        self.depth = 1
        for p in self.params:
            self.line(p + ",")
        self.depth = 0
        self.line("):")
        self.depth = 1
        if self.products:  # one of the two vector units of a core works; the other one would do the same once more
            self.line("with T.MixedKernel(CORES, sids=1, prelude=PRELUDE) as (core, sid):")
        else:
            self.line("with T.Kernel(CORES, prelude=PRELUDE) as core:")
        self.depth = 2
        for s in statements(program.body):
            if isinstance(s, Alloc):
                self.alloc(s.buffer)
        for name, (count, dtype) in self.lanes.items():
            self.line(f'{name} = T.alloc_shared(({count},), "{DTYPES[dtype]}")')
        self.instances()
        self.lines += body
        return "\n".join(self.lines) + "\n"

    def instances(self) -> None:
        """The loop over this core's instances, and the variables of the grid."""
        extents = [self.text(e) for _, e in self.program.grid]
        total = " * ".join(f"({e})" for e in extents)
        self.line(f"for turn in T.serial(({total} - core + {self.cores - 1}) // CORES):")
        self.depth = 3
        self.line("instance = turn * CORES + core")
        stride = ""
        for number, ((name, _), extent) in enumerate(zip(reversed(self.program.grid), reversed(extents), strict=True)):
            index = f"instance // ({stride})" if stride else "instance"
            last = number == len(extents) - 1
            self.line(f"{python_name(name)} = {index if last else f'({index}) % ({extent})'}")
            stride = f"({extent})" if not stride else f"{stride} * ({extent})"

    def alloc(self, b: Buffer) -> None:
        name = python_name(b.name)
        if b.name in self.products:
            self.line(f'{name}_l0c = T.alloc_l0c({self.shape(b)}, "float32")')
        self.line(f'{name} = T.alloc_shared({self.shape(b)}, "{DTYPES[b.dtype]}")')
        if b.name in self.operand_names:
            self.line(f'{name}_l1 = T.alloc_l1({self.shape(b)}, "{DTYPES[b.dtype]}")')

    def body(self, body: tuple[Stmt, ...]) -> None:
        """A block: runs of vector statements become one vector block each."""
        for s in body:
            if isinstance(s, Comment | Alloc):
                continue
            if isinstance(s, Let) and self.is_fixed(s.value) and not names_used((s,)) & self.pending_scalars():
                self.let(s)
            elif isinstance(s, For) and s.kind in ("serial", "pipelined"):
                self.flush()
                name = python_name(s.var)
                self.loops.append(name)
                with self.block(f"for {name} in T.serial({self.text(s.extent)}):"):
                    self.body(s.body)
                self.loops.pop()
            elif isinstance(s, Dot):
                self.flush()
                self.dot(s)
            elif isinstance(s, Fill) and s.buffer in self.products:
                self.start(s)
            else:
                self.vector.append(s)
        self.flush()

    def pending_scalars(self) -> set[str]:
        """Scalars that vector statements not written yet compute."""
        return {s.name for s in self.vector if isinstance(s, Let | Reduce)}

    def flush(self) -> None:
        """Writes the vector statements so far as one block of threads."""
        pending, self.vector = self.vector, []
        if not pending:
            return
        for acc in sorted(read(tuple(pending)) & self.products - self.fetched):
            self.line(f"T.copy({python_name(acc)}_l0c, {python_name(acc)})")
            self.fetched.add(acc)
        with self.block(f"with T.SimtVF(threads={self.threads}):"):
            self.line("tx = T.get_thread_binding()")
            at = len(self.lines)
            self.cells = {}
            for s in pending:
                self.statement(s)
            self.lines[at:at] = [f'{self.indent * self.depth}{name} = T.alloc_local((1,), "{DTYPES[dtype]}")'
                                 for name, dtype in self.cells.items()]
            self.bound = {k: v for k, v in self.bound.items() if not v.endswith("[0]")}
        for name in sorted(written(tuple(pending)) & self.operand_names):
            self.line(f"T.copy({python_name(name)}, {python_name(name)}_l1)")

    def is_tile_operation(self, leaf: Leaf) -> bool:
        return False

    def fill(self, s: Fill) -> None:
        b = self.buffers[s.buffer]
        names = tuple(f"f{n}" for n in range(len(b.shape)))
        store = Store(b.name, tuple(Expr("var", (), "i32", n) for n in names), s.value)
        self.leaf(Leaf(tuple((n, int(d.attr)) for n, d in zip(names, b.shape, strict=True)), (store,)))  # type: ignore[arg-type]

    def copy(self, s: Copy) -> None:
        self.gather(s, self.buffers[s.dst], self.buffers[s.src],
                    len(self.buffers[s.src].shape) - len(self.buffers[s.dst].shape))

    def gather(self, s: Copy, dst: Buffer, src: Buffer, lead: int) -> None:
        """Element by element, by threads."""
        names = tuple(f"c{n}" for n in range(len(dst.shape)))
        loops = [Expr("var", (), "i32", n) for n in names]
        indices = [o if n < lead else o + loops[n - lead] for n, o in enumerate(s.offsets)]
        if s.rows is not None:
            indices[0] = Expr("load", (loops[0],), "i32", s.rows)
        tests = [f"{self.text(i)} < {self.text(limit)}" for i, limit in zip(indices, s.limits, strict=True)
                 if limit is not None]
        if s.rows is not None:
            tests = [f"{self.text(indices[0])} >= 0", *tests]
        points = Leaf(tuple((n, int(d.attr)) for n, d in zip(names, dst.shape, strict=True)), ())  # type: ignore[arg-type]
        with self.threads_of(points):
            value = self.element(src, tuple(indices))
            for test in reversed(tests):
                value = f"T.if_then_else({test}, {value}, {zero(dst.dtype)})"
            self.line(f"{self.element(dst, tuple(loops))} = {value}")

    def dot(self, s: Dot) -> None:
        if s.b_layout != "nk":
            raise DeviceError(f"product into {s.acc}: the cube multiplies by rows of b")
        a, b = python_name(s.a), python_name(s.b)
        acc = python_name(s.acc)
        whole = all(o == const(0) for o in s.b_at)
        rows = f"{b}_l1" if whole and self.buffers[s.b].shape[0] == const(s.n) else (
            f"{b}_l1[{self.text(s.b_at[0])} : {self.text(s.b_at[0] + s.n)}, 0 : {s.k}]")
        self.line(f"T.gemm({a}_l1, {rows}, {acc}_l0c, transpose_B=True, clear_accum={self.clears(s.acc)})")
        self.fetched.discard(s.acc)
