"""Values of the reference interpreter as the bytes that kernels read and write, and back.

numpy arrays of the stored dtype: bf16 as uint16, bool as uint8. Layouts and records are those of codegen/binding.py.
"""
from __future__ import annotations

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from dinfc.ir.data import Data, Quantised, State
from dinfc.ir.types import Codec, StateType, TensorType

Stored = NDArray[numpy.generic]
POISON = 0xFF
_NUMPY = {"f32": numpy.float32, "i32": numpy.int32, "i64": numpy.int64, "u8": numpy.uint8, "u32": numpy.uint32,
          "bool": numpy.uint8, "bf16": numpy.uint16}


def plain_bytes(x: Tensor, elem: str) -> Stored:
    """A tensor as it is stored; uninitialised integers and NaN stay what they are."""
    if elem == "bf16":
        return x.to(torch.float32).to(torch.bfloat16).contiguous().view(torch.int16).numpy().view(numpy.uint16).copy()
    if elem == "f32":
        return x.to(torch.float32).contiguous().numpy().copy()
    return x.contiguous().numpy().astype(_NUMPY[elem])


def pack_codes(codes: Tensor, codec: Codec) -> Stored:
    """Code bytes of a row-major value: two e2m1 codes a byte, even element low."""
    c = codes.numpy().astype(numpy.uint8)
    return c if codec.bits == 8 else (c[..., 0::2] & 15) | (c[..., 1::2] << 4)


def unpack_codes(stored: Stored, codec: Codec) -> Stored:
    if codec.bits == 8:
        return stored
    return numpy.stack((stored & 15, stored >> 4), axis=-1).reshape(*stored.shape[:-1], -1)


def n16k(x: Stored, fold_pairs: bool) -> Stored:
    """`[.., N, K]` as `[.., ceil(N/16), K, 16]`, rows past N zero; `fold_pairs`: codes of two rows a byte (n16k4)."""
    *lead, rows, width = x.shape
    blocks = -(-rows // 16)
    padded = numpy.zeros((*lead, blocks * 16, width), x.dtype)
    padded[..., :rows, :] = x
    out = numpy.ascontiguousarray(numpy.swapaxes(padded.reshape(*lead, blocks, 16, width), -1, -2))
    return (out[..., 0::2] & 15) | (out[..., 1::2] << 4) if fold_pairs else out


def value_arrays(value: Data, type_: TensorType) -> list[Stored]:
    """The buffers of a tensor value: one, or codes and scales."""
    if isinstance(value, Quantised):
        codec = value.codec
        scales = value.scales.numpy().astype(numpy.uint8).copy()
        if type_.layout:
            return [n16k(value.codes.numpy().astype(numpy.uint8), type_.layout == "n16k4"), scales]
        return [numpy.ascontiguousarray(pack_codes(value.codes, codec)), scales]
    assert isinstance(value, Tensor)
    plain = plain_bytes(value, type_.elem)
    return [n16k(plain, False) if type_.layout else plain]


def state_array(value: State) -> Stored:
    """The buffer of a state, from its section on. Of pages only this section's bytes are set; all others are poison."""
    type_, codec = value.type, value.type.codec
    if codec is None:
        return plain_bytes(value.data, type_.elem)
    codes, assertion = pack_codes(value.data, codec), value.scales
    assert assertion is not None
    scales = assertion.numpy().astype(numpy.uint8)
    if type_.kind == "ring":
        return numpy.ascontiguousarray(numpy.concatenate((codes, scales), axis=1))
    pages = value.records // type_.capacity
    out = numpy.full((pages, type_.page_bytes), POISON, numpy.uint8)
    for start, part in ((0, codes), (type_.scale_offset, scales)):
        block = part.reshape(pages, -1)
        out[:, start : start + block.shape[1]] = block
    return out


def section_mask(type_: StateType, shape: tuple[int, ...]) -> Stored:
    """True where a buffer of this state holds bytes of the state."""
    mask = numpy.zeros(shape, numpy.bool_)
    if type_.kind == "ring":
        mask[:] = True
        return mask
    codec = type_.codec
    assert codec is not None
    code_bytes = type_.capacity * codec.code_bytes(type_.width)
    scale_bytes = type_.capacity * (type_.width // codec.group)
    mask[:, :code_bytes] = True
    mask[:, type_.scale_offset : type_.scale_offset + scale_bytes] = True
    return mask


def bf16_numbers(stored: Stored) -> NDArray[numpy.float64]:
    return (stored.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)


def read_value(arrays: list[Stored], type_: TensorType) -> Data:
    """The value that row-major buffers hold, as the interpreter has it."""
    codec = type_.codec
    if codec is not None:
        codes = torch.from_numpy(unpack_codes(arrays[0], codec).astype(numpy.uint8))
        return Quantised(codes, torch.from_numpy(arrays[1].copy()), codec)
    if type_.elem == "bf16":
        return torch.from_numpy(bf16_numbers(arrays[0]))
    if type_.elem == "f32":
        return torch.from_numpy(arrays[0].astype(numpy.float64))
    if type_.elem == "bool":
        return torch.from_numpy(arrays[0].astype(numpy.bool_))
    return torch.from_numpy(arrays[0].astype(numpy.int64))


def read_state(array: Stored, type_: StateType) -> State:
    """The records that a state's buffer holds."""
    codec = type_.codec
    if codec is None:
        numbers = array.astype(numpy.float64 if type_.elem == "f32" else numpy.int64)
        return State(type_, torch.from_numpy(numbers))
    code_bytes, groups = codec.code_bytes(type_.width), type_.width // codec.group
    if type_.kind == "ring":
        codes, scales = array[:, :code_bytes], array[:, code_bytes:]
    else:
        codes = array[:, : type_.capacity * code_bytes].reshape(-1, code_bytes)
        scales = array[:, type_.scale_offset : type_.scale_offset + type_.capacity * groups].reshape(-1, groups)
    return State(type_, torch.from_numpy(unpack_codes(codes, codec).astype(numpy.uint8)),
                 torch.from_numpy(scales.copy()))
