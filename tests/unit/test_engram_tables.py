"""Engram constants (spec §4.1, §4.3, Appendix B) and the token map, against an independent oracle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dinfc.diagnostics import DinfcError
from dinfc.frontend.engram_hash import is_prime, multiplier_bound, rows
from dinfc.frontend.token_map import MAP_FILE, TOKENIZER_FILE, halving_map, load_token_map, map_of_tokenizer
from frontend_support import EXAMPLES, changed, error_of, example_config
from oracle.token_map import map_from_tokenizer

TINY = EXAMPLES / "tiny"


def test_tiny_primes_multipliers_and_rows_are_those_of_the_spec() -> None:
    c = example_config()
    assert c.engram_primes == {
        1: ((101, 103), (107, 109), (113, 127)),
        4: ((131, 137), (139, 149), (151, 157)),
    }
    assert c.engram_multipliers == {
        1: (29662608052400909, 1873410163432121, 13919202536988139, 28638879857136817),
        4: (31841131192811251, 1950019090429101, 28509641033320619, 7337012813361983),
    }
    assert c.engram_rows == {1: 660, 4: 864}
    mapping = halving_map(512, 256)
    history = [mapping[i] for i in (300, 7, 5)] + [mapping[2]]  # row at position 2; before the start stands the pad
    assert rows(history, c.engram_multipliers[1], c.engram_primes[1]) == (29, 134, 308, 385, 500, 592)
    assert rows(history, c.engram_multipliers[4], c.engram_primes[4]) == (45, 186, 385, 497, 618, 736)


# fmt: off
FULL_PRIMES = {
    1: ((57, 79, 81, 97, 121, 129, 133, 183), (189, 207, 211, 253, 277, 289, 307, 321),
        (339, 381, 393, 399, 403, 409, 447, 463)),
    14: ((477, 487, 499, 507, 511, 573, 609, 627), (667, 669, 693, 697, 711, 729, 759, 769),
         (781, 799, 813, 819, 841, 877, 879, 889)),
}
FULL_ROWS = {
    1: (10250667, 16051853, 42761335, 48437066, 64953759, 91793642, 97213675, 124972355,
        130904169, 147647512, 174479789, 176217609, 193213014, 209711443, 226459680, 248375762,
        266647502, 284737834, 292200621, 319934002, 327756510, 339491046, 365830131, 381142068),
    14: (13402985, 31185432, 33324312, 50751051, 67464774, 94528317, 100959033, 120176944,
         128818944, 152218109, 160998468, 191796781, 195587060, 214176773, 229162919, 250160180,
         260141385, 283855289, 300526134, 319101158, 333879786, 349356468, 360884307, 370522085),
}
# fmt: on


def test_full_size_numbers_of_appendix_b() -> None:
    c = example_config("v41-flash")
    base = {k: tuple(tuple(p - 16_000_000 for p in order) for order in t) for k, t in c.engram_primes.items()}
    assert base == FULL_PRIMES
    assert c.engram_rows == {1: 384_006_168, 14: 384_016_682}
    assert multiplier_bound(99_092) == 46_539_438_283_891
    assert c.engram_multipliers[1] == (76632096046245, 4839876093313, 35959672319349, 73987337458391)
    assert c.engram_multipliers[14] == (67716810739261, 51510806800915, 30921347202721, 82619226485591)
    for layer, expected in FULL_ROWS.items():
        assert rows((10, 20, 30, 40), c.engram_multipliers[layer], c.engram_primes[layer]) == expected
        assert c.engram_offsets[layer][0][0] == 0
        assert c.engram_offsets[layer][2][7] + c.engram_primes[layer][2][7] == c.engram_rows[layer]


@given(st.integers(0, 100_000))
@settings(max_examples=200, deadline=None)
def test_primality_against_trial_division(n: int) -> None:
    assert is_prime(n) == (n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)))


@pytest.mark.parametrize("n", [3215031751, 3474749660383, 341550071728321, 2047, 561])
def test_strong_pseudoprimes_are_no_primes(n: int) -> None:
    assert not is_prime(n)


def test_products_of_the_largest_id_fit_int64() -> None:
    for name in ("tiny-test", "tiny", "v41-flash"):
        c = example_config(name)
        assert c.engram_compressed_vocab_size is not None
        for factors in c.engram_multipliers.values():
            assert all(f % 2 == 1 and f * (c.engram_compressed_vocab_size - 1) < 2**63 for f in factors)


def test_the_token_map_of_a_tokenizer_equals_the_oracles() -> None:
    mapping = map_of_tokenizer(TINY / TOKENIZER_FILE, 512)
    assert list(mapping) == map_from_tokenizer(TINY / TOKENIZER_FILE, 512)
    assert 1 + max(mapping) == example_config("tiny").engram_compressed_vocab_size == 230
    byte = {chr(b): mapping[3 + b] for b in range(128)}
    assert byte["A"] == byte["a"] and byte["Z"] == byte["z"]
    assert byte[" "] == byte["\t"] == byte["\n"] == byte["\r"] != byte["\x0b"]
    assert len({mapping[3 + b] for b in range(128, 256)}) == 128  # no UTF-8 by themselves: told apart by raw string
    assert set(mapping[259:]) == {-1}  # no tokens, no classes


def test_the_map_without_a_tokenizer_is_half_the_id_at_tiny_size() -> None:
    assert halving_map(512, 256) == tuple(i // 2 for i in range(512))
    assert set(halving_map(129_280, 99_092)) == set(range(99_092))
    with pytest.raises(ValueError, match="classes"):
        halving_map(4, 5)


def _folder(tmp_path: Path, mapping: object = None, tokenizer: bool = False) -> Path:
    if mapping is not None:
        (tmp_path / MAP_FILE).write_text(mapping if isinstance(mapping, str) else json.dumps(mapping), encoding="utf-8")
    if tokenizer:
        shutil.copyfile(TINY / TOKENIZER_FILE, tmp_path / TOKENIZER_FILE)
    return tmp_path


def _load_error(folder: Path, name: str = "tiny-test") -> DinfcError:
    return error_of(lambda: load_token_map(folder, example_config(name)))


def test_the_map_file_wins_and_must_agree_with_the_tokenizer(tmp_path: Path) -> None:
    config = example_config("tiny")
    agreed = [max(entry, 0) for entry in map_of_tokenizer(TINY / TOKENIZER_FILE, 512)]
    assert load_token_map(_folder(tmp_path, agreed, tokenizer=True), config) == tuple(agreed)
    agreed[100] = 0
    assert _load_error(_folder(tmp_path, agreed), "tiny").code == "E-CONFIG-037"


def test_the_tokenizer_alone_is_enough(tmp_path: Path) -> None:
    mapping = load_token_map(_folder(tmp_path, tokenizer=True), example_config("tiny"))
    assert len(mapping) == 512 and mapping[2] == 2


@pytest.mark.parametrize(
    ("mapping", "code"),
    [
        ("{}", "E-CONFIG-035"),
        ("[1,", "E-CONFIG-035"),
        ([0] * 511, "E-CONFIG-035"),
        ([0] * 511 + [-1], "E-CONFIG-035"),
        ([0] * 511 + [True], "E-CONFIG-035"),
        ([0] * 511 + [1.0], "E-CONFIG-035"),
        ([0] * 511 + [256], "E-CONFIG-036"),
        ([0] * 512, "E-CONFIG-036"),
    ],
)
def test_a_bad_token_map_is_refused(tmp_path: Path, mapping: object, code: str) -> None:
    assert _load_error(_folder(tmp_path, mapping)).code == code


def test_neither_file_is_an_error_only_with_engram_layers(tmp_path: Path) -> None:
    assert _load_error(tmp_path).code == "E-CONFIG-034"
    bare = changed(engram_layer_ids=[], engram_num_embeddings=[])
    assert load_token_map(tmp_path, bare) == ()


def test_a_tokenizer_that_does_not_belong_to_the_config_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, tokenizer=True)
    assert _load_error(folder).code == "E-CONFIG-036"  # 230 classes, 256 wanted
    assert error_of(lambda: map_of_tokenizer(folder / TOKENIZER_FILE, 100)).code == "E-CONFIG-039"
    (folder / TOKENIZER_FILE).write_text("{}", encoding="utf-8")
    assert _load_error(folder).code == "E-CONFIG-038"
