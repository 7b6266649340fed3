"""What every part of the CPU emitter shares: the program's buffers, the expression printer, and the text so far."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dinfc.ir.scalar import Expr
from dinfc.ir.tile.program import SCALARS, Alloc, Buffer, Program, statements

from .cpu_expr import STORED_TYPES, ExprPrinter, identifier


class Scope:
    """Buffers by name, known non-negative variables, and the lines of the kernel."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers: dict[str, Buffer] = {p.name: p for p in program.params}
        for s in statements(program.body):
            if isinstance(s, Alloc):
                self.buffers[s.buffer.name] = s.buffer
        self.nonnegative: set[str] = set(SCALARS)
        self.printer = ExprPrinter(self.load, self.nonnegative)
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def pragma(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def block(self, header: str, close: str = "}") -> Iterator[None]:
        """`header {` ... `}`, indented."""
        self.line(f"{header} {{" if header else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line(close)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def text(self, node: Expr) -> str:
        return self.printer.text(node)

    def outer(self, node: Expr) -> str:
        return self.printer.outer(node)

    def load(self, node: Expr) -> str:
        """An element of a buffer as a value."""
        return self.read(self.buffers[str(node.attr)], [self.text(i) for i in node.args])

    def read(self, buffer: Buffer, indices: list[str]) -> str:
        """The value at these indices."""
        return self.value(buffer, self.place(buffer, indices, False))

    def write(self, buffer: Buffer, indices: list[str], value: str) -> str:
        """The statement that stores a value at these indices."""
        place = self.place(buffer, indices, True)
        if buffer.dtype == "bf16":
            return f"{place} = dinfc_store_bf16({value});"
        return f"{place} = {value};"

    def value(self, buffer: Buffer, place: str) -> str:
        """The value of a stored element."""
        if buffer.dtype == "bf16":
            return f"dinfc_load_bf16({place})"
        return f"({place} != 0)" if buffer.dtype == "bool" else place

    def place(self, buffer: Buffer, indices: list[str], write: bool) -> str:
        """The stored element; the checked build tests the indices here."""
        return f"{identifier(buffer.name)}[{self.flat(buffer, indices)}]"

    def extents(self, buffer: Buffer) -> list[str]:
        return [self.text(d) for d in buffer.shape]

    def flat(self, buffer: Buffer, indices: list[str]) -> str:
        """Row-major offset. Global buffers may hold more than 2^31 elements: their offsets are computed in 64 bits."""
        return flat_index(self.extents(buffer), indices, buffer.space == "global")

    def stored_type(self, buffer: Buffer) -> str:
        return STORED_TYPES[buffer.dtype]


def flat_index(extents: list[str], indices: list[str], wide: bool) -> str:
    """Horner's rule over the dims, leaving out leading zeros."""
    out = ""
    for extent, index in zip(extents, indices, strict=True):
        if not out or out == "0":
            out = strip_parentheses(index)
            first = True
            continue
        if first and wide and not out.isdigit():
            out = f"(int64_t){atom(out)}"
        product = f"{atom(out)} * {extent}"
        out = product if index == "0" else f"{product} + {strip_sum(index)}"
        first = False
    return out or "0"


def atom(text: str) -> str:
    """Parenthesised unless it already is one operand of a product."""
    simple = text.replace("_", "a").isalnum() or (text.startswith("(int64_t)") and " " not in text)
    return text if simple or (text.startswith("(") and strip_parentheses(text) != text) else f"({text})"


def strip_parentheses(text: str) -> str:
    """Without the one pair of parentheses around the whole, if there is one."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]


def strip_sum(text: str) -> str:
    """A summand: a sum or product in parentheses may lose them; anything else keeps them. Only operators of `+` and `*`
    bind as tightly as the surrounding sum."""
    inner = strip_parentheses(text)
    loose = any(op in inner for op in (" ? ", " << ", " >> ", " & ", " | ", " ^ ", " == ", " != ", " < ", " > ", " && ",
                                       " || ", " <= ", " >= ", " - "))
    return text if loose else inner
