"""Design section 11, first rung: the interpreted decompositions equal an independent implementation, bit for bit."""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle

import pytest
import torch
from torch import Tensor

from dinfc.frontend.config import config_from_json
from dinfc.ir.types import Limits
from dinfc.reference import ReferenceModel, Sequence_
from oracle import Oracle, random_tensors, tiny_config, tiny_token_map

LENGTHS = (1, 2, 7, 8, 9, 64, 65, 100, 200)
CHUNKS = (33, 1, 30, 1, 1, 1, 20, 13)
LIMITS = Limits(8, 256, 512, 4096, (256,))


@lru_cache(maxsize=1)
def models() -> tuple[Oracle, ReferenceModel]:
    config, token_map = tiny_config(), tiny_token_map()
    tensors = random_tensors(config, 1)
    reference = ReferenceModel(config_from_json(config), LIMITS, "fp4", tensors, token_map)
    return Oracle(config, tensors, token_map), reference


@lru_cache(maxsize=32)
def expected(ids: tuple[int, ...]) -> Tensor:
    """Logits of a whole text by the oracle, in one piece."""
    oracle = models()[0]
    return oracle.forward(oracle.new_state(), list(ids))


def random_ids(length: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randint(0, 512, (length,), generator=generator).tolist())


def interpreted(ids: Sequence[int], chunks: Sequence[int]) -> Tensor:
    """Logits of a text that comes in the given chunks, repeated cyclically."""
    model = models()[1]
    sequence, out, at = model.new_sequence(), [], 0
    for size in cycle(chunks):
        if at >= len(ids):
            break
        out.append(model.step([(sequence, list(ids[at : at + size]))])[0])
        at += size
    model.release(sequence)
    return torch.cat(out)


@pytest.mark.parametrize("length", LENGTHS)
def test_one_shot(length: int) -> None:
    ids = random_ids(length)
    assert torch.equal(interpreted(ids, [length]), expected(ids))


@pytest.mark.parametrize("length", [n for n in LENGTHS if n > 1])
def test_in_uneven_chunks(length: int) -> None:
    ids = random_ids(length)
    assert torch.equal(interpreted(ids, CHUNKS), expected(ids))


@pytest.mark.parametrize("length", [pytest.param(n, marks=pytest.mark.long) if n == 100 else n for n in LENGTHS])
def test_token_by_token(length: int) -> None:
    ids = random_ids(length)
    assert torch.equal(interpreted(ids, [1]), expected(ids))


@pytest.mark.parametrize("edge", range(1, 12))
def test_chunk_edge_at_every_position_of_a_short_prompt(edge: int) -> None:
    """Engram looks back over the edge, compressor groups and the window lie across it."""
    ids = random_ids(12)
    assert torch.equal(interpreted(ids, [edge, 12]), expected(ids))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_rows_of_other_sequences_in_the_step_change_nothing(order: tuple[int, ...]) -> None:
    model = models()[1]
    texts = [random_ids(n) for n in (9, 20, 33)]
    sequences: list[Sequence_] = [model.new_sequence() for _ in texts]
    out: list[list[Tensor]] = [[] for _ in texts]
    for first, last in ((0, 5), (5, 6), (6, 100)):
        batch = [(sequences[i], list(texts[i][first:last])) for i in order if texts[i][first:last]]
        present = [i for i in order if texts[i][first:last]]
        for i, logits in zip(present, model.step(batch), strict=True):
            out[i].append(logits)
    for sequence in sequences:
        model.release(sequence)
    for text, pieces in zip(texts, out, strict=True):
        assert torch.equal(torch.cat(pieces), expected(text))


def test_other_weights_give_other_logits() -> None:
    """The comparison above would notice: one changed bias moves the logits."""
    config, token_map = tiny_config(), tiny_token_map()
    tensors = dict(random_tensors(config, 1))
    tensors["layers.0.attn.attn_sink"] = tensors["layers.0.attn.attn_sink"] + 1
    oracle = Oracle(config, tensors, token_map)
    ids = random_ids(9)
    assert not torch.equal(oracle.forward(oracle.new_state(), list(ids)), expected(ids))
