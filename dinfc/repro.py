"""The folder that an internal error leaves behind: all that is needed to see it again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from dinfc import host

MAX_INPUT_BYTES = 2**20  # larger files (weights) are only named
_INPUTS = (".yaml", ".yml", ".json", ".ir", ".tir", ".txt")


def write_repro(argv: Sequence[str], error: BaseException, parent: Path | None = None) -> Path:
    """Writes command line, versions, traceback and the small text files that `argv` names; returns the folder.

    It lies in `parent` (default: the working directory), or among the temporary files where that is not writable.
    """
    name = f"dinfc-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder = (parent or Path.cwd()) / name
    try:
        folder.mkdir(parents=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=name + "-"))
    versions = [f"{package} {host.package_version(package)}" for package in ("dinfc", "torch", "tilelang", "numpy")]
    about = [host.describe(), f"host isa: {host.host_isa()}", *versions, f"working directory: {Path.cwd()}"]
    (folder / "about.txt").write_text("\n".join(about) + "\n", encoding="utf-8")
    (folder / "command.sh").write_text(f"#!/bin/sh\n{shlex.join(['dinfc', *argv])}\n", encoding="utf-8")
    text = "".join(traceback.format_exception(error))
    (folder / "traceback.txt").write_text(text, encoding="utf-8")
    for number, path in enumerate(_named_files(argv)):
        shutil.copyfile(path, folder / f"input-{number}-{path.name}")
    return folder


def _named_files(argv: Sequence[str]) -> list[Path]:
    """Small text files on the command line, and the config.json that a model.yaml names."""
    found = [Path(word) for word in argv if word.endswith(_INPUTS)]
    for path in [p for p in found if p.suffix in (".yaml", ".yml") and p.is_file()]:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "config":
                found.append(path.parent / value.split("#")[0].strip())
    return [p for p in dict.fromkeys(found) if p.is_file() and p.stat().st_size <= MAX_INPUT_BYTES]


def describe_error(error: BaseException) -> str:
    """One line: the exception and the innermost line of code it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    first = str(error).split("\n")[0]
    return f"{type(error).__name__}: {first}{where}" if first else f"{type(error).__name__}{where}"


def stderr_traceback(error: BaseException) -> None:
    """Prints the traceback; only for `-v`."""
    traceback.print_exception(error, file=sys.stderr)
