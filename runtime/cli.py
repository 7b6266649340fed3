"""The command line of a package: `python PACKAGE generate|score|bench|check|info`."""
from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from . import command_bench, command_check, command_generate, command_info, command_score
from .errors import EXIT_INTERNAL, RuntimeFault, exit_code, load_catalogue, render

Command = Callable[[Path, argparse.Namespace], None]

COMMANDS: Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], Command, str]] = {
    "generate": (command_generate.options, command_generate.run, "continue a prompt"),
    "score": (command_score.options, command_score.run, "logits of every position of given texts"),
    "bench": (command_bench.options, command_bench.run, "tokens a second, prefill and decode"),
    "check": (command_check.options, command_check.run, "self test: files, invariance, fast against checked build"),
    "info": (command_info.options, command_info.run, "what this package is and needs"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of the catalogue."""

    def error(self, message: str) -> NoReturn:
        words = self.prog.split()
        raise RuntimeFault("E-RUN-017", reason=message, command=f"{words[-1]} " if len(words) > 1 else "")


def parser() -> Parser:
    """All commands with their options."""
    top = Parser(prog="PACKAGE", description="A compiled model. Every command tells its options with --help.")
    top.set_defaults(diagnostics="text")
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")
    for name, (options, _, text) in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=text)
        options(one)
        one.add_argument("--diagnostics", choices=("text", "json"), default="text", help="form of error messages")
    return top


def main(root: Path, arguments: Sequence[str]) -> int:
    """Runs a command of the package at `root`; returns the exit code (0, 1 user, 2 defect, 3 not supported here)."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode still gets what was generated
        sys.stdout.reconfigure(errors="backslashreplace")
    form = "json" if "--diagnostics=json" in arguments or {"--diagnostics", "json"} <= set(arguments) else "text"
    try:
        given = parser().parse_args(list(arguments))
        form = given.diagnostics
        COMMANDS[given.command][1](root, given)
        sys.stdout.flush()
    except RuntimeFault as fault:
        catalogue = load_catalogue(root)
        print(render(fault, catalogue, form), file=sys.stderr)
        return exit_code(fault, catalogue)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        print("this is a defect of the package: report it with the text above", file=sys.stderr)
        return EXIT_INTERNAL
    return 0
