"""Errors in tensor IR as a user sees them: in the file that was read, or inside the printed IR, with a caret."""
from __future__ import annotations

from pathlib import Path

from dinfc.diagnostics import DinfcError, Place
from dinfc.ir.graph import IRError, Module, Op
from dinfc.ir.parse import ParseError, parse_module
from dinfc.ir.text import list_module

CONTEXT_LINES = 2


def read_module(path: Path) -> Module:
    """The module in an IR file. Raises DinfcError E-CLI-005 where there is no such file, E-IR-001 for its mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DinfcError("E-CLI-005", path=path) from None
    try:
        return parse_module(text)
    except ParseError as error:
        excerpt = f"{error.source}\n{' ' * (error.column - 1)}^"
        raise DinfcError("E-IR-001", place=Place(str(path), error.line, excerpt), reason=error.args[0]) from None


def refused(error: IRError, module: Module, where: str) -> DinfcError:
    """The error that a pass or the verifier raised about `module`, shown at its op inside the printed module."""
    place = Place(where)
    if error.op is not None and (found := excerpt_of(error.op, module)):
        place = Place(where, *found)
    return DinfcError("E-IR-002", place=place, reason=str(error))


def excerpt_of(op: Op, module: Module) -> tuple[int, str] | None:
    """Line of an op in the printed module, and the lines around it with a caret; None if the op is not in there."""
    listing = list_module(module)
    if op not in listing.line_of:
        return None
    at = listing.line_of[op]
    line = listing.lines[at]
    column = max(line.find(f"{op.kind}("), 0)
    before = listing.lines[max(0, at - CONTEXT_LINES):at]
    return at + 1, "\n".join([*before, line, " " * column + "^" * len(op.kind)])


