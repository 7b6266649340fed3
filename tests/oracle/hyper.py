"""Spec §1.3: manifold-constrained hyper-connections in the shifted form, all mixes held in fp64."""

from typing import NamedTuple

import torch
from torch import Tensor

from oracle.codecs import F64, bf, split
from oracle.ops import product, rsqrt_mean


class Mix(NamedTuple):
    """pre [T, m], post [T, m], comb [T, m, m] (C[a, b]: first index is contracted by ``hc_post``)."""

    pre: Tensor
    post: Tensor
    comb: Tensor


def sinkhorn(a: Tensor, iterations: int, hc_eps: float) -> Tensor:
    """Sinkhorn(A), A [..., m, m]: softmax over the last index, then alternating column and row normalisation."""
    c = torch.softmax(a, dim=-1) + hc_eps
    c = c / (c.sum(-2, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        c = c / (c.sum(-1, keepdim=True) + hc_eps)
        c = c / (c.sum(-2, keepdim=True) + hc_eps)
    return c


def hc_mix(x: Tensor, fn: Tensor, scale: Tensor, base: Tensor, eps: float, hc_eps: float, iterations: int) -> Mix:
    """HCMix of the streams x [T, m, D]; fn [m(m+2), mD], scale [3], base [m(m+2)]."""
    m = x.shape[1]
    flat = x.to(F64).flatten(1)
    z = product(flat, fn) * rsqrt_mean(flat, eps)
    pre = torch.sigmoid(z[:, :m] * scale[0] + base[:m]) + hc_eps
    post = 2.0 * torch.sigmoid(z[:, m : 2 * m] * scale[1] + base[m : 2 * m])
    a = split(z[:, 2 * m :] * scale[2] + base[2 * m :], -1, m)
    return Mix(pre, post, sinkhorn(a, iterations, hc_eps))


def first_mix(rows: int, m: int) -> Tensor:
    """The mix in front of the first sub-layer: one-hot on stream 0."""
    pre = torch.zeros((rows, m), dtype=F64)
    pre[:, 0] = 1.0
    return pre


def hc_apply(x: Tensor, pre: Tensor) -> Tensor:
    """h = bf(sum_j pre[t, j] * X[t, j, :])."""
    return bf((pre.unsqueeze(-1) * x).sum(1))


def hc_post(x: Tensor, y: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """X'[t, n] = bf(post_n * y + sum_a C[a, n] * X[t, a])."""
    return bf(post.unsqueeze(-1) * y.unsqueeze(1) + torch.einsum("tan,tad->tnd", comb, x))
