"""A scalar model of the tile IR `Dot`, in numpy, and programs with a single Dot: values, layouts, scales."""
from __future__ import annotations

from dataclasses import dataclass

import numpy

from dinfc.ir.scalar import Expr, binary, const, var
from dinfc.ir.tile.program import Alloc, Buffer, Comment, Dot, Fill, For, Program, Store

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=numpy.float32)
F32 = numpy.float32


def fma(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    """fp32 fused multiply-add: the fp64 sum is rounded to odd, so that the second rounding cannot hurt."""
    p = a.astype(numpy.float64) * b.astype(numpy.float64)
    c = c.astype(numpy.float64)
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    even = (s.view(numpy.int64) & 1) == 0
    towards = numpy.where(error > 0, numpy.inf, -numpy.inf)
    return numpy.where((error != 0) & even, numpy.nextafter(s, towards), s).astype(F32)


def decode_e4m3(code: numpy.ndarray) -> numpy.ndarray:
    sign = numpy.where(code & 0x80, -1.0, 1.0)
    e, m = (code >> 3) & 15, code & 7
    size = numpy.where(e == 0, m * 2.0**-9, (8 + m) * 2.0 ** (e.astype(numpy.float64) - 10))
    return (sign * size).astype(F32)


def pack_pairs(codes: numpy.ndarray) -> numpy.ndarray:
    """Two codes a byte along the last dim, even index low."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(numpy.uint8)


def to_bf16(x: numpy.ndarray) -> numpy.ndarray:
    """Values cut to bf16 (uint16 storage)."""
    return (x.astype(F32).view(numpy.uint32) >> 16).astype(numpy.uint16)


def from_bf16(x: numpy.ndarray) -> numpy.ndarray:
    return (x.astype(numpy.uint32) << 16).view(F32)


@dataclass
class Case:
    """One product: kinds are f32, bf16, e4m3, e2m1; scales none, f32, e8m0; `rows` of the m tile rows exist."""

    a: str = "f32"
    b: str = "e4m3"
    layout: str = "n16k"
    m: int = 3
    n: int = 32
    k: int = 96
    group: int = 32
    a_scale: str = ""
    b_scale: str = ""
    scale_rows: int = 1
    rows: int | None = None
    lead: bool = False

    def __str__(self) -> str:
        return "-".join(str(v) for v in vars(self).values() if v not in (None, "", False))


def make_operand(rng: numpy.random.Generator, kind: str, rows: int, cols: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(stored elements before packing, fp32 values), both [rows, cols]."""
    if kind == "f32":
        x = (rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-12, 12, (rows, cols))).astype(F32)
        return x, x
    if kind == "bf16":
        x = to_bf16(rng.standard_normal((rows, cols)) * 2.0 ** rng.integers(-12, 12, (rows, cols)))
        return x, from_bf16(x)
    if kind == "e4m3":
        code = rng.integers(0, 256, (rows, cols)).astype(numpy.uint8)
        code[(code & 0x7F) == 0x7F] = 0
        return code, decode_e4m3(code)
    code = rng.integers(0, 16, (rows, cols)).astype(numpy.uint8)
    return code, E2M1[code]


