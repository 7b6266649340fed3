"""F10: four kernels chose their algorithm from the token count; 20 batch sizes gave 3 different outputs.

A row is put at both ends of batches around every tile boundary; its bits must not move. The program that does it is
one and the same: nothing in it but bounds depends on T.
"""
from __future__ import annotations

import pytest
import torch

from dinfc.codegen.schedules.matmul import MatmulSchedule
from support.anchors import CPU, T, bits, build, make_region, random_quantised, run, stored, tensor

BATCHES = (1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
K, N = 256, 80
ORDER = "fold(128; fold(32; chain fma))"


@pytest.mark.parametrize(("elem", "layout"), [("wfp8<32x32>", "n16k"), ("mxfp4<32>", "n16k4")])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_has_the_same_bits_in_every_batch(elem: str, layout: str, threads: int) -> None:
    a, b = tensor("a", "mxfp8<32>", T, K), tensor("b", elem, N, K, layout=layout)
    region = make_region("contract", [a, b], [tensor("y", "bf16", T, N)], {"order": ORDER})
    program = build(MatmulSchedule(), region, CPU)
    g = torch.Generator().manual_seed(0)
    qa, weights = random_quantised(g, "mxfp8<32>", max(BATCHES), K), stored(b, random_quantised(g, elem, N, K))
    rows = stored(a, qa)
    seen = set()
    for batch in BATCHES:
        for place in {0, batch - 1}:
            mine = torch.arange(1, batch + 1)
            mine[place] = 0
            buffers = weights | {name: rows[name][mine % max(BATCHES)].contiguous() for name in rows}
            buffers["y"] = torch.full((batch, N), float("nan"), dtype=torch.bfloat16)
            out = run(program, buffers, {"T": batch}, threads=threads)["y"]
            seen.add(tuple(bits(out[place]).tolist()))
    assert len(seen) == 1
