"""Worked numbers of the specification (Appendix B and §12.2) through the ops of tensor IR.

Where each number is tested for the oracle, the frontend and the ops:

| number | oracle (test_oracle.py) | frontend | ops |
|---|---|---|---|
| quantisers | test_mxfp8_.., test_mxfp4_.., test_fp4_e4m3_worked_number | test_weight_codecs.py | here |
| YaRN | test_yarn_full_size, test_yarn_tiny_and_plain_layers | test_rope_tables.py | here (the module's tables) |
| Sinkhorn | test_sinkhorn_worked_numbers | - | here |
| router | test_router_worked_number | - | here |
| Engram primes, multipliers, rows | test_engram_full_size, test_engram_tiny | test_engram_tables.py | here (hash) |
| draft, scheduling, EPLB, CP, random numbers | - | - | with the parts that they belong to |
"""
from __future__ import annotations

import math
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from dinfc.frontend.deepseek_v41 import build_model
from dinfc.frontend.engram_hash import rows as big_integer_rows
from dinfc.ir.codecs import e4m3_decode, e8m0_decode
from dinfc.ir.graph import Module
from dinfc.ir.types import Limits
from frontend_support import example_config
from support.op_run import quantised, run_one, run_op

LIMITS = Limits(2, 8, 512, 4096, (8,))


@lru_cache(maxsize=2)
def module_of(example: str) -> Module:
    return build_model(example_config(example), LIMITS, "fp4").module


def table(example: str, name: str) -> Tensor:
    """A constant of the model's module."""
    constant = module_of(example).constants[name]
    dtype = torch.float64 if constant.type.elem == "f32" else torch.int64
    return torch.tensor(list(constant.make()), dtype=dtype).reshape([int(d) for d in constant.type.shape])


def padded(values: list[float], size: int) -> list[float]:
    return values + [0.0] * (size - len(values))


def test_mxfp8() -> None:
    q = quantised("mxfp8<32>", padded([0.1, -3, 448, 500], 32))
    assert e8m0_decode(q.scales).tolist() == [2.0]
    assert q.values()[:4].tolist() == [0.1015625, -3.0, 448.0, 512.0]
    assert run_one("dequantize", q, elem="bf16")[:4].tolist() == [0.1015625, -3.0, 448.0, 512.0]


def test_fp4_e4m3() -> None:
    q = quantised("fp4e4m3<16>", padded([0.3, -1.1, 2.7, 0.05], 16))
    assert e4m3_decode(q.scales).tolist() == [0.4375]
    assert q.values()[:4].tolist() == [0.21875, -1.3125, 2.625, 0.0]


def test_fp4_e4m3_multiplies_by_the_reciprocal_in_fp32() -> None:
    q = quantised("fp4e4m3<16>", padded([11.25, 2.34375, 4.6875, 9.375, -2.34375], 16))
    assert e4m3_decode(q.scales).tolist() == [1.875]
    assert (q.values()[:5] / 1.875).tolist() == [6.0, 1.5, 3.0, 6.0, -1.5]


def test_mxfp4() -> None:
    q = quantised("mxfp4<32>", padded([0.3, -1.1, 2.7, 0.05], 32))
    assert e8m0_decode(q.scales).tolist() == [0.5]
    assert q.values()[:4].tolist() == [0.25, -1.0, 3.0, 0.0]


@pytest.mark.parametrize(("codec", "scale"), [("mxfp8<32>", 2.0**-22), ("mxfp4<32>", 2.0**-126),
                                              ("fp4e4m3<16>", 2.0**-9)])
def test_zero_groups_have_code_0_and_the_floor_scale(codec: str, scale: float) -> None:
    q = quantised(codec, [0.0] * 32)
    decode = e4m3_decode if codec.startswith("fp4") else e8m0_decode
    assert set(decode(q.scales).tolist()) == {scale}
    assert not q.codes.any()


