"""Statements of tile IR on the CPU: the fast build computes what a plain reading of the program says, and the checked
build the same bits, whatever the data and whatever lay in memory before."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy
import pytest
from numpy.typing import NDArray

from dinfc.ir.tile.parse import parse_program
from support.cpu_run import run_program
from support.dot_model import from_bf16

Array = NDArray[numpy.generic]
Arrays = dict[str, Array]
F32 = numpy.float32
ODD = numpy.array([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0], F32)


def floats(seed: int, *shape: int, odd: bool = True) -> NDArray[F32]:
    """Random values of many sizes; where `odd`, NaN, infinities, signed zeros and denormals among them."""
    rng = numpy.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(F32)
    if odd:
        at = rng.random(shape) < 0.2
        x[at] = ODD[rng.integers(0, len(ODD), int(at.sum()))]
    return x


def poison(dtype: str, *shape: int) -> Array:
    out = numpy.empty(shape, dtype)
    out.view(numpy.uint8).fill(0xFF)
    return out


@dataclass(frozen=True)
class Case:
    """`text`: body of a kernel with its parameters; `expected` gives the results from the inputs."""

    name: str
    text: str
    inputs: Callable[[], Arrays]
    outputs: Callable[[], Arrays]
    expected: Callable[[Arrays], Mapping[str, Array]]
    scalars: tuple[tuple[str, int], ...] = (("T", 5),)


def lanes_sum(x: NDArray[F32], lanes: int) -> F32:
    """Element i belongs to lane i mod lanes; lanes are folded by halving."""
    lane = numpy.zeros(lanes, F32)
    for i, value in enumerate(x):
        lane[i % lanes] = lane[i % lanes] + value
    while len(lane) > 1:
        half = len(lane) // 2
        lane = lane[:half] + lane[half:]
    return F32(lane[0])


def lanes_max(x: NDArray[F32], lanes: int, start: float) -> F32:
    """As above with `a > b ? a : b`: the second operand wins where one is NaN."""
    lane = numpy.full(lanes, start, F32)
    for i, value in enumerate(x):
        lane[i % lanes] = lane[i % lanes] if lane[i % lanes] > value else value
    while len(lane) > 1:
        half = len(lane) // 2
        lane = numpy.where(lane[:half] > lane[half:], lane[:half], lane[half:])
    return F32(lane[0])


def reduce_case(lanes: int, extent: int) -> Case:
    text = f"""
      param x: f32[T, {extent}] global in
      param y: f32[T, 2] global out
      grid t in T
      reduce s = sum over k in {extent} lanes {lanes} start 0.0 of x[t, k]
      reduce m = max over k in {extent} lanes {lanes} start -inf of x[t, k]
      y[t, 0] = s
      y[t, 1] = m"""

    def expected(a: Arrays) -> Mapping[str, Array]:
        x = a["x"].astype(F32)
        return {"y": numpy.array([[lanes_sum(r, lanes), lanes_max(r, lanes, -numpy.inf)] for r in x], F32)}

    return Case(f"reduce over {extent} in {lanes} lanes", text, lambda: {"x": floats(extent, 5, extent)},
                lambda: {"y": poison("float32", 5, 2)}, expected)


def copied(src: Array, offsets: tuple[int, ...], limits: tuple[int | None, ...], shape: tuple[int, ...],
           rows: Array | None = None) -> Array:
    """The definition of `copy`, element by element; leading source dims stay at their offset."""
    lead = src.ndim - len(shape)
    out = numpy.zeros(shape, src.dtype)
    for at in numpy.ndindex(*shape):
        source = [o + (at[d - lead] if d >= lead else 0) for d, o in enumerate(offsets)]
        if rows is not None:
            source[0] = int(rows[at[0]])
        bound = [src.shape[d] if d == 0 and rows is not None and limit is None else limit
                 for d, limit in enumerate(limits)]
        if all(limit is None or 0 <= i < limit for i, limit in zip(source, bound, strict=True)):
            out[at] = src[tuple(source)]
    return out


def copy_case(name: str, dtype: str, src: str, tile: tuple[int, ...], statement: str, offsets: tuple[int, ...],
              limits: tuple[int | None, ...], shape: tuple[int, ...], rows: list[int] | None = None) -> Case:
    """Copies into a tile, and the tile to the result."""
    dims = ", ".join(map(str, tile))
    loops = "".join(f"for i{d} in {n} serial {{\n" for d, n in enumerate(tile))
    index = ", ".join(f"i{d}" for d in range(len(tile)))
    listed = "" if rows is None else f"param list: i32[{len(rows)}] global in"
    text = f"""
      param x: {dtype}[{src}] global in
      {listed}
      param y: {dtype}[{dims}] global out
      grid one in 1
      alloc tile: {dtype}[{dims}] near
      {statement}
      {loops}
      y[{index}] = tile[{index}]
      {"}" * 0}""" + "\n}" * len(tile)
    stored = {"f32": "float32", "bf16": "uint16", "u8": "uint8"}[dtype]

    def inputs() -> Arrays:
        rng = numpy.random.default_rng(3)
        out: Arrays = {"x": rng.integers(1, 200, shape).astype(stored)}
        return out if rows is None else out | {"list": numpy.array(rows, numpy.int32)}

    return Case(name, text, inputs, lambda: {"y": poison(stored, *tile)},
                lambda a: {"y": copied(a["x"], offsets, limits, tile, a.get("list"))})


def integer_case() -> Case:
    text = """
      param a: i32[T] global in
      param b: i32[T] global in
      param y: i32[T, 8] global out
      param z: i64[T] global out
      param u: u32[T] global out
      param c: u8[T] global out
      grid t in T
      y[t, 0] = idiv(a[t], b[t])
      y[t, 1] = mod(a[t], b[t])
      y[t, 2] = idiv(a[t], 7)
      y[t, 3] = mod(a[t], -7)
      y[t, 4] = shr(a[t], 3)
      y[t, 5] = xor(and(a[t], 255), or(b[t], 16))
      y[t, 6] = select(lor(lt(a[t], b[t]), eq(b[t], 3)), min(a[t], b[t]), max(a[t], b[t]))
      y[t, 7] = abs(neg(a[t]))
      z[t] = mul(i64(a[t]), 1000003:i64)
      u[t] = mul(u32(mod(a[t], 65536)), 2654435761:u32)
      c[t] = add(u8(mod(a[t], 256)), 200:u8)"""

    def expected(arrays: Arrays) -> Mapping[str, Array]:
        a, b = arrays["a"].astype(numpy.int64), arrays["b"].astype(numpy.int64)
        columns = [a // b, a % b, a // 7, a % -7, a >> 3, (a & 255) ^ (b | 16),
                   numpy.where((a < b) | (b == 3), numpy.minimum(a, b), numpy.maximum(a, b)), abs(a)]
        return {"y": numpy.stack(columns, -1).astype(numpy.int32), "z": a * 1000003,
                "u": (a % 65536 * 2654435761 % 2**32).astype(numpy.uint32),
                "c": ((a % 256 + 200) % 256).astype(numpy.uint8)}

    def inputs() -> Arrays:
        a = [0, 1, -1, 7, -7, 8, -8, 2**30, -(2**30), 12345, -12345, 99]
        b = [3, -3, 5, -5, 7, -7, 1, -1, 2, 1000, -1000, 3]
        return {"a": numpy.array(a, numpy.int32), "b": numpy.array(b, numpy.int32)}

    def outputs() -> Arrays:
        return {"y": poison("int32", 12, 8), "z": poison("int64", 12), "u": poison("uint32", 12),
                "c": poison("uint8", 12)}

    return Case("integers are floored and wrap", text, inputs, outputs, expected, (("T", 12),))


def guard_case() -> Case:
    """A vector loop whose guard becomes its end, one under a branch, and one inside a dynamic loop."""
    text = """
      param x: f32[T, 40] global in
      param n: i32[T] global in
      param y: f32[T, 40] global inout
      param z: f32[T, 40] global inout
      grid t in T
      let left: i32 = n[t]
      for j in 40 vector {
        y[t, j] = add(x[t, j], 1.0) where lt(add(3, j), left)
      }
      for i in min(max(left, 0), 40) serial {
        z[t, i] = x[t, i]
      }
      for j in 40 parallel {
        if gt(x[t, j], 0.0) {
          z[t, j] = mul(x[t, j], 2.0)
        }
      }"""

    def expected(a: Arrays) -> Mapping[str, Array]:
        x, n = a["x"].astype(F32), a["n"]
        y, z = floats(8, 6, 40), floats(9, 6, 40)
        for t, j in numpy.ndindex(6, 40):
            if 3 + j < n[t]:
                y[t, j] = x[t, j] + F32(1)
            if j < n[t]:
                z[t, j] = x[t, j]
            if x[t, j] > 0:
                z[t, j] = x[t, j] * F32(2)
        return {"y": y, "z": z}

    return Case("guards", text, lambda: {"x": floats(7, 6, 40), "n": numpy.array([0, 1, 3, 20, 43, -5], numpy.int32)},
                lambda: {"y": floats(8, 6, 40), "z": floats(9, 6, 40)}, expected, (("T", 6),))


def bf16_case() -> Case:
    """Rounding to nearest even; a product of bf16 values is rounded once."""
    text = """
      param x: f32[T, 33] global in
      param y: bf16[T, 33] global out
      param z: bf16[T, 33] global out
      grid t in T
      for j in 33 vector {
        y[t, j] = bf16(x[t, j])
        z[t, j] = mul(bf16(x[t, j]), 3.0:bf16)
      }"""

    def expected(a: Arrays) -> Mapping[str, Array]:
        y = nearest_even(a["x"].astype(F32))
        return {"y": y, "z": nearest_even(from_bf16(y) * F32(3))}

    return Case("bf16", text, lambda: {"x": floats(11, 5, 33, odd=False)},
                lambda: {"y": poison("uint16", 5, 33), "z": poison("uint16", 5, 33)}, expected)


def nearest_even(x: NDArray[F32]) -> Array:
    """The upper halves of finite values, rounded."""
    word = x.view(numpy.uint32).astype(numpy.uint64)
    return ((word + 0x7FFF + (word >> 16 & 1)) >> 16).astype(numpy.uint16)


def large_case() -> Case:
    """Scratch of 200 KB lies outside of the stack, one for each thread."""
    text = """
      param x: f32[T, 50000] global in
      param y: f32[T] global out
      grid t in T
      alloc big: f32[50000] near
      for j in 50000 vector {
        big[j] = add(x[t, j], 1.0)
      }
      reduce s = sum over k in 50000 lanes 8 start 0.0 of big[k]
      y[t] = s"""

    def expected(a: Arrays) -> Mapping[str, Array]:
        return {"y": numpy.array([lanes_sum(r.astype(F32) + F32(1), 8) for r in a["x"]], F32)}

    return Case("large scratch", text, lambda: {"x": floats(13, 5, 50000, odd=False)},
                lambda: {"y": poison("float32", 5)}, expected)


def twice_case() -> Case:
    """Blocks beside each other use one name for buffers of different shapes."""
    text = """
      param x: f32[T, 12] global in
      param y: f32[T, 2] global out
      grid t in T
      if lt(t, 2) {
        alloc tile: f32[3, 4] near
        for i in 3 serial {
          for j in 4 vector {
            tile[i, j] = x[t, add(mul(i, 4), j)]
          }
        }
        y[t, 0] = tile[2, 1]
        y[t, 1] = tile[0, 3]
      } else {
        alloc tile: f32[2, 6] near
        for i in 2 serial {
          for j in 6 vector {
            tile[i, j] = x[t, add(mul(i, 6), j)]
          }
        }
        y[t, 0] = tile[1, 1]
        y[t, 1] = tile[0, 5]
      }"""

    def expected(a: Arrays) -> Mapping[str, Array]:
        return {"y": numpy.array([[r[9], r[3]] if t < 2 else [r[7], r[5]] for t, r in enumerate(a["x"])], F32)}

    return Case("one name twice", text, lambda: {"x": floats(17, 5, 12)}, lambda: {"y": poison("float32", 5, 2)},
                expected)


CASES = [
    *[reduce_case(lanes, extent) for lanes in (1, 4, 16) for extent in (1, 15, 16, 37, 64)],
    copy_case("copy, cut at two ends", "f32", "7, 9", (4, 6), "copy tile = x[5, 6] limits [7, 8]", (5, 6), (7, 8),
              (7, 9)),
    copy_case("copy, whole", "bf16", "7, 9", (4, 6), "copy tile = x[3, 3] limits [_, _]", (3, 3), (None, None), (7, 9)),
    copy_case("copy, leading dims", "u8", "3, 2, 7, 9", (4, 6), "copy tile = x[2, 1, 5, 1] limits [3, _, 7, _]",
              (2, 1, 5, 1), (3, None, 7, None), (3, 2, 7, 9)),
    copy_case("copy, a leading dim outside", "u8", "3, 7", (4,), "copy tile = x[2, 1] limits [2, _]", (2, 1), (2, None),
              (3, 7)),
    copy_case("copy, rows of a list", "f32", "7, 9", (5, 9), "copy tile = x[0, 0] limits [6, _] rows list", (0, 0),
              (6, None), (7, 9), [3, -1, 6, 0, 5]),
    copy_case("copy, rows of a list, all", "bf16", "7, 9", (5, 4), "copy tile = x[0, 7] limits [_, 9] rows list",
              (0, 7), (None, 9), (7, 9), [6, 7, -9, 0, 100]),
    integer_case(), guard_case(), bf16_case(), large_case(), twice_case(),
]


def words(x: Array) -> Array:
    """The bits, with one pattern for all NaNs: which of two NaNs an instruction returns is the compiler's choice."""
    out = x.view(f"u{x.dtype.itemsize}").copy()
    if x.dtype.kind == "f":
        out[numpy.isnan(x)] = 0x7FC00000
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_both_builds_give_what_the_statement_says(case: Case) -> None:
    program = parse_program(f"kernel @kernel anchor - functions dinfc-f32 {{{case.text}\n}}\n")
    inputs, results = case.inputs(), []
    with numpy.errstate(all="ignore"):
        expected = case.expected(inputs)
    for checked, threads in ((False, 1), (False, 2), (True, 1)):
        outputs = case.outputs()
        run_program(program, inputs | outputs, dict(case.scalars), checked, threads)
        results.append(outputs)
    for name, want in expected.items():
        for got in results:
            assert got[name].dtype == want.dtype
            numpy.testing.assert_array_equal(words(got[name]), words(want), name)
