"""`dinfc explain`: what an error code means."""

from __future__ import annotations

import difflib

import click

from dinfc.catalogue import CATALOGUE, explain
from dinfc.diagnostics import DinfcError


@click.command("explain")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Explain error CODE (E-AREA-NNN), or list all codes."""
    if code is None:
        for known, entry in sorted(CATALOGUE.items()):
            click.echo(f"{known:<16} {entry.title}")
        return
    wanted = code.upper()
    if wanted not in CATALOGUE:
        close = difflib.get_close_matches(wanted, list(CATALOGUE), n=1)
        hint = f"did you mean {close[0]}?" if close else "`dinfc explain` lists all codes"
        raise DinfcError("E-CLI-002", code=code, hint=hint)
    click.echo(explain(wanted))
