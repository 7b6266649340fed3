"""F06: an index top-k of 192 or 256 had no compiled kernel and failed at run time.

Here k is an attribute of the op: whatever the model asks for is built when compiling.
"""
from __future__ import annotations

import pytest
import torch

from dinfc.codegen.schedules.select import SelectSchedule
from support.anchors import T, build, make_region, run, tensor


@pytest.mark.parametrize("k", [1, 8, 191, 192, 256, 257, 512, 700])
def test_any_k_is_built_and_exact(k: int) -> None:
    width, end = 600, 550
    region = make_region("topk", [tensor("s", "bf16", T, width), tensor("end", "i32", T)], [tensor("y", "i32", T, k)],
                         {"k": k, "by": "index"})
    scores = torch.randn(1, width, generator=torch.Generator().manual_seed(k)).bfloat16()
    buffers = {"s": scores, "end": torch.tensor([end], dtype=torch.int32), "y": torch.full((1, k), 77).int()}
    got = run(build(SelectSchedule(), region), buffers, {"T": 1})["y"][0]
    best = torch.sort(scores[0, :end].float(), descending=True, stable=True).indices[:k].sort().values
    want = torch.full((k,), -1, dtype=torch.int32)
    want[: len(best)] = best.int()
    assert torch.equal(got, want)
