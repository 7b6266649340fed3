"""Statements that the fast and the checked build print alike; `cpu_fast.py` and `cpu_checked.py` add the others."""
from __future__ import annotations

import math
from abc import ABC, abstractmethod

from dinfc.ir.tile.program import Alloc, Buffer, Comment, Copy, Dot, Fill, For, If, Let, Reduce, Stmt, Store

from .cpu_expr import CPP_TYPES, EmitError, identifier
from .cpu_scope import Scope

LARGE_BYTES = 128 * 1024  # scratch above this is thread-local: worker stacks are a few MiB
WIDTHS = {"uint8_t": 1, "uint16_t": 2, "int64_t": 8}


class Emitter(ABC):
    """Prints statements into a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @abstractmethod
    def param(self, number: int, buffer: Buffer) -> None:
        """Declares the pointer of a param."""

    @abstractmethod
    def alloc(self, buffer: Buffer) -> None: ...

    @abstractmethod
    def fill(self, s: Fill) -> None: ...

    @abstractmethod
    def copy(self, s: Copy) -> None: ...

    @abstractmethod
    def reduce(self, s: Reduce) -> None: ...

    @abstractmethod
    def dot(self, s: Dot) -> None: ...

    def statement(self, s: Stmt) -> None:
        if isinstance(s, Comment):
            self.scope.line(f"// {s.text}")
        elif isinstance(s, Alloc):
            self.scope.buffers[s.buffer.name] = s.buffer  # blocks beside each other may use a name twice
            self.alloc(s.buffer)
        elif isinstance(s, Let):
            self.let(s)
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, If):
            self.branch(s)
        elif isinstance(s, Fill):
            self.fill(s)
        elif isinstance(s, Copy):
            self.copy(s)
        elif isinstance(s, Reduce):
            self.reduce(s)
        else:
            self.dot(s)

    def let(self, s: Let) -> None:
        scope = self.scope
        if scope.printer.is_nonnegative(s.value):
            scope.nonnegative.add(s.name)
        else:
            scope.nonnegative.discard(s.name)
        scope.line(f"const {CPP_TYPES[s.value.dtype]} {identifier(s.name)} = {scope.outer(s.value)};")

    def store(self, s: Store) -> None:
        scope, buffer = self.scope, self.scope.buffers[s.buffer]
        guard = "" if s.where is None else f"if ({scope.outer(s.where)}) "
        scope.line(guard + scope.write(buffer, [scope.text(i) for i in s.indices], scope.outer(s.value)))

    def loop(self, s: For) -> None:
        var = identifier(s.var)
        self.scope.nonnegative.add(s.var)
        self.block(f"for (int {var} = 0; {var} < {self.scope.text(s.extent)}; ++{var})", s.body)

    def block(self, header: str, body: tuple[Stmt, ...]) -> None:
        with self.scope.block(header):
            for inner in body:
                self.statement(inner)

    def branch(self, s: If) -> None:
        scope = self.scope
        with scope.block(f"if ({scope.outer(s.cond)})", "} else {" if s.otherwise else "}"):
            for inner in s.then:
                self.statement(inner)
        if s.otherwise:
            with scope.indented():
                for inner in s.otherwise:
                    self.statement(inner)
            scope.line("}")


def element_count(buffer: Buffer) -> int:
    """Elements of a near buffer, whose dims are constants."""
    sizes = [d.attr for d in buffer.shape]
    if not all(isinstance(n, int) for n in sizes):
        raise EmitError(f"buffer {buffer.name}: only global buffers may have symbolic dims")
    return math.prod(int(n) for n in sizes if n is not None)


def declare_scratch(scope: Scope, buffer: Buffer) -> None:
    """A stack array, or a thread-local one where it is large."""
    ctype = scope.stored_type(buffer)
    large = element_count(buffer) * WIDTHS.get(ctype, 4) > LARGE_BYTES
    extent = " * ".join(scope.extents(buffer)) or "1"
    scope.line(f"alignas(64) {'static thread_local ' if large else ''}{ctype} {identifier(buffer.name)}[{extent}];")
