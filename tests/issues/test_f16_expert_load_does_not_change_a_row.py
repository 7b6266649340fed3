"""F16: an expert GEMM picked its row block and split-K from the tokens per expert."""
from __future__ import annotations

import pytest
import torch

from dinfc.codegen.schedules.grouped_matmul import GroupedMatmulSchedule
from dinfc.ir.types import parse_dim
from support.anchors import CPU, T, bits, build, make_region, random_quantised, run, stored, tensor

N, K, EXPERTS = 40, 128, 3
LOADS = (1, 2, 16, 17, 500)


@pytest.mark.parametrize("tile", [8, 16])
def test_a_row_has_the_same_bits_whatever_the_load_of_its_expert(tile: int) -> None:
    positions = parse_dim(f"{tile}*ceiling(T/{tile})")
    a, b = tensor("a", "mxfp8<32>", T, K), tensor("b", "mxfp4<32>", EXPERTS, N, K, layout="n16k4")
    rows, owner = tensor("picked", "i32", positions), tensor("owner", "i32", parse_dim(f"ceiling(T/{tile})"))
    region = make_region("grouped_contract", [a, b, rows, owner], [tensor("y", "bf16", positions, N)], {"tile": tile})
    program = build(GroupedMatmulSchedule(), region, CPU)
    g = torch.Generator().manual_seed(0)
    data = stored(a, random_quantised(g, "mxfp8<32>", max(LOADS), K))
    weights = stored(b, random_quantised(g, "mxfp4<32>", EXPERTS, N, K))
    seen = set()
    for load in LOADS:
        for place in {0, load // 2, load - 1}:
            tiles = -(-load // tile)
            picked = torch.full((tiles * tile,), -1, dtype=torch.int32)
            picked[:load] = torch.arange(1, load + 1) % load
            picked[:load][place] = 0
            buffers = weights | data | {
                "picked": picked, "owner": torch.full((tiles,), 1, dtype=torch.int32),
                "y": torch.full((tiles * tile, N), float("nan"), dtype=torch.bfloat16)}
            buffers |= {name: data[name][:load].contiguous() for name in data}
            out = run(program, buffers, {"T": load})["y"]
            seen.add(tuple(bits(out[place]).tolist()))
    assert len(seen) == 1
