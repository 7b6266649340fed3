"""`dinfc interpret`: logits by the reference interpreter (mode R64), in the format of a package's `score`."""

from __future__ import annotations

from pathlib import Path

import click

from dinfc.diagnostics import DinfcError
from dinfc.session import Session


@click.command("interpret")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--weights", type=click.Path(path_type=Path), required=True, help="Checkpoint folder.")
@click.option("--ids", type=click.Path(path_type=Path), required=True, help="JSON: a list of token id lists.")
@click.option("--logits", type=click.Path(path_type=Path), required=True, help="Safetensors file to write.")
@click.option("--chunks", default="", metavar="N,N", help="Chunk sizes, repeated cyclically, for each text anew.")
@click.pass_obj
def command(session: Session, model: Path, weights: Path, ids: Path, logits: Path, chunks: str) -> None:
    """Score the texts of --ids with the reference interpreter: MODEL is a model.yaml.

    Every operation in fp64, rounded where the specification rounds: exact, and slow.
    """
    from dinfc.frontend.model_yaml import load_model_yaml
    from dinfc.host import host_isa
    from dinfc.interpret import check_writable, load_reference, read_texts, score, write_logits
    from dinfc.target_names import known_targets

    sizes = [int(p) for p in chunks.split(",") if p.strip().isdigit()] if chunks else []
    if chunks and (len(sizes) != len(chunks.split(",")) or 0 in sizes):
        raise DinfcError("E-CLI-001", reason=f"--chunks is {chunks}; it must be sizes such as 33,1,30",
                         command="interpret ")
    check_writable(logits)
    deployment = load_model_yaml(model, known_targets(), host_isa=host_isa() or "avx2")
    texts = read_texts(ids, deployment.config.vocab_size, deployment.max_len)
    with session.phase("checkpoint"):
        reference = load_reference(deployment, weights)
    out = []
    for number, text in enumerate(texts):
        with session.phase(f"text {number}, {len(text)} tokens"):
            out.append(score(reference, text, sizes))
    write_logits(logits, out)
    click.echo(f"logits of {sum(map(len, texts))} positions in {logits}")
