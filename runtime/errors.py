"""Errors that a user of a package can meet: one exception over `catalogue.json`, rendered as text or as JSON."""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

CATALOGUE_FILE = "catalogue.json"
EXIT_USER, EXIT_INTERNAL = 1, 2

Catalogue = Mapping[str, Mapping[str, str | int]]


class RuntimeFault(Exception):
    """An error of the catalogue: `code` is E-AREA-NNN, `fields` fill the entry's templates, `place` says where."""

    def __init__(self, code: str, *, place: Path | str | None = None, **fields: object) -> None:
        self.code = code
        self.place = None if place is None else str(place)
        self.fields: Mapping[str, object] = dict(fields)
        details = ", ".join(f"{key}={value}" for key, value in fields.items())
        super().__init__(f"{code}: {details}" + (f" (at {self.place})" if self.place else ""))


def load_catalogue(root: Path) -> Catalogue:
    """The texts that the package at `root` carries; empty where the file is missing or damaged, so that an error can
    still be told by its code."""
    try:
        loaded = json.loads((root / CATALOGUE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def exit_code(fault: RuntimeFault, catalogue: Catalogue) -> int:
    """1 the user's input, 2 a defect, 3 not supported on this machine."""
    return int(catalogue.get(fault.code, {}).get("exit_code", EXIT_USER))


def texts(fault: RuntimeFault, catalogue: Catalogue) -> tuple[str, str]:
    """What is wrong, and how to mend it."""
    entry = catalogue.get(fault.code)
    if entry is None:
        return ", ".join(f"{key}: {value}" for key, value in fault.fields.items()), "compile the package again"
    return str(entry["message"]).format(**fault.fields), str(entry["mend"]).format(**fault.fields)


def render(fault: RuntimeFault, catalogue: Catalogue, form: str = "text") -> str:
    """The error in `form` "text" or "json" (one line, the fields of `dinfc --diagnostics json`)."""
    message, mend = texts(fault, catalogue)
    if form == "json":
        return json.dumps({
            "code": fault.code, "area": fault.code.split("-")[1], "message": message, "file": fault.place, "line": None,
            "excerpt": None, "mend": mend, "exit_code": exit_code(fault, catalogue),
            "fields": {key: str(value) for key, value in fault.fields.items()},
        }, ensure_ascii=False)
    lines = [f"{fault.code}: {message}"]
    if fault.place:
        lines.append(f"  at   {fault.place}")
    lines.append(f"  mend {mend}")
    return "\n".join(lines)
