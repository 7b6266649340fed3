"""Reductions with spelled-out lanes (tile IR `Reduce`) as C++.

Lane l of `name_lane` takes the elements l, l + lanes, ... in increasing order, then the lanes are folded by halving.
Whole strides and the rest run the same update, so a lane that the rest does not reach keeps its value.
"""
from __future__ import annotations

from collections.abc import Callable

from dinfc.ir.tile.program import Reduce

from .cpu_expr import CPP_TYPES, EmitError, identifier
from .cpu_scope import Scope


def combine(r: Reduce) -> Callable[[str, str], str]:
    """Text of `acc op element` for two operands of the fold."""
    if r.op == "sum":
        return lambda a, b: f"{a} + {b}"
    if r.op in ("max", "min"):
        return lambda a, b: f"dinfc_{r.op}({a}, {b})"
    raise EmitError(f"reduction {r.name}: unknown op {r.op!r}")


def element_update(r: Reduce, scope: Scope, acc: str) -> str:
    """Text of the new accumulator after the element at the loop variable."""
    if r.times is not None:
        return f"__builtin_fmaf({scope.outer(r.value)}, {scope.outer(r.times)}, {acc})"
    return combine(r)(acc, scope.text(r.value))


def check_lanes(r: Reduce) -> None:
    if r.lanes < 1 or r.lanes & (r.lanes - 1):
        raise EmitError(f"reduction {r.name}: {r.lanes} lanes are not a power of two")


def emit_reduce(r: Reduce, scope: Scope) -> None:
    check_lanes(r)
    ctype = CPP_TYPES[r.value.dtype]
    name, var = identifier(r.name), identifier(r.var)
    scope.nonnegative.add(r.var)
    if r.lanes == 1:
        acc = f"{name}_chain_"
        scope.line(f"{ctype} {acc} = {scope.outer(r.start)};")
        with scope.block(f"for (int {var} = 0; {var} < {scope.text(r.extent)}; ++{var})"):
            scope.line(f"{acc} = {element_update(r, scope, acc)};")
        scope.line(f"const {ctype} {name} = {acc};")
        return
    lane, lanes = f"{name}_lane_", r.lanes
    scope.line(f"alignas(64) {ctype} {lane}[{lanes}];")
    scope.line(f"for (int l_ = 0; l_ < {lanes}; ++l_) {lane}[l_] = {scope.outer(r.start)};")
    update = f"{lane}[l_] = {element_update(r, scope, f'{lane}[l_]')};"
    extent = scope.text(r.extent)
    whole = r.extent.op == "const" and isinstance(r.extent.attr, int) and r.extent.attr % lanes == 0
    going = f"{var}_first_ < {extent}" if whole else f"{var}_first_ + {lanes} <= {extent}"
    with scope.block(f"for (int {var}_first_ = 0; {going}; {var}_first_ += {lanes})"):
        lane_loop(scope, f"l_ < {lanes}", var, f"{var}_first_ + l_", update)
    if not whole:
        with scope.block(""):
            scope.line(f"const int rest_ = {extent} - {extent} % {lanes};")
            lane_loop(scope, f"l_ < {extent} - rest_", var, "rest_ + l_", update, simd=False)
    fold = combine(r)
    half = lanes // 2
    while half:
        scope.line(f"for (int l_ = 0; l_ < {half}; ++l_) {lane}[l_] = {fold(f'{lane}[l_]', f'{lane}[l_ + {half}]')};")
        half //= 2
    scope.line(f"const {ctype} {name} = {lane}[0];")


def lane_loop(scope: Scope, while_: str, var: str, element: str, update: str, simd: bool = True) -> None:
    if simd:
        scope.pragma("#pragma omp simd")
    with scope.block(f"for (int l_ = 0; {while_}; ++l_)"):
        scope.line(f"const int {var} = {element};")
        scope.line(update)
