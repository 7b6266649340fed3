"""The byte-level tokenizer of examples/tiny: any text comes back unchanged; the committed examples are reproducible."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from dinfc.frontend.tokenizer import SPECIALS, byte_characters, byte_level_json
from frontend_support import EXAMPLES, changed, example_config

TOKENIZER = Tokenizer.from_file(str(EXAMPLES / "tiny" / "tokenizer.json"))


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_survives(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=True).ids
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text
    if not any(special in text for special in SPECIALS):
        assert ids == [3 + byte for byte in text.encode()]


def test_special_ids_are_those_of_the_config() -> None:
    config = example_config("tiny")
    assert [TOKENIZER.token_to_id(s) for s in SPECIALS] == [
        config.bos_token_id,
        config.eos_token_id,
        config.pad_token_id,
    ]
    assert TOKENIZER.get_vocab_size() == 259
    assert TOKENIZER.decode([0, 3 + ord("x"), 1]) == "x"


def test_bytes_have_distinct_printable_characters() -> None:
    characters = byte_characters()
    assert len(set(characters)) == 256 and all(c.isprintable() and not c.isspace() for c in characters)


def test_a_config_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="special ids"):
        byte_level_json(changed(vocab_size=511).model_copy(update={"vocab_size": 258}))
    with pytest.raises(ValueError, match="special ids"):
        byte_level_json(changed().model_copy(update={"pad_token_id": 300}))


def test_the_committed_examples_are_what_the_script_writes(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "make_examples.py"))["main"](tmp_path)
    written = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.json"))
    assert len(written) == 3
    for path in written:
        assert (tmp_path / path).read_bytes() == (EXAMPLES / path).read_bytes(), path
