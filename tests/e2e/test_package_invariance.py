"""A row's logits are the same bits however they are computed: the promise of the whole project, on a package."""
from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dinfc.runtime.executor import Settings
from dinfc.runtime.scheduler import FixedChunks, RandomMix
from support.package import (
    Scores,
    checkpoint,
    compile_to,
    deployment,
    package,
    random_texts,
    run_package,
    same_bits,
    scores,
    write_ids,
)

LENGTHS = (1, 2, 7, 8, 9, 64, 65, 100, 200)
TEXTS = random_texts(LENGTHS)


@lru_cache(maxsize=1)
def reference() -> Scores:
    """Each text alone, in the largest pieces that the limits allow."""
    return {i: scores([text])[0] for i, text in enumerate(TEXTS)}


def check(other: Scores) -> None:
    for i, rows in reference().items():
        assert same_bits(rows, other[i]), f"text of {LENGTHS[i]} tokens"


def test_logits_are_finite_and_differ_between_positions() -> None:
    last = reference()[8]
    assert np.isfinite(last).all()
    assert len({row.tobytes() for row in last}) == len(last)


@pytest.mark.parametrize("chunks", [(33, 1, 30, 1, 1, 1, 20, 13), (5,), (64,), (1, 64)])
def test_chunks(chunks: tuple[int, ...]) -> None:
    check(scores(TEXTS, FixedChunks(chunks)))


def test_token_by_token() -> None:
    check(scores(TEXTS, FixedChunks((1,))))


@pytest.mark.parametrize("seed", range(8))
def test_mixed_batches_of_prefill_and_decode_rows(seed: int) -> None:
    check(scores(TEXTS, RandomMix(seed)))


def test_all_texts_in_one_batch_in_another_order() -> None:
    order = [3, 8, 0, 5, 7, 1, 6, 2, 4]
    got = scores([TEXTS[i] for i in order])
    check({i: got[at] for at, i in enumerate(order)})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int) -> None:
    check(scores(TEXTS, RandomMix(3), Settings(threads)))


@pytest.mark.parametrize("bucket", [1, 8, 64])
def test_buckets(bucket: int) -> None:
    check(scores(TEXTS, RandomMix(4), Settings(1, bucket)))


def test_poisoned_scratch_and_states() -> None:
    check(scores(TEXTS, RandomMix(5), Settings(2, 1, True)))


def test_checked_build() -> None:
    short = TEXTS[:6]
    got = scores(short, FixedChunks((33, 1, 30)), root=package(checked=True), checked=True)
    for i, rows in got.items():
        assert same_bits(reference()[i], rows)


def test_other_limits_change_buckets_and_row_chunks_but_no_bit(tmp_path: Path) -> None:
    other = compile_to(tmp_path / "other", deployment(max_tokens=16, max_seqs=3, buckets=(4, 16), score_bytes=600))
    check(scores(TEXTS, RandomMix(6), root=other))
    check(scores(TEXTS, root=other))


def test_a_slot_and_pages_that_another_text_used_before_change_nothing() -> None:
    """More texts than slots: states are reused without being cleared."""
    many = [*random_texts([70] * 24, seed=9), TEXTS[7]]
    assert same_bits(reference()[7], scores(many, RandomMix(7))[24])


def test_a_text_as_long_as_the_limit() -> None:
    """Every ring has wrapped, all pages are in use; one row more is refused elsewhere."""
    text = random_texts([512], seed=5)
    whole = scores(text)[0]
    assert same_bits(whole, scores(text, FixedChunks((33, 1, 30)))[0])
    shorter = scores([text[0][:200], *TEXTS[3:6]], RandomMix(8))[0]
    assert same_bits(whole[:200], shorter), "what comes later changes nothing before it"


def test_the_options_of_the_command_line_change_no_bit(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.json", TEXTS[:5])
    out = tmp_path / "out.safetensors"
    done = run_package(package(checked=True), "score", "--weights", str(checkpoint()), "--ids", str(ids), "--logits",
                       str(out), "--checked", "--poison", "--bucket", "64", "--threads", "2", "--mix", "9")
    assert done.returncode == 0, done.stderr
    tensors = load_file(out)
    assert set(tensors) == {f"logits.{i}" for i in range(5)}
    for i, rows in reference().items():
        if i < 5:
            assert same_bits(rows, tensors[f"logits.{i}"])


def test_the_command_line_writes_the_same_bits(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids.json", TEXTS)
    for number, options in enumerate((["--chunks", "33,1,30"], ["--mix", "5", "--threads", "1"])):
        out = tmp_path / f"{number}.safetensors"
        done = run_package(package(), "score", "--weights", str(checkpoint()), "--ids", str(ids), "--logits", str(out),
                           *options)
        assert done.returncode == 0, done.stderr
        tensors = load_file(out)
        check({i: tensors[f"logits.{i}"] for i in range(len(TEXTS))})
