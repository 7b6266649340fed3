"""`generate`: greedy is the argmax of `score`, draws belong to the request alone, text goes through the tokenizer."""
from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from dinfc.runtime.engine import Engine, Request
from dinfc.runtime.scheduler import FixedChunks, RandomMix
from support.compiled_model import ROOT
from support.package import checkpoint, executor, package, random_texts, run_package, scores, write_ids

PROMPTS = random_texts([1, 9, 40, 130], seed=21)
NEW = 6


def greedy(prompts: list[list[int]], new: int = NEW) -> list[Request]:
    return [Request(ids, new, ignore_eos=True) for ids in prompts]


@lru_cache(maxsize=1)
def continuations() -> tuple[tuple[int, ...], ...]:
    """Each prompt alone."""
    return tuple(tuple(Engine(executor(package())).generate([r])[0].tokens) for r in greedy(PROMPTS))


def test_greedy_tokens_are_the_argmax_of_what_score_gives() -> None:
    whole = [[*prompt, *tokens] for prompt, tokens in zip(PROMPTS, continuations(), strict=True)]
    logits = scores(whole)
    for number, (prompt, tokens) in enumerate(zip(PROMPTS, continuations(), strict=True)):
        assert len(tokens) == NEW
        for at, token in enumerate(tokens):
            assert token == int(np.argmax(logits[number][len(prompt) + at - 1])), (number, at)


@pytest.mark.parametrize("policy", [None, RandomMix(1), RandomMix(2), FixedChunks((7, 1))])
def test_greedy_tokens_are_the_same_alone_and_in_every_kind_of_batch(policy: RandomMix | None) -> None:
    results = Engine(executor(package())).generate(greedy(PROMPTS), policy)
    assert [tuple(r.tokens) for r in results] == list(continuations())


def test_more_requests_than_slots_all_come_to_their_end() -> None:
    many = [PROMPTS[1]] * 13
    results = Engine(executor(package())).generate(greedy(many))
    assert {tuple(r.tokens) for r in results} == {continuations()[1]}


def test_the_end_token_stops_unless_it_is_ignored() -> None:
    """A prompt that ends in the likeliest way: found by search, so that the model really draws the end token."""
    engine = Engine(executor(package()))
    end = engine.executor.plan.model.eos_token_id
    for seed in range(40):
        found = engine.generate([Request(PROMPTS[1], 60, temperature=1.5, seed=seed)])[0]
        if found.stopped:
            break
    assert found.stopped and found.tokens[-1] == end and end not in found.tokens[:-1]
    request = Request(PROMPTS[1], 60, temperature=1.5, seed=seed, ignore_eos=True)
    more = engine.generate([request])[0]
    assert not more.stopped and len(more.tokens) == 60
    assert more.tokens[: len(found.tokens)] == found.tokens


def test_the_command_prints_what_the_engine_gives(tmp_path: Path) -> None:
    """Greedy, all prompts in one batch; and drawn, alone and in the batch."""
    everything = write_ids(tmp_path / "all.json", PROMPTS)
    alone = write_ids(tmp_path / "one.json", PROMPTS[2:3])

    def tokens(ids: Path, *options: str) -> list[list[int]]:
        done = run_package(package(), "generate", "--weights", str(checkpoint()), "--ids", str(ids), "--max-tokens",
                           str(NEW), "--ignore-eos", *options)
        assert done.returncode == 0, done.stderr
        assert "stopped by: max-tokens" in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert tokens(everything) == [list(t) for t in continuations()]
    drawn = ("--temperature", "0.9", "--seed", "5")
    assert tokens(alone, *drawn, "--threads", "1") == tokens(everything, *drawn)[2:3]
    assert tokens(alone, *drawn) != tokens(alone)


def text_package(*options: str) -> str:
    """What `generate` prints with the tokenizer of examples/tiny."""
    done = run_package(package("tiny"), "generate", "--weights", str(checkpoint("tiny")), "--max-tokens", "8",
                       "--ignore-eos", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_text_prompt_is_continued_with_the_tokens_of_its_ids(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(ROOT / "examples" / "tiny" / "tokenizer.json"))
    text = "Grüße, 世界!\n"
    (tmp_path / "prompt.txt").write_text(text, encoding="utf-8")
    ids = write_ids(tmp_path / "ids.json", [tokenizer.encode(text).ids])
    tokens = json.loads(text_package("--ids", str(ids)))
    assert len(tokens) == 8
    expected = tokenizer.decode(tokens) + "\n"
    assert text_package("--prompt", text) == expected
    assert text_package("--prompt-file", str(tmp_path / "prompt.txt")) == expected


def test_a_terminal_without_unicode_gets_the_text_in_escapes() -> None:
    arguments = ("generate", "--weights", str(checkpoint("tiny")), "--max-tokens", "8", "--ignore-eos",
                 "--prompt", "ab")
    plain, ascii_only = (run_package(package("tiny"), *arguments, env={"PYTHONIOENCODING": encoding})
                         for encoding in ("utf-8", "ascii"))
    assert not plain.stdout.isascii(), "random weights make bytes that are no letters"
    assert ascii_only.returncode == 0 and ascii_only.stdout.isascii()
    assert ascii_only.stdout == plain.stdout.encode("ascii", "backslashreplace").decode()


def test_a_prompt_that_spells_a_special_token_is_text(tmp_path: Path) -> None:
    """Otherwise whoever writes the prompt could end a turn or forge one."""
    library = Tokenizer.from_file(str(ROOT / "examples" / "tiny" / "tokenizer.json"))
    special = library.id_to_token(1)
    assert library.encode(special).ids == [1]  # what the library does of itself
    library.encode_special_tokens = True
    spelled = library.encode(special).ids
    assert len(spelled) > 1 and 1 not in spelled
    ids = write_ids(tmp_path / "ids.json", [spelled])
    tokens = json.loads(text_package("--ids", str(ids)))
    assert text_package("--prompt", special) == library.decode(tokens) + "\n"


def test_text_that_a_package_cannot_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "empty").write_text("")
    for options, code in ((["--prompt", ""], "E-RUN-001"), (["--prompt-file", str(tmp_path / "empty")], "E-RUN-001"),
                          (["--prompt-file", str(tmp_path / "latin")], "E-RUN-009"),
                          (["--prompt-file", str(tmp_path / "none")], "E-RUN-008"),
                          (["--prompt-file", str(tmp_path / "latin" / "x")], "E-RUN-008"),
                          (["--prompt", "a\udcff"], "E-RUN-009"), (["--prompt", "a" * 600], "E-RUN-002")):
        done = run_package(package("tiny"), "generate", "--weights", str(checkpoint("tiny")), *options)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith(f"{code}: "), done.stderr
