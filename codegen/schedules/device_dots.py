"""Matrix products as a device's tensor unit takes them.

A schedule writes one `Dot` over staged codes and scales. What a unit multiplies differs:

  bf16 units (WGMMA, cube)    both operands bf16: codes are decoded with their scales into bf16 tiles first, which is
                              exact (e4m3 and e2m1 times a power of two have at most 4 significant bits); fp32
                              probabilities are rounded to bf16 (spec 2.9 allows it and the order says so)
  block-scaled units (tcgen05 mxf8f6f4)   e4m3 codes with a scale byte a row and 32 elements: the Dot stays as it is
  NT units (the cube)         b is [n, k]: a `kn` operand is transposed into a tile of its own

An accumulator that other statements write too (the running output of `attend`) is kept apart where the unit's
accumulators are no ordinary registers (tensor memory, L0C): the product goes to a fresh one, which is then added. Where
the unit's memory is short, that is done `part_columns` at a time (device_split.py cuts the accumulator alike).

The result is tile IR; its `Dot`s carry the unit's order text.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dinfc.ir.scalar import Expr, apply, bf16, const, var, walk
from dinfc.ir.tile.program import Alloc, Buffer, Copy, Dot, Fill, For, If, Program, Stmt, Store, statements

from .device_walk import Body, DeviceError, buffers_of, map_bodies, own_expressions, rewrite, sizes

ZERO = (const(0), const(0))


@dataclass(frozen=True)
class TensorUnit:
    """A device's matrix unit.

    `order`: text of the chain along K of one product; `scaled`: it multiplies e4m3 codes with e8m0 scales itself;
    `nt_only`: b must be [n, k]; `registers`: its accumulators are ordinary registers, otherwise at most `part_columns`
    columns of a product are added to another accumulator at once (0: all); `whole`: products come back to memory as a
    whole, for reads in any order; `branches`: products may stand under a computed condition.
    """

    order: str
    scaled: bool = False
    nt_only: bool = False
    registers: bool = True
    part_columns: int = 0
    whole: bool = False
    branches: bool = True


def realise_dots(program: Program, unit: TensorUnit) -> Program:
    """The program with every Dot as the unit takes it. Raises DeviceError for operands that no rule serves."""
    rules = _Rules(unit, buffers_of(program), _stored(program))
    body = map_bodies(program.body, rules.block)
    return replace(program, body=(*(Alloc(b) for b in rules.made.values()), *body))


def _stored(program: Program) -> frozenset[str]:
    """Buffers that plain stores write."""
    return frozenset(s.buffer for s in statements(program.body) if isinstance(s, Store))


@dataclass
class _Rules:
    unit: TensorUnit
    buffers: Mapping[str, Buffer]
    stored: frozenset[str]
    made: dict[str, Buffer] = field(default_factory=dict)

    def block(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            out += self.dot(s) if isinstance(s, Dot) else [s]
        return tuple(out)

    def dot(self, d: Dot) -> list[Stmt]:
        """Statements that prepare the operands, and the product."""
        out: list[Stmt] = []
        scaled = self.unit.scaled and d.a_codec == d.b_codec == "e4m3" and d.group == 32 and d.a_scale is not None
        if not scaled:
            a, first = self.operand(d, d.a, d.a_at, d.a_codec, d.a_scale, d.m, 1)
            if d.b_layout not in ("nk", "kn"):
                raise DeviceError(f"product into {d.acc}: layout {d.b_layout} of {d.b} is no layout of this unit")
            n, k = (d.n, d.k) if d.b_layout == "nk" else (d.k, d.n)
            b, second = self.operand(d, d.b, d.b_at, d.b_codec, d.b_scale, n, d.b_scale_rows)
            out += [*first, *second]
            layout = d.b_layout
            if layout == "kn" and self.unit.nt_only:
                turned = self.make(b + "_t", "bf16", k, n)
                i, j = var("turn_i"), var("turn_j")
                out.append(_nest((("turn_i", k), ("turn_j", n)), Store(
                    turned.name, (i, j), _load(self.buffer(b), j, i))))
                b, layout = turned.name, "nk"
            d = Dot(d.acc, a, ZERO, b, ZERO, d.m, d.n, d.k, d.k, layout)
        d = replace(d, order=self.unit.order)
        if self.unit.registers or d.acc not in self.stored:
            return [*out, d]
        width = min(self.unit.part_columns or d.n, d.n)
        if d.n % width:
            raise DeviceError(f"product into {d.acc}: {d.n} columns are not whole parts of {width}")
        part = self.make(d.acc + "_part", "f32", d.m, width, space="accumulator")
        i, j = var("part_i"), var("part_j")
        acc = self.buffers[d.acc]
        for column in range(0, d.n, width):
            at = (const(column), const(0)) if d.b_layout == "nk" else (const(0), const(column))
            added = apply("add", _load(acc, i, j + column), _load(part, i, j))
            out += [Fill(part.name, const(0.0)), replace(d, acc=part.name, b_at=at, n=width),
                    _nest((("part_i", d.m), ("part_j", width)), Store(acc.name, (i, j + column), added))]
        return out

    def buffer(self, name: str) -> Buffer:
        return self.made.get(name) or self.buffers[name]

    def operand(self, d: Dot, name: str, at: tuple[Expr, ...], codec: str, scale: str | None, rows: int,
                scale_rows: int) -> tuple[str, list[Stmt]]:
        """(name of a bf16 tile with the operand's values, statements that fill it)."""
        source = self.buffers[name]
        shape = sizes(source)
        if tuple(at) != ZERO or shape[0] != rows:
            raise DeviceError(f"product into {d.acc}: {name} must be multiplied as a whole tile")
        if source.dtype == "bf16" and not codec:
            return name, []
        width = shape[1] * (2 if codec == "e2m1" else 1)
        tile = self.make(name + "_bf16", "bf16", rows, width)
        i, k = var("dec_i"), var("dec_k")
        if not codec:
            return tile.name, [_nest((("dec_i", rows), ("dec_k", width)), Store(
                tile.name, (i, k), bf16(_load(source, i, k))))]
        factor = self.factor(scale, d.group, scale_rows)

        def value(byte: Expr, element: Expr) -> Expr:
            code = apply(f"{codec}_decode", byte)
            scaled = factor(i, element)
            return bf16(code if scaled is None else code * scaled)

        if codec == "e4m3":
            stores = [Store(tile.name, (i, k), value(_load(source, i, k), k))]
        else:
            byte = _load(source, i, k)
            stores = [Store(tile.name, (i, k * 2), value(byte & const(15, "u8"), k * 2)),
                      Store(tile.name, (i, k * 2 + 1), value(byte >> const(4, "u8"), k * 2 + 1))]
        return tile.name, [_nest((("dec_i", rows), ("dec_k", shape[1])), *stores)]

    def factor(self, scale: str | None, group: int, rows: int) -> Callable[[Expr, Expr], Expr | None]:
        """The scale of an element, as an expression of its row and column."""
        if scale is None:
            return lambda i, k: None
        buffer = self.buffers[scale]

        def at(i: Expr, k: Expr) -> Expr:
            stored = _load(buffer, i // rows, k // group)
            return stored if buffer.dtype == "f32" else apply("e8m0_decode", stored)

        return at

    def make(self, name: str, dtype: str, *shape: int, space: str = "shared") -> Buffer:
        """A buffer of this name; products that need the same one share it."""
        made = Buffer(name, dtype, tuple(const(n) for n in shape), space)
        if name in self.buffers or self.made.get(name, made) != made:
            raise DeviceError(f"two buffers would be called {name}")
        self.made[name] = made
        return made


def _load(buffer: Buffer, *indices: Expr) -> Expr:
    return buffer[tuple(indices)]


def _nest(loops: tuple[tuple[str, int], ...], *body: Stmt) -> Stmt:
    inner: Body = body
    for name, extent in reversed(loops):
        inner = (For(name, const(extent), "parallel", inner),)
    return inner[0]


def mirror_accumulators(program: Program) -> Program:
    """Accumulators that are read other than element by element of their own tile get a copy in shared memory, made
    after every product: which thread holds which element of an accumulator is the unit's business.

    Raises DeviceError where such an accumulator is also written by plain stores.
    """
    buffers = buffers_of(program)
    scattered = _scattered(program.body, buffers, ())
    if not scattered:
        return program
    if both := scattered & _stored(program):
        raise DeviceError(f"accumulator {min(both)} is read out of order and also written element by element")
    mirrors = {name: replace(buffers[name], name=name + "_sh", space="shared") for name in sorted(scattered)}

    def change(e: Expr) -> Expr:
        if e.op == "load" and e.attr in mirrors:
            return Expr("load", tuple(change(a) for a in e.args), e.dtype, mirrors[str(e.attr)].name)
        return e if not e.args else Expr(e.op, tuple(change(a) for a in e.args), e.dtype, e.attr)

    def block(body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            out.append(s)
            if isinstance(s, Dot) and s.acc in mirrors:
                out.append(Copy(mirrors[s.acc].name, s.acc, ZERO, (None, None)))
        return tuple(out)

    body = map_bodies(tuple(rewrite(s, change) for s in program.body), block)
    return replace(program, body=(*(Alloc(b) for b in mirrors.values()), *body))


def _scattered(body: Body, buffers: Mapping[str, Buffer], nest: tuple[tuple[str, int], ...]) -> set[str]:
    """Accumulators with a read whose indices are not exactly the variables of the parallel nest around it."""
    out: set[str] = set()
    for s in body:
        for e in own_expressions(s):
            for n in _loads(e):
                buffer = buffers[n]
                if buffer.space == "accumulator" and not (isinstance(s, Store) and _whole(e, buffer, nest)):
                    out.add(n)
        if isinstance(s, For):
            more = (s.var, int(s.extent.attr)) if s.kind == "parallel" and s.extent.op == "const" else None  # type: ignore[arg-type]
            out |= _scattered(s.body, buffers, (*nest, more) if more else ())
        elif isinstance(s, If):
            out |= _scattered(s.then, buffers, nest) | _scattered(s.otherwise, buffers, nest)
    return out


def _loads(e: Expr) -> list[str]:
    return [str(n.attr) for n in walk(e) if n.op == "load"]


def _whole(e: Expr, buffer: Buffer, nest: tuple[tuple[str, int], ...]) -> bool:
    wanted = tuple(var(name) for name, _ in nest)
    if tuple(extent for _, extent in nest) != sizes(buffer):
        return False
    return all(n.args == wanted for n in walk(e) if n.op == "load" and n.attr == buffer.name)
