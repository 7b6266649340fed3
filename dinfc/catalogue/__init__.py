"""The one catalogue of errors: every text a user can be shown when something is wrong.

To add an error, append one `Entry` to the tuple of its area's file here and raise it with
`DinfcError("E-AREA-NNN", place=..., field=...)`. Nothing in this folder imports anything else of dinfc.
The runtime must not import dinfc; the package writer dumps `runtime_slice()` as JSON beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dinfc.catalogue.checkpoint import ENTRIES as _CHECKPOINT
from dinfc.catalogue.command import ENTRIES as _COMMAND
from dinfc.catalogue.compiler import ENTRIES as _COMPILER
from dinfc.catalogue.config import ENTRIES as _CONFIG
from dinfc.catalogue.entry import AREAS, EXIT_INTERNAL, EXIT_UNSUPPORTED, EXIT_USER, Entry
from dinfc.catalogue.model_yaml import ENTRIES as _MODEL_YAML
from dinfc.catalogue.run import ENTRIES as _RUN

__all__ = [
    "AREAS",
    "CATALOGUE",
    "EXIT_INTERNAL",
    "EXIT_UNSUPPORTED",
    "EXIT_USER",
    "Entry",
    "explain",
    "lookup",
    "runtime_slice",
]

RUNTIME_AREAS: Final = ("RUN", "CKPT", "PLAN")


def _index(*tables: tuple[Entry, ...]) -> Mapping[str, Entry]:
    """code -> entry; raises ValueError if a code occurs twice (two people took the same number)."""
    index: dict[str, Entry] = {}
    for table in tables:
        for entry in table:
            if entry.code in index:
                raise ValueError(f"error code {entry.code} is in the catalogue twice")
            index[entry.code] = entry
    return MappingProxyType(index)


CATALOGUE: Final[Mapping[str, Entry]] = _index(_MODEL_YAML, _CONFIG, _CHECKPOINT, _COMPILER, _RUN, _COMMAND)


def lookup(code: str) -> Entry:
    """The entry of `code`. Raises KeyError for a code that does not exist."""
    return CATALOGUE[code]


def explain(code: str) -> str:
    """The explanation that `dinfc explain CODE` prints. Raises KeyError for a code that does not exist."""
    entry = lookup(code)
    kind = {EXIT_USER: "your input", EXIT_INTERNAL: "a defect of dinfc", EXIT_UNSUPPORTED: "not supported here"}
    lines = [
        f"{entry.code}: {entry.title}",
        f"  area:      {AREAS[entry.area]}",
        f"  says:      {entry.message}",
        f"  mend:      {entry.mend}",
        f"  exit code: {entry.exit_code} ({kind[entry.exit_code]})",
    ]
    return "\n".join([*lines, "", entry.why] if entry.why else lines)


def runtime_slice() -> dict[str, dict[str, str | int]]:
    """The part of the catalogue that a package carries: areas RUN, CKPT and PLAN, ready for `json.dumps`."""
    return {
        code: {"title": e.title, "message": e.message, "mend": e.mend, "why": e.why, "exit_code": e.exit_code}
        for code, e in sorted(CATALOGUE.items())
        if e.area in RUNTIME_AREAS
    }
