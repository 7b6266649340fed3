"""Types of tensor IR values: elements, codecs, symbolic dims, bounds, layouts, sharding, states (design section 4)."""
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import sympy

from .scalar import DTYPE_BYTES, DTYPES

Dim: TypeAlias = int | sympy.Expr


@dataclass(frozen=True)
class Codec:
    """A quantised format (spec 0.4): codes plus scales form one value.

    `name` fixes scale format and code; `group` = elements a scale covers along the last dim; `rows` = rows it covers
    (32 for W-FP8 blocks, otherwise 1).
    """

    name: str
    code: str  # e4m3 | e2m1
    scale: str  # e8m0 | e4m3
    group: int
    rows: int = 1

    @property
    def bits(self) -> int:
        return 8 if self.code == "e4m3" else 4

    def code_bytes(self, n: int) -> int:
        """Bytes of the codes of n elements (two e2m1 codes a byte, even index in the low nibble)."""
        return n * self.bits // 8

    def record_bytes(self, n: int) -> int:
        """Bytes of one row record of n elements: codes, then scales."""
        return self.code_bytes(n) + n // self.group


CODECS = {
    "mxfp8<32>": Codec("mxfp8<32>", "e4m3", "e8m0", 32),
    "mxfp4<32>": Codec("mxfp4<32>", "e2m1", "e8m0", 32),
    "fp4e4m3<16>": Codec("fp4e4m3<16>", "e2m1", "e4m3", 16),
    "wfp8<32x32>": Codec("wfp8<32x32>", "e4m3", "e8m0", 32, 32),
}


@dataclass(frozen=True)
class TensorType:
    """`elem` is a scalar dtype or a codec name; `bounds` = [lo, hi) of integer values; `layout` = storage order
    (row-major when empty); `sharding` = mesh axes per dim (replicated when empty)."""

    elem: str
    shape: tuple[Dim, ...]
    bounds: tuple[Dim, Dim] | None = None
    layout: str = ""
    sharding: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.elem not in DTYPES and self.elem not in CODECS:
            raise ValueError(f"unknown element type {self.elem!r}")

    @property
    def codec(self) -> Codec | None:
        return CODECS.get(self.elem)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def with_(self, **changes: object) -> TensorType:
        return replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        dims = ", ".join(dim_text(d) for d in self.shape)
        text = f"{self.elem}[{dims}]"
        if self.bounds is not None:
            text += f" in [{dim_text(self.bounds[0])}, {dim_text(self.bounds[1])})"
        if self.layout:
            text += f" layout {self.layout}"
        if any(self.sharding):
            text += " sharded (" + ", ".join("*".join(axes) or "-" for axes in self.sharding) + ")"
        return text


@dataclass(frozen=True)
class StateType:
    """A persistent buffer, threaded through the program as an SSA value.

    kind `ring`: [slots, capacity] records, slot of position p = p mod capacity; kind `pages`: one section of the paged
    cache. In a page of `page_bytes` bytes the section begins at `offset`; its record j has its codes at j * code bytes
    and its scales at `scale_offset` + j * scale bytes, both counted from there. A kernel gets the address of its
    section in page 0, so `offset` matters to the plan of an entry alone, and layers of one kind share kernels.
    `elem`/`width`: record contents (a codec value of `width` elements, or `width` plain scalars).
    """

    kind: str  # ring | pages
    elem: str
    width: int
    capacity: int  # ring: entries a slot; pages: records a page
    page_bytes: int = 0
    offset: int = 0
    scale_offset: int = 0

    @property
    def codec(self) -> Codec | None:
        return CODECS.get(self.elem)

    @property
    def anywhere(self) -> StateType:
        """The same records, wherever the section lies in its page."""
        return replace(self, offset=0)

    @property
    def record_bytes(self) -> int:
        codec = self.codec
        return codec.record_bytes(self.width) if codec else self.width * DTYPE_BYTES[self.elem]

    def __str__(self) -> str:
        text = f"{self.kind}<{self.elem}[{self.width}], {self.capacity}"
        if self.kind == "pages":
            text += f", {self.page_bytes}, {self.offset}, {self.scale_offset}"
        return text + ">"


Type = TensorType | StateType


@dataclass(frozen=True)
class Symbol:
    """A declared dimension symbol with its bounds (inclusive) and divisor."""

    name: str
    lower: int
    upper: int
    divisor: int = 1

    @property
    def sym(self) -> sympy.Symbol:
        return symbol(self.name)


def symbol(name: str) -> sympy.Symbol:
    """The one sympy symbol of that name (positive integer), so that equal names are equal dims."""
    return sympy.Symbol(name, integer=True, positive=True)


@cache
def dim_text(d: Dim) -> str:
    """The text of a dim, without blanks; models have few different ones, and printing sympy expressions is slow."""
    return str(d).replace(" ", "")


_DIM = re.compile(r"^[A-Za-z0-9_+*\-/() ,]*$")


@cache
def parse_dim(text: str) -> Dim:
    """A dim from its text: an int, or an expression over symbols with + - * // and ceiling(), floor()."""
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if not _DIM.match(text):
        raise ValueError(f"not a dimension: {text!r}")
    names = set(re.findall(r"[A-Za-z_]\w*", text)) - {"floor", "ceiling", "Max", "Min"}
    scope: dict[str, object] = {n: symbol(n) for n in names}
    scope |= {"floor": sympy.floor, "ceiling": sympy.ceiling, "Max": sympy.Max, "Min": sympy.Min}
    value = eval(text, {"__builtins__": {}}, scope)
    return simplify_dim(value)


def simplify_dim(d: Dim) -> Dim:
    """An int where the expression is a number."""
    if isinstance(d, int):
        return d
    d = sympy.sympify(d)
    return int(d) if d.is_Integer else d


def dim_value(d: Dim, values: dict[str, int]) -> int:
    """The number a dim has when its symbols take `values`."""
    if isinstance(d, int):
        return d
    return int(d.subs({symbol(k): v for k, v in values.items()}))


def dim_symbols(d: Dim) -> set[str]:
    return set() if isinstance(d, int) else {s.name for s in d.free_symbols}


@dataclass(frozen=True)
class Limits:
    """Upper bounds of the run-time symbols, from model.yaml `limits` (per rank)."""

    max_seqs: int
    max_tokens: int
    max_len: int
    score_bytes: int
    buckets: tuple[int, ...] = field(default=())
