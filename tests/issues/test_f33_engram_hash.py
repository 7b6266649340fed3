"""F33: an Engram hash in which negative ids wrap. Rows equal big-integer arithmetic; -1 never reaches the hash."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dinfc.frontend.engram_hash import rows
from dinfc.frontend.token_map import compressed_id, halving_map
from frontend_support import example_config
from oracle.engram_hash import LayerHash, ngram
from support.op_run import run_one

CONFIGS = {"tiny-test": 256, "v41-flash": 99_092}


@pytest.mark.parametrize("name", list(CONFIGS))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_rows_equal_big_integers(name: str, data: st.DataObject) -> None:
    config = example_config(name)
    top = CONFIGS[name] - 1
    ids = st.one_of(st.sampled_from([0, 1, top]), st.integers(0, top))
    history = data.draw(st.lists(ids, min_size=4, max_size=4))
    for layer, primes in config.engram_primes.items():
        factors = config.engram_multipliers[layer]
        expected, first = [], 0
        for n in range(1, 4):
            mixed = 0
            for k in range(n + 1):
                mixed ^= history[k] * factors[k]
            assert 0 <= mixed < 2**63  # what an int64 kernel computes is the same number
            for prime in primes[n - 1]:
                expected.append(first + mixed % prime)
                first += prime
        assert list(rows(history, factors, primes)) == expected
        assert list(LayerHash([list(p) for p in primes], list(factors)).rows(history)) == expected


def test_ids_outside_the_vocabulary_are_sentinels_and_do_not_index_from_the_end() -> None:
    mapping = halving_map(512, 256)
    assert [compressed_id(mapping, i) for i in (-1, -512, 0, 511, 512, 10**9)] == [-1, -1, 0, 255, -1, -1]


@pytest.mark.parametrize("bad", [(-1, 0, 0, 0), (0, 0, 0, -1)])
def test_a_sentinel_is_refused_by_the_hash(bad: tuple[int, ...]) -> None:
    config = example_config()
    with pytest.raises(ValueError, match="negative"):
        rows(bad, config.engram_multipliers[1], config.engram_primes[1])


def test_an_ngram_at_the_start_of_a_sequence_is_filled_with_the_pads_class() -> None:
    mapping = halving_map(512, 256)
    history = ngram([5, 7, 300], 1, mapping, 4, compressed_id(mapping, 2))
    assert history == [3, 2, 1, 1]
    config = example_config()
    assert min(rows(history, config.engram_multipliers[1], config.engram_primes[1])) >= 0


def padded(ids: list[int], pad: int) -> list[int] | None:
    """What the hash sees of a row's ids, newest first: the pad from the first -1 on. None where the row's own is -1."""
    if ids[0] < 0:
        return None
    first = next((n for n, v in enumerate(ids) if v < 0), len(ids))
    return ids[:first] + [pad] * (len(ids) - first)


@pytest.mark.parametrize("name", list(CONFIGS))
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_op_gives_the_rows_of_big_integers(name: str, data: st.DataObject) -> None:
    """Ids -1 (absent, or no text), 0 and the last one anywhere in the n-gram, many rows at once."""
    config = example_config(name)
    top = CONFIGS[name] - 1
    ids = st.one_of(st.sampled_from([-1, 0, 1, top]), st.integers(0, top))
    batch = data.draw(st.lists(st.lists(ids, min_size=4, max_size=4), min_size=1, max_size=6))
    pad = data.draw(st.sampled_from([0, 1, top]))
    for layer, primes in config.engram_primes.items():
        factors = config.engram_multipliers[layer]
        flat = [p for row in primes for p in row]
        offsets = [sum(flat[:n]) for n in range(len(flat))]
        shaped = [[offsets[r * len(primes[0]) + c] for c in range(len(primes[0]))] for r in range(len(primes))]
        got = run_one("engram_hash", ("i32", batch), ("i64", list(factors)), ("i64", [list(p) for p in primes]),
                      ("i64", shaped), ("i32", torch.tensor(pad)), rows=sum(flat))
        for row, history in zip(got.tolist(), batch, strict=True):
            seen = padded(history, pad)
            assert row == ([-1] * len(flat) if seen is None else list(rows(seen, factors, primes)))
            assert seen is None or row == list(LayerHash([list(p) for p in primes], list(factors)).rows(seen))