def test_a_zero_row_is_normed_to_zero_and_others_are_rounded_once() -> None:
    out = run_one("rms_norm", ("bf16", [[0.0, 0.0], [1.0, 2.0]]), ("bf16", [1.0, 3.0]), eps=1e-20)
    exact = torch.tensor([1 / math.sqrt(2.5), 6 / math.sqrt(2.5)], dtype=torch.float64)
    assert out[0].tolist() == [0.0, 0.0]
    assert torch.equal(out[1], exact.float().bfloat16().double())


YARN = {0: 1.0, 15: 3.63553858e-3, 16: 2.265625e-3, 20: 2.96977778e-4, 24: 1.953125e-5, 25: 5.37231267e-6,
        31: 5.68052904e-7}


def test_yarn_frequencies_stand_in_the_full_size_table_of_the_module() -> None:
    angles = table("v41-flash", "rope_long")
    assert angles.shape[1] == 64
    assert angles[0].tolist() == [1.0] * 32 + [0.0] * 32
    for i, frequency in YARN.items():
        assert math.isclose(math.atan2(angles[1, 32 + i], angles[1, i]), frequency, rel_tol=5e-9)
        assert math.isclose(angles[500, i], math.cos(500 * frequency), abs_tol=500 * frequency * 5e-9 + 1e-15)
    window = table("v41-flash", "rope_window")
    for i in (0, 1, 31):
        assert math.isclose(math.atan2(window[1, 32 + i], window[1, i]), 10000.0 ** (-2 * i / 64), rel_tol=1e-12)


def test_rope_turns_interleaved_pairs_of_the_last_channels_and_back() -> None:
    cs = [[math.cos(1.5), math.cos(0.75), math.sin(1.5), math.sin(0.75)]]
    x = [[9.0, 1.0, 0.0, 0.0, 2.0]]
    turned = run_one("rope", ("bf16", x), ("f32", torch.tensor(cs, dtype=torch.float64)))
    exact = torch.tensor([9.0, math.cos(1.5), math.sin(1.5), -2 * math.sin(0.75), 2 * math.cos(0.75)])
    assert torch.equal(turned[0], exact.bfloat16().double())
    back = run_one("rope", ("bf16", turned), ("f32", torch.tensor(cs, dtype=torch.float64)), conj=True)
    assert (back - torch.tensor(x)).abs().max() < 0.02
    conjugate = run_one("rope", ("bf16", x), ("f32", torch.tensor(cs, dtype=torch.float64)), conj=True)
    assert conjugate[0, 2] == -turned[0, 2]


A = [[2, 0, -1, 0.5], [0, 1, 0, 0], [-1, 0.5, 2, 0], [0, 0, 0, 1]]
FIRST = [[.6484, .1062, .0323, .1751], [.1597, .5254, .1597, .1933], [.0323, .1751, .6484, .1062],
         [.1597, .1933, .1597, .5254]]
LAST = [[.6668, .1133, .0332, .1867], [.1500, .5117, .1500, .1883], [.0332, .1867, .6668, .1133],
        [.1500, .1883, .1500, .5117]]


