"""The headers that every CPU kernel includes: types, the step context, helpers, and the function set.

`dinfc.h` is printed from `ir/functions.py` and `support.h`; `dinfc_dot.h` (matrix products) is `dot.h` of this folder,
included only by files that need it, and
`dinfc_checked.h` is `checked.h`, included by the checked build.
"""
from __future__ import annotations

from pathlib import Path

from dinfc.ir.functions import Function, function_set
from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import SCALARS

from .cpu_expr import CPP_TYPES, EmitError, ExprPrinter, identifier

PREAMBLE = "dinfc.h"
DOT = "dinfc_dot.h"
CHECKED = "dinfc_checked.h"


def context_struct() -> str:
    """`dinfc_ctx`: the run-time scalars of a launch, in the order of SCALARS."""
    return f"struct dinfc_ctx {{ int32_t {', '.join(SCALARS)}; }};"


def function_text(function: Function) -> str:
    """One function of the function set as an inline C++ function."""
    printer = ExprPrinter(_no_load)
    params = ", ".join(f"{CPP_TYPES[dtype]} {identifier(name)}" for name, dtype in function.params)
    head = f"static inline __attribute__((always_inline)) {CPP_TYPES[function.dtype]} dinfc_{function.name}"
    lines = [f"{head}({params}) {{"]
    for name, value in function.lets:
        lines.append(f"    const {CPP_TYPES[value.dtype]} {identifier(name)} = {printer.outer(value)};")
    lines.append(f"    return {printer.outer(function.body)};")
    return "\n".join([*lines, "}"])


def _no_load(node: Expr) -> str:
    raise EmitError(f"a function of the function set reads buffer {node.attr}")


def preamble() -> str:
    """Text of `dinfc.h`."""
    support = Path(__file__).with_name("support.h").read_text()
    functions = "\n\n".join(function_text(f) for f in function_set().values())
    return f"""// Types, helpers and the function set dinfc-f32 of generated kernels. Generated; see dinfc.ir.functions.
#ifndef DINFC_H
#define DINFC_H
#include <stddef.h>
#include <stdint.h>

{context_struct()}

{support}
{functions}

#endif
"""


def support_files() -> dict[str, str]:
    """Headers by file name, to be compiled beside the kernels."""
    here = Path(__file__).parent
    return {PREAMBLE: preamble(), DOT: (here / "dot.h").read_text(), CHECKED: (here / "checked.h").read_text()}
