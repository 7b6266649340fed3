"""One module a command. To add one:

1. write `dinfc/commands/NAME.py` with a `click.Command` named `command` (see `synth.py`); take options as
   `click.Path(path_type=Path)` and the like, without `exists=True`, and raise `DinfcError` for what is wrong;
2. add its line to `COMMANDS` below.

A module is imported only when its command runs, so `dinfc --help` stays fast; its own heavy imports (torch) may still
go inside the function. `@click.pass_obj` gives the `Session`; -q, -v and --diagnostics are added to every command.
Exit code, error text and the folder for internal errors are `dinfc.cli`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# name -> (module, one line for `dinfc --help`), in the order of the help text
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "synth": ("dinfc.commands.synth", "write a synthetic checkpoint for a config.json"),
    "compile": ("dinfc.commands.compile", "compile a model.yaml into a package"),
    "interpret": ("dinfc.commands.interpret", "score texts with the reference interpreter"),
    "targets": ("dinfc.commands.targets", "list the targets"),
    "doctor": ("dinfc.commands.doctor", "show what this machine offers to the compiler"),
    "emit-slice": ("dinfc.commands.emit", "write three kernels in a device dialect"),
    "opt": ("dinfc.commands.opt", "run passes on a tensor IR file"),
    "explain": ("dinfc.commands.explain", "explain an error code"),
}
