"""Golden kernels: `tests/golden/NAME.tir` beside what the CPU emitter prints for it, `NAME.cc` and `NAME.checked.cc`.

The text is that of both instruction sets: what differs lies in the headers.
"""
from __future__ import annotations

from pathlib import Path

from dinfc.codegen.emit.cpu import emit_source
from dinfc.ir.tile.parse import parse_program

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def golden_files() -> list[Path]:
    """The files that the emitter's text is compared with."""
    return [p.with_suffix(ending) for p in sorted(FOLDER.glob("*.tir")) for ending in (".cc", ".checked.cc")]


def printed(path: Path) -> str:
    """What the emitter prints now for one of them."""
    name = path.name.split(".")[0]
    program = parse_program((FOLDER / f"{name}.tir").read_text(encoding="utf-8"))
    return emit_source([program], checked=path.name.endswith(".checked.cc"))
