"""The fast build: loops for the vectoriser, tile products as register-blocked templates."""
from __future__ import annotations

from dinfc.ir.tile.program import Buffer, Copy, Dot, Fill, For, Reduce

from .cpu_copy import emit_copy
from .cpu_dot import emit_dot
from .cpu_expr import identifier
from .cpu_loops import clipped_extent, is_simd_loop
from .cpu_reduce import emit_reduce
from .cpu_statements import Emitter, declare_scratch


class FastEmitter(Emitter):
    def param(self, number: int, buffer: Buffer) -> None:
        const = "const " if buffer.mode == "in" else ""
        ctype = self.scope.stored_type(buffer)
        name = identifier(buffer.name)
        self.scope.line(f"{const}{ctype}* const __restrict__ {name} = ({const}{ctype}*)args[{number}];")

    def alloc(self, buffer: Buffer) -> None:
        declare_scratch(self.scope, buffer)

    def fill(self, s: Fill) -> None:
        scope, buffer = self.scope, self.scope.buffers[s.buffer]
        count = " * ".join(scope.extents(buffer)) or "1"
        place = f"{identifier(buffer.name)}[i_]"
        value = scope.outer(s.value)
        stored = f"dinfc_store_bf16({value})" if buffer.dtype == "bf16" else value
        scope.line(f"for (int i_ = 0; i_ < {count}; ++i_) {place} = {stored};")

    def loop(self, s: For) -> None:
        scope, var = self.scope, identifier(s.var)
        scope.nonnegative.add(s.var)
        extent = scope.text(s.extent)
        clipped = clipped_extent(s)
        if clipped is None:
            self.hint(s)
            self.block(f"for (int {var} = 0; {var} < {extent}; ++{var})", s.body)
            return
        limit, body = clipped
        with scope.block(""):
            scope.line(f"const int {var}_end_ = dinfc_min({extent}, {scope.outer(limit)});")
            self.hint(s)
            self.block(f"for (int {var} = 0; {var} < {var}_end_; ++{var})", body)

    def hint(self, s: For) -> None:
        """What the compiler is told about the next loop."""
        if is_simd_loop(s):
            self.scope.pragma("#pragma omp simd")
        elif s.kind == "unrolled" and isinstance(s.extent.attr, int):
            self.scope.pragma(f"#pragma GCC unroll {max(1, s.extent.attr)}")

    def copy(self, s: Copy) -> None:
        emit_copy(s, self.scope)

    def reduce(self, s: Reduce) -> None:
        emit_reduce(s, self.scope)

    def dot(self, s: Dot) -> None:
        emit_dot(s, self.scope)