def mix_of(base: list[float], iters: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """`hc_mix` with fn = 0, so that A and the other logits are the base."""
    x = ("bf16", torch.ones(1, 4, 32))
    pre, post, c = run_op("hc_mix", x, ("f32", torch.zeros(24, 128)), ("f32", [scale] * 3),
                          ("f32", torch.tensor(base, dtype=torch.float64)), eps=1e-6, norm_eps=1e-20, iters=iters)
    assert isinstance(pre, Tensor)
    assert isinstance(post, Tensor)
    assert isinstance(c, Tensor)
    return pre[0], post[0], c[0]


def test_sinkhorn() -> None:
    base = [0.0] * 8 + [v for row in A for v in row]
    for iters, wanted in ((1, FIRST), (20, LAST)):
        pre, post, c = mix_of(base, iters)
        assert (c - torch.tensor(wanted, dtype=torch.float64)).abs().max() < 5.1e-5
        assert (c.sum(0) - 1).abs().max() < 1e-5
        assert pre.tolist() == [0.5 + 1e-6] * 4
        assert post.tolist() == [1.0] * 4


def test_initial_values_of_the_mix() -> None:
    """§1.3: base = 3 at the layer's stream and -3 elsewhere, zeros, 6 I - 3."""
    base = [-3.0, -3.0, 3.0, -3.0] + [0.0] * 4 + [6.0 * (i == j) - 3 for i in range(4) for j in range(4)]
    pre, post, c = mix_of(base, 20, 0.01)
    low, high = 1 / (1 + math.exp(3)) + 1e-6, 1 / (1 + math.exp(-3)) + 1e-6
    assert torch.allclose(pre, torch.tensor([low, low, high, low], dtype=torch.float64), rtol=0, atol=1e-15)
    assert post.tolist() == [1.0] * 4
    assert torch.equal(c, c.T)
    assert bool((c.diagonal() > 0.9).all())


def test_router() -> None:
    ids, weights = run_op("gate_topk", ("f32", [[1.0, -2.0, 0.5, 3.0]]), ("f32", [0, 1.5, 0, -1]), k=2, scale=1.5)
    assert isinstance(ids, Tensor)
    assert isinstance(weights, Tensor)
    assert ids.tolist() == [[1, 0]]
    assert (weights - torch.tensor([[0.3557, 1.1443]])).abs().max() < 5.1e-5


def test_router_ties_go_to_the_lower_expert_and_large_logits_stay_finite() -> None:
    ids, _ = run_op("gate_topk", ("f32", [[0.0] * 4]), ("f32", [0.0] * 4), k=3, scale=1.5)
    assert isinstance(ids, Tensor)
    assert ids.tolist() == [[0, 1, 2]]
    _, weights = run_op("gate_topk", ("f32", [[1000.0, 20.5, -800.0]]), ("f32", [0.0, 0.0, 0.0]), k=3, scale=1.0)
    assert isinstance(weights, Tensor)
    root = [math.sqrt(1000), math.sqrt(20.5), 0.0]
    assert torch.allclose(weights[0], torch.tensor(root, dtype=torch.float64) / sum(root), rtol=1e-14, atol=0)


FULL_ROWS = {
    1: "10250667 16051853 42761335 48437066 64953759 91793642 97213675 124972355 130904169 147647512 174479789 "
       "176217609 193213014 209711443 226459680 248375762 266647502 284737834 292200621 319934002 327756510 339491046 "
       "365830131 381142068",
    14: "13402985 31185432 33324312 50751051 67464774 94528317 100959033 120176944 128818944 152218109 160998468 "
        "191796781 195587060 214176773 229162919 250160180 260141385 283855289 300526134 319101158 333879786 349356468 "
        "360884307 370522085",
}


def hashed(example: str, layer: int, ids: list[list[int]], pad: int = 1) -> list[list[int]]:
    """Table rows by the op, with the tables of the model's module."""
    names = ("multipliers", "primes", "offsets")
    tables = [("i64", table(example, f"engram_{name}_{layer}")) for name in names]
    size = example_config(example).engram_rows[layer]
    out = run_one("engram_hash", ("i32", ids), *tables, ("i32", torch.tensor(pad)), rows=size)
    rows: list[list[int]] = out.tolist()
    return rows


@pytest.mark.parametrize("layer", [1, 14])
def test_engram_rows_full_size(layer: int) -> None:
    assert hashed("v41-flash", layer, [[10, 20, 30, 40]]) == [[int(v) for v in FULL_ROWS[layer].split()]]


def test_engram_rows_tiny() -> None:
    """§12.2: tokens 5, 7, 300; a row's ids go backwards, the pad's class 1 fills what is before the start."""
    ids = [[2, -1, -1, -1], [3, 2, -1, -1], [150, 3, 2, -1]]
    assert hashed("tiny-test", 1, ids)[2] == [29, 134, 308, 385, 500, 592]
    assert hashed("tiny-test", 4, ids)[2] == [45, 186, 385, 497, 618, 736]
    c = example_config()
    for layer in (1, 4):
        for got, history in zip(hashed("tiny-test", layer, ids), ([2, 1, 1, 1], [3, 2, 1, 1], [150, 3, 2, 1]),
                                strict=True):
            assert got == list(big_integer_rows(history, c.engram_multipliers[layer], c.engram_primes[layer]))


def test_engram_gate() -> None:
    """§4.4: sign(0) = 0 gives 1/2, the floor 1e-6 keeps its sign, rows without an entry keep X."""
    x = torch.zeros(3, 2, 4)
    x[:, 1] = 1.0
    kv = torch.ones(3, 12)
    kv[:, 8:] = 8.0
    kv[2, 4:8] = -1.0
    ones, entries = torch.ones(2, 4), ("i32", [[0, 1], [-1, -1], [2, 3]])
    out = run_one("engram_gate", ("bf16", x), ("bf16", kv), ("bf16", ones), ("bf16", ones), entries, eps=1e-20)
    gates = [1 / (1 + math.exp(-math.sqrt(2.0))), 1 / (1 + math.exp(math.sqrt(2.0)))]  # dot = 4^-0.5 * 4 = +-2
    for row, gate in ((0, gates[0]), (2, gates[1])):
        assert out[row, 0].tolist() == [4.0] * 4
        assert torch.equal(out[row, 1], torch.tensor([1 + gate * 8] * 4).bfloat16().double())
    assert torch.equal(out[1], x[1].double())


def test_pool_is_a_softmax_over_the_two_tokens_in_each_channel() -> None:
    previous, current = [[0.0, 2.0, 1.0, 3.0]], [[0.0, 1.0, 5.0, 7.0]]  # gates of two channels, then latents
    out = run_one("softmax_pool", ("f32", torch.tensor(previous)), ("f32", torch.tensor(current)))
    w = 1 / (1 + math.exp(-1.0))
    assert torch.equal(out[0], torch.tensor([3.0, 3 * w + 7 * (1 - w)]).bfloat16().double())


def test_topk_ties_lengths_and_signed_zero() -> None:
    scores, end = ("bf16", [[1.0, 3.0, 3.0, 3.0, 0.0], [-0.0, 0.0, -0.0, 9.0, 9.0], [5.0] * 5]), ("i32", [5, 3, 0])
    assert run_one("topk", scores, end, k=2, by="index").tolist() == [[1, 2], [0, 1], [-1, -1]]
    assert run_one("topk", scores, end, k=4, by="rank").tolist() == [[1, 2, 3, 0], [0, 1, 2, -1], [-1] * 4]


def test_candidate_blocks_keep_the_newest_and_restore_ascending_tokens() -> None:
    scores = torch.zeros(2, 32)
    scores[0, :8] = 5.0
    scores[0, 8:16] = 7.0
    end = ("i32", [26, 0])
    best, blocks = run_op("block_max", ("bf16", scores), end, block=8)
    assert isinstance(best, Tensor)
    assert isinstance(blocks, Tensor)
    assert blocks.tolist() == [4, 0]
    cand = run_one("topk", ("bf16", best), ("i32", blocks), k=2)
    assert cand.tolist() == [[1, 3], [-1, -1]]  # the newest, partial block wins over block 0
    assert run_one("compact_length", ("i32", cand), end, block=8).tolist() == [10, 0]
    tokens = run_one("restore_blocks", ("i32", [[0, 7, 8, 9], [-1] * 4]), ("i32", cand), block=8)
    assert tokens.tolist() == [[8, 15, 24, 25], [-1] * 4]


def test_clamps_are_the_gates_from_above_and_ups_on_both_sides() -> None:
    ab = [[20.0, -30.0, 1.0, -20.0, 4.0, 15.0]]
    out = run_one("swiglu_clamp", ("bf16", ab), ("f32", [0.5]), limit=10.0)
    silu = [10 / (1 + math.exp(-10)), -30 / (1 + math.exp(30)), 1 / (1 + math.exp(-1))]
    wanted = torch.tensor([silu[0] * -10 * 0.5, silu[1] * 4 * 0.5, silu[2] * 10 * 0.5], dtype=torch.float64)
    assert torch.allclose(out[0], wanted, rtol=1e-14, atol=0)
