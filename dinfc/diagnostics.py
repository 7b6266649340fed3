"""How an error travels and is shown: one exception class over the catalogue, rendered as text or as JSON.

A leaf: imports nothing of dinfc but the catalogue, so that every folder may raise `DinfcError`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dinfc.catalogue import Entry, lookup

_RED, _BOLD, _CYAN, _RESET = "\x1b[31m", "\x1b[1m", "\x1b[36m", "\x1b[0m"


@dataclass(frozen=True)
class Place:
    """Where something is wrong: a file (or the name of an IR function), a 1-based line, and lines to show as they are
    (printed IR with a caret, say)."""

    name: str
    line: int | None = None
    excerpt: str | None = None

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name}:{self.line}"


class DinfcError(Exception):
    """An error of the catalogue.

    `code` is E-AREA-NNN; `fields` fill the entry's templates; `place` says where (a `Place`, a path, or any text).
    Raises KeyError for a code that is not in the catalogue and for a template field that is not given: both are
    defects, found by `tests/unit/test_catalogue.py` without running the raising code.
    """

    def __init__(self, code: str, /, *, place: Place | Path | str | None = None, **fields: object) -> None:
        self.entry: Entry = lookup(code)
        self.fields: Mapping[str, object] = dict(fields)
        self.place: Place | None = place if isinstance(place, Place) or place is None else Place(str(place))
        self.message: str = self.entry.message.format(**fields)
        self.mend: str = self.entry.mend.format(**fields)
        super().__init__(f"{code}: {self.message}" + (f" (at {self.place})" if self.place else ""))

    def __reduce__(self) -> tuple[Callable[..., DinfcError], tuple[str, Place | None, dict[str, object]]]:
        """Errors of worker processes come back whole."""
        return _rebuild, (self.entry.code, self.place, dict(self.fields))

    @property
    def code(self) -> str:
        """E-AREA-NNN."""
        return self.entry.code

    @property
    def exit_code(self) -> int:
        """1 user, 2 internal, 3 unsupported on this target."""
        return self.entry.exit_code


def _rebuild(code: str, place: Place | None, fields: dict[str, object]) -> DinfcError:
    return DinfcError(code, place=place, **fields)


def render_text(error: DinfcError, color: bool = False) -> str:
    """Code and what is wrong; where; how to mend it. No trailing newline."""
    red, bold, cyan, reset = (_RED, _BOLD, _CYAN, _RESET) if color else ("", "", "", "")
    lines = [f"{red}{bold}{error.code}{reset}{bold}: {error.message}{reset}"]
    if error.place is not None:
        lines.append(f"  {cyan}at{reset}   {error.place}")
        if error.place.excerpt:
            lines.extend("    " + line for line in error.place.excerpt.rstrip("\n").split("\n"))
    lines.append(f"  {cyan}mend{reset} {error.mend}")
    return "\n".join(lines)


def render_json(error: DinfcError) -> str:
    """One JSON object on one line: code, area, message, file, line, excerpt, mend, exit_code, fields."""
    place = error.place
    record = {
        "code": error.code,
        "area": error.entry.area,
        "message": error.message,
        "file": place.name if place else None,
        "line": place.line if place else None,
        "excerpt": place.excerpt if place else None,
        "mend": error.mend,
        "exit_code": error.exit_code,
        "fields": {key: str(value) for key, value in error.fields.items()},
    }
    return json.dumps(record, ensure_ascii=False)


def wants_color(stream: TextIO) -> bool:
    """True for a terminal, unless NO_COLOR is set to anything but the empty string."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def report(error: DinfcError, form: str = "text", stream: TextIO | None = None) -> None:
    """Writes the error to `stream` (stderr by default) in `form`: "text" or "json"."""
    out = sys.stderr if stream is None else stream
    print(render_json(error) if form == "json" else render_text(error, wants_color(out)), file=out)
