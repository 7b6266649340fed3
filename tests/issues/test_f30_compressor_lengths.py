"""F30: a compressor without lengths gave NaN rows from the first full group on. Lengths are required operands here."""
from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from dinfc.frontend.config import config_from_json
from dinfc.ir.graph import IRError, Value, definition
from dinfc.ir.types import Limits, StateType, TensorType, symbol
from dinfc.reference import ReferenceModel
from oracle import Oracle, random_tensors, tiny_config, tiny_token_map

T, S = symbol("T"), symbol("S")
LENGTHS = (1, 2, 3, 4, 5)  # ratio - 1, ratio, ratio + 1, and the second group
IDS = [7, 300, 11, 498, 52]


@lru_cache(maxsize=1)
def models() -> tuple[Oracle, ReferenceModel]:
    config, tensors = tiny_config(), random_tensors(tiny_config(), 30)
    reference = ReferenceModel(config_from_json(config), Limits(4, 32, 128, 4096, (32,)), "fp4", tensors,
                               tiny_token_map())
    return Oracle(config, tensors, tiny_token_map()), reference


def expected(length: int) -> Tensor:
    oracle = models()[0]
    return oracle.forward(oracle.new_state(), IDS[:length])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("step", [5, 1, 2])
def test_prompts_around_the_first_groups_equal_the_oracle(length: int, step: int) -> None:
    model = models()[1]
    sequence = model.new_sequence()
    rows = [model.step([(sequence, IDS[at:min(at + step, length)])])[0] for at in range(0, length, step)]
    model.release(sequence)
    logits = torch.cat(rows)
    assert not logits.isnan().any()
    assert torch.equal(logits, expected(length))


def test_a_short_prompt_beside_a_long_one() -> None:
    """Each row goes by its own lengths, not by those of its neighbours."""
    model = models()[1]
    sequences = [model.new_sequence() for _ in LENGTHS[:4]]
    out = model.step([(s, IDS[:n]) for s, n in zip(sequences, LENGTHS, strict=False)])
    for sequence in sequences:
        model.release(sequence)
    for length, logits in zip(LENGTHS, out, strict=False):
        assert torch.equal(logits, expected(length))


def test_scores_and_selection_cannot_be_written_without_lengths() -> None:
    scores = Value("scores", TensorType("bf16", (T, 32)))
    with pytest.raises(IRError, match="takes 2 operands, got 1"):
        definition("topk").infer([scores], {"k": 8, "by": "index"})
    q, w = Value("q", TensorType("mxfp4<32>", (T, 2, 32))), Value("w", TensorType("bf16", (T, 2)))
    keys = Value("keys", StateType("pages", "mxfp4<32>", 32, 8, 4096, 0, 128))
    table, seq = Value("table", TensorType("i32", (S, 3))), Value("seq", TensorType("i32", (T,)))
    with pytest.raises(IRError, match="takes 6 to 7 operands, got 5"):
        definition("index_score").infer([q, w, keys, table, seq], {"width": 24, "block": 0})
