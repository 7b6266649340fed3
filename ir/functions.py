"""The function set `dinfc-f32`: transcendentals and codec arithmetic, written once in the scalar language itself.

Emitters print these bodies as inline functions, so vector bodies, tails and the checked build compute the same bits
and no library function (whose bits depend on the machine) is called. There are selects but no branches and no tables,
so compilers vectorise every one of them.

Two conventions that the bodies rely on and that every emitter keeps:
  max(a, b) is `a > b ? a : b` and min(a, b) is `a < b ? a : b`: with a NaN on either side the result is b;
  f32 operations round to nearest even, denormals are kept, nothing is contracted.

| function | largest error seen | special values |
|---|---|---|
| exp | 1 ulp | -inf -> 0, overflow -> inf, NaN -> NaN; results below 2^-126 are rounded once more, to denormals |
| log | 1 ulp | 0 -> -inf, x < 0 -> NaN, denormals as any other |
| log1p | 2 ulp | -1 -> -inf, x < -1 -> NaN, -0 -> -0 |
| rsqrt | 1/sqrt(x), both correctly rounded | 0 -> inf |
| sigmoid | 1/(1 + exp(-x)) | -inf -> 0 (already below -88.8), inf -> 1 |
"""
from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from .scalar import (
    Expr,
    apply,
    binary,
    bitcast,
    cast,
    compare,
    const,
    f32,
    fma,
    result_dtype,
    select,
    unary,
    var,
)

FUNCTION_SET = "dinfc-f32"
X = var("x", "f32")
CODE = var("code", "u8")


@dataclass(frozen=True)
class Function:
    """`name(params) = body`, with `lets` bound in order before it. Names are local to the function."""

    name: str
    params: tuple[tuple[str, str], ...]
    lets: tuple[tuple[str, Expr], ...]
    body: Expr

    @property
    def dtype(self) -> str:
        return self.body.dtype


class _Lets:
    """Collects the lets of one function."""

    def __init__(self) -> None:
        self.items: list[tuple[str, Expr]] = []

    def let(self, name: str, value: Expr) -> Expr:
        self.items.append((name, value))
        return var(name, value.dtype)

    def done(self, name: str, params: tuple[tuple[str, str], ...], body: Expr) -> Function:
        return Function(name, params, tuple(self.items), body)


def bits(x: Expr) -> Expr:
    return bitcast(x, "u32")


def u32(value: int) -> Expr:
    return const(value, "u32")


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """Horner by fma; coefficients from the constant upwards."""
    out: Expr = const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = fma(out, x, const(c))
    return out


# Minimax fits of ours: (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2] and (log(1+f) - f + f^2/2) / f^3 on
# [sqrt(1/2) - 1, sqrt(2) - 1]; weighted for relative error, coefficients rounded to fp32 one after the other.
EXP_COEFFICIENTS = (0.4999999403953552, 0.1666652113199234, 0.04166826605796814, 0.008368677459657192,
                    0.001382073387503624)
LOG_COEFFICIENTS = (0.3333331346511841, -0.25000008940696716, 0.2000207155942917, -0.16667988896369934,
                    0.14220359921455383, -0.12406241148710251, 0.11883539706468582, -0.11670006811618805,
                    0.0674915462732315)
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690581e-4  # the high part has 9 bits: n * LN2_HIGH is exact


def _exp() -> Function:
    """exp(x) = 2^n exp(r) with n = round(x / ln 2). The power of two is applied in two halves, so that results below
    2^-126 are rounded once and results above the largest float become inf."""
    f = _Lets()
    clamped = f.let("clamped", binary("min", binary("max", X, -104.0), 89.0))
    n = f.let("n", unary("floor", fma(clamped, const(math.log2(math.e)), const(0.5))))
    high = f.let("high", fma(n, const(-LN2_HIGH), clamped))
    r = f.let("r", fma(n, const(-LN2_LOW), high))
    p = f.let("p", polynomial(r, EXP_COEFFICIENTS))
    e = f.let("e", fma(p, r * r, r) + 1.0)
    k = f.let("k", cast(n, "i32"))
    half = f.let("half", k >> 1)
    scaled = f.let("scaled", (e * power_of_two(half)) * power_of_two(k - half))
    return f.done("exp", (("x", "f32"),), select(compare("eq", X, X), scaled, X))


