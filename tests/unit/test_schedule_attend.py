"""The schedule of `sparse_attend`: spec 2.9 over three sources, row independence, fixed blocks of keys."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dinfc.codegen.schedules.attend import AttendSchedule, attend_order
from dinfc.ir.graph import IRError
from support.anchors import CPU, DEVICE, bits, build
from support.attention import CURRENT, PAGES, RING, Attention, attention, entry

# Logit errors: a chain of 64 products in fp32, |q| |k| scale well below 16 here.
LOGIT_ERROR = 64 * 2.0**-24 * 16


def near(problem: Attention, out: torch.Tensor) -> bool:
    """Design section 11 for attend, with fp32 probabilities."""
    for row in range(problem.rows):
        reference, magnitude = problem.reference(row)
        bound = 2.0**-8 * reference.abs() + (2.0**-16 + 2 * LOGIT_ERROR) * magnitude
        if not bool(((out[row].double() - reference).abs() <= bound).all()):
            return False
    return True


@pytest.mark.parametrize("elem", ["fp4e4m3<16>", "mxfp8<32>"])
@pytest.mark.parametrize("keys", [1, 31, 32, 70])
def test_attend_is_near_the_exact_result_and_the_fast_build_equals_the_checked_one(elem: str, keys: int) -> None:
    problem = attention(6, keys, elem)
    fast = problem.run()
    assert near(problem, fast)
    assert torch.equal(bits(fast), bits(problem.run(checked=True)))


def test_a_row_alone_has_the_bits_it_has_in_any_batch() -> None:
    problem = attention(33)
    whole = bits(problem.run())
    for rows in (1, 2, 7, 8, 9, 31, 32, 33):
        order = list(range(rows))
        assert torch.equal(bits(problem.pick(order).run()), whole[:rows]), rows
        assert torch.equal(bits(problem.pick(order[::-1]).run()), whole[:rows].flip(0)), rows


def test_the_head_block_does_not_change_a_bit() -> None:
    problem = attention(3)
    results = [bits(problem.run(replace(CPU, extra={"head_block": block}))) for block in (1, 2, 4)]
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_leading_absent_blocks_do_not_change_a_bit() -> None:
    """The window part is padded in front: a whole block of -1 must be as if it were not there."""
    problem = attention(3, 64)
    longer = replace(problem, index=torch.cat([torch.full((3, 64), -1), problem.index], 1))
    trailing = replace(problem, index=torch.cat([problem.index, torch.full((3, 32), -1)], 1))
    assert torch.equal(bits(longer.run()), bits(problem.run()))
    assert torch.equal(bits(trailing.run()), bits(problem.run()))


def test_the_same_keys_from_another_source_give_the_same_bits() -> None:
    """Prefill reads a key from the current rows, decode from the ring, replay from pages: one list, one result."""
    problem = attention(4, 32, "mxfp8<32>")
    shared = problem.current
    keys = torch.arange(4)
    rings = [x.clone() for x in problem.ring]
    pages = [x.clone() for x in problem.pages]
    for stored, source in zip(rings + pages, list(shared) * 2, strict=True):
        stored[:4] = source
    problem = replace(problem, ring=type(shared)(*rings), pages=type(shared)(*pages))
    results = []
    for source in (CURRENT, RING, PAGES):
        index = torch.full((4, 32), -1, dtype=torch.int64)
        index[:, 3:7] = torch.tensor([entry(source, int(k)) for k in keys])
        results.append(bits(replace(problem, index=index).run()))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_no_valid_key_gives_zero_even_with_a_sink_of_minus_infinity() -> None:
    problem = attention(3, 40)
    empty = replace(problem, index=torch.full((3, 40), -1), sink=torch.tensor([0.0, float("-inf"), 1e30, -1e30]))
    assert torch.equal(empty.run(), torch.zeros(3, 4, 64).bfloat16())


def test_a_sink_of_minus_infinity_is_a_plain_softmax() -> None:
    problem = replace(attention(3, 40), sink=torch.full((4,), float("-inf")))
    assert near(problem, problem.run())


def test_huge_logits_do_not_overflow() -> None:
    problem = attention(2, 40)
    problem = replace(problem, q=(problem.q.float() * 1e4).bfloat16())
    assert bool(problem.run().isfinite().all())


def test_the_device_form_is_near_the_same_result() -> None:
    problem = attention(5, 70)
    assert near(problem, problem.run(replace(DEVICE, key_block=32)))


def test_another_order_is_refused() -> None:
    region = attention(1).region()
    region.regions[0].ops[0].attrs["order"] = attend_order(64, 32)
    with pytest.raises(IRError, match="32 keys"):
        build(AttendSchedule(), region)
