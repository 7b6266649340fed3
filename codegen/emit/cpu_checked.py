"""The checked build: the same program as plain scalar loops, everything tested that the verifier proves or assumes.

Tested are every index, every read of scratch memory, values of integer buffers against their bounds, divisors, and
casts to integers.

It is the oracle of the fast build: compiled with -O1, in the stated order, from nothing but the statements' definitions
(no template is shared with the fast build except the function set), it must give the same bits. A failed check records
kernel, statement and index (dinfc_last_error) and leaves the kernel; later launches of the thread go on, the runner
looks at the record after each launch.

Scratch memory starts as 0xFF bytes (NaN) with a shadow byte an element that says whether it was written.
"""
from __future__ import annotations

import json

from dinfc.ir.scalar import FLOATS, Expr
from dinfc.ir.tile.program import Buffer, Comment, Copy, Dot, Fill, Program, Reduce, Stmt
from dinfc.ir.tile.text import print_head

from .cpu_checked_dot import checked_dot
from .cpu_copy import check_copy
from .cpu_expr import CPP_TYPES, ExprPrinter, identifier
from .cpu_reduce import check_lanes, combine, element_update
from .cpu_scope import Scope, strip_parentheses
from .cpu_statements import LARGE_BYTES, Emitter, declare_scratch, element_count


class CheckedPrinter(ExprPrinter):
    """Expressions whose casts to integers keep the value and whose divisors are not zero."""

    def cast(self, text: str, source: str, dtype: str) -> str:
        if dtype in FLOATS or dtype == "bool" or source == "bool":
            return super().cast(text, source, dtype)
        macro = "DINFC_TRUNCATE" if source in FLOATS else "DINFC_CONVERT"
        return f"{macro}({CPP_TYPES[dtype]}, {strip_parentheses(text)})"

    def divide(self, node: Expr, args: list[str]) -> str:
        if node.args[1].op == "const" and node.args[1].attr:
            return super().divide(node, args)
        return super().divide(node, [args[0], f"DINFC_DIVISOR({strip_parentheses(args[1])})"])


class CheckedScope(Scope):
    """A scope whose element accesses are tested."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.printer = CheckedPrinter(self.load, self.nonnegative)

    def write(self, buffer: Buffer, indices: list[str], value: str) -> str:
        if buffer.bounds is not None:
            low, high = (strip_parentheses(self.text(b)) for b in buffer.bounds)
            value = f'DINFC_BOUND({strip_parentheses(value)}, {low}, {high}, "{buffer.name}")'
        return super().write(buffer, indices, value)

    def place(self, buffer: Buffer, indices: list[str], write: bool) -> str:
        name = identifier(buffer.name)
        at = ""
        for index, extent in zip(indices, self.extents(buffer), strict=True):
            checked = f"DINFC_INDEX({strip_parentheses(index)}, {strip_parentheses(extent)}, \"{buffer.name}\")"
            at = f"({at}) * {extent} + {checked}" if at else checked
        at = at or "0"
        if buffer.space == "global":
            return f"{name}[{at}]"
        access = f"DINFC_WRITE({at}, {name}_init_)" if write else f'DINFC_READ({at}, {name}_init_, "{buffer.name}")'
        return f"{name}[{access}]"


class CheckedEmitter(Emitter):
    def param(self, number: int, buffer: Buffer) -> None:
        const = "const " if buffer.mode == "in" else ""
        ctype = self.scope.stored_type(buffer)
        self.scope.line(f"{const}{ctype}* const {identifier(buffer.name)} = ({const}{ctype}*)args[{number}];")

    def statement(self, s: Stmt) -> None:
        if not isinstance(s, Comment):
            self.scope.line(f"statement = {json.dumps(print_head(s))};")
        super().statement(s)

    def alloc(self, buffer: Buffer) -> None:
        scope, name, count = self.scope, identifier(buffer.name), element_count(buffer)
        declare_scratch(scope, buffer)
        storage = "static thread_local " if count > LARGE_BYTES else ""
        scope.line(f"{storage}uint8_t {name}_init_[{count}];")
        scope.line(f"__builtin_memset({name}, 0xFF, sizeof {name});")
        scope.line(f"__builtin_memset({name}_init_, 0, sizeof {name}_init_);")

    def fill(self, s: Fill) -> None:
        """Over the dims, so that it goes through the same checks."""
        scope, buffer = self.scope, self.scope.buffers[s.buffer]
        indices = self.nest(buffer)
        scope.line(scope.write(buffer, indices, scope.outer(s.value)))
        self.close(len(indices))

    def nest(self, buffer: Buffer) -> list[str]:
        """Opens a loop for every dim of a buffer; returns the loop variables."""
        indices = [f"c{d}_" for d in range(len(buffer.shape))]
        for var, extent in zip(indices, self.scope.extents(buffer), strict=True):
            self.scope.line(f"for (int {var} = 0; {var} < {extent}; ++{var}) {{")
            self.scope.depth += 1
        return indices

    def close(self, count: int) -> None:
        for _ in range(count):
            self.scope.depth -= 1
            self.scope.line("}")

    def copy(self, s: Copy) -> None:
        scope, dst, src = self.scope, self.scope.buffers[s.dst], self.scope.buffers[s.src]
        lead = check_copy(s, dst, src)
        indices = self.nest(dst)
        source = [scope.text(o) for o in s.offsets]
        for d, var in enumerate(indices):
            source[lead + d] = f"({source[lead + d]} + {var})"
        tests = [(d, limit) for d, limit in enumerate(s.limits) if limit is not None]
        if s.rows is not None:
            scope.line(f"const int row_ = {scope.read(scope.buffers[s.rows], [indices[0]])};")
            source[0] = "row_"
            if s.limits[0] is None:
                tests.insert(0, (0, src.shape[0]))
        inside = " && ".join(f"{source[d]} >= 0 && {source[d]} < {scope.text(limit)}" for d, limit in tests) or "true"
        zero = "0.0f" if src.dtype == "bf16" else "0"
        scope.line(scope.write(dst, indices, f"{inside} ? {scope.read(src, source)} : {zero}"))
        self.close(len(indices))

    def reduce(self, s: Reduce) -> None:
        check_lanes(s)
        scope, ctype, name, var = self.scope, CPP_TYPES[s.value.dtype], identifier(s.name), identifier(s.var)
        lane = f"{name}_lane_"
        scope.nonnegative.add(s.var)
        scope.line(f"{ctype} {lane}[{s.lanes}];")
        scope.line(f"for (int l_ = 0; l_ < {s.lanes}; ++l_) {lane}[l_] = {scope.outer(s.start)};")
        with scope.block(f"for (int {var} = 0; {var} < {scope.text(s.extent)}; ++{var})"):
            at = f"{lane}[{var} % {s.lanes}]"
            scope.line(f"{at} = {element_update(s, scope, at)};")
        fold = combine(s)(f"{lane}[l_]", f"{lane}[l_ + s_]")
        scope.line(f"for (int s_ = {s.lanes // 2}; s_ > 0; s_ /= 2)")
        scope.line(f"    for (int l_ = 0; l_ < s_; ++l_) {lane}[l_] = {fold};")
        scope.line(f"const {ctype} {name} = {lane}[0];")

    def dot(self, s: Dot) -> None:
        checked_dot(s, self.scope)
