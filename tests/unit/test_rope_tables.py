"""Rotary tables (spec §2.2) against the worked numbers and the oracle."""

from __future__ import annotations

import numpy as np

from dinfc.frontend.rope import cos_sin, frequencies, yarn_range
from frontend_support import example_config, example_json
from oracle.config import Dims
from oracle.rope import layer_frequencies


def test_full_size_yarn_numbers_of_appendix_b() -> None:
    c = example_config("v41-flash")
    assert c.rope_scaling is not None
    assert yarn_range(c.compress_rope_theta, 64, c.rope_scaling) == (15.0, 25.0)
    w = frequencies(c, 2)
    expected = {
        0: 1,
        15: 3.63553858e-3,
        16: 2.265625e-3,
        20: 2.96977778e-4,
        24: 1.953125e-5,
        25: 5.37231267e-6,
        31: 5.68052904e-7,
    }
    for i, value in expected.items():
        assert abs(w[i] / value - 1) < 2e-9, i


def test_tiny_range_and_oracle() -> None:
    c = example_config()
    assert c.rope_scaling is not None
    assert yarn_range(c.compress_rope_theta, 32, c.rope_scaling) == (2.0, 7.0)
    for name in ("tiny-test", "v41-flash"):
        dims = Dims.parse(example_json(name))
        for ratio in (0, 1, 2):
            ours, theirs = frequencies(example_config(name), ratio), layer_frequencies(dims, ratio).numpy()
            assert np.max(np.abs(ours / theirs - 1)) < 1e-14


def test_the_table_holds_cosines_then_sines_of_fp64_angles() -> None:
    c = example_config()
    table = cos_sin(c, 1, 100)
    assert table.shape == (100, 32) and table.dtype == np.float64
    assert np.array_equal(table[0], [1.0] * 16 + [0.0] * 16)
    assert np.array_equal(table[99, 16:], np.sin(99.0 * frequencies(c, 1)))
    assert np.array_equal(cos_sin(c, 1, 50), table[:50])  # a longer table does not change its beginning