def make_scale(rng: numpy.random.Generator, kind: str, rows: int, groups: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(stored, fp32 values): distinct powers of two for e8m0, any floats for f32."""
    if kind == "f32":
        x = rng.standard_normal((rows, groups)).astype(F32)
        return x, x
    byte = rng.integers(110, 140, (rows, groups)).astype(numpy.uint8)
    return byte, numpy.ldexp(F32(1), byte.astype(int) - 127).astype(F32)


def lay_out(b: numpy.ndarray, case: Case, rng: numpy.random.Generator) -> numpy.ndarray:
    """[n, k] stored elements in the case's layout; packed weights are padded to 16 columns with random codes."""
    packed = case.b == "e2m1"
    if case.layout == "nk":
        return pack_pairs(b) if packed else b
    if case.layout == "kn":
        b = numpy.ascontiguousarray(b.T)
        return pack_pairs(b) if packed else b
    blocks = -(-case.n // 16)
    full, _ = make_operand(rng, case.b, blocks * 16, case.k)
    full[: case.n] = b
    out = numpy.ascontiguousarray(full.reshape(blocks, 16, case.k).transpose(0, 2, 1))
    return pack_pairs(out) if packed else out


DTYPES = {"f32": "f32", "bf16": "bf16", "e4m3": "u8", "e2m1": "u8"}


def dims(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(const(n) for n in shape)


def make_case(case: Case, seed: int = 0) -> tuple[Program, dict[str, numpy.ndarray], numpy.ndarray]:
    """(program, arrays, expected bits of `out`). acc starts at 0.25; rows that do not exist keep it."""
    rng = numpy.random.default_rng(seed)
    groups = case.k // case.group
    a_stored, a = make_operand(rng, case.a, case.m, case.k)
    b_stored, b = make_operand(rng, case.b, case.n, case.k)
    arrays = {"a": pack_pairs(a_stored) if case.a == "e2m1" else a_stored, "b": lay_out(b_stored, case, rng)}
    if case.lead:  # the second of two experts
        arrays["b"] = numpy.stack([numpy.zeros_like(arrays["b"]), arrays["b"]])
    scales = {}
    for name, kind, rows in (("sa", case.a_scale, case.m), ("sb", case.b_scale, -(-case.n // case.scale_rows))):
        if kind:
            arrays[name], scales[name] = make_scale(rng, kind, rows, groups)
    expected = reference(case, a, b, scales.get("sa"), scales.get("sb"))
    arrays["out"] = numpy.zeros((case.m, case.n), dtype=F32)

    params = [Buffer("a", DTYPES[case.a], dims(arrays["a"].shape), "global"),
              Buffer("b", DTYPES[case.b], dims(arrays["b"].shape), "global")]
    params += [Buffer(n, "f32" if arrays[n].dtype == F32 else "u8", dims(arrays[n].shape), "global")
               for n in ("sa", "sb") if n in arrays]
    params.append(Buffer("out", "f32", dims((case.m, case.n)), "global", "out"))
    zero = (const(0), const(0))
    b_at = tuple(const(0) for _ in arrays["b"].shape)
    if case.lead:
        b_at = (const(1), *b_at[1:])
    dot = Dot("acc", "a", zero, "b", b_at, case.m, case.n, case.k, case.group, case.layout,
              case.a if case.a[0] == "e" else "", case.b if case.b[0] == "e" else "",
              "sa" if case.a_scale else None, zero if case.a_scale else None,
              "sb" if case.b_scale else None, zero if case.b_scale else None, case.scale_rows,
              f"fold({case.group}; chain fma)", None if case.rows is None else binary("min", var("T"), case.m))
    i, j = var("i"), var("j")
    acc = Buffer("acc", "f32", dims((case.m, case.n)), "accumulator")
    body = (Comment("one product"), Alloc(acc), Fill("acc", const(0.25)), dot,
            For("i", const(case.m), "serial", (For("j", const(case.n), "vector", (
                Store("out", (i, j), acc[i, j]),)),)))
    return Program("product", "matmul", tuple(params), (("one", const(1)),), body), arrays, expected


def reference(case: Case, a: numpy.ndarray, b: numpy.ndarray, sa: numpy.ndarray | None,
              sb: numpy.ndarray | None) -> numpy.ndarray:
    """The stated order, element by element along K."""
    acc = numpy.full((case.m, case.n), 0.25, dtype=F32)
    for g in range(case.k // case.group):
        chain = numpy.zeros_like(acc)
        for k in range(g * case.group, (g + 1) * case.group):
            chain = fma(numpy.broadcast_to(a[:, k : k + 1], acc.shape), numpy.broadcast_to(b[:, k], acc.shape), chain)
        if sa is None and sb is None:
            acc = acc + chain
            continue
        scale = numpy.ones_like(acc)
        if sa is not None:
            scale = scale * sa[:, g : g + 1]
        if sb is not None:
            scale = scale * numpy.repeat(sb[:, g], case.scale_rows)[: case.n]
        acc = fma(chain, scale, acc)
    if case.rows is not None:
        acc[case.rows :] = 0.25
    return acc
