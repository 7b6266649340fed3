"""The codecs that write synthetic weights, against the oracle's and the worked numbers (spec §0.4, Appendix B)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dinfc.frontend import codecs
from oracle import codecs as oracle


def _values(seed: int, rows: int = 64, width: int = 128) -> codecs.F32:
    """Rows of very different size, with zeros, signs of zero and values next to powers of two."""
    generator = np.random.default_rng(seed)
    scale = np.exp2(generator.integers(-60, 60, (rows, 1))).astype(np.float32)
    x = codecs.round_bf16((generator.standard_normal((rows, width)) * scale).astype(np.float32))
    x[0] = 0
    x[1, ::2] = -0.0
    x[2] = np.exp2(generator.integers(-20, 20, width)).astype(np.float32)
    return x


@pytest.mark.parametrize("seed", range(4))
def test_codes_and_scales_equal_the_oracles(seed: int) -> None:
    x = _values(seed)
    t = torch.from_numpy(x).double()
    for mine, theirs in ((codecs.encode_mxfp8(x), oracle.mxfp8(t)), (codecs.encode_wfp8(x), oracle.wfp8(t))):
        assert np.array_equal(mine[0], oracle.as_bytes(theirs.codes).numpy())
        assert np.array_equal(mine[1], oracle.as_bytes(theirs.scales).numpy())
    packed, scales = codecs.encode_mxfp4(x)
    expected = oracle.mxfp4(t)
    assert np.array_equal(packed, oracle.as_bytes(oracle.pack_e2m1(expected.codes)).numpy())
    assert np.array_equal(scales, oracle.as_bytes(expected.scales).numpy())


def test_e2m1_midpoints_round_to_the_even_mantissa() -> None:
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 100], np.float32)
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    assert grid[codecs.e2m1_code(x)].tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 6]
    assert (codecs.e2m1_code(-x) == codecs.e2m1_code(x) + 8).all()
    below, above = np.nextafter(x[:7], np.float32(0)), np.nextafter(x[:7], np.float32(9))
    assert grid[codecs.e2m1_code(below)].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4]
    assert grid[codecs.e2m1_code(above)].tolist() == [0.5, 1, 1.5, 2, 3, 4, 6]


def test_every_e4m3_value_and_midpoint_equals_torchs_cast() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = codes.view(torch.float8_e4m3fn).float()
    finite = values[torch.isfinite(values)]
    middle = (finite.sort().values[1:] + finite.sort().values[:-1]) / 2
    x = torch.cat(
        [finite, middle, torch.nextafter(middle, torch.tensor(0.0)), torch.nextafter(middle, torch.tensor(1e3))]
    )
    x = x[x.abs() <= 448]
    assert np.array_equal(codecs.e4m3_byte(x.numpy()), x.to(torch.float8_e4m3fn).view(torch.uint8).numpy())


def test_scale_of_a_group_is_the_smallest_power_of_two_that_fits() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = [0.1015625, -3, 448, 500]
    codes, scales = codecs.encode_mxfp8(x)
    assert scales.tolist() == [[128]]  # 2^1
    value = torch.from_numpy(codes).view(torch.float8_e4m3fn).float() * 2
    assert value[0, :4].tolist() == [0.1015625, -3, 448, 512]
    assert codecs.encode_mxfp8(np.zeros((1, 32), np.float32))[1].tolist() == [[105]]  # P2(1e-4 / 448) = 2^-22


def test_bf16_rounds_to_nearest_even() -> None:
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    assert np.array_equal(codecs.bf16_bits(x).view(np.int16), torch.from_numpy(x).bfloat16().view(torch.int16).numpy())


def test_partial_blocks_of_weights_use_only_what_is_there() -> None:
    x = _values(9, rows=40, width=32)
    codes, scales = codecs.encode_wfp8(x)
    assert codes.shape == (40, 32) and scales.shape == (2, 1)
    alone = codecs.encode_wfp8(np.ascontiguousarray(x[32:]))
    assert np.array_equal(codes[32:], alone[0]) and np.array_equal(scales[1:], alone[1])
