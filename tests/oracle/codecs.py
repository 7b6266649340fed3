"""Spec §0.3 and §0.4: the rounding bf(.) and the quantisation codecs, reference mode R64.

Every quantiser takes an fp64 tensor (already rounded to bf16 by the caller, except hh of §3.2) and returns ``Quant``:
one uint8 code per element (E4M3 byte, or the e2m1 nibble 0..15, *unpacked*) and one uint8 scale byte per group of the
last dimension. The ``*_value`` functions give codes * scale in fp64. ``pack_e2m1`` makes the two-per-byte file form.
"""

from typing import NamedTuple

import torch
from torch import Tensor

F32 = torch.float32
F64 = torch.float64
E4M3 = torch.float8_e4m3fn

E2M1_GRID = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_E2M1_VALUES = torch.tensor([*E2M1_GRID, *(-v for v in E2M1_GRID)], dtype=F64)
_E8M0_VALUES = torch.tensor([2.0 ** (e - 127) for e in range(256)], dtype=F64)
_E4M3_VALUES = torch.arange(256, dtype=torch.uint8).view(E4M3).to(F64)


class Quant(NamedTuple):
    """Codes (uint8, shape of the input) and scale bytes (uint8, last dimension divided by the group size)."""

    codes: Tensor
    scales: Tensor


def bf(x: Tensor) -> Tensor:
    """bf(x) of §0.3: to fp32, then to bf16, both nearest even; held in fp64."""
    return x.to(F32).to(torch.bfloat16).to(F64)


def fl32(x: Tensor) -> Tensor:
    """Round to fp32, held in fp64."""
    return x.to(F32).to(F64)


def p2(y: Tensor) -> Tensor:
    """P2 of §0.4: smallest power of two >= y, after rounding y > 0 to fp32 (bit form)."""
    bits = y.to(F32).view(torch.int32)
    return ((bits + 0x007FFFFF) & ~0x007FFFFF).view(F32).to(F64)


def e8m0_encode(s: Tensor) -> Tensor:
    """Byte e of a power of two 2^(e-127)."""
    return (torch.frexp(s.to(F64)).exponent + 126).to(torch.uint8)


def e8m0_decode(byte: Tensor) -> Tensor:
    """2^(e-127) in fp64."""
    return _E8M0_VALUES[as_bytes(byte).long()]


def e4m3_encode(x: Tensor) -> Tensor:
    """Byte of e4m3fn(x), |x| <= 448: to fp32, then to E4M3, both nearest even."""
    return x.to(F32).to(E4M3).view(torch.uint8)


def e4m3_decode(byte: Tensor) -> Tensor:
    """Value of an E4M3fn byte in fp64."""
    return _E4M3_VALUES[as_bytes(byte).long()]


def e2m1_encode(x: Tensor) -> Tensor:
    """Nibble of e2m1(x): nearest, ties to even mantissa, saturating at 6; bit 3 is the sign bit, also of -0."""
    mag = x.abs()
    code = torch.zeros(x.shape, dtype=torch.int64)
    for low, mid in enumerate(_E2M1_MIDPOINTS):
        # At a midpoint the even one of the codes low and low + 1 wins. A NaN passes every test and ends at 6.
        code += ~(mag <= mid) if low % 2 == 0 else ~(mag < mid)
    return (code + 8 * torch.signbit(x).long()).to(torch.uint8)


def e2m1_decode(code: Tensor) -> Tensor:
    """Value of an e2m1 nibble in fp64."""
    return _E2M1_VALUES[code.long()]


