"""One problem for the slice's three kernels: operands in storage form, fp64 references by the reference interpreter,
and the bounds of design section 11. Used by the dialect tests (on the CPU) and by the GPU test.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dinfc.codegen.emit.device_slice import RECORDS, RING, slice_text
from dinfc.ir.data import Quantised, State
from dinfc.ir.interpret import Interpreter
from dinfc.ir.parse import parse_module
from dinfc.ir.types import CODECS, StateType

SLOTS, PAGES = 3, 4
OFFSET = 30
CURRENT, RING_SOURCE, PAGE_SOURCE = 0, 1, 2


@dataclass(frozen=True)
class Shapes:
    hidden: int = 5120
    rank: int = 1280
    heads: int = 64
    channels: int = 512
    listed: int = 640

    def text(self) -> str:
        return slice_text(self.hidden, self.rank, self.heads, self.channels, self.listed)


@dataclass
class SliceCase:
    """`rows` rows of the slice with random operands. `exact`: the product's operands are small integers times a power
    of two that differs between neighbouring rows and K groups, so that every sum is exact in fp32 in any order."""

    shapes: Shapes
    rows: int
    seed: int = 0
    exact: bool = False
    values: dict[str, Tensor | Quantised | State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        g = torch.Generator().manual_seed(self.seed)
        s, n = self.shapes, self.rows
        self.values = {
            "x": torch.randn(n, s.hidden, generator=g).bfloat16().double(),
            "attn_norm.weight": (1 + 0.1 * torch.randn(s.hidden, generator=g)).bfloat16().double(),
            "attn.wq_a": _codes(g, "wfp8<32x32>", s.rank, s.hidden),
            "q": torch.randn(n, s.heads, s.channels, generator=g).bfloat16().double(),
            "current": _records(g, "mxfp8<32>", n, s.channels),
            "ring": self._state(g, "ring", SLOTS), "main": self._state(g, "main", PAGES),
            "attn.sink": torch.randn(s.heads, generator=g).double()}
        self.values["index"] = self._index(g)
        self.hq = self._product_codes(g) if self.exact else self.reference()[0]

    def _state(self, g: torch.Generator, name: str, count: int) -> State:
        type_ = next(p.type for p in parse_module(self.shapes.text()).functions["slice"].params if p.name == name)
        assert isinstance(type_, StateType)
        records = _records(g, type_.elem, count * type_.capacity, type_.width)
        return State(type_, records.codes, records.scales)

    def _index(self, g: torch.Generator) -> Tensor:
        """A window part that begins with absent keys (a whole block of them in row 0), then records of pages."""
        rows, listed = self.rows, self.shapes.listed
        index = torch.full((rows, listed), -1, dtype=torch.int64)
        window = listed // 5
        for row in range(rows):
            first = window if row == 0 else int(torch.randint(0, window, (), generator=g))
            for i in range(first, listed):
                ring = i < window
                extent = SLOTS * RING if ring else PAGES * RECORDS
                source = RING_SOURCE if ring else PAGE_SOURCE
                index[row, i] = source << OFFSET | int(torch.randint(0, extent, (), generator=g))
            index[row, window - 1] = CURRENT << OFFSET | row
            index[row, listed - 1] = PAGE_SOURCE << OFFSET | (PAGES * RECORDS)  # outside of the pages: absent
        return index

    def _product_codes(self, g: torch.Generator) -> Quantised:
        """Codes of -2 .. 2 and scales 2^0 .. 2^3 that differ from group to group, for both operands of the product."""
        s = self.shapes
        table = torch.tensor([0x00, 0x38, 0x40, 0xB8, 0xC0], dtype=torch.uint8)  # 0, 1, 2, -1, -2

        def make(elem: str, rows: int) -> Quantised:
            codec = CODECS[elem]
            codes = table[torch.randint(0, 5, (rows, s.hidden), generator=g)]
            groups = torch.arange(-(-rows // codec.rows))[:, None] + torch.arange(s.hidden // codec.group)[None, :]
            return Quantised(codes, (127 + groups % 4).to(torch.uint8), codec)

        self.values["attn.wq_a"] = make("wfp8<32x32>", s.rank)
        return make("mxfp8<32>", self.rows)

    def reference(self) -> list[Quantised | Tensor]:
        """(hq, qa, o) by the reference interpreter."""
        module = parse_module(self.shapes.text())
        symbols = {"T": self.rows}
        out = Interpreter(module).run("slice", {k: _fresh(v) for k, v in self.values.items()}, symbols)
        return list(out)  # type: ignore[arg-type]

    def pick(self, rows: Sequence[int]) -> SliceCase:
        """A batch of these rows only; a row sees only its own current key here."""
        where = torch.tensor(list(rows))
        other = SliceCase.__new__(SliceCase)
        other.shapes, other.rows, other.seed, other.exact = self.shapes, len(where), self.seed, self.exact
        other.values = dict(self.values)
        for name in ("x", "q"):
            other.values[name] = self.values[name][where]  # type: ignore[index]
        index = self.values["index"][where].clone()  # type: ignore[index]
        current = self.values["current"]
        assert isinstance(current, Quantised) and isinstance(index, Tensor)
        for new, old in enumerate(where.tolist()):
            index[new][index[new] == old] = new  # source 0
        other.values["index"] = index
        other.values["current"] = Quantised(current.codes[where], current.scales[where], current.codec)
        other.hq = Quantised(self.hq.codes[where], self.hq.scales[where], self.hq.codec)
        return other

    def buffers(self) -> dict[str, Tensor]:
        """Every buffer of the three kernels, by parameter name; results are poisoned."""
        v, s = self.values, self.shapes
        weight, current, ring, main = v["attn.wq_a"], v["current"], v["ring"], v["main"]
        assert isinstance(weight, Quantised) and isinstance(current, Quantised)
        assert isinstance(ring, State) and isinstance(main, State)
        nan = float("nan")
        return {
            "x": v["x"].bfloat16(), "attn_norm_weight": v["attn_norm.weight"].bfloat16(),  # type: ignore[union-attr]
            "hq": self.hq.codes.clone(), "hq_s": self.hq.scales.clone(),
            "attn_wq_a": weight.codes, "attn_wq_a_s": weight.scales,
            "q": v["q"].bfloat16(), "index": _i32(v["index"]),  # type: ignore[union-attr, arg-type]
            "current": current.codes, "current_s": current.scales,
            "ring": torch.cat([ring.data, ring.scales], -1), "main": _pages(main),  # type: ignore[list-item]
            "attn_sink": v["attn.sink"].float(),  # type: ignore[union-attr]
            "qa": torch.full((self.rows, s.rank), nan, dtype=torch.bfloat16),
            "o": torch.full((self.rows, s.heads, s.channels), nan, dtype=torch.bfloat16)}

    def scalars(self) -> dict[str, int]:
        return {"T": self.rows, "slots": SLOTS, "pages": PAGES}

    def check_row(self, out: Mapping[str, Tensor]) -> None:
        """Codes within one step in at most 1e-3 of the elements, scales as many."""
        hq = self.reference()[0]
        assert isinstance(hq, Quantised)
        scales = out["hq_s"].long() != hq.scales.long()
        assert scales.float().mean() <= 1e-3
        same = ~scales.repeat_interleave(hq.codec.group, -1)
        step = (_ordered(out["hq"]) - _ordered(hq.codes)).abs()[same]
        assert step.max() <= 1 and (step > 0).float().mean() <= 1e-3

    def check_matmul(self, out: Mapping[str, Tensor]) -> None:
        weight = self.values["attn.wq_a"]
        assert isinstance(weight, Quantised)
        a, b = self.hq.values(), weight.values()
        ref = a @ b.T
        if self.exact:
            assert torch.equal(out["qa"].double(), ref.float().bfloat16().double())
            return
        bound = 2.0**-8 * ref.abs() + 4 * self.shapes.hidden * 2.0**-24 * (a.abs() @ b.abs().T)
        assert bool(((out["qa"].double() - ref).abs() <= bound).all())

    def check_attend(self, out: Mapping[str, Tensor]) -> None:
        """Probabilities are bf16; an error of a logit is that of its chain of fp32 sums."""
        ref = self.reference()[2]
        assert isinstance(ref, Tensor)
        logit_error = self.shapes.channels * 2.0**-24 * 16
        bound = 2.0**-7 * ref.abs() + (2.0**-8 + 2 * logit_error) * self.magnitude()
        assert bool(((out["o"].double() - ref).abs() <= bound).all())

    def magnitude(self) -> Tensor:
        """sum of p * abs(k) [T, H, d]."""
        absolute = dict(self.values)
        total = torch.zeros(self.rows, self.shapes.heads, self.shapes.channels, dtype=torch.float64)
        stores = [absolute["current"].values(), absolute["ring"].values(), absolute["main"].values()]  # type: ignore[union-attr]
        index, q, sink = absolute["index"], absolute["q"], absolute["attn.sink"]
        assert isinstance(index, Tensor) and isinstance(q, Tensor) and isinstance(sink, Tensor)
        for row in range(self.rows):
            keys = [stores[e >> OFFSET & 3][e & (1 << OFFSET) - 1] for e in index[row].tolist()
                    if e >= 0 and (e & (1 << OFFSET) - 1) < len(stores[e >> OFFSET & 3])]
            k = torch.stack(keys)
            logits = (q[row] @ k.T) * self.shapes.channels**-0.5
            top = torch.maximum(logits.amax(1), sink)
            p = torch.exp(logits - top[:, None])
            total[row] = (p @ k.abs()) / (p.sum(1) + torch.exp(sink - top))[:, None]
        return total


def _codes(g: torch.Generator, elem: str, rows: int, n: int) -> Quantised:
    codec = CODECS[elem]
    codes = torch.randint(0, 120, (rows, n), generator=g) + 128 * torch.randint(0, 2, (rows, n), generator=g)
    scales = 120 + torch.randint(-2, 3, (-(-rows // codec.rows), n // codec.group), generator=g)
    return Quantised(codes.to(torch.uint8), scales.to(torch.uint8), codec)


def _records(g: torch.Generator, elem: str, rows: int, n: int) -> Quantised:
    """Records with values of order one."""
    codec = CODECS[elem]
    if codec.code == "e4m3":
        return _codes(g, elem, rows, n)
    codes = torch.randint(0, 16, (rows, n), generator=g)
    scales = torch.randint(36, 56, (rows, n // codec.group), generator=g)
    return Quantised(codes.to(torch.uint8), scales.to(torch.uint8), codec)


def _pages(main: State) -> Tensor:
    """The state's pages as bytes from the section on, everything outside of it poisoned with 0xFF."""
    type_ = main.type
    out = torch.full((main.records // type_.capacity, type_.page_bytes), 0xFF, dtype=torch.uint8)
    packed = main.data[:, 0::2] | main.data[:, 1::2] << 4
    assert main.scales is not None
    for part, offset in ((packed, 0), (main.scales, type_.scale_offset)):
        flat = part.reshape(len(out), -1)
        out[:, offset:offset + flat.shape[1]] = flat
    return out


def _i32(x: Tensor) -> Tensor:
    return ((x + 2**31) % 2**32 - 2**31).int()


def _ordered(codes: Tensor) -> Tensor:
    """e4m3 codes as integers in the order of their values."""
    magnitude = (codes & 0x7F).long()
    return torch.where(codes >= 128, -magnitude, magnitude)


def _fresh(value: Tensor | Quantised | State) -> Tensor | Quantised | State:
    return value.clone() if isinstance(value, State) else value
