"""The command line: lazily loaded commands, global options, and one place where every error ends.

Exit codes: 0 ok, 1 the user's input, 2 a defect of dinfc, 3 not supported on this target, 130 interrupted.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import click

from dinfc.commands import COMMANDS
from dinfc.diagnostics import DinfcError, report
from dinfc.session import Session

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is wanted, and not for the help text."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        names = {parameter.name for parameter in command.params}
        command.params.extend(option for option in _common_options() if option.name not in names)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"there is no command {args[0]}" + (f"; did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _set(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    """Global options act on the session wherever they stand on the line."""
    session = ctx.ensure_object(Session)
    if value in (None, False):
        return
    if parameter.name == "diagnostics":
        session.diagnostics = "json" if value == "json" else "text"
    else:
        session.verbosity = -1 if parameter.name == "quiet" else 1


def _common_options() -> list[click.Option]:
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="No progress.", expose_value=False, callback=_set),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            help="Progress even without a terminal.",
            expose_value=False,
            callback=_set,
        ),
        click.Option(
            ["--diagnostics"],
            type=click.Choice(["text", "json"]),
            help="Form of errors.",
            expose_value=False,
            callback=_set,
        ),
    ]


cli = LazyGroup(
    name="dinfc",
    help="Compiler for the DeepSeek-V4.1-Flash forward pass.",
    params=[*_common_options()],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`dinfc COMMAND --help` tells more.",
)
click.version_option(package_name="dinfc")(cli)


def run(argv: Sequence[str]) -> int:
    """Runs one command line; returns the exit code.

    SystemExit comes through: click raises it, without a word, when the reader of the output has gone (`| head`).
    """
    session = Session(diagnostics=_wanted_form(argv))
    try:
        result = cli.main(args=list(argv) or ["--help"], prog_name="dinfc", standalone_mode=False, obj=session)
        return result if isinstance(result, int) else 0
    except DinfcError as error:
        report(error, session.diagnostics)
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path.removeprefix("dinfc").strip() if context is not None else ""
        wrapped = DinfcError("E-CLI-001", reason=error.format_message(), command=path + " " if path else "")
        report(wrapped, session.diagnostics)
        return wrapped.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        return _internal(argv, error, session)


def main() -> None:
    """Entry point of the `dinfc` script."""
    sys.exit(run(sys.argv[1:]))


def _internal(argv: Sequence[str], error: Exception, session: Session) -> int:
    from dinfc.repro import describe_error, stderr_traceback, write_repro

    if session.verbosity > 0:
        stderr_traceback(error)
    folder = write_repro(argv, error)
    wrapped = DinfcError("E-INTERNAL-001", reason=describe_error(error), repro=folder)
    report(wrapped, session.diagnostics)
    return wrapped.exit_code


def _wanted_form(argv: Sequence[str]) -> Literal["text", "json"]:
    """The form of errors found while the line is still being parsed."""
    words = list(argv)
    spelled = "--diagnostics=json" in words
    return "json" if spelled or ("--diagnostics", "json") in pairwise(words) else "text"


if __name__ == "__main__":
    main()
