"""F29: a wrong rotary base or YaRN rule per layer, and unrotated pooled keys, show only beyond the window."""
from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from dinfc.frontend.config import config_from_json
from dinfc.ir.types import Limits
from dinfc.reference import ReferenceModel
from oracle import Oracle, random_tensors, tiny_config, tiny_token_map

WINDOW = 8
IDS = torch.randint(0, 512, (41,), generator=torch.Generator().manual_seed(29)).tolist()
CHUNKS = ([41], [7, 1, 1, 31, 1], [8, 33])
CHANGES: dict[str, dict[str, Any]] = {
    "as_it_is": {}, "no_yarn": {"rope_scaling": None}, "other_base": {"compress_rope_theta": 40000},
    "other_window_base": {"rope_theta": 500},
}


@lru_cache(maxsize=1)
def tensors() -> dict[str, Tensor]:
    return random_tensors(tiny_config(), 29)


@lru_cache(maxsize=len(CHANGES))
def expected(change: str) -> Tensor:
    oracle = Oracle(tiny_config(**CHANGES[change]), tensors(), tiny_token_map())
    return oracle.forward(oracle.new_state(), IDS)


@pytest.mark.parametrize("change", CHANGES)
def test_queries_on_both_sides_of_the_window_equal_the_oracle(change: str) -> None:
    config = config_from_json(tiny_config(**CHANGES[change]))
    assert config.sliding_window == WINDOW
    model = ReferenceModel(config, Limits(2, 64, 128, 4096, (64,)), "fp4", tensors(), tiny_token_map())
    for chunks in CHUNKS:
        sequence, at, rows = model.new_sequence(), 0, []
        for size in chunks:
            rows += model.step([(sequence, IDS[at:at + size])])
            at += size
        model.release(sequence)
        logits = torch.cat(rows)
        for position in (7, 8, 9, 40):
            assert torch.equal(logits[position], expected(change)[position]), (chunks, position)


def test_each_rule_shows_at_position_40() -> None:
    """The comparison would notice: no two of the rules give the same row."""
    rows = [expected(change)[40] for change in CHANGES]
    assert all(not torch.equal(a, b) for n, a in enumerate(rows) for b in rows[:n])
