"""The reader under `ir/parse.py`: positions in the text, words, dims and types."""
from __future__ import annotations

import json
import re
from typing import NoReturn

from .graph import Attr, IRError
from .types import CODECS, Dim, StateType, TensorType, Type, parse_dim

NAME = re.compile(r"[A-Za-z_][\w.]*")
VALUE_NAME = re.compile(r"[A-Za-z_0-9][\w.]*")
INTEGER = re.compile(r"-?\d+")
NUMBER = re.compile(r"-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")
ELEM = re.compile(r"[a-z]\w*(?:<\d+(?:x\d+)?>)?")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
LAYOUT = re.compile(r"\w+")
_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")


class ParseError(IRError):
    """A mistake in IR text; `line` and `column` count from 1."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        before = text[:position]
        self.line = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        self.source = text.splitlines()[self.line - 1] if text.splitlines()[self.line - 1:] else ""

    def render(self) -> str:
        """The message, the line and a caret under the mistake."""
        return f"line {self.line}: {self.args[0]}\n  {self.source}\n  {' ' * (self.column - 1)}^"

    def __str__(self) -> str:
        return self.render()


class Reader:
    """A text and a position in it; white space and `// comments` separate words and mean nothing else."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.skip()

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise ParseError(message, self.text, self.at if at is None else at)

    def done(self) -> bool:
        return self.at >= len(self.text)

    def peek(self, word: str) -> bool:
        if not self.text.startswith(word, self.at):
            return False
        end = self.at + len(word)
        follows = self.text[end] if end < len(self.text) else " "
        return not (word[-1].isalnum() and (follows.isalnum() or follows in "_."))

    def accept(self, word: str) -> bool:
        """Moves past `word` where it is next."""
        if not self.peek(word):
            return False
        self.at += len(word)
        self.skip()
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"expected '{word}'")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(f"expected {what}")
        self.at = found.end()
        self.skip()
        return found.group()

    def integer(self) -> int:
        return int(self.match(INTEGER, "an integer"))

    def value_name(self) -> str:
        """`%name`, without the sign."""
        if not self.text.startswith("%", self.at):
            self.fail("expected a value like '%name'")
        self.at += 1
        return self.match(VALUE_NAME, "a value name")

    def function_name(self) -> str:
        if not self.text.startswith("@", self.at):
            self.fail("expected a name like '@name'")
        self.at += 1
        return self.match(VALUE_NAME, "a name")

    def string(self) -> str:
        start = self.at
        text = self.match(STRING, "a quoted text")
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            self.fail(f"not a text: {error.msg}", start)
        assert isinstance(value, str)
        return value

    def attr(self) -> Attr:
        """An attribute value other than a scalar expression."""
        if self.peek('"'):
            return self.string()
        if self.accept("("):
            return self._list()
        for word, value in (("true", True), ("false", False), ("none", None)):
            if self.accept(word):
                return value
        text = self.match(NUMBER, "an attribute value")
        return int(text) if re.fullmatch(INTEGER, text) else float(text)

    def _list(self) -> tuple[Attr, ...]:
        items: list[Attr] = []
        while not self.accept(")"):
            items.append(self.attr())
            if not self.accept(","):
                self.expect(")")
                break
        return tuple(items)

    def dim(self) -> Dim:
        """A dim: up to the next comma or closing bracket that is not inside parentheses of its own."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if depth == 0 and c in ",])":
                break
            depth += (c == "(") - (c == ")")
            self.at += 1
        try:
            value = parse_dim(self.text[start:self.at])
        except (ValueError, SyntaxError, TypeError, ZeroDivisionError):
            self.fail(f"not a dimension: {self.text[start:self.at].strip()!r}", start)
        self.skip()
        return value

    def type(self) -> Type:
        """A tensor or state type."""
        for kind in ("ring", "pages"):
            if self.accept(f"{kind}<"):
                return self._state(kind)
        start = self.at
        elem = self.match(ELEM, "a type")
        self.expect("[")
        shape: list[Dim] = []
        while not self.accept("]"):
            shape.append(self.dim())
            if not self.accept(","):
                self.expect("]")
                break
        bounds = None
        if self.accept("in"):
            self.expect("[")
            low = self.dim()
            self.expect(",")
            bounds = (low, self.dim())
            self.expect(")")
        layout = self.match(LAYOUT, "a layout") if self.accept("layout") else ""
        sharding = self._sharding() if self.accept("sharded") else ()
        try:
            return TensorType(elem, tuple(shape), bounds, layout, sharding)
        except ValueError as error:
            self.fail(str(error), start)

    def _sharding(self) -> tuple[tuple[str, ...], ...]:
        self.expect("(")
        dims: list[tuple[str, ...]] = []
        while not self.accept(")"):
            if self.accept("-"):
                dims.append(())
            else:
                axes = [self.match(LAYOUT, "a mesh axis")]
                while self.accept("*"):
                    axes.append(self.match(LAYOUT, "a mesh axis"))
                dims.append(tuple(axes))
            if not self.accept(","):
                self.expect(")")
                break
        return tuple(dims)

    def _state(self, kind: str) -> StateType:
        start = self.at
        elem = self.match(ELEM, "an element type")
        if elem not in CODECS and "<" in elem:
            self.fail(f"unknown element type {elem!r}", start)
        self.expect("[")
        width = self.integer()
        self.expect("]")
        numbers = []
        while self.accept(","):
            numbers.append(self.integer())
        self.expect(">")
        if len(numbers) != (1 if kind == "ring" else 4):
            self.fail(f"{kind} has {1 if kind == 'ring' else 4} sizes after its record, got {len(numbers)}", start)
        return StateType(kind, elem, width, *numbers)
