"""Quantisers inside row programs (spec 0.4): one group's largest magnitude, its scale, its codes."""
from __future__ import annotations

from collections.abc import Callable

from dinfc.ir.scalar import Expr, apply, cast, const, var
from dinfc.ir.tile.program import Let, Reduce
from dinfc.ir.types import Codec

from .tiles import Body, loop, maximum, minimum

E4M3_MAX, E2M1_MAX = 448.0, 6.0
REDUCE_LANES = 16  # a maximum is exact in any order

Element = Callable[[Expr], Expr]  # element of the group -> its value, f32
Put = Callable[[Expr, Expr], Body]  # place in the group's codes, code byte -> statements


def quantize_group(codec: Codec, tag: str, element: Element, put_scale: Callable[[Expr], Body], put_code: Put) -> Body:
    """Statements for one group of `codec.group` elements.

    `put_code` is called with the number of a code byte of the group: two e2m1 codes a byte, even element low.
    """
    k, largest = f"k_{tag}", f"largest_{tag}"
    body: Body = [Reduce(largest, "max", k, const(codec.group), apply("abs", element(var(k))), const(0.0),
                         REDUCE_LANES)]
    scale = f"scale_{tag}"
    if codec.scale == "e4m3":
        bounded = minimum(maximum(var(largest, "f32"), 6 * 2.0**-9) / E2M1_MAX, E4M3_MAX)
        body.append(Let(scale, apply("e4m3_encode", bounded)))
        body += put_scale(var(scale, "u8"))
        body.append(Let(f"inverse_{tag}", const(1.0) / apply("e4m3_decode", var(scale, "u8"))))
        inverse = var(f"inverse_{tag}", "f32")

        def code(x: Expr) -> Expr:
            return apply("e2m1_encode", x * inverse)
    else:
        top, least = (E4M3_MAX, 1e-4) if codec.code == "e4m3" else (E2M1_MAX, 6 * 2.0**-126)
        body.append(Let(scale, apply("pow2_ceil", maximum(var(largest, "f32"), least) / top)))
        power = var(scale, "f32")
        body += put_scale(apply("e8m0_encode", power))

        def code(x: Expr) -> Expr:
            return apply(f"{codec.code}_encode", x / power)

    def byte(b: Expr) -> Body:
        if codec.bits == 8:
            return put_code(b, code(element(b)))
        low, high = code(element(b * 2)), code(element(b * 2 + 1))
        return put_code(b, apply("or", low, apply("shl", high, const(4, "u8"))))

    return body + loop(f"b_{tag}", codec.code_bytes(codec.group), byte, "vector")


def as_f32(x: Expr) -> Expr:
    return cast(x, "f32")
