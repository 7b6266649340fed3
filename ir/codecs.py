"""Codecs of spec 0.4 in reference mode R64: fp64 arithmetic on the exact inputs, rounding only where the spec rounds.

Codes are uint8, one an element (packing two e2m1 codes into a byte is storage, not semantics); scales are uint8.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .types import Codec

F64 = torch.float64


def round_f32(x: Tensor) -> Tensor:
    """fp64 rounded to fp32, held in fp64."""
    return x.to(torch.float32).to(F64)


def round_bf16(x: Tensor) -> Tensor:
    """bf(.) of R64: first to fp32, then to bf16, both to nearest even; held in fp64."""
    return x.to(torch.float32).to(torch.bfloat16).to(F64)


def e4m3_encode(x: Tensor) -> Tensor:
    """fp64 -> e4m3fn codes through fp32, to nearest even, saturating at 448; NaN stays NaN. uint8."""
    return x.to(torch.float32).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).view(torch.uint8)


@cache
def _e2m1_bounds() -> Tensor:
    """Largest magnitudes that still round down to codes 0..6: a tie goes to the even code."""
    midpoints = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=F64)
    below = torch.nextafter(midpoints, torch.zeros((), dtype=F64))
    return torch.where(torch.arange(7) % 2 == 0, midpoints, below)


def e2m1_encode(x: Tensor) -> Tensor:
    """fp64 -> e2m1 codes, to nearest even, saturating at 6 (NaN and infinities too); -0 keeps its sign. uint8."""
    magnitude = torch.bucketize(x.abs().nan_to_num(nan=torch.inf, posinf=torch.inf), _e2m1_bounds())
    return (magnitude + 8 * torch.signbit(x)).to(torch.uint8)


def pow2_ceil(x: Tensor) -> Tensor:
    """P2: the smallest power of two >= x for fp32 x > 0, by the bits of fp32(x); NaN and inf stay what they are."""
    bits = x.to(torch.float32).view(torch.int32).to(torch.int64)
    power = ((bits + 0x007FFFFF) & 0xFF800000).to(torch.int32).view(torch.float32).to(F64)
    return torch.where(torch.isnan(x), x, power)


def e8m0_encode(x: Tensor) -> Tensor:
    """The exponent field of fp32(x); NaN and inf give 255. uint8. Raises ValueError unless x is a power of two: a scale
    is never truncated (fault F22)."""
    bits = x.to(torch.float32).view(torch.int32)
    exponent = bits >> 23 & 0xFF
    if bool(((bits & 0x7FFFFF != 0) & (exponent != 255)).any()):
        raise ValueError("an E8M0 scale must be a power of two")
    return exponent.to(torch.uint8)


def _table(make: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    return cache(lambda: make(torch.arange(256)))


_E8M0 = _table(lambda e: torch.where(e == 255, torch.nan, torch.exp2(e.to(F64) - 127)))
_E4M3 = _table(lambda e: e.to(torch.uint8).view(torch.float8_e4m3fn).to(F64))


@cache
def _e2m1_table() -> Tensor:
    size = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=F64)
    return torch.cat([size, -size]).repeat(16)


def _look_up(table: Tensor, codes: Tensor) -> Tensor:
    return table.index_select(0, codes.reshape(-1).to(torch.int32)).reshape(codes.shape)


def e4m3_decode(codes: Tensor) -> Tensor:
    return _look_up(_E4M3(), codes)


def e2m1_decode(codes: Tensor) -> Tensor:
    """The low four bits of each code."""
    return _look_up(_e2m1_table(), codes)


def e8m0_decode(codes: Tensor) -> Tensor:
    return _look_up(_E8M0(), codes)


def code_values(codes: Tensor, codec: Codec) -> Tensor:
    return e4m3_decode(codes) if codec.code == "e4m3" else e2m1_decode(codes)


def scale_values(scales: Tensor, codec: Codec) -> Tensor:
    return e8m0_decode(scales) if codec.scale == "e8m0" else e4m3_decode(scales)


def unit_scale(codec: Codec) -> int:
    """The scale byte of 1.0."""
    return 127 if codec.scale == "e8m0" else 0x38


def decode(codes: Tensor, scales: Tensor, codec: Codec) -> Tensor:
    """code * scale, fp64, shape of the codes."""
    factor = scale_values(scales, codec)
    if codec.rows > 1:
        factor = factor.repeat_interleave(codec.rows, -2)[..., : codes.shape[-2], :]
    grouped = code_values(codes, codec).reshape(*factor.shape, codec.group)
    return (grouped * factor.unsqueeze(-1)).reshape(codes.shape)


def encode(x: Tensor, codec: Codec) -> tuple[Tensor, Tensor]:
    """(codes, scales) of fp64 x `[.., n]`, n a multiple of the group. Raises ValueError for W-FP8 (weights come
    quantised)."""
    if codec.rows > 1:
        raise ValueError(f"nothing is quantised to {codec.name} at run time")
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // codec.group, codec.group)
    largest = groups.abs().amax(-1)
    if codec.scale == "e4m3":
        scales = e4m3_encode((largest.clamp(min=6 * 2.0**-9) / 6).clamp(max=448.0))
        # In every mode: the reciprocal and the product are rounded to fp32 (spec 0.3).
        inverse = round_f32(1 / e4m3_decode(scales))
        codes = e2m1_encode(round_f32(groups * inverse.unsqueeze(-1)))
    elif codec.code == "e4m3":
        scale = pow2_ceil(round_f32(largest.clamp(min=1e-4) / 448))
        scales = e8m0_encode(scale)
        codes = e4m3_encode(groups / scale.unsqueeze(-1))
    else:
        scale = pow2_ceil(round_f32(largest.clamp(min=6 * 2.0**-126) / 6))
        scales = e8m0_encode(scale)
        codes = e2m1_encode(groups / scale.unsqueeze(-1))
    return codes.reshape(x.shape), scales
