"""Tile IR: programs, buffers and statements (design section 7).

A program is a grid of independent instances over symbolic extents. Its body is a tree of statements over buffers, each
with a memory class. Expressions are those of `ir/scalar.py` (leaves `var`, `load`, `const`). A program knows nothing of
dialects: an emitter prints it; nothing about reductions is left to a backend.

Run-time scalars that a program may use as `var`: T rows, S sequences, R logit rows of the step; row0/rows = the part
of the T rows handled by this launch (chunk loops; 0 and T elsewhere); slots, pages = sizes of the state buffers.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..scalar import Expr, const, load

SCALARS = ("T", "S", "R", "row0", "rows", "slots", "pages")
SPACES = ("global", "shared", "near", "accumulator", "scale")


@dataclass(frozen=True)
class Buffer:
    """A buffer: row-major, `shape` = ints or expressions of program scalars (global only).

    `bounds`: [lo, hi) of the values of an integer buffer, as expressions; a gather through it is proven in range by
    them. `mode` (global parameters): in | out | inout.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    space: str = "near"
    mode: str = "in"
    bounds: tuple[Expr, Expr] | None = None

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Expr:
        """`buffer[i, j]`: a load."""
        tup = indices if isinstance(indices, tuple) else (indices,)
        if len(tup) != len(self.shape):
            raise ValueError(f"{self.name} has {len(self.shape)} dims, indexed with {len(tup)}")
        return load(self.name, tuple(const(i) if isinstance(i, int) else i for i in tup), self.dtype)


@dataclass(frozen=True)
class Alloc:
    """Declares a non-global buffer for the rest of the enclosing block; its contents are undefined."""

    buffer: Buffer


@dataclass(frozen=True)
class For:
    """`for var in [0, extent)`. kinds: serial; parallel (iterations independent: spread over threads or lanes on a
    device, free order on the CPU); vector (parallel, constant extent, meant for SIMD lanes); unrolled; pipelined
    (serial, copies of the next iteration may be issued early). `extent` may load from an integer buffer."""

    var: str
    extent: Expr
    kind: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Let:
    """Binds a scalar once: `name: dtype = value`; visible to the end of the block."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Store:
    """`buffer[indices] = value`, only where `where` holds (None: always)."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    where: Expr | None = None


@dataclass(frozen=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class Fill:
    """Sets every element of a buffer."""

    buffer: str
    value: Expr


@dataclass(frozen=True)
class Copy:
    """Copies a tile: `dst[0:shape] = src[offsets : offsets+shape]`, whole `dst`.

    Elements whose source index is outside `[0, limits)` are set to zero; dims with a None limit must provably be
    inside.
    `rows`: gather, the source index of dim 0 is `rows[i]` (a 1-d integer buffer of length shape[0], any space) instead
    of offsets[0]+i; a negative or too large row gives zeros.
    """

    dst: str
    src: str
    offsets: tuple[Expr, ...]
    limits: tuple[Expr | None, ...]
    rows: str | None = None


@dataclass(frozen=True)
class Reduce:
    """Binds `name` to the reduction of `value` (and `times`) over `var` in [0, extent), in a spelled-out order.

    op `sum`: acc = acc + value, or fma(value, times, acc) where `times` is given; op `max`/`min`: acc = op(acc, value).
    Element i belongs to lane i mod `lanes`; every lane starts at `start` and takes its elements in increasing i; then
    the lanes are folded by halving: for s = lanes/2, lanes/4, .., 1: lane[l] = lane[l] op lane[l+s], l < s.
    lanes = 1 is one serial chain. dtype f32 or i32.
    """

    name: str
    op: str
    var: str
    extent: Expr
    value: Expr
    start: Expr
    lanes: int
    times: Expr | None = None


@dataclass(frozen=True)
class Dot:
    """`acc[i, j] = fold over K groups` of a (rows x K) times b (K x cols), a tile-level matrix product.

    For every K group g of `group` elements, in increasing g: chain = 0; for k in the group, increasing:
    chain = fma(A[i, k], B[k, j], chain); then acc[i, j] = fma(chain, sA*sB, acc[i, j]) with scales, or acc + chain
    without. That is the order `fold(group; chain fma)`; a device instruction is another order and says so in `order`.

    `a`: buffer [m, k] at `a_at` (two offsets); `b`: buffer at `b_at`, layout `b_layout`:
      nk   [n, k] row-major           kn   [k, n] row-major
      n16k [n/16, k, 16] (the CPU's packed weights; offsets are (n/16, k, 0))
      n16k4 [n/16, k, 8] bytes, e2m1 codes packed two a byte along n, even n in the low nibble
    `a_codec`/`b_codec`: "" (values: f32 or bf16), e4m3 or e2m1 codes. `a_scale`: buffer [m, k/group] e8m0 bytes or f32
    at `a_scale_at`; `b_scale`: buffer [n/b_scale_rows, k/group] at `b_scale_at`. m, n, k are constants of the tile.

    Offsets count stored elements; leading dims of a buffer (expert, group) are fixed by leading offsets. e2m1 codes in
    `a`, nk and kn are packed two a byte along the last dim, even element in the low nibble, so that dim counts bytes.
    Without one of the scales its factor is 1. `rows`: only the first `rows` rows of the tile exist (None: all m); the
    others are neither read nor written.
    """

    acc: str
    a: str
    a_at: tuple[Expr, ...]
    b: str
    b_at: tuple[Expr, ...]
    m: int
    n: int
    k: int
    group: int
    b_layout: str = "nk"
    a_codec: str = ""
    b_codec: str = ""
    a_scale: str | None = None
    a_scale_at: tuple[Expr, ...] | None = None
    b_scale: str | None = None
    b_scale_at: tuple[Expr, ...] | None = None
    b_scale_rows: int = 1
    order: str = ""
    rows: Expr | None = None


@dataclass(frozen=True)
class Comment:
    """An origin comment; emitters print it."""

    text: str


Stmt = Alloc | For | Let | Store | If | Fill | Copy | Reduce | Dot | Comment


@dataclass(frozen=True)
class Program:
    """One kernel. `grid`: instances, (variable, extent) outermost first; extents use program scalars only.

    `orders`: the order of every reduction inside, as printed text; `functions`: the function set of transcendentals.
    """

    name: str
    anchor: str
    params: tuple[Buffer, ...]
    grid: tuple[tuple[str, Expr], ...]
    body: tuple[Stmt, ...]
    orders: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    functions: str = "dinfc-f32"
    attrs: Mapping[str, int] = field(default_factory=dict)


class TileError(Exception):
    """A structural or semantic error of a tile program; `path` says where inside the printed program."""

    def __init__(self, message: str, statement: Stmt | None = None) -> None:
        super().__init__(message)
        self.statement = statement


def children(statement: Stmt) -> Iterator[Stmt]:
    if isinstance(statement, For):
        yield from statement.body
    elif isinstance(statement, If):
        yield from statement.then
        yield from statement.otherwise


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, parents first."""
    for s in body:
        yield s
        yield from statements(tuple(children(s)))
