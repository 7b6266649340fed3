"""Scheduler, policies, allocators, step block: who runs when, with which pages and slots, and what a step may be."""
from __future__ import annotations

import pytest

from dinfc.runtime.cache import PageAllocator, SlotAllocator
from dinfc.runtime.executor import Settings
from dinfc.runtime.package import open_package
from dinfc.runtime.plan import Plan
from dinfc.runtime.scheduler import Chunk, DefaultPolicy, FixedChunks, Policy, RandomMix, Scheduler, Sequence
from dinfc.runtime.step import StepBlock, StepSequence, StepSize
from support.package import executor, package


def plan() -> Plan:
    """8 sequences, 64 rows, 512 tokens."""
    return open_package(package()).plan


def drain(scheduler: Scheduler, sequences: int) -> list[list[tuple[int, int]]]:
    """(sequence, rows) of every step until nothing is left; sequences finish when they have no pending tokens."""
    steps: list[list[tuple[int, int]]] = []
    while chunks := scheduler.next_step():
        assert len(steps) < 2000
        steps.append([(c.sequence.number, c.rows) for c in chunks])
        for chunk in chunks:
            chunk.sequence.computed += chunk.rows
            if not chunk.sequence.pending:
                scheduler.finish(chunk.sequence)
    return steps


@pytest.mark.parametrize("policy", [DefaultPolicy(), FixedChunks((33, 1, 30)), RandomMix(0), RandomMix(1)])
@pytest.mark.parametrize(("slots", "pages"), [(10, 33), (2, 5), (4, 6)])
def test_every_row_of_every_text_runs_once_and_within_the_limits(policy: Policy, slots: int, pages: int) -> None:
    lengths = [1, 512, 64, 65, 200, 7, 129, 128, 33, 2, 90]
    scheduler = Scheduler(plan(), policy, slots, pages)
    for number, length in enumerate(lengths):
        scheduler.add(Sequence(number, [0] * length, length, every_row=True))
    steps = drain(scheduler, len(lengths))
    rows = [0] * len(lengths)
    for step in steps:
        assert len(step) <= 8 and sum(n for _, n in step) <= 64
        assert len({s for s, _ in step}) == len(step)
        for sequence, count in step:
            rows[sequence] += count
    assert rows == lengths


