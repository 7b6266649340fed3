"""Text of tile programs (text.py) read back: `parse_program(print_program(p)) == p`."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from ..scalar import DTYPES, Expr
from ..scalar_text import ScalarEnv, ScalarSyntaxError, parse_prefix, skip_space
from .program import (
    SCALARS,
    SPACES,
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
)
from .text import KINDS

_WORD = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@]*")
_STORED = re.compile(r"\s*([A-Za-z_@][A-Za-z0-9_.@]*)\[")
_INTEGER = re.compile(r"-?\d+")


class TileSyntaxError(ValueError):
    """Text that is no tile program; the message shows the line with a caret."""

    def __init__(self, message: str, text: str, line: int, position: int) -> None:
        super().__init__(f"line {line}: {message}\n  {text}\n  {' ' * position}^")
        self.line = line


@dataclass
class Line:
    """One line and how far it has been read. `env`: the names that its expressions may use."""

    text: str
    number: int
    env: ScalarEnv
    at: int = 0

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise TileSyntaxError(message, self.text, self.number, self.at if at is None else at)

    def skip(self) -> None:
        self.at = skip_space(self.text, self.at)

    def ends(self) -> bool:
        self.skip()
        return self.at == len(self.text)

    def end(self) -> None:
        if not self.ends():
            self.fail("unexpected text")

    def eat(self, symbol: str) -> bool:
        """Reads a word or a symbol if it comes next."""
        self.skip()
        if not self.text.startswith(symbol, self.at):
            return False
        after = self.at + len(symbol)
        if symbol[-1].isalnum() and after < len(self.text) and (self.text[after].isalnum() or self.text[after] == "_"):
            return False
        self.at = after
        return True

    def expect(self, symbol: str) -> None:
        if not self.eat(symbol):
            self.fail(f"expected {symbol!r}")

    def word(self, what: str) -> str:
        self.skip()
        match = _WORD.match(self.text, self.at)
        if match is None:
            self.fail(f"expected {what}")
        self.at = match.end()
        return match[0]

    def one_of(self, words: tuple[str, ...], what: str) -> str:
        at = self.at
        word = self.word(what)
        if word not in words:
            self.fail(f"{word!r} is no {what}: {', '.join(words)}", at)
        return word

    def integer(self) -> int:
        self.skip()
        match = _INTEGER.match(self.text, self.at)
        if match is None:
            self.fail("expected an integer")
        self.at = match.end()
        return int(match[0])

    def string(self) -> str:
        self.skip()
        try:
            value, end = json.JSONDecoder().raw_decode(self.text, self.at)
        except ValueError:
            self.fail("expected a text in quotes")
        if not isinstance(value, str):
            self.fail("expected a text in quotes")
        self.at = end
        return value

    def expr(self) -> Expr:
        try:
            node, self.at = parse_prefix(self.text, self.at, self.env)
        except ScalarSyntaxError as error:
            self.fail(error.message, error.position)
        return node

    def exprs(self, close: str = "]") -> tuple[Expr, ...]:
        """Comma separated expressions up to `close`, whose opening bracket was read."""
        out: list[Expr] = []
        while not self.eat(close):
            if out:
                self.expect(",")
            out.append(self.expr())
        return tuple(out)

    def place(self) -> tuple[str, tuple[Expr, ...]]:
        """`buffer[i, j]`."""
        at = self.at
        name = self.word("a buffer")
        if name not in self.env.buffers:
            self.fail(f"unknown buffer {name!r}", at)
        self.expect("[")
        return name, self.exprs()

    def buffer(self) -> Buffer:
        """`name: dtype[shape] space`."""
        name = self.word("a name")
        self.expect(":")
        dtype = self.one_of(DTYPES, "dtype")
        self.expect("[")
        shape = self.exprs()
        return Buffer(name, dtype, shape, self.one_of(SPACES, "memory class"))


@dataclass
class Reader:
    """Lines of a program, and the names known so far."""

    lines: list[str]
    at: int = 0
    variables: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SCALARS, "i32"))
    buffers: dict[str, str] = field(default_factory=dict)

    def line(self) -> Line:
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        if self.at == len(self.lines):
            raise TileSyntaxError("the program ends here, a closing brace is missing", "", self.at, 0)
        self.at += 1
        return Line(self.lines[self.at - 1], self.at, ScalarEnv((), self.variables, self.buffers))


def parse_program(text: str) -> Program:
    """The program that the text is. Raises TileSyntaxError."""
    reader = Reader(text.splitlines())
    head = reader.line()
    head.expect("kernel")
    name = head.word("@name").removeprefix("@")
    head.expect("anchor")
    anchor = "" if head.eat("-") else head.word("an anchor class")
    head.expect("functions")
    functions = head.text[head.at :].strip().removesuffix("{").strip()
    if not re.fullmatch(r"[\w.-]+", functions) or not head.text.rstrip().endswith("{"):
        head.fail("expected a function set and an opening brace")
    orders, origin, attrs, params = [], [], {}, []
    grid: list[tuple[str, Expr]] = []
    while True:
        mark = reader.at
        line = reader.line()
        if line.eat("order"):
            orders.append(line.string())
        elif line.eat("origin"):
            origin.append(line.string())
        elif line.eat("attr"):
            key = line.word("a name")
            line.expect("=")
            attrs[key] = line.integer()
        elif line.eat("param"):
            params.append(_param(line))
            reader.buffers[params[-1].name] = params[-1].dtype
        elif line.eat("grid"):
            while not line.ends():
                if grid:
                    line.expect(",")
                variable = line.word("a variable")
                line.expect("in")
                grid.append((variable, line.expr()))
            reader.variables.update((v, "i32") for v, _ in grid)
        else:
            reader.at = mark
            break
        line.end()
    body = _block(reader)[0]
    if any(rest.strip() for rest in reader.lines[reader.at :]):
        reader.line().fail("unexpected text behind the program")
    return Program(name, anchor, tuple(params), tuple(grid), body, tuple(orders), tuple(origin), functions, attrs)


def _param(line: Line) -> Buffer:
    b = line.buffer()
    mode = line.one_of(("in", "out", "inout"), "mode")
    bounds = _bounds(line)
    return Buffer(b.name, b.dtype, b.shape, b.space, mode, bounds)


def _bounds(line: Line) -> tuple[Expr, Expr] | None:
    if not line.eat("bounds"):
        return None
    line.expect("[")
    low = line.expr()
    line.expect(",")
    high = line.expr()
    line.expect(")")
    return low, high


def _block(reader: Reader) -> tuple[tuple[Stmt, ...], Line]:
    """Statements up to the closing brace, and its line (behind the brace an `else` may follow)."""
    outer = dict(reader.variables), dict(reader.buffers)
    out: list[Stmt] = []
    while True:
        line = reader.line()
        if line.eat("}"):
            reader.variables, reader.buffers = outer
            return tuple(out), line
        out.extend(_statement(line, reader))


def _statement(line: Line, reader: Reader) -> Iterator[Stmt]:
    stored = _STORED.match(line.text)
    if stored and stored[1] in reader.buffers:  # first: a buffer may be called `reduce`
        buffer, indices = line.place()
        line.expect("=")
        value = line.expr()
        yield Store(buffer, indices, value, line.expr() if line.eat("where") else None)
        line.end()
        return
    if line.eat("//"):
        yield Comment(line.text[line.at :].removeprefix(" "))
        return
    if line.eat("alloc"):
        b = line.buffer()
        yield Alloc(Buffer(b.name, b.dtype, b.shape, b.space, bounds=_bounds(line)))
        reader.buffers[b.name] = b.dtype
    elif line.eat("let"):
        name = line.word("a name")
        line.expect(":")
        dtype = line.one_of(DTYPES, "dtype")
        line.expect("=")
        at, value = line.at, line.expr()
        if value.dtype != dtype:
            line.fail(f"{name} is {dtype}, the value {value.dtype}", at)
        reader.variables[name] = dtype
        yield Let(name, value)
    elif line.eat("reduce"):
        yield _reduce(line, reader)
    elif line.eat("for"):
        yield _for(line, reader)
        return
    elif line.eat("if"):
        yield _if(line, reader)
        return
    elif line.eat("fill"):
        buffer = line.word("a buffer")
        line.expect("=")
        yield Fill(buffer, line.expr())
    elif line.eat("copy"):
        yield _copy(line)
    elif line.eat("dot"):
        yield _dot(line)
    else:
        line.fail("expected a statement")
    line.end()


def _reduce(line: Line, reader: Reader) -> Reduce:
    name = line.word("a name")
    line.expect("=")
    op = line.one_of(("sum", "max", "min"), "reduction")
    line.expect("over")
    variable = line.word("a variable")
    line.expect("in")
    extent = line.expr()
    line.expect("lanes")
    lanes = line.integer()
    line.expect("start")
    start = line.expr()
    line.expect("of")
    before = reader.variables.get(variable)
    reader.variables[variable] = "i32"
    value = line.expr()
    times = line.expr() if line.eat("times") else None
    if before is None:
        del reader.variables[variable]
    else:
        reader.variables[variable] = before
    reader.variables[name] = value.dtype
    return Reduce(name, op, variable, extent, value, start, lanes, times)


def _for(line: Line, reader: Reader) -> For:
    variable = line.word("a variable")
    line.expect("in")
    extent = line.expr()
    kind = line.one_of(KINDS, "kind of loop")
    line.expect("{")
    line.end()
    before = dict(reader.variables)
    reader.variables[variable] = "i32"
    body, close = _block(reader)
    close.end()
    reader.variables = before
    return For(variable, extent, kind, body)


def _if(line: Line, reader: Reader) -> If:
    cond = line.expr()
    line.expect("{")
    line.end()
    then, close = _block(reader)
    otherwise: tuple[Stmt, ...] = ()
    if close.eat("else"):
        close.expect("{")
        otherwise, close = _block(reader)
    close.end()
    return If(cond, then, otherwise)


def _copy(line: Line) -> Copy:
    target = line.word("a buffer")
    line.expect("=")
    source, offsets = line.place()
    line.expect("limits")
    line.expect("[")
    limits: list[Expr | None] = []
    while not line.eat("]"):
        if limits:
            line.expect(",")
        limits.append(None if line.eat("_") else line.expr())
    return Copy(target, source, offsets, tuple(limits), line.word("a buffer") if line.eat("rows") else None)


def _dot(line: Line) -> Dot:
    acc = line.word("a buffer")
    line.expect("+=")
    a, a_at = line.place()
    line.expect("*")
    b, b_at = line.place()
    sizes = {}
    for key in ("m", "n", "k", "group"):
        line.expect(key)
        sizes[key] = line.integer()
    line.expect("layout")
    layout = line.word("a layout")
    texts = {"a_codec": "", "b_codec": ""}
    for key in texts:
        if line.eat(key):
            texts[key] = line.word("a codec")
    scales: dict[str, tuple[str, tuple[Expr, ...]] | None] = {}
    for key in ("a_scale", "b_scale"):
        scales[key] = line.place() if line.eat(key) else None
    scale_rows = line.integer() if line.eat("b_scale_rows") else 1
    rows = line.expr() if line.eat("rows") else None
    order = line.string() if line.eat("order") else ""
    a_scale, b_scale = scales["a_scale"] or (None, None), scales["b_scale"] or (None, None)
    return Dot(acc, a, a_at, b, b_at, sizes["m"], sizes["n"], sizes["k"], sizes["group"], layout, texts["a_codec"],
               texts["b_codec"], a_scale[0], a_scale[1], b_scale[0], b_scale[1], scale_rows, order, rows)
