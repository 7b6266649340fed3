"""TileLang text for sm100: products are tcgen05 instructions whose accumulators live in tensor memory.

What differs from sm90 (tilelang_cuda.py):
  accumulators of products   `T.alloc_tmem`; they are cleared by the first product that writes them (`clear_accum`) and
                             read by way of a fragment (T.copy, LDTM)
  completion                 one mbarrier for all products, whose parity the kernel counts itself: T.gemm derives it
                             from the innermost loop, which is wrong for a second product in the same iteration and
                             for an iteration that a branch skips
  other accumulators         fragments as before
  operands in shared memory  every writer issues a proxy fence before the barrier in front of a product, since the unit
                             reads shared memory through the asynchronous proxy; so staged loops run one stage after
                             the other: TileLang 0.1.15 puts that fence before the wait for its own asynchronous copies
  scaled products            e4m3 codes and e8m0 scales as they are stored: a word of 4 scales a row goes to tensor
                             memory by tcgen05.cp, the unit multiplies them in (kind mxf8f6f4.block_scale)
"""
from __future__ import annotations

from dataclasses import replace

from dinfc.codegen.schedules.device_walk import DeviceError, loads, own_expressions, sizes
from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import Buffer, Copy, Dot, Fill, For, Program, statements

from .tilelang_cuda import CudaWriter
from .tilelang_expr import python_name
from .tilelang_text import Leaf

SCALES_A_WORD = 4  # E8M0 bytes along K in a word of scales
TMEM_ROWS = 128
DONE, PHASE = "products_done", "products_phase"