def test_nobody_shares_a_page_or_a_slot() -> None:
    scheduler = Scheduler(plan(), RandomMix(3), 6, 9)
    for number in range(12):
        scheduler.add(Sequence(number, [0] * (60 + 40 * (number % 4)), 60 + 40 * (number % 4)))
    while chunks := scheduler.next_step():
        held = [page for c in chunks for page in c.sequence.pages]
        slots = [c.sequence.slot for c in chunks]
        assert len(set(held)) == len(held) and 0 not in held and max(held) < 9
        assert len(set(slots)) == len(slots) and 0 not in slots and max(slots) < 6
        for chunk in chunks:
            assert len(chunk.sequence.pages) == -(-chunk.sequence.final_length // 128)
            chunk.sequence.computed += chunk.rows
            if not chunk.sequence.pending:
                scheduler.finish(chunk.sequence)


def test_generation_goes_before_prompts_and_prompts_fill_the_rest() -> None:
    old, new, later = Sequence(0, [1] * 10, 20, computed=9), Sequence(1, [1] * 100, 110), Sequence(2, [1] * 5, 6)
    chunks = DefaultPolicy().pick([new, old, later], 8, 64)
    assert [(c.sequence.number, c.rows) for c in chunks] == [(0, 1), (1, 63)]


def test_a_long_text_is_not_overtaken_for_ever() -> None:
    """It waits for pages; those that came after it wait behind it."""
    scheduler = Scheduler(plan(), DefaultPolicy(), 10, 5)  # four pages
    first, long, short = Sequence(0, [1] * 100, 100), Sequence(1, [1] * 512, 512), Sequence(2, [1], 1)
    for sequence in (first, long, short):
        scheduler.add(sequence)
    assert [numbers for numbers, _ in drain(scheduler, 3)[0]] == [0]
    assert not long.pending and not short.pending


def test_fixed_chunks_start_again_with_every_text() -> None:
    policy = FixedChunks((3, 1))
    scheduler = Scheduler(plan(), policy, 10, 33)
    for number, length in enumerate((6, 5)):
        scheduler.add(Sequence(number, [0] * length, length))
    assert drain(scheduler, 2) == [[(0, 3)], [(0, 1)], [(0, 2)], [(1, 3)], [(1, 1)], [(1, 1)]]


def test_the_same_seed_mixes_alike_and_another_one_does_not() -> None:
    def steps(seed: int) -> list[list[tuple[int, int]]]:
        scheduler = Scheduler(plan(), RandomMix(seed), 10, 33)
        for number in range(6):
            scheduler.add(Sequence(number, [0] * 50, 50))
        return drain(scheduler, 6)

    assert steps(1) == steps(1) != steps(2)
    assert any(len(s) > 1 and len({n for _, n in s}) > 1 for s in steps(1)), "mixed batches"


def test_logits_are_wanted_behind_the_last_known_token_only() -> None:
    sequence = Sequence(0, [1] * 10, 20)
    assert Chunk(sequence, 4).wanted(7) == []
    assert Chunk(sequence, 10).wanted(7) == [16]
    assert Chunk(Sequence(0, [1] * 10, 10, every_row=True), 3).wanted(7) == [7, 8, 9]


@pytest.mark.parametrize(("ids", "final"), [([], 1), ([1], 513)])
def test_a_sequence_that_could_never_run_is_refused(ids: list[int], final: int) -> None:
    with pytest.raises(ValueError, match="a sequence of"):
        Scheduler(plan(), DefaultPolicy(), 10, 33).add(Sequence(0, ids, final))


def test_pages_are_counted() -> None:
    pages = PageAllocator(4)
    first = pages.take(2)
    assert first == [1, 2] and pages.available == 1
    pages.share([1])
    assert pages.release([1, 2]) == [2] and pages.release([1]) == [1]
    assert pages.available == 3
    for wrong in (lambda: pages.release([1]), lambda: pages.share([3]), lambda: pages.take(4)):
        with pytest.raises(ValueError, match="page"):
            wrong()


def test_slots_are_counted() -> None:
    slots = SlotAllocator(3)
    assert [slots.take(), slots.take()] == [1, 2] and not slots.available
    with pytest.raises(ValueError, match="no state slot"):
        slots.take()
    slots.release(1)
    with pytest.raises(ValueError, match="twice"):
        slots.release(1)
    assert slots.take() == 1


def test_a_step_is_laid_out_as_the_plan_says() -> None:
    block = StepBlock(plan(), poison=True)
    size = block.fill([StepSequence(0, [5, 6, 7], 2, [4]), StepSequence(130, [9], 1, [3, 1])])
    assert size == StepSize(4, 2)
    assert block.field("cu_rows")[:3].tolist() == [0, 3, 4]
    assert block.field("start")[:2].tolist() == [0, 130]
    assert block.field("state_slot")[:2].tolist() == [2, 1]
    assert block.field("page_table").reshape(8, 4)[:2].tolist() == [[4, 0, 0, 0], [3, 1, 0, 0]]
    assert block.field("ids")[:4].tolist() == [5, 6, 7, 9]
    assert (block.field("ids")[4:] == -1).all() and (block.field("page_table")[8:] == -1).all(), "poison"


@pytest.mark.parametrize("wrong", [
    [], [StepSequence(0, [1] * 65, 1, [1])], [StepSequence(0, [1], n, [n]) for n in range(1, 10)],
    [StepSequence(0, [], 1, [1]), StepSequence(0, [1], 2, [2])], [StepSequence(-1, [1], 1, [1])],
    [StepSequence(512, [1], 1, [1, 2, 3, 4, 5])], [StepSequence(127, [1, 1], 1, [1])],
    [StepSequence(0, [1], 0, [1])], [StepSequence(0, [1], 1, [0])],
    [StepSequence(0, [1], 1, [1]), StepSequence(0, [1], 1, [2])],
], ids=["nothing", "rows", "sequences", "empty", "negative", "beyond", "pages", "slot0", "page0", "slot twice"])
def test_a_step_that_the_plan_does_not_allow_is_refused(wrong: list[StepSequence]) -> None:
    with pytest.raises(ValueError, match=r"a step of|two sequences|a chunk of|positions up to"):
        StepBlock(plan()).fill(wrong)


def test_logit_rows_outside_the_step_are_refused() -> None:
    runner = executor(package(), Settings())
    runner.forward([StepSequence(0, [1, 2, 3], 1, [1])])
    for rows in ([3], [-1], [0, 1, 7]):
        with pytest.raises(ValueError, match="logit rows"):
            list(runner.head(rows))
    assert list(runner.head([])) == []
    assert sum(len(piece) for piece in runner.head([2, 0, 0, 1] * 10)) == 40
