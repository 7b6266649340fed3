"""The schedule of `topk`, against a stable sort."""
from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dinfc.codegen.schedules.select import SelectSchedule
from dinfc.ir.graph import IRError
from dinfc.ir.tile.program import Program
from support.anchors import CPU, T, build, make_region, run, tensor

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def program(elem: str, width: int, k: int, by: str, chunk: tuple[str, ...] = ()) -> Program:
    region = make_region("topk", [tensor("s", elem, T, width), tensor("end", "i32", T)], [tensor("y", "i32", T, k)],
                         {"k": k, "by": by}, chunk)
    return build(SelectSchedule(), region, CPU)


def select(scores: Tensor, ends: list[int], k: int, by: str, checked: bool = False) -> Tensor:
    rows, width = scores.shape
    elem = next(name for name, dtype in DTYPES.items() if dtype == scores.dtype)
    buffers = {"s": scores, "end": torch.tensor(ends, dtype=torch.int32), "y": torch.full((rows, k), 77).int()}
    return run(program(elem, width, k, by), buffers, {"T": rows}, checked)["y"]


def expected(scores: Tensor, ends: list[int], k: int, by: str) -> Tensor:
    """Stable sort by descending value: ties to the lowest index."""
    out = torch.full((len(ends), k), -1, dtype=torch.int32)
    for row, end in enumerate(ends):
        end = max(0, min(end, scores.shape[1]))
        best = torch.sort(scores[row, :end].float() + 0.0, descending=True, stable=True).indices[:k]
        best = best.sort().values if by == "index" else best
        out[row, : len(best)] = best.int()
    return out


def awkward_rows(width: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random, heavily tied, all equal, mostly -inf, signed zeros, negative with one inf."""
    x = torch.randn(6, width, generator=torch.Generator().manual_seed(seed))
    x[1] = (x[1] * 2).round()
    x[2] = 1.0
    x[3, : width // 2] = float("-inf")
    x[4] = torch.where(x[4] > 0, 0.0, -0.0)
    x[5] = -x[5].abs()
    x[5, width // 3] = float("inf")
    return x.to(dtype)


@pytest.mark.parametrize("by", ["index", "rank"])
@pytest.mark.parametrize("elem", DTYPES)
@pytest.mark.parametrize(("width", "k"), [(40, 7), (384, 6), (300, 192), (64, 64), (5, 8)])
def test_topk_equals_a_stable_sort(elem: str, by: str, width: int, k: int) -> None:
    scores = awkward_rows(width, DTYPES[elem])
    for ends in ([width] * 6, [k, 0, -3, k + 1, width + 9, 1], [width // 2 + i for i in range(6)]):
        fast = select(scores, ends, k, by)
        assert torch.equal(fast, expected(scores, ends, k, by))
        assert torch.equal(fast, select(scores, ends, k, by, checked=True))


@pytest.mark.parametrize("by", ["index", "rank"])
@pytest.mark.parametrize("elem", DTYPES)
def test_whatever_lies_beyond_the_end_is_never_selected(elem: str, by: str) -> None:
    scores, ends = awkward_rows(64, DTYPES[elem]), [3, 20, 33, 40, 50, 63]
    clean = select(scores, ends, 8, by)
    for poison in (float("nan"), float("inf"), 1e30):
        dirty = scores.clone()
        for row, end in enumerate(ends):
            dirty[row, end:] = poison
        assert torch.equal(select(dirty, ends, 8, by), clean)


def test_a_nan_below_the_end_is_the_last_choice() -> None:
    scores = torch.tensor([[float("nan"), float("-inf"), -1.0, float("nan")]]).bfloat16()
    assert select(scores, [4], 2, "index").tolist() == [[1, 2]]
    assert select(scores, [4], 3, "index").tolist() == [[0, 1, 2]]
    assert select(scores, [4], 3, "rank").tolist() == [[2, 1, 0]]
    assert select(scores, [4], 5, "rank").tolist() == [[2, 1, 0, 3, -1]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([-2.0, -0.5, -0.0, 0.0, 0.5, 1.0, float("inf"), float("-inf")]), min_size=48,
                max_size=48), st.integers(0, 48))
def test_topk_of_tied_values(values: list[float], end: int) -> None:
    scores = torch.tensor([values]).bfloat16()
    assert torch.equal(select(scores, [end], 8, "index"), expected(scores, [end], 8, "index"))


def test_topk_of_a_chunk_reads_the_chunk_and_writes_rows_of_the_step() -> None:
    rows, width, k, row0, count = 7, 40, 5, 3, 2
    scores = torch.randn(count, width, generator=torch.Generator().manual_seed(3)).bfloat16()
    ends = torch.arange(20, 20 + rows, dtype=torch.int32)
    buffers = {"s": scores, "end": ends, "y": torch.full((rows, k), 77).int()}
    out = run(program("bf16", width, k, "index", ("s",)), buffers, {"T": rows, "row0": row0, "rows": count})["y"]
    assert torch.equal(out[row0: row0 + count], expected(scores, ends[row0: row0 + count].tolist(), k, "index"))
    assert bool((out[:row0] == 77).all() and (out[row0 + count:] == 77).all())


def test_a_row_of_131072_scores_is_exact_and_its_cost_follows_its_end() -> None:
    width, k = 131072, 512
    scores = torch.randn(2, width, generator=torch.Generator().manual_seed(4)).bfloat16()
    kernel = program("bf16", width, k, "index")

    def once(end: int) -> tuple[Tensor, float]:
        buffers = {"s": scores, "end": torch.tensor([end, end], dtype=torch.int32), "y": torch.zeros(2, k).int()}
        run(kernel, dict(buffers), {"T": 2})  # compiles
        start = time.perf_counter()
        out = run(kernel, buffers, {"T": 2})["y"]
        return out, time.perf_counter() - start

    full, long = once(width)
    assert torch.equal(full, expected(scores, [width, width], k, "index"))
    short = min(once(1024)[1] for _ in range(3))
    assert short < long


def test_rank_of_a_row_too_wide_is_refused() -> None:
    with pytest.raises(IRError, match="at most"):
        program("f32", 100000, 6, "rank")