class Sm100Writer(CudaWriter):
    """Statements of sm100."""

    def __init__(self, program: Program, threads: int, stages: int = 2) -> None:
        super().__init__(program, threads, stages)
        dots = [s for s in statements(program.body) if isinstance(s, Dot)]
        self.tensor_memory = {d.acc for d in dots}
        self.scaled = [d for d in dots if d.a_codec]
        self.float8 = self._float8()
        self.fragments: set[str] = set()  # accumulators whose fragment holds their present value

    def _float8(self) -> set[str]:
        """Buffers of codes that only ever reach scaled products: they are declared as e4m3 numbers."""
        codes = {name for d in self.scaled for name in (d.a, d.b)}
        codes |= {s.src for s in statements(self.program.body) if isinstance(s, Copy) and s.dst in codes}
        used = {str(n.attr) for s in statements(self.program.body) for n in loads(own_expressions(s))}
        if used & codes:
            raise DeviceError(f"{min(used & codes)} is multiplied as e4m3 codes and also read byte by byte")
        return codes

    def emit(self) -> str:
        """The whole module."""
        if self.tensor_memory:
            self.cells[PHASE] = "i32"
        for number, p in enumerate(self.program.params):
            if p.name in self.float8:
                self.params[number] = self.params[number].replace('"uint8"', '"float8_e4m3fn"')
        return super().emit()

    def begin(self) -> None:
        if self.tensor_memory:
            self.line(f"{DONE} = T.alloc_barrier(1)")
            self.line(f"{PHASE}[0] = 0")

    def alloc(self, b: Buffer) -> None:
        name = python_name(b.name)
        if b.name in self.tensor_memory:
            self.line(f'{name} = T.alloc_tmem({self.shape(b)}, "float32")')
            self.line(f'{name}_f = T.alloc_fragment({self.shape(b)}, "float32")')
            for d in self.scaled:
                if d.acc == b.name:
                    for side, rows in (("a", d.m), ("b", d.n)):
                        self.line(f'{name}_{side}_words = T.alloc_shared(({rows},), "uint32")')
                        columns = rows // TMEM_ROWS * SCALES_A_WORD
                        self.line(f'{name}_{side}_scales = T.alloc_tmem(({TMEM_ROWS}, {columns}), "uint32")')
        elif b.name in self.float8:
            self.line(f'{name} = T.alloc_shared({self.shape(b)}, "float8_e4m3fn")')
        else:
            super().alloc(b)

    def fill(self, s: Fill) -> None:
        if s.buffer not in self.tensor_memory:
            super().fill(s)
            return
        self.start(s)

    def loop(self, s: For) -> None:
        self.loops.append(python_name(s.var))
        super().loop(replace(s, kind="serial"))
        self.loops.pop()

    def dot(self, s: Dot) -> None:
        acc = python_name(s.acc)
        common = f"transpose_B={s.b_layout == 'nk'}, mbar={DONE}, clear_accum={self.clears(s.acc)}"
        self.fragments.discard(s.acc)
        a, b = self.operands(s)
        if s.a_codec:
            self.scales(s, acc)
            self.line(f"T.tcgen05_gemm_blockscaled({a}, {b}, {acc}, {acc}_a_scales, {acc}_b_scales,")
            self.line(f"                           {common},")
            k = f"sf_a_granularity_k={s.group}, sf_b_granularity_k={s.group}"
            self.line(f"                           k_start=0, {k})")
        else:
            self.meet()
            self.line(f"T.tcgen05_gemm({a}, {b}, {acc}, {common})")
        self.line(f"T.mbarrier_wait_parity({DONE}, {PHASE}[0])")
        self.line(f"{PHASE}[0] = 1 - {PHASE}[0]")

    def scales(self, s: Dot, acc: str) -> None:
        """Scale bytes into words, words into tensor memory. tcgen05.cp wants row r of a chunk of 128 at word
        (r % 32) * 4 + r // 32."""
        if s.k != SCALES_A_WORD * s.group or s.m % TMEM_ROWS or s.n % TMEM_ROWS:
            raise DeviceError(f"product into {s.acc}: a scaled product takes {SCALES_A_WORD * s.group} along K and "
                              f"whole chunks of {TMEM_ROWS} rows, this one is {s.m} x {s.n} x {s.k}")
        for side, rows, name, per in (("a", s.m, s.a_scale, 1), ("b", s.n, s.b_scale, s.b_scale_rows)):
            assert name is not None
            if sizes(self.buffers[name])[1] != SCALES_A_WORD:
                raise DeviceError(f"scales {name} must hold {SCALES_A_WORD} groups a row")
            row = "i_row" if per == 1 else f"i_row // {per}"
            bytes_ = [f'(T.cast({python_name(name)}[{row}, {n}], "uint32") << T.uint32({8 * n}))'
                      for n in range(SCALES_A_WORD)]
            with self.block(f"for i_row in T.Parallel({rows}):"):
                chunk = "" if rows == TMEM_ROWS else f"i_row // {TMEM_ROWS} * {TMEM_ROWS} + "
                within = "i_row" if rows == TMEM_ROWS else f"(i_row % {TMEM_ROWS})"
                self.line(f"{acc}_{side}_words[{chunk}{within} % 32 * 4 + {within} // 32] = {' | '.join(bytes_)}")
        self.meet()
        with self.block("if tx < 32:"):
            for side in "ab":
                self.line(f"T.tcgen05_cp_warpx4({acc}_{side}_words, {acc}_{side}_scales)")

    def meet(self) -> None:
        """All threads meet: what they wrote to shared memory and read from tensor memory is done for the unit too."""
        for call in ("fence_proxy_async", "tcgen05_before_thread_sync", "sync_threads", "tcgen05_after_thread_sync"):
            self.line(f"T.{call}()")

    def copy(self, s: Copy) -> None:
        if s.src in self.tensor_memory:
            self.fetch(s.src)
            self.line(f"T.copy({python_name(s.src)}_f, {python_name(s.dst)})")
            return
        super().copy(s)

    def fetch(self, acc: str) -> None:
        """Brings the accumulator's value into its fragment, once after each product."""
        if acc not in self.fragments:
            self.line(f"T.copy({python_name(acc)}, {python_name(acc)}_f)")
            self.fragments.add(acc)

    def leaf(self, leaf: Leaf) -> None:
        read = {str(n.attr) for s in statements(leaf.body) for n in loads(own_expressions(s))}
        for acc in sorted(read & self.tensor_memory):
            self.fetch(acc)
        super().leaf(leaf)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        if buffer.name in self.tensor_memory:
            return f"{python_name(buffer.name)}_f[{', '.join(self.text(i) for i in indices)}]"
        return super().element(buffer, indices)
