"""F23: every multiply read scale slice 0, and random cosine checks did not notice. F24: scales were indexed by the loop
step, wrong when the K tile is not the scale block. F25: a tail of K read scales out of range.

Integer codes with a distinct power-of-two scale per row and K block: the product is exact in fp32, so it must be equal.
"""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dinfc.codegen.schedules.matmul import MatmulSchedule
from support.anchors import CPU, DEVICE, T, build, make_region, quantised, run, stored, tensor

INTEGERS = {"e4m3": (0x00, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0), "e2m1": (0, 2, 4, 5, 6, 10, 12)}  # 0 1 2 3 4 -1 -2
ROWS, N = 9, 72


def integers(code: str, g: torch.Generator, *shape: int) -> Tensor:
    table = torch.tensor(INTEGERS[code], dtype=torch.uint8)
    return table[torch.randint(0, len(table), shape, generator=g)]


def powers(rows: int, groups: int, step: int) -> Tensor:
    """Scale bytes that differ between neighbouring rows and groups, all within 2^0..2^6."""
    return (127 + (torch.arange(rows)[:, None] * step + torch.arange(groups)[None, :]) % 7).to(torch.uint8)


def exact_case(b_elem: str, k: int, guard: int = 0) -> tuple[dict[str, Tensor], Tensor, str]:
    g = torch.Generator().manual_seed(k)
    qa = quantised(integers("e4m3", g, ROWS, k), powers(ROWS, k // 32, 3), "mxfp8<32>")
    block_rows, code = (32, "e4m3") if b_elem == "wfp8<32x32>" else (1, "e2m1")
    qb = quantised(integers(code, g, N, k), powers(-(-N // block_rows), k // 32, 5), b_elem)
    layout = "n16k" if code == "e4m3" else "n16k4"
    a, b = tensor("a", "mxfp8<32>", T, k), tensor("b", b_elem, N, k, layout=layout)
    return stored(a, qa) | stored(b, qb), qa.values @ qb.values.T, layout


@pytest.mark.parametrize("b_elem", ["wfp8<32x32>", "mxfp4<32>"])
@pytest.mark.parametrize("k", [32, 64, 128, 256, 3 * 128 + 32])
@pytest.mark.parametrize("order", ["fold(32; chain fma)", "fold(128; fold(32; chain fma))"])
def test_exact_with_a_scale_of_its_own_for_every_row_and_block(b_elem: str, k: int, order: str) -> None:
    buffers, want, layout = exact_case(b_elem, k)
    a, b = tensor("a", "mxfp8<32>", T, k), tensor("b", b_elem, N, k, layout=layout)
    region = make_region("contract", [a, b], [tensor("y", "f32", T, N)], {"order": order})
    for columns in (32, 64):
        out = {**buffers, "y": torch.full((ROWS, N), float("nan"))}
        got = run(build(MatmulSchedule(), region, replace(CPU, tile_cols=columns)), out, {"T": ROWS})["y"]
        assert torch.equal(got.double(), want)


@pytest.mark.parametrize("tile_k", [32, 64, 128, 256])
@pytest.mark.parametrize("b_elem", ["wfp8<32x32>", "mxfp4<32>"])
def test_exact_whatever_the_staged_k_tile(b_elem: str, tile_k: int) -> None:
    k = 512
    g = torch.Generator().manual_seed(k)
    code, block_rows = ("e4m3", 32) if b_elem == "wfp8<32x32>" else ("e2m1", 1)
    a, b = tensor("a", "mxfp8<32>", T, k), tensor("b", b_elem, N, k)
    qa = quantised(integers("e4m3", g, ROWS, k), powers(ROWS, k // 32, 3), "mxfp8<32>")
    qb = quantised(integers(code, g, N, k), powers(-(-N // block_rows), k // 32, 5), b_elem)
    region = make_region("contract", [a, b], [tensor("y", "f32", T, N)], {"order": "fold(32; chain fma)"})
    limits = replace(DEVICE, tile_rows=16, tile_cols=32, extra={"stage_operands": 1, "tile_k": tile_k})
    buffers = stored(a, qa) | stored(b, qb) | {"y": torch.full((ROWS, N), float("nan"))}
    got = run(build(MatmulSchedule(), region, limits), buffers, {"T": ROWS})["y"]
    assert torch.equal(got.double(), qa.values @ qb.values.T)


@pytest.mark.parametrize("b_elem", ["wfp8<32x32>", "mxfp4<32>"])
def test_a_nan_guard_behind_the_scales_does_not_show(b_elem: str) -> None:
    k = 3 * 128 + 32
    buffers, want, layout = exact_case(b_elem, k)
    for name, data in list(buffers.items()):
        guard = torch.full((64,), 0xFF, dtype=torch.uint8)
        buffers[name] = torch.cat([data.flatten(), guard])  # the kernel takes the first elements
    a, b = tensor("a", "mxfp8<32>", T, k), tensor("b", b_elem, N, k, layout=layout)
    region = make_region("contract", [a, b], [tensor("y", "f32", T, N)], {"order": "fold(32; chain fma)"})
    got = run(build(MatmulSchedule(), region), {**buffers, "y": torch.full((ROWS, N), float("nan"))}, {"T": ROWS})["y"]
    assert torch.equal(got.double(), want)
