"""F17: the same seed gave other tokens in another slot of the batch."""
from __future__ import annotations

import numpy as np
import pytest

from dinfc.runtime.engine import Engine, Request
from dinfc.runtime.philox import uniforms
from dinfc.runtime.sampling import sample
from support.package import executor, package, random_texts


@pytest.mark.parametrize("slot", range(8))
def test_a_request_draws_the_same_tokens_in_every_place_of_a_batch(slot: int) -> None:
    texts = random_texts([9, 20, 33, 5, 12, 40, 7, 26], seed=3)
    mine = Request(random_texts([17], seed=4)[0], 6, temperature=1.0, seed=11, ignore_eos=True)
    others = [Request(t, 4 + i, temperature=0.7, seed=i, ignore_eos=True) for i, t in enumerate(texts)]
    alone = Engine(executor(package())).generate([mine])[0].tokens
    batch = [*others[:slot], mine, *others[slot:]]
    assert Engine(executor(package())).generate(batch)[slot].tokens == alone


def test_another_seed_draws_other_tokens() -> None:
    ids = random_texts([17], seed=4)[0]
    runs = {tuple(Engine(executor(package())).generate(
        [Request(ids, 6, temperature=1.0, seed=seed, ignore_eos=True)])[0].tokens) for seed in range(4)}
    assert len(runs) == 4


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    logits = np.zeros(16, np.float32)
    logits[[3, 9]] = 2.0
    assert sample(logits, 0.0, 0, 5) == 3


def test_draws_follow_the_distribution() -> None:
    """Chi-square at 99.9 % over 4000 positions, eight tokens of very different probabilities."""
    logits = np.log(np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005])).astype(np.float32)
    counts = np.bincount([sample(logits, 1.0, 7, position) for position in range(4000)], minlength=8)
    expected = 4000 * np.exp(logits.astype(np.float64))
    assert ((counts - expected) ** 2 / expected).sum() < 24.32  # 7 degrees of freedom


def test_random_numbers_do_not_depend_on_how_many_are_asked_for() -> None:
    assert (uniforms(5, 9, 512)[:100] == uniforms(5, 9, 100)).all()
