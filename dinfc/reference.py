"""The model through the reference interpreter (mode R64): weights from a checkpoint, caches, steps (design section 4a).

This is `dinfc interpret` and the oracle of the compiled package; it uses the same step input, pages, rings and slots.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import dinfc.ir.ops  # noqa: F401  (registers all ops)
from dinfc.frontend.deepseek_v41 import Model, build_model
from dinfc.frontend.model_config import ModelConfig
from dinfc.ir.data import Data, Quantised, State
from dinfc.ir.interpret import Interpreter
from dinfc.ir.plan import PAGE_TOKENS, WeightRecipe, max_pages
from dinfc.ir.types import Limits, TensorType


@dataclass
class Sequence_:
    """One sequence: its state slot, its pages, the number of tokens processed."""

    slot: int
    pages: list[int] = field(default_factory=list)
    length: int = 0


class ReferenceModel:
    """The interpreted model with its caches.

    `tensors`: checkpoint tensors by name (without `model.` prefix); `token_map`: compressed id of every token id, for
    models with Engram. `slots` and `pages`: sizes of the caches, number 0 of both is reserved.
    """

    def __init__(self, config: ModelConfig, limits: Limits, cache: str, tensors: Mapping[str, Tensor],
                 token_map: Sequence[int] | None, slots: int | None = None, pages: int | None = None) -> None:
        self.config, self.limits = config, limits
        self.model: Model = build_model(config, limits, cache)
        module = self.model.module
        self.types = {p.name: p.type for f in ("forward", "head") for p in module.functions[f].params}
        weights: dict[str, Data] = {}
        for name, recipe in self.model.recipes.items():
            if name == "engram.token_map":
                if token_map is None:
                    raise ValueError("a model with Engram needs a token map")
                weights[name] = torch.tensor(list(token_map), dtype=torch.int64)
            else:
                type_ = self.types[name]
                assert isinstance(type_, TensorType)
                weights[name] = weight_value(recipe, type_, tensors)
        self.interpreter = Interpreter(module, weights)
        self.slots = slots or limits.max_seqs + 1
        self.page_count = pages or limits.max_seqs * max_pages(limits) + 1
        self.states = {n: State.make(t, self.slots if t.kind == "ring" else self.page_count)
                       for n, t in self.model.layout.states.items()}
        self.free_slots = list(range(self.slots - 1, 0, -1))
        self.free_pages = list(range(self.page_count - 1, 0, -1))

    def new_sequence(self) -> Sequence_:
        return Sequence_(self.free_slots.pop())

    def release(self, sequence: Sequence_) -> None:
        """Gives slot and pages back; their contents stay (they must never be read again)."""
        self.free_slots.append(sequence.slot)
        self.free_pages += reversed(sequence.pages)

    def step(self, batch: Sequence[tuple[Sequence_, Sequence[int]]]) -> list[Tensor]:
        """Appends a chunk of ids to each sequence; fp32 logits `[len(ids), V]` of every row, per sequence."""
        cu = [0]
        for _, ids in batch:
            cu.append(cu[-1] + len(ids))
        t = cu[-1]
        columns = max_pages(self.limits)
        table = torch.zeros((len(batch), columns), dtype=torch.int64)
        for row, (sequence, ids) in enumerate(batch):
            need = -(-(sequence.length + len(ids)) // PAGE_TOKENS)
            while len(sequence.pages) < need:
                sequence.pages.append(self.free_pages.pop())
            table[row, :len(sequence.pages)] = torch.tensor(sequence.pages)
        step: dict[str, Data] = {
            "cu_rows": torch.tensor(cu), "start": torch.tensor([s.length for s, _ in batch]),
            "state_slot": torch.tensor([s.slot for s, _ in batch]), "page_table": table,
            "ids": torch.tensor([i for _, ids in batch for i in ids]),
        }
        symbols = {"T": t, "S": len(batch), "R": t}
        prepare = self.interpreter.module.functions["prepare"]
        args = {p.name: step[p.name] if p.name in step else self.states[p.name] for p in prepare.params}
        metadata = dict(zip((r.name for r in prepare.results), self.interpreter.run("prepare", args, symbols),
                            strict=True))
        forward = self.interpreter.module.functions["forward"]
        given: dict[str, Data] = {**step, **metadata, **self.states}
        names = [p.name for p in forward.params if p.name in given]
        hidden = self.interpreter.run("forward", {n: given[n] for n in names}, symbols)[0]
        rows = torch.arange(t)
        logits = self.interpreter.run("head", {"hidden": hidden, "logit_rows": rows}, symbols)[0]
        assert isinstance(logits, Tensor)
        out = []
        for (sequence, ids), first in zip(batch, cu, strict=False):
            sequence.length += len(ids)
            out.append(logits[first:first + len(ids)].to(torch.float32))
        return out


def weight_value(recipe: WeightRecipe, type_: TensorType, tensors: Mapping[str, Tensor]) -> Data:
    """The value of a slot from its checkpoint tensors: parts concatenated row by row, fp4 codes unpacked."""
    shape = tuple(int(d) for d in type_.shape)
    codec = type_.codec
    if codec is None:
        parts = [tensors[p.source].reshape(p.rows, -1) for p in recipe.parts]
        return torch.cat(parts).reshape(shape)
    codes, scales = [], []
    for part in recipe.parts:
        raw = tensors[part.source].view(torch.uint8)
        if codec.bits == 4:
            raw = torch.stack((raw & 15, raw >> 4), dim=-1).flatten(-2)
        codes.append(raw.reshape(part.rows, -1))
        scales.append(tensors[part.scale].view(torch.uint8).reshape(-1, shape[-1] // codec.group))
    rows = shape[:-1] if codec.rows == 1 else (*shape[:-2], -(-shape[-2] // codec.rows))
    return Quantised(torch.cat(codes).reshape(shape), torch.cat(scales).reshape(*rows, shape[-1] // codec.group), codec)
