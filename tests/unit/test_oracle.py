"""The oracle against the worked numbers of spec Appendix B and §12.2, its invariants (§13.2) and its edge cases."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oracle import (
    Oracle,
    State,
    random_tensors,
    read_checkpoint,
    read_token_map,
    tiny_config,
    tiny_token_map,
    write_checkpoint,
)
from oracle.attention import sparse_attention
from oracle.codecs import (
    E2M1_GRID,
    F64,
    bf,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    e8m0_decode,
    e8m0_encode,
    fp4_e4m3,
    fp4_e4m3_value,
    mxfp4,
    mxfp4_value,
    mxfp8,
    mxfp8_value,
    p2,
    pack_e2m1,
    unpack_e2m1,
    wfp8,
    wfp8_value,
)
from oracle.compress import compress_ratio1, pool
from oracle.config import Dims, source_of
from oracle.engram import gate, hash_rows, lookup
from oracle.engram_hash import LayerHash, layer_hashes, multipliers, ngram, table_primes
from oracle.hyper import hc_mix, hc_post, sinkhorn
from oracle.indexer import candidate_blocks, candidate_mask, index_scores, top_k
from oracle.moe import expert, route, route_logits, softplus
from oracle.ops import rmsnorm
from oracle.rope import frequencies, layer_frequencies, rotate, yarn_range
from oracle.synthetic import hc_base
from oracle.token_map import map_from_tokenizer, normalise, token_key

Tensor = torch.Tensor
CHUNKS = (33, 1, 30, 1, 1, 1, 20, 13)


def vec(*values: float, size: int = 0) -> Tensor:
    """fp64 vector, zero-padded to ``size``."""
    return torch.tensor([*values, *[0.0] * (size - len(values))], dtype=F64)


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def prompt(count: int, seed: int = 5) -> list[int]:
    ids: list[int] = torch.randint(0, 512, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return random_tensors(tiny_config(), 0)


@pytest.fixture(scope="module")
def model(tensors: dict[str, Tensor]) -> Oracle:
    return Oracle(tiny_config(), tensors, tiny_token_map())


@pytest.fixture(scope="module")
def traced(model: Oracle) -> tuple[Tensor, dict[str, Tensor]]:
    """One-shot logits and trace of the 100-token prompt."""
    trace: dict[str, Tensor] = {}
    return model.forward(model.new_state(), prompt(100), trace), trace


def run_chunks(model: Oracle, ids: list[int], sizes: tuple[int, ...]) -> Tensor:
    state, parts, start = model.new_state(), [], 0
    for size in sizes:
        parts.append(model.forward(state, ids[start : start + size]))
        start += size
    assert start == len(ids) == len(state)
    return torch.cat(parts)


# ---- §0.3, §0.4 codecs


def test_bf_goes_through_fp32() -> None:
    # 1 + 2^-8 is a tie between 1 and 1 + 2^-7; 2^-40 more is lost on the way through fp32, so the tie goes to even.
    assert bf(vec(1 + 2**-8 + 2**-40, 1 + 2**-8 + 2**-20, 1 + 3 * 2**-8)).tolist() == [1.0, 1 + 2**-7, 1 + 2**-6]


def test_p2() -> None:
    assert p2(vec(1.0, 1.0 + 2**-23, 0.75, 448 / 448, 500 / 448, 2.0**-126)).tolist() == [1, 2, 1, 1, 2, 2.0**-126]
    # The quotient is rounded to fp32 first.
    assert p2(vec(1.0 + 2**-40)).tolist() == [1.0]


def test_e8m0_and_e4m3_bytes() -> None:
    assert e8m0_encode(vec(1.0, 2.0, 0.5, 2.0**-126)).tolist() == [127, 128, 126, 1]
    all_bytes = torch.arange(255, dtype=torch.uint8)
    assert torch.equal(e8m0_encode(e8m0_decode(all_bytes)), all_bytes)
    finite = torch.tensor([b for b in range(256) if b & 0x7F != 0x7F], dtype=torch.uint8)
    assert torch.equal(e4m3_encode(e4m3_decode(finite)), finite)
    assert e4m3_decode(torch.tensor([0x7E, 0x01, 0x08, 0xFE], dtype=torch.uint8)).tolist() == [
        448.0,
        2.0**-9,
        2.0**-6,
        -448.0,
    ]


def test_e4m3_rounds_to_nearest_even() -> None:
    values = [float(v) for v in e4m3_decode(torch.arange(0x7F, dtype=torch.uint8))]
    for code, (low, high) in enumerate(itertools.pairwise(values)):
        mid = (low + high) / 2
        even = code if code % 2 == 0 else code + 1
        assert e4m3_encode(vec(mid, -mid)).tolist() == [even, even | 0x80]
        assert e4m3_encode(vec(mid * (1 - 2**-20), mid * (1 + 2**-20))).tolist() == [code, code + 1]


def test_e2m1_ties_both_signs() -> None:
    ties = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0, 6.0: 6.0}
    for x, expected in ties.items():
        assert e2m1_decode(e2m1_encode(vec(x, -x))).tolist() == [expected, -expected]
    for code, (low, high) in enumerate(itertools.pairwise(E2M1_GRID)):
        mid = (low + high) / 2
        below, above = math.nextafter(mid, 0.0), math.nextafter(mid, 9.0)
        assert e2m1_encode(vec(below, above, -below, -above)).tolist() == [code, code + 1, code + 8, code + 9]


def test_e2m1_zero_saturation_nan() -> None:
    codes = e2m1_encode(vec(0.0, -0.0, -0.1, 7.0, -1e30, math.inf, -math.inf, math.nan))
    assert codes.tolist()[:7] == [0, 8, 8, 7, 15, 7, 15]
    assert codes.tolist()[7] & 7 == 7


def test_pack_low_nibble_is_even() -> None:
    codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    assert pack_e2m1(codes).tolist() == [[0x21, 0x0F]]
    assert torch.equal(unpack_e2m1(pack_e2m1(codes)), codes)
    assert torch.equal(unpack_e2m1(pack_e2m1(codes).view(torch.int8)), codes)


def test_mxfp8_worked_number() -> None:
    q = mxfp8(bf(vec(0.1, -3, 448, 500, size=32)))
    assert q.scales.tolist() == [128]
    assert mxfp8_value(q)[:4].tolist() == [0.1015625, -3.0, 448.0, 512.0]


def test_fp4_e4m3_worked_number() -> None:
    q = fp4_e4m3(bf(vec(0.3, -1.1, 2.7, 0.05, size=16)))
    assert e4m3_decode(q.scales).tolist() == [0.4375]
    assert fp4_e4m3_value(q)[:4].tolist() == [0.21875, -1.3125, 2.625, 0.0]


def test_fp4_e4m3_multiplies_by_the_fp32_reciprocal() -> None:
    q = fp4_e4m3(vec(11.25, 2.34375, 4.6875, 9.375, -2.34375, -4.6875, -9.375, size=16))
    assert e4m3_decode(q.scales).tolist() == [1.875]
    # Exact division would give 1, 2, 4 (the wrong side of three ties: 1.25, 2.5 and 5).
    assert e2m1_decode(q.codes)[:7].tolist() == [6.0, 1.5, 3.0, 6.0, -1.5, -3.0, -6.0]


def test_fp4_e4m3_scale_limits() -> None:
    tiny = fp4_e4m3(vec(2.0**-20, size=16))
    assert tiny.scales.tolist() == [1]
    huge = fp4_e4m3(vec(1e6, -1e6, size=16))
    assert huge.scales.tolist() == [0x7E] and e2m1_decode(huge.codes)[:2].tolist() == [6.0, -6.0]


def test_mxfp4_worked_number() -> None:
    q = mxfp4(bf(vec(0.3, -1.1, 2.7, 0.05, size=32)))
    assert e8m0_decode(q.scales).tolist() == [0.5]
    assert mxfp4_value(q)[:4].tolist() == [0.25, -1.0, 3.0, 0.0]


def test_zero_groups_have_the_floor_scale() -> None:
    zero = vec(size=32)
    assert mxfp8(zero).scales.tolist() == [int(math.log2(2.0**-22)) + 127]
    assert mxfp4(zero).scales.tolist() == [1]
    assert fp4_e4m3(zero).scales.tolist() == [1, 1]
    for q in (mxfp8(zero), mxfp4(zero), fp4_e4m3(zero)):
        assert not q.codes.any()


def test_kv_dequantisation_is_lossless_in_bf16() -> None:
    x = bf(randn(1, 50, 64) * randn(2, 50, 1).exp())
    for value in (fp4_e4m3_value(fp4_e4m3(x)), mxfp4_value(mxfp4(x)), mxfp8_value(mxfp8(x))):
        assert torch.equal(bf(value), value)


def test_group_size_must_divide() -> None:
    with pytest.raises(ValueError, match="multiple"):
        mxfp8(vec(size=33))


def test_wfp8_blocks() -> None:
    w = torch.ones((40, 70), dtype=torch.float8_e4m3fn)
    scale = torch.tensor([[127, 128, 129], [130, 131, 132]], dtype=torch.uint8)
    value = wfp8_value(w, scale.view(torch.float8_e8m0fnu))
    assert value[[0, 0, 0, 32, 39, 31], [31, 32, 64, 0, 69, 63]].tolist() == [1.0, 2.0, 4.0, 8.0, 32.0, 2.0]
    x = randn(3, 40, 70)
    q = wfp8(x)
    assert q.codes.shape == (40, 70) and q.scales.shape == (2, 3)
    assert (wfp8_value(q.codes, q.scales) - x).abs().max() < 0.07 * x.abs().max()


# ---- §1.2, §1.3


def test_rmsnorm_zero_row_and_single_rounding() -> None:
    w = vec(1.0, 3.0)
    assert rmsnorm(torch.zeros((1, 2), dtype=F64), w, 1e-20).tolist() == [[0.0, 0.0]]
    x = torch.tensor([[1.0, 2.0]], dtype=F64)
    exact = [1.0 / math.sqrt(2.5), 6.0 / math.sqrt(2.5)]
    assert rmsnorm(x, w, 1e-20).tolist() == [bf(vec(*exact)).tolist()]


def test_sinkhorn_worked_numbers() -> None:
    a = torch.tensor([[2, 0, -1, 0.5], [0, 1, 0, 0], [-1, 0.5, 2, 0], [0, 0, 0, 1]], dtype=F64)
    first = [
        [0.6484, 0.1062, 0.0323, 0.1751],
        [0.1597, 0.5254, 0.1597, 0.1933],
        [0.0323, 0.1751, 0.6484, 0.1062],
        [0.1597, 0.1933, 0.1597, 0.5254],
    ]
    last = [
        [0.6668, 0.1133, 0.0332, 0.1867],
        [0.1500, 0.5117, 0.1500, 0.1883],
        [0.0332, 0.1867, 0.6668, 0.1133],
        [0.1500, 0.1883, 0.1500, 0.5117],
    ]
    assert torch.allclose(sinkhorn(a, 1, 1e-6), torch.tensor(first, dtype=F64), atol=5.1e-5, rtol=0)
    result = sinkhorn(a, 20, 1e-6)
    assert torch.allclose(result, torch.tensor(last, dtype=F64), atol=5.1e-5, rtol=0)
    assert (result.sum(0) - 1).abs().max() < 1e-5


def test_hc_mix_with_initial_values() -> None:
    x = bf(randn(4, 3, 4, 32))
    mix = hc_mix(x, torch.zeros((24, 128), dtype=F64), vec(1, 1, 1), hc_base(2, 4).to(F64), 1e-20, 1e-6, 20)
    s = 1 / (1 + math.exp(-3.0))
    expected = torch.full((4,), 1 - s, dtype=F64)
    expected[2] = s
    assert torch.allclose(mix.pre, (expected + 1e-6).expand(3, 4), atol=1e-15)
    assert torch.equal(mix.post, torch.ones((3, 4), dtype=F64))


def test_hc_mix_layout_and_post_contraction() -> None:
    m, d = 2, 3
    x = torch.arange(1, 7, dtype=F64).reshape(1, m, d)
    fn = torch.zeros((m * (m + 2), m * d), dtype=F64)
    fn[0, 1 * d + 2] = 1.0  # pre_0 reads stream 1, channel 2
    rho = 1 / math.sqrt(sum(i * i for i in range(1, 7)) / 6)
    mix = hc_mix(x, fn, vec(2, 1, 1), torch.zeros(8, dtype=F64), 1e-20, 1e-6, 20)
    assert math.isclose(mix.pre[0, 0], 1 / (1 + math.exp(-2 * 6 * rho)) + 1e-6)
    comb = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]], dtype=F64)  # C[0, 1] = 1: new stream 1 takes old stream 0
    out = hc_post(x, torch.zeros((1, d), dtype=F64), torch.zeros((1, m), dtype=F64), comb)
    assert out.tolist() == [[[0.0] * 3, [1.0, 2.0, 3.0]]]


# ---- §2.2


def test_yarn_full_size() -> None:
    scaling = {"factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536}
    assert yarn_range(160000.0, 64, scaling) == (15.0, 25.0)
    w = frequencies(160000.0, 64, scaling)
    expected = {
        0: 1.0,
        15: 3.63553858e-3,
        16: 2.265625e-3,
        20: 2.96977778e-4,
        24: 1.953125e-5,
        25: 5.37231267e-6,
        31: 5.68052904e-7,
    }
    for i, value in expected.items():
        assert math.isclose(float(w[i]), value, rel_tol=5e-9)


def test_yarn_tiny_and_plain_layers() -> None:
    dims = Dims.parse(tiny_config())
    assert dims.rope_scaling is not None
    assert yarn_range(160000.0, 32, dims.rope_scaling) == (2.0, 7.0)
    assert torch.equal(layer_frequencies(dims, 0), frequencies(10000.0, 32, None))
    unscaled = Dims.parse(tiny_config(rope_scaling=None))
    assert torch.equal(layer_frequencies(unscaled, 2), frequencies(160000.0, 32, None))
    equal = {"factor": 4, "beta_fast": 1, "beta_slow": 1, "original_max_position_embeddings": 6}
    lo, hi = yarn_range(160000.0, 32, equal)
    assert (lo, hi) == (0.0, 0.001)


def test_rotate_pairs_interleaved_and_conjugate() -> None:
    x = torch.tensor([[9.0, 1.0, 0.0, 0.0, 2.0]] * 2, dtype=F64)
    freq = vec(0.5, 0.25)
    out = rotate(x, torch.tensor([0, 3]), freq)
    assert out[0].tolist() == x[0].tolist()
    expected = vec(9.0, math.cos(1.5), math.sin(1.5), -2 * math.sin(0.75), 2 * math.cos(0.75))
    assert torch.equal(out[1], bf(expected))
    back = rotate(out, torch.tensor([0, 3]), freq, conjugate=True)
    assert (back - x).abs().max() < 0.02
    heads = bf(randn(6, 2, 3, 5))
    per_head = torch.stack([rotate(heads[:, h], torch.tensor([4, 7]), freq) for h in range(3)], dim=1)
    assert torch.equal(rotate(heads, torch.tensor([4, 7]), freq), per_head)


# ---- §2.3 to §2.9


def test_pool_is_a_softmax_per_channel() -> None:
    latent = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]], dtype=F64)
    even = torch.zeros((1, 2, 2), dtype=F64)
    assert pool(latent, even).tolist() == [[2.0, 4.0]]
    even[0, 1, 1] = 1000.0
    assert pool(latent, even).tolist() == [[2.0, 6.0]]
    assert compress_ratio1(torch.ones((1, 2), dtype=F64), torch.ones((3, 2), dtype=F64)).tolist() == [[2.0] * 3]


def test_index_scores_clamp_each_head() -> None:
    q = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], dtype=F64)
    keys = torch.tensor([[2.0, 5.0], [-3.0, 5.0]], dtype=F64)
    assert index_scores(q, torch.tensor([[10.0, -1.0]], dtype=F64), keys).tolist() == [[20.0, -3.0]]


def test_top_k_ties_lengths_and_signed_zero() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, -0.0, 0.0, 9.0]] * 4, dtype=F64)
    lengths = torch.tensor([0, 2, 5, 6])
    assert top_k(scores, lengths, 3).tolist() == [[-1, -1, -1], [0, 1, -1], [0, 1, 2], [1, 2, 5]]
    flat = torch.tensor([[-0.0, 0.0, -0.0, 0.0]], dtype=F64)
    assert top_k(flat, torch.tensor([4]), 2).tolist() == [[0, 1]]
    assert top_k(flat, torch.tensor([4]), 6).tolist() == [[0, 1, 2, 3, -1, -1]]
    assert top_k(torch.zeros((2, 0), dtype=F64), torch.tensor([0, 0]), 2).tolist() == [[-1, -1]] * 2


def test_candidate_blocks() -> None:
    scores = torch.tensor([[5.0, 1.0, 7.0, 0.0, 2.0, 9.0, -4.0, 100.0]] * 4, dtype=F64)
    # Blocks of 2: maxima 5, 7, 9, ...; the newest one (possibly partial) is always kept, then the largest.
    cand = candidate_blocks(scores, torch.tensor([0, 1, 5, 7]), 2, 2)
    assert cand.tolist() == [[-1, -1], [0, -1], [1, 2], [2, 3]]
    mask = candidate_mask(cand, 8, 2)
    assert mask[2].tolist() == [False, False, True, True, True, True, False, False]
    assert not mask[0].any()
    ties = candidate_blocks(torch.zeros((1, 8), dtype=F64), torch.tensor([8]), 2, 3)
    assert ties.tolist() == [[0, 1, 3]]
    infinite = torch.tensor([[math.inf, 0.0, math.inf, 0.0, 1.0]], dtype=F64)
    assert candidate_blocks(infinite, torch.tensor([5]), 2, 2).tolist() == [[0, 2]]
    # With nb <= N_c nothing is restricted.
    x = randn(7, 1, 31)
    blocks = candidate_blocks(x, torch.tensor([31]), 8, 4)
    assert bool(candidate_mask(blocks, 31, 8).all())


def test_sparse_attention_against_a_plain_loop() -> None:
    d, heads, window = 4, 2, 3
    q, keys, main, sink = bf(randn(8, 5, heads, d)), bf(randn(9, 5, d)), bf(randn(10, 4, d)), vec(0.3, -1.0)
    topk = torch.tensor([[-1, -1], [0, -1], [0, 1], [1, 3], [2, 3]])
    o = sparse_attention(q, keys, torch.arange(5), window, main, topk, sink)
    for t in range(5):
        rows = [keys[p] for p in range(max(0, t - window + 1), t + 1)] + [main[j] for j in topk[t].tolist() if j >= 0]
        for h in range(heads):
            e = [math.exp(d**-0.5 * float(q[t, h] @ k)) for k in rows]
            total = sum(e) + math.exp(float(sink[h]))
            expected = torch.stack([w * k for w, k in zip(e, rows, strict=True)]).sum(0) / total
            assert torch.allclose(o[t, h], expected, rtol=2**-8, atol=1e-12)
            assert torch.equal(bf(o[t, h]), o[t, h])


def test_sparse_attention_without_keys_is_zero() -> None:
    q = bf(randn(11, 1, 2, 4))
    o = sparse_attention(q, bf(randn(12, 1, 4)), torch.tensor([-1]), 2, torch.zeros((0, 4), dtype=F64), None, vec(0, 0))
    assert not o.any()


# ---- §3


def test_router_worked_number() -> None:
    r = route_logits(torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=F64), vec(0, 1.5, 0, -1), 2, 1.5)
    assert torch.allclose(r.score, torch.tensor([[1.1460, 0.3563, 0.9870, 1.7460]], dtype=F64), atol=5.1e-5, rtol=0)
    assert r.ids.tolist() == [[1, 0]]
    assert torch.allclose(r.weights, torch.tensor([[0.3557, 1.1443]], dtype=F64), atol=5.1e-5, rtol=0)


def test_router_ties_softplus_and_image_bias() -> None:
    assert route_logits(torch.zeros((1, 4), dtype=F64), vec(0, 0, 0, 0), 3, 1.5).ids.tolist() == [[0, 1, 2]]
    assert softplus(vec(20.5, 0.0, 1000.0, -800.0)).tolist() == [20.5, math.log1p(1.0), 1000.0, 0.0]
    x, gate_w = torch.zeros((2, 3), dtype=F64), torch.zeros((4, 3), dtype=F64)
    r = route(x, gate_w, vec(1, 0, 0, 0), vec(0, 0, 0, 1), torch.tensor([False, True]), 1, 1.5)
    assert r.ids.tolist() == [[0], [3]]


def test_expert_clamps_and_weight_inside() -> None:
    x = torch.zeros((1, 32), dtype=F64)
    x[0, 0] = 1.0
    w1, w3 = torch.zeros((32, 32), dtype=F64), torch.zeros((32, 32), dtype=F64)
    w1[:3, 0], w3[:3, 0] = vec(20.0, -30.0, 1.0), vec(-20.0, 4.0, 15.0)
    r = expert(x, w1, w3, torch.eye(32, dtype=F64), vec(0.5), 10.0)
    silu = [10 / (1 + math.exp(-10.0)), -30 / (1 + math.exp(30.0)), 1 / (1 + math.exp(-1.0))]
    expected = vec(silu[0] * -10 * 0.5, silu[1] * 4 * 0.5, silu[2] * 10 * 0.5)
    assert torch.allclose(r.hh[0, :3], expected, rtol=1e-14, atol=0)
    assert torch.equal(r.y, bf(mxfp8_value(r.hhq)))


# ---- §4

FULL_PRIMES = {
    1: [
        [57, 79, 81, 97, 121, 129, 133, 183],
        [189, 207, 211, 253, 277, 289, 307, 321],
        [339, 381, 393, 399, 403, 409, 447, 463],
    ],
    14: [
        [477, 487, 499, 507, 511, 573, 609, 627],
        [667, 669, 693, 697, 711, 729, 759, 769],
        [781, 799, 813, 819, 841, 877, 879, 889],
    ],
}
FULL_FACTORS = {
    1: [76632096046245, 4839876093313, 35959672319349, 73987337458391],
    14: [67716810739261, 51510806800915, 30921347202721, 82619226485591],
}
FULL_ROWS = {
    1: "10250667 16051853 42761335 48437066 64953759 91793642 97213675 124972355 "
    "130904169 147647512 174479789 176217609 193213014 209711443 226459680 248375762 "
    "266647502 284737834 292200621 319934002 327756510 339491046 365830131 381142068",
    14: "13402985 31185432 33324312 50751051 67464774 94528317 100959033 120176944 "
    "128818944 152218109 160998468 191796781 195587060 214176773 229162919 250160180 "
    "260141385 283855289 300526134 319101158 333879786 349356468 360884307 370522085",
}


def test_engram_full_size() -> None:
    primes = table_primes([1, 14], 3, 8, 16_000_000)
    assert ((2**63 - 1) // 99092) // 2 == 46_539_438_283_891
    for layer, total in ((1, 384_006_168), (14, 384_016_682)):
        assert [[p - 16_000_000 for p in row] for row in primes[layer]] == FULL_PRIMES[layer]
        factors = multipliers(layer, 99092, 4)
        assert factors == FULL_FACTORS[layer]
        layer_hash = LayerHash(primes[layer], factors)
        assert layer_hash.table_rows == total
        assert layer_hash.rows([10, 20, 30, 40]) == [int(v) for v in FULL_ROWS[layer].split()]


def test_engram_tiny() -> None:
    dims = Dims.parse(tiny_config())
    hashes = layer_hashes(dims, 256)
    assert hashes[1].primes == [[101, 103], [107, 109], [113, 127]]
    assert hashes[4].primes == [[131, 137], [139, 149], [151, 157]]
    assert hashes[1].factors == [29662608052400909, 1873410163432121, 13919202536988139, 28638879857136817]
    assert hashes[4].factors == [31841131192811251, 1950019090429101, 28509641033320619, 7337012813361983]
    assert [hashes[layer].table_rows for layer in (1, 4)] == [660, 864]
    for layer, expected in ((1, [29, 134, 308, 385, 500, 592]), (4, [45, 186, 385, 497, 618, 736])):
        rows = hash_rows([5, 7, 300], 0, tiny_token_map(), hashes[layer], dims)
        assert rows[2].tolist() == expected
        assert torch.equal(hash_rows([5, 7, 300], 2, tiny_token_map(), hashes[layer], dims), rows[2:])


def test_ngram_edges() -> None:
    table = tiny_token_map()

    def at(history: list[int], position: int) -> list[int] | None:
        return ngram(history, position, table, 4, table[2])

    assert at([5, 7, 300], 0) == [2, 1, 1, 1]
    assert at([5, 7, 300], 2) == [150, 3, 2, 1]
    assert at([5, 7, 300, 9, 11], 4) == [5, 4, 150, 3]
    # From the first image-type (or absent) token on, walking back, everything is pad.
    assert at([5, 514, 300, 9], 3) == [4, 150, 1, 1]
    assert at([5, 6, 300, -1, 9], 4) == [4, 1, 1, 1]
    assert at([5, 512, 9], 2) == [4, 1, 1, 1]
    for sentinel in (-1, 512, 516, 10**9):
        assert at([5, sentinel], 1) is None
    # BOS and EOS do not stop it.
    assert at([20, 1, 0, 30], 3) == [15, 0, 0, 10]


def test_engram_lookup_and_gate() -> None:
    codes = torch.full((3, 32), 0x38, dtype=torch.uint8)  # 1.0
    scales = torch.tensor([[127], [128], [126]], dtype=torch.uint8)
    e = lookup(torch.tensor([[1, 2], [-1, -1]]), codes, scales)
    assert e[0].tolist() == [2.0] * 32 + [0.5] * 32 and not e[1].any()
    m, d = 2, 4
    x = torch.zeros((1, m, d), dtype=F64)
    x[0, 1] = 1.0
    kv = torch.ones((1, m + 1, d), dtype=F64)
    kv[0, 2] = 8.0
    ones = torch.ones((m, d), dtype=F64)
    result = gate(x, kv, ones, ones, 1e-20)
    assert float(result.g[0, 0]) == 0.5  # sign(0) = 0
    g1 = 1 / (1 + math.exp(-math.sqrt(2.0)))  # dot = 4^-0.5 * 4 = 2
    assert math.isclose(result.g[0, 1], g1)
    assert result.x[0].tolist() == [[4.0] * 4, bf(vec(1 + g1 * 8)).tolist() * 4]
    small = gate(x, kv * vec(1, -1, 1).reshape(1, 3, 1), ones, ones * 1e-9, 1e-20)
    assert math.isclose(small.g[0, 1], 1 / (1 + math.exp(1e-3)))  # floor 1e-6, negative sign


def test_token_keys() -> None:
    assert normalise("  \tHéLLo \n\r  Wörld ") == "hello world"
    assert normalise(" ") == normalise("\n\n") == " "
    assert normalise("ﬁ①") == "fi1"
    assert token_key("\u0301", "raw") == "\u0301"  # normalises to nothing: the text itself
    assert token_key("a\ufffd", "Ġraw") == "Ġraw"


def test_map_from_tokenizer(tmp_path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    vocab = {"Ġhello": 0, "Hello": 1, "Ġ": 2, "ĠĠ": 3, "hello": 4, "\u00c3": 5, "Ċ": 6}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<EOS>", special=True)])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    # Ġhello, Hello and hello share a key; so do one space, two spaces and a newline; a lone byte keeps its raw string.
    assert map_from_tokenizer(path, 10) == [0, 0, 1, 1, 0, 2, 1, 3, -1, -1]
    assert read_token_map(tmp_path, 10) == [0, 0, 1, 1, 0, 2, 1, 3, -1, -1]


# ---- §1.4, §10


def test_source_maps() -> None:
    assert [source_of([2, 4, 5], layer) for layer in range(9)] == [None, None, 2, 2, 4, 5, 5, 5, 5]
    dims = Dims.parse(tiny_config())
    assert dims.index_k_sources == dims.kv_sources == (2, 4, 5)
    assert [layer for layer in range(9) if dims.is_candidate_consumer(layer)] == [7]
    assert Dims.parse(tiny_config()["text_config"]) == dims
    with pytest.raises(ValueError, match="hc_shifted"):
        Dims.parse(tiny_config(hc_shifted=False))


def test_checkpoint_round_trip(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    write_checkpoint(tmp_path, tiny_config(), tensors, tiny_token_map(), shards=3, prefix="model.")
    config, loaded = read_checkpoint(tmp_path)
    assert config == tiny_config() and loaded.keys() == tensors.keys()
    assert all(loaded[n].dtype == t.dtype for n, t in tensors.items())
    token_map = read_token_map(tmp_path, 512)
    assert token_map == tiny_token_map()
    a = Oracle(config, loaded, token_map)
    b = Oracle(tiny_config(), tensors, tiny_token_map())
    ids = prompt(9)
    assert torch.equal(a.forward(a.new_state(), ids), b.forward(b.new_state(), ids))


def test_read_token_map_absent_or_short(tmp_path: Path) -> None:
    assert read_token_map(tmp_path, 512) is None
    (tmp_path / "engram_token_map.json").write_text("[0, 1]", encoding="utf-8")
    with pytest.raises(ValueError, match="512"):
        read_token_map(tmp_path, 512)


def test_engram_needs_a_token_map(tensors: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="token map"):
        Oracle(tiny_config(), tensors, None)


# ---- whole model


def test_chunks_and_single_tokens_agree_bitwise(model: Oracle, traced: tuple[Tensor, dict[str, Tensor]]) -> None:
    logits = traced[0]
    assert logits.dtype == torch.float32 and logits.shape == (100, 512) and bool(logits.isfinite().all())
    ids = prompt(100)
    assert torch.equal(run_chunks(model, ids, CHUNKS), logits)
    assert torch.equal(run_chunks(model, ids, (1,) * 100), logits)


def test_six_row_steps_with_rollback_agree_bitwise(model: Oracle, traced: tuple[Tensor, dict[str, Tensor]]) -> None:
    ids, logits = prompt(100), traced[0]
    state = model.new_state()
    model.forward(state, ids[:77])
    for kept in (1, 6, 3, 2, 5, 4):
        n = len(state)
        right = ids[n : n + kept]
        wrong = [(i + 17) % 512 for i in ids[n + kept : n + 6]]
        step = model.forward(state, right + wrong)
        assert torch.equal(step[:kept], logits[n : n + kept])
        state = state.truncated(n + kept)


def test_fork_is_independent(model: Oracle) -> None:
    state = model.new_state()
    model.forward(state, prompt(11))
    fork: State = state.clone()
    a = model.forward(state, [3, 4])
    assert len(fork) == 11
    assert torch.equal(model.forward(fork, [3, 4]), a)
    with pytest.raises(ValueError, match="cannot keep"):
        fork.truncated(14)


def test_empty_chunk(model: Oracle) -> None:
    state = model.new_state()
    assert model.forward(state, []).shape == (0, 512) and len(state) == 0


def test_invariants_of_the_mixes(traced: tuple[Tensor, dict[str, Tensor]]) -> None:
    trace = traced[1]
    for layer, sub in itertools.product(range(9), ("attn", "ffn")):
        assert (trace[f"layers.{layer}.{sub}_C"].sum(1) - 1).abs().max() < 1e-5
        before = f"layers.{layer}.attn" if sub == "ffn" else f"layers.{layer - 1}.ffn"
        if f"{before}_pre" in trace:
            assert torch.equal(trace[f"layers.{layer}.{sub}_pre_in"], trace[f"{before}_pre"])
    assert torch.equal(trace["layers.0.attn_h"], trace["embed"])


def test_invariants_of_the_selection(traced: tuple[Tensor, dict[str, Tensor]]) -> None:
    trace = traced[1]
    ratios, sources = [0, 0, 2, 2, 2, 1, 1, 1, 1], {2: 2, 3: 2, 4: 4, 5: 5, 6: 5, 7: 7, 8: 7}
    cand = trace["layers.5.cand"]
    for layer, source in sources.items():
        topk = trace[f"layers.{layer}.topk"]
        assert torch.equal(topk, trace[f"layers.{source}.topk"])
        for t in range(100):
            chosen = [j for j in topk[t].tolist() if j >= 0]
            visible = (t + 1) // ratios[layer]
            assert len(chosen) == min(8, visible) and topk[t].tolist()[len(chosen) :] == [-1] * (8 - len(chosen))
            assert chosen == sorted(set(chosen)) and all(j < visible for j in chosen)
            if layer == source:
                scores = trace[f"layers.{layer}.scores"][t]
                assert int((scores > -math.inf).sum()) == (min(visible, 64 - (-visible) % 8) if layer == 7 else visible)
                rest = [float(s) for j, s in enumerate(scores) if j not in chosen]
                assert not chosen or not rest or min(float(scores[j]) for j in chosen) >= max(rest)
    for t in range(100):
        blocks = [b for b in cand[t].tolist() if b >= 0]
        assert blocks == sorted(set(blocks)) and len(blocks) == min(8, t // 8 + 1) and blocks[-1] == t // 8
        inside = trace["layers.7.topk"][t]
        assert all(j // 8 in blocks for j in inside.tolist() if j >= 0)
    assert any(cand[t, 0] > 0 or cand[t, -1] - cand[t, 0] > 7 for t in range(64, 100))  # the restriction is active


def test_trace_values_are_consistent(traced: tuple[Tensor, dict[str, Tensor]]) -> None:
    trace = traced[1]
    for layer in range(9):
        key = f"layers.{layer}."
        assert torch.equal(trace[key + "X_in"], trace[f"layers.{layer - 1}.X_out"] if layer else trace[key + "X_in"])
        for name in ("X_out", "q", "kv", "attn_o", "attn_o_rot", "u", "attn_y", "ffn_y", "expert_a", "shared_y"):
            assert torch.equal(bf(trace[key + name]), trace[key + name]), name
        total = trace[key + "shared_y"] + trace[key + "expert_y"][:, 0] + trace[key + "expert_y"][:, 1]
        assert torch.equal(bf(total), trace[key + "ffn_y"])
        assert torch.allclose(trace[key + "router_w"].sum(1), torch.full((100,), 1.5, dtype=F64))
    assert trace["layers.2.c_lat"].shape == (100, 64) and trace["layers.2.main_codes"].shape == (50, 64)
    assert trace["layers.2.main_scales"].shape == (50, 4) and trace["layers.5.index_scales"].shape == (100, 2)
    assert {n for n in trace if n.endswith("X_engram")} == {"layers.1.X_engram", "layers.4.X_engram"}
    assert {n for n in trace if n.endswith("feature")} == {f"layers.{layer}.feature" for layer in (6, 7, 8)}


def test_image_type_rows(model: Oracle) -> None:
    trace: dict[str, Tensor] = {}
    model.forward(model.new_state(), [5, 513, 7, -1], trace)
    assert not trace["embed"][1].any() and not trace["embed"][3].any()
    for layer in (1, 4):
        before, after = trace[f"layers.{layer}.X_in"], trace[f"layers.{layer}.X_engram"]
        assert torch.equal(before[[1, 3]], after[[1, 3]])
        assert not torch.equal(before[[0, 2]], after[[0, 2]])
        assert (trace[f"layers.{layer}.engram_rows"][[1, 3]] == -1).all()


def test_options(tensors: dict[str, Tensor]) -> None:
    ids = prompt(80)

    def logits(trace: dict[str, Tensor] | None = None, **options: object) -> Tensor:
        model = Oracle(tiny_config(**options), tensors, tiny_token_map())
        return model.forward(model.new_state(), ids, trace)

    base = logits()
    trace: dict[str, Tensor] = {}
    assert torch.equal(logits(index_k_source_layer_ids=[2, 4, 5]), base)
    wide = logits(trace, use_fp4_sparse_kv=False)
    assert trace["layers.2.main_scales"].shape == (40, 2) and not torch.equal(wide, base)
    free = logits(candidate_source_layer_id=None)
    assert torch.equal(free[:64], base[:64]) and not torch.equal(free, base)
    assert torch.equal(logits(candidate_topk_blocks=10), free)


def test_random_tensors_repeat() -> None:
    a, b = random_tensors(tiny_config(), 3), random_tensors(tiny_config(), 3)
    # §12.2: 861 without vision, less 2 draft blocks of 30 + 24 tensors, 7 draft extras and 3 image vectors.
    assert a.keys() == b.keys() and len(a) == 743
    assert all(torch.equal(a[n].view(torch.uint8), b[n].view(torch.uint8)) for n in a)
    assert not torch.equal(a["head.weight"], random_tensors(tiny_config(), 4)["head.weight"])
