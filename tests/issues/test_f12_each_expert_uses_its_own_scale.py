"""F12: a stride-0 scale vector gave expert 0's scale to all experts."""
from __future__ import annotations

import pytest
import torch

from dinfc.codegen.schedules.grouped_matmul import GroupedMatmulSchedule
from support.anchors import T, build, make_region, quantised, run, stored, tensor

N, K, EXPERTS, TILE = 24, 64, 4, 2


@pytest.mark.parametrize("layout", ["n16k4", ""])
def test_experts_with_scales_1_2_4_8_give_results_1_2_4_8_times_as_large(layout: str) -> None:
    a, b = tensor("a", "mxfp8<32>", T, K), tensor("b", "mxfp4<32>", EXPERTS, N, K, layout=layout)
    rows, owner = tensor("picked_rows", "i32", 2 * T), tensor("tile_expert", "i32", T)
    region = make_region("grouped_contract", [a, b, rows, owner], [tensor("y", "bf16", 2 * T, N)], {"tile": TILE})
    one = torch.full((EXPERTS, K), 0x38, dtype=torch.uint8)  # e4m3 1.0
    qa = quantised(one, torch.full((EXPERTS, K // 32), 127, dtype=torch.uint8), "mxfp8<32>")
    codes = torch.full((EXPERTS, N, K), 2, dtype=torch.uint8)  # e2m1 1.0
    scales = (127 + torch.arange(EXPERTS)).to(torch.uint8)[:, None, None].expand(EXPERTS, N, K // 32).contiguous()
    qb = quantised(codes, scales, "mxfp4<32>")
    picked = torch.tensor([0, -1] * EXPERTS, dtype=torch.int32)
    buffers = stored(a, qa) | stored(b, qb) | {
        "picked_rows": picked, "tile_expert": torch.arange(EXPERTS, dtype=torch.int32),
        "y": torch.full((EXPERTS * TILE, N), float("nan"), dtype=torch.bfloat16)}
    out = run(build(GroupedMatmulSchedule(), region), buffers, {"T": EXPERTS})["y"]
    for expert in range(EXPERTS):
        assert torch.equal(out[2 * expert], torch.full((N,), 64.0 * 2**expert).bfloat16())
        assert bool(out[2 * expert + 1].isnan().all())
