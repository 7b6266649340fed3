"""The memory report of a plan: bytes by kind, by name, for `dinfc plan` and plan.json."""
from __future__ import annotations

from math import prod

from dinfc.ir.graph import Module
from dinfc.ir.plan import Plan, step_lengths
from dinfc.ir.scalar import DTYPE_BYTES

from .base import Context

I32_BYTES = 4


def memory_report(module: Module, context: Context, plan: Plan) -> dict[str, int]:
    """Bytes by kind.

    `weights`, `constants`, `step`, `page` (one page, all sections), `rings` (one state slot, all rings);
    for every bucket `arena.B`, `metadata.B` and the frames `frame.B.FUNCTION`;
    `chunk_rows.N` for every chunk loop N.
    """
    out = {
        "weights": sum(w.bytes for w in plan.weights),
        "constants": sum(
            DTYPE_BYTES[c.type.elem] * prod(d for d in c.type.shape if isinstance(d, int))
            for c in module.constants.values()),
        "step": I32_BYTES * sum(step_lengths(context.limits, context.max_logit_rows).values()),
        "page": sum(s.unit_bytes for s in plan.states if s.kind == "pages"),
        "rings": sum(s.unit_bytes for s in plan.states if s.kind == "ring"),
    }
    arena = context.arena
    buckets = context.limits.buckets or (context.limits.max_tokens,)
    for i, bucket in enumerate(buckets):
        if arena is not None:
            out[f"arena.{bucket}"] = arena.bytes[i]
            out[f"metadata.{bucket}"] = arena.base[i]
        for frame in context.frames.values():
            if frame.bytes[i]:
                out[f"frame.{bucket}.{frame.function}"] = frame.bytes[i]
    for number, loop in enumerate(plan.loops):
        out[f"chunk_rows.{number}"] = loop.rows
    return out