def power_of_two(n: Expr) -> Expr:
    """2^n for an i32 n in [-126, 127]."""
    return bitcast((n + 127) << const(23), "f32")


def _log() -> Function:
    """log(x) = n ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)). Denormals are scaled up by 2^23 first."""
    f = _Lets()
    tiny = f.let("tiny", compare("lt", X, 2.0**-126))
    normal = f.let("normal", select(tiny, X * 2.0**23, X))
    # Subtracting the bits of sqrt(1/2) makes the exponent field count from there.
    shifted = f.let("shifted", bits(normal) - u32(0x3F3504F3))
    n = f.let("n", (bitcast(shifted, "i32") >> const(23)) + select(tiny, const(-23), const(0)))
    mantissa = f.let("mantissa", bitcast((shifted & u32(0x007FFFFF)) + u32(0x3F3504F3), "f32"))
    d = f.let("d", mantissa - 1.0)
    square = f.let("square", d * d)
    e = f.let("e", f32(n))
    low = f.let("low", fma(d * square, polynomial(d, LOG_COEFFICIENTS), e * LN2_LOW))
    value = f.let("value", fma(e, const(LN2_HIGH), d + fma(const(-0.5), square, low)))
    finite = f.let("finite", select(compare("lt", X, math.inf), value, X))  # inf and NaN are their own logarithm
    zero = f.let("zero", select(compare("eq", X, 0.0), const(-math.inf), finite))
    return f.done("log", (("x", "f32"),), select(compare("lt", X, 0.0), const(math.nan), zero))


def _log1p() -> Function:
    """log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term mends that rounding."""
    f = _Lets()
    u = f.let("u", X + 1.0)
    value = f.let("value", unary("log", u) + (X - (u - 1.0)) / u)
    # u = 1: log1p(x) = x to the last bit (and -0 stays -0); u = 0 or inf: the mend would be NaN.
    plain = f.let("plain", select(compare("eq", u, 1.0), X, value))
    edge = f.let("edge", apply("lor", compare("eq", u, 0.0), compare("eq", u, math.inf)))
    return f.done("log1p", (("x", "f32"),), select(edge, unary("log", u), plain))


def _rsqrt() -> Function:
    return Function("rsqrt", (("x", "f32"),), (), const(1.0) / unary("sqrt", X))


def _sigmoid() -> Function:
    return Function("sigmoid", (("x", "f32"),), (), const(1.0) / (unary("exp", -X) + 1.0))


def _round_bf16() -> Function:
    """x rounded to bf16 (nearest even), as an f32 whose low 16 bits are clear; a NaN becomes a quiet NaN."""
    f = _Lets()
    b = f.let("b", bits(X))
    rounded = f.let("rounded", b + u32(0x7FFF) + ((b >> u32(16)) & u32(1)))
    kept = f.let("kept", select(compare("eq", X, X), rounded, b | u32(0x00400000)))
    return f.done("round_bf16", (("x", "f32"),), bitcast(kept & u32(0xFFFF0000), "f32"))


def _round_f32() -> Function:
    """The identity: f32 values are already rounded (in R64 it rounds fp64 to fp32)."""
    return Function("round_f32", (("x", "f32"),), (), X)


def _e4m3_decode() -> Function:
    """e4m3fn. Subnormals are decoded as 2^-6 (1 + m/8) - 2^-6, without an fp32 denormal on the way."""
    f = _Lets()
    c = f.let("c", cast(CODE, "u32"))
    m = f.let("m", c & u32(0x7F))
    subnormal = f.let("subnormal", compare("lt", m, u32(8)))
    base = f.let("base", (m << u32(20)) + select(subnormal, u32(121 << 23), u32(120 << 23)))
    size = f.let("size", bitcast(base, "f32") - select(subnormal, const(2.0**-6), const(0.0)))
    number = f.let("number", select(compare("eq", m, u32(0x7F)), u32(0x7FC00000), bits(size)))
    return f.done("e4m3_decode", (("code", "u8"),), bitcast(number | ((c & u32(0x80)) << u32(24)), "f32"))


