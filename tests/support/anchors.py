"""Regions with one anchor op, made by hand, and operands for them: what the tests of the anchored schedules share.

Tensors are torch tensors in the storage form of codegen/binding.py, keyed by buffer name; references are fp64.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dinfc.codegen.binding import buffer_name
from dinfc.ir.graph import Attr, Function, Module, Op, Value
from dinfc.ir.protocols import Schedule, TargetLimits
from dinfc.ir.tile.program import Program
from dinfc.ir.types import CODECS, Dim, StateType, TensorType, symbol
from support.cpu_run import run_program

CPU = TargetLimits("cpu", {"near": 1 << 20, "shared": 1 << 20, "accumulator": 1 << 20, "scale": 1 << 20})
DEVICE = TargetLimits(
    "sm90", {"shared": 232448, "near": 65536, "accumulator": 1 << 18, "scale": 65536},
    tile_rows=128, tile_cols=128, segment_tile=128, key_block=64, extra={"stage_operands": 1, "tile_k": 128})
T, S = symbol("T"), symbol("S")

_E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64)
_HALF = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
_E2M1 = torch.cat([_HALF, -_HALF])


def tensor(name: str, elem: str, *shape: Dim, layout: str = "", bounds: tuple[Dim, Dim] | None = None) -> Value:
    return Value(name, TensorType(elem, shape, bounds, layout))


def state(name: str, type_: StateType) -> Value:
    return Value(name, type_)


def make_region(kind: str, operands: Sequence[Value], results: Sequence[Value], attrs: Mapping[str, Attr] | None = None,
                chunk: tuple[str, ...] = ()) -> Op:
    """A `region` op whose body is one op of `kind` over its parameters."""
    op = Op(kind, list(operands), dict(attrs or {}), list(results))
    body = Function("body", list(operands), [op], list(results))
    outer: list[Value] = [Value(r.name, r.type) for r in results]
    region_attrs: dict[str, Attr] = {"anchor": kind, "kernel": "k"}
    if chunk:
        region_attrs["chunk"] = chunk
    return Op("region", list(operands), region_attrs, outer, [body])


def build(schedule: Schedule, region: Op, limits: TargetLimits = CPU, name: str = "kernel") -> Program:
    return schedule.build(region, name, limits, Module())


def run(program: Program, buffers: Mapping[str, Tensor], scalars: Mapping[str, int], checked: bool = False,
        threads: int = 1) -> dict[str, Tensor]:
    """Runs the program on the buffers (in place) and returns its outputs by name."""
    run_program(program, buffers, scalars, checked, threads)
    return {p.name: buffers[p.name] for p in program.params if p.mode != "in"}


class Quantised(NamedTuple):
    """Codes, one a byte whatever their width, scale bytes, and the fp64 values they stand for."""

    codes: Tensor
    scales: Tensor
    values: Tensor


def decode(codes: Tensor, scales: Tensor, elem: str) -> Tensor:
    """fp64 values of unpacked codes and their scales."""
    codec = CODECS[elem]
    table = _E4M3 if codec.code == "e4m3" else _E2M1
    scale = _E4M3[scales.long()] if codec.scale == "e4m3" else torch.exp2(scales.double() - 127)
    full = scale.repeat_interleave(codec.group, -1)
    if codec.rows > 1:
        full = full.repeat_interleave(codec.rows, -2)[..., : codes.shape[-2], :]
    return table[codes.long()] * full


def random_quantised(g: torch.Generator, elem: str, *shape: int, spread: int = 4) -> Quantised:
    """Random codes (no NaN) and scales within 2^+-spread."""
    codec = CODECS[elem]
    if codec.code == "e4m3":
        codes = torch.randint(0, 127, shape, generator=g) + 128 * torch.randint(0, 2, shape, generator=g)
    else:
        codes = torch.randint(0, 16, shape, generator=g)
    rows = shape[:-1] if codec.rows == 1 else (*shape[:-2], -(-shape[-2] // codec.rows))
    if codec.scale == "e8m0":
        scales = 127 + torch.randint(-spread, spread + 1, (*rows, shape[-1] // codec.group), generator=g)
    else:
        scales = torch.randint(1, 127, (*rows, shape[-1] // codec.group), generator=g)
    return quantised(codes.to(torch.uint8), scales.to(torch.uint8), elem)


def quantised(codes: Tensor, scales: Tensor, elem: str) -> Quantised:
    return Quantised(codes, scales, decode(codes, scales, elem))


def pack_pairs(codes: Tensor) -> Tensor:
    """Two e2m1 codes a byte along the last dim, even index in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).contiguous()


def pack_columns(data: Tensor, layout: str) -> Tensor:
    """[.., N, K] -> n16k [.., ceil(N/16), K, 16], or n16k4 with two e2m1 codes a byte along N; zeros past N."""
    *lead, n, k = data.shape
    padded = torch.zeros((*lead, -(-n // 16) * 16, k), dtype=data.dtype)
    padded[..., :n, :] = data
    blocks = padded.reshape(*lead, -1, 16, k).transpose(-1, -2).contiguous()
    return pack_pairs(blocks) if layout == "n16k4" else blocks


def stored(value: Value, data: Quantised | Tensor) -> dict[str, Tensor]:
    """Buffers of a value by name."""
    name, type_ = buffer_name(value), value.tensor
    if isinstance(data, Tensor):
        return {name: pack_columns(data, type_.layout) if type_.layout else data}
    if type_.layout:
        codes = pack_columns(data.codes, type_.layout)
    else:
        assert type_.codec is not None
        codes = pack_pairs(data.codes) if type_.codec.bits == 4 else data.codes
    return {name: codes, name + "_s": data.scales}


def records(q: Quantised, elem: str) -> tuple[Tensor, Tensor]:
    """(code bytes, scale bytes) of rows of a codec value, one row a record."""
    return (pack_pairs(q.codes) if CODECS[elem].bits == 4 else q.codes), q.scales


def ring_buffer(q: Quantised, elem: str) -> Tensor:
    """Records as flat ring entries: codes, then scales."""
    return torch.cat(records(q, elem), -1)


def page_buffer(q: Quantised, type_: StateType) -> Tensor:
    """Records [pages * capacity, width] as a page section, the rest of the page poisoned with 0xFF."""
    codes, scales = records(q, type_.elem)
    pages = codes.shape[0] // type_.capacity
    out = torch.full((pages, type_.page_bytes), 0xFF, dtype=torch.uint8)
    for part, offset in ((codes, 0), (scales, type_.scale_offset)):
        flat = part.reshape(pages, -1)
        out[:, offset: offset + flat.shape[1]] = flat
    return out


def bits(x: Tensor) -> Tensor:
    """The bit pattern of a tensor as integers."""
    return x.contiguous().view({2: torch.int16, 4: torch.int32, 1: torch.uint8}[x.element_size()])


def near_product(y: Tensor, ref: Tensor, magnitude: Tensor, chain: int) -> bool:
    """Design section 11: abs(y - ref) <= 2^-8 abs(ref) + 4 n 2^-24 sum abs(a) abs(b), elementwise (2^-20 for fp32)."""
    relative = 2.0 ** -8 if y.dtype == torch.bfloat16 else 2.0 ** -20
    bound = relative * ref.abs() + 4 * chain * 2.0 ** -24 * magnitude
    return bool(((y.double() - ref).abs() <= bound).all())
