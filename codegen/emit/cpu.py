"""The CPU emitter: a tile program as one C++17 function.

    extern "C" void NAME(const dinfc_ctx* ctx, void* const* args, int tid, int nthreads)

`args` are the program's params in order. The function computes its static share of the flattened grid, instances
[total * tid / nthreads, total * (tid + 1) / nthreads); it starts no threads: the launcher opens one parallel region a
step and puts a barrier between launches. `emit_kernel(program, checked=True)` prints the checked build
(cpu_checked.py), which computes the same bits.

Near, shared and accumulator buffers are arrays on the stack, or thread-local where they are large; nothing is
allocated.
"""
from __future__ import annotations

from collections.abc import Sequence

from dinfc.ir.scalar import Expr, walk
from dinfc.ir.tile.access import expressions
from dinfc.ir.tile.program import SCALARS, Alloc, Dot, Program, statements

from .cpu_checked import CheckedEmitter, CheckedScope
from .cpu_expr import identifier
from .cpu_fast import FastEmitter
from .cpu_preamble import CHECKED, DOT, PREAMBLE
from .cpu_scope import Scope
from .cpu_statements import Emitter


def emit_source(programs: Sequence[Program], checked: bool = False) -> str:
    """A translation unit with these kernels."""
    extra = [CHECKED] if checked else [DOT] if any(uses_products(p) for p in programs) else []
    head = [f'#include "{name}"' for name in (PREAMBLE, *extra)]
    return "\n".join([*head, "", *(emit_kernel(p, checked) for p in programs)])


def uses_products(program: Program) -> bool:
    return any(isinstance(s, Dot) for s in statements(program.body))


def emit_kernel(program: Program, checked: bool = False) -> str:
    """The C++ function of one program. Raises EmitError for what this emitter cannot print."""
    scope = CheckedScope(program) if checked else Scope(program)
    emitter: Emitter = CheckedEmitter(scope) if checked else FastEmitter(scope)
    for line in program.origin:
        scope.line(f"// {line}")
    for order in program.orders:
        scope.line(f"// order {order}")
    scope.line('extern "C" __attribute__((visibility("default")))')
    signature = f"void {identifier(program.name)}(const dinfc_ctx* ctx, void* const* args, int tid, int nthreads)"
    with scope.block(signature):
        if checked:
            scope.line(f'const char* const kernel = "{program.name}";')
            scope.line('const char* statement = "";')
        scope.line("const dinfc_fp_mode fp_mode;")
        for name in sorted(used_scalars(program, checked), key=SCALARS.index):
            scope.line(f"const int {name} = ctx->{name};")
        for number, p in enumerate(program.params):
            emitter.param(number, p)
        _grid(program, scope, emitter, checked)
    return "\n".join(scope.lines) + "\n"


def _grid(program: Program, scope: Scope, emitter: Emitter, checked: bool) -> None:
    """The loop over this thread's instances."""
    extents = [scope.text(extent) for _, extent in program.grid]
    total = " * ".join(f"(int64_t){e}" if i == 0 else e for i, e in enumerate(extents)) or "1"
    scope.line(f"const int64_t total = {total};")
    scope.line("const int64_t begin = total * tid / nthreads, end = total * (tid + 1) / nthreads;")
    with scope.block("for (int64_t instance = begin; instance < end; ++instance)"):
        if checked:
            scope.line("if (dinfc_last_error() != nullptr) return;")
        stride = ""
        for (name, _), extent in zip(reversed(program.grid), reversed(extents), strict=True):
            scope.nonnegative.add(name)
            quotient = f"instance / ({stride})" if stride else "instance"
            outermost = name == program.grid[0][0]
            index = quotient if outermost else f"{quotient} % {extent}"
            scope.line(f"const int {identifier(name)} = (int)({index});")
            stride = f"(int64_t){extent}" if not stride else f"{stride} * {extent}"
        for statement in program.body:
            emitter.statement(statement)


def used_scalars(program: Program, checked: bool = False) -> set[str]:
    """Program scalars that the generated function names; the checked build names those of value bounds as well."""
    found: set[str] = set()

    def visit(node: Expr) -> None:
        found.update(str(n.attr) for n in walk(node) if n.op == "var" and n.attr in SCALARS)

    scratch = [s.buffer for s in statements(program.body) if isinstance(s, Alloc)]
    for b in (*program.params, *scratch):
        for e in (*b.shape, *((b.bounds or ()) if checked else ())):
            visit(e)
    for _, extent in program.grid:
        visit(extent)
    for s in statements(program.body):
        for e in expressions(s):
            visit(e)
    return found
