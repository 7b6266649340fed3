"""Output folders that appear complete or not at all. A leaf: imports only the diagnostics."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dinfc.diagnostics import DinfcError


def check_vacant(path: Path) -> None:
    """Raises DinfcError E-BUILD-002 or 003 unless `path` is free for `fresh_folder`. Touches nothing."""
    if path.is_dir():
        if any(path.iterdir()):
            raise DinfcError("E-BUILD-002", path=path)
    elif path.exists() or path.is_symlink():
        raise DinfcError("E-BUILD-003", path=path)


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """A new folder to write into; it becomes `path` when the block ends, and disappears if the block raises.

    `path` must not exist or be an empty folder. Raises DinfcError: E-BUILD-002 (not empty), 003 (a file),
    004 (not writable).
    """
    check_vacant(path)
    path = path.absolute()
    work = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()
    except OSError as error:
        raise DinfcError("E-BUILD-004", path=path, reason=error.strerror) from None
    try:
        yield work
        work.replace(path)  # also over an empty folder
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
