"""`dinfc compile`: from model.yaml to a package."""

from __future__ import annotations

from pathlib import Path

import click

from dinfc.diagnostics import DinfcError
from dinfc.session import Session


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--target", help="Target; wins over the file's.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the package to create.")
@click.option("--cpu-isa", help="avx2 or avx512 (default: this machine's).")
@click.option("--no-build", is_flag=True, help="Write sources and build.sh, compile nothing.")
@click.option("--checked", is_flag=True, help="Add the checked kernels: scalar, every index asserted.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="C++ compilers at a time.")
@click.option("--no-cache", is_flag=True, help="Use no object that an earlier run compiled.")
@click.option("--stop-after", default="", metavar="PASS", help="Stop after this pass and print the summary.")
@click.option("--print-after", multiple=True, metavar="PASS", help="Print the IR after this pass.")
@click.option("--dump-ir", type=click.Path(path_type=Path), metavar="DIR", help="Write the IR after every pass.")
@click.option("--time", "show_times", is_flag=True, help="Tell the seconds of each pass (stderr).")
@click.pass_obj
def command(
    session: Session,
    model: Path,
    target: str | None,
    output: Path | None,
    cpu_isa: str | None,
    no_build: bool,
    checked: bool,
    jobs: int,
    no_cache: bool,
    stop_after: str,
    print_after: tuple[str, ...],
    dump_ir: Path | None,
    show_times: bool,
) -> None:
    """Compile MODEL (model.yaml) into a package that runs by itself: `python OUT generate ...`."""
    from dinfc.codegen.emit.cpu_build import default_cache
    from dinfc.codegen.package import BuildOptions
    from dinfc.compiled import compile_deployment, write
    from dinfc.frontend.model_yaml import load_model_yaml
    from dinfc.host import host_isa
    from dinfc.output import check_vacant
    from dinfc.pipeline import Run
    from dinfc.summary import deployment_summary, plan_summary
    from dinfc.target_names import known_targets

    if not stop_after and output is None:
        raise DinfcError("E-CLI-001", reason="-o OUT is missing (or give --stop-after)", command="compile ")
    if stop_after and output is not None:
        raise DinfcError("E-CLI-001", reason="-o and --stop-after exclude one another", command="compile ")
    if output is not None:
        check_vacant(output)
    deployment = load_model_yaml(model, known_targets(), target=target, cpu_isa=cpu_isa, host_isa=host_isa())
    run = Run(stop_after=stop_after, print_after=print_after, dump_dir=dump_ir)
    compiled = compile_deployment(deployment, session, run)
    for name, text in run.printed:
        click.echo(f"// after {name}\n{text}")
    if show_times:
        for name, seconds in run.times:
            click.echo(f"{name:<24} {seconds:8.3f} s", err=True)
    if output is not None:
        folder = None if no_cache else default_cache()
        cache = None if folder is None else folder / "objects"
        write(compiled, output, BuildOptions(not no_build, checked, jobs, cache), session)
    if session.verbosity >= 0:
        for line in deployment_summary(compiled) + plan_summary(compiled):
            click.echo(line)
        if output is not None:
            click.echo(f"package      {output}" + ("  (run kernels/src/build.sh in it)" if no_build else ""))
