"""What an instance of a device program occupies, by memory class, against the target's limits.

Classes of the manifests: `shared` (shared memory or unified buffer, stages of pipelined copies counted), `registers`
(32-bit accumulator words a thread), `tensor` (columns of tensor memory), `l1` and `l0c` (the cube's buffers). Sizes are
sums over all buffers of the program: backends that let buffers share memory need less.
"""
from __future__ import annotations

import math
from collections.abc import Mapping

from dinfc.ir.scalar import DTYPE_BYTES
from dinfc.ir.tile.program import Alloc, Copy, Dot, For, Program, statements

from .device_walk import DeviceError, sizes


def usage(program: Program, threads: int, stages: int) -> dict[str, int]:
    """Bytes of `shared`, words a thread of `registers`, columns of `tensor` if products accumulate there."""
    staged = {c.dst for loop in statements(program.body) if isinstance(loop, For) and loop.kind == "pipelined"
              for c in statements(loop.body) if isinstance(c, Copy)}
    products = {s.acc for s in statements(program.body) if isinstance(s, Dot)}
    out = {"shared": 0, "registers": 0, "tensor": 0}
    for s in statements(program.body):
        if not isinstance(s, Alloc):
            continue
        count = math.prod(sizes(s.buffer))
        if s.buffer.space == "accumulator":
            out["registers"] += -(-count // threads)
            if s.buffer.name in products:
                out["tensor"] += max(32, 1 << (sizes(s.buffer)[1] - 1).bit_length())
        else:
            out["shared"] += count * DTYPE_BYTES[s.buffer.dtype] * (stages if s.buffer.name in staged else 1)
    return out


def check_capacity(program: Program, limits: Mapping[str, int], threads: int, stages: int) -> None:
    """Raises DeviceError for the first class that the program fills beyond its limit."""
    used = usage(program, threads, stages)
    for name, limit in limits.items():
        if used.get(name, 0) > limit:
            unit = {"registers": "words of registers a thread", "tensor": "columns of tensor memory"}.get(
                name, f"bytes of {name} memory")
            raise DeviceError(f"the kernel needs {used[name]} {unit}, the target has {limit}")
