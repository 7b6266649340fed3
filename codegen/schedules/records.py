"""Decoding cached records (codes and scales of one token) into fp32 rows near the core.

A record is a row of a codec value, an entry of a ring, or a record of a page section: the three differ only in where
its code bytes and scale bytes lie (binding.py), so one decoder takes the two as functions.
"""
from __future__ import annotations

from collections.abc import Callable

from dinfc.ir.scalar import Expr, apply, cast, const, var
from dinfc.ir.tile.program import Buffer, Let
from dinfc.ir.types import Codec, StateType

from .tiles import Body, loop, store

Byte = Callable[[Expr], Expr]  # number of a byte of the record's codes (or scales) -> its load


def page_record(pages: Buffer, state: StateType, page: Expr, slot: Expr) -> tuple[Byte, Byte]:
    """Code and scale bytes of record `slot` of a page, counted from the beginning of the section: all codes, then all
    scales."""
    codec = state.codec
    assert codec is not None
    codes = slot * codec.code_bytes(state.width)
    scales = slot * (state.width // codec.group) + state.scale_offset
    return (lambda b: pages[page, codes + b]), (lambda b: pages[page, scales + b])


def ring_record(ring: Buffer, state: StateType, entry: Expr) -> tuple[Byte, Byte]:
    """Code and scale bytes of a flat ring entry: codes, then scales."""
    codec = state.codec
    assert codec is not None
    start = codec.code_bytes(state.width)
    return (lambda b: ring[entry, b]), (lambda b: ring[entry, const(start) + b])


def value_record(codes: Buffer, scales: Buffer, row: tuple[Expr, ...]) -> tuple[Byte, Byte]:
    """Code and scale bytes of a row of a codec value."""
    return (lambda b: codes[*row, b]), (lambda b: scales[*row, b])


def decode_codes(codec: Codec, width: int, codes: Byte, tag: str, put: Callable[[Expr, Expr], Body],
                 kind: str = "vector") -> Body:
    """Calls `put(element, decoded code)` for every element of a record, without its scale."""
    if codec.code == "e4m3":
        return loop(f"c{tag}", width, lambda c: put(c, apply("e4m3_decode", codes(c))), kind)

    def pair(b: Expr) -> Body:
        return (put(b * 2, apply("e2m1_decode", codes(b) & 15))
                + put(b * 2 + 1, apply("e2m1_decode", codes(b) >> 4)))

    return loop(f"c{tag}", width // 2, pair, kind)


def decode_scaled(codec: Codec, width: int, record: tuple[Byte, Byte], tag: str, row: Buffer,
                  at: Callable[[Expr], tuple[Expr, ...]], kind: str = "vector") -> Body:
    """Stores code * scale of every element of a record in `row[at(element)]`; exact in fp32 for every codec."""
    codes, scales = record
    decode = "e8m0_decode" if codec.scale == "e8m0" else "e4m3_decode"

    def group(g: Expr) -> Body:
        name = f"scale_{tag}"
        first = g * codec.code_bytes(codec.group)
        body: Body = [Let(name, apply(decode, scales(g)))]
        return body + decode_codes(
            codec, codec.group, lambda b: codes(first + b), tag,
            lambda c, value: [store(row, at(g * codec.group + c), cast(value * var(name, "f32"), row.dtype))], kind)

    return loop(f"g{tag}", width // codec.group, group)
