"""The function set as CUDA device functions, with rounding intrinsics that the compiler never contracts (`__fmul_rn`
and the like). Sums and products in the kernel itself are compiled with -fmad=false."""
from __future__ import annotations

from typing import Final

from dinfc.ir.scalar import Expr

from .cpu_expr import ExprPrinter
from .tilelang_expr import Prelude, minimum_maximum

HEAD: Final = "__device__ __forceinline__"


class CudaPrinter(ExprPrinter):
    """Function bodies whose roundings no compiler flag can change."""

    def text(self, node: Expr) -> str:
        if node.op in ("add", "sub", "mul", "div") and node.dtype == "f32":
            a, b = (self.text(n) for n in node.args)
            return f"__f{node.op}_rn({a}, {b})"
        return super().text(node)

    def arithmetic(self, op: str, dtype: str, args: list[str]) -> str:
        if dtype == "f32" and op in ("fma", "abs", "sqrt", "floor"):
            name = {"fma": "__fmaf_rn", "abs": "fabsf", "sqrt": "__fsqrt_rn", "floor": "floorf"}[op]
            return f"{name}({', '.join(args)})"
        return super().arithmetic(op, dtype, args)

    def bitcast(self, text: str, source: str, dtype: str) -> str:
        names = {("f32", "u32"): "__float_as_uint", ("f32", "i32"): "__float_as_int", ("u32", "f32"): "__uint_as_float",
                 ("i32", "f32"): "__int_as_float"}
        if (source, dtype) in names:
            return f"{names[source, dtype]}({text})"
        return super().bitcast(text, source, dtype)


CUDA: Final = Prelude(HEAD, CudaPrinter, {
    "fma": "float dinfc_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }",
    "abs": "float dinfc_abs(float a) { return fabsf(a); }",
    "sqrt": "float dinfc_sqrt(float a) { return __fsqrt_rn(a); }",
    "floor": "float dinfc_floor(float a) { return floorf(a); }",
}, ("#include <stdint.h>", *minimum_maximum(HEAD)))
