"""The function set on Ascend: codecs as functions for SIMT code, transcendentals native.

The compiler's contraction of a * b + c is not under our control there, so functions that rely on explicit fma are left
to the device: the function set is another one, and named in the target.
"""
from __future__ import annotations

from typing import Final

from dinfc.codegen.schedules.device_walk import DeviceError
from dinfc.ir.scalar import TRANSCENDENTAL, Expr

from .cpu_expr import ExprPrinter
from .tilelang_expr import Prelude, TileLangPrinter, minimum_maximum

HEAD: Final = "__simt_callee__ inline"


class AscendFunctionPrinter(ExprPrinter):
    """Function bodies in C++ without builtins of other compilers."""

    def arithmetic(self, op: str, dtype: str, args: list[str]) -> str:
        if dtype == "f32" and op == "abs":
            return f"dinfc_abs({args[0]})"
        if dtype == "f32" and op in ("fma", "sqrt", "floor"):
            raise DeviceError(f"{op} inside a function has no form on this device")
        return super().arithmetic(op, dtype, args)

    def bitcast(self, text: str, source: str, dtype: str) -> str:
        if {source, dtype} == {"f32", "u32"}:
            return f"dinfc_{'bits' if dtype == 'u32' else 'float'}({text})"
        return super().bitcast(text, source, dtype)


ASCEND: Final = Prelude(HEAD, AscendFunctionPrinter, {
    "abs": "float dinfc_abs(float a) { return dinfc_float(dinfc_bits(a) & 0x7fffffffu); }",
}, (*minimum_maximum(HEAD),
    f"{HEAD} uint32_t dinfc_bits(float a) {{ return *reinterpret_cast<uint32_t *>(&a); }}",
    f"{HEAD} float dinfc_float(uint32_t a) {{ return *reinterpret_cast<float *>(&a); }}"),
    frozenset(TRANSCENDENTAL))


class AscendPrinter(TileLangPrinter):
    """Expressions of the kernel itself: native transcendentals, calls of the prelude for codecs."""

    def function(self, op: str, node: Expr, args: list[str]) -> str:
        if op not in TRANSCENDENTAL:
            return super().function(op, node, args)
        if op == "log1p":
            raise DeviceError(f"{op} has no native form on this device")
        return f"T.{op}({', '.join(args)})"

    def arithmetic(self, op: str, node: Expr, args: list[str]) -> str:
        if node.dtype == "f32" and op in ("sqrt", "floor"):
            return f"T.{op}({args[0]})"
        if node.dtype == "f32" and op == "fma":
            raise DeviceError("fma has no form of fixed rounding on this device")
        return super().arithmetic(op, node, args)
