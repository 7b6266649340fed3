"""What the TileLang printers of all devices share: names, buffers, the lines so far, nests of parallel loops.

A printed kernel is one Python module: `import`, the prelude, one `@T.prim_func` named like the program. Extents that
depend on the step are dynamic dims of its tensors (`n_T`); program scalars that no dim shows are int32 parameters
after the tensors.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dinfc.codegen.schedules.device_walk import DeviceError, buffers_of, loads, own_expressions, written
from dinfc.ir.scalar import Expr, walk
from dinfc.ir.tile.program import (
    SCALARS,
    Alloc,
    Buffer,
    Comment,
    Copy,
    Dot,
    Fill,
    For,
    If,
    Let,
    Program,
    Reduce,
    Stmt,
    Store,
    statements,
)

from .tilelang_expr import DTYPES, TileLangPrinter, constant, python_name

Nest = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Leaf:
    """A nest of parallel loops and what is done for each point."""

    nest: Nest
    body: tuple[Stmt, ...]


def leaf_of(s: For) -> Leaf:
    """The chain of parallel loops that begins at `s`. Raises DeviceError for an extent that is not constant."""
    nest: list[tuple[str, int]] = []
    body: tuple[Stmt, ...] = (s,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in ("parallel", "vector"):
        loop = body[0]
        if loop.extent.op != "const" or not isinstance(loop.extent.attr, int):
            raise DeviceError(f"loop {loop.var}: a parallel loop of a device has a constant extent")
        nest.append((loop.var, loop.extent.attr))
        body = loop.body
    return Leaf(tuple(nest), body)


def is_flat(leaf: Leaf) -> bool:
    """Only stores, branches and scalars that read nothing which the leaf writes: a tile operation."""
    changed = written(leaf.body)
    for s in statements(leaf.body):
        if isinstance(s, For | Reduce | Copy | Dot | Fill | Alloc):
            return False
        if isinstance(s, Let) and {str(n.attr) for n in loads(own_expressions(s))} & changed:
            return False
    return True


def signature(program: Program) -> tuple[list[str], list[str], dict[str, str]]:
    """(dynamic dims, parameters, text of each program scalar) of the printed function."""
    dims: dict[str, str] = {}
    scalars: dict[str, str] = {}
    params: list[str] = []
    for p in program.params:
        shape = []
        for number, d in enumerate(p.shape):
            if d.op == "const":
                shape.append(str(d.attr))
                continue
            if number:
                raise DeviceError(f"parameter {p.name}: only the leading dim may depend on the step")
            name = f"n_{d.attr}" if d.op == "var" else f"n_{python_name(p.name)}"
            if d.op == "var":
                scalars[str(d.attr)] = name
            dims[name] = name
            shape.append(name)
        # A size that no dim shows arrives as a scalar below.
        params.append(f'{python_name(p.name)}: T.Tensor(({", ".join(shape)},), "{DTYPES[p.dtype]}")')
    for name in used_scalars(program):
        if name not in scalars:
            scalars[name] = python_name(name)
            params.append(f"{python_name(name)}: T.int32")
    return list(dims), params, scalars


def used_scalars(program: Program) -> list[str]:
    """Program scalars that the grid or the body name, in the order of SCALARS."""
    exprs = [e for _, e in program.grid]
    exprs += [e for s in statements(program.body) for e in own_expressions(s)]
    found = {str(n.attr) for e in exprs for n in walk(e) if n.op == "var"}
    return [name for name in SCALARS if name in found]


def all_expressions(program: Program) -> Iterator[Expr]:
    for s in statements(program.body):
        yield from own_expressions(s)


class TileLangWriter(ABC):
    """Prints the statements of one program."""

    indent = "    "

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = buffers_of(program)
        self.dims, self.params, self.scalar_text = signature(program)
        self.lines: list[str] = []
        self.depth = 0
        self.bound: dict[str, str] = {}  # scalars bound inside the kernel -> their text
        self.fresh: dict[str, str] = {}  # accumulators filled with zeros and not yet multiplied into -> loop around
        self.loops: list[str] = []  # serial loops around the statement
        self.printer = TileLangPrinter(self.load, self.scalar)

    def start(self, s: Fill) -> None:
        """Remembers that the next product into this accumulator clears it."""
        if s.value.op != "const" or s.value.attr != 0:
            raise DeviceError(f"fill {s.buffer}: an accumulator of the matrix unit starts at 0")
        self.fresh[s.buffer] = self.loops[-1] if self.loops else ""

    def clears(self, acc: str) -> str:
        """Condition under which a product here is the first one since its accumulator was filled."""
        since = self.fresh.get(acc)
        if since is None:
            raise DeviceError(f"product into {acc}: nothing fills it before")
        inner = self.loops[self.loops.index(since) + 1:] if since in self.loops else list(self.loops)
        if not inner:
            return "True"
        tests = [f"({name} == 0)" for name in inner]
        return tests[0] if len(tests) == 1 else f"T.And({', '.join(tests)})"

    def line(self, text: str) -> None:
        self.lines.append(self.indent * self.depth + text if text else "")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """`header` and an indented block; an empty one is `pass`."""
        self.line(header)
        self.depth += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1

    def text(self, node: Expr) -> str:
        return self.printer.text(node)

    def scalar(self, name: str) -> str:
        return self.bound.get(name) or self.scalar_text.get(name) or python_name(name)

    def load(self, node: Expr) -> str:
        return self.element(self.buffers[str(node.attr)], node.args)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        return f"{python_name(buffer.name)}[{', '.join(self.text(i) for i in indices) or '0'}]"

    def shape(self, buffer: Buffer) -> str:
        return "(" + "".join(f"{self.text(d)}, " for d in buffer.shape).rstrip() + ")"

    def statement(self, s: Stmt) -> None:
        if isinstance(s, Comment):
            self.line(f"# {s.text}")
        elif isinstance(s, Alloc):
            return  # declared at the top of the kernel
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, Let):
            self.let(s)
        elif isinstance(s, Reduce):
            self.reduce(s)
        elif isinstance(s, Fill):
            self.fill(s)
        elif isinstance(s, Copy):
            self.copy(s)
        elif isinstance(s, Dot):
            self.dot(s)
        elif isinstance(s, If):
            self.branch(s)
        elif s.kind in ("parallel", "vector"):
            self.leaf(leaf_of(s))
        else:
            self.loop(s)

    def branch(self, s: If) -> None:
        with self.block(f"if {self.text(s.cond)}:"):
            for inner in s.then:
                self.statement(inner)
        if s.otherwise:
            with self.block("else:"):
                for inner in s.otherwise:
                    self.statement(inner)

    def put(self, s: Store) -> None:
        """A store, under its condition."""
        place = self.element(self.buffers[s.buffer], s.indices)
        if s.where is None:
            self.line(f"{place} = {self.text(s.value)}")
            return
        with self.block(f"if {self.text(s.where)}:"):
            self.line(f"{place} = {self.text(s.value)}")

    def is_fixed(self, value: Expr) -> bool:
        """True where the value cannot change while the kernel runs: it loads nothing and names no variable cell."""
        nodes = list(walk(value))
        return not any(n.op == "load" or (n.op == "var" and self.bound.get(str(n.attr), "").endswith("[0]"))
                       for n in nodes)

    def combine(self, r: Reduce, a: str, b: str, times: str | None = None) -> str:
        """`a op b`, or fma(b, times, a)."""
        if times is not None:
            return self.printer.call("dinfc_fma", r.value.dtype, [b, times, a])
        if r.op == "sum":
            return f"{a} + {b}"
        if r.value.dtype == "f32":
            return self.printer.call(f"dinfc_{r.op}", "f32", [a, b])
        return f"T.{r.op}({a}, {b})"

    @abstractmethod
    def store(self, s: Store) -> None: ...

    @abstractmethod
    def let(self, s: Let) -> None: ...

    @abstractmethod
    def reduce(self, s: Reduce) -> None: ...

    @abstractmethod
    def fill(self, s: Fill) -> None: ...

    @abstractmethod
    def copy(self, s: Copy) -> None: ...

    @abstractmethod
    def dot(self, s: Dot) -> None: ...

    @abstractmethod
    def leaf(self, leaf: Leaf) -> None: ...

    @abstractmethod
    def loop(self, s: For) -> None: ...


def zero(dtype: str) -> str:
    return constant(Expr("const", (), dtype, 0.0 if dtype in ("f32", "bf16") else 0))
