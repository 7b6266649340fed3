"""Spec §0.5 and §1.2: matrix products of every class in fp64, and RMSNorm."""

from torch import Tensor

from oracle.codecs import F64, bf, mxfp8, mxfp8_value


def rsqrt_mean(x: Tensor, eps: float) -> Tensor:
    """rsqrt(mean(x^2) + eps) over the last dimension, kept as a dimension of size 1."""
    return ((x * x).mean(-1, keepdim=True) + eps).rsqrt()


def rmsnorm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """§1.2: bf(x * rsqrt(mean x^2 + eps) * w), one rounding at the end."""
    return bf(x * rsqrt_mean(x, eps) * weight)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ W^T in fp64, weight [out, in], not rounded (classes GB32 and GT, and the inside of the others)."""
    return x.to(F64) @ weight.to(F64).T


def gb(x: Tensor, weight: Tensor) -> Tensor:
    """Class GB: bf16 operands, bf16 result."""
    return bf(product(x, weight))


def g8(x: Tensor, weight: Tensor) -> Tensor:
    """Class G8: x (bf16) through MXFP8/32, times the dequantised weight, bf16 result."""
    return bf(product(mxfp8_value(mxfp8(x)), weight))
