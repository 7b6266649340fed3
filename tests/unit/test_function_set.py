"""The function set of kernels in fp32: codecs equal the reference, transcendentals stay within their ulps."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dinfc.ir import codecs
from support.fp32 import call

F32 = NDArray[np.float32]


def numbers() -> F32:
    """Every 4099th fp32 bit pattern, infinities and NaNs among them, and the neighbours of small dyadic numbers."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    grid = np.arange(-4096, 4097, dtype=np.float32) / np.float32(256)
    low, high = np.nextafter(grid, np.float32(-1e9)), np.nextafter(grid, np.float32(1e9))
    return np.concatenate([bits.view(np.float32), grid, low, high, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])])


def reference(fn: Callable[[torch.Tensor], torch.Tensor], x: F32) -> NDArray[np.generic]:
    return fn(torch.from_numpy(x.astype(np.float64))).numpy()


@pytest.mark.parametrize("name", ["e2m1_encode", "e4m3_encode"])
def test_encoders_give_the_codes_of_the_reference(name: str) -> None:
    x = numbers()
    x = x[~np.isnan(x)]
    assert np.array_equal(call(name, x), reference(getattr(codecs, name), x))


def test_nan_keeps_its_place() -> None:
    nan = np.float32([np.nan])
    assert call("e4m3_encode", nan).tolist() == [0x7F]
    assert call("e2m1_encode", nan).tolist() == [7]  # saturates at 6, spec 0.4
    assert call("e8m0_encode", np.float32([np.nan, np.inf])).tolist() == [255, 255]


@pytest.mark.parametrize("name", ["e2m1_decode", "e4m3_decode", "e8m0_decode"])
def test_decoders_give_the_values_of_the_reference(name: str) -> None:
    codes = np.arange(16 if name == "e2m1_decode" else 256, dtype=np.uint8)
    wanted = getattr(codecs, name)(torch.from_numpy(codes)).numpy()
    got = call(name, codes)
    assert np.array_equal(got, wanted.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(wanted))


def test_powers_of_two_and_their_bytes() -> None:
    x = numbers()
    x = x[(x > 0) & (x <= np.float32(2.0**127))]
    power = call("pow2_ceil", x)
    assert np.array_equal(power, reference(codecs.pow2_ceil, x).astype(np.float32))
    assert np.array_equal(call("e8m0_encode", power), reference(codecs.e8m0_encode, power))


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    x = numbers()
    finite = x[np.isfinite(x)]
    got = call("round_bf16", finite)
    assert np.array_equal(got, torch.from_numpy(finite).bfloat16().float().numpy())


def ulps(got: F32, exact: NDArray[np.float64]) -> float:
    """The largest distance from the exact value, in units of the last fp32 place at that value."""
    rounded = exact.astype(np.float32)
    unit = np.spacing(np.abs(rounded)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / unit))


# function -> (exact function, arguments, ulps allowed: the table of ir/functions.py, + 1/2 for the rounding of "exact")
ACCURACY: dict[str, tuple[Callable[..., NDArray[np.float64]], tuple[float, float], float]] = {
    "exp": (np.exp, (-87.0, 88.0), 1.0),
    "log": (np.log, (1e-30, 1e30), 1.0),
    "log1p": (np.log1p, (-0.99, 1e6), 2.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-30, 1e30), 1.5),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (-80.0, 80.0), 3.0),
}


@pytest.mark.parametrize("name", ACCURACY)
def test_transcendentals_stay_within_their_ulps(name: str) -> None:
    exact, (low, high), allowed = ACCURACY[name]
    generator = np.random.default_rng(3)
    uniform = generator.uniform(low, high, 50_000)
    small = generator.uniform(-1, 1, 50_000) * 2.0 ** generator.integers(-20, 5, 50_000)
    x = np.concatenate([uniform, small]).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    assert ulps(call(name, x), exact(x.astype(np.float64))) <= allowed


SPECIAL = {
    "exp": ([-np.inf, np.inf, np.nan, -200.0, 200.0, 0.0], [0.0, np.inf, np.nan, 0.0, np.inf, 1.0]),
    "log": ([0.0, -1.0, 1.0, np.inf], [-np.inf, np.nan, 0.0, np.inf]),
    "log1p": ([-1.0, -2.0, 0.0, -0.0], [-np.inf, np.nan, 0.0, -0.0]),
    "rsqrt": ([0.0, np.inf, 4.0], [np.inf, 0.0, 0.5]),
    "sigmoid": ([-np.inf, np.inf, 0.0, -200.0], [0.0, 1.0, 0.5, 0.0]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    arguments, wanted = (np.float32(v) for v in SPECIAL[name])
    got = call(name, arguments)
    assert np.array_equal(got, wanted, equal_nan=True)
    known = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(got[known]), np.signbit(wanted[known]))