def _encode(f: _Lets, largest: float, mantissa: int, exponent: int) -> Expr:
    """Magnitude code (u32) of |x| on a small float grid: round to nearest even, saturating at `largest` (NaN too).

    `mantissa`: its bits; `exponent`: fp32 exponent field of the least normal number, below which the grid is even.
    Adding 2^(e + 23 - mantissa), e = the exponent of x but at least that one, lets the adder round to the grid; the
    low bits of the sum count grid steps from 2^e * 0. Integer min and max instead of selects: compilers tend to narrow
    selects to the width of the code, which makes vectors of bytes and much packing.
    """
    size = f.let("size", binary("min", bits(X) & u32(0x7FFFFFFF), u32(f32_bits(largest))))
    power = f.let("power", binary("max", size & u32(0x7F800000), u32(exponent << 23)))
    magic = f.let("magic", power + u32((23 - mantissa) << 23))
    steps = f.let("steps", bits(bitcast(size, "f32") + bitcast(magic, "f32")) - magic)
    return f.let("magnitude", steps + ((power - u32(exponent << 23)) >> u32(23 - mantissa)))


def f32_bits(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def _e4m3_encode() -> Function:
    """Saturates at 448; a NaN gives the NaN code of its sign."""
    f = _Lets()
    magnitude = _encode(f, 448.0, 3, 121)
    nan = f.let("nan", (u32(0x7F800000) - (bits(X) & u32(0x7FFFFFFF))) >> u32(31))  # 1 for a NaN: 0x7E -> 0x7F
    sign = f.let("sign", (bits(X) >> u32(24)) & u32(0x80))
    return f.done("e4m3_encode", (("x", "f32"),), cast(magnitude | nan | sign, "u8"))


def _e2m1_encode() -> Function:
    """Saturates at 6, where NaN and infinities go too; -0 keeps its sign bit (spec 0.4)."""
    f = _Lets()
    magnitude = _encode(f, 6.0, 1, 127)
    return f.done("e2m1_encode", (("x", "f32"),), cast(magnitude | ((bits(X) >> u32(28)) & u32(8)), "u8"))


def _e2m1_decode() -> Function:
    """The low four bits of the byte; upper bits are ignored."""
    f = _Lets()
    c = f.let("c", cast(CODE, "u32"))
    m = f.let("m", c & u32(7))
    subnormal = f.let("subnormal", compare("lt", m, u32(2)))
    base = f.let("base", (m << u32(22)) + select(subnormal, u32(127 << 23), u32(126 << 23)))
    size = f.let("size", bitcast(base, "f32") - select(subnormal, const(1.0), const(0.0)))
    return f.done("e2m1_decode", (("code", "u8"),), bitcast(bits(size) | ((c & u32(8)) << u32(28)), "f32"))


def _e8m0_decode() -> Function:
    """2^(code - 127): code 0 is the denormal 2^-127, 255 is NaN."""
    f = _Lets()
    c = f.let("c", cast(CODE, "u32"))
    low = f.let("low", select(compare("eq", c, u32(0)), u32(0x00400000), c << u32(23)))
    return f.done("e8m0_decode", (("code", "u8"),),
                  bitcast(select(compare("eq", c, u32(255)), u32(0x7FC00000), low), "f32"))


def _e8m0_encode() -> Function:
    """The exponent field of a power of two; NaN and inf give 255."""
    return Function("e8m0_encode", (("x", "f32"),), (), cast((bits(X) >> u32(23)) & u32(0xFF), "u8"))


def _pow2_ceil() -> Function:
    """P2 of spec 0.4: the smallest power of two >= x, x > 0."""
    return Function("pow2_ceil", (("x", "f32"),), (),
                    bitcast((bits(X) + u32(0x007FFFFF)) & u32(0xFF800000), "f32"))


def function_set() -> Mapping[str, Function]:
    """All functions by name, each after those it calls. `round_bf16` is what a cast from f32 to bf16 does."""
    made = (
        _round_bf16(), _round_f32(), _exp(), _log(), _log1p(), _rsqrt(), _sigmoid(), _e4m3_decode(), _e4m3_encode(),
        _e2m1_decode(), _e2m1_encode(), _e8m0_decode(), _e8m0_encode(), _pow2_ceil(),
    )
    for f in made:
        if f.name != "round_bf16" and result_dtype(f.name, tuple(d for _, d in f.params)) != f.dtype:
            raise ValueError(f"{f.name} gives {f.dtype}")
    return {f.name: f for f in made}
