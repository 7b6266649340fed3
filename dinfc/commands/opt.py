"""`dinfc opt`: passes on an IR file, to look at what one pass does."""

from __future__ import annotations

from pathlib import Path

import click

from dinfc.diagnostics import DinfcError
from dinfc.session import Session


@click.command("opt")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--pipeline", default="verify", show_default=True, help='Passes, e.g. "canonicalize,fuse{max_ops=4}".')
@click.option("--print-after", multiple=True, metavar="PASS", help="Also print the IR after this pass.")
@click.option("--stop-after", default="", metavar="PASS", help="Stop after this pass.")
@click.option("--dump-ir", type=click.Path(path_type=Path), metavar="DIR", help="Write the IR after every pass.")
@click.option("--time", "show_times", is_flag=True, help="Tell the seconds of each pass (stderr).")
@click.option("--no-verify", is_flag=True, help="Do not check the IR after every pass.")
@click.option("--notes", is_flag=True, help="Tell what passes noted, and how often each rule fired (stderr).")
@click.option("--locations", is_flag=True, help="Print where each op came from.")
@click.option("--target", "target_name", default="cpu", show_default=True)
@click.option("--cpu-isa", default="", help="avx2 or avx512.")
@click.option("--buckets", default="", metavar="N,N", help="Row counts; default: the upper bound of symbol T.")
@click.option("--score-bytes", default="64MiB", show_default=True, help="Budget of index scores.")
@click.option("--max-len", type=int, default=4096, show_default=True, help="Longest sequence.")
@click.pass_obj
def command(
    session: Session,
    file: Path,
    pipeline: str,
    print_after: tuple[str, ...],
    stop_after: str,
    dump_ir: Path | None,
    show_times: bool,
    no_verify: bool,
    notes: bool,
    locations: bool,
    target_name: str,
    cpu_isa: str,
    buckets: str,
    score_bytes: str,
    max_len: int,
) -> None:
    """Run passes on the tensor IR in FILE and print the result. Limits of rows come from the file's symbols."""
    from dinfc.ir.graph import IRError
    from dinfc.ir.text import print_module
    from dinfc.ir_errors import read_module, refused
    from dinfc.passes.base import Context
    from dinfc.passes.pipeline_text import parse_pipeline
    from dinfc.pipeline import Run, limits_of_module, load_target, passes_by_name, run_pipeline

    passes = parse_pipeline(pipeline, passes_by_name())
    target = load_target(target_name, cpu_isa)
    module = read_module(file)
    limits, logit_rows = limits_of_module(module, _sizes(buckets), _size("--score-bytes", score_bytes), max_len)
    context = Context(target, limits, logit_rows)
    run = Run(stop_after=stop_after, print_after=print_after, dump_dir=dump_ir, verify=not no_verify)
    try:
        result = run_pipeline(module, context, passes, run)
    except IRError as error:
        raise refused(error, run.module or module, f"{file}, pass {run.step}") from None
    for name, text in run.printed:
        click.echo(f"// after {name}\n{text}")
    click.echo(print_module(result, locations), nl=False)
    if show_times:
        for name, seconds in run.times:
            click.echo(f"{name:<24} {seconds:8.3f} s", err=True)
    if notes:
        for name, lines in context.notes.items():
            click.echo("\n".join(f"{name}: {line}" for line in lines), err=True)
        for (name, rule), count in sorted(context.fired.items()):
            click.echo(f"{name}: {rule} fired {count} times", err=True)


def _size(option: str, text: str) -> int:
    from dinfc.frontend.yaml_schema import parse_size

    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size <= 0:
        raise DinfcError("E-CLI-003", option=option, value=text)
    return size


def _sizes(text: str) -> tuple[int, ...]:
    """Ascending row counts. Raises DinfcError E-CLI-001 for anything else."""
    parts = text.split(",") if text else []
    sizes = tuple(int(p) for p in parts if p.strip().isdigit())
    if len(sizes) != len(parts) or list(sizes) != sorted(set(sizes)) or 0 in sizes:
        reason = f"--buckets is {text}; it must be ascending row counts such as 8,64"
        raise DinfcError("E-CLI-001", reason=reason, command="opt ")
    return sizes
