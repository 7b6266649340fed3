"""A paged attention problem for the tests of `sparse_attend`: sources, index lists, fp64 references."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dinfc.codegen.schedules.attend import AttendSchedule
from dinfc.ir.graph import Op
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.types import StateType
from support.anchors import (
    CPU,
    Quantised,
    T,
    build,
    make_region,
    page_buffer,
    quantised,
    random_quantised,
    ring_buffer,
    run,
    state,
    stored,
    tensor,
)

HEADS, D = 4, 64
CURRENT, RING, PAGES = 0, 1, 2
SLOTS, RING_ENTRIES, PAGE_COUNT = 3, 20, 5
INT_MAX = 2**31 - 1


def entry(source: int, offset: int) -> int:
    """An encoded index as the i32 that holds it."""
    return ((source << 30 | offset) + 2**31) % 2**32 - 2**31


def page_type(elem: str) -> StateType:
    return StateType("pages", elem, D, 8, 1024, 64, 640)


def small_records(g: torch.Generator, elem: str, rows: int) -> Quantised:
    """Records whose values are of order one."""
    q = random_quantised(g, elem, rows, D, spread=1)
    if elem == "fp4e4m3<16>":
        return quantised(q.codes, torch.randint(36, 56, q.scales.shape, generator=g).to(torch.uint8), elem)
    return quantised(q.codes, q.scales - 7, elem)


@dataclass
class Attention:
    """Queries, sinks and the three sources. `index` rows are lists of encoded entries."""

    q: Tensor
    sink: Tensor
    current: Quantised
    ring: Quantised
    pages: Quantised
    index: Tensor
    elem: str

    @property
    def rows(self) -> int:
        return self.q.shape[0]

    def pick(self, rows: Sequence[int]) -> Attention:
        """A batch of these rows only; entries of the current rows follow them (a row sees only its own here)."""
        where = torch.tensor(list(rows))
        index = self.index[where].clone()
        for new, old in enumerate(rows):
            index[new][index[new] == entry(CURRENT, old)] = entry(CURRENT, new)
        current = Quantised(*(x[where].contiguous() for x in self.current))
        return replace(self, q=self.q[where].contiguous(), index=index, current=current)

    def sources(self) -> tuple[Tensor, ...]:
        return self.current.values, self.ring.values, self.pages.values

    def keys(self, row: int) -> Tensor:
        """fp64 keys of a row, in list order, absent ones left out."""
        out = []
        for e in self.index[row].tolist():
            source, offset = (e >> 30) & 3, e & (2**30 - 1)
            if source < 3 and offset < len(self.sources()[source]):
                out.append(self.sources()[source][offset])
        return torch.stack(out) if out else torch.zeros(0, D, dtype=torch.float64)

    def reference(self, row: int) -> tuple[Tensor, Tensor]:
        """(o, sum of p * abs(k)) of a row, in fp64."""
        keys, sink = self.keys(row), self.sink.double()
        logits = (self.q[row].double() @ keys.T) * D**-0.5
        top = torch.maximum(logits.max(1).values, sink) if len(keys) else sink
        weights = torch.exp(logits - top[:, None])
        total = weights.sum(1) + torch.exp(sink - top)
        return (weights @ keys) / total[:, None], (weights @ keys.abs()) / total[:, None]

    def region(self) -> Op:
        operands = [
            tensor("q", "bf16", T, HEADS, D), tensor("index", "i32", T, self.index.shape[1]),
            tensor("current", "mxfp8<32>", T, D), state("ring", StateType("ring", "mxfp8<32>", D, RING_ENTRIES)),
            tensor("sink", "f32", HEADS), state("main", page_type(self.elem))]
        return make_region("sparse_attend", operands, [tensor("y", "bf16", T, HEADS, D)], {"scale": D**-0.5})

    def run(self, limits: TargetLimits = CPU, checked: bool = False, pages: Tensor | None = None,
            ring: Tensor | None = None) -> Tensor:
        """The kernel's result; `pages` and `ring` replace the buffers of the states."""
        region = self.region()
        current = region.regions[0].params[2]
        buffers = stored(current, self.current) | {
            "q": self.q, "index": self.index.int(), "sink": self.sink,
            "ring": ring_buffer(self.ring, "mxfp8<32>") if ring is None else ring,
            "main": page_buffer(self.pages, page_type(self.elem)) if pages is None else pages,
            "y": torch.full((self.rows, HEADS, D), float("nan"), dtype=torch.bfloat16)}
        scalars = {"T": self.rows, "slots": len(buffers["ring"]) // RING_ENTRIES, "pages": len(buffers["main"])}
        return run(build(AttendSchedule(), region, limits), buffers, scalars, checked)["y"]


def attention(rows: int = 40, keys: int = 70, elem: str = "fp4e4m3<16>", seed: int = 0,
              absent: float = 0.4) -> Attention:
    """A random problem: a window part padded in front with -1, then page entries; `absent` = share of -1."""
    g = torch.Generator().manual_seed(seed)
    index = torch.full((rows, keys), -1, dtype=torch.int64)
    for row in range(rows):
        for i in range(keys):
            if torch.rand((), generator=g) < absent:
                continue
            source = int(torch.randint(1, 3, (), generator=g))
            extent = SLOTS * RING_ENTRIES if source == RING else PAGE_COUNT * page_type(elem).capacity
            index[row, i] = entry(source, int(torch.randint(0, extent, (), generator=g)))
        index[row, keys // 2] = entry(CURRENT, row)
    return Attention(
        torch.randn(rows, HEADS, D, generator=g).bfloat16(), torch.randn(HEADS, generator=g),
        small_records(g, "mxfp8<32>", rows), small_records(g, "mxfp8<32>", SLOTS * RING_ENTRIES),
        small_records(g, elem, PAGE_COUNT * page_type(elem).capacity), index, elem)
