"""`dinfc synth`: a synthetic checkpoint in Hugging Face form."""

from __future__ import annotations

from pathlib import Path

import click

from dinfc.diagnostics import DinfcError
from dinfc.session import Session


@click.command("synth")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to create.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same bytes.")
@click.option("--shard-size", default="2GiB", show_default=True, help="Largest file; at least two are written.")
@click.option("--no-vision", is_flag=True, help="Leave out vision.* and aligner.*.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="tokenizer.json to copy; its token map is used.")
@click.pass_obj
def command(
    session: Session, config: Path, output: Path, seed: int, shard_size: str, no_vision: bool, tokenizer: Path | None
) -> None:
    """Write random weights with the names, shapes and number formats of a real checkpoint of CONFIG (config.json)."""
    from dinfc.frontend.synth import synthesize
    from dinfc.frontend.yaml_schema import parse_size

    try:
        shard_bytes = parse_size(shard_size)
    except ValueError:
        shard_bytes = 0
    if shard_bytes <= 0:
        raise DinfcError("E-CLI-003", option="--shard-size", value=shard_size)
    with session.phase(f"wrote {output}"):
        synthesize(
            config,
            output,
            seed,
            shard_bytes=shard_bytes,
            vision=not no_vision,
            tokenizer=tokenizer,
            progress=session.say,
        )