def pack_e2m1(codes: Tensor) -> Tensor:
    """Two nibbles per byte, even index in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """Inverse of ``pack_e2m1``; accepts int8 or uint8."""
    byte = as_bytes(packed)
    return torch.stack((byte & 15, byte >> 4), dim=-1).flatten(-2)


def as_bytes(t: Tensor) -> Tensor:
    """The uint8 view of a one-byte tensor (uint8, int8, E4M3, E8M0)."""
    return t if t.dtype == torch.uint8 else t.contiguous().view(torch.uint8)


def split(x: Tensor, dim: int, inner: int) -> Tensor:
    """Split dimension ``dim`` of size n into (n / inner, inner); n must be a multiple."""
    dim %= x.dim()
    n = x.shape[dim]
    if n % inner:
        raise ValueError(f"dimension of size {n} is not a multiple of {inner}")
    return x.reshape(*x.shape[:dim], n // inner, inner, *x.shape[dim + 1 :])


def _groups(x: Tensor, g: int) -> Tensor:
    return split(x.to(F64), -1, g)


def _scaled(values: Tensor, scale: Tensor) -> Tensor:
    g = values.shape[-1] // scale.shape[-1]
    return (split(values, -1, g) * scale.unsqueeze(-1)).flatten(-2)


def mxfp8(x: Tensor) -> Quant:
    """MXFP8, g = 32: s = P2(max(a, 1e-4) / 448), q = e4m3(clamp(x / s, -448, 448))."""
    xg = _groups(x, 32)
    s = p2(xg.abs().amax(-1).clamp_min(1e-4) / 448.0)
    q = (xg / s.unsqueeze(-1)).clamp(-448.0, 448.0)
    return Quant(e4m3_encode(q).flatten(-2), e8m0_encode(s))


def mxfp8_value(q: Quant) -> Tensor:
    """Dequantised MXFP8."""
    return _scaled(e4m3_decode(q.codes), e8m0_decode(q.scales))


def mxfp4(x: Tensor) -> Quant:
    """MXFP4, g = 32: s = P2(max(a, 6*2^-126) / 6), q = e2m1(x / s) of the fp64 quotient."""
    xg = _groups(x, 32)
    s = p2(xg.abs().amax(-1).clamp_min(6.0 * 2.0**-126) / 6.0)
    return Quant(e2m1_encode(xg / s.unsqueeze(-1)).flatten(-2), e8m0_encode(s))


def mxfp4_value(q: Quant) -> Tensor:
    """Dequantised MXFP4 (codes unpacked)."""
    return _scaled(e2m1_decode(q.codes), e8m0_decode(q.scales))


def fp4_e4m3(x: Tensor) -> Quant:
    """FP4/E4M3, g = 16: s = e4m3(min(max(a, 6*2^-9)/6, 448)), q = e2m1(fl32(x * fl32(1/s))) (exception of §0.3)."""
    xg = _groups(x, 16)
    s_byte = e4m3_encode((xg.abs().amax(-1).clamp_min(6.0 * 2.0**-9) / 6.0).clamp_max(448.0))
    inverse = fl32(1.0 / e4m3_decode(s_byte))
    return Quant(e2m1_encode(fl32(xg * inverse.unsqueeze(-1))).flatten(-2), s_byte)


def fp4_e4m3_value(q: Quant) -> Tensor:
    """Dequantised FP4/E4M3 (codes unpacked)."""
    return _scaled(e2m1_decode(q.codes), e4m3_decode(q.scales))


def wfp8_value(weight: Tensor, scale: Tensor) -> Tensor:
    """W-FP8: E4M3 codes [N, K] with one E8M0 byte per 32x32 block, scale [ceil(N/32), ceil(K/32)]."""
    n, k = weight.shape
    s = e8m0_decode(scale).repeat_interleave(32, 0)[:n].repeat_interleave(32, 1)[:, :k]
    return e4m3_decode(weight) * s


def wfp8(w: Tensor) -> Quant:
    """Make W-FP8 weights (only for synthetic checkpoints): block scale P2(max(a, 1e-4) / 448) as for MXFP8."""
    n, k = w.shape
    padded = torch.zeros((-(-n // 32) * 32, -(-k // 32) * 32), dtype=F64)
    padded[:n, :k] = w
    blocks = split(split(padded, 0, 32), 2, 32)
    s = p2(blocks.abs().amax((1, 3)).clamp_min(1e-4) / 448.0)
    q = (blocks / s[:, None, :, None]).clamp(-448.0, 448.0)
    return Quant(e4m3_encode(q).flatten(2).flatten(0, 1)[:n, :k].contiguous(), e8m0_encode(s))
