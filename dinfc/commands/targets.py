"""`dinfc targets`: what can be compiled for."""

from __future__ import annotations

import click

from dinfc.target_names import known_targets, target_summary


@click.command("targets")
def command() -> None:
    """List the targets."""
    for name in known_targets():
        click.echo(f"{name:<12} {target_summary(name)}".rstrip())
