"""`dinfc emit-slice`: the device dialects on three kernels, before whole models are compiled for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from dinfc.session import Session


@click.command("emit-slice")
@click.option("--target", "target_name", required=True, help="sm90, sm100 or ascend950.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to create.")
@click.option("--file", type=click.Path(path_type=Path), help="Tensor IR of other kernels of the same classes.")
@click.option("--no-build", is_flag=True, help="Stop at the dialect text: neither TileLang nor a compiler is asked.")
@click.pass_obj
def command(session: Session, target_name: str, output: Path, file: Path | None, no_build: bool) -> None:
    """Write norm + quantise, a scaled product and sparse attention for a device: tile programs, dialect text, device
    source and, for NVIDIA, cubins with what the assembler says of them."""
    from dinfc.codegen.emit.device_slice import slice_text
    from dinfc.device_slice import build, device_target, dialect_text, slice_programs
    from dinfc.ir.parse import parse_module
    from dinfc.ir.tile.text import print_program
    from dinfc.ir_errors import read_module
    from dinfc.output import check_vacant, fresh_folder

    target = device_target(target_name)
    check_vacant(output)
    programs = slice_programs(parse_module(slice_text()) if file is None else read_module(file), target)
    report: dict[str, Mapping[str, object]] = {}
    with fresh_folder(output) as folder:
        for name, program in programs.items():
            with session.phase(name):
                (folder / f"{name}.tir").write_text(print_program(program), encoding="utf-8")
                text = dialect_text(program, target)
                (folder / f"{name}.py").write_text(text, encoding="utf-8")
                if not no_build:
                    report[name] = build(name, program.anchor, text, target, folder)
        if report:
            (folder / "report.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for name in programs:
        click.echo(f"{name}: {', '.join(f'{k} {v}' for k, v in report[name].items())}" if name in report else name)
