"""Spec §2.2: rotary frequencies (plain and YaRN) and the interleaved rotation, angles and tables in fp64."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oracle.codecs import F64, bf, split
from oracle.config import Dims


def yarn_range(theta: float, rope_dim: int, scaling: Mapping[str, Any]) -> tuple[float, float]:
    """(lo, hi) of the YaRN ramp."""
    base = float(scaling["original_max_position_embeddings"])

    def f(n: float) -> float:
        return rope_dim * math.log(base / (2.0 * math.pi * n)) / (2.0 * math.log(theta))

    lo = float(max(math.floor(f(float(scaling["beta_fast"]))), 0))
    hi = float(min(math.ceil(f(float(scaling["beta_slow"]))), rope_dim - 1))
    return lo, hi + 0.001 if lo == hi else hi


def frequencies(theta: float, rope_dim: int, scaling: Mapping[str, Any] | None) -> Tensor:
    """w_i, i = 0..d_r/2-1, fp64; YaRN when ``scaling`` is given."""
    plain = [theta ** (-2.0 * i / rope_dim) for i in range(rope_dim // 2)]
    if scaling is None:
        return torch.tensor(plain, dtype=F64)
    lo, hi = yarn_range(theta, rope_dim, scaling)
    factor = float(scaling["factor"])
    ramp = [min(max((i - lo) / (hi - lo), 0.0), 1.0) for i in range(rope_dim // 2)]
    return torch.tensor([w * (r / factor + (1.0 - r)) for w, r in zip(plain, ramp, strict=True)], dtype=F64)


def layer_frequencies(dims: Dims, ratio: int) -> Tensor:
    """Ratio 0: rope_theta, no scaling. Ratio 1 and 2: compress_rope_theta with the scaling, if there is one."""
    if ratio == 0:
        return frequencies(dims.rope_theta, dims.rope_dim, None)
    scaling = dims.rope_scaling
    if scaling is not None and scaling.get("rope_type", scaling.get("type", "yarn")) != "yarn":
        raise ValueError(f"unknown rope_scaling {dict(scaling)}")
    return frequencies(dims.compress_theta, dims.rope_dim, scaling)


def rotate(x: Tensor, positions: Tensor, freq: Tensor, conjugate: bool = False) -> Tensor:
    """Rotate the last 2*len(freq) channels of x [rows, ..., n] by exp(+-j * position * w_i); one rounding to bf16.

    The other channels are returned as they are (callers pass bf16 values).
    """
    n = x.shape[-1]
    width = 2 * freq.numel()
    angle = positions.to(F64).unsqueeze(-1) * freq
    shape = (x.shape[0], *([1] * (x.dim() - 2)), freq.numel())
    cos, sin = angle.cos().reshape(shape), angle.sin().reshape(shape)
    if conjugate:
        sin = -sin
    pairs = split(x[..., n - width :], -1, 2)
    re, im = pairs[..., 0], pairs[..., 1]
    turned = torch.stack((re * cos - im * sin, re * sin + im * cos), dim=-1).flatten(-2)
    return torch.cat((x[..., : n - width], bf(turned)), dim=-1)
