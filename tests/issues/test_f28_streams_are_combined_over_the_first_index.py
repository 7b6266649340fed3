"""F28: the combination matrix of the hyper-connections was used transposed."""
from __future__ import annotations

import itertools

import torch
from torch import Tensor

from oracle.hyper import hc_mix, hc_post
from support.op_run import run_one, run_op

M, WIDTH = 4, 8


def streams() -> Tensor:
    return torch.arange(M * WIDTH, dtype=torch.float64).reshape(1, M, WIDTH)


def test_a_permutation_moves_the_streams_as_in_the_oracle() -> None:
    """C[a, n] = 1: the new stream n is the old stream a. Most permutations are not their own inverse."""
    x = streams()
    zero, none = torch.zeros(1, WIDTH, dtype=torch.float64), torch.zeros(1, M, dtype=torch.float64)
    told_apart = 0
    for order in itertools.permutations(range(M)):
        c = torch.zeros(1, M, M, dtype=torch.float64)
        for new, old in enumerate(order):
            c[0, old, new] = 1.0
        out = run_one("hc_post", ("bf16", x), ("bf16", zero), ("f32", none), ("f32", c))
        assert torch.equal(out, x[:, list(order)])
        assert torch.equal(out, hc_post(x, zero, none, c))
        told_apart += not torch.equal(out, hc_post(x, zero, none, c.transpose(1, 2)))
    assert told_apart == 14  # all but the identity and the nine involutions


def test_the_mix_gives_rows_and_columns_as_in_the_oracle() -> None:
    """A_ab = z[2m + a m + b]: row a, column b; an asymmetric A shows a transposed one."""
    base = torch.zeros(M * (M + 2), dtype=torch.float64)
    base[2 * M + 1] = 3.0  # A[0, 1]
    fn = torch.zeros(M * (M + 2), M * WIDTH)
    scale = torch.ones(3, dtype=torch.float64)
    x = streams()
    _, _, c = run_op("hc_mix", ("bf16", x), ("f32", fn), ("f32", scale), ("f32", base), eps=1e-6, norm_eps=1e-20,
                     iters=20)
    assert isinstance(c, Tensor)
    assert torch.allclose(c, hc_mix(x, fn.double(), scale, base, 1e-20, 1e-6, 20).comb, rtol=0, atol=1e-12)
    assert c[0, 0, 1] > 0.5 > c[0, 1, 0]
