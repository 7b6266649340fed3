"""plan.json, weights.json and constants.bin: a plan as the files that a package's runtime reads (runtime/plan.py)."""
from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from dinfc.ir.graph import Constant, Module
from dinfc.ir.plan import LAUNCHER_ABI, PAGE_TOKENS, PLAN_FORMAT, STEP_FIELDS, Plan, Ref, max_pages, step_lengths
from dinfc.ir.scalar import DTYPE_BYTES
from dinfc.ir.types import dim_text

from .launcher import bucket_sizes, entry_order, kernel_order

# What Linux calls the features that each instruction set needs; a package refuses a machine without them.
CPU_FEATURES: Mapping[str, tuple[str, ...]] = {
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx2", "fma", "f16c"),
}
TABLE_ALIGN = 64
_PACK = {"f32": "f", "i32": "i", "i64": "q", "u8": "B", "u32": "I"}


@dataclass(frozen=True)
class ModelFacts:
    """What the runtime must know of the model besides the plan. `backtrack`: B_max. `compressed_vocab` 0: no Engram."""

    name: str
    vocab_size: int
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    backtrack: int
    engram_pad_token_id: int
    compressed_vocab: int


@dataclass(frozen=True)
class ExpectedTensor:
    """A tensor that a checkpoint of the model has; `dtype` as safetensors names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str


def plan_json(plan: Plan, module: Module, model: ModelFacts, isa: str, memory_fraction: float, passes: Sequence[str],
              files: Mapping[str, str]) -> str:
    """The text of plan.json. `files`: path -> sha256 of what the runtime must find unchanged."""
    limits = plan.limits
    places: dict[Ref, int] = {}
    launches = [[launch.kernel, [places.setdefault(r, len(places)) for r in launch.args], launch.loop, launch.origin]
                for launch in plan.launches]
    document = {
        "format": PLAN_FORMAT, "abi": LAUNCHER_ABI, "target": "cpu", "isa": isa,
        "cpu_features": CPU_FEATURES[isa], "model": asdict(model),
        "limits": {"max_seqs": limits.max_seqs, "max_tokens": limits.max_tokens, "max_len": limits.max_len,
                   "score_bytes": limits.score_bytes},
        "buckets": bucket_sizes(plan), "max_logit_rows": plan.max_logit_rows, "page_tokens": PAGE_TOKENS,
        "max_pages": max_pages(limits), "memory_fraction": memory_fraction, "step": step_places(plan),
        "arena": plan.arena_bytes,
        "states": [{"name": s.name, "kind": s.kind, "unit_bytes": s.unit_bytes, "dtype": s.dtype} for s in plan.states],
        "constants": [{"name": name, "dtype": c.type.elem, "shape": constant_shape(c), "offset": offset,
                       "bytes": constant_bytes(c)}
                      for name, c, offset in constant_places(module, plan)],
        "weight_bytes": sum(w.bytes for w in plan.weights),
        "outputs": [{"name": o.name, "dtype": o.dtype,
                     "shape": [d if isinstance(d, int) else dim_text(d) for d in o.shape],
                     "offsets": list(o.offsets)} for o in plan.outputs],
        "entries": {name: list(plan.entries[name]) for name in entry_order(plan)},
        "kernels": [{"name": name, "anchor": plan.programs[name].anchor, "orders": plan.programs[name].orders,
                     "functions": plan.programs[name].functions} for name in kernel_order(plan)],
        "places": [[r.space, r.index, list(r.offsets)] for r in places],
        "launches": launches,
        "loops": [{"first": item.first, "last": item.last, "rows": item.rows, "reason": item.reason}
                  for item in plan.loops],
        "memory": dict(plan.memory), "passes": list(passes), "files": dict(sorted(files.items())),
    }
    return lines_json(document)


def step_places(plan: Plan) -> dict[str, list[int]]:
    """Field of the step input -> (first int32, maximum length)."""
    lengths = step_lengths(plan.limits, plan.max_logit_rows)
    out, at = {}, 0
    for name in STEP_FIELDS:
        out[name] = [at, lengths[name]]
        at += lengths[name]
    return out


def constant_shape(constant: Constant) -> list[int]:
    """Raises ValueError for a table whose shape depends on the step."""
    shape = [d for d in constant.type.shape if isinstance(d, int)]
    if len(shape) != constant.type.rank:
        raise ValueError(f"constant {constant.name} has the shape {constant.type}")
    return shape


def constant_bytes(constant: Constant) -> int:
    size = DTYPE_BYTES[constant.type.elem]
    for d in constant_shape(constant):
        size *= d
    return size


def constant_places(module: Module, plan: Plan) -> list[tuple[str, Constant, int]]:
    """Constants in the plan's order with their offsets in constants.bin."""
    out, at = [], 0
    for name in plan.constants:
        constant = module.constants[name]
        out.append((name, constant, at))
        at += -(-constant_bytes(constant) // TABLE_ALIGN) * TABLE_ALIGN
    return out


def constants_bin(module: Module, plan: Plan) -> bytes:
    """All tables, little-endian; fp64 values are rounded to the type of their table."""
    block = bytearray()
    for _, constant, offset in constant_places(module, plan):
        block += bytes(offset - len(block))
        values = list(constant.make())
        block += struct.pack(f"<{len(values)}{_PACK[constant.type.elem]}", *values)
    return bytes(block)


def weights_json(plan: Plan, tensors: Iterable[ExpectedTensor]) -> str:
    """The text of weights.json: expected tensors, packed buffers, load steps."""
    document = {
        "tensors": [[t.name, t.dtype, list(t.shape), t.role] for t in tensors],
        "buffers": [[w.name, w.dtype, list(w.shape), w.bytes] for w in plan.weights],
        "load": [[s.kernel, list(s.sources), [list(t) for t in s.targets]] for s in plan.load],
    }
    return lines_json(document)


def lines_json(document: Mapping[str, object]) -> str:
    """JSON with a line for each item of the lists at the top: small, and still readable in a diff."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple | dict):
            items = ",\n".join(" " + json.dumps(item, ensure_ascii=False) for item in value)
            parts.append(f"{json.dumps(key)}: [\n{items}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
