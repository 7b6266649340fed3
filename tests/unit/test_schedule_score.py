"""The schedule of `index_score`: spec 2.6 from the paged cache, plain and over candidate blocks."""
from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from dinfc.codegen.schedules.score import ScoreSchedule, score_order
from dinfc.ir.graph import Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.types import StateType
from support.anchors import (
    CPU,
    Quantised,
    S,
    T,
    bits,
    build,
    make_region,
    page_buffer,
    quantised,
    random_quantised,
    run,
    state,
    stored,
    tensor,
)

HEADS, D, CAPACITY, MAX_PAGES, PAGE_COUNT = 4, 64, 16, 12, 20
KEYS = StateType("pages", "mxfp4<32>", D, CAPACITY, 1024, 32, 640)
WIDTH = CAPACITY * MAX_PAGES


@dataclass
class Scores:
    q: Quantised
    w: Tensor
    keys: Quantised
    table: Tensor
    seq: Tensor
    end: Tensor
    cand: Tensor | None = None
    block: int = 0

    @property
    def rows(self) -> int:
        return self.w.shape[0]

    @property
    def width(self) -> int:
        return WIDTH if self.cand is None else self.cand.shape[1] * self.block

    def pick(self, rows: list[int]) -> Scores:
        where = torch.tensor(rows)
        q = Quantised(*(x[where].contiguous() for x in self.q))
        return replace(self, q=q, w=self.w[where], seq=self.seq[where], end=self.end[where],
                       cand=None if self.cand is None else self.cand[where])

    def reference(self, row: int) -> tuple[Tensor, Tensor]:
        """(scores, sums of absolute products) of the columns below the row's end."""
        scores, sizes = [], []
        for column in range(int(self.end[row])):
            token = column
            if self.cand is not None:
                token = int(self.cand[row, column // self.block]) * self.block + column % self.block
            page = int(self.table[self.seq[row], token // CAPACITY])
            key = torch.zeros(D, dtype=torch.float64)
            if 0 <= page < PAGE_COUNT:
                key = self.keys.values[page * CAPACITY + token % CAPACITY]
            products = self.q.values[row] * key
            weights = self.w[row].double()
            scores.append((weights * products.sum(1).clamp(min=0)).sum())
            sizes.append((weights.abs() * products.abs().sum(1)).sum())
        empty = torch.zeros(0, dtype=torch.float64)
        return (torch.stack(scores), torch.stack(sizes)) if scores else (empty, empty)

    def region(self, chunk: tuple[str, ...]) -> Op:
        operands = [
            tensor("q", "mxfp4<32>", T, HEADS, D), tensor("w", "bf16", T, HEADS), state("kappa", KEYS),
            tensor("table", "i32", S, MAX_PAGES), tensor("seq", "i32", T), tensor("end", "i32", T)]
        if self.cand is not None:
            operands.append(tensor("cand", "i32", T, self.cand.shape[1]))
        return make_region("index_score", operands, [tensor("y", "bf16", T, self.width)],
                           {"width": self.width, "block": self.block}, chunk)

    def run(self, limits: TargetLimits = CPU, checked: bool = False, chunk: tuple[int, int] | None = None) -> Tensor:
        """Scores with NaN where nothing was written; `chunk` = (row0, rows) computes those rows only."""
        region = self.region(("y",) if chunk else ())
        row0, rows = chunk or (0, self.rows)
        buffers = stored(region.regions[0].params[0], self.q) | {
            "w": self.w, "kappa": page_buffer(self.keys, KEYS), "table": self.table.int(), "seq": self.seq.int(),
            "end": self.end.int(), "y": torch.full((rows, self.width), float("nan"), dtype=torch.bfloat16)}
        if self.cand is not None:
            buffers["cand"] = self.cand.int()
        scalars = {"T": self.rows, "S": len(self.table), "pages": PAGE_COUNT, "row0": row0, "rows": rows}
        return run(build(ScoreSchedule(), region, limits), buffers, scalars, checked)["y"]


def scores(rows: int = 12, seed: int = 0) -> Scores:
    g = torch.Generator().manual_seed(seed)
    table = torch.stack([torch.randperm(PAGE_COUNT, generator=g)[:MAX_PAGES] for _ in range(3)])
    end = torch.randint(0, WIDTH + 1, (rows,), generator=g)
    end[:3] = torch.tensor([WIDTH, 0, 1])[: min(3, rows)]
    return Scores(
        random_quantised(g, "mxfp4<32>", rows, HEADS, D), torch.randn(rows, HEADS, generator=g).bfloat16(),
        random_quantised(g, "mxfp4<32>", PAGE_COUNT * CAPACITY, D), table,
        torch.randint(0, 3, (rows,), generator=g), end)


def compact(rows: int = 12, block: int = 8, blocks: int = 6, seed: int = 0) -> Scores:
    """Candidate blocks: ascending, the newest one partial, -1 behind."""
    plain = scores(rows, seed)
    g = torch.Generator().manual_seed(seed + 1)
    cand, end = torch.full((rows, blocks), -1), torch.zeros(rows, dtype=torch.int64)
    for row in range(rows):
        visible = int(plain.end[row])
        count = -(-visible // block)
        kept = min(blocks, count)
        if kept:
            older = torch.randperm(count - 1, generator=g)[: kept - 1].sort().values
            cand[row, :kept] = torch.cat([older, torch.tensor([count - 1])])
            end[row] = (kept - 1) * block + visible - (count - 1) * block
    return replace(plain, cand=cand, end=end, block=block)


def near(problem: Scores, out: Tensor) -> bool:
    for row in range(problem.rows):
        end = int(problem.end[row])
        reference, size = problem.reference(row)
        bound = 2.0**-8 * reference.abs() + 4 * 40 * 2.0**-24 * size
        if not bool(((out[row, :end].double() - reference).abs() <= bound).all()):
            return False
        if not bool(out[row, end:].isnan().all()):
            return False
    return True


@pytest.mark.parametrize("make", [scores, compact])
def test_scores_are_near_the_exact_ones_and_nothing_is_written_beyond_the_end(make) -> None:  # type: ignore[no-untyped-def]
    problem = make()
    fast = problem.run()
    assert near(problem, fast)
    assert torch.equal(bits(fast), bits(problem.run(checked=True)))


@pytest.mark.parametrize("make", [scores, compact])
def test_a_row_alone_has_the_bits_it_has_in_any_batch(make) -> None:  # type: ignore[no-untyped-def]
    problem = make(33)
    whole = bits(problem.run())
    for rows in (1, 2, 7, 8, 9, 31, 32, 33):
        order = list(range(rows))
        assert torch.equal(bits(problem.pick(order).run()), whole[:rows]), rows
        assert torch.equal(bits(problem.pick(order[::-1]).run()), whole[:rows].flip(0)), rows


@pytest.mark.parametrize("make", [scores, compact])
def test_a_chunk_holds_its_own_rows(make) -> None:  # type: ignore[no-untyped-def]
    problem = make()
    assert torch.equal(bits(problem.run(chunk=(5, 4))), bits(problem.run())[5:9])


def test_candidate_blocks_give_the_bits_of_the_plain_scores() -> None:
    plain, some = scores(), compact()
    whole, out = plain.run(), some.run()
    assert some.cand is not None
    for row in range(some.rows):
        columns = torch.arange(int(some.end[row]))
        tokens = some.cand[row, columns // 8] * 8 + columns % 8
        assert torch.equal(bits(out[row, columns]), bits(whole[row, tokens]))


def test_the_tile_does_not_change_a_bit() -> None:
    problem = scores()
    assert torch.equal(bits(problem.run(replace(CPU, extra={"score_tile": 16}))), bits(problem.run()))


def test_a_page_that_does_not_exist_scores_zero() -> None:
    problem = scores()
    problem.table[:, 1], problem.table[:, 2], problem.table[:, 3] = -1, PAGE_COUNT, 2**31 - 1
    out = problem.run(checked=True)
    assert near(problem, out)
    assert torch.equal(out[0, CAPACITY: 4 * CAPACITY], torch.zeros(3 * CAPACITY).bfloat16())


def test_a_zero_score_is_never_minus_zero() -> None:
    """Selection compares bit patterns; a tiny negative sum rounds to -0 in bf16."""
    problem = scores(3)
    codes = torch.full_like(problem.q.codes, 1)
    tiny = quantised(codes, torch.full_like(problem.q.scales, 0), "mxfp4<32>")
    keys = quantised(torch.full_like(problem.keys.codes, 1), torch.full_like(problem.keys.scales, 100), "mxfp4<32>")
    out = replace(problem, q=tiny, keys=keys, w=-problem.w.abs()).run()
    assert bool((bits(out[0]) == 0).all())


def test_exact_on_integers_with_a_power_of_two_scale_per_key_and_group() -> None:
    """A scale slice used twice, or another row's, changes the result (fault F23)."""
    problem = scores(4)
    groups = D // 32
    integers = torch.tensor([2, 4, 6, 10, 12], dtype=torch.uint8)  # 1, 2, 4, -1, -2
    g = torch.Generator().manual_seed(9)

    def pick(shape: torch.Size) -> Tensor:
        return integers[torch.randint(0, 5, shape, generator=g)]

    q_scales = (127 + torch.arange(HEADS * groups).reshape(HEADS, groups) % 3).to(torch.uint8).expand(4, -1, -1)
    k_scales = (127 + torch.arange(len(problem.keys.codes) * groups) % 3).reshape(-1, groups).to(torch.uint8)
    exact = replace(
        problem, q=quantised(pick(problem.q.codes.shape), q_scales.contiguous(), "mxfp4<32>"),
        keys=quantised(pick(problem.keys.codes.shape), k_scales, "mxfp4<32>"),
        w=torch.tensor([1.0, 2.0, 0.5, 1.0]).expand(4, -1).bfloat16().contiguous())
    out = exact.run()
    for row in range(4):
        reference, _ = exact.reference(row)
        assert torch.equal(out[row, : int(exact.end[row])], reference.float().bfloat16())


def test_the_order_is_printed() -> None:
    program = build(ScoreSchedule(), scores(1).region(()))
    assert program.orders == (score_order(32),) == ("heads(dot fold(32; chain fma); chain fma)",)
